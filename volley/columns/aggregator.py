"""Compiles an aggregate: rows to states, states of many rows to states of windows or groups, those to rows again.

Between windows of a key that have rows, it fills the gaps: with rows for windows that have none of their own. Where its
input has changes, a deleted row counts as minus one; what has no row any more is gone.
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
from volley.columns.aggregates import aggregated_schema
from volley.columns.compiled import whole
from volley.columns.dictionaries import is_encoded, make_batch
from volley.columns.exact import restored
from volley.columns.groups import are_among, by_key
from volley.columns.keyed import KeyedOperator, key_values
from volley.columns.keys.normal import normal
from volley.columns.operators import Merged, Times
from volley.columns.weights import weighted_accumulator, weights_of
from volley.columns.window_states import END, START, Closing, Gaps, Grouping, Windows
from volley.columns.windows import groups_of, windows_of
from volley.plan.aggregates import Aggregation, count
from volley.plan.expression_nodes import Column
from volley.plan.keyed_nodes import CHANGE, WINDOW_COLUMNS, Aggregate
from volley.plan.windows import Spans, microseconds

__all__ = ["Aggregator"]


@dataclass(frozen=True)
class Aggregator(KeyedOperator):
    """An aggregate compiled for rows of one schema: an `Operator` with one input."""

    folder: ClassVar[str] = "windows"
    faults: ClassVar[tuple[str, str]] = ("it is in no window", "its windows are closed")
    node: Aggregate

    @cached_property
    def windows(self) -> Windows:
        """What computes its windows."""
        windowing = self.node.windowing
        return groups_of(self.node.retention.ttl) if windowing is None else windows_of(windowing.window, self._gaps)

    @property
    def _gaps(self) -> Gaps | None:
        windowing = self.node.windowing
        if windowing is None or windowing.fill_gaps is None or not isinstance(windowing.window, Spans):
            return None
        return Gaps(microseconds(windowing.window.size), microseconds(windowing.fill_gaps))

    @property
    def is_timed(self) -> bool:
        return self.node.windowing is not None

    @property
    def follows_clock(self) -> bool:
        return self.node.windowing is None and self.node.retention.ttl is not None

    @property
    def waits_for_rows(self) -> bool:
        return self.node.windowing is None

    @cached_property
    def output(self) -> pa.Schema:
        """The schema of the rows that come out."""
        return aggregated_schema(self.node, self.input)

    @cached_property
    def grouping(self) -> Grouping:
        """The columns of its states."""
        states = [
            (part.merge, tuple(f"state_{number}_{column}" for column in range(len(part.types))))
            for number, part in enumerate(self._accumulators)
        ]
        return Grouping(self.key_names, tuple(states))

    @property
    def states(self) -> tuple[pa.Schema, ...]:
        return (self._states,)

    @cached_property
    def _states(self) -> pa.Schema:
        types = [data_type for part in self._accumulators for data_type in part.types]
        names = [*self.windows.times, *self.grouping.keys, *self.grouping.state_names]
        return pa.schema(zip(names, [pa.int64()] * len(self.windows.times) + self.key_types + types, strict=True))

    def time_column(self, input: int) -> str | None:
        return self.node.on

    def ends(self, times: Times) -> Times:
        return self.windows.ends(times)

    def lifted(self, input: int, batch: pa.RecordBatch, times: pa.Array | None) -> pa.Table:
        keys = [self._key_of(batch, number) for number in range(len(self.node.keys))]
        known = np.zeros(len(batch), np.int64) if times is None else times.to_numpy()
        numbers = weights_of(batch) if self.node.takes_changes else times
        columns = [
            *self.windows.columns(known, all(pa.types.is_dictionary(key.type) for key in keys)),
            *keys,
            *(column for part in self._accumulators for column in part.states(batch, numbers)),
        ]
        return pa.Table.from_batches([make_batch(columns, self._states)])

    def reduced(self, input: int, states: pa.Table) -> pa.Table:
        """Return one row for each key and pane or session."""
        return self.windows.merged(states, self.grouping).cast(self._states)

    def _key_of(self, batch: pa.RecordBatch, number: int) -> pa.Array:
        """Return a key of each row; a column that is a dictionary stays so."""
        node, key = self.node.keys[number], self.compiled_keys[number]
        if isinstance(node, Column) and not pa.types.is_floating(key.type):
            column = batch.column(node.name)
            if is_encoded(column.type, key.type):
                return column
        return key_values(key, batch)

    def merge(self, old: Sequence[pa.Table], new: Sequence[pa.Table], before: int, watermark: int) -> Merged:
        known = self.windows.kept(old[0], watermark)
        closing = self.windows.close(known, new[0], self.grouping, before, watermark, self.node.replaces_rows)
        rest = self._with_rows(closing.open).select(self._states.names).cast(self._states)
        if self._gaps is not None:
            return Merged(self._with_gaps(self._with_rows(closing.windows), self._gaps, before), (rest,))
        deleted = closing.absorbed
        if self.node.emits_changes:
            touched = known.filter(pa.array(are_among(known, new[0], self.grouping.keys)))
            deleted = self._replaced(touched, closing, before, watermark)
        return Merged(self._come_out(deleted, self._with_rows(closing.windows)), (rest,))

    def _with_rows(self, states: pa.Table) -> pa.Table:
        """Return the states of windows and groups that have a row; one group of all rows stays without."""
        if not self.node.takes_changes or not (self.grouping.keys or self.windows.times):
            return states
        (rows,) = self.grouping.states[-1][1]
        return states.filter(pc.not_equal(states[rows], 0))

    def _replaced(self, known: pa.Table, closing: Closing, before: int, watermark: int) -> pa.Table:
        """Return the windows and groups that have come out, and come out otherwise now.

        Args:
            known: The states that were kept of the keys that have rows.
        """
        earlier = self.windows.close(known.slice(0, 0), known, self.grouping, before, watermark, updates=True).windows
        # A session that has become longer has another end.
        bounds = [START] if closing.absorbed is not None else [START, END]
        names = [*self.grouping.keys, *(name for name in bounds if name in earlier.column_names)]
        changed = closing.windows
        if closing.absorbed is not None:
            changed = pa.concat_tables([table.select(names) for table in (changed, closing.absorbed)])
        return earlier.filter(pa.array(are_among(earlier, changed, names)))

    @property
    def held(self) -> int:
        return self.windows.held

    def closing(self, latest: int) -> int | None:
        # The end of the last window that has a row.
        return None if self.node.replaces_rows else int(self.windows.ends(np.array([latest]))[0])

    def _come_out(self, deleted: pa.Table | None, windows: pa.Table) -> Iterator[pa.RecordBatch]:
        before = None if deleted is None or not deleted.num_rows else self._rows(deleted, "delete")
        after = self._rows(windows) if windows.num_rows else None
        if before is not None and after is not None:
            before, after = self._different(before, after)
        yield from (rows for rows in (before, after) if rows is not None and rows.num_rows)

    def _different(self, before: pa.RecordBatch, after: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        """Return the rows that are not in both."""
        names = [field.name for field in self.output if field.name != CHANGE]
        if any(pa.types.is_nested(self.output.field(name).type) for name in names):
            return before, after
        old, new = (pa.table([normal(rows[name]) for name in names], names) for rows in (before, after))
        return before.filter(pa.array(~are_among(old, new, names))), after.filter(pa.array(~are_among(new, old, names)))

    def _with_gaps(self, windows: pa.Table, gaps: Gaps, before: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of windows, and of those without rows between two of a key."""
        if not windows.num_rows:
            return
        ordered, groups = by_key(windows.sort_by(START), self.grouping.keys)
        rows = _fill_gaps(self._rows(ordered), groups, self.node.aggregates, gaps, before)
        if rows.num_rows:
            yield rows

    def _rows(self, windows: pa.Table, change: str = "update_after") -> pa.RecordBatch:
        """Return the rows of windows and groups; without states, those of deleted sessions, only their keys."""
        spans = (START, END) if self.node.windowing else ()
        times = [windows[name].cast(self.output.field(0).type) for name in spans]
        keys = [
            restored(whole(windows[name]), field.type)
            for name, field in zip(self.key_names, self.key_fields, strict=True)
        ]
        has_states = set(self.grouping.state_names) <= set(windows.column_names)
        results = self._results(windows) if has_states else self._nothing(len(windows))
        columns = [whole(column) for column in (*times, *keys, *results)]
        if self.node.has_changes:
            columns.append(pa.repeat(change, len(windows)))
        return pa.RecordBatch.from_arrays(columns, schema=self.output)

    def _results(self, windows: pa.Table) -> list[pa.Array]:
        results = [
            part.finish([whole(windows[name]) for name in names])
            for part, (_, names) in zip(self._accumulators, self.grouping.states, strict=True)
        ][: len(self.node.aggregates)]
        # A column that is interpolated has doubles.
        return [
            result.cast(self.output.field(name).type)
            for result, (name, _) in zip(results, self.node.aggregates, strict=True)
        ]

    def _nothing(self, rows: int) -> list[pa.Array]:
        return [pa.nulls(rows, part.result) for part in self._accumulators[: len(self.node.aggregates)]]

    @cached_property
    def _accumulators(self) -> Sequence[Accumulator]:
        aggregates = [aggregation for _, aggregation in self.node.aggregates]
        if not self.node.takes_changes:
            return [accumulator(aggregation, self.input) for aggregation in aggregates]
        # The last one counts the rows.
        return [weighted_accumulator(aggregation, self.input) for aggregation in (*aggregates, count())]


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
