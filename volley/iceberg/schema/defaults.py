"""Checks defaults of columns."""

from __future__ import annotations

import math
from datetime import datetime
from typing import Any

import pyarrow as pa
from pyiceberg.types import (
    BooleanType,
    DoubleType,
    FloatType,
    GeographyType,
    GeometryType,
    IcebergType,
    PrimitiveType,
    UnknownType,
)

from volley.columns.exact import array_of
from volley.errors import ConfigError
from volley.iceberg.schema.foreign_types import VariantType
from volley.iceberg.schema.nanoseconds import has_nanoseconds, nanoseconds, of_text
from volley.iceberg.schema.types import arrow_type_of

__all__ = ["checked_default"]

_NANOSECONDS = range(-(1 << 63), 1 << 63)
_WITHOUT = UnknownType | VariantType | GeometryType | GeographyType


def checked_default(data_type: IcebergType, value: Any) -> Any:
    """Return a default in the form in which pyiceberg takes it.

    Raises:
        ConfigError: If it is no value of the type, or columns of the type have no defaults.
    """
    if not isinstance(data_type, PrimitiveType) or isinstance(data_type, _WITHOUT):
        raise ConfigError(f"a column of type {data_type} can't have a default here", hint="leave the default out")
    if has_nanoseconds(data_type):
        return _in_nanoseconds(data_type, value)
    is_cut = isinstance(value, float) and not isinstance(data_type, FloatType | DoubleType)
    if is_cut or isinstance(value, bool) != isinstance(data_type, BooleanType):
        raise ConfigError(f"default {value!r} is no {data_type}", hint="a value of the column's type")
    try:
        default = array_of([value], arrow_type_of(data_type))[0].as_py()
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise ConfigError(
            f"default {value!r} is no {data_type}: {error}", hint="a value of the column's type"
        ) from error
    if isinstance(default, float) and not math.isfinite(default):
        raise ConfigError(f"default {value!r} can't be written as JSON", hint="a finite number")
    return default


def _in_nanoseconds(data_type: IcebergType, value: Any) -> int:
    """Return a time, or its text, which has all digits, as nanoseconds since 1970."""
    number = of_text(value, data_type) if isinstance(value, str) else None
    number = nanoseconds(value) if isinstance(value, datetime) else number
    if number is None or number not in _NANOSECONDS:
        raise ConfigError(
            f"default {value!r} is no {data_type}",
            hint='a time from September 1677 to April 2262, or its text: "2024-01-01T00:00:00.123456789Z"',
        )
    return number
