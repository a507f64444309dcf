"""The executors' side of the Iceberg sink: Arrow batches → rolling Parquet files → what the committer needs."""

from __future__ import annotations

import time
import uuid
from bisect import bisect_right
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import FileIO, load_file_io
from pyiceberg.io.pyarrow import (
    StatisticsCollector,
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema, sanitize_column_names
from pyiceberg.table import Table, TableProperties
from pyiceberg.table.locations import load_location_provider
from pyiceberg.typedef import Record

from volley._types import conform
from volley.errors import ConfigError, SchemaMismatchError
from volley.iceberg.config import IcebergSinkConfig
from volley.iceberg.schema import arrow_schema, file_schema
from volley.iceberg.storage import storage_errors
from volley.sink import Epoch, WriteResult

__all__ = ["IcebergWriter", "WrittenFile", "file_prefix"]

_MIB = 1 << 20
_ROW_GROUP_ROWS = 1_048_576
_ROW_GROUP_BYTES = 64 * _MIB
# What Parquet's footer takes for one column of one row group: places, sizes, statistics.
_FOOTER_BYTES = 200
_PARQUET_OPTIONS = {
    TableProperties.PARQUET_PAGE_SIZE_BYTES: "data_page_size",
    TableProperties.PARQUET_DICT_SIZE_BYTES: "dictionary_pagesize_limit",
    TableProperties.PARQUET_PAGE_ROW_LIMIT: "write_batch_size",
}


@dataclass(frozen=True)
class WrittenFile:
    """A data file, and what it was written under: the committer compares that with the table as it is by then."""

    data_file: DataFile
    spec_id: int
    schema_id: int

    @property
    def path(self) -> str:
        """Where it is."""
        return self.data_file.file_path


@dataclass(frozen=True)
class IcebergWriter:
    """What an executor needs to write data files of one table in one epoch; it holds no catalog.

    Args:
        location: The table's location.
        table_properties: The table's properties.
        io_properties: What the FileIO needs, credentials too; never shown.
        schema: The table's schema.
        spec_id: Its partition spec.
        file_prefix: What the names of the files begin with: query and epoch, so that each can be traced.
        target_bytes: A file is closed when its encoded size reaches this (±10 %).
        max_records: The most rows of a file; None = no limit.
        compression: The Parquet codec.
        compression_level: Its level; None = its default.
        row_group_rows: The most rows of a row group.
        row_group_bytes: The most Arrow bytes of a row group: what an open file holds in memory.
        parquet_options: More that `pyarrow.parquet.ParquetWriter` is told.
    """

    location: str
    table_properties: dict[str, str]
    io_properties: dict[str, Any] = field(repr=False)
    schema: Schema
    spec_id: int
    file_prefix: str
    target_bytes: int
    max_records: int | None
    compression: str
    compression_level: int | None
    row_group_rows: int = _ROW_GROUP_ROWS
    row_group_bytes: int = _ROW_GROUP_BYTES
    parquet_options: dict[str, int] = field(default_factory=dict)

    @classmethod
    def for_table(cls, table: Table, config: IcebergSinkConfig, epoch: Epoch) -> IcebergWriter:
        """The writer for a table as it was just loaded.

        Raises:
            ConfigError: If a ``write.…`` property of the table has a value that can't be used; names it.
        """
        options = {option: _number(table.properties, name) for name, option in _PARQUET_OPTIONS.items()}
        rows = _number(table.properties, TableProperties.PARQUET_ROW_GROUP_LIMIT)
        size = _number(table.properties, TableProperties.PARQUET_ROW_GROUP_SIZE_BYTES)
        _check_metrics(table.schema(), table.properties)
        return cls(
            location=table.location(),
            table_properties=dict(table.properties),
            io_properties=dict(table.io.properties),
            schema=table.schema(),
            spec_id=table.spec().spec_id,
            file_prefix=file_prefix(epoch),
            target_bytes=round(config.target_file_size_mb * _MIB),
            max_records=config.max_records,
            compression=config.compression,
            compression_level=config.compression_level,
            row_group_rows=rows or _ROW_GROUP_ROWS,
            row_group_bytes=size or _ROW_GROUP_BYTES,
            parquet_options={option: value for option, value in options.items() if value is not None},
        )

    def open(self, task: int) -> _Files:
        return _Files(self, f"{self.file_prefix}{task:05}-{uuid.uuid4()}")

    @cached_property
    def rows_schema(self) -> pa.Schema:
        """The Arrow schema of the table's rows, under its own names."""
        return arrow_schema(self.schema)

    @cached_property
    def file_schema(self) -> pa.Schema:
        """The Arrow schema of the files, with Iceberg's field ids."""
        return file_schema(self.schema)

    @cached_property
    def io(self) -> FileIO:
        """Where files are written to."""
        return load_file_io(self.io_properties, self.location)

    @cached_property
    def statistics_plan(self) -> dict[int, StatisticsCollector]:
        """By field id, what is to be known of each column of a file; nested columns count one by one."""
        return compute_statistics_plan(sanitize_column_names(self.schema), self.table_properties)

    def parquet(self, file: Any) -> pq.ParquetWriter:
        """A Parquet writer on an open file."""
        return pq.ParquetWriter(
            file,
            self.file_schema,
            compression=self.compression,
            compression_level=self.compression_level,
            store_decimal_as_integer=True,  # as Iceberg's specification has it
            **self.parquet_options,
        )

    def fitted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch in the files' schema: the table's columns in its order; nothing is copied unless types differ.

        Raises:
            SchemaMismatchError: If a column that the table requires has nulls.
            SourceError: If a value can't be cast without loss.
        """
        rows = conform(batch, self.rows_schema)
        for column, values in zip(self.rows_schema, rows.columns, strict=True):
            if not column.nullable and values.null_count:
                raise SchemaMismatchError(
                    f"column {column.name!r} has {values.null_count} nulls, the table requires values",
                    hint="filter those rows out before the sink, or make the table's column optional",
                )
        return pa.record_batch(_Renamed(rows, self.file_schema))

    def data_file(self, path: str, size: int, metadata: pq.FileMetaData) -> WrittenFile:
        """What the committer needs of a closed file; its statistics come from the Parquet footer, not from a read."""
        statistics = data_file_statistics_from_parquet_metadata(
            metadata, self.statistics_plan, parquet_path_to_id_mapping(sanitize_column_names(self.schema))
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
        # Without the cached properties: they are larger than all the rest, and the FileIO may hold connections.
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


def file_prefix(epoch: Epoch) -> str:
    """What the names of an epoch's data files begin with.

    Example:
        >>> file_prefix(Epoch("2b6f8a5e-0000-0000-0000-000000000000", 7))
        '2b6f8a5e-00007-'
    """
    return f"{epoch.query_id[:8]}-{epoch.number:05}-"


def _number(properties: Mapping[str, str], name: str) -> int | None:
    """A table property as a number above 0; None if it is not set."""
    text = properties.get(name)
    if text is None:
        return None
    if not text.isdigit() or int(text) == 0:
        raise ConfigError(f"table property {name} is {text!r}", hint="a whole number above 0")
    return int(text)


def _check_metrics(schema: Schema, properties: dict[str, str]) -> None:
    """Find out on the driver, before a row is written, what would fail on the executors when a file is closed."""
    try:
        compute_statistics_plan(schema, properties)
    except ValueError as error:
        raise ConfigError(
            f"a table property write.metadata.metrics.… is wrong: {error}", hint="none, counts, full, truncate(length)"
        ) from error


@dataclass(frozen=True)
class _Renamed:
    """A batch under another schema of the same layout: names and metadata at every level change, no value is moved."""

    batch: pa.RecordBatch
    schema: pa.Schema

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        _, array = self.batch.__arrow_c_array__()
        return self.schema.__arrow_c_schema__(), array


class _OpenFile:
    """A Parquet file that is being written."""

    def __init__(self, path: str, writer: IcebergWriter) -> None:
        self.path = path
        self.rows = 0
        self._footer = 0
        self._footer_step = _FOOTER_BYTES * len(writer.statistics_plan)
        with storage_errors(path):
            self._stream: Any = writer.io.new_output(path).create(overwrite=True)
            self._parquet = writer.parquet(self._stream)

    @property
    def written(self) -> int:
        """Bytes written so far: the row groups, but not yet the footer."""
        return int(self._stream.tell())

    @property
    def size(self) -> int:
        """About the size the file would have if it were closed now."""
        return self.written + self._footer

    def append(self, rows: pa.Table) -> None:
        """Write the rows as one row group."""
        with storage_errors(self.path):
            self._parquet.write_table(rows, row_group_size=rows.num_rows)
        self.rows += rows.num_rows
        self._footer += self._footer_step

    def close(self) -> tuple[int, pq.FileMetaData]:
        """The size and the footer of the whole file."""
        with storage_errors(self.path, "closing"):
            self._parquet.close()
            size = self.written
            self._stream.close()
        return size, self._parquet.writer.metadata

    def discard(self) -> None:
        """Close what can be closed, before the file is deleted: a stream left open would write when it is collected."""
        for part in (self._parquet, self._stream):
            with suppress(Exception):
                part.close()


class _RowGroup:
    """Slices of batches, not copied, that will be one row group."""

    def __init__(self, rows: int, size: int) -> None:
        self._room = rows
        self._size = size
        self._slices: list[pa.RecordBatch] = []
        self.nbytes = 0
        self.full = False

    def take(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Take what there is room for, at least one row; returns the rest."""
        count = min(batch.num_rows, self._room)
        head = batch.slice(0, count)
        if head.nbytes > self._size - self.nbytes:
            count = max(1, bisect_right(range(1, count + 1), self._size - self.nbytes, key=lambda n: batch[:n].nbytes))
            head = batch.slice(0, count)
        self._slices.append(head)
        self._room -= count
        self.nbytes += head.nbytes
        rest = batch.slice(count)
        self.full = self._room == 0 or self.nbytes >= self._size or rest.num_rows > 0
        return rest

    def table(self, schema: pa.Schema) -> pa.Table:
        return pa.Table.from_batches(self._slices, schema)


class _Files:
    """The files of one attempt of one task, one open at a time, at most one row group in memory.

    The size of a file is known only up to its last row group. So a row group is cut such that the file stays below
    110 % of its target even if the rows compress half as well as those before; one at 95 % is closed.
    """

    def __init__(self, writer: IcebergWriter, prefix: str) -> None:
        self._writer = writer
        self._prefix = prefix
        self._locations = load_location_provider(writer.location, writer.table_properties)
        self._paths: list[str] = []
        self._file: _OpenFile | None = None
        self._group: _RowGroup | None = None
        # Encoded bytes per Arrow byte. Twice this is the worst there is (short numbers that don't repeat, which
        # Parquet first tries to put into a dictionary): a good first guess.
        self._ratio = 0.8
        self._done: list[WrittenFile] = []
        self._result = WriteResult()
        self._seconds = 0.0

    def check(self, batch: pa.RecordBatch) -> None:
        self._writer.fitted(batch)

    def write(self, batch: pa.RecordBatch) -> None:
        began = time.perf_counter()
        rest = self._writer.fitted(batch)
        while rest.num_rows:
            self._group = self._group or self._new_group()
            rest = self._group.take(rest)
            if self._group.full:
                self._flush(self._group)
        self._count(batch.num_rows)
        self._seconds += time.perf_counter() - began

    def close(self) -> WriteResult:
        began = time.perf_counter()
        try:
            if self._group:
                self._flush(self._group)
            if self._file:
                self._finish(self._file)
        except BaseException:
            self.abort()
            raise
        self._seconds += time.perf_counter() - began
        return replace(
            self._result,
            bytes=sum(file.data_file.file_size_in_bytes for file in self._done),
            seconds=self._seconds,
            files=len(self._done),
            committables=tuple(self._done),
        )

    def abort(self) -> None:
        # The attempt has failed already, for a reason of its own; a file that stays is an orphan, never a wrong row.
        if self._file:
            self._file.discard()
        for path in self._paths:
            with suppress(Exception):
                self._writer.io.delete(path)

    def _count(self, rows: int) -> None:
        seen = self._result
        self._result = replace(
            seen,
            rows=seen.rows + rows,
            batches=seen.batches + 1,
            batch_size_min=min(seen.batch_size_min, rows) if seen.batches else rows,
            batch_size_max=max(seen.batch_size_max, rows),
        )

    def _new_group(self) -> _RowGroup:
        writer = self._writer
        done, size = (self._file.rows, self._file.size) if self._file else (0, 0)
        rows = writer.row_group_rows
        if writer.max_records is not None:
            rows = min(rows, writer.max_records - done)
        room = (1.1 * writer.target_bytes - size) / (2 * self._ratio)
        return _RowGroup(rows, min(writer.row_group_bytes, max(1, int(room))))

    def _flush(self, group: _RowGroup) -> None:
        """Write the row group; close the file if it is full."""
        file = self._file = self._file or self._new_file()
        before = file.written
        file.append(group.table(self._writer.file_schema))
        now = (file.written - before) / max(1, group.nbytes)
        # Up at once, down by and by: a file too large is worse than a row group too small.
        self._ratio = max(now, (now + self._ratio) / 2)
        self._group = None
        if file.rows == self._writer.max_records or file.size >= 0.95 * self._writer.target_bytes:
            self._finish(file)

    def _new_file(self) -> _OpenFile:
        path = self._locations.new_data_location(f"{self._prefix}-{len(self._paths):05}.parquet")
        self._paths.append(path)
        return _OpenFile(path, self._writer)

    def _finish(self, file: _OpenFile) -> None:
        size, metadata = file.close()
        self._file = None
        self._done.append(self._writer.data_file(file.path, size, metadata))
