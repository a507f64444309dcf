"""Casts Arrow values without loss, UUIDs too: Arrow's own casts round, truncate and overflow silently."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from volley.columns.calendar import floored, is_floored, parsed
from volley.columns.decimals import decimals_of, in_scale
from volley.columns.dictionaries import decode
from volley.types.arrow import is_any_list, is_number, type_name

__all__ = [
    *("array_of", "doubles", "entry_lists", "exact_cast", "has_uuids", "rescaled", "restored"),
    *("storage_of", "stored", "with_headroom"),
]

_DIGITS = 38
# Holds any decimal of 38 digits with 38 more.
_WIDEST = 76
_ENTRIES = "entries"
_INFINITE = "(?i)inf"


def rescaled(values: Any, data_type: pa.Decimal128Type) -> Any:
    """Cast decimals, an array or a scalar, to another decimal type.

    Raises:
        pyarrow.ArrowInvalid: If a value does not fit.

    Example:
        >>> rescaled(pa.array([390233302], pa.decimal128(38)), pa.decimal128(38, 30))
        Traceback (most recent call last):
            ...
        pyarrow.lib.ArrowInvalid: Decimal value does not fit in precision 38
    """
    if values.type.precision - values.type.scale + data_type.scale > _DIGITS:
        # Arrow multiplies in 128 bits and keeps the overflowed product.
        values = pc.cast(values, pa.decimal256(_WIDEST, data_type.scale))
    return pc.cast(values, data_type)


def with_headroom(values: Any) -> Any:
    """Return decimals, an array or a scalar, in a type with one digit more, before they are rounded.

    Where a rounded decimal needs a digit more than its type has, Arrow returns 0 for it, and raises only if it is the
    last value of the array.

    Example:
        >>> import pyarrow.compute as pc
        >>> shares = pa.array(["9.5", "1.0"]).cast(pa.decimal128(2, 1))
        >>> pc.round(shares).to_pylist(), pc.round(with_headroom(shares)).to_pylist()
        ([Decimal('0.0'), Decimal('1.0')], [Decimal('10.0'), Decimal('1.0')])
    """
    precision, scale = values.type.precision, values.type.scale
    wide = pa.decimal128(precision + 1, scale) if precision < _DIGITS else pa.decimal256(precision + 1, scale)
    return pc.cast(values, wide)


def doubles(numbers: Any) -> Any:
    """Return each number of an array as the nearest double.

    Example:
        >>> price = pa.array(["0.57"]).cast(pa.decimal128(3, 2))
        >>> price.cast(pa.float64())[0].as_py(), doubles(price)[0].as_py()
        (0.5700000000000001, 0.57)
    """
    if pa.types.is_decimal(numbers.type):
        return _float(numbers, pa.float64())
    return numbers.cast(pa.float64(), safe=False)


def exact_cast(column: pa.Array, data_type: pa.DataType) -> pa.Array:
    """Cast a column, nested ones included, to another type; match struct fields by name, fill missing ones with nulls.

    Numbers and times don't convert to each other, although Arrow stores times as numbers. A float becomes the decimal
    of its shortest text, a double the nearest float, a timestamp at midnight a date. Nanoseconds are rounded down to
    microseconds.

    Raises:
        pyarrow.ArrowInvalid: If the target type can't represent a value.
        pyarrow.ArrowNotImplementedError: If the types don't convert.
    """
    # Arrow's casts don't support UUIDs in nested values.
    return _relabeled(_plain_cast(_relabeled(column, stored(column.type)), stored(data_type)), data_type)


def _plain_cast(column: pa.Array, data_type: pa.DataType) -> pa.Array:
    column = decode(_without_views(column))
    source, t = column.type, pa.types
    if source == data_type:
        return column
    if t.is_null(source):
        return pa.nulls(len(column), data_type)
    if t.is_struct(source) and t.is_struct(data_type):
        return _struct(column, list(data_type))
    if t.is_map(source) and t.is_map(data_type):
        return _map(column, data_type)
    if is_any_list(source) and t.is_list(data_type):
        return _list(column, data_type.value_field)
    return _simple_cast(column, data_type)


def _without_views(column: pa.Array) -> pa.Array:
    """Return a dictionary of views, as polars has categories, as one of texts or bytes: Arrow can decode only these."""
    values = column.type.value_type if pa.types.is_dictionary(column.type) else None
    if values not in (pa.string_view(), pa.binary_view()):
        return column
    plain = pa.string() if values == pa.string_view() else pa.binary()
    return pa.DictionaryArray.from_arrays(column.indices, column.dictionary.cast(plain))


def _struct(column: pa.StructArray, fields: Sequence[pa.Field]) -> pa.StructArray:
    # Values under a null struct are undefined: flatten makes them null.
    names = [field.name for field in column.type]
    if twice := [field.name for field in fields if names.count(field.name) > 1]:
        raise pa.ArrowNotImplementedError(f"field {twice[0]!r} is there twice")
    children = dict(zip(names, column.flatten(), strict=True))
    arrays = [
        _plain_cast(children[field.name], field.type) if field.name in children else pa.nulls(len(column), field.type)
        for field in fields
    ]
    return pa.StructArray.from_arrays(arrays, fields=fields, mask=column.is_null())


def _list(column: pa.Array, element: pa.Field) -> pa.ListArray:
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy()
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
    values = _plain_cast(column.flatten(), element.type)
    return pa.ListArray.from_arrays(offsets, values, type=pa.list_(element), mask=column.is_null())


def _map(column: pa.MapArray, data_type: pa.MapType) -> pa.MapArray:
    lists = _list(
        entry_lists(column), pa.field(_ENTRIES, pa.struct([data_type.key_field, data_type.item_field]), False)
    )
    validity, offsets = lists.buffers()[:2]
    return pa.Array.from_buffers(data_type, len(lists), [validity, offsets], children=[lists.values])


def entry_lists(maps: pa.MapArray) -> pa.ListArray:
    """Return maps as lists of their entries; copies nothing."""
    entry = pa.struct([maps.type.key_field, maps.type.item_field])
    data_type = pa.list_(pa.field(_ENTRIES, entry, False))
    return pa.Array.from_buffers(data_type, len(maps), maps.buffers()[:2], offset=maps.offset, children=[maps.values])


def _simple_cast(column: pa.Array, data_type: pa.DataType) -> pa.Array:
    source, t = column.type, pa.types
    if t.is_temporal(source) != t.is_temporal(data_type) and not (_is_text(source) or _is_text(data_type)):
        raise pa.ArrowNotImplementedError("times are not numbers")
    if (t.is_timestamp(source) and t.is_time(data_type)) or (t.is_boolean(data_type) and is_number(source)):
        raise pa.ArrowNotImplementedError(f"no {source} is a {data_type}")
    if t.is_null(data_type):
        if column.null_count < len(column):
            raise pa.ArrowInvalid("a column of nulls has no values")
        return pa.nulls(len(column))
    if t.is_decimal128(data_type):
        return _decimal(column, data_type)
    if t.is_floating(data_type):
        return _float(column, data_type)
    if t.is_integer(data_type):
        return _int(column, data_type)
    if is_floored(source, data_type):
        return floored(column, data_type)
    if _is_text(source) and t.is_timestamp(data_type):
        return parsed(column, data_type)
    values = column.cast(data_type)
    if t.is_timestamp(source) and t.is_date(data_type) and not values.cast(source).equals(column):
        raise pa.ArrowInvalid("the time of the day would be lost")
    return values


def _is_text(data_type: pa.DataType) -> bool:
    t = pa.types
    return bool(t.is_string(data_type) or t.is_large_string(data_type) or t.is_string_view(data_type))


def _decimal(column: pa.Array, data_type: pa.Decimal128Type) -> pa.Array:
    if pa.types.is_decimal(column.type):
        return rescaled(column, data_type)
    if not (_is_text(column.type) or pa.types.is_floating(column.type)):
        return column.cast(data_type)
    # Above this limit even 256 bits may be too few.
    limit = 2.0 * 10 ** (data_type.precision - data_type.scale)
    if pc.any(pc.greater(pc.abs(column.cast(pa.float64())), limit)).as_py():
        raise pa.ArrowInvalid(f"Decimal value does not fit in precision {data_type.precision}")
    # Parse the text: Arrow's source cast rounds a float with more digits.
    return decimals_of(column.cast(pa.string()), data_type)


def _int(column: pa.Array, data_type: pa.DataType) -> pa.Array:
    if not _is_text(column.type):
        return column.cast(data_type)
    # Arrow reads hexadecimal numbers, too, and those with the highest bit set as negative ones.
    texts = column.cast(pa.large_string())
    if pc.any(pc.match_substring_regex(texts, "[xX]")).as_py():
        raise pa.ArrowInvalid(f"a text is no {type_name(data_type)}")
    return texts.cast(data_type)


def _float(column: pa.Array, data_type: pa.DataType) -> pa.Array:
    # Parse the text: Arrow multiplies a decimal by a rounded 0.01, so 0.57 becomes 0.5700000000000001.
    floats = (column.cast(pa.string()) if pa.types.is_decimal(column.type) else column).cast(data_type)
    if _infinite(floats) > _infinite(column):
        raise pa.ArrowInvalid("a number is too large")
    return floats


def _infinite(values: pa.Array) -> int:
    """Return how many numbers, or texts of numbers, say that they are infinite."""
    if _is_text(values.type):
        return int(pc.sum(pc.match_substring_regex(values, _INFINITE)).as_py() or 0)
    return int(pc.sum(pc.is_inf(values)).as_py() or 0) if pa.types.is_floating(values.type) else 0


def has_uuids(data_type: pa.DataType) -> bool:
    """Return True if the type is UUID or contains it."""
    return data_type == pa.uuid() or any(
        has_uuids(data_type.field(index).type) for index in range(data_type.num_fields)
    )


def stored(data_type: pa.DataType) -> pa.DataType:
    """Return the type with each UUID replaced by 16 bytes of binary."""
    if not has_uuids(data_type):
        return data_type
    if pa.types.is_struct(data_type):
        return pa.struct([field.with_type(stored(field.type)) for field in data_type])
    if pa.types.is_map(data_type):
        return pa.map_(
            data_type.key_field.with_type(stored(data_type.key_type)),
            data_type.item_field.with_type(stored(data_type.item_type)),
        )
    if pa.types.is_list(data_type):
        return pa.list_(data_type.value_field.with_type(stored(data_type.value_type)))
    return pa.binary(16)


def storage_of(column: pa.Array) -> pa.Array:
    """Return the column with each UUID as its bytes; copies nothing."""
    return _relabeled(column, stored(column.type)) if has_uuids(column.type) else column


def restored(column: pa.Array, data_type: pa.DataType) -> pa.Array:
    """Return a column of `storage_of` under its own type again; copies nothing."""
    return _relabeled(column, data_type) if has_uuids(data_type) else column


def array_of(values: list[Any], data_type: pa.DataType) -> pa.Array:
    """Return an array of Python values, also with UUIDs in lists, maps and structs, which `pa.array` rejects."""
    values = in_scale(values, data_type)
    if not has_uuids(data_type):
        return pa.array(values, data_type)
    return _relabeled(pa.array([_bytes(value) for value in values], stored(data_type)), data_type)


def _bytes(value: Any) -> Any:
    if isinstance(value, UUID):
        return value.bytes
    if isinstance(value, Mapping):
        return {_bytes(key): _bytes(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_bytes(item) for item in value)
    return value


class _Relabeled:
    """An array under another type with the same memory layout; copies nothing."""

    def __init__(self, array: pa.Array, data_type: pa.DataType) -> None:
        self._array = array
        self._data_type = data_type

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        return self._data_type.__arrow_c_schema__(), self._array.__arrow_c_array__()[1]


def _relabeled(array: pa.Array, data_type: pa.DataType) -> pa.Array:
    return array if array.type == data_type else pa.array(_Relabeled(array, data_type))
