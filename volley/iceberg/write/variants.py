"""Turns JSON texts and values with parts into variants, where a table has columns of them, at every level."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType

from volley.columns.dictionaries import decode
from volley.formats.variant_columns import variants_of
from volley.formats.variant_shredding import shredded
from volley.iceberg.schema.foreign_types import ShreddedType, VariantType
from volley.iceberg.schema.types import fields_in, per_schema
from volley.types.arrow import is_any_list

__all__ = ["with_variants"]


def with_variants(batch: pa.RecordBatch, schema: Schema) -> pa.RecordBatch:
    """Return rows whose values are variants where the schema has them; those that are variants stay as they are.

    Raises:
        SourceError: If a text is not JSON, or a value is of a type that variants lack.
    """
    for field in _variant_columns(schema):
        number = batch.schema.get_field_index(field.name)
        if number >= 0:
            column = _converted(batch.column(number), field.field_type, field.name)
            batch = batch.set_column(number, field.name, column)
    return batch


@per_schema
def _variant_columns(schema: Schema) -> Sequence[NestedField]:
    """Return the columns that are variants or have some."""
    return [field for field in schema.fields if _has_variant(field.field_type)]


def _has_variant(data_type: IcebergType) -> bool:
    return any(
        isinstance(t, VariantType) for t in (data_type, *(field.field_type for _, field in fields_in(data_type)))
    )


def _converted(array: pa.Array, data_type: IcebergType, column: str) -> pa.Array:
    if isinstance(data_type, ShreddedType):
        is_shredded = array.type.equals(data_type.stored)
        return array if is_shredded else shredded(variants_of(decode(array), column), data_type.stored)
    if isinstance(data_type, VariantType):
        return variants_of(decode(array), column)
    if not _has_variant(data_type):
        return array
    if isinstance(data_type, StructType) and pa.types.is_struct(array.type):
        return _struct(array, data_type, column)
    if isinstance(data_type, ListType) and is_any_list(array.type):
        array = array.cast(pa.list_(array.type.value_field))
        element = _converted(array.flatten(), data_type.element_type, f"{column}.element")
        return pa.ListArray.from_arrays(_offsets(array), element)
    if isinstance(data_type, MapType) and pa.types.is_map(array.type):
        pairs = array.cast(pa.list_(pa.struct([array.type.key_field, array.type.item_field])))
        keys, values = pairs.flatten().flatten()
        values = _converted(values, data_type.value_type, f"{column}.value")
        return pa.MapArray.from_arrays(_offsets(pairs), keys, values)
    return array


def _struct(array: pa.StructArray, data_type: StructType, column: str) -> pa.StructArray:
    types = {field.name: field.field_type for field in data_type.fields}
    # Values in structs that are null are null.
    children = [
        _converted(child, types[field.name], f"{column}.{field.name}") if field.name in types else child
        for field, child in zip(array.type, array.flatten(), strict=True)
    ]
    fields = [field.with_type(child.type) for field, child in zip(array.type, children, strict=True)]
    return pa.StructArray.from_arrays(children, fields=fields, mask=array.is_null())


def _offsets(array: pa.Array) -> pa.Array:
    """Return where each list starts among the items of all; null for a list that is null."""
    ends = np.cumsum(array.value_lengths().fill_null(0).to_numpy())
    nulls = array.is_null().to_numpy(zero_copy_only=False)
    return pa.array(np.concatenate([[0], ends]).astype(np.int32), mask=np.concatenate([nulls, [False]]))
