"""What incomplete changes of a key come to: each column has the value of the last change that has one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from volley.columns.keys.normal import Bools, normal_rows
from volley.columns.keys.order import ascending_order, ranks
from volley.errors import SourceError
from volley.iceberg.upsert.changes import DELETED, STORED_AT, STORED_ID, STORED_IN, UpsertWriter
from volley.iceberg.upsert.columns import OLDER, OLDER_COLUMN, OLDER_SEQUENCE
from volley.iceberg.upsert.incomplete import UNCHANGED, ignores_nulls, lacks
from volley.iceberg.upsert.lives import Lives, last_of, nullable, taken, with_column
from volley.iceberg.upsert.settled import Changed, LastChange, Outcome, exact_ranks, ranks_of, repeated

__all__ = ["PartialChanges", "completed_rows", "without_source"]

_Numbers = np.ndarray[Any, Any]
_WHOLE = -1


def completed_rows(changes: pa.Table, order: Sequence[pa.Array], writer: UpsertWriter) -> pa.Table:
    """Return the last change of each key with the values that it leaves as they are, in order of arrival.

    Args:
        order: Columns of numbers and texts, by which later changes replace earlier ones.

    Raises:
        SourceError: If a value is nowhere, and a row that leaves it as it is does not have it itself.
    """
    keys = ranks_of(normal_rows(writer.keys_of(changes)), writer.key_schema.names)
    numbers = np.asarray(ascending_order([*keys, *order]), np.int64)
    deleted, unchanged = _flags(changes[DELETED])[numbers], changes[UNCHANGED].combine_chunks()
    lives = Lives.of(repeated(keys, numbers), deleted)
    arrival = np.argsort(numbers[lives.rows])
    rows = changes.take(pa.array(numbers[lives.rows][arrival]))
    replaced = np.zeros(changes.num_rows, np.bool_)
    if STORED_ID in changes.column_names:
        # The rows of the table whose ids are taken have no values but these and their keys.
        replaced = _flags(changes[STORED_IN].is_valid())
        places = lives.sources(replaced[numbers])[arrival]
        rows = with_column(rows, STORED_ID, taken(changes[STORED_ID], np.where(places < 0, -1, numbers[places])))
    for name in writer.written.intersection(pc.unique(pc.list_flatten(rows[UNCHANGED].combine_chunks())).to_pylist()):
        places = lives.sources(~(lacks(unchanged, name) | replaced)[numbers])
        if writer.mode.is_whole_if_new:
            places = np.where(places < 0, lives.starts[lives.rows], places)
        elif missing := int(np.count_nonzero(places < 0)):
            raise without_source(missing, name)
        rows = with_column(rows, name, changes[name].take(pa.array(numbers[places][arrival])))
    return rows


def without_source(rows: int, column: str) -> SourceError:
    """Return the error for rows that leave out a value that neither the epoch nor the table has."""
    return SourceError(
        f"{rows} rows have no value of column {column!r}, as it has not changed, and the table does not have the rows "
        "that they replace",
        hint='load all rows first (load="snapshot"), or make the source send whole rows',
    )


def _flags(column: pa.ChunkedArray) -> Bools:
    flags: Bools = column.combine_chunks().to_numpy(zero_copy_only=False)
    return flags


@dataclass(frozen=True)
class PartialChanges(LastChange):
    """Each column has the value of the greatest sequence since the last deletion, of equal ones the greatest value.

    A row of the table counts as the change of its sequence, and as one for each of its values that is older, which its
    column `OLDER` tells. Deletions are remembered if they beat all rows, or if a column of the row has no value since:
    an older one may come yet.
    """

    def settle(self, changes: pa.Table) -> Outcome:
        if changes.num_rows == 0:
            return Outcome(changes, changes, np.zeros(0, np.int64))
        folding = _Folding(changes, self.writer)
        kept = folding.kept
        beaten = _flags(changes[STORED_AT].is_valid())
        beaten[folding.winners[kept]] = False
        return Outcome(folding.rows(~kept), folding.deletions, np.flatnonzero(beaten))

    def beaten(self, rows: pa.Table, changes: Changed) -> Bools:
        """Return that none is for certain: a row that comes before a change may have values that it lacks."""
        return np.zeros(rows.num_rows, bool)

    def wanted(self, rows: pa.Table, changes: Changed, remembered: bool) -> tuple[Bools, Bools]:
        """Return that all matter; of rows of the table, all columns do."""
        return np.ones(rows.num_rows, bool), np.full(rows.num_rows, not remembered)


@dataclass(frozen=True)
class _Folding:
    """The fold of changes by column. Its *versions* are the changes, then the older values of those in the table."""

    changes: pa.Table
    writer: UpsertWriter

    @cached_property
    def _columns(self) -> dict[str, int]:
        """The columns that each have a sequence of their own, and their field ids."""
        others = {*self.writer.keys, *self.writer.mode.sequence_fields, OLDER}
        schema = self.writer.rows.schema
        return {field.name: field.field_id for field in schema.fields if field.name not in others}

    @cached_property
    def _entries(self) -> tuple[_Numbers, _Numbers, Bools, pa.StructArray]:
        """What `OLDER` has: the number of the row, the id of the column, whether there is a value, and its sequence."""
        older = self.changes[OLDER].combine_chunks()
        entries = pc.list_flatten(older)
        sequence = pc.struct_field(entries, OLDER_SEQUENCE)
        ids = pc.struct_field(entries, OLDER_COLUMN).to_numpy(zero_copy_only=False)
        is_set = sequence.is_valid().to_numpy(zero_copy_only=False)
        return pc.list_parent_indices(older).to_numpy(), ids, is_set, sequence

    @cached_property
    def _at(self) -> _Numbers:
        """For each version, the number of its change."""
        rows, _, is_set, _ = self._entries
        return np.append(np.arange(self.changes.num_rows), rows[is_set])

    @cached_property
    def _part(self) -> _Numbers:
        """For each version, the field id of the only column that it has."""
        _, ids, is_set, _ = self._entries
        return np.append(np.full(self.changes.num_rows, _WHOLE), ids[is_set])

    @cached_property
    def _sequence(self) -> dict[str, pa.Array]:
        """The sequence of each version, by column."""
        *_, is_set, older = self._entries
        older = older.filter(pa.array(is_set))
        return {
            name: pa.concat_arrays(
                [(own := self.changes[name].combine_chunks()), pc.struct_field(older, name).cast(own.type)]
            )
            for name in self.writer.mode.sequence_fields
        }

    @cached_property
    def _deleted(self) -> Bools:
        return _flags(self.changes[DELETED])[self._at]

    @cached_property
    def _stored(self) -> Bools:
        return _flags(self.changes[STORED_IN].is_valid())[self._at]

    @cached_property
    def _sorted(self) -> tuple[_Numbers, Lives, Bools]:
        """The versions in order, their lives, and for each place whether key and sequence are those before."""
        at = pa.array(self._at)
        keys = [
            rank.take(at)
            for rank in ranks_of(normal_rows(self.writer.keys_of(self.changes)), self.writer.key_schema.names)
        ]
        sequence = [rank for values in self._sequence.values() for rank in ranks(values)]
        marks = [pa.array(flags.astype(np.int8)) for flags in (self._deleted, self._stored)]
        order = np.asarray(ascending_order([*keys, *sequence, *marks]), np.int64)
        same_key = repeated(keys, order)
        return order, Lives.of(same_key, self._deleted[order]), same_key & repeated(sequence, order)

    @property
    def _last(self) -> _Numbers:
        """For each key with a row, the version with its sequence: a change."""
        order, lives, _ = self._sorted
        return order[lives.rows]

    @property
    def winners(self) -> _Numbers:
        """For each key with a row, the number of the change with its sequence; a row of the table if there is one."""
        return self._at[self._last]

    @cached_property
    def _sources(self) -> dict[str, _Numbers]:
        """By column, for each key with a row the version that has the value; -1 = none has one."""
        unchanged = self.changes[UNCHANGED].combine_chunks()
        rows, ids, *_ = self._entries
        sources = {}
        for name, field_id in self._columns.items():
            left_out = lacks(unchanged, name)
            left_out[rows[ids == field_id]] = True
            left_out |= self._was_before(name)
            has_value = (self._part == field_id) | (self._part == _WHOLE) & ~left_out[self._at]
            order = self._by_value(name, has_value)
            places = self._sorted[1].sources(has_value[order])
            sources[name] = np.where(places < 0, -1, order[places])
        return sources

    def _was_before(self, name: str) -> Bools:
        """Return for each change whether it may be a row of before the table had a column: it has no value of it."""
        came_later = self._columns[name] > self.writer.rows.schema.find_field(OLDER).field_id
        if not (came_later and ignores_nulls(self.writer.mode, name)):
            return np.zeros(self.changes.num_rows, np.bool_)
        return _flags(self.changes[name].is_null())

    def _by_value(self, name: str, has_value: Bools) -> _Numbers:
        """Return the versions in order; those of one key and sequence by the value of a column."""
        order, _, tied = self._sorted
        if not tied.any():
            return order
        places = np.flatnonzero(tied | np.append(tied[1:], False))
        versions = order[places]
        values = self.changes[name].combine_chunks().take(pa.array(self._at[versions]))
        first, second, last = (
            pa.array(flags[versions].astype(np.int8)) for flags in (self._deleted, has_value, self._stored)
        )
        runs = pa.array(np.cumsum(~tied)[places])
        order = order.copy()
        order[places] = versions[np.array(ascending_order([runs, first, second, *exact_ranks(values), last]))]
        return order

    @property
    def _replaced(self) -> _Numbers:
        """For each key with a row, the number of the row of the same life that the table has; -1 = it has none."""
        order, lives, _ = self._sorted
        in_table = _flags(self.changes[STORED_AT].is_valid())[self._at] & (self._part == _WHOLE)
        places = lives.sources(in_table[order])
        return np.where(places < 0, -1, self._at[order[places]])

    @cached_property
    def kept(self) -> Bools:
        """For each key with a row, whether the table has that row."""
        winners, kept = self.winners, self._stored[self._last]
        rows, ids, is_set, _ = self._entries
        for name, versions in self._sources.items():
            has_none = np.zeros(self.changes.num_rows, np.bool_)
            has_none[rows[(ids == self._columns[name]) & ~is_set]] = True
            has_none |= self._was_before(name)
            kept &= np.where(versions < 0, has_none[winners], self._at[versions] == winners)
        return kept

    def rows(self, chosen: Bools) -> pa.Table:
        """Return the rows of some of the keys that have one."""
        rows = self.changes.take(pa.array(self.winners[chosen]))
        if STORED_ID in rows.column_names:
            rows = with_column(rows, STORED_ID, taken(self.changes[STORED_ID], self._replaced[chosen]))
        for name, versions in self._sources.items():
            some = versions[chosen]
            values = self.changes[name].combine_chunks().take(nullable(self._at[some], some < 0))
            rows = with_column(rows, name, self.writer.or_default(name, values, pa.array(some < 0)))
        return with_column(
            rows, OLDER, self._older({name: some[chosen] for name, some in self._sources.items()}, chosen)
        )

    def _older(self, sources: Mapping[str, _Numbers], chosen: Bools) -> pa.Array:
        """Return the column that tells which values of rows are older than their sequence."""
        order, _, tied = self._sorted
        run = np.empty(len(order), np.int64)
        run[order] = np.cumsum(~tied)
        last = run[self._last[chosen]]
        data_type = self.writer.schema.field(OLDER).type
        if not sources:
            # The table has only keys and what a sequence is.
            return pa.nulls(len(last), data_type)
        older = [(versions < 0) | (run[versions] != last) for versions in sources.values()]
        rows = np.concatenate([np.flatnonzero(flags) for flags in older])
        by_row = np.argsort(rows, kind="stable")
        versions, ids = (
            np.concatenate([values[flags] for values, flags in zip(listed, older, strict=True)])[by_row]
            for listed in (sources.values(), [np.full(len(last), self._columns[name]) for name in sources])
        )
        counts = np.bincount(rows, minlength=len(last))
        ends = pa.array(np.append(0, np.cumsum(counts)), pa.int32(), mask=np.append(counts == 0, False))
        values = self._as_entries(ids, versions)
        return pa.ListArray.from_arrays(ends, values).cast(data_type)

    def _as_entries(self, ids: _Numbers, versions: _Numbers) -> pa.StructArray:
        none = versions < 0
        at = nullable(versions, none)
        sequence = pa.StructArray.from_arrays(
            [values.take(at) for values in self._sequence.values()], [*self._sequence], mask=pa.array(none)
        )
        return pa.StructArray.from_arrays([pa.array(ids, pa.int32()), sequence], [OLDER_COLUMN, OLDER_SEQUENCE])

    @property
    def deletions(self) -> pa.Table:
        """The deletions that are to be remembered, and are not yet."""
        order, lives, _ = self._sorted
        keys = np.append(0, lives.ends[:-1] + 1)
        last = last_of(self._deleted[order])[lives.ends]
        lacking = np.zeros(len(order), np.bool_)
        for versions in self._sources.values():
            lacking[lives.rows] |= versions < 0
        matters = (last >= keys) & ((last == lives.ends) | lacking[lives.ends])
        versions = order[last[matters]]
        return self.changes.take(pa.array(self._at[versions[~self._stored[versions]]]))
