"""Finds the rows that equality-delete files delete: Iceberg's specification, section "Equality Delete Files"."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io import FileIO
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.name_mapping import MappedField
from pyiceberg.types import IcebergType, NestedField, StructType

from volley.errors import StorageError
from volley.iceberg.read.data_files import OpenDataFile, open_data_file
from volley.iceberg.read.entries import FileEntry
from volley.iceberg.read.position_deletes import Positions

__all__ = ["columns_of", "equal_positions"]

_AT = "at"
# Rows of a data file that are joined at a time: the join hashes the deleted keys once for each of these.
_JOINED_ROWS = 1 << 20


def columns_of(table: TableMetadata, delete: FileEntry) -> Schema:
    """Return the columns that an equality-delete file compares, under the newest schema that has them.

    Args:
        table: The table's metadata; columns may have been dropped since.
        delete: The delete file.

    Raises:
        StorageError: If no schema of the table has one of the fields.
    """
    schemas = [table.schema(), *sorted(table.schemas, key=lambda schema: schema.schema_id, reverse=True)]
    columns: dict[int, NestedField] = {}
    for field_id in delete.equality_ids:
        column = next((column for schema in schemas for column in schema.fields if _path(column, field_id)), None)
        if column is None:
            raise StorageError(
                f"delete file {delete.path} compares field {field_id}, which no schema of the table has",
                hint="roll the table back to a snapshot without that file",
            )
        columns.setdefault(column.field_id, column)
    return Schema(*columns.values())


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
        io: Opens files.
        file: The data file.
        names: The table's name mapping.
        deletes: The equality-delete files.
        keys: The columns that each of them compares, by its path; see `columns_of`.
    """
    together: dict[tuple[int, ...], list[FileEntry]] = {}
    for delete in (delete for delete in deletes if delete.rows):
        together.setdefault(tuple(sorted(delete.equality_ids)), []).append(delete)
    for field_ids, same in together.items():
        schema = keys[same[0].path]
        deleted = pa.concat_tables(_keys_of_file(io, names, delete, schema, field_ids) for delete in same)
        yield from _matches(file, schema, field_ids, deleted.group_by(deleted.column_names).aggregate([]))


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
    matched = table.join(deleted, keys=deleted.column_names, join_type="left semi", use_threads=False)
    return np.asarray(matched[_AT].to_numpy(), np.int64)


def _keys(batch: pa.RecordBatch, schema: Schema, field_ids: Sequence[int]) -> pa.RecordBatch:
    """Return the compared values, each as two columns: Acero's join never matches a null."""
    arrays = []
    for field_id in field_ids:
        values = _comparable(_value(batch, schema, field_id))
        arrays += [values.is_null(), values.fill_null(_any_value(values.type))]
    return pa.RecordBatch.from_arrays(arrays, [str(number) for number in range(len(arrays))])


def _value(batch: pa.RecordBatch, schema: Schema, field_id: int) -> pa.Array:
    for number, column in enumerate(schema.fields):
        if path := _path(column, field_id):
            array = batch.column(number)
            for name in path[1:]:
                array = pc.struct_field(array, name)
            return array
    raise AssertionError(f"field {field_id} is in no column")


def _path(field: NestedField, field_id: int) -> tuple[str, ...]:
    """Return the names from a column down to a field in it, through structs; empty if it is not there."""
    if field.field_id == field_id:
        return (field.name,)
    return next((((field.name, *path)) for child in _fields(field.field_type) if (path := _path(child, field_id))), ())


def _fields(data_type: IcebergType) -> Sequence[NestedField]:
    return data_type.fields if isinstance(data_type, StructType) else ()


def _comparable(array: pa.Array) -> pa.Array:
    """Return values that are equal bit by bit if Iceberg takes them as equal."""
    if isinstance(array.type, pa.BaseExtensionType):
        return array.storage
    if pa.types.is_floating(array.type):
        one_nan = pc.if_else(pc.is_nan(array), pa.scalar(float("nan"), array.type), array)
        return one_nan.view(pa.int32() if array.type == pa.float32() else pa.int64())
    return array


def _any_value(data_type: pa.DataType) -> pa.Scalar:
    """Return a value of a type, to stand for null."""
    if pa.types.is_string(data_type) or pa.types.is_binary(data_type):
        return pa.scalar(b"", pa.binary()).cast(data_type)
    return pa.Array.from_buffers(data_type, 1, [None, pa.py_buffer(bytes(32))])[0]
