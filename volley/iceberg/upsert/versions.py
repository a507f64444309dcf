"""What the changes of a key come to in a history: its versions, whatever the order in which the changes come.

What of it the table does not show is remembered: deletions, truncations, and rows that are followed by others of the
same version.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from volley.columns.compiled import whole
from volley.columns.keys.normal import Bools, are_valid
from volley.iceberg.upsert.changes import DELETED
from volley.iceberg.upsert.events import Events
from volley.iceberg.upsert.settled import Changed, Outcome, Settling
from volley.iceberg.upsert.version_columns import VersionColumns, where

__all__ = ["Versions"]


@dataclass(frozen=True)
class Versions(Settling):
    """All changes of a key count; those that don't change what is tracked make one version with the ones before.

    A row by which a change is remembered has its sequence in `valid_from`, that of a deletion also in `valid_to`; that
    of a truncation, whose keys have no meaning, is current.
    """

    @cached_property
    def columns(self) -> VersionColumns:
        """The columns of versions."""
        return VersionColumns(self.writer)

    def settle(self, changes: pa.Table) -> Outcome:
        events = Events.of(changes.combine_chunks(), self.columns)
        versions = events.versions()
        return Outcome(versions.new, versions.remembered, versions.beaten)

    def merged(self, remembered: pa.Table) -> pa.Table:
        events = Events.of(remembered.combine_chunks(), self.columns)
        return pa.concat_tables([events.counting, events.new_truncations])

    def as_rows(self, changes: pa.Table) -> pa.Table:
        at, no_keys = self.columns.moments(changes), whole(changes[self.writer.keys[0]]).is_null()
        return self.columns.with_own_values(changes, at, where(at, whole(changes[DELETED])), no_keys)

    def recalled(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        _, valid_to, is_truncation = (rows[name] for name in self.columns.mode.own_columns)
        has_key = pc.invert(is_truncation)
        columns = [where(rows[name], has_key) if name in self.writer.keys else rows[name] for name in rows.schema.names]
        deleted = pc.or_(valid_to.is_valid(), is_truncation)
        return pa.RecordBatch.from_arrays([*columns, deleted], [*rows.schema.names, DELETED])

    def read_first(self, remembered: bool) -> Sequence[str]:
        if not remembered:
            return (self.columns.mode.valid_to,)
        return [name for name in self.columns.schema.names if name not in self.writer.keys]

    def wanted(self, rows: pa.Table, changes: Changed, remembered: bool) -> tuple[Bools, Bools]:
        """Return that versions matter which end at the first change of their key or later, with all columns."""
        if remembered:
            return np.ones(rows.num_rows, bool), np.zeros(rows.num_rows, bool)
        ends = whole(rows[self.columns.mode.valid_to])
        ended = np.flatnonzero(ends.is_valid().to_numpy(zero_copy_only=False))
        some = pa.array(ended)
        matter = are_valid([whole(rows[key]) for key in self.writer.keys])
        matter[ended] &= ~changes.are_after(rows.take(some), self.columns.first_of(ends.take(some)))
        return matter, matter
