"""Turns the changes of a segment into a changelog: one row an event, with the row before and after it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from volley.connectors.postgres.decode import Changes, Transactions, Truncation, Tuples
from volley.connectors.postgres.messages import DELETE, INSERT, UPDATE
from volley.connectors.postgres.rows import LOADED, NAMES, PLACES, unchanged_columns
from volley.connectors.postgres.tables import Table

__all__ = ["ChangelogForm"]

_OPERATIONS = {INSERT: "i", UPDATE: "u", DELETE: "d"}
_TRUNCATED = "t"
_MOMENT = pa.timestamp("us", "UTC")


@dataclass(frozen=True)
class ChangelogForm:
    """One row an event: what happened, where and when, and the row before and after.

    Args:
        table: The table.
        nulls: True: values that Arrow does not have are null; False: they are errors.
    """

    table: Table
    nulls: bool

    @property
    def schema(self) -> pa.Schema:
        """The schema of the rows."""
        row = pa.struct(list(self.table.schema))
        return pa.schema(
            {
                **{"op": pa.string(), "seq": pa.int64(), "lsn": pa.int64(), "commit_time": _MOMENT},
                **{"before": row, "after": row, "unchanged": NAMES},
            }
        )

    def loaded(self, rows: pa.RecordBatch, place: int) -> pa.RecordBatch:
        """Return the events of the load of a place."""
        count = rows.num_rows
        after = pa.StructArray.from_arrays(rows.columns, fields=list(self.table.schema))
        columns = [
            *(pa.repeat(pa.scalar(LOADED), count), pa.repeat(pa.scalar(place + 1, pa.int64()), count)),
            *(pa.nulls(count, field.type) for field in [*self.schema][2:5]),
            *(after, pa.nulls(count, NAMES)),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def changed(self, changes: Changes, first: int) -> pa.RecordBatch:
        """Return the events of changes; an update of a key is one event.

        Args:
            changes: The changes.
            first: The number of the first message of their batch.
        """
        operations = np.select([changes.kinds == kind for kind in _OPERATIONS], [*_OPERATIONS.values()], "")
        columns = [
            *(pa.array(operations, pa.string()), pa.array(PLACES * (first + changes.numbers))),
            *_moments(changes.transactions),
            self._rows(changes.old, changes.has_old),
            self._rows(changes.new, changes.has_new),
            unchanged_columns(self.table, changes.new).take(_places(changes.has_new)),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def emptied(self, place: int) -> pa.RecordBatch:
        """Return the event before a load that replaces all rows."""
        values = (pa.nulls(1, field.type) for field in [*self.schema][2:])
        sequence = pa.array([place])
        return pa.RecordBatch.from_arrays([pa.array([_TRUNCATED]), sequence, *values], schema=self.schema)

    def truncated(self, truncation: Truncation, first: int) -> pa.RecordBatch:
        """Return the event of a truncation: it has no rows."""
        columns = [
            *(pa.array([_TRUNCATED]), pa.array([PLACES * (first + truncation.number)])),
            *_moments(truncation.transaction),
            *(pa.nulls(1, field.type) for field in [*self.schema][4:]),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _rows(self, rows: Tuples, present: np.ndarray[Any, Any]) -> pa.StructArray:
        """Return for each event the row that it has, or null."""
        places = _places(present)
        values = [rows.values(column, self.nulls).take(places) for column in self.table.columns]
        return pa.StructArray.from_arrays(values, fields=list(self.table.schema), mask=pa.array(~present))


def _moments(transactions: Transactions) -> tuple[pa.Array, pa.Array]:
    """Return the positions of the commits of transactions in the server's log, and their times."""
    return pa.array(transactions.positions), pa.array(transactions.committed).cast(_MOMENT)


def _places(present: np.ndarray[Any, Any]) -> pa.Array:
    """Return for each event the number of the row that it has, or null."""
    return pa.array(np.cumsum(present) - 1, mask=~present)
