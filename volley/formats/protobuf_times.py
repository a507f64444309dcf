"""Makes columns of the seconds and nanoseconds of Protobuf's timestamps and durations."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa

from volley.errors import SourceError
from volley.formats.cursors import Integers

__all__ = ["durations", "timestamps"]

# In seconds: the years 1 to 9999, and 10,000 years.
_FIRST_TIMESTAMP, _LAST_TIMESTAMP = -62_135_596_800, 253_402_300_799
# Those that 64 bits of nanoseconds can hold, with any part of a second.
_FIRST_OF_NANOS, _LAST_OF_NANOS = -9_223_372_036, 9_223_372_035
_LONGEST_DURATION = 315_576_000_000
_NANOS = 1_000_000_000


def timestamps(seconds: Integers, nanos: Integers, data_type: pa.TimestampType, field: str) -> pa.Array:
    """Return instants in microseconds, rounded down, or in nanoseconds.

    Args:
        field: The name of their field.

    Raises:
        SourceError: If one is outside of what its type has.
    """
    if data_type.unit == "ns":
        _check(seconds, "seconds", field, _FIRST_OF_NANOS, _LAST_OF_NANOS)
        _check(nanos, "nanos", field, 0, _NANOS - 1)
        return pa.array(seconds * _NANOS + nanos).cast(data_type)
    _check(seconds, "seconds", field, _FIRST_TIMESTAMP, _LAST_TIMESTAMP)
    _check(nanos, "nanos", field, 0, _NANOS - 1)
    return pa.array(seconds * 1_000_000 + nanos // 1_000).cast(data_type)


def durations(seconds: Integers, nanos: Integers, data_type: pa.DataType, field: str) -> pa.Array:
    """Return seconds with nine decimal places; arguments and errors as for `timestamps`."""
    _check(seconds, "seconds", field, -_LONGEST_DURATION, _LONGEST_DURATION)
    _check(nanos, "nanos", field, 1 - _NANOS, _NANOS - 1)
    parts = zip(seconds.tolist(), nanos.tolist(), strict=True)
    return pa.array([Decimal(whole * _NANOS + part).scaleb(-9) for whole, part in parts], data_type)


def _check(numbers: Integers, name: str, field: str, low: int, high: int) -> None:
    if len(numbers) and not (low <= numbers.min() and numbers.max() <= high):
        wrong = numbers[(numbers < low) | (numbers > high)][0]
        raise SourceError(f"field {field!r} has {wrong} {name}, outside of {low:,} to {high:,}")
