"""Runs a MariaDbSource: the driver loads tables and receives the log, the executors decode what was staged."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from operator import attrgetter
from typing import Any

import pyarrow as pa

from volley.capture.rows import ManyTables, OneTable, form_of
from volley.capture.segments import Segment, grouped
from volley.connectors.mariadb.capture import Capture
from volley.connectors.mariadb.connection import connected
from volley.connectors.mariadb.known import KnownTable, KnownTables
from volley.connectors.mariadb.loads import Loads
from volley.connectors.mariadb.origin import ensure_origin
from volley.connectors.mariadb.positions import position_of
from volley.connectors.mariadb.receiver import LogReceiver
from volley.connectors.mariadb.requirements import check_server, end_of_log, selected_tables
from volley.connectors.mariadb.splits import ChangeReader, LoadedRows, MariaDbSplit, StagedChanges
from volley.connectors.mariadb.watch import Watch
from volley.contracts.reports import Lag
from volley.contracts.source import Offset, Reader, SplitReader
from volley.storage.remembered import FailureRecord

__all__ = ["MariaDbReader", "inspect"]

_SPLIT_BYTES = 1 << 20


def inspect(capture: Capture) -> ChangeReader:
    """Check the server and the tables without changing anything, and return what reads their rows."""
    with connected(capture.server, f"reading the catalog for {capture.selection}") as connection:
        check_server(connection, capture.server.dialect)
        tables = selected_tables(connection, capture)
    if capture.packed:
        return ChangeReader(capture, ManyTables(capture.nulls, capture.changelog, capture.sequence))
    (table,) = tables
    known = KnownTables(capture.state)
    known.read()
    now = (known.named(table.name) or KnownTable(table)).with_table(table)
    form = form_of(now.table, capture.nulls, capture.changelog, capture.sequence)
    return ChangeReader(capture, OneTable(form, now.dropped))


class MariaDbReader(Reader):
    """Plans loads and segments; the driver's own also receives the log."""

    acknowledges = True
    knows_lag = True

    def __init__(self, rows: ChangeReader, parallelism: int, limit: int | None) -> None:
        self.rows = rows
        self.schema = rows.output.schema
        self.parallelism = parallelism
        # Never None: that asks for all there is, where a run has a limit and an epoch reads loads or changes.
        self.limit = limit or sys.maxsize
        self._loads = Loads(rows.capture.state)
        self._receiver: LogReceiver | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_receiver": None}

    def split_reader(self) -> SplitReader:
        return self.rows

    @property
    def capture(self) -> Capture:
        """What it captures."""
        return self.rows.capture

    def read(self, split: MariaDbSplit) -> Iterator[pa.RecordBatch]:
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
            loads = min(loads, target["loads"])
        if limit is not None:
            # Loads have an epoch of their own.
            nexts = nexts[:limit] if start["loads"] >= loads else []
        return {"loads": loads, "next": nexts[-1] if nexts else start["next"]}

    def splits(self, start: Offset, end: Offset) -> list[MariaDbSplit]:
        loads = list(self._load_splits(start, end))
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
        share = max(_SPLIT_BYTES, sum(segment.size for segment in segments) / self.parallelism)
        groups = grouped(segments, attrgetter("size"), share)
        return [*loads, *(StagedChanges(tuple(segment.first for segment in group), fences) for group in groups)]

    def committed(self, offset: Offset) -> None:
        self._loads.delete_to(offset["loads"])
        self.capture.segments.delete_before(offset["next"])

    def lag(self, offset: Offset) -> Lag:
        segments = self.capture.segments
        unread = [segment for segment in segments.listed() if segment.first >= offset["next"]]
        rows, seconds = 0, 0.0
        if unread:
            rows = segments.chain(0).next - offset["next"]
            seconds = max(0.0, time.time() - segments.last_commit(unread[0].first))
        return Lag(
            str(self.capture.selection.only or self.capture.selection),
            rows=rows,
            seconds=seconds,
            staged_bytes=sum(segment.size for segment in unread),
        )

    def start(self) -> None:
        capture = self.capture
        watch = Watch(capture)
        with connected(capture.server, "starting to read the binary log") as connection:
            origin = ensure_origin(connection, capture.server.dialect, capture.state)
            watch.begin(selected_tables(connection, capture))
            end = end_of_log(connection, capture.server.dialect)
        self._failure.clear()
        self._receiver = LogReceiver(capture, origin, watch, self._failure)
        try:
            self._receiver.start()
            if capture.bounded:
                self._receiver.wait_for(position_of(end.file, end.offset))
        except BaseException:
            self._receiver.stop()
            raise

    def stop(self) -> None:
        if self._receiver:
            self._receiver.stop()

    def _nexts(self, start: int) -> list[int]:
        """Return where the segments from a message on end: the number of the message after each."""
        listed = self.capture.segments.listed()
        if not listed or listed[-1].first < start:
            return []
        firsts = [segment.first for segment in listed if segment.first > start]
        return [*firsts, self.capture.segments.chain(0).next]

    def _load_splits(self, start: Offset, end: Offset) -> Iterator[MariaDbSplit]:
        for load in self._loads.listed()[start["loads"] : end["loads"]]:
            files: list[int | None] = [*range(load.files)]
            if load.anew and not self.capture.sequence:
                files.insert(0, None)
            for file in files:
                yield LoadedRows(load.number, load.table, file, start["next"], load.position)

    @property
    def _failure(self) -> FailureRecord:
        """The receiver's error, for the copy of the reader that is asked for offsets, maybe in another process."""
        return FailureRecord(f"{self.capture.state}/failure.json")
