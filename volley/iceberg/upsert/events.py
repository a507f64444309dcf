"""The events of keys, in order, and the versions that they make.

The events of a key are its changes, one for each sequence. A run of events with the same tracked values is a version,
which a deletion or a truncation ends. The table shows the last event of a version, and when the first one was. Events
of before the first version that matters say nothing about what comes after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from volley.columns.compiled import whole
from volley.columns.keys.equality import differing
from volley.columns.keys.order import ascending_order
from volley.iceberg.upsert.changes import DELETED, STORED_AT, STORED_ID, STORED_IN
from volley.iceberg.upsert.lives import taken
from volley.iceberg.upsert.settled import exact_ranks, ranks_of, repeated
from volley.iceberg.upsert.version_columns import VersionColumns

__all__ = ["Events", "NewVersions"]

_Numbers = np.ndarray[Any, Any]
_Bools = np.ndarray[Any, np.dtype[np.bool_]]
_NEVER = np.iinfo(np.int64).max
# Where an event comes from. That a version began or ended is known by its columns alone if the change is forgotten. Of
# equal events, the one counts that need not be remembered any more.
_BEGINNING, _END, _NEW, _OF_VERSION, _REMEMBERED = range(5)


@dataclass(frozen=True)
class NewVersions:
    """What becomes of a table with some changes.

    Args:
        new: The versions that it lacks, with the ids of those that they replace, if rows have some.
        remembered: The changes that are to be remembered and are not yet.
        beaten: The numbers of those changes that are versions of the table which no longer hold.
    """

    new: pa.Table
    remembered: pa.Table
    beaten: _Numbers


@dataclass(frozen=True)
class Events:
    """Events of keys, and the truncations, which concern all keys.

    Args:
        columns: The columns of versions.
        changes: The changes that they come from.
        rows: The events as changes: those with keys, and the beginnings and ends of the table's versions.
        sources: Where each of these comes from.
        keys: Its key, as a number.
        sequences: Its sequence, as a number that is greater for a later one.
        stored: The numbers of those changes that are versions of the table.
        truncations: The truncations, as changes.
        truncated: Their sequences.
        moments: The values of `valid_from` by sequence.
    """

    columns: VersionColumns
    changes: pa.Table
    rows: pa.Table
    sources: _Numbers
    keys: _Numbers
    sequences: _Numbers
    stored: _Numbers
    truncations: pa.Table
    truncated: _Numbers
    moments: pa.Array

    @staticmethod
    def of(changes: pa.Table, columns: VersionColumns) -> Events:
        """Return the events of some changes."""
        writer = columns.writer
        has_key = whole(changes[writer.keys[0]]).is_valid()
        in_table, known = (_bools(changes[name].is_valid()) for name in (STORED_AT, STORED_IN))
        stored = np.flatnonzero(in_table)
        parts = [changes.filter(has_key), *_limits(changes.take(pa.array(stored)), columns)]
        sources = np.where(in_table, _OF_VERSION, np.where(known, _REMEMBERED, _NEW))[_bools(has_key)]
        counts = [part.num_rows for part in parts[1:]]
        rows, truncations = pa.concat_tables(parts).combine_chunks(), changes.filter(pc.invert(has_key))
        everything = pa.concat_tables([rows, truncations]).select(writer.mode.sequence_fields).combine_chunks()
        sequences = _in_order(everything, writer.mode.sequence_fields)
        first_of_each = np.unique(sequences, return_index=True)[1]
        return Events(
            columns,
            changes,
            rows,
            np.concatenate([sources, np.repeat([_BEGINNING, _END], counts)]),
            _in_order(rows, writer.keys),
            sequences[: rows.num_rows],
            stored,
            truncations,
            sequences[rows.num_rows :],
            columns.moments(everything.take(pa.array(first_of_each))),
        )

    @cached_property
    def new_truncations(self) -> pa.Table:
        """The truncations that are not remembered, each sequence once."""
        known = _bools(self.truncations[STORED_IN].is_valid())
        order = np.lexsort((~known, self.truncated))
        first = np.append(True, self.truncated[order][1:] != self.truncated[order][:-1])[: len(order)]
        return self.truncations.take(pa.array(np.sort(order[first & ~known[order]])))

    @property
    def counting(self) -> pa.Table:
        """The events that count, in the order of keys and sequences."""
        return self.rows.take(pa.array(self._places))

    @cached_property
    def _codes(self) -> _Numbers:
        """A number for each key and sequence, in their order."""
        return self.keys * max(1, len(self.moments)) + self.sequences

    @cached_property
    def _deleted(self) -> _Bools:
        return _bools(self.rows[DELETED])

    @cached_property
    def _places(self) -> _Numbers:
        """The numbers of the events that count: one for each key and sequence, in their order."""
        kept = np.flatnonzero(self._matter() & ~self._are_told_better())
        codes, deleted = self._codes[kept], self._deleted[kept]
        order = np.lexsort((deleted, codes))
        kept, codes, deleted = kept[order], codes[order], deleted[order]
        same = codes[1:] == codes[:-1]
        tied = np.append(False, same & (deleted[1:] == deleted[:-1]))[: len(kept)]
        if tied.any():
            places = np.flatnonzero(tied | np.append(tied[1:], False))
            kept[places] = kept[places][self._by_values(kept[places], np.cumsum(~tied)[places])]
        last: _Numbers = kept[np.append(~same, True)[: len(kept)]]
        return last

    def _matter(self) -> _Bools:
        """Return which events are not remembered from before the first version, or change, that matters."""
        horizon = np.full(self.keys.max(initial=-1) + 1, self._first_new_truncation)
        remembered = self.sources == _REMEMBERED
        np.minimum.at(horizon, self.keys[~remembered], self.sequences[~remembered])
        matter: _Bools = ~remembered | (self.sequences >= horizon[self.keys])
        return matter

    @property
    def _first_new_truncation(self) -> int:
        new = ~_bools(self.truncations[STORED_IN].is_valid())
        return int(self.truncated[new].min(initial=_NEVER))

    def _are_told_better(self) -> _Bools:
        """Return which events are beginnings or ends of versions that the table has from a change that is known."""
        _, numbers = np.unique(self._codes, return_inverse=True)
        known = np.bincount(numbers, self.sources >= _OF_VERSION) > 0
        begun = known | (np.bincount(numbers, self.sources == _BEGINNING) > 0)
        told: _Bools = np.where(self.sources == _BEGINNING, known[numbers], (self.sources == _END) & begun[numbers])
        return told

    def _by_values(self, places: _Numbers, runs: _Numbers) -> _Numbers:
        """Return the order of events of equal keys and sequences.

        Args:
            places: The events.
            runs: For each, the number of its key and sequence.
        """
        rows = self.rows.take(pa.array(places))
        unused = {*self.columns.writer.keys, *self.columns.mode.own_columns}
        names = (name for name in self.columns.schema.names if name not in unused)
        values = (rank for name in names for rank in exact_ranks(whole(rows[name])))
        sources = self.sources[places]
        # Of deletions, the values don't matter.
        of_deletions = np.where(self._deleted[places], sources, 0)
        return np.asarray(ascending_order([pa.array(runs), pa.array(of_deletions), *values, pa.array(sources)]))

    def versions(self) -> NewVersions:
        """Return the versions that the events make, and what is to be remembered of them."""
        places, truncated = self._places, np.unique(self.truncated)
        keys, sequences = self.keys[places], self.sequences[places]
        next_event = np.where(np.append(keys[1:] == keys[:-1], False)[: len(keys)], np.append(sequences[1:], 0), _NEVER)
        next_truncation = np.append(truncated, _NEVER)[np.searchsorted(truncated, sequences, "right")]
        is_truncated = np.isin(sequences, truncated)
        alive = ~self._deleted[places] & ~is_truncated
        joins = self._joins(places, alive & (next_event <= next_truncation) & (next_event < _NEVER), alive)
        first, last = np.flatnonzero(alive & ~joins), np.flatnonzero(alive & ~np.append(joins[1:], False)[: len(keys)])
        ends = np.minimum(next_event, next_truncation)[last]
        versions = self._with_limits(self.rows.take(pa.array(places[last])), sequences[first], ends)
        new, beaten = self._compared(versions, self._codes[places[first]])
        followed = alive.copy()
        followed[last] = False
        unknown = (self.sources[places] != _REMEMBERED) & (followed | (self._deleted[places] & ~is_truncated))
        remembered = self.rows.take(pa.array(places[unknown]))
        return NewVersions(new, pa.concat_tables([remembered, self.new_truncations]), beaten)

    def _joins(self, places: _Numbers, goes_on: _Bools, alive: _Bools) -> _Bools:
        """Return which events belong to the version of the event before.

        Args:
            goes_on: Whether another event of the key comes after each, before any truncation.
        """
        joins = np.zeros(len(places), bool)
        after = 1 + np.flatnonzero(goes_on[:-1] & alive[1:])
        tracked = self.rows.select(self.columns.tracked)
        if tracked.num_columns:
            same = ~differing(tracked.take(pa.array(places[after])), tracked.take(pa.array(places[after - 1])))
            after = after[same]
        joins[after] = True
        return joins

    def _with_limits(self, rows: pa.Table, first: _Numbers, ends: _Numbers) -> pa.Table:
        """Return rows as versions, given the sequences of their first events and of those that end them."""
        is_current = ends == _NEVER
        valid_to = self.moments.take(pa.array(np.where(is_current, 0, ends), mask=is_current))
        return self.columns.with_own_values(rows, self.moments.take(pa.array(first)), valid_to, pa.array(is_current))

    def _compared(self, versions: pa.Table, codes: _Numbers) -> tuple[pa.Table, _Numbers]:
        """Return the versions that the table lacks, and the numbers of those that it has and should not.

        Args:
            codes: The keys and first sequences of the versions, ascending.
        """
        begun = np.flatnonzero(self.sources == _BEGINNING)
        stored = self.stored[_bools(self.changes[self.columns.mode.valid_from].take(pa.array(self.stored)).is_valid())]
        places = np.searchsorted(codes, self._codes[begun])
        found = places < len(codes)
        found[found] = codes[places[found]] == self._codes[begun][found]
        replaced = np.full(len(codes), -1)
        replaced[places[found]] = stored[found]
        ours = versions.take(pa.array(places[found]))
        theirs = self.changes.take(pa.array(stored[found])).select(versions.column_names)
        found[found] = ~differing(ours, theirs)
        held, first = np.unique(places[found], return_index=True)
        stays = stored[found][first]
        new = np.setdiff1d(np.arange(len(codes)), held)
        rows = versions.take(pa.array(new))
        if STORED_ID in self.changes.column_names:
            rows = rows.append_column(STORED_ID, taken(self.changes[STORED_ID], replaced[new]))
        return rows, np.setdiff1d(self.stored, stays)


def _limits(stored: pa.Table, columns: VersionColumns) -> list[pa.Table]:
    """Return versions of the table as the changes that have begun them, and as the deletions that have ended them."""
    valid_from, valid_to, _ = columns.mode.own_columns
    begun, ended = (stored.filter(stored[name].is_valid()) for name in (valid_from, valid_to))
    ends = columns.with_sequence(ended, whole(ended[valid_to]))
    kept = {*columns.writer.keys, *columns.mode.sequence_fields}
    deletions = [ends[field.name] if field.name in kept else _nulls(ends, field) for field in ends.schema]
    deleted = pa.Table.from_arrays(deletions, schema=ends.schema)
    place = deleted.schema.get_field_index(DELETED)
    deleted = deleted.set_column(place, ends.schema.field(DELETED), pa.repeat(pa.scalar(True), ends.num_rows))
    return [columns.with_sequence(begun, whole(begun[valid_from])), deleted]


def _nulls(rows: pa.Table, field: pa.Field) -> pa.Array:
    return pa.nulls(rows.num_rows, field.type)


def _in_order(rows: pa.Table, names: Sequence[str]) -> _Numbers:
    """Return a number for each row: equal for those of equal values, and in their order."""
    numbers = np.zeros(rows.num_rows, np.int64)
    if rows.num_rows:
        columns = ranks_of(rows, names)
        order = np.array(ascending_order(columns))
        numbers[order] = np.cumsum(~repeated(columns, order)) - 1
    return numbers


def _bools(values: pa.Array | pa.ChunkedArray) -> _Bools:
    found: _Bools = whole(values).to_numpy(zero_copy_only=False).astype(bool)
    return found
