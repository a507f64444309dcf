"""The normal form of keys: those that are equal have equal bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from volley.columns.dictionaries import decode
from volley.columns.exact import stored

__all__ = ["Bools", "are_valid", "comparable", "comparable_type", "normal", "normal_rows", "numbered", "plain"]

RowsType = TypeVar("RowsType", pa.RecordBatch, pa.Table)
Bools = np.ndarray[Any, np.dtype[np.bool_]]

_WIDER = {pa.int32(): pa.int64(), pa.float32(): pa.float64()}
_PLAIN = {
    pa.large_string(): pa.string(),
    pa.string_view(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(),
}


def plain(values: Any) -> Any:
    """Return an array, or a chunked one, without dictionary, UUIDs as their bytes, texts with offsets of 32 bits."""
    values = decode(values)
    if isinstance(values.type, pa.BaseExtensionType):
        return values.storage if isinstance(values, pa.Array) else values.cast(stored(values.type))
    return values.cast(_PLAIN[values.type]) if values.type in _PLAIN else values


def normal(values: Any) -> Any:
    """Return an array, or a chunked one, in the form in which keys are compared: NaN is NaN, and -0.0 is 0.0.

    Example:
        >>> normal(pa.array([-0.0, 1.5, None])).to_pylist()
        [0.0, 1.5, None]
    """
    values = plain(values)
    if not pa.types.is_floating(values.type):
        return values
    nan, zero = pa.scalar(float("nan"), values.type), pa.scalar(0.0, values.type)
    return pc.if_else(pc.is_nan(values), nan, pc.add(values, zero))


def normal_rows(rows: RowsType) -> RowsType:
    """Return rows of keys in their normal form."""
    return type(rows).from_arrays([normal(column) for column in rows.columns], names=rows.schema.names)


def comparable_type(data_type: pa.DataType) -> pa.DataType | None:
    """Return the type in which keys of two sides are compared, int as long and float as double; None = they can't be.

    Decimals of one scale are compared whatever their precision.
    """
    if pa.types.is_nested(data_type):
        return None
    return pa.decimal128(38, data_type.scale) if pa.types.is_decimal(data_type) else _WIDER.get(data_type, data_type)


def comparable(columns: Sequence[Any]) -> pa.RecordBatch:
    """Return key columns in the form in which the keys of two sides are compared."""
    return numbered([_widened(normal(column)) for column in columns])


def _widened(values: Any) -> Any:
    wider = comparable_type(values.type)
    return values if wider is None or wider == values.type else values.cast(wider)


def numbered(columns: Sequence[pa.Array]) -> pa.RecordBatch:
    """Return a batch of columns that have their numbers for names."""
    return pa.RecordBatch.from_arrays(columns, [str(number) for number in range(len(columns))])


def are_valid(columns: Sequence[pa.Array]) -> Bools:
    """Return for each row whether none of the columns is null."""
    valid = np.ones(len(columns[0]), bool)
    for column in columns:
        if column.null_count:
            valid &= column.is_valid().to_numpy(zero_copy_only=False)
    return valid
