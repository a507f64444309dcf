"""The recorded tables of a source, kept in the job's state to notice what the stream does not carry."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from volley.connectors.postgres.settings import TableName
from volley.connectors.postgres.tables import Table
from volley.connectors.postgres.types import Column, holds
from volley.storage.state_formats import CAPTURED_TABLE
from volley.store.journal import Journal

__all__ = ["KnownTable", "KnownTables"]

_TRUNCATIONS = 100


@dataclass(frozen=True)
class KnownTable:
    """A table as it was when the job last looked at it.

    Args:
        table: Its last description.
        dropped: The names of columns that it had once.
        truncations: The lower 32 bits of the ids of the last transactions that truncated it.
        wider: Columns as they were before they got a narrower type: staged changes may have values of the wider one.
        bases: By the oids of the domains that its columns have had, the types below them, with their modifiers.
        is_escaped: True if all of its rows had its escaped name; older versions wrote the name as it is.
    """

    table: Table
    dropped: frozenset[str] = frozenset()
    truncations: tuple[int, ...] = ()
    wider: tuple[Column, ...] = ()
    bases: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    is_escaped: bool = True

    @property
    def widest(self) -> Table:
        """The table with types that have the values of all its staged changes."""
        return self.table.with_types(self.wider)

    def with_table(self, table: Table) -> KnownTable:
        """Return it with a new description of the table."""
        before = {column.name: column for column in self.widest.columns}
        return replace(
            self,
            table=table,
            dropped=(self.dropped | {*self.table.names}) - {*table.names},
            wider=tuple(before[column.name] for column in table.columns if _is_narrower(column, before)),
            bases={**self.bases, **_bases(self.table), **_bases(table)},
        )

    def with_dropped(self, names: Iterable[str]) -> KnownTable:
        """Return it with columns that it had once, and lost before the catalog was read."""
        return replace(self, dropped=self.dropped | {*names})

    def with_truncation(self, xid: int) -> KnownTable:
        """Return it with one more truncation."""
        earlier = tuple(other for other in self.truncations if other != xid)
        return replace(self, truncations=(*earlier, xid)[-_TRUNCATIONS:])


class KnownTables:
    """All tables of a source.

    Args:
        state: The fsspec URL of the source's state folder.
    """

    def __init__(self, state: str) -> None:
        # By their oids.
        self._journal = Journal(f"{state}/tables", CAPTURED_TABLE, _known, "{}.json")
        self._tables: dict[int, KnownTable] = {}

    def read(self) -> None:
        """Read what is kept."""
        self._tables = self._journal.entries()

    def __iter__(self) -> Iterator[KnownTable]:
        return iter(self._tables.values())

    def __contains__(self, oid: int) -> bool:
        return oid in self._tables

    def __getitem__(self, oid: int) -> KnownTable:
        return self._tables[oid]

    def named(self, name: TableName) -> KnownTable | None:
        """Return the latest known table of a name; None if there is none."""
        matches = [known for known in self._tables.values() if known.table.name == name]
        return max(matches, key=lambda known: known.table.oid) if matches else None

    def keep(self, *tables: KnownTable) -> None:
        """Keep tables durably."""
        changed = {known.table.oid: known for known in tables if self._tables.get(known.table.oid) != known}
        self._journal.replace({oid: _values(known) for oid, known in changed.items()})
        self._tables.update(changed)

    def forget(self, known: KnownTable) -> None:
        """Forget a table: if it is captured again, it joins as a new one."""
        self._journal.delete(known.table.oid)
        del self._tables[known.table.oid]


def _values(known: KnownTable) -> dict[str, Any]:
    values = {
        "table": known.table.to_json(),
        "dropped": sorted(known.dropped),
        "truncations": list(known.truncations),
        "wider": [asdict(column) for column in known.wider],
        "bases": [[domain, *base] for domain, base in known.bases.items()],
    }
    # Only where it says something: a table whose name is the same escaped has no need of it.
    is_other = known.table.name.escaped != known.table.name
    return {**values, "is_escaped": known.is_escaped} if is_other else values


def _bases(table: Table) -> dict[int, tuple[int, int]]:
    return {column.declared: (column.type, column.modifier) for column in table.columns if column.is_of_domain}


def _is_narrower(column: Column, before: Mapping[str, Column]) -> bool:
    """Return True if a column had a type before that has more values."""
    earlier = before.get(column.name)
    return earlier is not None and earlier.data_type != column.data_type and holds(earlier.data_type, column.data_type)


def _known(oid: int, values: dict[str, Any]) -> KnownTable:
    table = Table.from_json(values["table"])
    wider = tuple(Column(**column) for column in values["wider"])
    bases = {domain: (base, modifier) for domain, base, modifier in values.get("bases", ())}
    is_escaped = values.get("is_escaped", table.name.escaped == table.name)
    return KnownTable(table, frozenset(values["dropped"]), tuple(values["truncations"]), wider, bases, is_escaped)
