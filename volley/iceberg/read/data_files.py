"""Reads data files of a table by field id, as its schema is now; pyiceberg's reader loses nulls of nested columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.conversions import from_json
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.name_mapping import MappedField
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, PrimitiveType, StructType

from volley.errors import StorageError
from volley.iceberg.pyiceberg_private.access import partition_values
from volley.iceberg.schema.types import arrow_schema

__all__ = ["read_data_file"]

_FIELD_ID = b"PARQUET:field_id"
_BATCH_ROWS = 65_536


def read_data_file(io: FileIO, file: DataFile, table: TableMetadata, schema: Schema) -> Iterator[pa.RecordBatch]:
    """All rows of a data file in their order, those that delete files name too.

    A column that the file has not is, as Iceberg's specification has it, the value of its partition, the default that
    the schema gives it, or null. No value changes but to a wider type.

    Args:
        io: Where the file is read from.
        file: A data file of the table.
        table: The table's metadata; its snapshots are not needed.
        schema: The columns wanted, of the table's schema.

    Raises:
        StorageError: If it is no Parquet file, or has neither field ids nor a mapping of names to them.
    """
    if file.file_format != FileFormat.PARQUET:
        raise StorageError(
            f"data file {file.file_path} is {file.file_format.value}, only Parquet can be read here",
            hint="rewrite the table's files as Parquet by the engine that wrote them",
        )
    with io.new_input(file.file_path).open() as stream:
        parquet = pq.ParquetFile(stream, coerce_int96_timestamp_unit="us")
        columns = _identified(parquet.schema_arrow, _mapped_names(table), file.file_path)
        wanted = [column for column in columns if _has(schema, column.field_id)]
        projection = _Projection(_constants(file, table))
        target = arrow_schema(schema)
        for batch in parquet.iter_batches(_BATCH_ROWS, columns=[each.name for each in wanted], use_threads=False):
            found = {each.field_id: (each, batch.column(each.name)) for each in wanted}
            arrays = projection.fields(schema.fields, target, found, batch.num_rows)
            yield pa.RecordBatch.from_arrays(arrays, schema=target)


@dataclass(frozen=True)
class _FileField:
    """A field of a file.

    Args:
        name: Its name there.
        field_id: Its id; None = it is none of the table's.
        fields: Those in it: of a struct its fields, of a list its element, of a map its key and its value.
    """

    name: str
    field_id: int | None
    fields: tuple[_FileField, ...] = ()


def _has(schema: Schema, field_id: int | None) -> bool:
    return any(field.field_id == field_id for field in schema.fields)


def _mapped_names(table: TableMetadata) -> Sequence[MappedField]:
    """The table's own word on which names are which fields, for files that were not written for it."""
    mapping = table.name_mapping()
    return mapping.root if mapping else ()


def _identified(schema: pa.Schema, mapped: Sequence[MappedField], path: str) -> list[_FileField]:
    """The columns of a file; names count only if it has no ids at all."""
    by_id = [_by_id(field) for field in schema]
    if any(map(_has_ids, by_id)):
        return by_id
    if not mapped:
        raise StorageError(
            f"data file {path} has no field ids, and the table has no property schema.name-mapping.default",
            hint="set that property, or rewrite the file by the engine that added it",
        )
    return [_by_name(field, field.name, mapped) for field in schema]


def _has_ids(field: _FileField) -> bool:
    return field.field_id is not None or any(map(_has_ids, field.fields))


def _by_id(field: pa.Field) -> _FileField:
    given = (field.metadata or {}).get(_FIELD_ID)
    inner = tuple(_by_id(each) for _, each in _inner(field.type))
    return _FileField(field.name, None if given is None else int(given), inner)


def _by_name(field: pa.Field, name: str, mapped: Sequence[MappedField]) -> _FileField:
    match = next((each for each in mapped if name in each.names), MappedField(names=[name]))
    inner = tuple(_by_name(each, standard, match.fields) for standard, each in _inner(field.type))
    return _FileField(field.name, match.field_id, inner)


def _inner(kind: pa.DataType) -> list[tuple[str, pa.Field]]:
    """The fields in a type, by the names that mappings have for them."""
    if pa.types.is_map(kind):
        return [("key", kind.key_field), ("value", kind.item_field)]
    if pa.types.is_struct(kind):
        return [(field.name, field) for field in kind]
    return [("element", kind.value_field)] if _is_list(kind) else []


def _is_list(kind: pa.DataType) -> bool:
    t = pa.types
    return bool(
        t.is_list(kind)
        or t.is_large_list(kind)
        or t.is_fixed_size_list(kind)
        or t.is_list_view(kind)
        or t.is_large_list_view(kind)
    )


def _constants(file: DataFile, table: TableMetadata) -> dict[int, Any]:
    """The values of columns that the file's partition tells."""
    fields = table.specs()[file.spec_id].fields
    return {
        field.source_id: value
        for field, value in zip(fields, partition_values(file.partition), strict=True)
        if isinstance(field.transform, IdentityTransform) and value is not None
    }


@dataclass(frozen=True)
class _Projection:
    """From the columns of a file to those of a table.

    Args:
        constants: By field id, values of columns that the file may lack.
    """

    constants: Mapping[int, Any]

    def fields(
        self,
        wanted: Sequence[NestedField],
        targets: pa.Schema | pa.StructType,
        found: Mapping[int | None, tuple[_FileField, pa.Array]],
        rows: int,
    ) -> list[pa.Array]:
        """The arrays of some fields.

        Args:
            wanted: The fields.
            targets: Their Arrow fields.
            found: What the file has of them, by id.
            rows: How many rows there are.
        """
        return [
            self._array(field.field_type, target.type, *found[field.field_id])
            if field.field_id in found
            else self._absent(field, target.type, rows)
            for field, target in zip(wanted, targets, strict=True)
        ]

    def _absent(self, field: NestedField, target: pa.DataType, rows: int) -> pa.Array:
        value = self.constants.get(field.field_id)
        if value is None and field.initial_default is not None:
            assert isinstance(field.field_type, PrimitiveType)
            value = from_json(field.field_type, field.initial_default)
        if value is None:
            return pa.nulls(rows, target)
        if isinstance(target, pa.BaseExtensionType):
            stored = pa.repeat(pa.scalar(getattr(value, "bytes", value), target.storage_type), rows)
            return pa.ExtensionArray.from_storage(target, stored)
        return pa.repeat(pa.scalar(value, target), rows)

    def _array(self, kind: IcebergType, target: pa.DataType, field: _FileField, array: pa.Array) -> pa.Array:
        if isinstance(kind, StructType):
            return self._struct(kind, target, field, array)
        if isinstance(kind, ListType):
            return self._list(kind, target, field, array)
        if isinstance(kind, MapType):
            return self._map(kind, target, field, array)
        return _cast(array, target)

    def _struct(self, kind: StructType, target: pa.StructType, field: _FileField, array: pa.Array) -> pa.Array:
        found = {each.field_id: (each, array.field(number)) for number, each in enumerate(field.fields)}
        children = self.fields(kind.fields, target, found, len(array))
        return pa.Array.from_buffers(target, len(array), [_validity(array)], children=children)

    def _list(self, kind: ListType, target: pa.ListType, field: _FileField, array: pa.Array) -> pa.Array:
        if not pa.types.is_list(array.type):
            array = array.cast(pa.list_(array.type.value_field))
        (element,) = field.fields
        values = self._array(kind.element_type, target.value_type, element, array.values)
        return _with_offsets(target, array, values)

    def _map(self, kind: MapType, target: pa.MapType, field: _FileField, array: pa.Array) -> pa.Array:
        key, value = field.fields
        entries: pa.StructArray = array.values
        children = [
            self._array(kind.key_type, target.key_type, key, entries.field(0)),
            self._array(kind.value_type, target.item_type, value, entries.field(1)),
        ]
        of_entries = pa.struct([target.key_field, target.item_field])
        return _with_offsets(target, array, pa.Array.from_buffers(of_entries, len(entries), [None], children=children))


def _validity(array: pa.Array) -> pa.Buffer | None:
    """Which values are not null, from the first one on."""
    if not array.null_count:
        return None
    valid = array.is_valid().to_numpy(zero_copy_only=False)
    return pa.py_buffer(np.packbits(valid, bitorder="little"))


def _with_offsets(target: pa.DataType, array: pa.Array, values: pa.Array) -> pa.Array:
    """Lists or maps with other values in the same places: which are null and which empty stays as it is."""
    validity, offsets = array.buffers()[:2]
    return pa.Array.from_buffers(
        target, len(array), [validity, offsets], null_count=array.null_count, offset=array.offset, children=[values]
    )


def _cast(array: pa.Array, target: pa.DataType) -> pa.Array:
    if array.type == target:
        return array
    if isinstance(array.type, pa.BaseExtensionType):
        array = array.storage
    if isinstance(target, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(target, _cast(array, target.storage_type))
    # A table of version 1 or 2 knows no time more exact than a microsecond: Iceberg's own readers cut it off.
    exact = not pa.types.is_timestamp(array.type) or array.type.unit != "ns"
    return array.cast(target, safe=exact)
