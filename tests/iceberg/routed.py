"""A lake whose tables are filled by a routed sink, and drivers of it without Spark."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyspark import cloudpickle

from tests.sinks import config_of
from volley import (
    Epoch,
    IcebergSink,
    LayoutChangedError,
    Metrics,
    SinkContext,
    WriteResult,
)
from volley.iceberg.route.committer import RoutedCommitter
from volley.iceberg.sink import RoutedSink

SCHEMA = pa.schema({"id": pa.int64(), "shop": pa.string(), "price": pa.float64()})
QUERY = str(uuid.UUID(int=1 << 127))

Rows = list[dict[str, Any]]


class Routed:
    """Tables in a local lake.

    Args:
        folder: Where the lake and the state of the sink are.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config = config_of(folder, "{shop}")
        self._drivers: list[RoutedCommitter] = []
        self._catalogs: list[Any] = []

    def driver(self, sink: RoutedSink | None = None, schema: pa.Schema = SCHEMA) -> RoutedCommitter:
        """A driver of the job; by default each row goes to the table of its shop."""
        context = SinkContext("job", schema, Metrics(), state=str(self.folder / "state"))
        committer = (sink or IcebergSink(self.config).routed()).open(context)
        assert isinstance(committer, RoutedCommitter)
        self._drivers.append(committer)
        return committer

    @property
    def catalog(self) -> Catalog:
        """The catalog as another client has it."""
        if not self._catalogs:
            self._catalogs.append(self.config.ref.load_catalog())
        catalog: Catalog = self._catalogs[0]
        return catalog

    def tables(self) -> list[tuple[str, ...]]:
        """The names of all tables."""
        return [name for namespace in self.catalog.list_namespaces() for name in self.catalog.list_tables(namespace)]

    def table(self, name: str) -> Table:
        return self.catalog.load_table(f"db.{name}")

    def rows(self, name: str) -> Rows:
        """The rows of a table, by their ids."""
        found: Rows = self.table(name).scan().to_arrow().to_pylist()
        return sorted(found, key=lambda row: row["id"])

    def ids(self, name: str) -> list[int]:
        return [row["id"] for row in self.rows(name)]

    def epochs(self, name: str) -> list[str]:
        """The epochs of a table's snapshots."""
        return [str(snapshot.summary["volley.epoch"]) for snapshot in self.table(name).snapshots() if snapshot.summary]

    @property
    def parked(self) -> list[str]:
        """The files of parked rows."""
        folder = self.folder / "state" / "parked"
        return sorted(path.name for path in folder.iterdir()) if folder.exists() else []

    def close(self) -> None:
        for driver in self._drivers:
            driver.stop()
        for catalog in self._catalogs:
            catalog.close()


def rows(shop: str, *ids: int) -> Rows:
    return [{"id": id, "shop": shop, "price": id / 2} for id in ids]


def write(committer: RoutedCommitter, number: int, *tasks: Rows | pa.RecordBatch) -> tuple[Epoch, list[WriteResult]]:
    """What the executors do in one epoch: each task with its own copy of the writer."""
    epoch = Epoch(QUERY, number, offsets=f"end of {number}")
    writer = committer.writer(epoch)
    results = []
    for task, given in enumerate(tasks):
        batch = given if isinstance(given, pa.RecordBatch) else pa.RecordBatch.from_pylist(given, writer.schema)
        attempt = cloudpickle.loads(cloudpickle.dumps(writer)).open(task)
        attempt.write(batch)
        results.append(cloudpickle.loads(cloudpickle.dumps(attempt.close())))
    return epoch, results


def run(committer: RoutedCommitter, number: int, *tasks: Rows | pa.RecordBatch) -> list[WriteResult]:
    """One epoch, which is written again as a job does it; returns what was committed."""
    for _ in range(3):
        epoch, results = write(committer, number, *tasks)
        try:
            committer.commit(epoch, results)
        except LayoutChangedError:
            committer.abort(epoch, results)
        else:
            return results
    raise AssertionError("written again and again")
