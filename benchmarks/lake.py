"""A lake of a benchmark's own: a folder with a SQLite catalog, tables filled by Volley's sink without a job."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from volley import Epoch, IcebergSink, IcebergSinkConfig, IcebergStorage, Metrics, SinkContext, WriteResult
from volley.iceberg.commit.committer import IcebergCommitter

__all__ = ["Lake", "open_sink", "write", "write_epoch"]

_QUERY = "00000000-benchmark"


class Lake:
    """Tables ``b.<name>`` in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config = IcebergSinkConfig(namespace="b", table="t", storage=IcebergStorage.Local(str(folder)))

    @classmethod
    @contextmanager
    def temporary(cls) -> Iterator[Lake]:
        """One that is deleted at the end."""
        with tempfile.TemporaryDirectory(prefix="volley-bench-") as folder:
            yield cls(Path(folder))

    def table(self, name: str = "t") -> Table:
        """A table as it is now, by plain pyiceberg."""
        catalog = SqlCatalog("volley", uri=f"sqlite:///{self.folder}/catalog.db")
        try:
            return catalog.load_table(("b", name))
        finally:
            catalog.close()


def open_sink(config: IcebergSinkConfig, schema: pa.Schema, metrics: Metrics | None = None) -> IcebergCommitter:
    """The sink as a job opens it, its table made if it is absent."""
    committer = IcebergSink(config).open(SinkContext("benchmark", schema, metrics or Metrics()))
    assert isinstance(committer, IcebergCommitter)
    return committer


def write(committer: IcebergCommitter, epoch: int, batches: Iterable[pa.RecordBatch], task: int = 0) -> WriteResult:
    """What one task does with its batches."""
    writer = committer.writer(Epoch(_QUERY, epoch)).open(task)
    for batch in batches:
        writer.write(batch)
    return writer.close()


def write_epoch(config: IcebergSinkConfig, epoch: int, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> None:
    """One epoch of one task, committed."""
    committer = open_sink(config, schema)
    committer.commit(Epoch(_QUERY, epoch), [write(committer, epoch, batches)])
