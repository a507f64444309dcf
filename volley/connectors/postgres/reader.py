"""Runs a PostgresSource: the driver receives the stream, the executors load tables and decode what was staged."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from operator import attrgetter
from typing import Any

from psycopg2.extensions import connection as Connection

from volley.capture.reader import CaptureReader, StagedReader
from volley.capture.rows import ManyTables, OneTable, form_of
from volley.capture.segments import grouped
from volley.connectors.postgres.capture import Capture
from volley.connectors.postgres.connection import (
    KeptConnection,
    connected,
    identify,
    interruptible,
    lsn_number,
    query,
    server_errors,
)
from volley.connectors.postgres.known import CapturedTable, CapturedTables
from volley.connectors.postgres.load import MOST_PAGES, ExportedSnapshot, page_ranges
from volley.connectors.postgres.loads import Load, Loads
from volley.connectors.postgres.publication import check_may_create, ensure_publication, selected_tables
from volley.connectors.postgres.receiver import SlotReceiver
from volley.connectors.postgres.requirements import check_changes, check_server, check_tables
from volley.connectors.postgres.settings import ANEW
from volley.connectors.postgres.slot import Origin, ensure_slot, origin_record
from volley.connectors.postgres.splits import ChangeReader, PostgresSplit, TableLoad, TableLoads
from volley.connectors.postgres.tables import describe_all
from volley.connectors.postgres.watch import Watch
from volley.contracts.reports import Lag
from volley.contracts.source import Offset
from volley.errors import SourceError

__all__ = ["PostgresReader", "inspect"]

_log = logging.getLogger(__name__)
_NOTICE_SECONDS = 10.0


def inspect(capture: Capture) -> ChangeReader:
    """Check the server and the tables without changing anything, and return what reads their rows."""
    with connected(capture.server, f"reading the catalog for {capture.selection}") as connection:
        check_server(connection, capture.slot)
        identify(capture.server)
        tables = selected_tables(connection, capture.publication, capture.selection)
        check_tables(connection, tables, capture.loads)
        check_may_create(connection, capture.publication, capture.selection)
        for table in tables:
            check_changes(connection, capture.publication, table, not capture.changelog, capture.sequence)
    if capture.packed:
        _check_names(capture)
        return ChangeReader(capture, ManyTables(capture.nulls, capture.changelog, capture.sequence))
    (table,) = tables
    known = CapturedTables(capture.state)
    known.read()
    now = (known.named(table.name) or CapturedTable(table)).with_table(table)
    return ChangeReader(
        capture, OneTable(form_of(now.widest, capture.nulls, capture.changelog, capture.sequence), now.dropped)
    )


def _check_names(capture: Capture) -> None:
    """Refuse a table whose earlier rows had another name: the others would go to another table of the lake."""
    known = CapturedTables(capture.state)
    known.read()
    for name in (table.table.name for table in known if not table.is_escaped):
        if name in capture.selection:
            raise SourceError(
                f"rows of table {name} have the name {name.escaped} now, where an older Volley wrote {name}: the table "
                "would be two",
                hint=f"run once with exclude={name.setting!r}; without it then, the table is loaded anew",
            )


class PostgresReader(CaptureReader[Capture]):
    """Plans loads and segments; the driver's own also receives the stream."""

    _loads: Loads

    def __init__(self, rows: StagedReader[Capture], parallelism: int, limit: int | None) -> None:
        super().__init__(rows, Loads(rows.capture.state), parallelism, limit)
        self._snapshot: ExportedSnapshot | None = None
        self._snapshot_loads = 0
        self._kept: KeptConnection | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_snapshot": None, "_kept": None}

    def latest_offset(self, start: Offset, limit: int | None, target: Offset | None) -> Offset:
        if start["loads"] >= self._snapshot_loads:
            self._close_snapshot()
        return super().latest_offset(start, limit, target)

    def _with_repetitions(self, loads: int) -> int:
        return self._loads.with_repetitions(loads)

    def committed(self, offset: Offset) -> None:
        if offset["loads"] >= self._snapshot_loads:
            self._close_snapshot()
        super().committed(offset)

    def lag(self, offset: Offset) -> Lag:
        return replace(super().lag(offset), retained_bytes=self._retained())

    def start(self) -> None:
        capture, server = self.capture, self.capture.server
        watch = Watch(capture)
        self._loads.merge()
        with _noticed(capture.slot), connected(server, f"preparing slot {capture.slot}") as connection:
            origin = interruptible(connection, self._prepare)
            watch.resume()
            ((position,),) = query(connection, "select pg_current_wal_flush_lsn()::text")
            end = max(lsn_number(position), watch.undecided)
        self._failure.clear()
        self._receive(SlotReceiver(capture, origin, watch, self._failure), end)

    def stop(self) -> None:
        super().stop()
        if self._kept:
            self._kept.close()
        self._close_snapshot()

    def _load_splits(self, start: Offset, end: Offset) -> list[PostgresSplit]:
        listed = self._loads.listed()
        planned = listed[start["loads"] : end["loads"]]
        if not planned:
            return []
        if self._snapshot is None or self._snapshot_loads != end["loads"]:
            self._close_snapshot()
            self._snapshot, self._snapshot_loads = ExportedSnapshot(self.capture.server), end["loads"]
        before = {load.oid for load in listed[: start["loads"]]}
        return self._splits_of(self._snapshot, planned, before, start["next"])

    def _splits_of(
        self, snapshot: ExportedSnapshot, planned: list[Load], before: set[int], first: int
    ) -> list[PostgresSplit]:
        position = self._load_position(planned, before)
        anew = before | {load.oid for load in planned if load.anew}
        loads = {load.oid: load for load in self._loads.begin(planned, snapshot.fence)}
        # A table that is gone by now has no rows; the transaction that dropped it is one that the fence has.
        tables = [
            table
            for table in describe_all(snapshot.connection, loads, self.capture.publication).values()
            if table.columns and not self.capture.selection.excludes(table.name)
        ]
        pages = page_ranges(snapshot, tables, self.parallelism)
        ranges = [
            TableLoad(table, part, loads[table.oid].number, first, position)
            for table in tables
            for part in ([None] if table.oid in anew and not self.capture.sequence else []) + pages[table.oid]
        ]
        # Not more splits than are read at once, unless they are large.
        share = min(MOST_PAGES, max(1, sum(pages.size for pages in ranges) / self.parallelism))
        return [TableLoads(group) for group in grouped(ranges, attrgetter("size"), share)]

    def _load_position(self, planned: list[Load], before: set[int]) -> int:
        """Return a place in the log before all changes that loads may not have seen: where the slot begins.

        What is committed before it is visible to each snapshot since, and what is committed later is in the stream.
        """
        again = [load for load in planned if load.repeats is None and (load.anew or load.oid in before)]
        if self.capture.sequence and again:
            raise SourceError(
                f"slot {self.capture.slot!r}: a table is to be loaded again, whose rows would have no place in the log",
                hint=f"{ANEW}; or leave sequence out",
            )
        origin = origin_record(self.capture.state).read()
        return 0 if origin is None else origin.position

    def _prepare(self, connection: Connection) -> Origin:
        ensure_publication(connection, self.capture.publication, self.capture.selection)
        return ensure_slot(self.capture.server, connection, self.capture.slot, self.capture.state)

    def _close_snapshot(self) -> None:
        if self._snapshot is not None:
            self._snapshot.close()
            self._snapshot = None

    def _retained(self) -> int:
        sql = """
            select pg_wal_lsn_diff(pg_current_wal_lsn(), confirmed_flush_lsn)::bigint, wal_status
            from pg_replication_slots where slot_name = %s
        """
        server = self.capture.server
        self._kept = self._kept or KeptConnection(server)
        with server_errors(server, "measuring the lag of the slot"), self._kept.opened() as connection:
            ((retained, status),) = query(connection, sql, self.capture.slot)
        if status == "unreserved":
            _log.warning("slot %s is about to be invalidated: it is too far behind", self.capture.slot)
        return int(retained)


@contextmanager
def _noticed(slot: str) -> Iterator[None]:
    """Say so if the server lets the job wait: it does not tell a client."""
    text = "slot %s is not ready after %.0f s: the server makes it when all transactions have ended that run now, and "
    text += "a publication when no table is locked (pg_stat_activity, pg_prepared_xacts)"
    notice = threading.Timer(_NOTICE_SECONDS, _log.warning, [text, slot, _NOTICE_SECONDS])
    notice.start()
    try:
        yield
    finally:
        notice.cancel()
