"""The recorded tables of a source, and what the stream does not carry: how they differ from what was recorded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from operator import attrgetter
from typing import Any

from volley.capture.rows import holds
from volley.capture.selection import TableName
from volley.connectors.postgres.messages import Relation
from volley.connectors.postgres.settings import ANEW
from volley.connectors.postgres.tables import Table
from volley.connectors.postgres.types import TableColumn
from volley.storage.state_formats import CAPTURED_TABLE
from volley.store.journal import Journal

__all__ = ["CapturedTable", "CapturedTables", "TableDifference", "difference", "identity_difference"]

_TRUNCATIONS = 100
_ALIKE = 'if it was by vacuum full or cluster, which change no values: on_rewrite="ignore" once; else '


@dataclass(frozen=True)
class CapturedTable:
    """A table as it was when the job last looked at it."""

    table: Table
    dropped: frozenset[str] = frozenset()  # the names of columns that it had once
    truncations: tuple[int, ...] = ()  # the lower 32 bits of the ids of the last transactions that truncated it
    # Columns as they were before they got a narrower type: staged changes may have values of the wider one.
    wider: tuple[TableColumn, ...] = ()
    # By the oids of the domains that its columns have had, the types below them, with their modifiers.
    bases: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    is_escaped: bool = True  # True if all of its rows had its escaped name; older versions wrote the name as it is

    @property
    def widest(self) -> Table:
        """The table with types that have the values of all its staged changes."""
        return self.table.with_types(self.wider)

    def with_table(self, table: Table) -> CapturedTable:
        """Return it with a new description of the table."""
        before = {column.name: column for column in self.widest.columns}
        return replace(
            self,
            table=table,
            dropped=(self.dropped | {*self.table.names}) - {*table.names},
            wider=tuple(before[column.name] for column in table.columns if _is_narrower(column, before)),
            bases={**self.bases, **_bases(self.table), **_bases(table)},
        )

    def with_dropped(self, names: Iterable[str]) -> CapturedTable:
        """Return it with columns that it had once, and lost before the catalog was read."""
        return replace(self, dropped=self.dropped | {*names})

    def with_truncation(self, xid: int) -> CapturedTable:
        """Return it with one more truncation."""
        earlier = tuple(other for other in self.truncations if other != xid)
        return replace(self, truncations=(*earlier, xid)[-_TRUNCATIONS:])


class CapturedTables:
    """All tables of a source."""

    def __init__(self, state: str) -> None:
        # By their oids.
        self._journal = Journal(f"{state}/tables", CAPTURED_TABLE, _known, "{}.json")
        self._tables: dict[int, CapturedTable] = {}

    def read(self) -> None:
        """Read what is kept."""
        self._tables = self._journal.entries()

    def __iter__(self) -> Iterator[CapturedTable]:
        return iter(self._tables.values())

    def __contains__(self, oid: int) -> bool:
        return oid in self._tables

    def __getitem__(self, oid: int) -> CapturedTable:
        return self._tables[oid]

    def named(self, name: TableName) -> CapturedTable | None:
        """Return the latest known table of a name; None if there is none."""
        matches = [known for known in self._tables.values() if known.table.name == name]
        return max(matches, key=lambda known: known.table.oid) if matches else None

    def keep(self, *tables: CapturedTable) -> None:
        """Keep tables durably."""
        changed = {known.table.oid: known for known in tables if self._tables.get(known.table.oid) != known}
        self._journal.replace({oid: _values(known) for oid, known in changed.items()})
        self._tables.update(changed)

    def forget(self, known: CapturedTable) -> None:
        """Forget a table: if it is captured again, it joins as a new one."""
        self._journal.delete(known.table.oid)
        del self._tables[known.table.oid]


def _values(known: CapturedTable) -> dict[str, Any]:
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


def _is_narrower(column: TableColumn, before: Mapping[str, TableColumn]) -> bool:
    """Return True if a column had a type before that has more values."""
    earlier = before.get(column.name)
    return earlier is not None and earlier.data_type != column.data_type and holds(earlier.data_type, column.data_type)


def _known(oid: int, values: dict[str, Any]) -> CapturedTable:
    table = Table.from_json(values["table"])
    wider = tuple(TableColumn(**column) for column in values["wider"])
    bases = {domain: (base, modifier) for domain, base, modifier in values.get("bases", ())}
    is_escaped = values.get("is_escaped", table.name.escaped == table.name)
    return CapturedTable(table, frozenset(values["dropped"]), tuple(values["truncations"]), wider, bases, is_escaped)


@dataclass(frozen=True)
class TableDifference:
    """A change that the stream does not carry."""

    reason: str
    hint: str  # what to do if the table is not loaded again
    is_rewrite: bool = False  # True if columns and key are the same, and rows may have other values, or not
    # The transactions that gave the table its new files; None = it has other differences, too.
    writers: frozenset[int] | None = None
    is_loss: bool = False  # True if changes themselves may be missing in the stream, not only values of older rows


def difference(known: Table, dropped: frozenset[str], table: Table, is_keyed: bool) -> TableDifference | None:
    """Return the first difference between a table and what was known of it; None if the stream carries all.

    Mere rewrites come last: where they are ignored, no other difference may hide behind one.
    """
    return min(_differences(known, dropped, table, is_keyed), key=attrgetter("is_rewrite"), default=None)


def identity_difference(table: Table, relation: Relation) -> TableDifference | None:
    """Return a difference if rows that the stream describes were deleted without the key that the table has now."""
    identity = tuple(column.name for column in relation.columns if column.is_identity)
    # Without any, the server refuses updates and deletes.
    if not identity or {*table.keys} <= {*identity}:
        return None
    return TableDifference(
        f"table {table.name}: its replica identity was {_listed(identity)} for a while, without the key "
        f"{_listed(table.keys)}: rows that were deleted then can't be told apart",
        f'on_rewrite="reload" loads the table once more; or {ANEW}',
    )


def _differences(known: Table, dropped: frozenset[str], table: Table, is_keyed: bool) -> Iterator[TableDifference]:
    name = f"table {known.name}"
    if known.oid != table.oid:
        yield TableDifference(f"{name} was made anew (oid {known.oid}, now {table.oid})", ANEW)
    if known.name != table.name:
        yield TableDifference(f"{name} is named {table.name} now", f"name it {known.name.table!r} again; or {ANEW}")
    yield from _of_columns(known, dropped, table)
    if is_keyed and known.keys != table.keys:
        # A deleted row has the values of its key alone, of whichever it was then.
        yield TableDifference(f"{name}: its key was {_listed(known.keys)} and is {_listed(table.keys)} now", ANEW)
    yield from _of_publication(known, table)
    yield from _of_printed_types(known, table)
    yield from _of_files(known, table)


def _of_publication(known: Table, table: Table) -> Iterator[TableDifference]:
    # A job's state of an earlier version does not have the membership.
    if known.membership and table.membership and not known.membership.is_kept_by(table.membership):
        yield TableDifference(
            f"publication {table.membership.name!r} was altered since the last look: the stream may lack changes of "
            f"table {known.name}",
            f'if none were left out, as by another owner: on_rewrite="ignore" once; else {ANEW}',
            is_rewrite=True,
            is_loss=True,
        )


def _of_printed_types(known: Table, table: Table) -> Iterator[TableDifference]:
    before = {(printed.column, printed.oid): printed for printed in known.printed}
    names = {column.number: column.name for column in (*table.columns, *table.unsent)}
    for printed in table.printed:
        old = before.get((printed.column, printed.oid))
        if old is not None and (change := old.changed(printed)):
            yield TableDifference(
                f"table {known.name}: type {printed.name} of column {names[printed.column]!r} was altered: {change} "
                "now, which the stream does not say of the rows before",
                f'{ANEW}; or on_rewrite="ignore", and older rows keep their texts',
                is_rewrite=True,
            )


def _of_columns(known: Table, dropped: frozenset[str], table: Table) -> Iterator[TableDifference]:
    name = f"table {known.name}"
    before = {column.number: column for column in known.columns}
    unsent = {column.number for column in known.unsent}
    names = {*known.names} | dropped
    for column in table.columns:
        old = before.get(column.number)
        if column.number in unsent:
            yield TableDifference(
                f"{name}: the stream has column {column.name!r} now, which it did not have of the rows before",
                f'{ANEW}; or on_rewrite="ignore", and older rows stay null in it',
                is_rewrite=True,
            )
        elif old is not None and old.name != column.name:
            yield TableDifference(
                f"{name}: column {old.name!r} is named {column.name!r} now, which the stream does not say of the rows "
                "before",
                f"name it {old.name!r} again, and rename it behind the source; or {ANEW}",
            )
        elif old is not None and old.data_type != column.data_type and _rewritten(known, table):
            yield TableDifference(
                f"{name}: column {column.name!r} was {old.data_type} and is {column.data_type} now: the table was "
                "rewritten, and the stream does not have its rows",
                f'{ANEW}; or on_rewrite="ignore", if the older rows may keep their values',
                is_rewrite=True,
            )
        elif old is None and column.name in names:
            yield TableDifference(
                f"{name}: column {column.name!r} was dropped and added again: older rows would keep their values", ANEW
            )
        elif old is None and column.default:
            yield TableDifference(
                f"{name}: the new column {column.name!r} has a default for older rows, which the stream does not have",
                f'{ANEW}; or on_rewrite="ignore", and older rows stay null in it',
                is_rewrite=True,
            )
    for column in table.unsent:
        if column.number in before:
            yield TableDifference(f"{name}: the stream does not have column {column.name!r} any more", ANEW)
    yield from _of_unseen_columns(known, table)


def _of_unseen_columns(known: Table, table: Table) -> Iterator[TableDifference]:
    """Yield a difference if a new column may have the name of one that came and went since the last look."""
    before = {column.number for column in (*known.columns, *known.unsent)}
    unseen = {*table.gone} - {*known.gone} - before
    for column in table.columns:
        if unseen and column.number not in before and column.number > min(unseen):
            yield TableDifference(
                f"table {known.name}: a column came and went before {column.name!r} came; if it had the same name, "
                "older rows would keep its values",
                f'{ANEW}; or on_rewrite="ignore" once, if it had another one',
                is_rewrite=True,
            )


def _of_files(known: Table, table: Table) -> Iterator[TableDifference]:
    name = f"table {known.name}"
    before, now = ({file.oid: file for file in form.files} for form in (known, table))
    if before.keys() - now.keys():
        yield TableDifference(f"{name} has lost a partition, with its rows", ANEW, is_rewrite=True)
    if any(now[oid].attached for oid in now.keys() - before.keys()):
        yield TableDifference(
            f"{name} has got a partition that was a table before, with its rows", ANEW, is_rewrite=True
        )
    if rewritten := _rewritten(known, table):
        old, new = before[rewritten[0]].number, now[rewritten[0]].number
        yield TableDifference(
            f"{name} was rewritten (file {old}, now {new}): by alter table its rows may have other values, which the "
            "stream does not have",
            f"{_ALIKE}{ANEW}",
            is_rewrite=True,
            writers=frozenset(now[oid].writer for oid in rewritten),
        )


def _rewritten(known: Table, table: Table) -> list[int]:
    """Return the oids of the table and its partitions whose files are others now."""
    before = {file.oid: file.number for file in known.files}
    return [file.oid for file in table.files if before.get(file.oid, file.number) != file.number]


def _listed(keys: tuple[str, ...]) -> str:
    return ", ".join(map(repr, keys)) or "none"
