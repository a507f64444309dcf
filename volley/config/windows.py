"""Windows in YAML: the keys, the window and the aggregates of one step."""

from __future__ import annotations

from collections.abc import Mapping
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

__all__ = ["WindowStep", "aggregate"]

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
    "variance": aggregates.variance,
    "list": aggregates.list_,
}


class Sliding(Model):
    """Windows that overlap."""

    size: Span = Field(description="The length of a window.")
    every: Span = Field(description="The time from one start to the next.")


class WindowStep(Model):
    """How rows are grouped, and what is computed of each group; see `KeyedStream.window`."""

    keys: Names = Field(description="The key columns.")
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
    aggregate: dict[str, Literal["count"] | dict[str, Expression]] = Field(
        description="The aggregates by their columns: count, or {function: SQL}."
    )


_SHAPES = ("tumbling", "sliding", "session")
_OF_STEP = {"keys", "aggregate", *_SHAPES}


def aggregate(stream: DataStream, step: WindowStep, scope: Scope, path: Path) -> DataStream:
    """Return the stream of windows of a step."""
    computed = {
        name: function
        for name, value in step.aggregate.items()
        if (function := _aggregation(value, scope, (*path, "aggregate", name))) is not None
    }
    arguments = {name: value for name, value in given(step).items() if name not in _OF_STEP}
    windowed = stream.key_by(*step.keys).window(_window(step), **arguments)
    return windowed.aggregate(**computed) if computed else stream


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
    if isinstance(value, str):
        return aggregates.count()
    if len(value) != 1:
        raise ConfigError(f"an aggregate has {len(value)} functions", hint="one: {sum: price}")
    ((name, text),) = value.items()
    if name not in _FUNCTIONS:
        scope.collector.add((*path, name), f"there is no aggregate {name!r}", nearest(name, _FUNCTIONS), of_key=True)
        return None
    expression = scope.expression(text, (*path, name))
    function: Any = _FUNCTIONS[name]
    aggregation: Aggregation | None = None if expression is None else function(expression)
    return aggregation
