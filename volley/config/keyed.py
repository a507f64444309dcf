"""Keyed steps in YAML: groups, windows, series, places and joins, with the functions of their columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from inspect import Parameter, signature
from typing import Any, Literal, TypeVar

from pydantic import Field

from volley.config.scope import Expression, Scope
from volley.documents.mistakes import Path, nearest
from volley.documents.models import Model, Names, Size, Span, given, model_of
from volley.errors import ConfigError, VolleyError
from volley.plan import aggregates, over, series
from volley.plan.aggregates import Aggregation
from volley.plan.over import OverFunction
from volley.plan.series import SeriesFunction
from volley.plan.windows import CalendarUnit, Window, calendar, cumulative, session, sliding, tumbling
from volley.stream.keyed import KeyedStream
from volley.stream.stream import DataStream

__all__ = [
    *("GroupStep", "JoinStep", "OrderStep", "SeriesStep", "WindowStep"),
    *("aggregate", "join", "ordered", "placed", "windowed"),
]

AggregateCall = Literal["count"] | dict[str, Expression]
"""A call of an aggregate function."""
SeriesCall = dict[str, Expression | AggregateCall]
"""A call of a series function."""
OverCall = Literal["row_number", "rank", "dense_rank", "count"] | dict[str, Expression | AggregateCall | None]
"""A call of a function of ordered rows."""

F = TypeVar("F")

_AGGREGATES: dict[str, Callable[..., Aggregation]] = {
    name: getattr(aggregates, function) for name, function in aggregates.AGGREGATES.items()
}
_SERIES: dict[str, Callable[..., SeriesFunction]] = {name: getattr(series, name) for name in series.SERIES}
_RANKS: dict[Any, Callable[[], OverFunction]] = {name: getattr(over, name) for name in over.RANKS}
_OVER: dict[str, Callable[..., OverFunction | Aggregation]] = {
    **{name: getattr(over, name) for name in ("lag", "lead", "rows_between")},
    **_AGGREGATES,
}
_GAPS: dict[Any, Callable[[Aggregation], Aggregation]] = {
    "forward_fill": Aggregation.forward_fill,
    "interpolate": Aggregation.interpolate,
}


def aggregations(calls: Mapping[str, AggregateCall], scope: Scope, path: Path) -> dict[str, Aggregation]:
    """Return the aggregates by their columns, without those that have mistakes."""
    computed = {name: _aggregation(call, scope, (*path, name)) for name, call in calls.items()}
    return {name: function for name, function in computed.items() if function is not None}


def series_functions(calls: Mapping[str, SeriesCall], scope: Scope, path: Path) -> dict[str, SeriesFunction]:
    """Return the series functions by their columns, without those that have mistakes; arguments of `aggregations`."""
    computed = {
        name: _called("series function", _SERIES, call, scope, (*path, name), "{rate: bytes, per: 1s}")
        for name, call in calls.items()
    }
    return {name: function for name, function in computed.items() if function is not None}


def over_functions(calls: Mapping[str, OverCall], scope: Scope, path: Path) -> dict[str, OverFunction | Aggregation]:
    """Return the functions of ordered rows by their columns, without those that have mistakes."""
    computed: dict[str, OverFunction | Aggregation | None] = {}
    for name, call in calls.items():
        if isinstance(call, str):
            computed[name] = _RANKS.get(call, aggregates.count)()
        else:
            kind = "function of ordered rows"
            computed[name] = _called(kind, _OVER, call, scope, (*path, name), "{lag: price, rows: 2}")
    return {name: function for name, function in computed.items() if function is not None}


def _aggregation(call: AggregateCall, scope: Scope, path: Path) -> Aggregation | None:
    """Return an aggregate; `gaps` beside its arguments says what windows without rows have of it."""
    if isinstance(call, str):
        return aggregates.count()
    gaps = call.get("gaps")
    arguments = {name: value for name, value in call.items() if name != "gaps"}
    aggregation = _called("aggregate", _AGGREGATES, arguments, scope, path, "{sum: price}")
    if gaps is None or aggregation is None:
        return aggregation
    if gaps not in _GAPS:
        scope.collector.add((*path, "gaps"), f"gaps is {gaps!r}", "forward_fill or interpolate")
        return None
    return _GAPS[gaps](aggregation)


def _called(
    function_kind: str,
    functions: Mapping[str, Callable[..., F]],
    call: Mapping[str, Any],
    scope: Scope,
    path: Path,
    example: str,
) -> F | None:
    """Return what a function gives for the arguments of a call; None if there is a mistake."""
    names = [name for name in call if name in functions]
    if len(names) != 1:
        unknown = next(iter(call), "")
        article = f"{'an' if function_kind[0] in 'aeiou' else 'a'} {function_kind}"
        message = f"{article} has {len(names)} functions" if names else f"there is no {function_kind} {unknown!r}"
        scope.collector.add(
            (*path, unknown), message, f"one: {example}" if names else nearest(unknown, functions), of_key=True
        )
        return None
    (name,) = names
    first, *others = signature(functions[name]).parameters.values()
    if not _fits(name, call.keys() - {name}, others, scope, path):
        return None
    arguments = {}
    for key, value in call.items():
        argument = first.name if key == name else key
        arguments[argument] = _argument(argument, value, scope, (*path, key))
    if any(arguments[first.name if key == name else key] is None for key, value in call.items() if value is not None):
        return None
    try:
        return functions[name](**arguments)
    except VolleyError as error:
        scope.collector.add((*path, name), error.message, error.hint)
        return None


def _fits(name: str, keys: set[str], parameters: list[Parameter], scope: Scope, path: Path) -> bool:
    """Return whether a function takes these arguments, and needs no others."""
    unknown = sorted(keys - {parameter.name for parameter in parameters})
    for key in unknown:
        scope.collector.add((*path, key), f"{name} has no argument {key!r}", "leave it out", of_key=True)
    missing = [each.name for each in parameters if each.default is Parameter.empty and each.name not in keys]
    for key in missing:
        scope.collector.add((*path, name), f"{name} has no {key}", f"{{{name}: …, {key}: …}}", of_key=True)
    return not (unknown or missing)


def _argument(name: str, value: Any, scope: Scope, path: Path) -> Any:
    """Return an argument: expressions and aggregates from their text, others as they are."""
    if value is None:
        return None
    if name == "aggregation":
        return _aggregation(value, scope, path)
    return scope.expression(value, path) if name in ("value", "by") else value


class Sliding(Model):
    """Windows that overlap."""

    size: Span = Field(description="The length of a window.")
    every: Span = Field(description="The time from one start to the next.")
    offset: Span = Field(timedelta(0), description="How much later windows start.")


class CumulativeWindows(Model):
    """Windows that begin together and end one step after the other."""

    size: Span = Field(description="The length of the longest window.")
    step: Span = Field(description="The time from one end to the next.")


class AggregateStep(Model):
    """How rows are grouped, and what is computed of each group; see `DataStream.key_by`."""

    keys: Names = Field(description="The key columns.")
    aggregate: dict[str, AggregateCall] = Field(
        description="The aggregates by their columns: count, or {function: SQL}, as in {quantile: price, q: 0.9}."
    )


class GroupStep(AggregateStep):
    """How rows are grouped, and for how long a job keeps a group; see `KeyedStream.retain`."""

    ttl: Span | None = Field(
        None, description="How long a job keeps a group after its last row, by the computer's clock; None = for ever."
    )


class _Series(Model):
    """How the rows of a key become a series, and what each row gets; see `KeyedStream.series`."""

    keys: Names = Field(description="The key columns.")
    columns: dict[str, SeriesCall] = Field(
        description="The functions by their columns, as in {previous: price}, {rate: bytes, per: 1s} or "
        "{rolling: 5m, aggregation: {avg: price}}."
    )


class _Order(Model):
    """How the rows of a key are ordered, and what each row gets of those around it; see `KeyedStream.order_by`."""

    keys: Names = Field(description="The key columns.")
    order: Names = Field(description="Columns, each with asc or desc behind it, such as price desc.")
    columns: dict[str, OverCall] = Field(
        description="The functions by their columns: row_number, rank, dense_rank, count, or as in "
        "{lag: price, rows: 2}, {sum: price} or {rows_between: {sum: price}, before: 6}."
    )


class _Window(AggregateStep):
    """How rows are grouped by key and time, and what is computed of each group; see `KeyedStream.window`."""

    tumbling: Span | None = Field(None, description="Windows of this length, one after the other.")
    sliding: Sliding | None = Field(None, description="Windows that overlap: {size, every}.")
    cumulative: CumulativeWindows | None = Field(
        None, description="Windows that begin together and end one step after the other: {size, step}."
    )
    calendar: CalendarUnit | None = Field(None, description="Windows of the calendar.")
    session: Span | None = Field(None, description="Windows that a pause of this length ends.")
    offset: Span | None = Field(None, description="How much later tumbling windows start.")
    zone: str | None = Field(None, description="The time zone of the calendar's windows; None = UTC.")
    fill_gaps: Span | None = Field(
        None,
        description="The longest time between two tumbling windows of a key that windows without rows fill; of an "
        "aggregate they have what gaps beside it says: {last: price, gaps: forward_fill}, or interpolate.",
    )


SeriesStep = model_of(KeyedStream.series, base=_Series)
OrderStep = model_of(KeyedStream.order_by, frozenset({"order"}), _Order)
WindowStep = model_of(KeyedStream.window, frozenset({"window", "fill_gaps"}), _Window)
_SHAPES = ("tumbling", "sliding", "cumulative", "calendar", "session")
_OF_STEP = {*AggregateStep.model_fields, *_SHAPES, "offset", "zone"}


def aggregate(stream: DataStream, step: GroupStep, scope: Scope, path: Path) -> DataStream:
    """Return the stream of the groups of a step."""
    computed = aggregations(step.aggregate, scope, (*path, "aggregate"))
    keyed = stream.key_by(*step.keys)
    groups = keyed if step.ttl is None else keyed.retain(step.ttl)
    return groups.aggregate(**computed) if computed else stream


def windowed(stream: DataStream, step: Any, scope: Scope, path: Path) -> DataStream:
    """Return the stream of the windows of a step."""
    computed = aggregations(step.aggregate, scope, (*path, "aggregate"))
    arguments = {name: value for name, value in given(step).items() if name not in _OF_STEP}
    windows = stream.key_by(*step.keys).window(_window(step), **arguments)
    return windows.aggregate(**computed) if computed else stream


def ordered(stream: DataStream, step: Any, scope: Scope, path: Path) -> DataStream:
    """Return the stream with the columns of a step's series functions."""
    computed = series_functions(step.columns, scope, (*path, "columns"))
    arguments: Any = {name: value for name, value in given(step).items() if name not in ("keys", "columns")}
    series = stream.key_by(*step.keys).series(**arguments)
    return series.with_columns(**computed) if computed else stream


def placed(stream: DataStream, step: Any, scope: Scope, path: Path) -> DataStream:
    """Return the stream with the columns of a step's functions of ordered rows."""
    computed = over_functions(step.columns, scope, (*path, "columns"))
    arguments = {name: value for name, value in given(step).items() if name not in _Order.model_fields}
    rows = stream.key_by(*step.keys).order_by(*step.order, **arguments)
    return rows.with_columns(**computed) if computed else stream


def _window(step: Any) -> Window:
    shapes = [name for name in _SHAPES if getattr(step, name) is not None]
    if len(shapes) != 1:
        raise ConfigError(
            f"a window is {' and '.join(shapes) or 'of no kind'}",
            hint=f"one of {', '.join(_SHAPES)}",
        )
    for name, shape in (("offset", "tumbling"), ("zone", "calendar")):
        if getattr(step, name) is not None and shapes != [shape]:
            raise ConfigError(f"a {shapes[0]} window has {name}", hint=f"{name} stands beside {shape}")
    if step.sliding is not None:
        return sliding(step.sliding.size, step.sliding.every, step.sliding.offset)
    if step.tumbling is not None:
        return tumbling(step.tumbling, step.offset or timedelta(0))
    if step.cumulative is not None:
        return cumulative(step.cumulative.size, step.cumulative.step)
    if step.calendar is not None:
        return calendar(step.calendar, step.zone)
    return session(step.session)


class _Join(Model):
    """How the columns of a table, or of another stream, are added; see `DataStream.join`."""

    table: str | None = Field(
        None,
        description="The name of a source of an Iceberg table, which each epoch looks up again unless it is pinned, or "
        "of files, which each epoch lists again.",
    )
    stream: str | None = Field(None, description="Instead of table: the name of a source, whose rows match in time.")
    on: Names | dict[str, str] = Field(description="The columns that both have, or {stream's: other's}.")
    as_of: Names | None = Field(
        None,
        description="For a table: the stream's time column, for the rows that the table had then; or that column and "
        "the table's one that says since when a row is valid.",
    )
    max_bytes: Size | None = Field(
        None,
        description="For a table: the most bytes of its rows in memory, 256MB by default; a larger one is divided.",
    )
    within: Span | list[Span] | None = Field(
        None, description="For a stream: how far apart rows are that match, or how much earlier and how much later."
    )
    time: Names | None = Field(None, description="For a stream: the timestamp column of both, or of each.")


JoinStep = model_of(DataStream.join, frozenset({"other", *_Join.model_fields}), _Join)


def join(stream: DataStream, step: Any, scope: Scope, path: Path) -> DataStream:
    """Return the stream with the columns of a step's table or stream."""
    if (step.table is None) == (step.stream is None):
        raise ConfigError("a join has one of table and stream", hint="{table: customers, on: id}")
    other: Any = None
    if step.table is not None:
        other = scope.sources.find(step.table, (*path, "table"))
    elif step.stream is not None:
        other = scope.stream(step.stream, (*path, "stream"))
    if other is None:
        return stream
    arguments = {name: value for name, value in given(step).items() if name not in ("table", "stream")}
    pairs = {name: _pair(value) for name, value in arguments.items() if name in ("as_of", "within", "time")}
    return stream.join(other, **arguments | pairs)


def _pair(value: Any) -> Any:
    """Return a list as a pair; one name or time span stands for both."""
    if not isinstance(value, list):
        return value
    return value[0] if len(value) == 1 else tuple(value)
