"""A local table and the drivers that write to it, without Spark: what the tests of the committer share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from volley import Epoch, IcebergSink, IcebergSinkConfig, IcebergStorage, Metrics, SinkContext, WriteResult
from volley.iceberg.commit.committer import IcebergCommitter

SCHEMA = pa.schema([("id", pa.int64())])
EVENTS = "events"
QUERY = "2b6f8a5e-0000-0000-0000-000000000000"


class Lake:
    """A local table, and the drivers that write to it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        storage = IcebergStorage.Local(str(folder / "lake"))
        self.config = IcebergSinkConfig(namespace=["db"], table="events", storage=storage)
        self._catalogs: list[Any] = []

    def driver(self) -> IcebergCommitter:
        """A driver of the job, with a catalog client of its own."""
        committer = IcebergSink(self.config).open(SinkContext("job", SCHEMA, Metrics()))
        assert isinstance(committer, IcebergCommitter)
        self._catalogs.append(committer._catalog)
        return committer

    def table(self) -> Table:
        """The table as another client sees it."""
        catalog = self.config.ref.load_catalog()
        self._catalogs.append(catalog)
        return catalog.load_table("db.events")

    def rows(self) -> list[int]:
        return sorted(self.table().scan().to_arrow()["id"].to_pylist())

    def files(self) -> list[Path]:
        return sorted(Path(self.table().location().removeprefix("file://")).glob("data/*.parquet"))

    def close(self) -> None:
        for catalog in self._catalogs:
            catalog.close()


def write(committer: IcebergCommitter, number: int, ids: list[int]) -> tuple[Epoch, list[WriteResult]]:
    """What the executors do in one epoch: one task, one file."""
    epoch = Epoch(QUERY, number)
    task = committer.writer(epoch).open(0)
    if ids:
        task.write(pa.record_batch({"id": ids}, SCHEMA))
    return epoch, [task.close()]


def retries(committer: IcebergCommitter) -> int:
    """How often its commits were tried again."""
    metrics = committer._context.metrics
    assert isinstance(metrics, Metrics)
    return metrics.commit_retries


def disturb(
    monkeypatch: pytest.MonkeyPatch, committer: IcebergCommitter, *faults: Callable[[Callable[[], Any]], Any]
) -> list[str]:
    """Each commit of this driver meets the next fault, which is given the real commit; then commits are real again."""
    catalog: Catalog = committer._catalog
    real, left, calls = catalog.commit_table, list(faults), []

    def commit_table(*args: Any) -> Any:
        calls.append("commit")
        return left.pop(0)(lambda: real(*args)) if left else real(*args)

    monkeypatch.setattr(catalog, "commit_table", commit_table)
    return calls


def change_at(
    moment: str, monkeypatch: pytest.MonkeyPatch, driver: IcebergCommitter, change: Callable[[], Any]
) -> None:
    """Another writer changes the table: now, or while this driver commits next (``"while it commits"``)."""

    def other_first(commit: Callable[[], Any]) -> Any:
        change()
        return commit()

    if moment == "while it commits":
        disturb(monkeypatch, driver, other_first)
    else:
        change()
