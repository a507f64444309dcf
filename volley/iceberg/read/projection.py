"""Projects a file's columns to those of a table, by field id; pyiceberg's projection loses nulls of nested columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg.conversions import from_json
from pyiceberg.table.name_mapping import MappedField
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, PrimitiveType, StructType

from volley.columns.calendar import floored, is_floored
from volley.columns.dictionaries import can_stay_encoded, decode
from volley.columns.exact import array_of
from volley.errors import StorageError
from volley.formats.variant import Malformed
from volley.formats.variant_columns import is_stored, texts_of, whole
from volley.formats.variant_shredding import shredded
from volley.iceberg.schema.foreign_types import ShreddedType, VariantText, VariantType
from volley.types.arrow import is_any_list

__all__ = ["FileField", "Projection", "children", "identified"]

# In Parquet and in ORC.
_FIELD_IDS = b"PARQUET:field_id", b"iceberg.id"


@dataclass(frozen=True)
class FileField:
    """A field of a file.

    Args:
        field_id: Its id; None = it is not a field of the table.
        fields: Its children: a struct's fields, a list's element, a map's key and value.
    """

    name: str
    field_id: int | None
    fields: tuple[FileField, ...] = ()


def identified(schema: pa.Schema, mapped: Sequence[MappedField], path: str) -> list[FileField]:
    """Return the columns of a file by their ids; by their names only if no field has an id.

    Args:
        mapped: The table's name mapping, for files without field ids.
        path: The file's path, for errors.
    """
    by_id = [_by_id(field) for field in schema]
    if any(map(_has_ids, by_id)):
        return by_id
    if not mapped:
        raise StorageError(
            f"data file {path} has no field ids, and the table has no property schema.name-mapping.default",
            hint="set that property, or rewrite the file by the engine that added it",
        )
    return [_by_name(field, field.name, mapped) for field in schema]


def _has_ids(field: FileField) -> bool:
    return field.field_id is not None or any(map(_has_ids, field.fields))


def _by_id(field: pa.Field) -> FileField:
    metadata = field.metadata or {}
    field_id = next((metadata[key] for key in _FIELD_IDS if key in metadata), None)
    inner = tuple(_by_id(child) for _, child in children(field.type))
    return FileField(field.name, None if field_id is None else int(field_id), inner)


def _by_name(field: pa.Field, name: str, mapped: Sequence[MappedField]) -> FileField:
    match = next((entry for entry in mapped if name in entry.names), MappedField(names=[name]))
    inner = tuple(_by_name(child, standard, match.fields) for standard, child in children(field.type))
    return FileField(field.name, match.field_id, inner)


def children(data_type: pa.DataType) -> list[tuple[str, pa.Field]]:
    """Return the fields in a type, with their names in name mappings."""
    if pa.types.is_map(data_type):
        return [("key", data_type.key_field), ("value", data_type.item_field)]
    if pa.types.is_struct(data_type):
        return [(field.name, field) for field in data_type]
    return [("element", data_type.value_field)] if is_any_list(data_type) else []


@dataclass(frozen=True)
class Projection:
    """Projects the columns of a file to those of a table.

    By Iceberg's specification ("Column Projection"), a column that the file lacks has the value of its partition, the
    schema's default, or null. Values change only to a wider type.

    Args:
        constants: Values of columns that the file may lack, by field id.
        dictionaries: True keeps top-level columns with a small dictionary encoded.
    """

    constants: Mapping[int, Any]
    dictionaries: bool = False

    def columns(
        self,
        fields: Sequence[NestedField],
        targets: pa.Schema,
        present: Mapping[int | None, tuple[FileField, pa.Array]],
        rows: int,
    ) -> list[pa.Array]:
        """Return the columns of a batch.

        Args:
            present: The columns that the file has, by id.
        """
        return [
            present[field.field_id][1]
            if self._stays_encoded(present.get(field.field_id), target)
            else self._field(field, target.type, present, rows)
            for field, target in zip(fields, targets, strict=True)
        ]

    def _stays_encoded(self, column: tuple[FileField, pa.Array] | None, target: pa.Field) -> bool:
        return self.dictionaries and column is not None and can_stay_encoded(column[1], target)

    def _field(
        self,
        field: NestedField,
        target: pa.DataType,
        present: Mapping[int | None, tuple[FileField, pa.Array]],
        rows: int,
    ) -> pa.Array:
        if field.field_id in present:
            return self._array(field.field_type, target, *present[field.field_id])
        return self._absent(field, target, rows)

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
        return pa.repeat(_scalar(field, value, target), rows)

    def _array(self, data_type: IcebergType, target: pa.DataType, field: FileField, array: pa.Array) -> pa.Array:
        _check_shape(data_type, field, array.type)
        if isinstance(data_type, VariantType | VariantText):
            return _variants(data_type, field, array)
        if isinstance(data_type, StructType):
            return self._struct(data_type, target, field, array)
        if isinstance(data_type, ListType):
            return self._list(data_type, target, field, array)
        if isinstance(data_type, MapType):
            return self._map(data_type, target, field, array)
        return _cast(array, target)

    def _struct(self, data_type: StructType, target: pa.StructType, field: FileField, array: pa.Array) -> pa.Array:
        present = {child.field_id: (child, array.field(number)) for number, child in enumerate(field.fields)}
        children = [
            self._field(child, to.type, present, len(array)) for child, to in zip(data_type.fields, target, strict=True)
        ]
        return pa.Array.from_buffers(target, len(array), [_validity(array)], children=children)

    def _list(self, data_type: ListType, target: pa.ListType, field: FileField, array: pa.Array) -> pa.Array:
        if not pa.types.is_list(array.type):
            array = array.cast(pa.list_(array.type.value_field))
        (element,) = field.fields
        values = self._array(data_type.element_type, target.value_type, element, array.values)
        return _with_offsets(target, array, values)

    def _map(self, data_type: MapType, target: pa.MapType, field: FileField, array: pa.Array) -> pa.Array:
        key, value = field.fields if pa.types.is_map(array.type) else field.fields[0].fields
        entries: pa.StructArray = array.values
        children = [
            self._array(data_type.key_type, target.key_type, key, entries.field(0)),
            self._array(data_type.value_type, target.item_type, value, entries.field(1)),
        ]
        of_entries = pa.struct([target.key_field, target.item_field])
        return _with_offsets(target, array, pa.Array.from_buffers(of_entries, len(entries), [None], children=children))


def _variants(data_type: IcebergType, field: FileField, array: pa.StructArray) -> pa.Array:
    try:
        if isinstance(data_type, VariantText):
            return texts_of(array)
        if isinstance(data_type, ShreddedType):
            return array if array.type.equals(data_type.stored) else shredded(whole(array), data_type.stored)
        return whole(array)
    except Malformed as error:
        raise StorageError(
            f"a data file has a damaged variant in field {field.name!r} (id {field.field_id}): {error}",
            hint="read the other columns, with select(…), or restore the file from a backup",
        ) from error


def _check_shape(data_type: IcebergType, field: FileField, in_file: pa.DataType) -> None:
    """Raise StorageError if a file has a struct, list or map where the table has another one, or a plain value."""
    if not _SHAPES.get(type(data_type), _is_plain)(in_file):
        raise StorageError(
            f"a data file has {in_file} in field {field.name!r} (id {field.field_id}), where the table has {data_type}",
            hint="correct the ids in the table's property schema.name-mapping.default, or rewrite the file",
        )


def _is_plain(data_type: pa.DataType) -> bool:
    return not pa.types.is_nested(data_type)


def _is_map(data_type: pa.DataType) -> bool:
    """Return True for a map, and for what Avro has in place of one whose keys are no texts: a list of pairs."""
    is_list = pa.types.is_list(data_type) and pa.types.is_struct(data_type.value_type)
    return bool(pa.types.is_map(data_type) or (is_list and data_type.value_type.num_fields == 2))


_SHAPES: dict[type, Callable[[pa.DataType], bool]] = {
    StructType: pa.types.is_struct,
    ListType: is_any_list,
    MapType: _is_map,
    VariantType: is_stored,
    ShreddedType: is_stored,
    VariantText: is_stored,
}


def _validity(array: pa.Array) -> pa.Buffer | None:
    """Return the validity bitmap, starting at the array's first value."""
    if not array.null_count:
        return None
    valid = array.is_valid().to_numpy(zero_copy_only=False)
    return pa.py_buffer(np.packbits(valid, bitorder="little"))


def _with_offsets(target: pa.DataType, array: pa.Array, values: pa.Array) -> pa.Array:
    """Return lists or maps with new values and the same offsets and nulls."""
    validity, offsets = array.buffers()[:2]
    return pa.Array.from_buffers(
        target, len(array), [validity, offsets], null_count=array.null_count, offset=array.offset, children=[values]
    )


def _cast(array: pa.Array, target: pa.DataType) -> pa.Array:
    if array.type == target:
        return array
    if isinstance(array.type, pa.BaseExtensionType):
        array = array.storage
    array = decode(array)
    if isinstance(target, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(target, _cast(array, target.storage_type))
    # Files may have nanoseconds where a table of format version 1 or 2 has none.
    return floored(array, target) if is_floored(array.type, target) else array.cast(target)


def _scalar(field: NestedField, value: Any, target: pa.DataType) -> pa.Scalar:
    try:
        return array_of([value], target)[0]
    except pa.ArrowInvalid as error:
        raise StorageError(
            f"column {field.name!r} has a constant that it can't hold: {error}",
            hint="correct the column's initial default or the file's partition in the table's metadata",
        ) from error
