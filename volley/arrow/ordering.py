"""Sorts rows by columns: nulls first and NaN last, as Iceberg's tables are sorted, or the other way round."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from volley.arrow.uuids import stored
from volley.errors import ExpressionError, near
from volley.types.arrow import type_name

__all__ = ["SortKey", "comparable", "normal", "ranks", "sort_indices", "sort_keys"]

SortKey = tuple[str, str]
"""A column, and its direction: ``ascending`` (nulls first) or ``descending`` (nulls last)."""

_DIRECTIONS = {"asc": "ascending", "desc": "descending"}


def sort_keys(order: Sequence[str], schema: pa.Schema) -> list[SortKey]:
    """Return the keys of an order, such as ``["country", "at desc"]``.

    Raises:
        ExpressionError: If there is no such column, or rows can't be sorted by it.
    """
    return [_key(text, schema) for text in order]


def _key(text: str, schema: pa.Schema) -> SortKey:
    column, _, direction = text.rpartition(" ")
    if text in schema.names or direction.lower() not in _DIRECTIONS:
        column, direction = text, "asc"
    column = column.strip()
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
        columns += [values.is_valid().cast(pa.int8()), comparable(values)]
        directions += [direction, direction]
    return pc.sort_indices(pa.record_batch(columns, names=names), list(zip(names, directions, strict=True)))


def comparable(values: pa.Array) -> pa.Array:
    """Return values that Arrow sorts by Iceberg's specification: -0.0 before 0.0, NaN above all other floats."""
    values = values.storage if isinstance(values, pa.ExtensionArray) else values
    if pa.types.is_boolean(values.type):
        return values.cast(pa.int8())
    if not pa.types.is_floating(values.type):
        return values
    bits = values.cast(pa.float64()).view(pa.int64())
    numbers = bits.fill_null(0).to_numpy()
    return pa.array(numbers ^ ((numbers >> 63) & np.int64(0x7FFFFFFFFFFFFFFF)))


def normal(values: Any) -> Any:
    """Return values by which Arrow groups, equal ones with equal bytes: one NaN, no -0.0, and UUIDs as their bytes."""
    if values.type == pa.uuid():
        return values.cast(stored(values.type))
    if not pa.types.is_floating(values.type):
        return values
    nan, zero = pa.scalar(float("nan"), values.type), pa.scalar(0.0, values.type)
    return pc.if_else(pc.is_nan(values), nan, pc.add(values, zero))


def ranks(values: pa.Array) -> list[pa.Array]:
    """Return columns by which Arrow sorts values as Volley compares them: null is the least, NaN the largest number.

    Structs are sorted by their fields; lists and maps have no order, so there is no column for them.
    """
    if pa.types.is_nested(values.type) and not pa.types.is_struct(values.type):
        return []
    valid = [values.is_valid().cast(pa.int8())] if values.null_count else []
    if pa.types.is_struct(values.type):
        return [*valid, *(rank for field in values.flatten() for rank in ranks(field))]
    return [*valid, comparable(normal(values))]
