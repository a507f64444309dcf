"""The order of rows by columns: nulls first and NaN last, as Iceberg's tables are sorted, or the other way round."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from volley.columns.keys.normal import normal, numbered, plain
from volley.errors import ExpressionError, near
from volley.types.arrow import type_name

__all__ = ["SortKey", "ascending_order", "from_ordered", "ordered", "ranks", "sort_indices", "sort_keys"]

SortKey = tuple[str, str]
"""A column, and its direction: ``ascending`` (nulls first) or ``descending`` (nulls last)."""

_Bits = np.ndarray[Any, Any]
_DIRECTIONS = {"asc": "ascending", "desc": "descending"}


def sort_keys(order: Sequence[str], schema: pa.Schema) -> list[SortKey]:
    """Return the keys of an order, such as ``["country", "at desc"]``.

    Raises:
        ExpressionError: If there is no such column, or rows can't be sorted by it.
    """
    return [_key(text, schema) for text in order]


def _key(text: str, schema: pa.Schema) -> SortKey:
    column, _, direction = text.rpartition(" ")
    column = column.strip()
    # Of the columns "price" and "price desc", "price desc" is the first one.
    if direction.lower() not in _DIRECTIONS or (column not in schema.names and text in schema.names):
        if text not in schema.names and column in schema.names:
            hint = f"asc or desc behind the column's name, not {direction!r}"
            raise ExpressionError(f"{text!r} is not an order of rows", hint)
        column, direction = text.strip(), "asc"
    if column not in schema.names:
        raise ExpressionError(f"there is no column {column!r} to sort by", hint=near(column, schema.names))
    data_type = schema.field(column).type
    if pa.types.is_nested(data_type):
        raise ExpressionError(
            f"rows can't be sorted by {column!r}, which is {type_name(data_type)}", hint="sort by a field of it"
        )
    return column, _DIRECTIONS[direction.lower()]


def sort_indices(rows: pa.RecordBatch | pa.Table, keys: Sequence[SortKey]) -> pa.Array:
    """Return the places of the rows in order; rows with equal keys keep theirs."""
    names, columns, directions = [], [], []
    for number, (name, direction) in enumerate(keys):
        values = rows.column(name)
        if isinstance(values, pa.ChunkedArray):
            values = values.combine_chunks()
        names += [f"{number}-valid", f"{number}"]
        columns += [values.is_valid().cast(pa.int8()), ordered(values)]
        directions += [direction, direction]
    return pc.sort_indices(pa.record_batch(columns, names=names), list(zip(names, directions, strict=True)))


def ascending_order(columns: Sequence[pa.Array]) -> pa.Array:
    """Return the places of rows in the order of several columns, such as `ranks` returns."""
    rows = numbered(columns)
    return pc.sort_indices(rows, [(name, "ascending") for name in rows.schema.names])


def ordered(values: pa.Array) -> pa.Array:
    """Return values that Arrow sorts by Iceberg's specification: -0.0 before 0.0, NaN above all other floats.

    Values are equal then if, and only if, they have the same bits; all NaN are equal.
    """
    values = plain(values)
    if pa.types.is_boolean(values.type):
        return values.cast(pa.int8())
    if not pa.types.is_floating(values.type):
        return values
    bits = values.fill_null(0.0).view(_integers(values.type)).to_numpy()
    numbers = _flipped(bits)
    floats = bits.view(values.type.to_pandas_dtype())
    numbers[np.isnan(floats)] = np.full(1, np.nan, floats.dtype).view(bits.dtype)
    return pa.array(numbers, mask=values.is_null().to_numpy(zero_copy_only=False) if values.null_count else None)


def from_ordered(values: pa.Array, data_type: pa.DataType) -> pa.Array:
    """Return the floating-point numbers of a type of which `ordered` has returned values."""
    numbers = values.fill_null(0).to_numpy()
    floats = pa.array(_flipped(numbers).view(data_type.to_pandas_dtype()))
    return pc.if_else(values.is_valid(), floats, pa.scalar(None, data_type))


def _integers(data_type: pa.DataType) -> pa.DataType:
    return pa.int64() if data_type == pa.float64() else pa.int32()


def _flipped(bits: _Bits) -> _Bits:
    """Reverse the order of the bits below the sign of negative numbers."""
    flipped: _Bits = bits ^ ((bits >> (8 * bits.itemsize - 1)) & np.iinfo(bits.dtype).max)
    return flipped


def ranks(values: pa.Array) -> list[pa.Array]:
    """Return columns by which Arrow sorts values as Volley compares them: null is the least, NaN the largest number.

    Structs are sorted by their fields; lists and maps have no order, so there is no column for them.
    """
    if pa.types.is_nested(values.type) and not pa.types.is_struct(values.type):
        return []
    valid = [values.is_valid().cast(pa.int8())] if values.null_count else []
    if pa.types.is_struct(values.type):
        return [*valid, *(rank for field in values.flatten() for rank in ranks(field))]
    return [*valid, ordered(normal(values))]
