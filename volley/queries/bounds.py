"""Bounds of time between the rows of two streams, as the conditions of a query say them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

from sqlglot import exp

from volley.queries.scope import Relation, Types
from volley.types.arrow import type_name

__all__ = ["Bound", "bound_of"]

_UNITS = ("week", "day", "hour", "minute", "second")


@dataclass(frozen=True)
class Bound:
    """How near in time the rows of two relations are that match.

    Args:
        times: The time columns of both streams.
        before: How much earlier than the left row the right one may be; `after` likewise.
        exact: The conditions that say no more than that.
    """

    times: tuple[str, str]
    before: timedelta
    after: timedelta
    exact: tuple[exp.Expression, ...]


@dataclass(frozen=True)
class _Moment:
    """A column of times, and what is added to it."""

    column: exp.Column
    shift: timedelta


def bound_of(trees: Iterable[exp.Expression], left: Relation, right: Relation, types: Types) -> Bound | None:
    """Return the bound of two time columns that conditions of the text say together; None if they say none."""
    earliest: dict[tuple[str, str], timedelta] = {}
    latest: dict[tuple[str, str], timedelta] = {}
    exact: dict[tuple[str, str], list[exp.Expression]] = {}
    for tree in trees:
        sides = _sides(tree)
        said = list[tuple[str, str] | None]()
        for first, second in _ordered(sides):
            span = second.shift - first.shift
            # Where the left row's time is the first one, the right row is not earlier than that.
            if pair := _pair(first, second, left, right, types):
                earliest[pair] = min(span, earliest.get(pair, span))
            elif pair := _pair(second, first, left, right, types):
                latest[pair] = min(span, latest.get(pair, span))
            said.append(pair if span >= timedelta(0) else None)
        if (
            said
            and len(said) == len(sides)
            and (pair := said[0])
            and {*said} == {pair}
            and not isinstance(tree, exp.LT | exp.GT)
        ):
            exact.setdefault(pair, []).append(tree)
    for pair, before in earliest.items():
        if pair in latest:
            none = timedelta(0)
            return Bound(pair, max(before, none), max(latest[pair], none), tuple(exact.get(pair, ())))
    return None


def _sides(tree: exp.Expression) -> Sequence[tuple[exp.Expression, exp.Expression]]:
    """Return the pairs of which a condition says that the first is not later than the second."""
    match tree:
        case exp.EQ():
            return [(tree.this, tree.expression), (tree.expression, tree.this)]
        case exp.LTE() | exp.LT():
            return [(tree.this, tree.expression)]
        case exp.GTE() | exp.GT():
            return [(tree.expression, tree.this)]
        case exp.Between():
            return [(tree.args["low"], tree.this), (tree.this, tree.args["high"])]
    return []


def _ordered(sides: Iterable[tuple[exp.Expression, exp.Expression]]) -> Iterator[tuple[_Moment, _Moment]]:
    """Yield the pairs of which both are times."""
    for one, other in sides:
        first, second = _moment(one), _moment(other)
        if first is not None and second is not None:
            yield first, second


def _moment(tree: exp.Expression) -> _Moment | None:
    if isinstance(tree, exp.Paren):
        return _moment(tree.this)
    if isinstance(tree, exp.Column):
        return _Moment(tree, timedelta(0))
    if not isinstance(tree, exp.Add | exp.Sub) or not isinstance(tree.expression, exp.Interval):
        return None
    before, interval = _moment(tree.this), tree.expression
    number, unit = interval.this, str(interval.args.get("unit") or "").lower().removesuffix("s")
    is_whole = isinstance(number, exp.Literal) and str(number.this).strip().isdecimal()
    if before is None or not is_whole or unit not in _UNITS:
        return None
    span = timedelta(**{f"{unit}s": int(number.this)})
    return _Moment(before.column, before.shift + (span if isinstance(tree, exp.Add) else -span))


def _pair(one: _Moment, other: _Moment, left: Relation, right: Relation, types: Types) -> tuple[str, str] | None:
    """Return the columns of two times, if the first is one of the left rows, and the second one of the right ones."""
    if not left.has(one.column) or right.has(one.column) or not right.has(other.column) or left.has(other.column):
        return None
    ours, theirs = left.resolved(one.column), right.resolved(other.column)
    if not isinstance(ours, exp.Column) or not isinstance(theirs, exp.Column):
        return None
    ours_type, theirs_type = (
        types.of(relation.stream).field(column.name).type for relation, column in ((left, ours), (right, theirs))
    )
    return (
        (ours.name, theirs.name) if ours_type == theirs_type and type_name(ours_type).startswith("timestamp") else None
    )
