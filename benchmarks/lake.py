"""A lake of a benchmark's own: a folder with a SQLite catalog, tables that Volley's sink fills without a job."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import DataFile, ManifestEntryStatus
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot, SnapshotLogEntry

from tests.duck import duckdb_with_iceberg
from volley import Committer, Environment, IcebergSink, IcebergSinkConfig, IcebergStorage, Metrics, SinkContext
from volley.contracts.epoch import Epoch, WriteResult
from volley.engine.progress import Progress
from volley.stream.stream import DataStream

QUERY = "00000000-benchmark"  # whose epochs are written


class Lake:
    """Tables ``b.<name>`` in a folder."""

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        self.config = IcebergSinkConfig(namespace="b", table="t", storage=IcebergStorage.Local(str(folder)))

    def named(self, table: str) -> IcebergSinkConfig:
        """The configuration of another table."""
        return replace(self.config, table=table)

    def environment(self, master: str | None = None, **settings: Any) -> Environment:
        """Where jobs start that keep their checkpoints in the folder."""
        return Environment(master, checkpoint_dir=self.folder / "checkpoints", **settings)

    def fill(self, table: str, rows: DataStream) -> Progress:
        """Run a job of the same name that writes rows into a table."""
        return rows.to_sink(IcebergSink(self.named(table))).execute(table).progress

    def catalog(self) -> SqlCatalog:
        """Plain pyiceberg's."""
        return SqlCatalog("volley", uri=f"sqlite:///{self.folder}/catalog.db", warehouse=f"file://{self.folder}")

    def register(self, name: str, metadata: TableMetadata, snapshots: list[Snapshot], **changes: Any) -> None:
        """Make a table of the metadata of another one, with these snapshots and other changes."""
        log = [SnapshotLogEntry.model_validate(snapshot.model_dump(by_alias=True)) for snapshot in snapshots]
        changes |= {"snapshots": snapshots, "snapshot_log": log, "last_sequence_number": len(snapshots)}
        path = self.folder / f"{name}.metadata.json"
        path.write_text(metadata.model_copy(update=changes).model_dump_json())
        with closing(self.catalog()) as catalog:
            catalog.register_table(("b", name), f"file://{path}")

    def table(self, name: str = "t") -> Table:
        """A table as it is now, by plain pyiceberg."""
        with closing(self.catalog()) as catalog:
            return catalog.load_table(("b", name))


def open_sink(config: IcebergSinkConfig, schema: pa.Schema) -> Committer:
    """The sink as a job opens it, its table made if it is absent."""
    return IcebergSink(config).open(SinkContext("benchmark", schema, Metrics()))


def write(committer: Committer, epoch: int, batches: Iterable[pa.RecordBatch], task: int = 0) -> WriteResult:
    """What one task does with its batches."""
    writer = committer.writer(Epoch(QUERY, epoch)).open(task)
    for batch in batches:
        writer.write(batch)
    return writer.close()


def commit(committer: Committer, epoch: int, results: list[WriteResult]) -> None:
    """Commit as a job does, which asks for the last epoch before."""
    committer.last_epoch(QUERY)
    committer.commit(Epoch(QUERY, epoch), results)


def write_epoch(config: IcebergSinkConfig, epoch: int, *tasks: Iterable[pa.RecordBatch]) -> None:
    """One epoch of some tasks, committed."""
    first, *others = map(iter, tasks)
    batch = next(first)
    committer = open_sink(config, batch.schema)
    written = [write(committer, epoch, rows, task) for task, rows in enumerate([chain([batch], first), *others])]
    committer.commit(Epoch(QUERY, epoch), written)


def scan_by_duckdb(metadata: str, columns: str, where: str = "true") -> tuple[Any, ...]:
    """The row of aggregates that DuckDB reads of a table, by the location of its metadata."""
    query = f"select {columns} from iceberg_scan('{metadata}') where {where}"
    (row,) = duckdb_with_iceberg().execute(query).fetchall()
    return tuple(row)


def added_files(table: Table, snapshot: Snapshot) -> list[DataFile]:
    """The files that a snapshot added."""
    return [
        entry.data_file
        for manifest in snapshot.manifests(table.io)
        if manifest.added_snapshot_id == snapshot.snapshot_id
        for entry in manifest.fetch_manifest_entry(table.io)
        # A manifest that was merged from others also lists what is there already.
        if entry.status is ManifestEntryStatus.ADDED and entry.snapshot_id == snapshot.snapshot_id
    ]
