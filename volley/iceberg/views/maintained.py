"""How a view's table is brought up to date: by groups, or row by row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import pyarrow as pa

from volley.columns.batches import conform
from volley.errors import JobError
from volley.iceberg.views.contents import Contents, chosen, ordered, without
from volley.iceberg.views.group import Group
from volley.iceberg.views.keys import Keys
from volley.iceberg.views.operators import Operator
from volley.iceberg.views.zsets import copies
from volley.iceberg.write.written import SnapshotFiles

__all__ = ["Maintained", "maintained"]

_BATCH_ROWS = 100_000


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


def maintained(operator: Operator) -> Maintained:
    """Return how the rows of an operator are kept in a table."""
    return _Groups(operator) if isinstance(operator, Group) else _Rows(operator)


class _Groups:
    """Groups: the table has a row for each, with what changes of its rows can be added to."""

    def __init__(self, group: Group) -> None:
        self._group = group
        self.schema = group.stored_schema
        self.order: tuple[str, ...] = () if group.is_single else group.parts.keys

    def all_rows(self) -> Iterator[pa.RecordBatch]:
        group = self._group
        rows = group.stored(group.grouped("after"))
        yield from ordered(rows, self.order).to_batches(_BATCH_ROWS)

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
        stored = pa.concat_tables([kept.empty_table(), *(match.rows for match in matches)])
        rows = _conformed(group.stored(group.regrouped(stored, changed)), contents.schema)
        replaced, new = without(matches, rows)
        return contents.replaced(replaced, new) if replaced or len(new) else SnapshotFiles()


class _Rows:
    """Rows without a key: equal ones are copies of each other."""

    def __init__(self, operator: Operator) -> None:
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
        if (found := sum(len(match.rows) for match in matches)) < len(removed):
            raise JobError(
                f"{len(removed) - found} of {len(removed)} rows that the view has to lose are not in its table: it was "
                "changed by another writer, or a query gives other rows for the same ones",
                hint='refresh("full") computes it anew',
            )
        return contents.replaced(matches, added) if matches or len(added) else SnapshotFiles()


def _conformed(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    return pa.Table.from_batches([conform(batch, schema) for batch in rows.to_batches()], schema)
