"""Opens a table's files, and reads a data file by field id, with all its rows: those that delete files delete, too."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa
from pyiceberg.io import FileIO
from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import MappedField

from volley.columns.dictionaries import make_batch
from volley.errors import SourceError
from volley.formats import avro_files, orc, parquet
from volley.formats.avro_files import OpenAvro
from volley.formats.input_file import InputFile
from volley.formats.orc import OpenOrc
from volley.formats.parquet import OpenParquet
from volley.formats.parquet_index import PagedFile
from volley.formats.parquet_ranges import plain_values, read_ranges
from volley.iceberg.read.entries import FileEntry
from volley.iceberg.read.projection import FileField, Projection, identified
from volley.iceberg.read.row_ids import RowIds
from volley.iceberg.read.skipping import Positions, pages_with
from volley.iceberg.schema.types import arrow_schema
from volley.iceberg.storage.errors import storage_errors
from volley.secrets import redact_uri, redacted

__all__ = ["READABLE", "OpenDataFile", "check_format", "is_local", "open_data_file", "open_input", "open_stored"]

StoredFile = OpenParquet | OpenOrc | OpenAvro

_OPENERS: dict[str, Callable[[InputFile], AbstractContextManager[StoredFile]]] = {
    "PARQUET": parquet.opened,
    "ORC": orc.opened,
    "AVRO": avro_files.opened,
}

READABLE = frozenset(_OPENERS)
"""The formats of data files, and of delete files that are not deletion vectors, that can be read."""

_BATCH_ROWS = 65_536
_LOCAL = ("", "file")
# What an object store transfers in the time that a request takes, in bytes.
_REMOTE_READ = 5 << 20
_ALL: Mapping[int, Sequence[range]] = {}


def is_local(path: str) -> bool:
    """Return True if a file is on a local disk."""
    return urlsplit(path).scheme in _LOCAL


@contextmanager
def open_input(io: FileIO, path: str) -> Iterator[Any]:
    """Open a file for reading, for as long as the context lasts.

    Raises:
        SourceError: If it does not exist.
        StorageError: If the storage fails or refuses.
    """
    with storage_errors(path, "reading"):
        try:
            stream = io.new_input(path).open()
        except FileNotFoundError as error:
            raise SourceError(
                f"file {redact_uri(path)} of the table is gone",
                hint="its snapshot has expired: start the job again from a newer one, and expire snapshots later than "
                "the slowest reader needs them",
            ) from redacted(error)
    with stream:
        yield stream


def open_stored(io: FileIO, file: FileEntry) -> AbstractContextManager[StoredFile]:
    """Open a data file or a delete file that is not a deletion vector, for as long as the context lasts."""
    check_format(file)
    return _OPENERS[file.format](InputFile(file.path, file.size, lambda: open_input(io, file.path)))


def check_format(file: FileEntry) -> None:
    """Raise SourceError if a data file or a delete file is in a format that can't be read."""
    if file.format not in _OPENERS and file.blob_offset is None:
        raise SourceError(
            f"file {redact_uri(file.path)} is {file.format}, only Parquet, ORC and Avro can be read",
            hint="rewrite the table's files as Parquet by the engine that wrote them",
        )


@contextmanager
def open_data_file(
    io: FileIO,
    file: FileEntry,
    names: Sequence[MappedField],
    constants: Mapping[int, Any],
    part: tuple[int, int] = (0, 1),
) -> Iterator[OpenDataFile]:
    """Open a data file, or an equality-delete file, for as long as the context lasts.

    Args:
        names: The table's name mapping, for files without field ids.
        constants: The values of the columns that its partition determines, by field id.
        part: The number of the part to read and the number of parts; parts are row groups.

    Raises:
        SourceError: If the file is gone, damaged, encrypted or in a format that can't be read.
        StorageError: If the storage fails, or the file has neither field ids nor a name mapping.
    """
    with open_stored(io, file) as stored:
        fields = identified(stored.schema, names, file.path)
        yield OpenDataFile(stored, fields, stored.part(*part), constants, RowIds.of(file))


@dataclass(frozen=True)
class OpenDataFile:
    """An open data file, or a part of it.

    Args:
        stored: The file, in its format.
        constants: The values of columns that it may lack, by field id.
        row_ids: The ids of its rows.
    """

    stored: StoredFile
    fields: Sequence[FileField]
    groups: range
    constants: Mapping[int, Any]
    row_ids: RowIds

    @property
    def _parquet(self) -> OpenParquet:
        assert isinstance(self.stored, OpenParquet)
        return self.stored

    @property
    def positions(self) -> range:
        """The positions of its rows in the whole file."""
        counts = [group.rows for group in self.stored.groups]
        return range(sum(counts[: self.groups.start]), sum(counts[: self.groups.stop]))

    def batches(
        self,
        schema: Schema,
        dictionaries: bool = False,
        rows: int = _BATCH_ROWS,
        groups: Sequence[int] | None = None,
        ranges: Mapping[int, Sequence[range]] = _ALL,
    ) -> Iterator[tuple[pa.RecordBatch, int]]:
        """Yield all rows in order, each batch with the position of its first row in the whole file.

        Args:
            schema: The columns to read, of the table's schema.
            dictionaries: True keeps top-level columns with a small dictionary encoded.
            rows: The most rows of a batch; long values make it smaller.
            groups: The numbers of the row groups to read; None = all of the part.
        """
        target, projection = arrow_schema(schema), Projection(self.constants, dictionaries)
        types = {field.field_id: to.type for field, to in zip(schema.fields, target, strict=True)}
        columns = self._columns(schema)
        names = [column.name for column in columns]
        stored = zip(names, (types[column.field_id or 0] for column in columns), strict=True)
        encoded = pa.schema(list(stored)) if dictionaries else None
        for batch, position in self._stored(names, self.groups if groups is None else groups, ranges, encoded, rows):
            present = {column.field_id: (column, batch.column(column.name)) for column in columns}
            arrays = projection.columns(schema.fields, target, present, batch.num_rows)
            positions = range(position, position + batch.num_rows)
            yield make_batch(self.row_ids.inherited(schema, arrays, positions), target), position

    def _columns(self, schema: Schema) -> list[FileField]:
        """Return the columns of a schema that the file has."""
        ids = {field.field_id for field in schema.fields}
        return [column for column in self.fields if column.field_id in ids]

    def rows_at(self, schema: Schema, positions: Positions) -> Iterator[tuple[pa.RecordBatch, Positions]]:
        """Yield some rows, a batch for each row group; of columns that are stored plainly, only these values are read.

        Args:
            schema: The columns to read, of the table's schema.
            positions: The rows' positions in the whole file, ascending.
        """
        target, columns, projection = arrow_schema(schema), self._columns(schema), Projection(self.constants)
        borders = np.cumsum([0, *(group.rows for group in self.stored.groups)])
        for group, (start, end) in enumerate(pairwise(borders)):
            rows = positions[slice(*np.searchsorted(positions, (start, end)))]
            if len(rows):
                values = self._values_at([column.name for column in columns], group, rows - start)
                present = {column.field_id: (column, values[column.name]) for column in columns}
                arrays = projection.columns(schema.fields, target, present, len(rows))
                yield make_batch(self.row_ids.inherited(schema, arrays, rows), target), rows

    def _values_at(self, names: Sequence[str], group: int, rows: Positions) -> dict[str, pa.Array]:
        """Return the values of some rows of a row group, at least one, by column."""
        if not isinstance(self.stored, OpenParquet):
            return self._decoded_at(names, group, rows)
        paged = {name: self.paged.column(group, name) for name in names}
        plain = {
            name: plain_values(self.paged, column, self._parquet.schema.field(name).type, rows)
            for name, column in paged.items()
            if column is not None
        }
        values = {name: array for name, array in plain.items() if array is not None}
        others = [name for name in names if name not in values]
        if others:
            values |= self._decoded_at(others, group, rows)
        return values

    def _decoded_at(self, names: Sequence[str], group: int, rows: Positions) -> dict[str, pa.Array]:
        """Return the values of some rows of a row group, from the pages that have them."""
        pages = self.pages_with(names, group, rows)
        before = sum(earlier.rows for earlier in self.stored.groups[:group])
        batches = []
        for batch, position in self._stored(names, [group], {} if pages is None else {group: pages}, None, _BATCH_ROWS):
            first = position - before
            low, high = np.searchsorted(rows, (first, first + batch.num_rows))
            if low < high:
                batches.append(batch.take(pa.array(rows[low:high] - first)))
        table = pa.Table.from_batches(batches).combine_chunks()
        return {name: table[name].chunk(0) for name in names}

    def _stored(
        self,
        names: Sequence[str],
        groups: Sequence[int],
        ranges: Mapping[int, Sequence[range]],
        encoded: pa.Schema | None,
        rows: int,
    ) -> Iterator[tuple[pa.RecordBatch, int]]:
        """Yield the rows as they are stored."""
        for group in groups:
            if names and group in ranges and self._pays(names, group, ranges[group]):
                yield from read_ranges(self._parquet, self.paged, names, group, ranges[group], encoded, rows)
            else:
                yield from self.stored.batches(names, [group], encoded, rows)

    def _pays(self, names: Sequence[str], group: int, ranges: Sequence[range]) -> bool:
        """Return True unless reading single pages from an object store takes longer than the whole row group."""
        if is_local(self._parquet.file.name):
            return True
        row_group = self._parquet.groups[group]
        size = sum(chunk.size for chunk in row_group.chunks if chunk.leaf.path.partition(".")[0] in names)
        share = sum(map(len, ranges)) / max(1, row_group.rows)
        return share * size + len(names) * len(ranges) * _REMOTE_READ < size

    def pages_with(self, names: Sequence[str], group: int, rows: Positions) -> list[range] | None:
        """Return the rows of the pages that have some rows of a row group; None if all of it is to be read."""
        return pages_with(self.paged, names, group, rows) if isinstance(self.stored, OpenParquet) else None

    @cached_property
    def paged(self) -> PagedFile:
        """The page index of the file."""
        return PagedFile(self._parquet.file, self._parquet.stream)
