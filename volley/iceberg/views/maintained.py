"""How the rows of a view are brought up to date in its table: by groups, row by row, or as the first of an order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import pyarrow as pa

from volley.columns.batches import conform, no_table
from volley.errors import JobError
from volley.iceberg.views.contents import BATCH_ROWS, Contents, chosen, ordered, without
from volley.iceberg.views.first import FirstRows
from volley.iceberg.views.group import Group
from volley.iceberg.views.keys import Keys
from volley.iceberg.views.operators import ViewOperator, copies
from volley.iceberg.write.written import SnapshotFiles

__all__ = ["Maintained", "maintained"]


class Maintained(Protocol):
    """A query whose rows are in a table."""

    @property
    def schema(self) -> pa.Schema:
        """The schema of the table."""

    @property
    def order(self) -> Sequence[str]:
        """The columns by which its files are sorted."""

    def all_rows(self) -> Iterator[pa.RecordBatch]:
        """Yield all rows after the refresh."""

    def changes(self, contents: Contents) -> SnapshotFiles:
        """Write the files that bring the table up to date."""


def maintained(operator: ViewOperator) -> Maintained:
    """Return how the rows of an operator are kept in a table."""
    match operator:
        case Group():
            return _MaintainedGroups(operator)
        case FirstRows():
            return _MaintainedFirst(operator)
    return _MaintainedRows(operator)


class _MaintainedGroups:
    """Groups: the table has a row for each, with what changes of its rows can be added to."""

    def __init__(self, group: Group) -> None:
        self._group = group
        self.schema = group.stored_schema
        self.order: tuple[str, ...] = () if group.is_single else group.states.keys

    def all_rows(self) -> Iterator[pa.RecordBatch]:
        group = self._group
        rows = group.stored(group.grouped("after"))
        yield from ordered(rows, self.order).to_batches(BATCH_ROWS)

    def changes(self, contents: Contents) -> SnapshotFiles:
        group = self._group
        changed = group.inputs[0].delta()
        if not len(changed):
            return SnapshotFiles()
        touched = group.touched(changed)
        matches = contents.matches(None if group.is_single else Keys(touched), group.kept_columns)
        if not group.is_single:
            matches = list(chosen(matches, touched))
        kept = pa.schema([contents.schema.field(name) for name in group.kept_columns])
        stored = pa.concat_tables([no_table(kept), *(match.rows for match in matches)])
        rows = _conformed(group.stored(group.regrouped(stored, changed)), contents.schema)
        replaced, new = without(matches, rows)
        keys = () if group.is_single else group.states.keys
        return contents.replaced(replaced, new, keys) if replaced or len(new) else SnapshotFiles()


class _MaintainedRows:
    """Rows without a key: equal ones are copies of each other."""

    def __init__(self, operator: ViewOperator) -> None:
        self._operator = operator
        self.schema = operator.schema
        self.order: tuple[str, ...] = ()

    def all_rows(self) -> Iterator[pa.RecordBatch]:
        yield from self._operator.rows("after")

    def changes(self, contents: Contents) -> SnapshotFiles:
        added, removed = (_conformed(rows, contents.schema) for rows in copies(self._operator.delta()))
        matches = []
        if len(removed):
            keys = Keys.of(removed, removed.column_names)
            matches = list(chosen(contents.matches(keys, removed.column_names), removed))
        if (present := sum(len(match.rows) for match in matches)) < len(removed):
            raise JobError(
                f"{len(removed) - present} of {len(removed)} rows that the view has to lose are not in its table: it "
                "was changed by another writer, or a query gives other rows for the same ones",
                hint='refresh("full") computes it anew',
            )
        return contents.replaced(matches, added) if matches or len(added) else SnapshotFiles()


class _MaintainedFirst:
    """The first rows of an order: while none of them is lost, they follow from the changes and those in the table."""

    def __init__(self, first: FirstRows) -> None:
        self._first = first
        self.schema = first.schema
        self.order: tuple[str, ...] = ()

    def all_rows(self) -> Iterator[pa.RecordBatch]:
        yield from self._first.rows("after")

    def changes(self, contents: Contents) -> SnapshotFiles:
        changed = self._first.inputs[0].delta()
        if not len(changed):
            return SnapshotFiles()
        matches = contents.matches(None, self.schema.names)
        stored = pa.concat_tables([no_table(contents.schema), *(match.rows for match in matches)])
        rows = self._first.brought_up(_conformed(stored, self.schema), changed)
        replaced, new = without(matches, _conformed(rows, contents.schema))
        return contents.replaced(replaced, new) if replaced or len(new) else SnapshotFiles()


def _conformed(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    return pa.Table.from_batches([conform(batch, schema) for batch in rows.to_batches()], schema)
