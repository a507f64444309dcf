"""Follows event times through a plan: how late the rows that come out of keyed steps can be for the steps behind.

The watermark of a keyed step says which of its rows can still come out, and so which times they have. A step behind
takes that as the watermark of its input, its output watermark, in the place of the latest time that it has seen: a row
of an earlier step is never late. Apache Flink and Spark follow watermarks through a query in the same way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import reduce

from volley.errors import PlanError
from volley.plan import nodes
from volley.plan.expression_nodes import Call, Column, ExprNode, Literal, output_name
from volley.plan.keyed_nodes import (
    WINDOW_COLUMNS,
    Aggregate,
    Changing,
    Deduplicate,
    JoinStreams,
    Keyed,
    Over,
    Series,
)
from volley.plan.windows import Calendar, Cumulative, Session, Spans, microseconds

__all__ = ["EventTime", "event_times", "follows_windows"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY = 24 * 3600 * 1_000_000
_UNITS = {
    "week": 7 * _DAY,
    "day": _DAY,
    "hour": _DAY // 24,
    "minute": 60_000_000,
    "second": 1_000_000,
    "millisecond": 1_000,
}
_FIRST_MONDAY = 4 * _DAY
# In days, with what changes of clocks and of a zone's date can add.
_LONGEST = {"day": 2, "week": 8, "month": 32, "quarter": 93, "year": 367}
_ADDED = ("days", "hours", "minutes", "seconds", "microseconds")


@dataclass(frozen=True)
class _Shift:
    """Adds microseconds to a time."""

    by: int

    def of(self, at: int) -> int:
        return at + self.by

    def least(self, at: int) -> int:
        """Return the earliest time that becomes this one or a later one."""
        return at - self.by


@dataclass(frozen=True)
class _Truncation:
    """Rounds a time down to a multiple of a unit, counted from an origin; both in microseconds."""

    unit: int
    origin: int = 0

    def of(self, at: int) -> int:
        return (at - self.origin) // self.unit * self.unit + self.origin

    def least(self, at: int) -> int:
        """Return the earliest time that becomes this one or a later one."""
        return -((self.origin - at) // self.unit) * self.unit + self.origin


@dataclass(frozen=True)
class _Constant:
    """Stands for a time that all rows have."""

    at: int

    def of(self, at: int) -> int:
        return self.at

    def least(self, at: int) -> int:
        """Return a time before all: no watermark makes a constant later."""
        return -(2**62)


_Change = _Shift | _Truncation | _Constant


@dataclass(frozen=True)
class EventTime:
    """A column of times of rows that a keyed step has passed on, whose values follow the step's watermark.

    Args:
        step: The keyed step.
        changes: What leads from its watermark to the earliest time of a row that can still come, the first one first.
    """

    step: Keyed
    changes: tuple[_Change, ...] = ()

    def output(self, watermark: int) -> int:
        """Return the output watermark: no row that comes out later has an earlier time. In microseconds since 1970."""
        return reduce(lambda at, change: change.of(at), self.changes, watermark)

    def least(self, output: int) -> int:
        """Return the earliest watermark of the step whose output watermark is this one or later."""
        return reduce(lambda at, change: change.least(at), reversed(self.changes), output)

    def changed(self, changes: Sequence[_Change]) -> EventTime:
        """Return that of a column that is computed of this one."""
        return EventTime(self.step, (*self.changes, *changes))


def event_times(step: Keyed) -> list[Mapping[int, Sequence[EventTime]]]:
    """Return, for each input of a keyed step that follows event time, the output watermarks that it follows.

    Returns:
        By the id of each keyed step that is before it, without another one between: the column's values, as often as
        there are ways from one step to the other. Of rows that no step has changed since they were read, there is
        none: what tells how late these can be is the latest of them.

    Raises:
        PlanError: If it is not known how late rows of an earlier step can be.
    """
    return [_of_intake(step, intake, time) for intake, time in zip(step.intakes, _times_of(step), strict=True)]


def follows_windows(node: nodes.Node, column: str) -> bool:
    """Return True if all rows of a node come out of keyed steps whose watermarks the times of a column follow."""
    try:
        return all(at is not None for _, at in _traced("", node, column))
    except PlanError:
        return False


def _times_of(step: Keyed) -> Sequence[str | None]:
    """Return for each input of a keyed step the column that it follows event time by; None = it follows none."""
    match step:
        case Changing():
            return [step.on]
        case JoinStreams():
            return step.join.times
        case Series():
            return [step.ordering.on]
        case Deduplicate():
            return [step.event_time]
    return [None] * len(step.intakes)


def _of_intake(step: Keyed, intake: nodes.Node, time: str | None) -> Mapping[int, Sequence[EventTime]]:
    if time is None:
        return {}
    followed: dict[int, list[EventTime]] = {}
    unchanged: set[int] = set()
    for start, at in _traced(step.label(), intake.inputs[0], time):
        if at is None:
            unchanged.add(id(start))
        else:
            followed.setdefault(id(start), []).append(at)
    if both := unchanged & followed.keys():
        start = next(node for node in nodes.walk(intake.inputs) if id(node) in both)
        raise PlanError(
            f"{step.label()} follows {start.label()}, which has rows of windows or joins and others",
            hint="unite the streams behind it, or write one of them to a table, and read that in another job",
        )
    return followed


def _traced(step: str, node: nodes.Node, column: str | None) -> Iterator[tuple[nodes.Node, EventTime | None]]:
    """Yield the reads and keyed steps next to a node, each with the times of the column; None = of rows as read.

    Args:
        step: The label of the step that follows them, for errors.
        column: None = what is behind the node has a constant in its place.
    """
    if not any(isinstance(before, Keyed) and not before.passes_rows for before in nodes.walk([node])):
        yield from ((start, None) for start in nodes.walk([node]) if isinstance(start, nodes.Read | Keyed))
        return
    if isinstance(node, Keyed):
        if node.passes_rows:
            yield from ((node, at) for source in node.inputs for _, at in _traced(step, source, column))
            return
        if column is None:
            yield node, EventTime(node)
        elif (passed := _output(node, column)) is None:
            raise _unknown(step, node, column)
        else:
            yield node, EventTime(node, passed)
        return
    before, changes = _before(step, node, column)
    for source in node.inputs:
        for start, at in _traced(step, source, before):
            yield start, None if at is None else at.changed(changes)


def _before(step: str, node: nodes.Node, column: str | None) -> tuple[str | None, Sequence[_Change]]:
    """Return the column that a step computes another one of, and how; None in its place = it is a constant."""
    if column is None:
        return None, ()
    # A column that ends here, and comes anew of a table that is joined behind, is another one: None.
    value: ExprNode | None = Column(column)
    match node:
        case nodes.Select():
            value = next((value for value in node.columns if output_name(value) == column), None)
        case nodes.WithColumns():
            value = dict(node.columns).get(column, value)
        case nodes.Drop() if column in node.columns:
            value = None
        case nodes.Rename():
            before = {new: old for old, new in node.names}
            value = None if column in before.values() and column not in before else Column(before.get(column, column))
        case nodes.ProcessingTime() if column == node.column:
            value = None
        case nodes.Apply():
            value = None
    if value is None or (computed := _computed(value)) is None:
        raise _unknown(step, node, column)
    return computed


def _computed(value: ExprNode) -> tuple[str | None, tuple[_Change, ...]] | None:
    """Return the column that an expression is computed of, and the changes, if it never goes back where that one goes
    on; else None."""
    if isinstance(value, Column):
        return value.name, ()
    if isinstance(value, Literal) and isinstance(value.value, datetime):
        return None, (_Constant(microseconds(value.value.replace(tzinfo=value.value.tzinfo or UTC) - _EPOCH)),)
    if not isinstance(value, Call) or (before := _computed(value.args[0])) is None:
        return None
    name, changes = before
    given = [arg.value for arg in value.args[1:] if isinstance(arg, Literal)]
    match value.op:
        case "alias":
            return before
        case "dt_add":
            span = timedelta(**dict(zip(_ADDED, given, strict=True)))
            return name, (*changes, _Shift(microseconds(span)))
        case "dt_truncate" if given[0] in _UNITS:
            origin = _FIRST_MONDAY if given[0] == "week" else 0
            return name, (*changes, _Truncation(_UNITS[given[0]], origin))
    return None


def _output(step: Keyed, column: str) -> tuple[_Change, ...] | None:
    """Return what leads from a step's watermark to the earliest value of a column that can still come; None = it is not
    known."""
    match step:
        case Aggregate() if column in WINDOW_COLUMNS:
            return _of_windows(step, is_end=column == WINDOW_COLUMNS[1])
        case Aggregate() if any(output_name(key) == column and _is_time(step, key) for key in step.keys):
            # No row of a window is before its start.
            return _of_windows(step, is_end=False)
        case Series() | Over() if column == step.ordering.on and column not in dict(step.functions):
            return ()
        case JoinStreams():
            return _of_pairs(step, column)
    return None


def _is_time(step: Aggregate, key: ExprNode) -> bool:
    """Return True if a key is the time of the step's windows."""
    return step.windowing is not None and _computed(key) == (step.windowing.on, ())


def _of_windows(step: Aggregate, is_end: bool) -> tuple[_Change, ...] | None:
    windowing = step.windowing
    # A window without rows comes out with the next one of its key, long after its end.
    if windowing is None or windowing.fill_gaps:
        return None
    match windowing.window:
        case Session(gap=gap):
            # It comes out a gap behind its end; when its first row came, no watermark says.
            return (_Shift(1 - microseconds(gap)),) if is_end else None
        case Calendar(unit=unit):
            return (_Shift(1 if is_end else -_LONGEST[unit] * _DAY),)
        case Cumulative(size=size, step=shortest):
            length = shortest if is_end else size
            return _of_spans(Spans(length, length), is_end)
        case Spans() as spans:
            return _of_spans(spans, is_end)


def _of_spans(window: Spans, is_end: bool) -> tuple[_Change, ...]:
    """Return what leads to the first window that the watermark has not reached the end of."""
    size, every, offset = map(microseconds, (window.size, window.every, window.offset))
    return _Shift(-size), _Truncation(every, offset), _Shift(every + size if is_end else every)


def _of_pairs(step: JoinStreams, column: str) -> tuple[_Change, ...] | None:
    """Return the changes of a column of pairs: the later row of a new pair is not behind the watermark."""
    join, (left, right) = step.join, step.join.times
    # Where a row matches none, the other side's time is null.
    if column == left and not join.keeps_right:
        return (_Shift(-max(microseconds(join.after), 0)),)
    is_added = join.how in ("inner", "right") and (join.columns is None or right in join.columns)
    if column == right + join.suffix and is_added and right not in join.right_keys:
        return (_Shift(-max(microseconds(join.before), 0)),)
    return None


def _unknown(step: str, node: nodes.Node, column: str) -> PlanError:
    return PlanError(
        f"{step} follows event time by {column!r}, and how late that can be behind {node.label()} is not known",
        hint='follow a time of that step: "window_start" or "window_end" of tumbling and sliding windows, "window_end" '
        "of sessions, the time of a series, the times of joined streams (of a left or right join that side's); or one "
        "computed of it by dt.add or dt.truncate (a week or shorter); fill_gaps= has none",
    )
