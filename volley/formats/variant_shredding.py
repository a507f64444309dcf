"""Shreds variants: puts values of a type, and fields of objects, into columns of their own.

The encoding: https://github.com/apache/parquet-format/blob/master/VariantShredding.md. Only values that have exactly
the type of such a column go there, so that what is put together again is what was there before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate

import pyarrow as pa

from volley.formats.variant import ARRAY, OBJECT, Malformed, fields_of, items_of, names_in
from volley.formats.variant_columns import METADATA, STORED, TYPED, VALUE, is_stored
from volley.formats.variant_typed import typed
from volley.formats.variant_writer import Value, object_of_values

__all__ = ["is_shredded", "leaves_of", "shredded", "with_values"]


def is_shredded(data_type: pa.DataType) -> bool:
    """Return True for the type of variants in a file that have values in columns of their own."""
    return is_stored(data_type) and data_type.get_field_index(TYPED) >= 0


def with_values(data_type: pa.StructType) -> pa.StructType:
    """Return a type of shredded variants that any variant fits: one with a column for values of other types."""
    fields = {field.name: field for field in data_type} | {VALUE: pa.field(VALUE, pa.binary())}
    if TYPED in fields:
        fields[TYPED] = fields[TYPED].with_type(_of_any_parts(fields[TYPED].type))
    return pa.struct(list(fields.values()))


def _of_any_parts(data_type: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(data_type):
        return pa.struct([field.with_type(with_values(field.type)) for field in data_type])
    if pa.types.is_list(data_type):
        return pa.list_(data_type.value_field.with_type(with_values(data_type.value_type)))
    return data_type


def leaves_of(data_type: pa.DataType, path: str) -> list[str]:
    """Return the paths of the columns of a Parquet file that a column of variants has.

    Example:
        >>> leaves_of(STORED, "payload")
        ['payload.metadata', 'payload.value']
    """
    if pa.types.is_struct(data_type):
        return [leaf for field in data_type for leaf in leaves_of(field.type, f"{path}.{field.name}")]
    return leaves_of(data_type.value_type, f"{path}.list.element") if pa.types.is_list(data_type) else [path]


def shredded(array: pa.StructArray, data_type: pa.StructType) -> pa.StructArray:
    """Return variants of the type `STORED` as a type of shredded ones that any variant fits.

    Damaged ones stay as they are.
    """
    assert array.type.equals(STORED), array.type
    none = array.is_null()
    pairs = zip(array.field(VALUE).to_pylist(), none.to_pylist(), strict=True)
    metadatas = array.field(METADATA)
    columns = _pair([None if is_null else value for value, is_null in pairs], metadatas.to_pylist(), data_type)
    return _struct({METADATA: metadatas, **columns}, data_type, none)


def _struct(
    columns: Mapping[str, pa.Array], data_type: pa.StructType, none: pa.BooleanArray | None = None
) -> pa.StructArray:
    return pa.StructArray.from_arrays([columns[field.name] for field in data_type], fields=list(data_type), mask=none)


def _pair(values: Sequence[Value], metadatas: Sequence[bytes], data_type: pa.StructType) -> dict[str, pa.Array]:
    """Return a column of the values, or parts of them, that have a type, and one of the others; those of none are null.

    Args:
        metadatas: The names of fields in each value.
    """
    if data_type.get_field_index(TYPED) < 0:
        return {VALUE: pa.array(values, pa.binary())}
    kind = data_type.field(TYPED).type
    if pa.types.is_struct(kind):
        column, others = _objects(values, metadatas, kind)
    elif pa.types.is_list(kind):
        column, others = _arrays(values, metadatas, kind)
    else:
        column = typed(values, kind)
        others = [value if other else None for value, other in zip(values, column.is_null().to_pylist(), strict=True)]
    return {TYPED: column, VALUE: pa.array(others, pa.binary())}


def _objects(
    values: Sequence[Value], metadatas: Sequence[bytes], data_type: pa.StructType
) -> tuple[pa.StructArray, list[Value]]:
    objects = [_fields(*pair) for pair in zip(metadatas, values, strict=True)]
    columns = {}
    for field in data_type:
        inner = [None if fields is None else fields.pop(field.name, None) for fields in objects]
        columns[field.name] = _struct(_pair(inner, metadatas, field.type), field.type)
    rows = zip(values, metadatas, objects, strict=True)
    others = [value if fields is None else _object(metadata, fields) for value, metadata, fields in rows]
    return _struct(columns, data_type, pa.array([fields is None for fields in objects], pa.bool_())), others


def _fields(metadata: bytes, value: Value) -> dict[str, bytes] | None:
    """Return the fields of an object; None for another value, or one that is damaged."""
    try:
        return fields_of(metadata, value) if value and value[0] & 3 == OBJECT else None
    except Malformed:
        return None


def _object(metadata: bytes, fields: Mapping[str, bytes]) -> Value:
    """Return the object of the fields that have no column; None if there are none."""
    ids = {name: number for number, name in enumerate(names_in(metadata))}
    return object_of_values(fields, ids) if fields else None


def _arrays(
    values: Sequence[Value], metadatas: Sequence[bytes], data_type: pa.ListType
) -> tuple[pa.ListArray, list[Value]]:
    arrays = [_items(value) for value in values]
    counts = [len(items or ()) for items in arrays]
    repeated = [metadata for metadata, count in zip(metadatas, counts, strict=True) for _ in range(count)]
    inner = [item for items in arrays for item in items or ()]
    element = _struct(_pair(inner, repeated, data_type.value_type), data_type.value_type)
    none = pa.array([items is None for items in arrays], pa.bool_())
    offsets = pa.array(accumulate(counts, initial=0), pa.int32())
    column = pa.ListArray.from_arrays(offsets, element, type=data_type, mask=none)
    return column, [value if items is None else None for value, items in zip(values, arrays, strict=True)]


def _items(value: Value) -> list[bytes] | None:
    """Return the items of an array; None for another value, or one that is damaged."""
    try:
        return items_of(value) if value and value[0] & 3 == ARRAY else None
    except Malformed:
        return None
