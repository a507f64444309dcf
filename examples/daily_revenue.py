"""A materialised view: the revenue of each day, kept up to date by the changes of the orders.

Run it with ``python -m examples.daily_revenue [FOLDER]``; it needs no Spark.
"""

from __future__ import annotations

import sys
import tempfile
from datetime import datetime
from pathlib import Path

import pyarrow as pa
from pyiceberg.table import Table

from volley import (
    Environment,
    IcebergSinkConfig,
    IcebergSource,
    IcebergSourceConfig,
    IcebergStorage,
    IcebergTable,
    MaterializedView,
    TableRef,
    col,
    count,
    max_,
    sum_,
)

ORDERS = pa.table(
    {
        "id": pa.array([1, 2, 3, 4], pa.int64()),
        "at": pa.array([datetime(2026, 11, day, 12) for day in (1, 1, 2, 2)], pa.timestamp("us")),
        "cents": pa.array([500, 250, 999, 1], pa.int64()),
    }
)


def view_of(orders: TableRef) -> MaterializedView:
    """The view: a query over the orders, and the table that keeps its result."""
    query = (
        Environment()
        .from_source(IcebergSource(IcebergSourceConfig(orders)))
        .filter(col("cents") > 1)
        .key_by(day=col("at").dt.truncate("day"))
        .aggregate(orders=count(), cents=sum_("cents"), largest=max_("cents"))
    )
    return MaterializedView("daily_revenue", query, IcebergSinkConfig.from_table(orders.beside("daily_revenue")))


def create(orders: TableRef) -> Table:
    """The table of orders, as pyiceberg writes it; any engine may."""
    catalog = orders.load_catalog()
    catalog.create_namespace("shop")
    table = catalog.create_table("shop.orders", ORDERS.schema)
    table.append(ORDERS)
    return table


def show(view: MaterializedView) -> None:
    """Print the view's rows."""
    for row in sorted(IcebergTable(view.into).rows.to_arrow().to_pylist(), key=lambda row: row["day"]):
        cents, largest = row["cents"] / 100, row["largest"] / 100
        print(f"  {row['day']:%d %b}: {row['orders']} orders, {cents:.2f}, at most {largest:.2f}")


def main(folder: Path) -> None:
    """Fill the view, change orders, and refresh it by these changes."""
    orders = TableRef("shop", "orders", IcebergStorage.Local(str(folder)))
    table, view = create(orders), view_of(orders)
    print(view.refresh())
    show(view)
    table.delete("id = 1")
    table.append(ORDERS.slice(2, 1).set_column(0, "id", pa.array([5], pa.int64())))
    print(view.explain())
    print(view.refresh(mode="incremental"))
    show(view)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()))
