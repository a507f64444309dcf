"""Writes the rows of a group of data files anew, in an order: on the driver, or on an executor."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionKey
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortDirection, SortField, SortOrder
from pyiceberg.transforms import IdentityTransform

from volley.contracts.epoch import WriteResult
from volley.errors import ConfigError, near
from volley.iceberg.layout.layout import Layout
from volley.iceberg.maintain.options import CompactionOptions
from volley.iceberg.read.rows import FileTask, RowReader
from volley.iceberg.read.shredding import shredding_of
from volley.iceberg.schema.types import with_shredding
from volley.iceberg.storage.errors import storage_errors
from volley.iceberg.write.data_files import RollingFiles
from volley.iceberg.write.table_format import TableFormat
from volley.iceberg.write.writer import PartitionBuffer
from volley.iceberg.write.written import WrittenFile
from volley.task.failpoints import reach

__all__ = ["Rewrite", "Rewritten", "RowOrdering", "ZOrderLayout", "ordering_of", "read_order", "z_values"]

_ROW, _PLACE = "row", "place"

_Numbers = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True)
class Rewritten:
    """What was written in the place of a group of files.

    The rows of the group, without deleted ones, have numbers: from 0, in the order of the files and of their rows.

    Args:
        starts: The number of the first row of each file, and of a row after the last one.
        order: The location of a file with the numbers of the rows in the order in which they stand in the new files;
            None = in the order of the numbers.
    """

    number: int
    starts: tuple[int, ...]
    files: tuple[WrittenFile, ...]
    order: str | None = None


@dataclass(frozen=True)
class Rewrite:
    """Executor work: writes the rows of a group of data files anew. Each attempt writes files of its own.

    Args:
        partition: The partition of all rows; None = the rows are divided by the partition spec of the format.
        until: The time, in seconds since 1970, from which on nothing is written any more; None = no limit.
    """

    format: TableFormat
    reader: RowReader
    number: int
    tasks: tuple[FileTask, ...]
    partition: tuple[Any, ...] | None
    ordering: RowOrdering
    until: float | None = None

    def __call__(self) -> WriteResult:
        """Return a `Rewritten` as the only committable; none after the time limit."""
        if self.until is not None and time.time() >= self.until:
            return WriteResult()
        return self._shredding_as_before().write()

    def _shredding_as_before(self) -> Rewrite:
        """Return the same work, whose files shred variants as those do that they replace."""
        files = [task.file for task in self.tasks]
        shredding = shredding_of(self.format.io, files, self.format.schema, self.reader.names)
        return replace(
            self,
            format=replace(self.format, schema=with_shredding(self.format.schema, shredding)),
            reader=replace(self.reader, schema=with_shredding(self.reader.schema, shredding)),
        )

    def write(self) -> WriteResult:
        """Write the rows to files that shred variants as the format does."""
        began = time.perf_counter()
        keeps_order = self.partition is not None and self.ordering.order.is_unsorted
        files = _Files(self.format, f"{self.number:05}-{uuid.uuid4()}", self.partition)
        order = None
        try:
            starts = self._copy(files) if keeps_order else self._rearrange(files)
            files.finish()
            if not keeps_order:
                order = files.write_order()
            reach("in-rewrite", self.number)
        except BaseException:
            files.discard()
            raise
        return WriteResult(
            rows=starts[-1],
            bytes=sum(file.data_file.file_size_in_bytes for file in files.done),
            seconds=time.perf_counter() - began,
            files=len(files.done),
            committables=(Rewritten(self.number, tuple(starts), tuple(files.done), order),),
        )

    def _copy(self, files: _Files) -> list[int]:
        starts = [0]
        for task in self.tasks:
            rows = 0
            for batch in self.reader.read(self.format.io, task):
                files.write(self.format.fitted(batch))
                rows += batch.num_rows
            starts.append(starts[-1] + rows)
        return starts

    def _rearrange(self, files: _Files) -> list[int]:
        """Sort the rows, and divide them by partition, with runs on the local disk; their numbers come along."""
        buffer = PartitionBuffer(self._layout, 2 * self.format.row_group_bytes)
        places = self._places() if self.ordering.is_z_order else None
        starts = [0]
        for task in self.tasks:
            at = starts[-1]
            for batch in self.reader.read(self.format.io, task):
                rows, after = self.format.fitted(batch), at + batch.num_rows
                if places is not None:
                    rows = rows.append_column(_PLACE, places[at:after])
                buffer.add(rows.append_column(_ROW, pa.array(np.arange(at, after))))
                at = after
            starts.append(at)
        buffer.empty_into(files.with_numbers())
        return starts

    @property
    def _layout(self) -> Layout:
        kind = ZOrderLayout if self.ordering.is_z_order else Layout
        spec = self.format.spec if self.partition is None else UNPARTITIONED_PARTITION_SPEC
        return kind(self.format.schema, spec, self.ordering.order)

    def _places(self) -> pa.Array:
        """Return the place of each row on the z-order curve, by its number; only the columns concerned are read."""
        schema = self.format.schema
        names = [schema.find_column_name(field.source_id) or "" for field in self.ordering.order.fields]
        some = Schema(
            *(field for field in schema.fields if any(f"{name}.".startswith(f"{field.name}.") for name in names))
        )
        layout = Layout(some, UNPARTITIONED_PARTITION_SPEC, self.ordering.order)
        flags = [layout.sort_columns(batch) for batch in self._batches(some)]
        if not flags:
            return pa.array([], pa.int64())
        # Pairs: whether a value is null, and the value.
        columns = pa.Table.from_batches(flags).columns
        pairs = zip(columns[::2], columns[1::2], strict=True)
        return z_values([pc.if_else(pc.equal(is_null, 1), None, values) for is_null, values in pairs])

    def _batches(self, schema: Schema) -> Iterator[pa.RecordBatch]:
        for task in self.tasks:
            yield from replace(self.reader, schema=schema).read(self.format.io, task)


class _Files(RollingFiles):
    """The new files of a group, and the numbers of their rows.

    Args:
        partition: The partition of all rows; None = the rows come with theirs.
    """

    def __init__(self, table: TableFormat, prefix: str, partition: tuple[Any, ...] | None) -> None:
        super().__init__(table, prefix)
        self._only = None if partition is None else table.layout.partition(partition)
        self._numbers: list[_Numbers] | None = None
        self._side = table.new_path(f"{prefix}-order.parquet")
        if self._only is not None and table.spec.fields:
            super().turn_to(self._only)

    def with_numbers(self) -> _Files:
        """Return these files, to which the number of a row is then written as its last column."""
        self._numbers = []
        return self

    def turn_to(self, partition: PartitionKey) -> None:
        super().turn_to(self._only or partition)

    def write(self, rows: pa.RecordBatch) -> None:
        if self._numbers is not None:
            count = len(self._table.file_schema)
            self._numbers.append(rows.column(rows.num_columns - 1).to_numpy().copy())
            rows = rows.select(range(count))
        super().write(rows)

    def write_order(self) -> str:
        """Write the numbers of the rows, in the order of the files, to a file beside them; return its location."""
        numbers = pa.table({_ROW: np.concatenate([np.empty(0, np.int64), *(self._numbers or ())])})
        self._paths.append(self._side)
        with storage_errors(self._side):
            stream: Any = self._table.io.new_output(self._side).create(overwrite=True)
            with stream:
                pq.write_table(numbers, stream, compression="zstd")
        return self._side


def read_order(io: FileIO, location: str) -> _Numbers:
    """Return the numbers of the rows that `Rewritten.order` names."""
    with storage_errors(location, "reading"), io.new_input(location).open() as stream:
        numbers: _Numbers = pq.read_table(stream)[_ROW].to_numpy()
    return numbers


_DIRECTIONS = {"asc": SortDirection.ASC, "desc": SortDirection.DESC}
_BITS = 62


@dataclass(frozen=True)
class RowOrdering:
    """How the rows of a group of files are ordered; picklable."""

    order: SortOrder = UNSORTED_SORT_ORDER
    is_z_order: bool = False

    @property
    def of_files(self) -> SortOrder:
        """The sort order that the new files have by their manifest: Iceberg's specification has no z-order."""
        return UNSORTED_SORT_ORDER if self.is_z_order else self.order


def ordering_of(table: Table, options: CompactionOptions) -> RowOrdering:
    """Return the order that the options ask for."""
    if options.z_order:
        fields = [_field(table, column, SortDirection.ASC) for column in options.z_order]
        return RowOrdering(SortOrder(*fields, order_id=0), is_z_order=True)
    if options.sort_by is True:
        if table.sort_order().is_unsorted:
            raise ConfigError(
                f"table {'.'.join(table.name())} has no sort order",
                hint='name the columns: sort_by=["country", "at desc"]',
            )
        return RowOrdering(table.sort_order())
    if not options.sort_by:
        return RowOrdering()
    assert not isinstance(options.sort_by, bool | str)
    fields = [_field(table, *_column_and_direction(table.schema(), text)) for text in options.sort_by]
    known = (order for order in table.sort_orders().values() if order.fields == fields)
    # Files in an order that the table does not have count as unsorted.
    return RowOrdering(next(known, SortOrder(*fields, order_id=0)))


def _column_and_direction(schema: Schema, text: str) -> tuple[str, SortDirection]:
    column, _, direction = text.rpartition(" ")
    if column and direction.lower() in _DIRECTIONS and text not in schema.column_names:
        return column.strip(), _DIRECTIONS[direction.lower()]
    return text, SortDirection.ASC


def _field(table: Table, column: str, direction: SortDirection) -> SortField:
    schema = table.schema()
    try:
        field = schema.find_field(column)
    except ValueError as error:
        raise ConfigError(
            f"table {'.'.join(table.name())} has no column {column!r} to sort by",
            hint=near(column, schema.column_names),
        ) from error
    sort_field = SortField(field.field_id, IdentityTransform(), direction)
    try:
        SortOrder(sort_field).check_compatible(schema)
        schema.accessor_for_field(field.field_id)
    except ValueError as error:
        raise ConfigError(
            f"rows of table {'.'.join(table.name())} can't be sorted by {column!r}: it is {field.field_type}, or in a "
            "list or map",
            hint="name a column of numbers, texts, dates or times, or a field of a struct",
        ) from error
    return sort_field


class ZOrderLayout(Layout):
    """A layout whose rows are sorted by their z-value, which is the last but one column of the rows."""

    def sort_columns(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        return pa.record_batch([rows.column(rows.num_columns - 2)], names=["0"])

    @cached_property
    def sort_directions(self) -> list[tuple[str, str]]:
        return [("0", "ascending")]


def z_values(columns: Sequence[pa.ChunkedArray]) -> pa.Array:
    """Return the place of each row on the z-order curve over some columns.

    The bits of the columns' values are interleaved: G. M. Morton, "A computer oriented geodetic data base and a new
    technique in file sequencing", 1966. As in Delta Lake's ``OPTIMIZE ZORDER BY``, these are not the bits of the values
    but of their ranks, so that a column counts as much as another whatever its type and the distribution of its values.

    Example:
        >>> y, x = pa.chunked_array([["a", "a", "b", "b"]]), pa.chunked_array([[5, 9, 5, 9]])
        >>> np.argsort(z_values([y, x])).tolist()
        [0, 1, 2, 3]
    """
    bits = min(_BITS // len(columns), 20)
    codes = [_ranks(column) * (1 << bits) // (len(column) + 1) for column in columns]
    places = np.zeros(len(columns[0]), np.int64)
    for bit in reversed(range(bits)):
        for code in codes:
            places = places << 1 | (code >> bit) & 1
    return pa.array(places)


def _ranks(column: pa.ChunkedArray) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return the rank of each value, from 1; of nulls 0. Equal values have the lowest rank of them."""
    ranks: np.ndarray[tuple[int], np.dtype[np.int64]]
    ranks = pc.rank(column, sort_keys="ascending", tiebreaker="min").to_numpy().astype(np.int64)
    return np.where(column.is_null().to_numpy(), 0, ranks)
