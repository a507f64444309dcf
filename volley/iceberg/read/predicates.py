"""Translates predicates to Iceberg's expressions, which prune files."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

from pyiceberg.expressions import (
    AlwaysFalse,
    AlwaysTrue,
    And,
    BooleanExpression,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNaN,
    IsNull,
    LessThan,
    LessThanOrEqual,
    NotNull,
    Or,
    Reference,
    StartsWith,
)
from pyiceberg.schema import Schema
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
    LongType,
    NestedField,
    StringType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
)

from volley.iceberg.schema.nanoseconds import constant, has_nanoseconds, of_text
from volley.iceberg.schema.types import arrow_type_of
from volley.plan.expression_nodes import Call, Column, ExprNode, Literal
from volley.types.arrow import arrow_type

__all__ = ["pruning"]

_COMPARISONS: dict[str, Any] = {
    "eq": EqualTo,
    "gt": GreaterThan,
    "gt_eq": GreaterThanOrEqual,
    "lt": LessThan,
    "lt_eq": LessThanOrEqual,
}
_CLOCKS, _INSTANTS = TimestampType | TimestampNanoType, TimestamptzType | TimestamptzNanoType
_MIRRORED = {"eq": "eq", "gt": "lt", "gt_eq": "lt_eq", "lt": "gt", "lt_eq": "gt_eq"}

_LONGEST = {
    **{"year": timedelta(days=366), "quarter": timedelta(days=92), "month": timedelta(days=31)},
    **{"week": timedelta(days=7), "day": timedelta(days=1), "hour": timedelta(hours=1)},
    **{"minute": timedelta(minutes=1), "second": timedelta(seconds=1), "millisecond": timedelta(milliseconds=1)},
}
_START_OF_YEAR: dict[type, Callable[[int], Any]] = {
    DateType: lambda year: date(year, 1, 1),
    TimestampType: lambda year: datetime(year, 1, 1),
    TimestamptzType: lambda year: datetime(year, 1, 1, tzinfo=UTC),
    TimestampNanoType: lambda year: datetime(year, 1, 1),
    TimestamptzNanoType: lambda year: datetime(year, 1, 1, tzinfo=UTC),
}


def pruning(predicate: ExprNode | None, schema: Schema) -> BooleanExpression:
    """Return an Iceberg expression that is true for every row for which the predicate is true.

    It prunes files by their partitions and statistics. A part of the predicate that Iceberg can't express, or would
    take differently, becomes true: the rows are filtered by the predicate itself.

    Args:
        predicate: The predicate, over top-level columns; None = it is true for all rows.

    Example:
        >>> from pyiceberg.schema import Schema
        >>> from pyiceberg.types import LongType, NestedField
        >>> from volley import col
        >>> schema = Schema(NestedField(1, "id", LongType()))
        >>> pruning(((col("id") > 5) & (col("id") % 2 == 0)).node, schema)
        GreaterThan(term=Reference(name='id'), literal=LongLiteral(5))
    """
    if not isinstance(predicate, Call):
        return AlwaysTrue()
    left, *rest = predicate.args
    if predicate.op in ("and_", "or_"):
        join = And if predicate.op == "and_" else Or
        return join(pruning(left, schema), pruning(rest[0], schema))
    if predicate.op in ("is_null", "is_not_null"):
        field = _column(left, schema)
        return AlwaysTrue() if field is None else (IsNull if predicate.op == "is_null" else NotNull)(term=_term(field))
    if predicate.op == "is_in":
        return _is_in(left, rest, schema)
    if predicate.op == "is_nan":
        field = _column(left, schema)
        is_float = field is not None and isinstance(field.field_type, FloatType | DoubleType)
        return IsNaN(term=_term(field)) if field is not None and is_float else AlwaysTrue()
    if predicate.op == "starts_with":
        field, prefix = _column(left, schema), rest[0]
        assert isinstance(prefix, Literal)
        is_text = field is not None and isinstance(field.field_type, StringType)
        return StartsWith(term=_term(field), value=prefix.value) if field is not None and is_text else AlwaysTrue()
    if predicate.op in _COMPARISONS:
        op, right = predicate.op, rest[0]
        if isinstance(left, Literal):
            op, left, right = _MIRRORED[op], right, left
        if isinstance(left, Call) and isinstance(right, Literal):
            return _of_function(op, left, right, schema)
        return _comparison(op, left, right, schema)
    return AlwaysTrue()


def _comparison(op: str, column: ExprNode, compared: ExprNode, schema: Schema) -> BooleanExpression:
    field = _column(column, schema)
    value = None if field is None else _value(field.field_type, compared)
    if field is None or value is None:
        return AlwaysTrue()
    term = _term(field)
    if op == "eq" and _is_zero(value):
        return And(GreaterThanOrEqual(term=term, value=value), LessThanOrEqual(term=term, value=value))
    comparison: BooleanExpression = _COMPARISONS[op](term=term, value=value)
    if op in ("gt", "gt_eq") and isinstance(field.field_type, FloatType | DoubleType):
        # NaN is greater than all other numbers, as in Spark; Iceberg's bounds leave it out.
        return Or(comparison, IsNaN(term=term))
    return comparison


def _value(data_type: IcebergType, node: ExprNode) -> Any:
    """Return a constant that Iceberg compares with a column exactly as Volley does; None if the node is none."""
    if isinstance(node, Literal):
        return constant(data_type, node.value) if _is_same(data_type, node.value) else None
    match node:
        case Call(op="cast", args=(Literal(value=str(text)), Literal(value=str(name)))) if has_nanoseconds(data_type):
            is_same = arrow_type(name) == arrow_type_of(data_type)
            number = of_text(text, data_type) if is_same else None
            return None if number is None else constant(data_type, number)
    return None


def _of_function(op: str, call: Call, compared: Literal, schema: Schema) -> BooleanExpression:
    """Return what a comparison of a function of a column says about the column."""
    field = _column(call.args[0], schema)
    if field is None:
        return AlwaysTrue()
    if call.op == "coalesce":
        others = call.args[1:]
        if all(isinstance(other, Literal) and _is_same(field.field_type, other.value) for other in others):
            return Or(_comparison(op, call.args[0], compared, schema), IsNull(term=_term(field)))
    if call.op == "dt_year" or (call.op == "dt_truncate" and _is_same(field.field_type, compared.value)):
        return of_moment(op, call, compared.value, field)
    return AlwaysTrue()


def _is_in(column: ExprNode, values: list[ExprNode], schema: Schema) -> BooleanExpression:
    field = _column(column, schema)
    others = [value for value in values if not isinstance(value, Literal) or value.value is not None]
    constants = [] if field is None else [_value(field.field_type, value) for value in others]
    if field is None or any(value is None or _is_zero(value) for value in constants):
        return AlwaysTrue()
    return In(term=_term(field), values=set(constants)) if constants else AlwaysFalse()


def _is_zero(value: Any) -> bool:
    """Return True for a float of 0.0 or -0.0, which are equal, but have different buckets."""
    return isinstance(value, float) and value == 0


def _column(node: ExprNode, schema: Schema) -> NestedField | None:
    """Return the top-level field that an expression is; None if it is computed, unknown, or nested: without bounds."""
    if not isinstance(node, Column):
        return None
    return next((field for field in schema.fields if field.name == node.name and field.field_type.is_primitive), None)


def _term(field: NestedField) -> Reference:
    return Reference(field.name)


def _is_same(data_type: IcebergType, value: Any) -> bool:
    """Return True if Iceberg compares a column with this constant exactly as Volley does."""
    if isinstance(value, bool):
        return isinstance(data_type, BooleanType)
    if isinstance(value, int):
        is_exact = isinstance(data_type, IntegerType | LongType | DecimalType)
        return is_exact or (abs(value) <= 1 << 24 and isinstance(data_type, FloatType | DoubleType))
    if isinstance(value, float):
        if isinstance(data_type, FloatType):
            # pyiceberg takes an infinity for a number above or below all floats.
            return math.isfinite(value) and _single(value) == value
        return isinstance(data_type, DoubleType) and not math.isnan(value)
    if isinstance(value, datetime):
        return isinstance(data_type, _CLOCKS if value.tzinfo is None else _INSTANTS)
    if isinstance(value, Decimal):
        return isinstance(data_type, DecimalType) and -int(value.as_tuple().exponent) == data_type.scale
    types: dict[type, Any] = {str: StringType, date: DateType, time: TimeType, bytes: BinaryType | FixedType}
    return any(type(value) is kind and isinstance(data_type, to) for kind, to in types.items())


def _single(value: float) -> float:
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return math.nan


def of_moment(op: str, call: Call, value: Any, field: NestedField) -> BooleanExpression:
    """Return a range that has all times for which ``dt.year`` or ``dt.truncate`` of them compares so with a value.

    Args:
        call: The call of the function, whose first argument is the column.
        value: The constant; of the column's type for ``dt.truncate``.
    """
    try:
        return _of_year(op, value, field) if call.op == "dt_year" else _of_unit(op, call, value, field)
    except (OverflowError, ValueError):
        # The range ends behind the last time of Python's calendar.
        return AlwaysTrue()


def _of_year(op: str, year: int, field: NestedField) -> BooleanExpression:
    start = _START_OF_YEAR.get(type(field.field_type))
    if start is None or type(year) is not int:
        return AlwaysTrue()
    term = Reference(field.name)
    first, next_first = (constant(field.field_type, start(number)) for number in (year, year + 1))
    ranges: dict[str, BooleanExpression] = {
        "eq": And(GreaterThanOrEqual(term=term, value=first), LessThan(term=term, value=next_first)),
        "gt": GreaterThanOrEqual(term=term, value=next_first),
        "gt_eq": GreaterThanOrEqual(term=term, value=first),
        "lt": LessThan(term=term, value=first),
        "lt_eq": LessThan(term=term, value=next_first),
    }
    return ranges[op]


def _of_unit(op: str, call: Call, value: Any, field: NestedField) -> BooleanExpression:
    unit = call.args[1]
    assert isinstance(unit, Literal)
    term = Reference(field.name)
    # A time is never before the start of its unit, and before that start and the unit's longest length.
    before = LessThan(term=term, value=constant(field.field_type, value + _LONGEST[unit.value]))
    value = constant(field.field_type, value)
    ranges: dict[str, BooleanExpression] = {
        "eq": And(GreaterThanOrEqual(term=term, value=value), before),
        "gt": GreaterThan(term=term, value=value),
        "gt_eq": GreaterThanOrEqual(term=term, value=value),
        "lt": before,
        "lt_eq": before,
    }
    return ranges[op]
