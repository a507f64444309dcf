"""Groups in YAML: the keys and the aggregates of one step, and its window."""

from __future__ import annotations

from collections.abc import Mapping
from inspect import signature
from typing import Any, Literal

from pydantic import Field

from volley.config.scope import Expression, Scope
from volley.documents.mistakes import Path, nearest
from volley.documents.models import Model, Names, Span, Whole, given
from volley.errors import ConfigError
from volley.plan import aggregates
from volley.plan.aggregates import Aggregation
from volley.plan.windows import Window, session, sliding, tumbling
from volley.stream import DataStream

__all__ = ["AggregateStep", "WindowStep", "aggregate", "windowed"]

_FUNCTIONS = {
    "count": aggregates.count,
    "sum": aggregates.sum_,
    "min": aggregates.min_,
    "max": aggregates.max_,
    "avg": aggregates.avg,
    "first": aggregates.first,
    "last": aggregates.last,
    "count_distinct": aggregates.count_distinct,
    "approx_distinct": aggregates.approx_distinct,
    "quantile": aggregates.quantile,
    "variance": aggregates.variance,
    "list": aggregates.list_,
}


class Sliding(Model):
    """Windows that overlap."""

    size: Span = Field(description="The length of a window.")
    every: Span = Field(description="The time from one start to the next.")


class AggregateStep(Model):
    """How rows are grouped, and what is computed of each group; see `DataStream.key_by`."""

    keys: Names = Field(description="The key columns.")
    aggregate: dict[str, Literal["count"] | dict[str, Expression]] = Field(
        description="The aggregates by their columns: count, or {function: SQL}, as in {quantile: price, q: 0.9}."
    )


class WindowStep(AggregateStep):
    """How rows are grouped by key and time, and what is computed of each group; see `KeyedStream.window`."""

    tumbling: Span | None = Field(None, description="Windows of this length, one after the other.")
    sliding: Sliding | None = Field(None, description="Windows that overlap: {size, every}.")
    session: Span | None = Field(None, description="Windows that a pause of this length ends.")
    on: str = Field(description="The timestamp column.")
    lateness: Span | None = Field(None, description="How much older than the latest row before it a row can be.")
    emit: Literal["final", "updates"] | None = Field(None, description="Rows of closed windows, or of changed ones.")
    late: Literal["drop", "dead_letter"] | None = Field(None, description="What happens to rows of closed windows.")
    max_ahead: Span | None = Field(None, description="How far ahead of the clock a row can be; null = no limit.")
    idle_after: Span | None = Field(None, description="A source without rows for so long holds nothing back.")
    buckets: Whole | None = Field(None, description="The number of parts of the state.")


_SHAPES = ("tumbling", "sliding", "session")
_OF_STEP = {*AggregateStep.model_fields, *_SHAPES}


def aggregate(stream: DataStream, step: AggregateStep, scope: Scope, path: Path) -> DataStream:
    """Return the stream of the groups of a step."""
    computed = _aggregates(step, scope, path)
    return stream.key_by(*step.keys).aggregate(**computed) if computed else stream


def windowed(stream: DataStream, step: WindowStep, scope: Scope, path: Path) -> DataStream:
    """Return the stream of the windows of a step."""
    computed = _aggregates(step, scope, path)
    arguments = {name: value for name, value in given(step).items() if name not in _OF_STEP}
    windows = stream.key_by(*step.keys).window(_window(step), **arguments)
    return windows.aggregate(**computed) if computed else stream


def _aggregates(step: AggregateStep, scope: Scope, path: Path) -> dict[str, Aggregation]:
    """Return the aggregates by their columns, without those that have mistakes."""
    computed = {name: _aggregation(value, scope, (*path, "aggregate", name)) for name, value in step.aggregate.items()}
    return {name: function for name, function in computed.items() if function is not None}


def _window(step: WindowStep) -> Window:
    shapes = [name for name in _SHAPES if getattr(step, name) is not None]
    if len(shapes) != 1:
        raise ConfigError(
            f"a window is {' and '.join(shapes) or 'of no kind'}",
            hint="one of tumbling, sliding, session",
        )
    if step.sliding is not None:
        return sliding(step.sliding.size, step.sliding.every)
    if step.tumbling is not None:
        return tumbling(step.tumbling)
    assert step.session is not None
    return session(step.session)


def _aggregation(value: str | Mapping[str, Expression], scope: Scope, path: Path) -> Aggregation | None:
    """Return an aggregate: ``{function: SQL}``, with further arguments of the function beside it."""
    if isinstance(value, str):
        return aggregates.count()
    named = [name for name in value if name in _FUNCTIONS]
    if len(named) != 1:
        unknown = next(iter(value), "")
        hint = "one: {sum: price}" if named else nearest(unknown, _FUNCTIONS)
        message = f"an aggregate has {len(named)} functions" if named else f"there is no aggregate {unknown!r}"
        scope.collector.add((*path, unknown), message, hint, of_key=True)
        return None
    function: Any = _FUNCTIONS[named[0]]
    arguments = {name: argument for name, argument in value.items() if name != named[0]}
    for name in arguments.keys() - signature(function).parameters.keys():
        scope.collector.add((*path, name), f"{named[0]} has no argument {name!r}", "leave it out", of_key=True)
        return None
    expression = scope.expression(value[named[0]], (*path, named[0]))
    aggregation: Aggregation | None = None if expression is None else function(expression, **arguments)
    return aggregation
