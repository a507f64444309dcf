"""Which of several changes of a key is the last one by its sequence, in whatever order they come."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from volley.columns.keys.equality import hashes
from volley.columns.keys.normal import normal_rows, numbered
from volley.columns.keys.order import ascending_order, ordered, ranks
from volley.iceberg.upsert.changes import DELETED, STORED_IN, UpsertWriter

__all__ = ["Settled"]

_Numbers = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Settled:
    """The outcome for some changes, of which those that the table has already are marked as stored.

    Args:
        new: The numbers of the last changes of their keys that are not stored, ascending.
        beaten: The numbers of the stored rows that are not the last of their keys.
    """

    new: _Numbers
    beaten: _Numbers

    @staticmethod
    def of(changes: pa.Table, writer: UpsertWriter) -> Settled:
        """Compare changes: by sequence, then a deletion beats a row, then the greater values win."""
        if changes.num_rows == 0:
            return Settled(np.zeros(0, np.int64), np.zeros(0, np.int64))
        deleted, stored = (pc.cast(column, pa.int8()) for column in _marks(changes))
        keys = _ranks(normal_rows(writer.keys_of(changes)), writer.key_schema.names)
        sequence = _ranks(changes, writer.mode.sequence_fields)
        order = np.array(ascending_order([*keys, *sequence, deleted]))
        same_key = _repeated(keys, order)
        tied = same_key & _repeated([*sequence, deleted], order)
        if tied.any():
            places = np.flatnonzero(tied | np.append(tied[1:], False))
            order[places] = order[places][_by_values(changes, order[places], np.cumsum(~tied)[places], writer)]
        is_stored, is_deleted = (np.asarray(column)[order].astype(bool) for column in (stored, deleted))
        is_last = np.append(~same_key[1:], True)
        # A stored row may lose to what is stored, too: to a row of the same key, or to a deletion after a rollback.
        beaten = is_stored & ~is_deleted & ~is_last
        return Settled(np.sort(order[is_last & ~is_stored]), np.sort(order[beaten]))


def _marks(changes: pa.Table) -> tuple[pa.Array, pa.Array]:
    """Return for each change whether it is a deletion, and whether the table has it already."""
    return changes[DELETED].combine_chunks(), changes[STORED_IN].combine_chunks().is_valid()


def _ranks(rows: pa.Table, names: Iterable[str]) -> list[pa.Array]:
    """Return columns of numbers and texts by which rows are compared."""
    return [rank for name in names for rank in ranks(rows[name].combine_chunks())]


def _exact_ranks(values: pa.Array) -> Iterator[pa.Array]:
    """Yield columns that tell all values apart, -0.0 and 0.0 too."""
    if values.null_count:
        yield values.is_valid().cast(pa.int8())
    if pa.types.is_struct(values.type):
        for field in values.flatten():
            yield from _exact_ranks(field)
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
    values = (rank for name in names for rank in _exact_ranks(rows[name].combine_chunks()))
    # A deletion that is remembered need not be remembered again, nor a row written that the table has.
    known_deletion, is_stored = (pc.cast(column, pa.int8()) for column in (pc.and_(deleted, stored), stored))
    return np.asarray(ascending_order([pa.array(runs), known_deletion, *values, is_stored]))


def _repeated(columns: Sequence[pa.Array], order: _Numbers) -> _Numbers:
    """Return for each row, in an order, whether it equals the one before in all columns."""
    equal = np.ones(len(order), bool)
    equal[0] = False
    for column in columns:
        values = column.take(pa.array(order))
        same = pc.equal(values[1:], values[:-1])
        # Where a column has nulls, another one tells which values are null.
        equal[1:] &= same.fill_null(True).to_numpy(zero_copy_only=False)
    return equal
