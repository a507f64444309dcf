"""Reads a source of a view: its rows at a snapshot, and its changes between two."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa
from pyiceberg.io import FileIO
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.types import NestedField

from volley.iceberg.pyiceberg_private.server_plans import is_planned_by_server
from volley.iceberg.read.asked import plan_scan
from volley.iceberg.read.changed_files import ChangedFile, ChangeSplit, change_splits
from volley.iceberg.read.changes import CHANGE_COLUMNS, read_changes, weight_of
from volley.iceberg.read.delete_files import deleted_positions
from volley.iceberg.read.entries import Content, FileEntry, deleted_rows_in, rows_in
from volley.iceberg.read.history import snapshots_between
from volley.iceberg.read.predicates import pruning
from volley.iceberg.read.rows import FileTask, RowReader, file_task
from volley.iceberg.read.scope import filtered, predicate_of, selected
from volley.iceberg.read.skipping import Positions
from volley.iceberg.schema.types import arrow_schema, with_included
from volley.iceberg.source_config import IcebergSourceConfig
from volley.iceberg.views.keys import Keys
from volley.iceberg.views.operators import WEIGHT, Side, ViewOperator, united
from volley.plan import nodes
from volley.plan.expression_nodes import ExprNode, column_names, joined
from volley.plan.expressions import lit
from volley.types.arrow import canonical_schema

__all__ = ["PAGE_ROWS", "Pin", "Scan", "Tally", "TooManyRowsError"]

PAGE_ROWS = 20_000
"""Rows that are read for a changed one, about."""

_FEW_ROWS = 1_000


class TooManyRowsError(Exception):
    """A refresh would read more rows than it may.

    Args:
        rows: How many, at least.
    """

    def __init__(self, rows: int) -> None:
        super().__init__(rows)
        self.rows = rows


@dataclass
class Tally:
    """What a refresh has read of its sources, and recomputed.

    Args:
        rows: Rows of the sources' data files, deleted ones too.
        groups: Groups that were computed anew from all their rows.
        most: Rows that may be read; None = any number.
    """

    rows: int = 0
    groups: int = 0
    most: int | None = None

    def read(self, rows: int) -> None:
        """Count rows.

        Raises:
            TooManyRowsError: If they are more than may be read.
        """
        self.rows += rows
        self.expect(0)

    def expect(self, rows: int) -> None:
        """Check that so many more rows may be read. Raises like `read`."""
        if self.most is not None and self.rows + rows > self.most:
            raise TooManyRowsError(self.rows + rows)


@dataclass(frozen=True)
class Pin:
    """A table that a refresh reads, at two of its snapshots.

    Args:
        table: The table.
        before: The snapshot that the view stands for; None = the table had none.
        after: The snapshot that the refresh brings it up to; None = the table has none.
    """

    table: Table
    before: int | None
    after: int | None


class Scan(ViewOperator):
    """A source of a view.

    Args:
        node: The read.
        config: The source's settings.
        pin: The table at two snapshots.
        columns: The columns that the query uses; None = all.
        condition: Rows that do not fulfil it are not needed; None = all are.
        tally: Counts the rows that are read.
    """

    how = "changes between snapshots, from the changed files alone"

    def __init__(
        self,
        node: nodes.Read,
        config: IcebergSourceConfig,
        pin: Pin,
        columns: frozenset[str] | None,
        condition: ExprNode | None,
        tally: Tally,
    ) -> None:
        schema = with_included(pin.table.schema(), config.include)
        own = predicate_of(config, schema)
        known = [field.name for field in schema.fields] if config.columns is None else list(config.columns)
        # At least one column: batches without columns have no rows.
        names = [name for name in known if columns is None or name in columns] or known[:1]
        needed = [*names, *sorted(column_names(own) - {*names})] if own is not None else names
        self._reader = replace(RowReader.of(pin.table.metadata, selected(schema, needed)), count=tally.read)
        read = canonical_schema(arrow_schema(self._reader.schema))
        self._steps = filtered(own, names, read)
        super().__init__(node, (), self._steps.schema)
        self._pin, self._conditions = pin, [part for part in (own, condition) if part is not None]
        self._tally = tally
        self.config = config

    @property
    def pin(self) -> Pin:
        """The table at two snapshots."""
        return self._pin

    @property
    def fields(self) -> Sequence[NestedField]:
        """The table's fields that the query uses."""
        return self._reader.schema.fields

    def rows(self, side: Side, keys: Keys | None = None) -> Iterator[pa.RecordBatch]:
        snapshot = self._snapshot(side)
        if snapshot is None or (keys is not None and not len(keys)):
            return
        table = self._pin.table
        conditions = [*self._conditions, *([within] if keys is not None and (within := keys.predicate()) else [])]
        row_filter = pruning(_all(conditions), table.schema())
        planned = plan_scan(self.config.ref, table, snapshot, row_filter, table.schema(), fields=self.fields)
        reader = replace(self._reader, row_filter=row_filter, filter_schema=table.schema())
        tasks = [file_task(file, table.metadata) for file in planned.files]
        self._check_number(reader, tasks)
        for task in tasks:
            for batch in reader.read(table.io, task):
                rows = self._steps(batch)
                yield rows if keys is None else keys.select(rows)

    def _check_number(self, reader: RowReader, tasks: Sequence[FileTask]) -> None:
        """Raise TooManyRowsError, before a row is read, if all together are more than may be read."""
        try:
            self._tally.expect(sum(task.file.rows for task in tasks))
        except TooManyRowsError:
            io, rows = self._pin.table.io, 0
            for task in tasks:
                # Most pages of a large file may be left out; to open a small one takes as long as to read it.
                rows += task.file.rows if task.file.rows <= _FEW_ROWS else reader.rows_to_read(io, task)
                self._tally.expect(rows)

    def _snapshot(self, side: Side) -> Snapshot | None:
        snapshot_id = self._pin.before if side == "before" else self._pin.after
        return None if snapshot_id is None else self._pin.table.metadata.snapshot_by_id(snapshot_id)

    @cached_property
    def _splits(self) -> list[ChangeSplit]:
        table, (before, after) = self._pin.table, (self._pin.before, self._pin.after)
        snapshots = [] if after is None or before == after else snapshots_between(table, before, after)
        return [split for snapshot in snapshots for split in change_splits(table.io, snapshot, table.metadata)]

    def delta(self) -> pa.Table:
        return self._delta

    @cached_property
    def _delta(self) -> pa.Table:
        io = self._pin.table.io
        batches = (batch for split in self._splits for batch in read_changes(io, split, self._reader))
        return united([self._weighted(batch) for batch in batches if batch.num_rows], self.schema)

    def _weighted(self, batch: pa.RecordBatch) -> pa.Table:
        rows = batch.drop_columns(CHANGE_COLUMNS.names)
        rows = pa.Table.from_batches([self._steps(rows)])
        weight = pa.scalar(weight_of(batch), pa.int64())
        return rows.append_column(WEIGHT, pa.repeat(weight, rows.num_rows))

    @cached_property
    def changed_rows(self) -> int:
        """About how many rows of data files have to be read for the changes."""
        files = (file for split in self._splits for group in split.groups for file in group)
        return sum(_rows_to_read(self._pin.table.io, file) for file in files)

    @cached_property
    def all_rows(self) -> int:
        """The number of rows of the table after the refresh, without those that equality deletes delete."""
        snapshot, table = self._snapshot("after"), self._pin.table
        io = table.io
        if snapshot is not None and is_planned_by_server(io):
            return sum(planned.file.rows for planned in plan_scan(self.config.ref, table, snapshot).files)
        return max(0, rows_in(io, snapshot) - deleted_rows_in(io, snapshot))


def _rows_to_read(io: FileIO, changed: ChangedFile) -> int:
    """Return about how many rows of a file have to be read: those of the pages with changed rows."""
    if changed.before is None or changed.after is None:
        return changed.file.rows
    old, new = changed.before.deletes, changed.after.deletes
    gone, added = [delete for delete in old if delete not in new], [delete for delete in new if delete not in old]
    if any(delete.content == Content.EQUALITY_DELETES for delete in (*gone, *added)):
        return min(changed.file.rows, sum(delete.rows for delete in (*gone, *added)) * PAGE_ROWS)
    positions = np.setxor1d(_positions(io, changed.file, gone), _positions(io, changed.file, added))
    return min(changed.file.rows, len(np.unique(positions // PAGE_ROWS)) * PAGE_ROWS)


def _positions(io: FileIO, file: FileEntry, deletes: Sequence[FileEntry]) -> Positions:
    """Return the positions that delete files delete; a refresh reads them too, from a cache then."""
    return np.concatenate([np.empty(0, np.int64), *(deleted_positions(io, file.path, delete) for delete in deletes)])


def _all(conditions: list[ExprNode]) -> ExprNode:
    result = lit(True).node
    for condition in conditions:
        result = condition if result == lit(True).node else joined("and_", result, condition)
    return result
