"""The executors' side of the Iceberg sink: Arrow batches → rolling Parquet files → what the committer needs."""

from __future__ import annotations

import time
import uuid
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import FileIO, load_file_io
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema, sanitize_column_names
from pyiceberg.table import Table
from pyiceberg.table.locations import load_location_provider
from pyiceberg.typedef import Record

from volley._types import conform
from volley.iceberg.config import IcebergSinkConfig
from volley.iceberg.schema import file_schema
from volley.iceberg.storage import storage_errors
from volley.sink import WriteResult

__all__ = ["IcebergWriter", "WrittenFile"]

_ROW_GROUP_ROWS = 1_048_576
_ROW_GROUP_BYTES = 64 << 20
_MIB = 1 << 20


@dataclass(frozen=True)
class WrittenFile:
    """A data file, and what it was written under: the committer compares that with the table as it is by then."""

    data_file: DataFile
    spec_id: int
    schema_id: int


@dataclass(frozen=True)
class IcebergWriter:
    """What an executor needs to write data files of one table in one epoch; it holds no catalog.

    Args:
        location: The table's location.
        table_properties: The table's properties.
        io_properties: What the FileIO needs, credentials too; never shown.
        schema: The table's schema.
        spec_id: Its partition spec.
        epoch: The epoch's number, for file names.
        target_bytes: A file is closed when its encoded size reaches this (±10 %).
        max_records: The most rows of a file; None = no limit.
        compression: The Parquet codec.
        compression_level: Its level; None = its default.
    """

    location: str
    table_properties: dict[str, str]
    io_properties: dict[str, Any] = field(repr=False)
    schema: Schema
    spec_id: int
    epoch: int
    target_bytes: int
    max_records: int | None
    compression: str
    compression_level: int | None

    @classmethod
    def for_table(cls, table: Table, config: IcebergSinkConfig, epoch: int) -> IcebergWriter:
        """The writer for a table as it was just loaded."""
        return cls(
            location=table.location(),
            table_properties=dict(table.properties),
            io_properties=dict(table.io.properties),
            schema=table.schema(),
            spec_id=table.spec().spec_id,
            epoch=epoch,
            target_bytes=round(config.target_file_size_mb * _MIB),
            max_records=config.max_records,
            compression=config.compression,
            compression_level=config.compression_level,
        )

    def open(self, task: int) -> _Files:
        return _Files(self, f"{self.epoch:05}-{task:05}-{uuid.uuid4()}")

    @cached_property
    def file_schema(self) -> pa.Schema:
        """The Arrow schema of the files, with Iceberg's field ids."""
        return file_schema(self.schema)

    @cached_property
    def io(self) -> FileIO:
        """Where files are written to."""
        return load_file_io(self.io_properties, self.location)

    def parquet(self, file: Any) -> pq.ParquetWriter:
        """A Parquet writer on an open file."""
        return pq.ParquetWriter(
            file,
            self.file_schema,
            compression="none" if self.compression == "none" else self.compression,
            compression_level=self.compression_level,
        )

    def data_file(self, path: str, size: int, metadata: pq.FileMetaData) -> WrittenFile:
        """What the committer needs of a closed file; its statistics come from the Parquet footer, not from a read."""
        names = sanitize_column_names(self.schema)
        statistics = data_file_statistics_from_parquet_metadata(
            metadata, compute_statistics_plan(names, self.table_properties), parquet_path_to_id_mapping(names)
        )
        made = DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=path,
            file_format=FileFormat.PARQUET,
            partition=Record(),
            file_size_in_bytes=size,
            sort_order_id=None,
            equality_ids=None,
            key_metadata=None,
            **statistics.to_serialized_dict(),
        )
        made.spec_id = self.spec_id
        return WrittenFile(made, self.spec_id, self.schema.schema_id)

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


@dataclass
class _OpenFile:
    path: str
    stream: Any
    parquet: pq.ParquetWriter
    rows: int = 0


class _Files:
    """The files of one attempt of one task, one open at a time, at most one row group in memory.

    The size of a file is known only up to its last row group. So row groups begin small, and each next one is cut
    by the bytes a row took so far: a file ends within a few percent of its target.
    """

    def __init__(self, writer: IcebergWriter, prefix: str) -> None:
        self._writer = writer
        self._prefix = prefix
        self._locations = load_location_provider(writer.location, writer.table_properties)
        self._file: _OpenFile | None = None
        self._done: list[WrittenFile] = []
        self._paths: list[str] = []
        self._pending: list[pa.RecordBatch] = []
        self._pending_rows = 0
        self._pending_bytes = 0
        self._encoded_rows = 0
        self._encoded_bytes = 0
        self._sizes: list[int] = []
        self._seconds = 0.0

    def write(self, batch: pa.RecordBatch) -> None:
        began = time.perf_counter()
        self._sizes.append(batch.num_rows)
        batch = self._renamed(batch)
        while batch.num_rows:
            room = self._room() - self._pending_rows
            head = batch.slice(0, room)
            self._pending.append(head)
            self._pending_rows += head.num_rows
            self._pending_bytes += head.nbytes
            batch = batch.slice(head.num_rows)
            if self._pending_rows >= self._room() or self._pending_bytes >= self._byte_limit():
                self._flush()
        self._seconds += time.perf_counter() - began

    def close(self) -> WriteResult:
        began = time.perf_counter()
        if self._pending:
            self._flush()
        if self._file:
            self._finish(self._file)
        self._seconds += time.perf_counter() - began
        if not self._sizes:
            return WriteResult()
        return WriteResult(
            rows=sum(self._sizes),
            bytes=sum(file.data_file.file_size_in_bytes for file in self._done),
            seconds=self._seconds,
            batches=len(self._sizes),
            batch_size_min=min(self._sizes),
            batch_size_max=max(self._sizes),
            files=len(self._done),
            committables=tuple(self._done),
        )

    def abort(self) -> None:
        # The attempt has failed already, for a reason of its own; a file that stays is an orphan, never a wrong row.
        if self._file:
            with suppress(Exception):
                self._file.parquet.close()
                self._file.stream.close()
        for path in self._paths:
            with suppress(Exception):
                self._writer.io.delete(path)

    def _renamed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch in the file's schema: columns of the table in its order, under the names that Parquet takes."""
        schema = self._writer.file_schema
        if batch.schema.equals(schema):
            return pa.RecordBatch.from_arrays(batch.columns, schema=schema)
        names = [column.name for column in self._writer.schema.fields]
        wanted = pa.schema([part.with_name(name) for part, name in zip(schema, names, strict=True)])
        return pa.RecordBatch.from_arrays(conform(batch, wanted).columns, schema=schema)

    def _room(self) -> int:
        """How many rows the row group that is being collected may have."""
        room = _ROW_GROUP_ROWS
        if self._writer.max_records is not None:
            room = min(room, self._writer.max_records - (self._file.rows if self._file else 0))
        if self._encoded_rows:
            missing = self._writer.target_bytes - self._size()
            room = min(room, max(1, round(missing * self._encoded_rows / self._encoded_bytes)))
        return room

    def _byte_limit(self) -> int:
        # Nothing is known before the first row group: it is so small that not even rows that don't compress overshoot.
        return (
            _ROW_GROUP_BYTES if self._encoded_rows else min(_ROW_GROUP_BYTES, max(1, self._writer.target_bytes // 16))
        )

    def _size(self) -> int:
        return int(self._file.stream.tell()) if self._file else 0

    def _flush(self) -> None:
        """Write the collected rows as one row group; close the file if it is full."""
        file = self._file = self._file or self._open()
        table = pa.Table.from_batches(self._pending, self._writer.file_schema)
        self._pending, self._pending_rows, self._pending_bytes = [], 0, 0
        before = self._size()
        with storage_errors(file.path):
            file.parquet.write_table(table, row_group_size=table.num_rows)
        file.rows += table.num_rows
        self._encoded_rows += table.num_rows
        self._encoded_bytes += max(1, self._size() - before)
        if file.rows == self._writer.max_records or self._size() >= self._writer.target_bytes * 0.95:
            self._finish(file)

    def _open(self) -> _OpenFile:
        path = self._locations.new_data_location(f"{self._prefix}-{len(self._paths):05}.parquet")
        self._paths.append(path)
        with storage_errors(path):
            stream = self._writer.io.new_output(path).create(overwrite=True)
            return _OpenFile(path, stream, self._writer.parquet(stream))

    def _finish(self, file: _OpenFile) -> None:
        with storage_errors(file.path, "closing"):
            file.parquet.close()
            size = int(file.stream.tell())
            file.stream.close()
        self._file = None
        self._done.append(self._writer.data_file(file.path, size, file.parquet.writer.metadata))
