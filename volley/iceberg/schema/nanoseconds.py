"""Values of timestamp_ns and timestamptz_ns as pyiceberg compares them: it has no literals of these types."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg.expressions.literals import Literal, TimestampLiteral
from pyiceberg.types import IcebergType, TimestampNanoType, TimestamptzNanoType

from volley.columns.casts import cast
from volley.errors import ExpressionError

__all__ = ["NanosecondsLiteral", "constant", "has_nanoseconds", "nanoseconds", "of_text", "text_of"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class NanosecondsLiteral(TimestampLiteral):
    """A number of nanoseconds since 1970, which is compared with columns of nanoseconds only."""

    def to(self, type_var: IcebergType) -> Literal[Any]:
        if not has_nanoseconds(type_var):
            raise TypeError(f"nanoseconds are not compared with {type_var}")
        return self

    def increment(self) -> Literal[int]:
        return NanosecondsLiteral(self.value + 1)

    def decrement(self) -> Literal[int]:
        return NanosecondsLiteral(self.value - 1)


def has_nanoseconds(data_type: IcebergType) -> bool:
    """Return True for timestamp_ns and timestamptz_ns."""
    return isinstance(data_type, TimestampNanoType | TimestamptzNanoType)


def constant(data_type: IcebergType, value: Any) -> Any:
    """Return a value that a column is compared with, in the form in which pyiceberg takes it.

    Args:
        value: As manifests store it, or a datetime.
    """
    if not has_nanoseconds(data_type):
        return value
    return NanosecondsLiteral(nanoseconds(value) if isinstance(value, datetime) else value)


def nanoseconds(value: datetime) -> int:
    """Return a time, which is in UTC if it has no zone, as nanoseconds since 1970.

    Example:
        >>> nanoseconds(datetime(1969, 12, 31, 23, 59, 59, 999_999))
        -1000
    """
    since = (value.replace(tzinfo=UTC) if value.tzinfo is None else value) - _EPOCH
    return since // timedelta(microseconds=1) * 1_000


def of_text(text: str, data_type: IcebergType) -> int | None:
    """Return the text of a time as nanoseconds since 1970; None if it is none, or 64 bits can't hold it."""
    zone = "UTC" if isinstance(data_type, TimestamptzNanoType) else None
    try:
        number: int = cast(pa.scalar(text), pa.timestamp("ns", zone)).cast(pa.int64()).as_py()
    except ExpressionError:
        return None
    return number


def text_of(data_type: IcebergType, number: int) -> str:
    """Return nanoseconds since 1970 as a text in ISO 8601.

    Example:
        >>> text_of(TimestamptzNanoType(), -1)
        '1969-12-31T23:59:59.999999999+00:00'
    """
    seconds, rest = divmod(number, 1_000_000_000)
    offset = "+00:00" if isinstance(data_type, TimestamptzNanoType) else ""
    return f"{np.datetime64(seconds, 's')}.{rest:09}{offset}"
