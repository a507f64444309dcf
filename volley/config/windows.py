"""Groups in YAML: the keys and the aggregates of one step, and its window; series of the rows of a key."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from volley.config.functions import AggregateCall, SeriesCall, aggregations, series_functions
from volley.config.scope import Scope
from volley.documents.mistakes import Path
from volley.documents.models import Model, Names, Span, Whole, given
from volley.errors import ConfigError
from volley.plan.windows import Window, session, sliding, tumbling
from volley.stream.stream import DataStream

__all__ = ["AggregateStep", "SeriesStep", "WindowStep", "aggregate", "ordered", "windowed"]


class Sliding(Model):
    """Windows that overlap."""

    size: Span = Field(description="The length of a window.")
    every: Span = Field(description="The time from one start to the next.")


class AggregateStep(Model):
    """How rows are grouped, and what is computed of each group; see `DataStream.key_by`."""

    keys: Names = Field(description="The key columns.")
    aggregate: dict[str, AggregateCall] = Field(
        description="The aggregates by their columns: count, or {function: SQL}, as in {quantile: price, q: 0.9}."
    )


class Timed(Model):
    """How a step follows event time."""

    on: str = Field(description="The timestamp column.")
    lateness: Span | None = Field(None, description="How much older than the latest row before it a row can be.")
    late: Literal["drop", "dead_letter"] | None = Field(None, description="What happens to late rows.")
    max_ahead: Span | None = Field(None, description="How far ahead of the clock a row can be; null = no limit.")
    idle_after: Span | None = Field(None, description="A source without rows for so long holds nothing back.")
    buckets: Whole | None = Field(None, description="The number of parts of the state.")


class SeriesStep(Timed):
    """How the rows of a key become a series, and what each row gets; see `KeyedStream.series`."""

    keys: Names = Field(description="The key columns.")
    columns: dict[str, SeriesCall] = Field(
        description="The functions by their columns, as in {previous: price}, {rate: bytes, per: 1s} or "
        "{rolling: 5m, aggregation: {avg: price}}."
    )
    pause: Span | None = Field(None, description="A row so long after the one before it begins its key's series anew.")


class WindowStep(Timed, AggregateStep):
    """How rows are grouped by key and time, and what is computed of each group; see `KeyedStream.window`."""

    tumbling: Span | None = Field(None, description="Windows of this length, one after the other.")
    sliding: Sliding | None = Field(None, description="Windows that overlap: {size, every}.")
    session: Span | None = Field(None, description="Windows that a pause of this length ends.")
    emit: Literal["final", "updates"] | None = Field(None, description="Rows of closed windows, or of changed ones.")
    fill_gaps: Span | None = Field(
        None,
        description="The longest time between two tumbling windows of a key that windows without rows fill; of an "
        "aggregate they have what gaps beside it says: {last: price, gaps: forward_fill}, or interpolate.",
    )


_SHAPES = ("tumbling", "sliding", "session")
_OF_STEP = {*AggregateStep.model_fields, *_SHAPES}


def aggregate(stream: DataStream, step: AggregateStep, scope: Scope, path: Path) -> DataStream:
    """Return the stream of the groups of a step."""
    computed = aggregations(step.aggregate, scope, (*path, "aggregate"))
    return stream.key_by(*step.keys).aggregate(**computed) if computed else stream


def windowed(stream: DataStream, step: WindowStep, scope: Scope, path: Path) -> DataStream:
    """Return the stream of the windows of a step."""
    computed = aggregations(step.aggregate, scope, (*path, "aggregate"))
    arguments = {name: value for name, value in given(step).items() if name not in _OF_STEP}
    windows = stream.key_by(*step.keys).window(_window(step), **arguments)
    return windows.aggregate(**computed) if computed else stream


def ordered(stream: DataStream, step: SeriesStep, scope: Scope, path: Path) -> DataStream:
    """Return the stream with the columns of a step's series functions."""
    computed = series_functions(step.columns, scope, (*path, "columns"))
    arguments: Any = {name: value for name, value in given(step).items() if name not in ("keys", "columns")}
    series = stream.key_by(*step.keys).series(**arguments)
    return series.with_columns(**computed) if computed else stream


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
