"""A local table and the driver that changes it, without Spark: executor tasks run here, as pickled copies."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.table import Table

from tests.duck import query
from volley import Epoch, IcebergSink, IcebergSinkConfig, IcebergStorage, Metrics, SinkContext, WriteResult
from volley.columns.exact import array_of
from volley.contracts.sink import ExecutorTask
from volley.iceberg.commit.committer import IcebergCommitter
from volley.iceberg.modes import CommitMode

QUERY = "2b6f8a5e-0000-0000-0000-000000000000"


def shipped(value: Any) -> Any:
    """The value as another process gets it."""
    return pickle.loads(pickle.dumps(value))


def do(tasks: Sequence[ExecutorTask]) -> list[WriteResult]:
    """What Spark's tasks do with executor tasks."""
    return [shipped(shipped(task)()) for task in tasks]


class Lake:
    """A local table that one job changes.

    Args:
        folder: Where it is.
        mode: How.
        schema: The stream's schema.
        properties: Properties of the table.
    """

    query = QUERY
    """The job's, by which its epochs are told from those of others."""

    def __init__(self, folder: Path, mode: CommitMode, schema: pa.Schema, **properties: str) -> None:
        self.folder = folder / "lake"
        storage = IcebergStorage.Local(str(self.folder))
        self.config = (
            IcebergSinkConfig(namespace="db", table="events", storage=storage)
            .with_commit_mode(mode)
            .with_table_properties({name.replace("_", "."): value for name, value in properties.items()})
        )
        self.schema = schema
        self.metrics = Metrics()
        self._opened: list[Any] = []
        self._next = 0

    def driver(self) -> IcebergCommitter:
        """A driver of the job, with a catalog client of its own."""
        committer = IcebergSink(self.config).open(SinkContext("job", self.schema, self.metrics, do))
        assert isinstance(committer, IcebergCommitter)
        self._opened.append(committer._catalog)
        return committer

    def write(self, driver: IcebergCommitter, number: int, *tasks: list[dict[str, Any]]) -> tuple[Epoch, Any]:
        """What the executors do in one epoch: one task for each list of rows."""
        epoch = Epoch(self.query, number)
        writer, results = driver.writer(epoch), []
        for task, rows in enumerate(tasks):
            opened = shipped(writer).open(task)
            if rows:
                columns = [array_of([row.get(field.name) for row in rows], field.type) for field in self.schema]
                opened.write(pa.RecordBatch.from_arrays(columns, schema=self.schema))
            results.append(shipped(opened.close()))
        return epoch, results

    def epoch(self, *tasks: list[dict[str, Any]]) -> None:
        """One epoch after the other, each by a driver of its own."""
        driver = self.driver()
        driver.last_epoch(self.query)
        driver.commit(*self.write(driver, self._next, *tasks))
        self._next += 1

    def table(self) -> Table:
        """The table as another client sees it."""
        catalog = self.config.ref.load_catalog()
        self._opened.append(catalog)
        return catalog.load_table(self.config.ref.identifier)

    def rows(self) -> list[dict[str, Any]]:
        """As pyiceberg reads them."""
        rows: list[dict[str, Any]] = self.table().scan().to_arrow().to_pylist()
        return sorted(rows, key=repr)

    def duckdb_rows(self) -> list[dict[str, Any]]:
        """As DuckDB reads them."""
        found = query(f"from iceberg_scan('{self.table().metadata_location}')").to_arrow_table()
        return sorted(found.to_pylist(), key=repr)

    def files(self) -> list[Path]:
        """The data files that are there, and the temporary ones."""
        paths = Path(self.table().location().removeprefix("file://")).glob("data/**/*")
        return sorted(path for path in paths if path.is_file())

    def close(self) -> None:
        for catalog in self._opened:
            catalog.close()
