"""Joins two streams within a bound of time: rows of both sides wait until none that matches can come any more.

A state is a row: its ``time`` in microseconds since 1970, ``matched`` if rows of its side without a match come out
beside pairs, and the row's columns, whose names begin with a dot here. A pair of rows comes out in the epoch of the
later one. Rows that wait have met each other: an epoch matches all left rows with the new right ones, and the right
rows that waited with the new left ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from volley.columns.batches import one_batch
from volley.columns.dictionaries import decode_rows
from volley.columns.exact import restored, storage_of
from volley.columns.join_index import JoinIndex, JoinKeys, build_index
from volley.columns.joins import joined_schema
from volley.columns.keys.equality import Indices
from volley.columns.keys.normal import Bools, are_valid, comparable
from volley.columns.operators import Merged, Operator, Times
from volley.errors import ExpressionError, near
from volley.plan.joins import StreamJoin
from volley.plan.keyed_nodes import JoinStreams
from volley.plan.windows import microseconds
from volley.types.arrow import type_name

__all__ = ["StreamJoiner"]

_TIME, _MATCHED, _ROW, _COLUMN = "time", "matched", "row", "."
_PAIRS_AT_ONCE = 1 << 16
_LAST = 2**63 - 1
_LEFT, _RIGHT = 0, 1
_OTHER = {_LEFT: _RIGHT, _RIGHT: _LEFT}


@dataclass(frozen=True)
class StreamJoiner(Operator):
    """A join of streams compiled for rows of two schemas: its left side is input 0, its right one input 1."""

    folder: ClassVar[str] = "joined-streams"
    faults: ClassVar[tuple[str, str]] = ("it can't be joined", "rows that it matches may have come out already")
    node: JoinStreams
    left: pa.Schema
    right: pa.Schema

    @cached_property
    def output(self) -> pa.Schema:
        self._check_times()
        return joined_schema(self._join, self.left, self.right, "the other stream")

    def _check_times(self) -> None:
        (ours, theirs), sides = self._join.times, (self.left, self.right)
        for name, schema, side in zip((ours, theirs), sides, ("the stream", "the other stream"), strict=True):
            if name not in schema.names:
                raise ExpressionError(f"join: {side} has no column {name!r}", hint=near(name, schema.names))
        left, right = self.left.field(ours).type, self.right.field(theirs).type
        if not pa.types.is_timestamp(left) or left != right:
            raise ExpressionError(
                f"join: the stream's time {ours!r} is {type_name(left)}, the other stream's {theirs!r} "
                f"{type_name(right)}",
                hint=f'both are timestamps, with a zone or without one; cast: col("{theirs}").cast("timestamp")',
            )

    @cached_property
    def states(self) -> tuple[pa.Schema, ...]:
        needed = dict.fromkeys([*self._join.right_keys, *self._added])
        columns = self.left, [self.right.field(name) for name in needed]
        return tuple(self._state(input, fields) for input, fields in enumerate(columns))

    def _state(self, input: int, columns: Iterable[pa.Field]) -> pa.Schema:
        matched = [pa.field(_MATCHED, pa.bool_())] if self._is_kept(input) else []
        waiting = [field.with_name(_COLUMN + field.name) for field in columns]
        return pa.schema([pa.field(_TIME, pa.int64()), *matched, *waiting])

    def time_column(self, input: int) -> str:
        return self._join.times[input]

    def ends(self, times: Times) -> Times:
        return _later(times, 1)

    def lifted(self, input: int, batch: pa.RecordBatch, times: pa.Array) -> pa.Table:
        schema = self.states[input]
        rows = decode_rows(batch.select([name[1:] for name in schema.names if name[0] == _COLUMN]))
        unmatched = [pa.repeat(pa.scalar(False), len(times))] if _MATCHED in schema.names else []
        states = pa.Table.from_arrays([times, *unmatched, *rows.columns], schema=schema)
        if self._comes_alone(input):
            return states
        # A row with a null key matches none, and does not come out.
        return states.filter(pa.array(are_valid(rows.select([name[1:] for name in self._keys(input)]).columns)))

    def keys(self, input: int, states: pa.Table) -> list[pa.Array]:
        keys = one_batch(states.select(self._keys(input))).columns
        return list(comparable(keys).columns)

    def merge(self, old: Sequence[pa.Table], new: Sequence[pa.Table], before: int, watermark: int) -> Merged:
        left, right = (one_batch(pa.concat_tables(pair)) for pair in zip(old, new, strict=True))
        waited_left, waited_right = map(len, old)
        of_left = self._matches(_LEFT, left, right, waited_right)
        of_right = self._matches(_RIGHT, right.slice(0, waited_right), left, waited_left)
        left_is_over, right_is_over = self._is_over(_LEFT, left, watermark), self._is_over(_RIGHT, right, watermark)
        left, is_matched = self._with_matched(_LEFT, left, of_left, of_right)
        right, has_left = self._with_matched(_RIGHT, right, of_right, of_left)
        alone = is_matched if self._join.how == "semi" else left_is_over & ~is_matched
        # What comes out alone does so once.
        left_waits = ~left_is_over & ~is_matched if self._join.is_filter else ~left_is_over
        waiting = left.filter(pa.array(left_waits)), right.filter(pa.array(~right_is_over))
        both = self._rows(left, right, of_left, of_right)
        others = self._alone(left, right, np.flatnonzero(alone), np.flatnonzero(right_is_over & ~has_left))
        return Merged(chain(both, others), tuple(pa.Table.from_batches([side]) for side in waiting))

    def closing(self, latest: int) -> int | None:
        # Other rows come out as soon as they match: none waits for the end.
        spans = [self._spans[input][1] for input in (_LEFT, _RIGHT) if self._comes_alone(input)]
        return min(latest + max(spans) + 1, _LAST) if spans else None

    def _with_matched(
        self, input: int, rows: pa.RecordBatch, own: _Matches, others: _Matches
    ) -> tuple[pa.RecordBatch, Bools]:
        """Return the rows of an input with those noted that have had a match, and which these are, if that matters.

        Args:
            own: The matches of its rows.
            others: Those of the other side's rows.
        """
        is_matched = np.zeros(len(rows), bool)
        if not self._is_kept(input) and not (input == _LEFT and self._join.is_filter):
            return rows, is_matched
        is_matched[np.flatnonzero(own.counts)] = True
        is_matched[others.others()] = True
        if not self._is_kept(input):
            return rows, is_matched
        is_matched |= rows.column(_MATCHED).to_numpy(zero_copy_only=False)
        return rows.set_column(rows.schema.get_field_index(_MATCHED), _MATCHED, pa.array(is_matched)), is_matched

    def _rows(
        self, left: pa.RecordBatch, right: pa.RecordBatch, of_left: _Matches, of_right: _Matches
    ) -> Iterator[pa.RecordBatch]:
        """Yield the pairs, if they come out."""
        if self._join.is_filter:
            return
        for left_rows, right_rows in of_left.pairs():
            yield self._joined(left, right, pa.array(left_rows), pa.array(right_rows))
        for right_rows, left_rows in of_right.pairs():
            yield self._joined(left, right, pa.array(left_rows), pa.array(right_rows))

    def _alone(
        self, left: pa.RecordBatch, right: pa.RecordBatch, left_rows: Indices, right_rows: Indices
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows that come out alone, if such do."""
        if len(left_rows) and (self._join.keeps_left or self._join.is_filter):
            yield self._joined(left, right, pa.array(left_rows), pa.nulls(len(left_rows), pa.int64()))
        if len(right_rows) and self._join.keeps_right:
            yield self._joined(left, right, pa.nulls(len(right_rows), pa.int64()), pa.array(right_rows))

    def _joined(
        self, left: pa.RecordBatch, right: pa.RecordBatch, left_rows: pa.Array, right_rows: pa.Array
    ) -> pa.RecordBatch:
        own = left.select([_COLUMN + name for name in self.left.names]).take(left_rows)
        added = right.select([_COLUMN + name for name in self._added]).take(right_rows)
        columns = dict(zip(self.left.names, own.columns, strict=True))
        for ours, theirs in self._join.on if self._join.keeps_right else ():
            key_type = self.output.field(ours).type
            others = right.column(_COLUMN + theirs).take(right_rows)
            both = (storage_of(keys.cast(key_type)) for keys in (columns[ours], others))
            columns[ours] = restored(pc.coalesce(*both), key_type)
        return pa.RecordBatch.from_arrays([*columns.values(), *added.columns], schema=self.output)

    def _matches(self, input: int, rows: pa.RecordBatch, others: pa.RecordBatch, first: int) -> _Matches:
        """Return which of the other side's rows, from the first new one on, match each row of an input."""
        new = others.slice(first)
        keys = new.select(self._keys(_OTHER[input])).columns
        names, numbers = [*map(str, range(len(keys)))], pa.array(np.arange(first, len(others)))
        numbered = pa.table([*keys, new.column(_TIME), numbers], [*names, _TIME, _ROW])
        index = JoinIndex.of(build_index(numbered, names, _TIME, [_ROW], break_ties=False))
        times, (earlier, later) = rows.column(_TIME).to_numpy(), self._spans[input]
        keys_of_rows = JoinKeys.of(rows.select(self._keys(input)).columns)
        starts, counts = index.match_between(keys_of_rows, _earlier(times, earlier), _later(times, later))
        return _Matches(starts, counts, index.rows.column(_ROW).to_numpy())

    def _is_over(self, input: int, rows: pa.RecordBatch, watermark: int) -> Bools:
        """Return for each row of an input whether no row that matches can come any more."""
        over: Bools = _later(rows.column(_TIME).to_numpy(), self._spans[input][1]) < watermark
        return over

    @property
    def _join(self) -> StreamJoin:
        return self.node.join

    def _comes_alone(self, input: int) -> bool:
        """Return True if rows of an input come out because none that matches can come any more."""
        return self._is_kept(input) or (input == _LEFT and self._join.how == "anti")

    def _is_kept(self, input: int) -> bool:
        """Return True if rows of an input that match none come out beside pairs."""
        return self._join.keeps_left if input == _LEFT else self._join.keeps_right

    @property
    def _added(self) -> tuple[str, ...]:
        return self._join.added(self.right.names)

    @property
    def _spans(self) -> tuple[tuple[int, int], ...]:
        """For each input, how much earlier and how much later a row of the other side may be, in microseconds."""
        before, after = microseconds(self._join.before), microseconds(self._join.after)
        return (before, after), (after, before)

    def _keys(self, input: int) -> list[str]:
        names = self._join.left_keys if input == _LEFT else self._join.right_keys
        return [_COLUMN + name for name in names]


@dataclass(frozen=True)
class _Matches:
    """Which rows of one side match those of another: from a place on some rows, whose numbers stand at the places."""

    starts: Indices
    counts: Indices
    numbers: Indices

    def pairs(self) -> Iterator[tuple[Indices, Indices]]:
        """Yield the pairs of rows that match, some at a time: a key may have very many."""
        ends = np.cumsum(self.counts)
        total = int(ends[-1]) if len(ends) else 0
        for begin in range(0, total, _PAIRS_AT_ONCE):
            places = np.arange(begin, min(begin + _PAIRS_AT_ONCE, total))
            rows = np.searchsorted(ends, places, side="right")
            yield rows, self.numbers[self.starts[rows] + places - ends[rows] + self.counts[rows]]

    def others(self) -> Indices:
        """Return the numbers of the other side's rows that match any."""
        changes = np.zeros(len(self.numbers) + 1, np.int64)
        rows = np.flatnonzero(self.counts)
        np.add.at(changes, self.starts[rows], 1)
        np.add.at(changes, self.starts[rows] + self.counts[rows], -1)
        return self.numbers[np.cumsum(changes[:-1]) > 0]


def _earlier(times: Times, span: int) -> Times:
    """Return times that are earlier by a span, as far as there are any."""
    return np.maximum(times, span + 1 - _LAST) - span


def _later(times: Times, span: int) -> Times:
    """Return times that are later by a span, as far as there are any."""
    return np.minimum(times, _LAST - span) + span
