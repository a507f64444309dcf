"""Finds the rows of a data file that delete files delete: by their positions, and by the values of some columns."""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.name_mapping import MappedField
from pyiceberg.types import IcebergType, NestedField, StructType
from pyroaring import BitMap64

from volley.columns.keys.equality import distinct, rows_among
from volley.columns.keys.order import ordered
from volley.errors import SourceError, StorageError
from volley.iceberg.pyiceberg_private.entries import file_attributes
from volley.iceberg.read.data_files import OpenDataFile, open_data_file, open_input, open_stored
from volley.iceberg.read.entries import Cache, Content, FileEntry
from volley.iceberg.read.skipping import Positions
from volley.iceberg.storage.puffin import VECTOR_MAGIC
from volley.secrets import redact_uri

__all__ = ["Mask", "columns_of", "deleted_by_position", "deleted_positions", "equal_positions", "remember_positions"]

_PATH, _POSITION = "file_path", "pos"


Mask = np.ndarray[Any, np.dtype[np.bool_]]
"""A flag for each row, in the file's order."""

# The changes of many snapshots need the same files again and again.
_cache: Cache[Positions] = Cache(32 << 20)

# A Puffin file up to this size is read whole, and kept for a while: its vectors are those of one commit, so of data
# files that are read together. To open it for each would cost several times as much as to decode the vectors.
_WHOLE_BYTES = 4 << 20
_puffins: Cache[bytes] = Cache(4 * _WHOLE_BYTES)

_AT = "at"
# Rows of a data file that are joined at a time: the join hashes the deleted keys once for each of these.
_JOINED_ROWS = 1 << 20


def remember_positions(path: str, delete: DataFile, positions: Positions) -> None:
    """Keep the positions in a data file of a delete file that was just written: this process may need them soon."""
    blob = file_attributes(delete)
    key = (delete.file_path, delete.file_size_in_bytes, blob["blob_offset"], blob["blob_size"], path)
    _cache.put(key, positions, positions.nbytes)


def deleted_positions(io: FileIO, path: str, delete: FileEntry) -> Positions:
    """Return the positions in a data file that a position-delete file or a deletion vector deletes, in any order."""
    key = (delete.path, delete.size, delete.blob_offset, delete.blob_size, path)
    positions = _cache.get(key)
    if positions is None:
        positions = _read(io, path, delete)
        _cache.put(key, positions, positions.nbytes)
    return positions


def deleted_by_position(io: FileIO, path: str, deletes: Iterable[FileEntry], rows: range) -> Mask:
    """Return which of some rows of a data file its position-delete files and deletion vectors delete.

    Args:
        deletes: Its delete files; those of equality deletes are passed over.
        rows: Positions in the file: a writer may have named some that the file does not have.
    """
    mask = np.zeros(len(rows), np.bool_)
    for delete in deletes:
        if delete.content == Content.POSITION_DELETES:
            places = deleted_positions(io, path, delete) - rows.start
            mask[places[(places >= 0) & (places < len(rows))]] = True
    return mask


def _read(io: FileIO, path: str, delete: FileEntry) -> Positions:
    if delete.format == "PUFFIN":
        return _vector(io, delete)
    if delete.format != "PARQUET":
        with open_stored(io, delete) as stored:
            rows = (batch for batch, _ in stored.batches([_PATH, _POSITION], stored.part(0, 1)))
            return np.concatenate([np.empty(0, np.int64), *(_of(pa.table(batch), path) for batch in rows)])
    with open_input(io, delete.path) as stream:
        file = pq.ParquetFile(stream, read_dictionary=[_PATH])
        if delete.referenced_file == path:
            # All rows are of this data file: the column of paths, most of the bytes, need not be read.
            return np.asarray(file.read([_POSITION], use_threads=False)[_POSITION].to_numpy(), np.int64)
        return _of(file.read([_PATH, _POSITION], use_threads=False), path)


def _of(rows: pa.Table, path: str) -> Positions:
    """Return the positions in one data file."""
    return np.asarray(rows.filter(pc.equal(rows[_PATH], path))[_POSITION].to_numpy(), np.int64)


def _vector(io: FileIO, delete: FileEntry) -> Positions:
    """Read a deletion vector: Iceberg's Puffin specification, blob type ``deletion-vector-v1``."""
    blob = _blob(io, delete)
    checked, checksum = blob[4:-4], int.from_bytes(blob[-4:], "big")
    if len(blob) != delete.blob_size or checked[:4] != VECTOR_MAGIC or zlib.crc32(checked) != checksum:
        raise SourceError(
            f"the deletion vector in {delete.path} at byte {delete.blob_offset} is damaged",
            hint="restore the file, or roll the table back to a snapshot without it",
        )
    return np.asarray(BitMap64.deserialize(checked[4:]).to_array(), np.uint64).view(np.int64)


def _blob(io: FileIO, delete: FileEntry) -> bytes:
    start, size = delete.blob_offset, delete.blob_size
    assert start is not None
    assert size is not None
    if not start + size <= delete.size <= _WHOLE_BYTES:
        with open_input(io, delete.path) as stream:
            stream.seek(start)
            return bytes(stream.read(size))
    content = _puffins.get((delete.path, delete.size))
    if content is None:
        with open_input(io, delete.path) as stream:
            content = stream.read()
        _puffins.put((delete.path, delete.size), content, len(content))
    return content[start : start + size]


def columns_of(table: TableMetadata, delete: FileEntry) -> Schema:
    """Return the fields that an equality-delete file compares, each under the newest schema that has it.

    Columns and fields are named by their ids: one that was dropped may have had the name of another one.

    Args:
        table: The table's metadata; fields may have been dropped since.
    """
    schemas = [table.schema(), *sorted(table.schemas, key=lambda schema: schema.schema_id, reverse=True)]
    columns: dict[int, NestedField] = {}
    missing = set(delete.equality_ids)
    if not missing:
        raise StorageError(
            f"delete file {redact_uri(delete.path)} compares no column: which rows it deletes can't be told",
            hint="roll the table back to a snapshot without that file",
        )
    for schema in schemas:
        parts = [part for column in schema.fields if (part := _part(column, missing)) is not None]
        for part in parts:
            columns[part.field_id] = _merged(columns.get(part.field_id), part)
        missing -= {field_id for field_id in missing if any(_path(part, field_id) is not None for part in parts)}
        if not missing:
            return Schema(*columns.values())
    raise StorageError(
        f"delete file {redact_uri(delete.path)} compares field {min(missing)}, which no schema of the table has",
        hint="roll the table back to a snapshot without that file",
    )


def _part(field: NestedField, ids: Collection[int]) -> NestedField | None:
    """Return a field with only those in it, through structs, that have one of some ids; None if there is none."""
    data_type = field.field_type
    if field.field_id not in ids:
        parts = [part for child in _fields(data_type) if (part := _part(child, ids)) is not None]
        if not parts:
            return None
        data_type = StructType(*parts)
    return field.model_copy(update={"name": str(field.field_id), "field_type": data_type})


def _merged(newer: NestedField | None, older: NestedField) -> NestedField:
    """Return a field with the fields of both; none of those in structs has one of the same id in the other, unless it
    is a struct."""
    if newer is None:
        return older
    known = {child.field_id: child for child in _fields(newer.field_type)}
    children = known | {
        child.field_id: _merged(known.get(child.field_id), child) for child in _fields(older.field_type)
    }
    return newer.model_copy(update={"field_type": StructType(*children.values())})


def equal_positions(
    io: FileIO,
    file: OpenDataFile,
    names: Sequence[MappedField],
    deletes: Sequence[FileEntry],
    keys: Mapping[str, Schema],
) -> Iterator[Positions]:
    """Yield the positions of the rows of an open data file that equality-delete files delete.

    Rows are compared by value: null equals null and NaN equals NaN, as in Iceberg's own readers. Values are compared
    under the newest type of their column, so that deletes hold after a column was widened.

    Args:
        keys: The columns that each of them compares, by its path; see `columns_of`.
    """
    together: dict[tuple[int, ...], list[FileEntry]] = {}
    for delete in (delete for delete in deletes if delete.rows):
        together.setdefault(tuple(sorted(delete.equality_ids)), []).append(delete)
    for field_ids, same in together.items():
        schema = keys[same[0].path]
        deleted = pa.concat_tables(_keys_of_file(io, names, delete, schema, field_ids) for delete in same)
        yield from _matches(file, schema, field_ids, distinct(deleted))


def _keys_of_file(
    io: FileIO, names: Sequence[MappedField], delete: FileEntry, schema: Schema, field_ids: Sequence[int]
) -> pa.Table:
    with open_data_file(io, delete, names, {}) as file:
        batches = [_keys(batch, schema, field_ids) for batch, _ in file.batches(schema)]
    return pa.Table.from_batches(batches)


def _matches(file: OpenDataFile, schema: Schema, field_ids: Sequence[int], deleted: pa.Table) -> Iterator[Positions]:
    waiting: list[pa.RecordBatch] = []
    for batch, position in file.batches(schema):
        at = pa.array(np.arange(position, position + batch.num_rows))
        waiting.append(_keys(batch, schema, field_ids).append_column(_AT, at))
        if sum(rows.num_rows for rows in waiting) >= _JOINED_ROWS:
            yield _joined(waiting, deleted)
            waiting = []
    if waiting:
        yield _joined(waiting, deleted)


def _joined(rows: Sequence[pa.RecordBatch], deleted: pa.Table) -> Positions:
    table = pa.Table.from_batches(rows)
    positions: Positions = table[_AT].to_numpy()
    return positions[rows_among(table.drop_columns([_AT]), deleted)]


def _keys(batch: pa.RecordBatch, schema: Schema, field_ids: Sequence[int]) -> pa.RecordBatch:
    """Return the compared values, each as two columns: Acero's join never matches a null."""
    arrays = []
    for field_id in field_ids:
        values = ordered(_value(batch, schema, field_id))
        arrays += [values.is_null(), values.fill_null(_any_value(values.type))]
    return pa.RecordBatch.from_arrays(arrays, [str(number) for number in range(len(arrays))])


def _value(batch: pa.RecordBatch, schema: Schema, field_id: int) -> pa.Array:
    for number, column in enumerate(schema.fields):
        path = _path(column, field_id)
        if path is not None:
            return pc.struct_field(batch.column(number), path) if path else batch.column(number)
    raise AssertionError(f"field {field_id} is in no column")


def _path(field: NestedField, field_id: int) -> list[int] | None:
    """Return the numbers that lead from a column down to a field in it, through structs; None if it is not there."""
    if field.field_id == field_id:
        return []
    paths = ((number, _path(child, field_id)) for number, child in enumerate(_fields(field.field_type)))
    return next(([number, *path] for number, path in paths if path is not None), None)


def _fields(data_type: IcebergType) -> Sequence[NestedField]:
    return data_type.fields if isinstance(data_type, StructType) else ()


def _any_value(data_type: pa.DataType) -> pa.Scalar:
    """Return a value of a type, to stand for null."""
    if pa.types.is_string(data_type) or pa.types.is_binary(data_type):
        return pa.scalar(b"", pa.binary()).cast(data_type)
    return pa.Array.from_buffers(data_type, 1, [None, pa.py_buffer(bytes(32))])[0]
