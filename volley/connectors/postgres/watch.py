"""Watches the catalog while the stream is received: tables that join, and changes that the stream does not carry."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, replace

import numpy as np
import psycopg2
from psycopg2.extensions import connection as Connection

from volley.capture.selection import Selection
from volley.connectors.postgres.capture import Capture
from volley.connectors.postgres.catalog import Member, PrintedType, fingerprint, members, printed_types
from volley.connectors.postgres.connection import KeptConnection, lsn_number, query
from volley.connectors.postgres.known import (
    CapturedTable,
    CapturedTables,
    TableDifference,
    difference,
    identity_difference,
)
from volley.connectors.postgres.loads import Fence, Load, Loads
from volley.connectors.postgres.messages import relation_of, truncated
from volley.connectors.postgres.publication import check_has, check_writers, lacks_root
from volley.connectors.postgres.requirements import check_changes
from volley.connectors.postgres.tables import Table, describe, describe_all, described
from volley.errors import SourceError

__all__ = ["Watch"]

_log = logging.getLogger(__name__)
Signature = tuple[str, Member, tuple[PrintedType, ...]]
_LOOK_SECONDS = 5.0
_VISIBLE_SECONDS = 5.0
# A page of the server's log, and the longest header of one (src/include/access/xlog_internal.h).
_PAGE_BYTES, _LONGEST_HEADER = 8192, 40
_ENTRIES = """
    select c.oid::bigint, concat_ws(' ', c.relfilenode, c.xmin, case when c.relkind = 'p' then (
        select string_agg(concat_ws(':', m.oid, m.relfilenode, m.xmin), ' ' order by m.oid)
        from pg_partition_tree(c.oid) t join pg_class m on m.oid = t.relid
    ) end) from pg_class c where c.oid = any(%s::bigint[]::oid[])
"""


@dataclass(frozen=True)
class _Suspect:
    """A table with new files that a truncation may have made, whose message is still in the stream."""

    table: Table
    difference: TableDifference
    position: int  # the position in the server's log before which the message would be


def _signatures(connection: Connection, publication: str, selection: Selection) -> dict[int, Signature]:
    """Return by the oids of the tables that a publication has and a source reads what tells that they changed."""
    captured = {member.oid: member for member in members(connection, publication) if member.name in selection}
    printed = printed_types(connection, [*captured])
    entries: dict[int, str] = dict(query(connection, _ENTRIES, [*captured]))
    return {oid: (entries[oid], member, printed[oid]) for oid, member in captured.items() if oid in entries}


class Watch:
    """Compares tables with what is known of them: at each description in the stream, and every few seconds."""

    def __init__(self, capture: Capture) -> None:
        self._capture = capture
        self._publication = capture.publication
        self._selection = capture.selection
        # Rows of a changelog are not found by the table's key.
        self._is_keyed = not capture.changelog
        self._connection = KeptConnection(capture.server)
        self._known = CapturedTables(capture.state)
        self._loads = Loads(capture.state)
        self._signatures: dict[int, Signature] = {}
        self._fingerprint: int | None = None
        self._absent: set[int] = set()
        self._joined: list[Table] = []
        self._suspects: dict[int, _Suspect] = {}
        self._looked = 0.0

    def resume(self) -> None:
        """Read what is known, which another receiver may have changed, and look at all tables."""
        self._known.read()
        self._fingerprint = None
        for known in [known for known in self._known if known.table.name not in self._selection]:
            self._known.forget(known)
        self.look()

    def look(self) -> None:
        """Look at all tables, if anything in the catalog has changed since the last time.

        Raises:
            SourceError: If a table has changed in a way that stops the job.
        """
        self._looked = time.monotonic()
        with self._connection.opened() as connection:
            # Read first: what changes meanwhile changes it once more.
            now = fingerprint(connection, self._publication, self._signatures)
            if now == self._fingerprint:
                return
            signatures = _signatures(connection, self._publication, self._selection)
            for table in [known.table for known in self._known if known.table.oid not in signatures]:
                self._miss(connection, table)
            changed = [oid for oid, signature in signatures.items() if self._signatures.get(oid) != signature]
            for table in describe_all(connection, changed, self._publication).values():
                self._compare(connection, table)
            self._keep_joined()
            self._signatures.update({oid: signatures[oid] for oid in changed})
            self._fingerprint = now

    def run(self, sql: str) -> None:
        """Run a statement on its connection."""
        with self._connection.opened() as connection:
            query(connection, sql)

    def close(self) -> None:
        """End its connection; a later look makes another one."""
        self._connection.close()

    def look_if_due(self) -> None:
        """Look at all tables, if the last time is some seconds ago."""
        if time.monotonic() - self._looked >= _LOOK_SECONDS:
            self.look()

    def describe(self, message: bytes, xid: int) -> bytes | None:
        """Return the message that tells a table's form, for the stream's description of it.

        Returns:
            The message; None if the source does not read the table.

        Raises:
            SourceError: If the table has changed in a way that stops the job.
            psycopg2.OperationalError: If the catalog does not show what the transaction did.
        """
        relation = relation_of(message)
        with self._connection.opened() as connection:
            _wait_for(connection, xid)
            table = self._look_at(connection, relation.oid) if self._captures(connection, relation.oid) else None
            if relation.oid not in self._known:
                return None
            known = self._known[relation.oid]
            change = identity_difference(table or known.table, relation) if self._is_keyed else None
            if change is not None:
                self._resolve(known, table or known.table, change)
            form = described(connection, relation, (table or known.table).keys, known.bases)
            if table is not None:
                self._known.keep(known.with_dropped({*form.names} - {*table.names}))
            # A table that was renamed for a while, and is named as before again, has its name all the time.
            return replace(form, name=known.table.name).to_message()

    def truncated(self, message: bytes, xid: int) -> None:
        """Take note of a truncation in the stream, which explains new files of its tables."""
        with self._connection.opened() as connection:
            for oid in truncated(message):
                if oid in self._known:
                    self._known.keep(self._known[oid].with_truncation(xid))
                    self._look_at(connection, oid)

    @property
    def undecided(self) -> int:
        """The position from which on all tables with new files are decided about; 0 = there is none."""
        return max((suspect.position for suspect in self._suspects.values()), default=0)

    def passed(self, position: int) -> None:
        """Decide about tables with new files, once the stream has come to a position without their truncation.

        Raises:
            SourceError: If one was rewritten, and that stops the job.
        """
        for oid, suspect in list(self._suspects.items()):
            if suspect.position <= position:
                del self._suspects[oid]
                self._resolve(self._known[oid], suspect.table, suspect.difference)

    def _captures(self, connection: Connection, oid: int) -> bool:
        published = members(connection, self._publication, oid)
        return oid in self._known or any(member.name in self._selection for member in published)

    def _miss(self, connection: Connection, table: Table) -> None:
        """Stop the job if the publication no longer has a table that it needs; warn if it may do without."""
        now = describe(connection, table.oid, self._publication)
        if now is None or now.name != table.name or now.name not in self._selection:
            return
        if now.name in self._selection.named or lacks_root(connection, self._publication, table.oid):
            check_has(connection, self._publication, now.name)
        if table.oid not in self._absent:
            self._absent.add(table.oid)
            _log.warning(
                "publication %s does not have table %s any more: its changes are not captured",
                *(self._publication, table.name),
            )

    def _look_at(self, connection: Connection, oid: int) -> Table | None:
        table = describe(connection, oid, self._publication)
        table = table and self._compare(connection, table)
        self._keep_joined()
        return table

    def _compare(self, connection: Connection, table: Table) -> Table | None:
        """Compare a table with what is known of it; return None if it is not captured now."""
        oid = table.oid
        # One that the publication does not have any more is compared with what is known when it has it again.
        if table.membership is None:
            return None
        if not table.columns and oid not in self._known and table.name not in self._selection.named:
            _log.warning("table %s has no columns: it joins when it has one", table.name)
            return None
        check_changes(connection, self._publication, table, self._is_keyed, self._capture.sequence)
        if oid not in self._known:
            self._join(connection, table)
            return table
        known = self._known[oid]
        if (known.table.identity, known.table.unsent) != (table.identity, table.unsent):
            self._warn_of_writers(connection, table)
        change = difference(known.table, known.dropped, table, self._is_keyed)
        if change is None or _is_explained(change, known):
            self._suspects.pop(oid, None)
            self._known.keep(known.with_table(table))
        elif change.writers is None:
            self._resolve(known, table, change)
        elif oid not in self._suspects or self._suspects[oid].table != table:
            self._suspects[oid] = _Suspect(table, change, _inserted(connection))
            self._known.keep(known.with_table(replace(table, files=known.table.files)))
        return table

    def _join(self, connection: Connection, table: Table) -> None:
        """Add a table; if another one had its name before, its rows are deleted."""
        earlier = self._known.named(table.name)
        if not table.keys:
            _log.warning("table %s has no key: its changes can only be appended", table.name)
        self._warn_of_writers(connection, table)
        if earlier is not None:
            change = difference(earlier.table, earlier.dropped, table, self._is_keyed)
            assert change is not None
            self._resolve(earlier, table, change)
            return
        self._joined.append(table)

    def _keep_joined(self) -> None:
        """Keep the tables that have joined: their loads first, without which they would lack rows."""
        joined, self._joined = self._joined, []
        if self._capture.loads:
            self._loads.add(*(Load(0, table.oid) for table in joined))
        self._known.keep(*map(CapturedTable, joined))

    def _warn_of_writers(self, connection: Connection, table: Table) -> None:
        """Warn if those who write to a table fail, as it is published."""
        if table.kind == "r" and table.keys and table.identity in "di":
            return
        try:
            check_writers(connection, [table.name], ())
        except SourceError as error:
            # A publication of all tables, or of a schema, has each from its first moment.
            _log.warning("%s; publication %s has it: %s", error.message, self._publication, error.hint)

    def _resolve(self, known: CapturedTable, table: Table, change: TableDifference) -> None:
        """Load a table again, or raise the error that stops the job."""
        # A changelog promises all events, and no table that is equal.
        policy = self._capture.on_rewrite if self._is_keyed or change.is_loss else "ignore"
        if _is_explained(change, known) or (change.is_rewrite and policy == "ignore"):
            self._known.keep(known.with_table(table))
        elif policy == "reload":
            _log.warning("%s: it is loaded again", change.reason)
            self._loads.add(Load(0, table.oid, anew=True, replaced=known.table.oid))
            self._known.keep(known.with_table(table))
        else:
            raise SourceError(change.reason, hint=change.hint)


def _inserted(connection: Connection) -> int:
    """Return where the server's log ends, also what is not flushed yet.

    A truncation that does not wait for its log is visible before it is flushed. At the start of a page the server names
    the place behind the page's header, to which the stream does not come before the next record.
    """
    ((text,),) = query(connection, "select pg_current_wal_insert_lsn()::text")
    position = lsn_number(text)
    place = position % _PAGE_BYTES
    return position - place if place <= _LONGEST_HEADER else position


def _wait_for(connection: Connection, xid: int) -> None:
    """Wait until a transaction of the stream is visible: the server sends it a moment before, as soon as it is logged.

    A commit that waits for a standby is visible only after that.
    """
    deadline = time.monotonic() + _VISIBLE_SECONDS
    while True:
        ((seen,),) = query(connection, "select pg_current_snapshot()::text")
        if Fence.of(seen, 1).has(np.zeros(1), np.array([xid])).all():
            return
        if time.monotonic() > deadline:
            raise psycopg2.OperationalError(
                f"transaction {xid} of the stream is not visible after {_VISIBLE_SECONDS:.0f} s"
            )
        time.sleep(0.01)


def _is_explained(change: TableDifference, known: CapturedTable) -> bool:
    """Return True if the stream has truncations that made the table's new files."""
    return change.writers is not None and change.writers <= {*known.truncations}
