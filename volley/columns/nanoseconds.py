"""Times in nanoseconds as times in microseconds, rounded down before 1970 too; Arrow cuts them towards 1970."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["floored", "is_floored", "parsed", "read_alike"]

Datum = Any

_TRIED = 16
# RE2 has no lookahead: the group keeps what stands behind the digits.
_MORE_DIGITS = r"([0-9]:[0-9]{2}\.[0-9]{6})[0-9]{1,3}(Z|[+-][0-9:]+)?$"


def is_floored(source: pa.DataType, target: pa.DataType) -> bool:
    """Return True if values of a type are rounded down to the other: both are timestamps, or both times of day."""
    is_same_kind = any(test(source) and test(target) for test in (pa.types.is_timestamp, pa.types.is_time))
    return is_same_kind and (source.unit, target.unit) == ("ns", "us")


def floored(values: pa.Array, data_type: pa.DataType) -> pa.Array:
    """Return timestamps or times of day in nanoseconds in a type of microseconds.

    Example:
        >>> floored(pa.array([-1, -1001, 1999], pa.timestamp("ns")), pa.timestamp("us")).cast(pa.int64()).to_pylist()
        [-1, -2, 1]
    """
    numbers = values.cast(pa.int64())
    cut = pc.divide(numbers, 1000)
    is_above = pc.greater(pc.multiply(cut, 1000), numbers)
    return pc.subtract(cut, is_above.cast(pa.int64())).cast(data_type)


def parsed(texts: Datum, data_type: pa.DataType) -> Datum:
    """Parse texts, an array or a scalar, as timestamps; the fraction of a second may have up to nine digits.

    Raises:
        pyarrow.ArrowInvalid: If a text is no timestamp.

    Example:
        >>> parsed(pa.array(["1969-12-31 23:59:59.999999999"]), pa.timestamp("us")).cast(pa.int64()).to_pylist()
        [-1]
    """
    try:
        return _alike(texts, data_type)
    except pa.ArrowInvalid:
        if not (isinstance(texts, pa.Scalar) or pc.any(pc.match_substring(texts, ".")).as_py()):
            raise
    short = pc.replace_substring_regex(pc.cast(texts, pa.string()), pattern=_MORE_DIGITS, replacement=r"\1\2")
    return pc.cast(short, data_type)


def read_alike(texts: Datum, data_type: pa.DataType) -> Datum | None:
    """Return texts that Arrow reads as they are as timestamps; None if it refuses one."""
    try:
        return _alike(texts, data_type)
    except pa.ArrowInvalid:
        return None


def _alike(texts: Datum, data_type: pa.DataType) -> Datum:
    """Return texts as timestamps.

    Arrow makes an error of each text that it refuses, which takes ten times what it takes to parse one: the first texts
    are tried before all are.
    """
    if not isinstance(texts, pa.Scalar) and len(texts) > _TRIED:
        pc.cast(texts.slice(0, _TRIED), data_type)
    return pc.cast(texts, data_type)
