"""Partition values as Iceberg compares, orders and names them: pyiceberg goes by Python's ``==`` and ``<``."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
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
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    NestedField,
    PrimitiveType,
    UUIDType,
)
from pyiceberg.utils.decimal import decimal_to_bytes

from volley.iceberg.layout.bounds import uuid_bounds
from volley.iceberg.pyiceberg_private.access import partition_values

__all__ = ["exact", "partition_value", "path_of", "summaries"]

_NAN = struct.pack(">d", float("nan"))
_SIGN = 1 << 63


def exact(value: Any) -> Any:
    """A key that is equal for equal partition values: NaN is NaN, and -0.0 is not 0.0, as for Java's ``Double.equals``.

    Args:
        value: As a manifest has it, or as the writer makes it.

    Example:
        >>> exact(float("nan")) == exact(-float("nan")), exact(0.0) == exact(-0.0)
        (True, False)
    """
    if isinstance(value, float):
        return struct.pack(">d", value) if value == value else _NAN
    return value


def partition_value(kind: IcebergType, value: Any) -> Any:
    """A value of Python's, as a user names a partition, as it stands in manifests.

    Raises:
        TypeError: If it is no value of this type, or not without loss.
        ValueError: Likewise.
        ArithmeticError: Likewise.

    Example:
        >>> partition_value(FloatType(), 0.1)
        0.10000000149011612
    """
    if isinstance(kind, FloatType | DoubleType) and isinstance(value, int | float) and not isinstance(value, bool):
        form = "<f" if isinstance(kind, FloatType) else "<d"
        return struct.unpack(form, struct.pack(form, value))[0]
    if isinstance(kind, DecimalType) and isinstance(value, int | Decimal | str) and not isinstance(value, bool):
        return _decimal(kind, Decimal(value))
    made = literal(value).to(kind)
    if isinstance(made, AboveMax | BelowMin):
        raise ValueError(f"{value} is beyond {kind}")
    return made.value


def _decimal(kind: DecimalType, value: Decimal) -> Decimal:
    # Python's own context rounds to 28 digits.
    exact_digits = Context(prec=kind.precision, traps=[Inexact, InvalidOperation])
    return value.quantize(Decimal(1).scaleb(-kind.scale), context=exact_digits)


def path_of(spec: PartitionSpec, schema: Schema, partition: Record) -> str:
    """The folder of a partition, ``country=NO/at_day=2024-01-01``, also of days that Python's dates don't reach."""
    fields = zip(spec.fields, spec.partition_type(schema).fields, partition_values(partition), strict=True)
    return "/".join(
        f"{quote_plus(field.name, safe='')}={quote_plus(_text(field, kind.field_type, value), safe='')}"
        for field, kind, value in fields
    )


def _text(field: PartitionField, kind: IcebergType, value: Any) -> str:
    if isinstance(kind, UUIDType) and value is not None:
        value = UUID(bytes=value)
    try:
        return field.transform.to_human_string(kind, value)
    except OverflowError:
        if isinstance(field.transform, HourTransform):
            return str(np.datetime64(value, "h"))
        days = isinstance(kind, DateType) or isinstance(field.transform, DayTransform)
        return str(np.datetime64(value, "D" if days else "us"))


def summaries(types: Sequence[NestedField], partitions: Iterable[Record]) -> list[PartitionFieldSummary] | None:
    """What a manifest list tells of the partitions of a manifest, field by field; None if not all can be told.

    Args:
        types: The fields of the partitions.
        partitions: The partition of each file.
    """
    columns = zip(*map(partition_values, partitions), strict=True)
    found = [_summary(field.field_type, values) for field, values in zip(types, columns, strict=True)]
    told = [each for each in found if each is not None]
    # A summary without bounds says that there is no value at all; only the whole of it may be left out.
    return told if len(told) == len(found) else None


def _summary(kind: IcebergType, values: Sequence[Any]) -> PartitionFieldSummary | None:
    numbers = [each for each in values if each is not None and each == each]
    limits: tuple[bytes | None, bytes | None] | None = None, None
    if numbers:
        limits = _limits(kind, min(numbers, key=_ordered), max(numbers, key=_ordered))
    nan = any(each is not None and each != each for each in values)
    return limits and PartitionFieldSummary(None in values, nan, *limits)


def _limits(kind: IcebergType, low: Any, high: Any) -> tuple[bytes, bytes] | None:
    assert isinstance(kind, PrimitiveType)
    if isinstance(kind, UUIDType):
        return uuid_bounds(low, high)
    if isinstance(kind, DecimalType):
        # A value that was truncated down may have one digit more than its type, which pyiceberg refuses.
        return decimal_to_bytes(low), decimal_to_bytes(high)
    return to_bytes(kind, low), to_bytes(kind, high)


def _ordered(value: Any) -> Any:
    """What sorts as Iceberg sorts the values: -0.0 comes before 0.0."""
    key = exact(value)
    if not isinstance(value, float):
        return key
    bits = int.from_bytes(key, "big")
    return ~bits if bits & _SIGN else bits
