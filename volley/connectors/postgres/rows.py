"""Turns the changes of a segment into the rows that the source yields."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from volley.columns.change_columns import ChangeColumns
from volley.connectors.postgres.decode import Changes, Truncation, Tuples
from volley.connectors.postgres.messages import DELETE, INSERT
from volley.connectors.postgres.settings import ANEW
from volley.connectors.postgres.tables import Table
from volley.errors import SourceError

__all__ = [
    *("LOADED", "NAMES", "OPERATION", "PLACES", "SEQUENCE", "TRUNCATED", "UNCHANGED"),
    *("RowForm", "load_place", "unchanged_columns"),
]

OPERATION, SEQUENCE, UNCHANGED = "_op", "_seq", "_unchanged"
LOADED = "r"
"""The operation of a row that a load has read."""
TRUNCATED = "t"
"""The operation of a row that stands for the end of all rows before it."""

PLACES = 1 << 21
"""The numbers between two messages, for the loads that are read there: a million, of two numbers each."""

NAMES = pa.list_(pa.string())
"""The type of lists of columns."""


def load_place(load: int, first: int) -> int:
    """Return the number that orders the truncation before a load; the load's rows have the next one.

    Args:
        load: The load's number.
        first: The number of the first message after it.
    """
    return PLACES * (first - 1) + 2 * load


@dataclass(frozen=True)
class RowForm:
    """The table's columns, with the operation and a number that orders the changes.

    Args:
        table: The table.
        nulls: True: values that Arrow does not have are null; False: they are errors.
    """

    table: Table
    nulls: bool

    @property
    def schema(self) -> pa.Schema:
        """The schema of the rows."""
        hidden = [(OPERATION, pa.string()), (SEQUENCE, pa.int64()), (UNCHANGED, NAMES)]
        roles = ChangeColumns(self.table.keys, SEQUENCE, OPERATION, UNCHANGED)
        return roles.noted(pa.schema([*self.table.schema, *hidden]))

    def loaded(self, rows: pa.RecordBatch, place: int) -> pa.RecordBatch:
        """Return the rows of the load of a place."""
        operation = pa.repeat(pa.scalar(LOADED), rows.num_rows)
        sequence = pa.repeat(pa.scalar(place + 1, pa.int64()), rows.num_rows)
        unchanged = pa.nulls(rows.num_rows, NAMES)
        return pa.RecordBatch.from_arrays([*rows.columns, operation, sequence, unchanged], schema=self.schema)

    def emptied(self, place: int) -> pa.RecordBatch:
        """Return the row before a load that replaces all rows."""
        return self._truncated(place)

    def truncated(self, truncation: Truncation, first: int) -> pa.RecordBatch:
        """Return the row of a truncation.

        Args:
            truncation: The truncation.
            first: The number of the first message of its batch.
        """
        return self._truncated(PLACES * (first + truncation.number))

    def _truncated(self, sequence: int) -> pa.RecordBatch:
        return pa.RecordBatch.from_pylist([{OPERATION: TRUNCATED, SEQUENCE: sequence}], self.schema)

    def changed(self, changes: Changes, first: int) -> pa.RecordBatch:
        """Return the rows of changes: a changed key is a deletion of the old one, then, numbered next, the new row.

        Args:
            changes: The changes.
            first: The number of the first message of their batch.
        """
        _check_keys(self.table, changes.new)
        numbers = PLACES * (first + changes.numbers)
        kinds = changes.kinds[changes.has_new]
        operations = pa.array(np.where(kinds == INSERT, "i", "u"), pa.string())
        written = self._batch(
            changes.new, operations, numbers[changes.has_new] + 1, unchanged_columns(self.table, changes.new)
        )
        gone = self._gone(changes)
        if not gone.any():
            return written
        old = changes.old.take(np.flatnonzero(gone))
        operations = pa.repeat(pa.scalar("d"), int(gone.sum()))
        deleted = self._batch(old, operations, numbers[changes.has_old][gone], pa.nulls(len(operations), NAMES))
        both = pa.concat_batches([written, deleted])
        order = np.argsort(both[SEQUENCE].to_numpy(), kind="stable")
        return both.take(pa.array(order))

    def _gone(self, changes: Changes) -> np.ndarray[Any, Any]:
        """Return for each old row whether its key is no longer in the table."""
        gone = np.asarray(changes.kinds[changes.has_old] == DELETE)
        changed = ~gone
        if not changed.any():
            return gone
        rows = (np.cumsum(changes.has_new) - 1)[changes.has_old & changes.has_new]
        before, after = changes.old.take(np.flatnonzero(changed)), changes.new.take(rows)
        same = np.ones(len(rows), np.bool_)
        for column in self.table.columns:
            if column.name in self.table.keys:
                equal = pc.equal(before.values(column, self.nulls), after.values(column, self.nulls))
                same &= equal.fill_null(False).to_numpy(zero_copy_only=False)
        gone[changed] = ~same
        return gone

    def _batch(
        self, rows: Tuples, operations: pa.Array, sequence: np.ndarray[Any, Any], unchanged: pa.Array
    ) -> pa.RecordBatch:
        values = [rows.values(column, self.nulls) for column in self.table.columns]
        return pa.RecordBatch.from_arrays([*values, operations, pa.array(sequence), unchanged], schema=self.schema)


def _check_keys(table: Table, rows: Tuples) -> None:
    """Check that rows have their keys: a server sends an old key that is stored out of line since 13.6 and 14.2."""
    for key in table.keys:
        if key in rows.columns and rows.unchanged(key).any():
            raise SourceError(
                f"key column {key!r} has a large value that an update has not changed, which this server does not send",
                hint=f"alter table {table.name.quoted} replica identity full; or update the server to its last minor "
                f"version; then {ANEW}",
            )


def unchanged_columns(table: Table, rows: Tuples) -> pa.ListArray:
    """Return for each row the columns whose values are not in the stream: they are large, and have not changed."""
    names = [column.name for column in table.columns if column.name in rows.columns]
    missing = {name: positions for name in names if len(positions := np.flatnonzero(rows.unchanged(name)))}
    if not missing:
        return pa.nulls(len(rows.after), NAMES)
    positions = np.concatenate([*missing.values()])
    columns = np.concatenate([np.repeat(number, len(rows)) for number, rows in enumerate(missing.values())])
    values = pa.array([*missing]).take(pa.array(columns[np.argsort(positions, kind="stable")]))
    ends = np.cumsum(np.bincount(positions, minlength=len(rows.after)))
    return pa.ListArray.from_arrays(pa.array([0, *ends], pa.int32()), values)
