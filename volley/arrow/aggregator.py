"""Compiles a windowed aggregate: rows to states, states of many rows to states of windows, those to rows again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

from volley.arrow.accumulators import Accumulator, accumulator, normal
from volley.arrow.aggregates import aggregated_schema, key_fields
from volley.arrow.compiled import CompiledExpression, as_array
from volley.arrow.dictionaries import decode
from volley.arrow.expressions import compile_expression
from volley.arrow.windows import END, START, Grouping, Windows, windows_of
from volley.plan.nodes import Aggregate
from volley.plan.windows import Windowing

__all__ = ["Aggregator"]


@dataclass(frozen=True)
class Aggregator:
    """A windowed aggregate compiled for rows of one schema; picklable.

    Args:
        node: The aggregate.
        input: The schema of the rows.
    """

    node: Aggregate
    input: pa.Schema

    @property
    def windowing(self) -> Windowing:
        """The window and how it is used."""
        assert self.node.windowing is not None
        return self.node.windowing

    @cached_property
    def windows(self) -> Windows:
        """What computes its windows."""
        return windows_of(self.windowing.window)

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

    @cached_property
    def states(self) -> pa.Schema:
        """The schema of its states."""
        keys = [field.type for field in key_fields(self.node.keys, self.input)]
        types = [data_type for part in self._accumulators for data_type in part.types]
        names = [*self.windows.times, *self.grouping.keys, *self.grouping.state_names]
        return pa.schema(zip(names, [pa.int64()] * len(self.windows.times) + keys + types, strict=True))

    def times_of(self, batch: pa.RecordBatch) -> pa.Array:
        """Return the event times of rows in microseconds, with nulls."""
        return batch.column(self.windowing.on).cast(pa.int64())

    def lifted(self, batch: pa.RecordBatch, times: pa.Array) -> pa.Table:
        """Return the states of rows that all have an event time."""
        columns = [
            *self.windows.columns(times.to_numpy()),
            *(_evaluated(key, batch) for key in self._keys),
            *(column for part in self._accumulators for column in part.states(batch, times)),
        ]
        return pa.Table.from_arrays(columns, schema=self.states)

    def merged(self, table: pa.Table) -> pa.Table:
        """Return one row for each key and pane or session."""
        return self.windows.merged(table, self.grouping).cast(self.states)

    def rows(self, windows: pa.Table) -> pa.RecordBatch:
        """Return the rows of windows; of a table without states, those of deleted sessions."""
        times = [windows[name].cast(self.output.field(0).type) for name in (START, END)]
        keys = [windows[name] for name in self.grouping.keys]
        is_deleted = not set(self.grouping.state_names) <= set(windows.column_names)
        results = self._nothing(len(windows)) if is_deleted else self._results(windows)
        columns = [_whole(column) for column in (*times, *keys, *results)]
        if self.node.has_changes:
            columns.append(pa.repeat("delete" if is_deleted else "update_after", len(windows)))
        return pa.RecordBatch.from_arrays(columns, schema=self.output)

    def _results(self, windows: pa.Table) -> list[pa.Array]:
        return [
            part.finish([_whole(windows[name]) for name in names])
            for part, (_, names) in zip(self._accumulators, self.grouping.states, strict=True)
        ]

    def _nothing(self, rows: int) -> list[pa.Array]:
        return [pa.nulls(rows, part.result) for part in self._accumulators]

    @cached_property
    def _keys(self) -> Sequence[CompiledExpression]:
        return [compile_expression(key, self.input) for key in self.node.keys]

    @cached_property
    def _accumulators(self) -> Sequence[Accumulator]:
        return [accumulator(aggregation, self.input) for _, aggregation in self.node.aggregates]

    def __getstate__(self) -> dict[str, Any]:
        # Leave out the closures, which don't pickle; each executor compiles its own.
        return {"node": self.node, "input": self.input}


def _evaluated(key: CompiledExpression, batch: pa.RecordBatch) -> pa.Array:
    values = _whole(decode(as_array(key.evaluate(batch), batch.num_rows)))
    return normal(values.cast(pa.string()) if pa.types.is_null(values.type) else values)


def _whole(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
