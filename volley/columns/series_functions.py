"""Computes series functions: for each row from the rows of its series before it, in the order of event time.

Of each row a function keeps some columns, its state, which `SeriesPart.lift` makes when a task reads the row. When the
watermark has passed rows, `SeriesPart.run` is given the states of these rows and of those before them that are still
needed. It returns the results of the rows that come out now, and the states as later rows need them: a `previous`
leaves them as they are, an `ewm_mean` puts the mean up to each row in place of its value.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from volley.columns.accumulators import accumulator
from volley.columns.aggregates import aggregate_type
from volley.columns.compiled import CompiledExpression
from volley.columns.exact import doubles
from volley.columns.expressions import compile_expression
from volley.columns.groups import StateColumns
from volley.columns.operators import Times
from volley.columns.ranges import aggregated_ranges
from volley.errors import ExpressionError
from volley.plan.aggregates import Aggregation
from volley.plan.series import SeriesFunction
from volley.plan.windows import microseconds
from volley.types.arrow import is_number, type_name

__all__ = ["SeriesPart", "SeriesRows", "series_part", "series_type"]


@dataclass(frozen=True)
class SeriesRows:
    """The rows of some series: those of a series together, in the order of their times.

    Args:
        times: Their event times.
        starts: The place of the first row of each series.
        came_out: Which rows came out in earlier epochs.
    """

    times: Times
    starts: Times
    came_out: npt.NDArray[np.bool_]

    @cached_property
    def due(self) -> Times:
        """The places of the rows that come out now."""
        return np.flatnonzero(~self.came_out)

    @cached_property
    def numbers(self) -> Times:
        """The number of each row's series, from 0."""
        return np.cumsum(self.are_first) - 1

    @cached_property
    def are_first(self) -> npt.NDArray[np.bool_]:
        """Which rows are the first of their series."""
        are_first = np.zeros(len(self.times), bool)
        are_first[self.starts] = True
        return are_first

    def row_before(self) -> pa.Array:
        """Return the place of the row before each row that comes out; null = it is the first of its series."""
        return pa.array(self.due - 1, mask=self.are_first[self.due])

    def last_up_to(self, chosen: npt.NDArray[np.bool_]) -> pa.Array:
        """Return for each row the place of the last chosen row of its series up to it; null = there is none."""
        places = np.maximum.accumulate(np.where(chosen, np.arange(len(chosen)), -1))
        return pa.array(places, mask=places < self.starts[self.numbers])

    def ranges(self, span: int) -> tuple[Times, Times, Times]:
        """Return for each row that comes out where its series begins, and its rows of the last `span` begin and end."""
        numbers, times = self.numbers[self.due], self.times[self.due]
        return self.starts[numbers], self._rows_up_to(numbers, times - span), self._rows_up_to(numbers, times)

    def _rows_up_to(self, numbers: Times, times: Times) -> Times:
        """Return how many rows are in earlier series, or in the same one up to a time."""
        is_query = np.repeat([0, 1], [len(self.times), len(times)])
        both = np.concatenate([self.numbers, numbers]), np.concatenate([self.times, times])
        order = np.lexsort((is_query, both[1], both[0]))
        counts = np.empty(len(order), np.int64)
        counts[order] = np.cumsum(1 - is_query[order])
        return counts[len(self.times) :]


@dataclass(frozen=True)
class SeriesPart:
    """A compiled series function.

    Args:
        result: The type of its results.
        types: The types of the columns of its states.
        lift: Returns the states of rows, from a batch and the event times.
        run: Returns the results of the rows that come out, and the states of all rows as later rows need them.
        span: How long a row is needed by later ones, in microseconds; None = while it is the last one of its key.
    """

    result: pa.DataType
    types: tuple[pa.DataType, ...]
    lift: Callable[[pa.RecordBatch, pa.Array], StateColumns]
    run: Callable[[StateColumns, SeriesRows], tuple[pa.Array, StateColumns]]
    span: int | None = None


def series_type(function: SeriesFunction, schema: pa.Schema, time: pa.DataType) -> pa.DataType:
    """Return the type of a series function's results.

    Raises:
        ExpressionError: If an expression names an unknown column, or has a type that the function does not take.
    """
    if function.aggregation is not None:
        return aggregate_type(function.aggregation, schema)
    if function.value is None:
        return time
    value = compile_expression(function.value, schema).type
    if function.function == "previous":
        return value
    if not is_number(value):
        raise ExpressionError(f"{function!r} takes a number, not {type_name(value)}", hint='cast it: .cast("…")')
    return value if function.function == "increase" else pa.float64()


def series_part(function: SeriesFunction, schema: pa.Schema, time: pa.DataType) -> SeriesPart:
    """Compile a series function.

    Raises:
        ExpressionError: See `series_type`.
        MissingDependencyError: If it needs a package that is not installed.
    """
    result = series_type(function, schema, time)
    span = 0 if function.span is None else microseconds(function.span)
    if function.aggregation is not None:
        return _rolling(function.aggregation, schema, span)
    if function.value is None:
        return _session_start(result, span)
    return _OF_VALUES[function.function](compile_expression(function.value, schema), result, span)


def _rolling(aggregation: Aggregation, schema: pa.Schema, span: int) -> SeriesPart:
    part = accumulator(aggregation, schema)

    def run(states: StateColumns, rows: SeriesRows) -> tuple[pa.Array, StateColumns]:
        return aggregated_ranges(part, states, *rows.ranges(span)), states

    return SeriesPart(part.result, part.types, part.states, run, span)


def _with_times(values: pa.Array, times: pa.Array) -> StateColumns:
    """Return values and their times, null for a null value."""
    return [values, pc.if_else(values.is_valid(), times, pa.scalar(None, pa.int64()))]


def _previous(value: CompiledExpression, result: pa.DataType, unit: int) -> SeriesPart:
    def run(states: StateColumns, rows: SeriesRows) -> tuple[pa.Array, StateColumns]:
        return states[0].take(rows.row_before()), states

    return SeriesPart(result, (value.type,), lambda batch, _: [value.column(batch)], run)


def _counter(value: CompiledExpression, result: pa.DataType, unit: int) -> SeriesPart:
    """Keep the last value that is not null, and its time. With a unit of time the result is a rate."""

    def run(states: StateColumns, rows: SeriesRows) -> tuple[pa.Array, StateColumns]:
        places = rows.last_up_to(states[1].is_valid().to_numpy(zero_copy_only=False))
        latest = [column.take(places) for column in states]
        now = [column.take(pa.array(rows.due)) for column in states]
        then = [column.take(rows.row_before()) for column in latest]
        grown = _grown(now[0], then[0])
        if not unit:
            return grown, latest
        elapsed = pc.cast(pc.subtract(now[1], then[1]), pa.float64())
        elapsed = pc.if_else(pc.greater(elapsed, 0.0), elapsed, pa.scalar(None, pa.float64()))
        return pc.divide(pc.multiply(doubles(grown), float(unit)), elapsed), latest

    lift = lambda batch, times: _with_times(value.column(batch), times)  # noqa: E731
    return SeriesPart(result, (value.type, pa.int64()), lift, run)


def _grown(now: pa.Array, then: pa.Array) -> pa.Array:
    """Return by how much counters have grown: one that is below its value before began again at 0."""
    since = pc.if_else(pc.less(now, then), pa.scalar(0, now.type), then)
    try:
        if not pa.types.is_decimal(now.type):
            return pc.subtract_checked(now, since)
        wide = pa.decimal256(now.type.precision, now.type.scale)
        return pc.subtract(now.cast(wide), since.cast(wide)).cast(now.type)
    except pa.ArrowInvalid as error:
        raise ExpressionError(
            f"a counter has grown by more than {type_name(now.type)} holds", hint='cast it to a larger type: .cast("…")'
        ) from error


def _ewm_mean(value: CompiledExpression, result: pa.DataType, half_life: int) -> SeriesPart:
    """Keep the mean so far, and the time of the last value that is not null."""

    def lift(batch: pa.RecordBatch, times: pa.Array) -> StateColumns:
        return _with_times(doubles(value.column(batch)), times)

    def run(states: StateColumns, rows: SeriesRows) -> tuple[pa.Array, StateColumns]:
        mean: float | None = None
        at: int | None = None
        means: list[float | None] = []
        ats: list[int | None] = []
        columns = (states[0].to_pylist(), states[1].to_pylist(), rows.came_out.tolist(), rows.are_first.tolist())
        for number, time, came_out, is_first in zip(*columns, strict=True):
            if is_first:
                mean = at = None
            if came_out or at is None:
                mean, at = number, time
            elif time is not None:
                mean += (1 - 0.5 ** ((time - at) / half_life)) * (number - mean)
                at = time
            means.append(mean)
            ats.append(at)
        new = [pa.array(means, result), pa.array(ats, pa.int64())]
        due = pa.array(rows.due)
        return pc.if_else(states[1].take(due).is_valid(), new[0].take(due), pa.scalar(None, result)), new

    return SeriesPart(result, (result, pa.int64()), lift, run)


def _session_start(result: pa.DataType, gap: int) -> SeriesPart:
    """Keep the time at which each row's session began."""

    def run(states: StateColumns, rows: SeriesRows) -> tuple[pa.Array, StateColumns]:
        pauses = np.diff(rows.times, prepend=rows.times[:1]) >= gap
        first = (rows.are_first | pauses) & ~rows.came_out
        begun = pc.if_else(pa.array(rows.came_out), states[0], pa.array(rows.times))
        starts = begun.take(rows.last_up_to(first | rows.came_out))
        return starts.take(pa.array(rows.due)).cast(result), [starts]

    return SeriesPart(result, (pa.int64(),), lambda batch, _: [pa.nulls(batch.num_rows, pa.int64())], run)


_OF_VALUES: dict[str, Callable[[CompiledExpression, pa.DataType, int], SeriesPart]] = {
    "previous": _previous,
    "increase": _counter,
    "rate": _counter,
    "ewm_mean": _ewm_mean,
}
