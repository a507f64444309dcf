"""The recorded tables of a source, and how they differ from what the log describes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from volley.capture.rows import holds
from volley.capture.selection import TableName
from volley.connectors.mariadb.tables import Table
from volley.connectors.mariadb.types import keeps_values
from volley.storage.state_formats import LOGGED_TABLE
from volley.store.journal import Journal

__all__ = ["KnownTable", "KnownTables", "difference"]


@dataclass(frozen=True)
class KnownTable:
    """A table as it was when the job last saw it."""

    table: Table
    dropped: frozenset[str] = frozenset()  # the names of columns that it had once
    is_gone: bool = False  # True if it was dropped, or got another name

    def with_table(self, table: Table) -> KnownTable:
        """Return it with a new description of the table."""
        return replace(self, table=table, dropped=(self.dropped | {*self.table.names}) - {*table.names}, is_gone=False)

    def with_dropped(self, names: Iterable[str]) -> KnownTable:
        """Return it with columns that it had once."""
        return replace(self, dropped=self.dropped | {*names})

    @property
    def planned(self) -> Table:
        """The table without the columns that it has lost since."""
        return replace(
            self.table, columns=tuple(column for column in self.table.columns if column.name not in self.dropped)
        )


class KnownTables:
    """All tables of a source, by numbers of their own, which staged messages have."""

    def __init__(self, state: str) -> None:
        self._journal = Journal(f"{state}/tables", LOGGED_TABLE, _known, "{}.json")
        self._tables: dict[int, KnownTable] = {}

    def read(self) -> None:
        """Read what is kept."""
        self._tables = self._journal.entries()

    def __iter__(self) -> Iterator[KnownTable]:
        return iter(self._tables.values())

    def numbered(self) -> Mapping[int, KnownTable]:
        """Return the tables by their numbers."""
        return self._tables

    def number(self, name: TableName) -> int | None:
        """Return the number of a table; None if it is not known."""
        return next((number for number, known in self._tables.items() if known.table.name == name), None)

    def named(self, name: TableName) -> KnownTable | None:
        """Return a known table; None if there is none."""
        number = self.number(name)
        return None if number is None else self._tables[number]

    def keep(self, known: KnownTable) -> int:
        """Keep a table durably; return its number."""
        number = self.number(known.table.name)
        if number is None:
            number = max(self._tables, default=0) + 1
        if self._tables.get(number) != known:
            values = {
                "table": known.table.to_json(),
                "dropped": sorted(known.dropped),
                "is_gone": known.is_gone,
            }
            self._journal.replace({number: values})
            self._tables[number] = known
        return number


def _known(number: int, values: Any) -> KnownTable:
    return KnownTable(Table.from_json(values["table"]), frozenset(values["dropped"]), values["is_gone"])


def difference(known: KnownTable, table: Table, is_keyed: bool) -> str | None:
    """Return why rows of a table may have other values than the log told; None if they have not."""
    if is_keyed and known.table.keys != table.keys:
        return f"table {table.name} has another primary key: {', '.join(table.keys) or 'none'}"
    before = {column.name: column for column in known.table.columns}
    for column in table.columns:
        old = before.get(column.name)
        if old is None and column.name in known.dropped:
            return f"table {table.name} has a column {column.name!r} again, whose earlier values are gone"
        if old is not None and not (
            keeps_values(old, column) and (old.data_type == column.data_type or holds(column.data_type, old.data_type))
        ):
            return (
                f"table {table.name}: column {column.name!r} was {old.type}, and is {column.type} in another form now"
            )
    return None
