"""Writes data files, in row groups that bring each one to its target size, and position-delete files."""

from __future__ import annotations

import struct
import uuid
from bisect import bisect_right
from contextlib import nullcontext, suppress
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionKey

from volley.iceberg.schema.types import PATH_ID, POSITION_ID
from volley.iceberg.storage.errors import storage_errors
from volley.iceberg.storage.files import uploaded
from volley.iceberg.write.annotated import Annotated
from volley.iceberg.write.required_fields import with_required_fields
from volley.iceberg.write.row_groups import row_group
from volley.iceberg.write.table_format import TableFormat
from volley.iceberg.write.written import WrittenFile

__all__ = ["RollingFiles", "write_position_deletes"]

# Bytes of Parquet's footer per column of a row group: positions, sizes, statistics.
_FOOTER_BYTES = 200
_POSITIONS = pa.schema(
    [
        pa.field("file_path", pa.string(), False, {"PARQUET:field_id": str(PATH_ID)}),
        pa.field("pos", pa.int64(), False, {"PARQUET:field_id": str(POSITION_ID)}),
    ]
)


class _OpenFile:
    """An open Parquet file; its first rows determine its options."""

    def __init__(self, path: str, table: TableFormat, first: pa.Table) -> None:
        self.path = path
        self.schema = first.schema
        self.rows = 0
        self._footer = 0
        self._footer_step = _FOOTER_BYTES * len(table.statistics_plan)
        with storage_errors(path):
            stream: Any = uploaded(table.io.new_output(path).create(overwrite=True))
            self._stream: Any = Annotated(stream, table.annotations) if table.annotations else stream
            self._parquet = table.parquet(self._stream, first)

    @property
    def written(self) -> int:
        """The bytes written so far: the row groups without the footer."""
        return int(self._stream.tell())

    @property
    def size(self) -> int:
        """The estimated size of the file if it were closed now."""
        return self.written + self._footer

    def append(self, rows: pa.Table) -> None:
        """Write the rows as one row group."""
        with storage_errors(self.path):
            self._parquet.write_table(with_required_fields(rows), row_group_size=rows.num_rows)
        self.rows += rows.num_rows
        self._footer += self._footer_step

    def close(self) -> tuple[int, pq.FileMetaData]:
        """Close the file; return its size and its footer."""
        with storage_errors(self.path, "closing"):
            with self._stream.end() if isinstance(self._stream, Annotated) else nullcontext():
                self._parquet.close()
            size = self.written
            self._stream.close()
        return size, self._parquet.writer.metadata

    def discard(self) -> None:
        """Close the file before it is deleted: an open stream would write when it is garbage-collected."""
        for part in (self._parquet, self._stream):
            with suppress(Exception):
                part.close()


class _RowGroup:
    """Slices of batches, without copies, that become one row group."""

    def __init__(self, rows: int, size: int) -> None:
        self._room = rows
        self._size = size
        self.slices: list[pa.RecordBatch] = []
        self.nbytes = 0
        self.full = False

    def take(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Add as many rows as there is room for, at least one; return the rest."""
        count = min(batch.num_rows, self._room)
        head = batch.slice(0, count)
        if head.nbytes > self._size - self.nbytes:
            count = max(1, bisect_right(range(1, count + 1), self._size - self.nbytes, key=lambda n: batch[:n].nbytes))
            head = batch.slice(0, count)
        self.slices.append(head)
        self._room -= count
        self.nbytes += head.nbytes
        rest = batch.slice(count)
        self.full = self._room == 0 or self.nbytes >= self._size or rest.num_rows > 0
        return rest


class RollingFiles:
    """The files of one task attempt: one open file at a time, at most one row group in memory.

    The size of a file is known only up to its last row group. So a row group is cut such that the file stays below
    110 % of its target even if its rows compress half as well as those before; a file at 95 % is closed.
    """

    def __init__(self, table: TableFormat, prefix: str) -> None:
        self._table = table
        self._prefix = prefix
        self._paths: list[str] = []
        self._partition: PartitionKey | None = None
        self._file: _OpenFile | None = None
        self._group: _RowGroup | None = None
        # Encoded bytes per Arrow byte. The worst case is twice this (distinct short numbers, for which Parquet tries
        # a dictionary first), so it is a good first guess.
        self._ratio = 0.8
        self.done: list[WrittenFile] = []

    def write(self, rows: pa.RecordBatch) -> None:
        """Write rows, in the files' schema, to the current partition."""
        while rows.num_rows:
            self._group = self._group or self._new_group()
            rows = self._group.take(rows)
            if self._group.full:
                self._flush(self._group)

    def turn_to(self, partition: PartitionKey) -> None:
        """Close the open file; the following rows belong to this partition."""
        self.finish()
        # The partition of an unpartitioned table has an empty path: "data//file".
        self._partition = partition if partition.partition_spec.fields else None

    def finish(self) -> None:
        """Write the remaining rows and close the open file."""
        if self._group:
            self._flush(self._group)
        if self._file:
            self._close(self._file)

    def discard(self) -> None:
        """Delete all files; ignore errors: a file that stays is an orphan, which no snapshot refers to."""
        if self._file:
            self._file.discard()
        for path in self._paths:
            with suppress(Exception):
                self._table.io.delete(path)

    def _new_group(self) -> _RowGroup:
        table = self._table
        done, size = (self._file.rows, self._file.size) if self._file else (0, 0)
        rows = table.row_group_rows
        if table.max_records is not None:
            rows = min(rows, table.max_records - done)
        room = (1.1 * table.target_bytes - size) / (2 * self._ratio)
        return _RowGroup(rows, min(table.row_group_bytes, max(1, int(room))))

    def _flush(self, group: _RowGroup) -> None:
        """Write the row group; close the file if it is full."""
        first = self._file.schema if self._file else None
        rows = row_group(group.slices, self._table.file_schema, first, self._table.bloom_filters)
        file = self._file = self._file or self._new_file(rows)
        size_before = file.written
        file.append(rows)
        ratio = (file.written - size_before) / max(1, group.nbytes)
        # Raise the estimate at once, lower it gradually: an oversized file is worse than a small row group.
        self._ratio = max(ratio, (ratio + self._ratio) / 2)
        self._group = None
        if file.rows == self._table.max_records or file.size >= 0.95 * self._table.target_bytes:
            self._close(file)

    def _new_file(self, first: pa.Table) -> _OpenFile:
        name = f"{self._prefix}-{len(self._paths):05}.parquet"
        path = self._table.new_path(name, self._partition)
        self._paths.append(path)
        return _OpenFile(path, self._table, first)

    def _close(self, file: _OpenFile) -> None:
        size, metadata = file.close()
        self._file = None
        self.done.append(self._table.data_file(file.path, size, metadata, self._partition))


def write_position_deletes(table: TableFormat, file: DataFile, positions: np.ndarray[Any, Any]) -> WrittenFile:
    """Write a position-delete file for one data file; its bounds are that file's path: readers of others skip it."""
    path = table.new_path(f"{uuid.uuid4()}-deletes.parquet")
    paths = pa.DictionaryArray.from_arrays(pa.array(np.zeros(len(positions), np.int32)), [file.file_path])
    # In memory first: most of these files are tiny, and each write to a stream of Python costs as much as its pages.
    content = pa.BufferOutputStream()
    with pq.ParquetWriter(content, _POSITIONS, compression="zstd", store_schema=False) as parquet:
        parquet.write_table(pa.Table.from_arrays([paths.cast(pa.string()), pa.array(positions)], schema=_POSITIONS))
    encoded = content.getvalue()
    with storage_errors(path):
        stream: Any = table.io.new_output(path).create(overwrite=True)
        with stream:
            stream.write(encoded)
    file_path = file.file_path.encode()
    deletes = DataFile.from_args(
        content=DataFileContent.POSITION_DELETES,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=file.partition,
        record_count=len(positions),
        file_size_in_bytes=encoded.size,
        lower_bounds={PATH_ID: file_path, POSITION_ID: struct.pack("<q", positions[0])},
        upper_bounds={PATH_ID: file_path, POSITION_ID: struct.pack("<q", positions[-1])},
    )
    deletes.spec_id = file.spec_id
    return WrittenFile(deletes, table.layout.fingerprint)
