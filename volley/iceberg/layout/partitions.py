"""Compares, orders, names and serializes partition values and bounds as Iceberg does; pyiceberg uses Python's order."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from datetime import datetime
from decimal import Context, Decimal, Inexact, InvalidOperation
from typing import Any
from urllib.parse import quote_plus
from uuid import UUID

import numpy as np
from pyiceberg.conversions import to_bytes
from pyiceberg.expressions.literals import AboveMax, BelowMin, literal
from pyiceberg.manifest import PartitionFieldSummary
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import DayTransform, HourTransform
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    NestedField,
    PrimitiveType,
    StringType,
    UUIDType,
)
from pyiceberg.utils.decimal import bytes_required, decimal_to_bytes

from volley.iceberg.pyiceberg_private.access import partition_values
from volley.iceberg.schema.nanoseconds import has_nanoseconds, nanoseconds, of_text, text_of

__all__ = ["bounds", "exact", "partition_order", "partition_value", "path_of", "summaries", "uuid_bounds"]

_FORMS = {BooleanType: "<?", IntegerType: "<i", DateType: "<i", FloatType: "<f", DoubleType: "<d"}
_SURROGATES = range(0xD800, 0xE000)
_HALF = 1 << 64
_SIGN = 1 << 63

Bounds = tuple[bytes | None, bytes | None]

_NAN = struct.pack(">d", float("nan"))


def bounds(data_type: PrimitiveType, low: Any, high: Any, length: int | None = None) -> Bounds:
    """Return the bounds of a column; None for a bound that does not exist.

    Args:
        low: The lowest value in Parquet's form: an integer for dates, times and decimals, else bytes.
        length: The number of characters or bytes to keep of text and bytes; None = all.

    Example:
        >>> bounds(StringType(), b"naive", b"north", 2)
        (b'na', b'np')
    """
    if isinstance(data_type, StringType):
        try:
            return _text_bounds(low.decode(), high.decode(), length)
        except UnicodeDecodeError:
            # A file of another writer, which an upsert copies.
            return None, None
    if isinstance(data_type, BinaryType):
        return low[:length], high if length is None or len(high) <= length else _above(high[:length])
    if isinstance(data_type, UUIDType):
        return uuid_bounds(low, high) or (None, None)
    return _serialized(data_type, low), _serialized(data_type, high)


def _serialized(data_type: PrimitiveType, value: Any) -> bytes:
    if isinstance(data_type, FixedType):
        return bytes(value)
    if isinstance(data_type, DecimalType):
        return int(value).to_bytes(bytes_required(value), "big", signed=True)
    return struct.pack(_FORMS.get(type(data_type), "<q"), value)


def _text_bounds(low: str, high: str, length: int | None) -> Bounds:
    if length is None or len(high) <= length:
        return low[:length].encode(), high.encode()
    above = _next_text(high[:length])
    return low[:length].encode(), None if above is None else above.encode()


def _next_text(text: str) -> str | None:
    """Return the first text after all texts that start with this one; None if there is none."""
    while text and text[-1] == "\U0010ffff":
        text = text[:-1]
    if not text:
        return None
    following = ord(text[-1]) + 1
    return text[:-1] + chr(_SURROGATES.stop if following in _SURROGATES else following)


def _above(value: bytes) -> bytes | None:
    """Return the first bytes after all bytes that start with these; None if there are none."""
    value = value.rstrip(b"\xff")
    return value[:-1] + bytes([value[-1] + 1]) if value else None


def uuid_bounds(low: bytes, high: bytes) -> tuple[bytes, bytes] | None:
    """Return bounds that are valid in both orders of UUIDs; None if there are none.

    Parquet, DuckDB and pyiceberg compare the bytes. Iceberg's Java library compares two signed 64-bit numbers
    (apache/iceberg#14216): given the byte bounds of random UUIDs, it would find none of them. If the first numbers
    have the same sign, both orders agree on them; widening them by one makes the second numbers irrelevant.

    Args:
        low: The lowest value in byte order.
    """
    if low == high:
        return low, high
    first, last = int.from_bytes(low[:8], "big"), int.from_bytes(high[:8], "big")
    if first & _SIGN != last & _SIGN or first in (0, _SIGN) or last in (_SIGN - 1, _HALF - 1):
        return None
    return (first - 1).to_bytes(8, "big") + low[8:], (last + 1).to_bytes(8, "big") + high[8:]


def exact(value: Any) -> Any:
    """Return a key that is equal for equal partition values: NaN equals NaN, -0.0 differs from 0.0, as in Java.

    Args:
        value: A value of a manifest, or of the writer.
    """
    if isinstance(value, float):
        return struct.pack(">d", value) if value == value else _NAN
    return value


def partition_order(partition: Record) -> tuple[Any, ...]:
    """Return a key that sorts partitions of one spec: nulls first, NaN last.

    Args:
        partition: The values of a partition, as manifests store them.
    """
    return tuple(
        (value is not None, value if value is None else _ordered(value)) for value in partition_values(partition)
    )


def partition_value(data_type: IcebergType, value: Any) -> Any:
    """Convert a Python value, with which a user names a partition, to its form in manifests.

    Raises:
        TypeError: If it can't be converted to this type without loss.
        ValueError: Likewise.
        ArithmeticError: Likewise.

    Example:
        >>> partition_value(FloatType(), 0.1)
        0.10000000149011612
    """
    if isinstance(data_type, FloatType | DoubleType) and isinstance(value, int | float) and not isinstance(value, bool):
        form = "<f" if isinstance(data_type, FloatType) else "<d"
        return struct.unpack(form, struct.pack(form, value))[0]
    if isinstance(data_type, DecimalType) and isinstance(value, int | Decimal | str) and not isinstance(value, bool):
        return _decimal(data_type, Decimal(value))
    if has_nanoseconds(data_type) and isinstance(value, datetime | str):
        return _nanoseconds(data_type, value)
    converted = literal(value).to(data_type)
    if isinstance(converted, AboveMax | BelowMin):
        raise ValueError(f"{value} is beyond {data_type}")
    return converted.value


def _nanoseconds(data_type: IcebergType, value: datetime | str) -> int:
    number = nanoseconds(value) if isinstance(value, datetime) else of_text(value, data_type)
    if number is None or not -_SIGN <= number < _SIGN:
        raise ValueError(f"{value} is no {data_type}")
    return number


def _decimal(data_type: DecimalType, value: Decimal) -> Decimal:
    # Python's default context rounds to 28 digits.
    exact_digits = Context(prec=data_type.precision, traps=[Inexact, InvalidOperation])
    return value.quantize(Decimal(1).scaleb(-data_type.scale), context=exact_digits)


def path_of(spec: PartitionSpec, schema: Schema, partition: Record) -> str:
    """Return the folder of a partition, ``country=NO/at_day=2024-01-01``, also for dates outside Python's range."""
    fields = zip(spec.fields, spec.partition_type(schema).fields, partition_values(partition), strict=True)
    return "/".join(
        f"{quote_plus(field.name, safe='')}={quote_plus(_text(field, data_type.field_type, value), safe='')}"
        for field, data_type, value in fields
    )


def _text(field: PartitionField, data_type: IcebergType, value: Any) -> str:
    if isinstance(data_type, UUIDType) and value is not None:
        value = UUID(bytes=value)
    if value is not None and has_nanoseconds(data_type):
        return text_of(data_type, value)
    try:
        return field.transform.to_human_string(data_type, value)
    except OverflowError:
        if isinstance(field.transform, HourTransform):
            return str(np.datetime64(value, "h"))
        days = isinstance(data_type, DateType) or isinstance(field.transform, DayTransform)
        return str(np.datetime64(value, "D" if days else "us"))


def summaries(types: Sequence[NestedField], partitions: Iterable[Record]) -> list[PartitionFieldSummary] | None:
    """Return the partition summaries of a manifest, one per field; None if a field has no valid one.

    Args:
        partitions: The partition of each file.
    """
    columns = zip(*map(partition_values, partitions), strict=True)
    by_field = [_summary(field.field_type, values) for field, values in zip(types, columns, strict=True)]
    valid = [summary for summary in by_field if summary is not None]
    # A summary without bounds means that there are no values; only the whole list may be left out.
    return valid if len(valid) == len(by_field) else None


def _summary(data_type: IcebergType, values: Sequence[Any]) -> PartitionFieldSummary | None:
    numbers = [value for value in values if value is not None and value == value]
    limits: tuple[bytes | None, bytes | None] | None = None, None
    if numbers:
        limits = _limits(data_type, min(numbers, key=_ordered), max(numbers, key=_ordered))
    has_nan = any(value is not None and value != value for value in values)
    return limits and PartitionFieldSummary(None in values, has_nan, *limits)


def _limits(data_type: IcebergType, low: Any, high: Any) -> tuple[bytes, bytes] | None:
    assert isinstance(data_type, PrimitiveType)
    if isinstance(data_type, UUIDType):
        return uuid_bounds(low, high)
    if isinstance(data_type, DecimalType):
        # A truncated value may have one digit more than its type; pyiceberg's to_bytes rejects it.
        return decimal_to_bytes(low), decimal_to_bytes(high)
    return to_bytes(data_type, low), to_bytes(data_type, high)


def _ordered(value: Any) -> Any:
    """Return a key that sorts like Iceberg: -0.0 comes before 0.0."""
    key = exact(value)
    if not isinstance(value, float):
        return key
    bits = int.from_bytes(key, "big")
    return ~bits if bits & _SIGN else bits
