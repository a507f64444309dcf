"""Runs a PostgresSource: the driver receives the stream, the executors load tables and decode what was staged."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from operator import attrgetter
from typing import Any

import pyarrow as pa
from psycopg2.extensions import connection as Connection

from volley.capture.rows import ManyTables, OneTable, form_of
from volley.capture.segments import Segment, grouped
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
from volley.connectors.postgres.splits import ChangeReader, PostgresSplit, StagedChanges, TableLoad, TableLoads
from volley.connectors.postgres.tables import describe_all
from volley.connectors.postgres.watch import Watch
from volley.contracts.reports import Lag
from volley.contracts.source import Offset, Reader, SplitReader
from volley.errors import SourceError
from volley.storage.remembered import FailureRecord

__all__ = ["PostgresReader", "inspect"]

_log = logging.getLogger(__name__)
_SPLIT_BYTES = 1 << 20
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


class PostgresReader(Reader):
    """Plans loads and segments; the driver's own also receives the stream."""

    acknowledges = True
    knows_lag = True

    def __init__(self, rows: ChangeReader, parallelism: int, limit: int | None) -> None:
        self.rows = rows
        self.schema = rows.output.schema
        self.parallelism = parallelism
        # Never None: that asks for all there is, where a run has a limit and an epoch reads loads or changes.
        self.limit = limit or sys.maxsize
        self._loads = Loads(rows.capture.state)
        self._receiver: SlotReceiver | None = None
        self._snapshot: ExportedSnapshot | None = None
        self._snapshot_loads = 0
        self._kept: KeptConnection | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_receiver": None, "_snapshot": None, "_kept": None}

    def split_reader(self) -> SplitReader:
        return self.rows

    @property
    def capture(self) -> Capture:
        """What it captures."""
        return self.rows.capture

    def read(self, split: PostgresSplit) -> Iterator[pa.RecordBatch]:
        return self.rows.read(split)

    def initial_offset(self) -> Offset:
        return {"loads": 0, "next": 1}

    def latest_offset(self, start: Offset, limit: int | None, target: Offset | None) -> Offset:
        if failure := self._failure.read():
            raise failure
        nexts = self._nexts(start["next"])
        # After the segments are listed: a table's load is recorded before a segment with its changes is there.
        loads = len(self._loads.listed())
        if target is not None:
            nexts = [number for number in nexts if number <= target["next"]]
            loads = self._loads.with_repetitions(min(loads, target["loads"]))
        if start["loads"] >= self._snapshot_loads:
            self._close_snapshot()
        if limit is not None:
            # Loads have an epoch of their own: what comes instead of one that is repeated, comes before all changes.
            nexts = nexts[:limit] if start["loads"] >= loads else []
        return {"loads": loads, "next": nexts[-1] if nexts else start["next"]}

    def splits(self, start: Offset, end: Offset) -> list[PostgresSplit]:
        loads = self._load_splits(start, end)
        segments = [
            segment for segment in self.capture.segments.listed() if start["next"] <= segment.first < end["next"]
        ]
        if start["next"] < end["next"] and (not segments or segments[0].first != start["next"]):
            # Reading it says that it is gone.
            segments.insert(0, Segment(start["next"], 0))
        if not segments:
            return [*loads]
        # By sequence, what a load has seen may come again: it settles whatever the load has.
        fences = {} if self.capture.sequence else self._loads.fences(end["loads"])
        # Nor more of changes, if they are small.
        share = max(_SPLIT_BYTES, sum(segment.size for segment in segments) / self.parallelism)
        groups = grouped(segments, attrgetter("size"), share)
        return [*loads, *(StagedChanges(tuple(segment.first for segment in group), fences) for group in groups)]

    def committed(self, offset: Offset) -> None:
        if offset["loads"] >= self._snapshot_loads:
            self._close_snapshot()
        self.capture.segments.delete_before(offset["next"])

    def lag(self, offset: Offset) -> Lag:
        segments = self.capture.segments
        unread = [segment for segment in segments.listed() if segment.first >= offset["next"]]
        rows, seconds = 0, 0.0
        if unread:
            rows = segments.chain(0).next - offset["next"]
            seconds = max(0.0, time.time() - segments.last_commit(unread[0].first))
        return Lag(
            str(self.capture.selection.only or self.capture.slot),
            rows=rows,
            seconds=seconds,
            staged_bytes=sum(segment.size for segment in unread),
            retained_bytes=self._retained(),
        )

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
        self._receiver = SlotReceiver(capture, origin, watch, self._failure)
        try:
            self._receiver.start()
            if capture.bounded:
                self._receiver.wait_for(end)
        except BaseException:
            # Also if the user interrupts the wait: it would take the slot from the next run.
            self._receiver.stop()
            raise

    def stop(self) -> None:
        if self._receiver:
            self._receiver.stop()
        if self._kept:
            self._kept.close()
        self._close_snapshot()

    def _nexts(self, start: int) -> list[int]:
        """Return where the segments from a message on end: the number of the message after each."""
        listed = self.capture.segments.listed()
        if not listed or listed[-1].first < start:
            return []
        firsts = [segment.first for segment in listed if segment.first > start]
        return [*firsts, self.capture.segments.chain(0).next]

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

    @property
    def _failure(self) -> FailureRecord:
        """The receiver's error, for the copy of the reader that is asked for offsets, maybe in another process."""
        return FailureRecord(f"{self.capture.state}/failure.json")


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
