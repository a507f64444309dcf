"""Refreshes of a view in a process of its own, which a failpoint may kill."""

from __future__ import annotations

from pathlib import Path

from volley import Environment, IcebergSource, IcebergSourceConfig, MaterializedView, count, max_, min_, sum_
from volley.iceberg import IcebergSinkConfig, IcebergStorage, TableRef

__all__ = ["main", "view_in"]


def view_in(folder: Path) -> MaterializedView:
    """The view of the orders in a lake."""
    orders = TableRef("db", "t", IcebergStorage.Local(str(folder)))
    stream = Environment().from_source(IcebergSource(IcebergSourceConfig(orders)))
    query = stream.key_by("customer").aggregate(n=count(), total=sum_("price"), low=min_("price"), high=max_("weight"))
    return MaterializedView("view", query, IcebergSinkConfig.from_table(orders.beside("view")))


def main(folder: Path, mode: str) -> None:
    """Refresh the view once."""
    view_in(folder).refresh(mode)  # type: ignore[arg-type]
