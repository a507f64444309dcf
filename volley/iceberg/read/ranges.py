"""Ranges of a column outside of which a comparison of a function of it can't be true."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Any

from pyiceberg.expressions import (
    AlwaysTrue,
    And,
    BooleanExpression,
    GreaterThan,
    GreaterThanOrEqual,
    LessThan,
    Reference,
)
from pyiceberg.types import DateType, NestedField, TimestampType, TimestamptzType

from volley.plan.expression_nodes import Call, Literal

__all__ = ["of_moment"]

_LONGEST = {
    **{"year": timedelta(days=366), "quarter": timedelta(days=92), "month": timedelta(days=31)},
    **{"week": timedelta(days=7), "day": timedelta(days=1), "hour": timedelta(hours=1)},
    **{"minute": timedelta(minutes=1), "second": timedelta(seconds=1), "millisecond": timedelta(milliseconds=1)},
}
_START_OF_YEAR: dict[type, Callable[[int], Any]] = {
    DateType: lambda year: date(year, 1, 1),
    TimestampType: lambda year: datetime(year, 1, 1),
    TimestamptzType: lambda year: datetime(year, 1, 1, tzinfo=UTC),
}


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
    term, first, next_first = Reference(field.name), start(year), start(year + 1)
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
    before = LessThan(term=term, value=value + _LONGEST[unit.value])
    ranges: dict[str, BooleanExpression] = {
        "eq": And(GreaterThanOrEqual(term=term, value=value), before),
        "gt": GreaterThan(term=term, value=value),
        "gt_eq": GreaterThanOrEqual(term=term, value=value),
        "lt": before,
        "lt_eq": before,
    }
    return ranges[op]
