"""Notices changes of a table that the stream does not carry, by what its catalog said before."""

from __future__ import annotations

import json
from typing import Any

from volley.connectors.postgres.settings import ANEW
from volley.connectors.postgres.tables import Table
from volley.errors import SourceError
from volley.storage.durable import write_durably
from volley.storage.paths import filesystem
from volley.storage.remembered import damaged

__all__ = ["KnownTable"]


class KnownTable:
    """A table as the job knows it: kept in the source's state.

    Args:
        state: The fsspec URL of the source's state folder.
        accepts_rewrites: True: the rows that a rewrite of the table has changed are left as they are.
    """

    def __init__(self, state: str, accepts_rewrites: bool) -> None:
        self._files, self._path = filesystem(f"{state}/table.json", {})
        self._accepts_rewrites = accepts_rewrites

    def check(self, table: Table) -> None:
        """Compare the table with what is known of it.

        Raises:
            SourceError: If rows have changed without a change in the stream.
        """
        if known := self._known():
            _check(known, table, self._accepts_rewrites)

    def remember(self, table: Table) -> None:
        """Keep the table's description for later checks, with the names of the columns that it had before."""
        values = {**table.to_json(), "dropped": sorted(self.dropped(table))}
        text = json.dumps(values).encode()
        if not self._files.exists(self._path) or self._files.cat_file(self._path) != text:
            write_durably(self._files, self._path, text)

    def dropped(self, table: Table) -> frozenset[str]:
        """Return the names of columns that the table had before, and has no longer."""
        known = self._known() or {"columns": [], "dropped": []}
        earlier = {name for _, name, _ in known["columns"]} | {*known["dropped"]}
        return frozenset(earlier - {column.name for column in table.columns})

    def _known(self) -> dict[str, Any] | None:
        if not self._files.exists(self._path):
            return None
        try:
            known: dict[str, Any] = json.loads(self._files.cat_file(self._path))
        except ValueError as error:
            raise damaged(self._path, "is damaged") from error
        return known


def _check(known: dict[str, Any], table: Table, accepts_rewrites: bool) -> None:
    name = table.name
    if known["oid"] != table.oid:
        raise SourceError(f"table {name} was made anew (oid {known['oid']}, now {table.oid})", hint=ANEW)
    before = {number: (name, data_type) for number, name, data_type in known["columns"]}
    names = {name for name, _ in before.values()} | {*known["dropped"]}
    for column in table.columns:
        old_name, old_type = before.get(column.number, (column.name, str(column.data_type)))
        if old_name != column.name:
            raise SourceError(
                f"table {name}: column {old_name!r} is named {column.name!r} now, which the stream does not say of the "
                "rows before",
                hint=f"name it {old_name!r} again, and rename it behind the source; or {ANEW}",
            )
        if old_type != str(column.data_type):
            raise SourceError(
                f"table {name}: column {column.name!r} was {old_type} and is {column.data_type} now: the table was "
                "rewritten, and the stream does not have its rows",
                hint=ANEW,
            )
        if column.number not in before and column.name in names:
            raise SourceError(
                f"table {name}: column {column.name!r} was dropped and added again: older rows would keep their values",
                hint=ANEW,
            )
        if column.number not in before and column.default and not accepts_rewrites:
            raise SourceError(
                f"table {name}: the new column {column.name!r} has a default for older rows, which the stream does not "
                "have",
                hint=f'{ANEW}; or on_rewrite="ignore", and older rows stay null in it',
            )
    if known["storage"] != table.storage and not accepts_rewrites:
        raise SourceError(
            f"table {name} was rewritten (file {known['storage']}, now {table.storage}): by alter table its rows may "
            "have other values, which the stream does not have",
            hint=f'if it was by vacuum full or cluster, which change no values: on_rewrite="ignore" once; else {ANEW}',
        )
