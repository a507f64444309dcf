"""Follows what the log does to tables: their forms, and changes of rows that it does not carry."""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import replace

from volley.capture.selection import TableName
from volley.connectors.mariadb.capture import Capture
from volley.connectors.mariadb.connection import Connection, connect, is_lost
from volley.connectors.mariadb.known import KnownTable, KnownTables, difference
from volley.connectors.mariadb.loads import Loads
from volley.connectors.mariadb.requirements import check_table
from volley.connectors.mariadb.settings import ANEW
from volley.connectors.mariadb.statements import (
    Altered,
    Created,
    Dropped,
    Effect,
    Filled,
    Renamed,
    RowsChanged,
    Truncated,
)
from volley.connectors.mariadb.tables import Charsets, Table, charsets, described, mapped, table_name_of
from volley.errors import SourceError

__all__ = ["Watch"]

_log = logging.getLogger(__name__)


class Watch:
    """Knows the tables of a source as the log has described them so far."""

    def __init__(self, capture: Capture) -> None:
        self._capture = capture
        self._known = KnownTables(capture.state)
        self._loads = Loads(capture.state)
        self._connection: Connection = None
        self._charsets: Charsets = {}

    def resume(self) -> None:
        """Read what is known, which another receiver may have changed."""
        self._known.read()

    def begin(self, tables: list[Table]) -> None:
        """Load the tables that are not known yet, as a run starts."""
        self.resume()
        names = {table.name for table in tables if (known := self._known.named(table.name)) is None or known.is_gone}
        if not names:
            return
        if self._capture.loads:
            loaded = self._load(sorted(names, key=str))
        else:
            loaded = [table for table in tables if table.name in names]
        for table in loaded:
            self._keep(table)

    def close(self) -> None:
        """End its connection; a later look makes another one."""
        if self._connection is not None:
            with suppress(Exception):
                self._connection.close()
        self._connection = None

    def describe(self, body: bytes) -> tuple[int, Table] | None:
        """Return the number and the form of a table that an event describes; None if the source does not read it.

        Raises:
            SourceError: If it has changed in a way that stops the job.
        """
        name = table_name_of(body)
        if name not in self._capture.selection:
            return None
        now = self._look(name)
        table = mapped(body, self._charsets, now)
        known = self._known.named(name)
        if known is None:
            check_table(self._opened(), self._capture, table)
        elif reason := difference(known, table, self._capture.is_keyed):
            self._resolve(name, reason)
        number = self._keep(table)
        # What the catalog does not have any more was dropped later in the log.
        later = {*table.names} - {*now.names} if now else {*table.names}
        self._known.keep(self._known.numbered()[number].with_dropped(later))
        return number, table

    def known_table(self, name: TableName) -> tuple[int, Table] | None:
        """Return the number and the form of a table that was described before."""
        number = self._known.number(name)
        return None if number is None else (number, self._known.numbered()[number].table)

    def apply(self, effect: Effect) -> None:
        """Take note of what a statement did.

        Raises:
            SourceError: If rows have changed otherwise than the log tells, and that stops the job.
        """
        if isinstance(effect, RowsChanged):
            for name in effect.tables:
                if self._is_read(name):
                    reason = f"a statement changed table {name}, and the log has it instead of the rows"
                    self._resolve(name, f"{reason} (binlog_format of a session)", is_loss=True)
        elif isinstance(effect, Altered):
            self._alter(effect)
        elif isinstance(effect, Dropped):
            for known in self._of(effect.table):
                self._leave(known, "was dropped")
        elif isinstance(effect, Created):
            earlier = self._known.named(effect.table)
            if earlier is not None and (earlier.is_gone or effect.replaces):
                self._resolve(effect.table, f"table {effect.table} was dropped and made again")
        elif isinstance(effect, Renamed):
            self._rename(effect)
        elif isinstance(effect, Filled):
            if effect.table in self._capture.selection:
                self._resolve(effect.table, f"table {effect.table} has rows of another one by {effect.clause!r}")
        else:
            assert isinstance(effect, Truncated)

    def _alter(self, effect: Altered) -> None:
        known = self._known.named(effect.table)
        if known is None or known.is_gone:
            return
        again = {*effect.added} & ({*known.table.names} | known.dropped)
        # Kept first: a table that is loaded again has another form.
        self._known.keep(known.with_dropped(effect.dropped))
        if effect.filled:
            self._resolve(
                effect.table, f"table {effect.table} was altered by {effect.filled!r}, which changes its rows"
            )
        elif again:
            self._resolve(
                effect.table,
                f"table {effect.table} has columns again, whose earlier values are gone: {', '.join(sorted(again))}",
            )

    def _rename(self, effect: Renamed) -> None:
        if (known := self._known.named(effect.table)) is not None:
            self._leave(known, f"has the name {effect.name} now")
        if effect.name in self._capture.selection:
            self._resolve(
                effect.name, f"table {effect.name} had the name {effect.table}, under which it has other rows"
            )

    def _leave(self, known: KnownTable, reason: str) -> None:
        if not known.is_gone:
            _log.warning("table %s %s: its rows stay in the lake", known.table.name, reason)
            self._known.keep(replace(known, is_gone=True))

    def _of(self, name: TableName) -> list[KnownTable]:
        """Return a known table, or all of a database."""
        return [
            known
            for known in self._known
            if known.table.name == name or (name.table == "*" and known.table.name.schema == name.schema)
        ]

    def _is_read(self, name: TableName) -> bool:
        known = self._known.named(name)
        return known is not None and not known.is_gone and name in self._capture.selection

    def _resolve(self, name: TableName, reason: str, is_loss: bool = False) -> None:
        """Load a table again, go on, or raise the error that stops the job."""
        # A changelog promises all events, and no table that is equal.
        policy = self._capture.on_rewrite if self._capture.is_keyed or is_loss else "ignore"
        if policy == "reload":
            _log.warning("%s: it is loaded again", reason)
            for table in self._load([name]):
                self._keep(table)
        elif policy == "stop" or is_loss:
            raise SourceError(
                reason, hint=f'on_rewrite="reload" loads it again, "ignore" leaves rows as they are; or {ANEW}'
            )
        else:
            _log.warning("%s: rows stay as they are", reason)

    def _load(self, names: list[TableName]) -> list[Table]:
        return self._loads.stage(self._capture.server, names, self._capture.nulls)

    def _keep(self, table: Table) -> int:
        known = self._known.named(table.name)
        return self._known.keep(KnownTable(table) if known is None else known.with_table(table))

    def _look(self, name: TableName) -> Table | None:
        """Return a table as the catalog has it now."""
        try:
            return described(self._opened(), name)
        except Exception as error:
            if not is_lost(error):
                raise
            self.close()
            return described(self._opened(), name)

    def _opened(self) -> Connection:
        if self._connection is None:
            self._connection = connect(self._capture.server)
            self._charsets = charsets(self._connection)
        return self._connection
