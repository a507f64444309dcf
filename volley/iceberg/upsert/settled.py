"""What the changes of a key come to by their sequence, in whatever order they come: of several, the last one counts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from volley.columns.compiled import whole
from volley.columns.keys.equality import hashes, row_hashes, rows_among
from volley.columns.keys.normal import Bools, normal, normal_rows, numbered
from volley.columns.keys.order import ascending_order, ordered, ranks
from volley.columns.keys.search import Numbers, whole_numbers
from volley.iceberg.upsert.changes import DELETED, STORED_AT, STORED_ID, STORED_IN, UpsertWriter
from volley.iceberg.upsert.lives import Lives, taken, with_column

__all__ = ["Changed", "LastChange", "Outcome", "Settled", "Settling", "exact_ranks", "ranks_of", "repeated"]

_Numbers = np.ndarray[Any, Any]
_PLACE_BITS = 18
_GREATEST = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Outcome:
    """What becomes of the table with some changes.

    Args:
        rows: New rows of the table, with the ids of those that they replace, if its rows have some.
        remembered: Changes that are to be remembered and are not yet.
        beaten: The numbers of those changes that are rows of the table, and don't stay in it.
    """

    rows: pa.Table
    remembered: pa.Table
    beaten: _Numbers


class Changed:
    """The keys and sequences of changes, to which stored rows are compared.

    Args:
        keys: The keys and sequences of the changes, with duplicates.
        truncations: The sequences of those that concern all keys.
    """

    def __init__(self, writer: UpsertWriter, keys: pa.Table, truncations: pa.Table) -> None:
        self._writer = writer
        self._name = writer.mode.sequence_fields[0]
        self.keys = keys
        # Keys share a place by some bits of their hashes; it has the least sequence of their changes.
        self._least = np.full(1 << _PLACE_BITS, _GREATEST)
        if (first := self._first(whole(truncations[self._name]))) is not None:
            self._least[:] = first.min(initial=_GREATEST)
        if (first := self._first(whole(keys[self._name]))) is not None:
            np.minimum.at(self._least, self._places(keys), first)

    def are_later_than(self, rows: pa.Table) -> Bools:
        """Return for each stored row whether all changes of its key are known to come later."""
        return self.are_after(rows, whole(rows[self._name]))

    def are_after(self, rows: pa.Table, sequence: pa.Array) -> Bools:
        """Return for each stored row whether all changes of its key are known to come after a sequence.

        Args:
            rows: The rows, with their keys.
            sequence: By row, a value of the sequence's first column.
        """
        first = self._first(sequence)
        return np.zeros(rows.num_rows, bool) if first is None else first < self._least[self._places(rows)]

    def _places(self, rows: pa.Table) -> _Numbers:
        keys = normal_rows(self._writer.keys_of(rows).cast(self._writer.key_schema))
        return (row_hashes(keys) >> np.uint64(64 - _PLACE_BITS)).view(np.int64)

    def _first(self, sequence: pa.Array) -> Numbers | None:
        """Return values of the sequence's first column as numbers; None if they are others than numbers and times."""
        return whole_numbers(ordered(normal(sequence.cast(self._writer.schema.field(self._name).type))))


@dataclass(frozen=True)
class Settling(ABC):
    """A way to settle changes, of which some are rows that the table has (by their position in a file), and some are
    remembered in a branch, as rows of the table's columns. Picklable."""

    writer: UpsertWriter

    @abstractmethod
    def settle(self, changes: pa.Table) -> Outcome:
        """Return what some changes come to: all changes of their keys, old and new."""

    @abstractmethod
    def merged(self, remembered: pa.Table) -> pa.Table:
        """Return those of some remembered changes that still count."""

    @abstractmethod
    def as_rows(self, changes: pa.Table) -> pa.Table:
        """Return changes as the rows by which they are remembered; columns that the table requires may lack values."""

    @abstractmethod
    def recalled(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the changes that are remembered by some rows: with the column `DELETED`."""

    @abstractmethod
    def read_first(self, remembered: bool) -> Sequence[str]:
        """Return the columns besides the keys that are read of rows with the key of a change.

        Args:
            remembered: True for remembered changes, False for rows of the table.
        """

    def beaten(self, rows: pa.Table, changes: Changed) -> Bools:
        """Return for each row with the key of a change whether it is known to be beaten, whatever else there is.

        Args:
            rows: Their keys, and the columns of `read_first`.
        """
        return np.zeros(rows.num_rows, bool)

    @abstractmethod
    def wanted(self, rows: pa.Table, changes: Changed, remembered: bool) -> tuple[Bools, Bools]:
        """Return for each row with the key of a change whether it matters, and whether all of its columns do.

        Args:
            rows: Their keys, and the columns of `read_first`.
        """


@dataclass(frozen=True)
class LastChange(Settling):
    """The last change of each key counts; of the others, deletions that beat all rows are remembered."""

    def settle(self, changes: pa.Table) -> Outcome:
        settled = Settled.of(changes, self.writer)
        new = changes.take(pa.array(settled.new))
        if STORED_ID in new.column_names:
            new = with_column(new, STORED_ID, taken(changes[STORED_ID], settled.replaced))
        return Outcome(new.filter(pc.invert(new[DELETED])), new.filter(new[DELETED]), settled.beaten)

    def merged(self, remembered: pa.Table) -> pa.Table:
        return remembered.take(pa.array(Settled.of(remembered, self.writer).new))

    def as_rows(self, changes: pa.Table) -> pa.Table:
        return changes.select(self.writer.rows.rows_schema.names)

    def recalled(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        return rows.append_column(DELETED, pa.repeat(pa.scalar(True), rows.num_rows))

    def read_first(self, remembered: bool) -> Sequence[str]:
        return self.writer.mode.sequence_fields

    def beaten(self, rows: pa.Table, changes: Changed) -> Bools:
        """Return whether rows come before a change of their key; most of those that do are known."""
        return changes.are_later_than(rows)

    def wanted(self, rows: pa.Table, changes: Changed, remembered: bool) -> tuple[Bools, Bools]:
        """Return that all matter; of rows with the sequence of a change, too, all columns do, as these decide then."""
        tied = np.zeros(rows.num_rows, bool)
        if not remembered:
            tied[_tied(self.writer, rows, changes.keys)] = True
        return np.ones(rows.num_rows, bool), tied


def _tied(writer: UpsertWriter, rows: pa.Table, changes: pa.Table) -> _Numbers:
    """Return the numbers of stored rows with the key and the sequence of a change."""
    names = [*writer.keys, *writer.mode.sequence_fields]
    schema = pa.schema([writer.schema.field(name) for name in names])
    stored, changed = (_in_numbers(table.select(names).cast(schema)) for table in (rows, changes))
    # Few have the sequence of any change at all.
    possible = np.arange(rows.num_rows)
    for name in stored.column_names[len(writer.keys) :]:
        same = pc.is_in(stored[name].take(pa.array(possible)), pc.unique(changed[name]))
        possible = possible[same.to_numpy()]
    return possible[rows_among(stored.take(pa.array(possible)), changed)] if len(possible) else possible


def _in_numbers(rows: pa.Table) -> pa.Table:
    """Return keys and sequences in a form that Arrow's join compares: floats as whole numbers."""
    return pa.Table.from_batches([numbered([ordered(normal(column.combine_chunks())) for column in rows.columns])])


@dataclass(frozen=True)
class Settled:
    """The outcome for some changes, of which those that the table has already are marked as stored.

    Args:
        new: The numbers of the last changes of their keys that are not stored, ascending.
        beaten: The numbers of the table's rows that are not the last of their keys.
        replaced: For each of `new`, the number of the table's row of the same life; -1 = there is none.
    """

    new: _Numbers
    beaten: _Numbers
    replaced: _Numbers

    @staticmethod
    def of(changes: pa.Table, writer: UpsertWriter) -> Settled:
        """Compare changes: by sequence, then a deletion beats a row, then the greater values win."""
        if changes.num_rows == 0:
            return Settled(*[np.zeros(0, np.int64)] * 3)
        deleted, stored = (pc.cast(column, pa.int8()) for column in _marks(changes))
        keys = ranks_of(normal_rows(writer.keys_of(changes)), writer.key_schema.names)
        sequence = ranks_of(changes, writer.mode.sequence_fields)
        order = np.array(ascending_order([*keys, *sequence, deleted]))
        same_key = repeated(keys, order)
        tied = same_key & repeated([*sequence, deleted], order)
        if tied.any():
            places = np.flatnonzero(tied | np.append(tied[1:], False))
            order[places] = order[places][_by_values(changes, order[places], np.cumsum(~tied)[places], writer)]
        is_stored = np.asarray(stored)[order].astype(bool)
        is_last = np.append(~same_key[1:], True)
        in_table = changes[STORED_AT].combine_chunks().is_valid().to_numpy(zero_copy_only=False)[order]
        # A row of the table may lose to what is stored, too: to another row, or to a deletion after a rollback.
        beaten = in_table & ~is_last
        new = np.flatnonzero(is_last & ~is_stored)
        new = new[np.argsort(order[new])]
        replaced = np.full(len(order), -1)
        if STORED_ID in changes.column_names:
            lives = Lives.of(same_key, np.asarray(deleted)[order].astype(bool))
            places = lives.sources(in_table)
            replaced[lives.rows] = np.where(places < 0, -1, order[places])
        return Settled(order[new], np.sort(order[beaten]), replaced[new])


def _marks(changes: pa.Table) -> tuple[pa.Array, pa.Array]:
    """Return for each change whether it is a deletion, and whether the table has it already."""
    return changes[DELETED].combine_chunks(), changes[STORED_IN].combine_chunks().is_valid()


def ranks_of(rows: pa.Table, names: Iterable[str]) -> list[pa.Array]:
    """Return columns of numbers and texts by which rows are compared."""
    return [rank for name in names for rank in ranks(rows[name].combine_chunks())]


def exact_ranks(values: pa.Array) -> Iterator[pa.Array]:
    """Yield columns that tell all values apart, -0.0 and 0.0 too."""
    if values.null_count:
        yield values.is_valid().cast(pa.int8())
    if pa.types.is_struct(values.type):
        for field in values.flatten():
            yield from exact_ranks(field)
    elif pa.types.is_nested(values.type):
        # Lists and maps have no order of their own: any that is the same each time will do.
        yield pa.array(hashes(numbered([values])))
    else:
        yield ordered(values)


def _by_values(changes: pa.Table, numbers: _Numbers, runs: _Numbers, writer: UpsertWriter) -> _Numbers:
    """Return the order of changes of equal keys and sequences.

    Args:
        numbers: The changes.
        runs: For each, the number of its key and sequence.
    """
    rows = changes.take(pa.array(numbers))
    deleted, stored = _marks(rows)
    names = (name for name in writer.rows.rows_schema.names if name not in writer.keys)
    values = (rank for name in names for rank in exact_ranks(rows[name].combine_chunks()))
    # A deletion that is remembered need not be remembered again, nor a row written that the table has.
    known_deletion, is_stored = (pc.cast(column, pa.int8()) for column in (pc.and_(deleted, stored), stored))
    return np.asarray(ascending_order([pa.array(runs), known_deletion, *values, is_stored]))


def repeated(columns: Sequence[pa.Array], order: _Numbers) -> _Numbers:
    """Return for each row, in an order, whether it equals the one before in all columns."""
    equal = np.ones(len(order), bool)
    equal[0] = False
    for column in columns:
        values = column.take(pa.array(order))
        same = pc.equal(values[1:], values[:-1])
        # Where a column has nulls, another one tells which values are null.
        equal[1:] &= same.fill_null(True).to_numpy(zero_copy_only=False)
    return equal
