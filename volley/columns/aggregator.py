"""Compiles a windowed aggregate: rows to states, states of many rows to states of windows, those to rows again.

Between windows of a key that have rows, it fills the gaps: with rows for windows that have none of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from volley.columns.accumulators import Accumulator, accumulator
from volley.columns.aggregates import aggregated_schema, key_fields
from volley.columns.compiled import CompiledExpression, whole
from volley.columns.dictionaries import is_encoded, make_batch
from volley.columns.exact import restored, stored
from volley.columns.expressions import compile_expression
from volley.columns.groups import by_key
from volley.columns.keys.normal import normal
from volley.columns.operators import Merged, Operator, Times
from volley.columns.windows import END, START, Closing, Gaps, Grouping, Windows, windows_of
from volley.plan.aggregates import Aggregation
from volley.plan.expression_nodes import Column
from volley.plan.keyed_nodes import WINDOW_COLUMNS, Aggregate
from volley.plan.windows import Session, Windowing, microseconds

__all__ = ["Aggregator", "key_values"]


@dataclass(frozen=True)
class Aggregator(Operator):
    """A windowed aggregate compiled for rows of one schema: an `Operator` with one input."""

    folder: ClassVar[str] = "windows"
    faults: ClassVar[tuple[str, str]] = ("it is in no window", "its windows are closed")
    node: Aggregate
    input: pa.Schema

    @property
    def timing(self) -> Windowing:
        """The window and how it is used."""
        assert self.node.windowing is not None
        return self.node.windowing

    @cached_property
    def windows(self) -> Windows:
        """What computes its windows."""
        return windows_of(self.timing.window, self._gaps)

    @property
    def _gaps(self) -> Gaps | None:
        window, longest = self.timing.window, self.timing.fill_gaps
        if longest is None or isinstance(window, Session):
            return None
        return Gaps(microseconds(window.size), microseconds(longest))

    @cached_property
    def output(self) -> pa.Schema:
        """The schema of the rows that come out."""
        return aggregated_schema(self.node, self.input)

    @cached_property
    def grouping(self) -> Grouping:
        """The columns of its states."""
        keys = tuple(f"key_{number}" for number in range(len(self.node.keys)))
        states = [
            (part.merge, tuple(f"state_{number}_{column}" for column in range(len(part.types))))
            for number, part in enumerate(self._accumulators)
        ]
        return Grouping(keys, tuple(states))

    @property
    def states(self) -> tuple[pa.Schema, ...]:
        return (self._states,)

    @cached_property
    def _states(self) -> pa.Schema:
        keys = [stored(field.type) for field in key_fields(self.node.keys, self.input)]
        types = [data_type for part in self._accumulators for data_type in part.types]
        names = [*self.windows.times, *self.grouping.keys, *self.grouping.state_names]
        return pa.schema(zip(names, [pa.int64()] * len(self.windows.times) + keys + types, strict=True))

    def time_column(self, input: int) -> str:
        return self.timing.on

    def ends(self, times: Times) -> Times:
        return self.windows.ends(times)

    def lifted(self, input: int, batch: pa.RecordBatch, times: pa.Array) -> pa.Table:
        keys = [self._key_of(batch, number) for number in range(len(self._keys))]
        columns = [
            *self.windows.columns(times.to_numpy(), all(pa.types.is_dictionary(key.type) for key in keys)),
            *keys,
            *(column for part in self._accumulators for column in part.states(batch, times)),
        ]
        return pa.Table.from_batches([make_batch(columns, self._states)])

    def reduced(self, input: int, states: pa.Table) -> pa.Table:
        """Return one row for each key and pane or session."""
        return self.windows.merged(states, self.grouping).cast(self._states)

    def _key_of(self, batch: pa.RecordBatch, number: int) -> pa.Array:
        """Return a key of each row; a column that is a dictionary stays so."""
        node, key = self.node.keys[number], self._keys[number]
        if isinstance(node, Column) and not pa.types.is_floating(key.type):
            column = batch.column(node.name)
            if is_encoded(column.type, key.type):
                return column
        return key_values(key, batch)

    def merge(self, old: Sequence[pa.Table], new: Sequence[pa.Table], before: int, watermark: int) -> Merged:
        updates = self.timing.emit == "updates"
        closing = self.windows.close(old[0], new[0], self.grouping, before, watermark, updates)
        rest = closing.open.select(self._states.names).cast(self._states)
        rows = self._come_out(closing) if self._gaps is None else self._with_gaps(closing.windows, self._gaps, before)
        return Merged(rows, (rest,))

    @property
    def held(self) -> int:
        return self.windows.held

    def closing(self, latest: int) -> int | None:
        # The end of the last window that has a row.
        return int(self.windows.ends(np.array([latest]))[0]) if self.timing.emit == "final" else None

    def _come_out(self, closing: Closing) -> Iterator[pa.RecordBatch]:
        for table in (closing.absorbed, closing.windows):
            if table is not None and table.num_rows:
                yield self._rows(table)

    def _with_gaps(self, windows: pa.Table, gaps: Gaps, before: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of windows, and of those without rows between two of a key."""
        if not windows.num_rows:
            return
        ordered, groups = by_key(windows.sort_by(START), self.grouping.keys)
        rows = _fill_gaps(self._rows(ordered), groups, self.node.aggregates, gaps, before)
        if rows.num_rows:
            yield rows

    def _rows(self, windows: pa.Table) -> pa.RecordBatch:
        """Return the rows of windows; of a table without states, those of deleted sessions."""
        times = [windows[name].cast(self.output.field(0).type) for name in (START, END)]
        types = (field.type for field in key_fields(self.node.keys, self.input))
        keys = [
            restored(whole(windows[name]), data_type) for name, data_type in zip(self.grouping.keys, types, strict=True)
        ]
        is_deleted = not set(self.grouping.state_names) <= set(windows.column_names)
        results = self._nothing(len(windows)) if is_deleted else self._results(windows)
        columns = [whole(column) for column in (*times, *keys, *results)]
        if self.node.has_changes:
            columns.append(pa.repeat("delete" if is_deleted else "update_after", len(windows)))
        return pa.RecordBatch.from_arrays(columns, schema=self.output)

    def _results(self, windows: pa.Table) -> list[pa.Array]:
        results = [
            part.finish([whole(windows[name]) for name in names])
            for part, (_, names) in zip(self._accumulators, self.grouping.states, strict=True)
        ]
        # A column that is interpolated has doubles.
        return [
            result.cast(self.output.field(name).type)
            for result, (name, _) in zip(results, self.node.aggregates, strict=True)
        ]

    def _nothing(self, rows: int) -> list[pa.Array]:
        return [pa.nulls(rows, part.result) for part in self._accumulators]

    @cached_property
    def _keys(self) -> Sequence[CompiledExpression]:
        return [compile_expression(key, self.input) for key in self.node.keys]

    @cached_property
    def _accumulators(self) -> Sequence[Accumulator]:
        return [accumulator(aggregation, self.input) for _, aggregation in self.node.aggregates]


def key_values(key: CompiledExpression, batch: pa.RecordBatch) -> pa.Array:
    """Return the key of each row; equal ones have equal bytes."""
    values = key.column(batch)
    return normal(values.cast(pa.string()) if pa.types.is_null(values.type) else values)


@dataclass(frozen=True)
class _Places:
    """The windows that come out, in their order.

    Args:
        starts: Their starts.
        befores: The place of the window with rows before each that has none; of the others, their own.
        nexts: The place of the window with rows behind each that has none; of the others, their own.
        shares: How far each is from the window before to the next one, from 0 to 1.
    """

    starts: Times
    befores: Times
    nexts: Times
    shares: npt.NDArray[np.float64]

    @classmethod
    def of(cls, starts: Times, groups: Times, gaps: Gaps) -> _Places:
        """Find the gaps; windows are ordered by group, then by start."""
        apart = np.diff(starts, prepend=starts[:1]) - gaps.size
        fillable = (np.diff(groups, prepend=-1) == 0) & (apart <= gaps.longest)
        sizes = np.where(fillable, apart // gaps.size, 0) + 1
        nexts = np.repeat(np.arange(len(starts)), sizes)
        steps = np.arange(len(nexts)) - np.repeat(np.cumsum(sizes) - sizes, sizes) + 1
        is_gap = steps < sizes[nexts]
        befores = nexts - is_gap
        begins = np.where(is_gap, starts[befores] + steps * gaps.size, starts[nexts])
        return cls(begins, befores, nexts, np.where(is_gap, steps / sizes[nexts], 0.0))

    @property
    def are_gaps(self) -> npt.NDArray[np.bool_]:
        """Which windows have no rows."""
        return np.not_equal(self.befores, self.nexts)

    def column(self, aggregation: Aggregation, results: pa.Array) -> pa.Array:
        """Return the results of all windows."""
        if aggregation.gap == "previous":
            return results.take(pa.array(self.befores))
        if aggregation.gap == "linear":
            before, behind = (results.take(pa.array(places)) for places in (self.befores, self.nexts))
            return pc.add(before, pc.multiply(pc.subtract(behind, before), pa.array(self.shares)))
        values = results.take(pa.array(self.nexts, mask=self.are_gaps))
        if aggregation.is_count:
            return pc.if_else(pa.array(self.are_gaps), pa.scalar(0, results.type), values)
        return values


def _fill_gaps(
    rows: pa.RecordBatch, groups: Times, aggregates: Sequence[tuple[str, Aggregation]], gaps: Gaps, before: int
) -> pa.RecordBatch:
    """Return the rows of windows, with those of windows between them.

    Args:
        rows: The windows of keys: those of a key together, in the order of their times; the first of a key may have
            come out before.
        groups: The number of each row's key.
        aggregates: The aggregates among the columns.
        gaps: Which gaps are filled.
        before: Windows with rows that end at this time or earlier have come out.
    """
    starts = rows.column(WINDOW_COLUMNS[0])
    places = _Places.of(starts.cast(pa.int64()).to_numpy(), groups, gaps)
    ends = places.starts + gaps.size
    columns = {name: rows.column(name).take(pa.array(places.nexts)) for name in rows.schema.names}
    times = zip(WINDOW_COLUMNS, (places.starts, ends), strict=True)
    columns |= {name: pa.array(values).cast(starts.type) for name, values in times}
    columns |= {name: places.column(aggregation, rows.column(name)) for name, aggregation in aggregates}
    filled = pa.RecordBatch.from_arrays([columns[name] for name in rows.schema.names], schema=rows.schema)
    return filled.filter(pa.array(places.are_gaps | (ends > before)))
