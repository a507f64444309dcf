"""Functions of ordered rows as an operator: the rows of a key are computed anew as they change.

A state is a row with its key. Where a key has got rows, what it had before and what it has now are compared: a row that
is no more comes out as deleted, and one that is new as it is. With an event time among the keys, rows come out once,
when the watermark has passed their time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from volley.columns.accumulators import accumulator
from volley.columns.aggregates import aggregate_type, time_type
from volley.columns.compiled import whole
from volley.columns.dictionaries import decode
from volley.columns.expressions import compile_expression
from volley.columns.groups import are_among, by_key
from volley.columns.keyed import KeyedOperator
from volley.columns.keys.equality import differing, matching_rows, row_hashes
from volley.columns.keys.normal import Bools, normal
from volley.columns.keys.order import sort_indices, sort_keys
from volley.columns.operators import Merged, Times
from volley.columns.ranges import aggregated_ranges
from volley.columns.roles import ChangeColumns
from volley.columns.weights import weights_of
from volley.columns.window_states import SEEN, seen_at, seen_since
from volley.errors import ExpressionError
from volley.plan.aggregates import Aggregation
from volley.plan.expression_nodes import Column
from volley.plan.keyed_nodes import CHANGE, Over
from volley.plan.over import OverFunction
from volley.plan.windows import microseconds

__all__ = ["OverOperator"]

_TIME, _WEIGHT, _GROUP, _HASH = "time", "weight", "group", "hash"


@dataclass(frozen=True)
class _Places:
    """Sorted rows: those of a key together, in its order.

    Args:
        groups: The number of each row's key.
        is_peer: Which rows the order does not tell from the one before.
    """

    groups: Times
    is_peer: Bools

    @cached_property
    def is_first(self) -> Bools:
        """Which rows are the first of their key."""
        first: Bools = np.diff(self.groups, prepend=-1) != 0
        return first

    @cached_property
    def begins(self) -> Times:
        """The place of the first row of each row's key."""
        return self._latest(self.is_first)

    @cached_property
    def ends(self) -> Times:
        """The place behind the last row of each row's key."""
        return self._next(self.is_first)

    @cached_property
    def peers_begin(self) -> Times:
        """The place of the first row that the order does not tell from each row."""
        return self._latest(~self.is_peer)

    @cached_property
    def peers_end(self) -> Times:
        """The place behind the last row that the order does not tell from each row."""
        return self._next(~self.is_peer)

    def _latest(self, is_start: Bools) -> Times:
        starts = np.flatnonzero(is_start)
        return np.repeat(starts, np.diff(starts, append=len(is_start)))

    def _next(self, is_start: Bools) -> Times:
        starts = np.flatnonzero(is_start)
        ends = np.append(starts[1:], len(is_start)) if len(starts) else starts
        return np.repeat(ends, ends - starts)

    def numbers(self, function: str) -> pa.Array:
        """Return the places of the rows within their keys, from 1."""
        if function == "row_number":
            return pa.array(np.arange(len(self.groups)) - self.begins + 1)
        if function == "rank":
            return pa.array(self.peers_begin - self.begins + 1)
        different = np.cumsum(~self.is_peer)
        return pa.array(different - different[self.begins] + 1)

    def neighbours(self, distance: int) -> pa.Array:
        """Return the place of the row so far behind each row, of the same key; null where there is none."""
        rows = len(self.groups)
        places = np.arange(rows) + max(-rows, min(distance, rows))
        return pa.array(places, mask=(places < self.begins) | (places >= self.ends))

    def around(self, before: int | None, after: int | None) -> tuple[Times, Times]:
        """Return where the rows around each one begin and end; None = with its key."""
        rows = len(self.groups)
        places = np.arange(rows)
        begins = self.begins if before is None else np.maximum(self.begins, places - min(before, rows))
        return begins, self.ends if after is None else np.minimum(self.ends, places + min(after, rows) + 1)


@dataclass(frozen=True)
class OverOperator(KeyedOperator):
    """Functions of ordered rows, compiled for rows of one schema: an `Operator` with one input."""

    folder: ClassVar[str] = "over"
    faults: ClassVar[tuple[str, str]] = ("it has no place", "the rows of its key have come out")
    node: Over

    @cached_property
    def output(self) -> pa.Schema:
        if self.node.on is not None:
            time_type(self.node.on, self.input, "over")
        _ = self.key_fields
        sort_keys(self.node.ordering.order, self.input)
        types = {field.name: field.type for field in self._rows}
        types |= {name: self._result(function) for name, function in self.node.functions}
        if not self.node.emits_changes:
            return pa.schema(types.items())
        if CHANGE in types:
            raise ExpressionError(f"{self.node.label()} has a column {CHANGE!r}, which changes have", hint="rename it")
        rows = pa.schema([*types.items(), (CHANGE, pa.string())])
        return ChangeColumns(self._unique, order=CHANGE, operation=CHANGE).noted(rows)

    @property
    def _unique(self) -> Sequence[str]:
        """The columns that tell the rows apart, as far as the step knows: the keys and the number of a row."""
        numbered = [
            name
            for name, function in self.node.functions
            if isinstance(function, OverFunction) and function.function == "row_number"
        ]
        added = {name for name, _ in self.node.functions}
        keys = [key.name for key in self.node.keys if isinstance(key, Column) and key.name not in added]
        return [*keys, numbered[0]] if numbered and len(keys) == len(self.node.keys) else []

    @cached_property
    def _rows(self) -> pa.Schema:
        """The columns of the input, but for what tells changes."""
        return pa.schema([field for field in self.input if not (self.node.takes_changes and field.name == CHANGE)])

    def _result(self, function: OverFunction | Aggregation) -> pa.DataType:
        if isinstance(function, Aggregation):
            return aggregate_type(function, self._rows)
        if function.aggregation is not None:
            return aggregate_type(function.aggregation, self._rows)
        return pa.int64() if function.value is None else compile_expression(function.value, self._rows).type

    @property
    def is_timed(self) -> bool:
        return self.node.on is not None

    @property
    def waits_for_rows(self) -> bool:
        return not self.is_timed

    @property
    def follows_clock(self) -> bool:
        return self.node.ordering.ttl is not None

    @property
    def states(self) -> tuple[pa.Schema, ...]:
        return (self._states,)

    @property
    def _times(self) -> Sequence[str]:
        """The names of the times of states."""
        return [_TIME] if self.is_timed else [SEEN] if self.follows_clock else []

    @cached_property
    def _states(self) -> pa.Schema:
        fields = [(name, pa.int64()) for name in self._times]
        fields += [
            *zip(self.key_names, self.key_types, strict=True),
            *zip(self._columns, self._rows.types, strict=True),
        ]
        return pa.schema([*fields, (_WEIGHT, pa.int8())] if self.node.takes_changes else fields)

    def time_column(self, input: int) -> str | None:
        return self.node.on

    def ends(self, times: Times) -> Times:
        return times + 1

    def closing(self, latest: int) -> int | None:
        return latest + 1 if self.is_timed else None

    def lifted(self, input: int, batch: pa.RecordBatch, times: pa.Array | None) -> pa.Table:
        columns = [
            *(pa.array(np.zeros(len(batch), np.int64)) if times is None else times for _ in self._times),
            *self.key_columns(batch),
            *(decode(batch.column(name)) for name in self._rows.names),
            *([weights_of(batch).cast(pa.int8())] if self.node.takes_changes else []),
        ]
        return pa.Table.from_arrays(columns, schema=self._states)

    def reduced(self, input: int, states: pa.Table) -> pa.Table:
        return states if self.node.needs_all_rows or self.is_timed else self._computed(states)[1]

    def merge(self, old: Sequence[pa.Table], new: Sequence[pa.Table], before: int, watermark: int) -> Merged:
        table = pa.concat_tables([*old, *new])
        if self.is_timed:
            is_due = table[_TIME].to_numpy() < watermark
            rows, _ = self._computed(self._left(table.filter(pa.array(is_due))))
            return Merged(self._batches(rows, "update_after"), (table.filter(pa.array(~is_due)),))
        ttl = self.node.ordering.ttl
        waited = old[0] if ttl is None else seen_since(old[0], watermark - microseconds(ttl))
        is_touched = are_among(waited, new[0], self.key_names)
        known = waited.filter(pa.array(is_touched))
        states = self._left(pa.concat_tables([known, *new]))
        (earlier, _), (rows, kept) = self._computed(known), self._computed(states)
        untouched = waited.filter(pa.array(~is_touched))
        states = pa.concat_tables([untouched, kept if ttl is None else seen_at(kept, watermark)])
        return Merged(self._changes(earlier, rows), (states,))

    def _left(self, states: pa.Table) -> pa.Table:
        """Return states without those that deletions take back; a deletion that comes before its row stays."""
        if not self.node.takes_changes:
            return states
        names = [*self.key_names, *self._columns]
        is_deleted = pc.less(states[_WEIGHT], 0)
        gone, there = (np.flatnonzero(mask) for mask in (is_deleted, pc.invert(is_deleted)))
        rows = states.select(names)
        matches = matching_rows(rows.take(pa.array(gone)), rows.take(pa.array(there)), names)
        stays = np.ones(len(states), bool)
        for places, matched in zip((gone, there), matches, strict=True):
            stays[places[matched]] = False
        return states.filter(pa.array(stays))

    def _changes(self, earlier: pa.Table, rows: pa.Table) -> Iterator[pa.RecordBatch]:
        """Yield the rows that are no more, as deleted, and then the new ones."""
        matched = matching_rows(earlier, rows, earlier.column_names)
        gone, came = (
            table.take(pa.array(np.setdiff1d(np.arange(len(table)), places)))
            for table, places in zip((earlier, rows), matched, strict=True)
        )
        if self.node.emits_changes:
            yield from self._batches(gone, "delete")
        yield from self._batches(came, "update_after")

    def _batches(self, rows: pa.Table, change: str) -> Iterator[pa.RecordBatch]:
        if not len(rows):
            return
        columns = [whole(column) for column in rows.columns]
        if self.node.emits_changes:
            columns.append(pa.repeat(change, len(rows)))
        yield pa.RecordBatch.from_arrays(columns, schema=self.output)

    def rows_of(self, rows: pa.Table) -> pa.Table:
        """Return all rows of some keys with what the functions give to each."""
        batches = [self.lifted(0, batch, None) for batch in rows.to_batches()]
        return self._computed(pa.concat_tables([self._states.empty_table(), *batches]))[0].cast(self.output)

    def _computed(self, states: pa.Table) -> tuple[pa.Table, pa.Table]:
        """Return the rows that come out of states, and the states to keep."""
        present = states.filter(pc.greater(states[_WEIGHT], 0)) if self.node.takes_changes else states
        ordered, places = self._ordered(present)
        rows = pa.table([ordered[name] for name in self._columns], self._rows.names)
        columns = dict(zip(rows.column_names, rows.columns, strict=True))
        columns |= {name: self._values(function, rows, places) for name, function in self.node.functions}
        names = [name for name in self.output.names if not (self.node.emits_changes and name == CHANGE)]
        result = pa.table({name: columns[name] for name in names})
        if self.node.first is None:
            return result, states
        column, last = self.node.first
        is_first = pc.less_equal(places.numbers("row_number") if column is None else result[column], last)
        return result.filter(is_first), states if self.node.needs_all_rows else ordered.filter(is_first)

    def _ordered(self, states: pa.Table) -> tuple[pa.Table, _Places]:
        """Return states in order, by their hashes where the order does not tell them apart."""
        rows, groups = by_key(states, self.key_names)
        names = dict(zip(self._rows.names, self._columns, strict=True))
        keys = [(names[name], direction) for name, direction in sort_keys(self.node.ordering.order, self._rows)]
        # 0.0 and -0.0 are one value.
        order = pa.table({name: normal(whole(rows[name])) for name, _ in keys} | {_GROUP: groups})
        # The rows of a key have one event time: they have the same places without it.
        compared = [column for name, column in names.items() if name != self.node.on]
        hashes = row_hashes(rows.select(compared)).view(np.int64)
        sorted_by = [(_GROUP, "ascending"), *keys, (_HASH, "ascending")]
        places = sort_indices(order.append_column(_HASH, pa.array(hashes)), sorted_by)
        order = order.take(places).combine_chunks()
        is_peer = np.zeros(len(rows), bool)
        is_peer[1:] = ~differing(order.slice(1), order.slice(0, max(len(order) - 1, 0)))
        return rows.take(places).combine_chunks(), _Places(order[_GROUP].to_numpy(), is_peer)

    def _values(self, function: OverFunction | Aggregation, rows: pa.Table, places: _Places) -> pa.Array:
        """Return what a function gives to each of the sorted rows."""
        if isinstance(function, Aggregation):
            return self._aggregated(function, rows, places.begins, places.begins, places.peers_end)
        if function.aggregation is not None:
            around = places.around(function.before, function.after)
            return self._aggregated(function.aggregation, rows, places.begins, *around)
        if function.value is None:
            return places.numbers(function.function)
        distance = -(function.before or 0) if function.function == "lag" else function.after or 0
        values = compile_expression(function.value, self._rows).column(_batch(rows))
        return values.take(places.neighbours(distance))

    def _aggregated(self, aggregation: Aggregation, rows: pa.Table, *bounds: Times) -> pa.Array:
        """Return an aggregate of a range of rows for each row; what goes by time goes by their order.

        Args:
            bounds: Where each row's key begins, and where its range begins and ends.
        """
        part = accumulator(aggregation, self._rows)
        states = part.states(_batch(rows), pa.array(np.arange(len(rows))))
        # Rows that the order does not tell apart have one range, as have all of a key without an order.
        ranges, numbers = np.unique(np.stack(bounds), axis=1, return_inverse=True)
        return aggregated_ranges(part, states, *ranges).take(pa.array(numbers.reshape(-1)))

    @cached_property
    def _columns(self) -> list[str]:
        return [f"column_{number}" for number in range(len(self._rows))]


def _batch(rows: pa.Table) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([whole(column) for column in rows.columns], names=rows.column_names)
