"""Finds changes of a table that the stream does not carry, by what the catalog said before."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from operator import attrgetter

from volley.connectors.postgres.messages import Relation
from volley.connectors.postgres.settings import ANEW
from volley.connectors.postgres.tables import Table

__all__ = ["Difference", "difference", "identity_difference"]

_ALIKE = 'if it was by vacuum full or cluster, which change no values: on_rewrite="ignore" once; else '


@dataclass(frozen=True)
class Difference:
    """A change that the stream does not carry.

    Args:
        reason: What has changed.
        hint: What to do if the table is not loaded again.
        is_rewrite: True if columns and key are the same, and rows may have other values, or not.
        writers: The transactions that gave the table its new files; None = it has other differences, too.
        is_loss: True if changes themselves may be missing in the stream, not only values of older rows.
    """

    reason: str
    hint: str
    is_rewrite: bool = False
    writers: frozenset[int] | None = None
    is_loss: bool = False


def difference(known: Table, dropped: frozenset[str], table: Table, is_keyed: bool) -> Difference | None:
    """Return the first difference between a table and what was known of it; None if the stream carries all.

    Mere rewrites come last: where they are ignored, no other difference may hide behind one.

    Args:
        known: What is known of it.
        dropped: The names of columns that it had once.
        table: The table now.
        is_keyed: True if the table's key counts.
    """
    return min(_differences(known, dropped, table, is_keyed), key=attrgetter("is_rewrite"), default=None)


def identity_difference(table: Table, relation: Relation) -> Difference | None:
    """Return a difference if rows that the stream describes were deleted without the key that the table has now.

    Args:
        table: The table.
        relation: The stream's description, which may be older.
    """
    identity = tuple(column.name for column in relation.columns if column.is_identity)
    # Without any, the server refuses updates and deletes.
    if not identity or {*table.keys} <= {*identity}:
        return None
    return Difference(
        f"table {table.name}: its replica identity was {_listed(identity)} for a while, without the key "
        f"{_listed(table.keys)}: rows that were deleted then can't be told apart",
        f'on_rewrite="reload" loads the table once more; or {ANEW}',
    )


def _differences(known: Table, dropped: frozenset[str], table: Table, is_keyed: bool) -> Iterator[Difference]:
    name = f"table {known.name}"
    if known.oid != table.oid:
        yield Difference(f"{name} was made anew (oid {known.oid}, now {table.oid})", ANEW)
    if known.name != table.name:
        yield Difference(f"{name} is named {table.name} now", f"name it {known.name.table!r} again; or {ANEW}")
    yield from _of_columns(known, dropped, table)
    if is_keyed and known.keys != table.keys:
        # A deleted row has the values of its key alone, of whichever it was then.
        yield Difference(f"{name}: its key was {_listed(known.keys)} and is {_listed(table.keys)} now", ANEW)
    yield from _of_publication(known, table)
    yield from _of_printed_types(known, table)
    yield from _of_files(known, table)


def _of_publication(known: Table, table: Table) -> Iterator[Difference]:
    # A job's state of an earlier version does not have the membership.
    if known.membership and table.membership and not known.membership.is_kept_by(table.membership):
        yield Difference(
            f"publication {table.membership.name!r} was altered since the last look: the stream may lack changes of "
            f"table {known.name}",
            f'if none were left out, as by another owner: on_rewrite="ignore" once; else {ANEW}',
            is_rewrite=True,
            is_loss=True,
        )


def _of_printed_types(known: Table, table: Table) -> Iterator[Difference]:
    before = {(printed.column, printed.oid): printed for printed in known.printed}
    names = {column.number: column.name for column in (*table.columns, *table.unsent)}
    for printed in table.printed:
        old = before.get((printed.column, printed.oid))
        if old is not None and (change := old.changed(printed)):
            yield Difference(
                f"table {known.name}: type {printed.name} of column {names[printed.column]!r} was altered: {change} "
                "now, which the stream does not say of the rows before",
                f'{ANEW}; or on_rewrite="ignore", and older rows keep their texts',
                is_rewrite=True,
            )


def _of_columns(known: Table, dropped: frozenset[str], table: Table) -> Iterator[Difference]:
    name = f"table {known.name}"
    before = {column.number: column for column in known.columns}
    unsent = {column.number for column in known.unsent}
    names = {*known.names} | dropped
    for column in table.columns:
        old = before.get(column.number)
        if column.number in unsent:
            yield Difference(
                f"{name}: the stream has column {column.name!r} now, which it did not have of the rows before",
                f'{ANEW}; or on_rewrite="ignore", and older rows stay null in it',
                is_rewrite=True,
            )
        elif old is not None and old.name != column.name:
            yield Difference(
                f"{name}: column {old.name!r} is named {column.name!r} now, which the stream does not say of the rows "
                "before",
                f"name it {old.name!r} again, and rename it behind the source; or {ANEW}",
            )
        elif old is not None and old.data_type != column.data_type and _rewritten(known, table):
            yield Difference(
                f"{name}: column {column.name!r} was {old.data_type} and is {column.data_type} now: the table was "
                "rewritten, and the stream does not have its rows",
                f'{ANEW}; or on_rewrite="ignore", if the older rows may keep their values',
                is_rewrite=True,
            )
        elif old is None and column.name in names:
            yield Difference(
                f"{name}: column {column.name!r} was dropped and added again: older rows would keep their values", ANEW
            )
        elif old is None and column.default:
            yield Difference(
                f"{name}: the new column {column.name!r} has a default for older rows, which the stream does not have",
                f'{ANEW}; or on_rewrite="ignore", and older rows stay null in it',
                is_rewrite=True,
            )
    for column in table.unsent:
        if column.number in before:
            yield Difference(f"{name}: the stream does not have column {column.name!r} any more", ANEW)
    yield from _of_unseen_columns(known, table)


def _of_unseen_columns(known: Table, table: Table) -> Iterator[Difference]:
    """Yield a difference if a new column may have the name of one that came and went since the last look."""
    before = {column.number for column in (*known.columns, *known.unsent)}
    unseen = {*table.gone} - {*known.gone} - before
    for column in table.columns:
        if unseen and column.number not in before and column.number > min(unseen):
            yield Difference(
                f"table {known.name}: a column came and went before {column.name!r} came; if it had the same name, "
                "older rows would keep its values",
                f'{ANEW}; or on_rewrite="ignore" once, if it had another one',
                is_rewrite=True,
            )


def _of_files(known: Table, table: Table) -> Iterator[Difference]:
    name = f"table {known.name}"
    before, now = ({file.oid: file for file in each.files} for each in (known, table))
    if before.keys() - now.keys():
        yield Difference(f"{name} has lost a partition, with its rows", ANEW, is_rewrite=True)
    if any(now[oid].attached for oid in now.keys() - before.keys()):
        yield Difference(f"{name} has got a partition that was a table before, with its rows", ANEW, is_rewrite=True)
    if rewritten := _rewritten(known, table):
        old, new = before[rewritten[0]].number, now[rewritten[0]].number
        yield Difference(
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
