"""Arrow values as another type, without a change: Arrow's own casts round, cut off and overflow without a word."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from volley.arrow.dictionaries import decode

__all__ = ["exact_cast", "rescaled"]

_DIGITS = 38
# Any decimal of 38 digits fits into it with 38 more.
_WIDEST = 76
_ENTRIES = "entries"


def rescaled(values: Any, kind: pa.Decimal128Type) -> Any:
    """Decimals, an array or a scalar, as another type of decimals.

    Raises:
        pyarrow.ArrowInvalid: If one does not fit.

    Example:
        >>> rescaled(pa.array([390233302], pa.decimal128(38)), pa.decimal128(38, 30))
        Traceback (most recent call last):
            ...
        pyarrow.lib.ArrowInvalid: Decimal value does not fit in precision 38
    """
    if values.type.precision - values.type.scale + kind.scale > _DIGITS:
        # Arrow computes in 128 bits and takes what is left of a product in them.
        values = pc.cast(values, pa.decimal256(_WIDEST, kind.scale))
    return pc.cast(values, kind)


def exact_cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """A column as another type, nested ones too: the fields of structs are matched by name, missing ones are null.

    Numbers and times are not each other's, whatever Arrow keeps them as. Floats become the decimals of their shortest
    text, doubles the floats next to them, timestamps at midnight dates.

    Raises:
        pyarrow.ArrowInvalid: If a value has no counterpart.
        pyarrow.ArrowNotImplementedError: If no value of the type has one.
    """
    column = decode(column)
    own, t = column.type, pa.types
    if own == kind:
        return column
    if t.is_null(own):
        return pa.nulls(len(column), kind)
    if t.is_struct(own) and t.is_struct(kind):
        return _struct(column, list(kind))
    if t.is_map(own) and t.is_map(kind):
        return _map(column, kind)
    if _is_list(own) and t.is_list(kind):
        return _list(column, kind.value_field)
    return _plain_cast(column, kind)


def _struct(column: pa.StructArray, fields: Sequence[pa.Field]) -> pa.StructArray:
    # What stands below nulls is nobody's value: flatten makes it null, too.
    names = [field.name for field in column.type]
    if twice := [field.name for field in fields if names.count(field.name) > 1]:
        raise pa.ArrowNotImplementedError(f"field {twice[0]!r} is there twice")
    found = dict(zip(names, column.flatten(), strict=True))
    arrays = [
        exact_cast(found[field.name], field.type) if field.name in found else pa.nulls(len(column), field.type)
        for field in fields
    ]
    return pa.StructArray.from_arrays(arrays, fields=fields, mask=column.is_null())


def _list(column: pa.Array, element: pa.Field) -> pa.ListArray:
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy()
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
    values = exact_cast(column.flatten(), element.type)
    return pa.ListArray.from_arrays(offsets, values, type=pa.list_(element), mask=column.is_null())


def _map(column: pa.MapArray, kind: pa.MapType) -> pa.MapArray:
    own = column.type
    entries = _as_lists(column, pa.struct([own.key_field, own.item_field]), column.values)
    made = _list(entries, pa.field(_ENTRIES, pa.struct([kind.key_field, kind.item_field]), False))
    validity, offsets = made.buffers()[:2]
    return pa.Array.from_buffers(kind, len(made), [validity, offsets], children=[made.values])


def _as_lists(column: pa.MapArray, entry: pa.StructType, entries: pa.StructArray) -> pa.ListArray:
    validity, offsets = column.buffers()[:2]
    kind = pa.list_(pa.field(_ENTRIES, entry, False))
    return pa.Array.from_buffers(kind, len(column), [validity, offsets], offset=column.offset, children=[entries])


def _is_list(kind: pa.DataType) -> bool:
    t = pa.types
    return bool(t.is_list(kind) or t.is_large_list(kind) or t.is_fixed_size_list(kind) or t.is_list_view(kind))


def _plain_cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    own, t = column.type, pa.types
    if t.is_temporal(own) != t.is_temporal(kind) and not (_is_text(own) or _is_text(kind)):
        raise pa.ArrowNotImplementedError("times are not numbers")
    if (t.is_timestamp(own) and t.is_time(kind)) or (t.is_boolean(kind) and _is_number(own)):
        raise pa.ArrowNotImplementedError(f"no {own} is a {kind}")
    if t.is_decimal128(kind):
        return _decimal(column, kind)
    if t.is_floating(kind):
        return _float(column, kind)
    made = column.cast(kind)
    if t.is_timestamp(own) and t.is_date(kind) and not made.cast(own).equals(column):
        raise pa.ArrowInvalid("the time of the day would be lost")
    return made


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _is_text(kind: pa.DataType) -> bool:
    t = pa.types
    return bool(t.is_string(kind) or t.is_large_string(kind) or t.is_string_view(kind))


def _decimal(column: pa.Array, kind: pa.Decimal128Type) -> pa.Array:
    if pa.types.is_decimal(column.type):
        return rescaled(column, kind)
    if not (_is_text(column.type) or pa.types.is_floating(column.type)):
        return column.cast(kind)
    # Beyond this, 256 bits may be too few as well.
    limit = 2.0 * 10 ** (kind.precision - kind.scale)
    if pc.any(pc.greater(pc.abs(column.cast(pa.float64())), limit)).as_py():
        raise pa.ArrowInvalid(f"Decimal value does not fit in precision {kind.precision}")
    # By its text: Arrow rounds a float that has more digits.
    return column.cast(pa.string()).cast(pa.decimal256(_WIDEST, kind.scale)).cast(kind)


def _float(column: pa.Array, kind: pa.DataType) -> pa.Array:
    # By its text: Arrow multiplies a decimal by a rounded 0.01, so that 0.57 becomes 0.5700000000000001.
    made = (column.cast(pa.string()) if pa.types.is_decimal(column.type) else column).cast(kind)
    infinite = _infinite(column) if pa.types.is_floating(column.type) else 0
    if _infinite(made) > infinite:
        raise pa.ArrowInvalid("a number is too large")
    return made


def _infinite(values: pa.Array) -> int:
    return int(pc.sum(pc.is_inf(values)).as_py() or 0)
