"""Runs a PostgresSource: the driver receives the stream, the executors load the table and decode what was staged."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from volley.connectors.postgres.changelog import ChangelogForm
from volley.connectors.postgres.connection import connect, connected, lsn_number, query
from volley.connectors.postgres.decode import Decoder, Truncation
from volley.connectors.postgres.fence import Fence
from volley.connectors.postgres.load import PageRange, Snapshot, load, page_ranges
from volley.connectors.postgres.messages import relation_of
from volley.connectors.postgres.receiver import Receiver
from volley.connectors.postgres.remembered import KnownTable
from volley.connectors.postgres.requirements import check_server, check_table
from volley.connectors.postgres.rows import RowForm
from volley.connectors.postgres.segments import Segment, Segments
from volley.connectors.postgres.session import Slot
from volley.connectors.postgres.settings import Server, TableName
from volley.connectors.postgres.slot import ensure_publication, ensure_slot
from volley.connectors.postgres.tables import describe
from volley.errors import VolleyError
from volley.figures import Lag
from volley.source import Offset, Reader, SplitReader
from volley.storage.durable import write_durably
from volley.storage.paths import filesystem
from volley.storage.remembered import damaged, read_or_create

__all__ = ["Capture", "PostgresReader", "inspect"]

_log = logging.getLogger(__name__)
_SPLIT_BYTES = 1 << 20


@dataclass(frozen=True)
class Capture:
    """What to capture; picklable.

    Args:
        server: The server.
        table: The table's name.
        slot: The slot's name.
        publication: The publication's name.
        loads: True if the table's rows come first.
        nulls: True: values that Arrow does not have are null; False: they are errors.
        accepts_rewrites: True: rewrites of the table do not stop the job.
        changelog: True: one row an event, with the row before and after it; False: rows for an upsert.
        bounded: True: a run ends where the server's log ended when it began.
        max_staged: The most bytes of staged segments.
        heartbeat: How often to write to the database's log, in seconds; None = never.
        state: The fsspec URL of the source's state folder.
    """

    server: Server
    table: TableName
    slot: str
    publication: str
    loads: bool
    nulls: bool
    accepts_rewrites: bool
    changelog: bool
    bounded: bool
    max_staged: int
    heartbeat: float | None
    state: str

    @property
    def segments(self) -> Segments:
        """Where the stream is staged."""
        return Segments(f"{self.state}/segments")

    @property
    def known_table(self) -> KnownTable:
        """What is known of the table."""
        return KnownTable(self.state, self.accepts_rewrites)


@dataclass(frozen=True)
class ChangeReader(SplitReader):
    """Reads splits on executors: ranges of the table's pages, or staged segments.

    Args:
        capture: What to capture.
        form: The form of the rows.
        dropped: Columns that the table had once.
    """

    capture: Capture
    form: RowForm | ChangelogForm
    dropped: frozenset[str]

    def read(self, split: PageRange | tuple[int, ...]) -> Iterator[pa.RecordBatch]:
        if isinstance(split, PageRange):
            for rows in load(self.capture.server, self.form.table, split, self.capture.nulls):
                yield self.form.loaded(rows)
        else:
            for first in split:
                yield from self._changes(first)

    def _changes(self, first: int) -> Iterator[pa.RecordBatch]:
        decoder = Decoder(self.form.table, self.dropped, self._fence)
        with self.capture.segments.opened(first) as reader:
            for number in range(reader.num_record_batches):
                batch = reader.get_batch(number)
                for changes in decoder.changes(batch):
                    if isinstance(changes, Truncation):
                        yield self.form.truncated(changes, first)
                    else:
                        yield self.form.changed(changes, first)
                first += batch.num_rows

    @property
    def _fence(self) -> Fence | None:
        return _fence(self.capture.state) if self.capture.loads else None


def inspect(capture: Capture) -> ChangeReader:
    """Check the server and the table without changing anything, and return what reads its rows.

    Raises:
        SourceError: If the table can't be captured, or has changed in a way that the stream does not carry.
    """
    with connected(capture.server, f"reading the catalog of table {capture.table}") as connection:
        check_server(connection, capture.slot)
        table = describe(connection, capture.table)
        check_table(connection, table)
    capture.known_table.check(table)
    form = ChangelogForm(table, capture.nulls) if capture.changelog else RowForm(table, capture.nulls)
    return ChangeReader(capture, form, capture.known_table.dropped(table))


class PostgresReader(Reader):
    """Plans loads and segments; the driver's own also receives the stream.

    Args:
        rows: Reads the splits.
        parallelism: The number of splits that are read at the same time.
        limit: The most segments of an epoch; None = all.
    """

    def __init__(self, rows: ChangeReader, parallelism: int, limit: int | None) -> None:
        self.rows = rows
        self.schema = rows.form.schema
        self.parallelism = parallelism
        self.limit = limit
        self._receiver: Receiver | None = None
        self._snapshot: Snapshot | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_receiver": None, "_snapshot": None}

    def split_reader(self) -> SplitReader:
        return self.rows

    @property
    def capture(self) -> Capture:
        """What it captures."""
        return self.rows.capture

    def read(self, split: PageRange | tuple[int, ...]) -> Iterator[pa.RecordBatch]:
        return self.rows.read(split)

    def initial_offset(self) -> Offset:
        return {"loads": 0, "next": 1}

    def latest_offset(self, start: Offset, limit: int | None, target: Offset | None) -> Offset:
        self._raise_failure()
        loads, end = self._loads, start["next"]
        if start["loads"] == loads:
            self._close_snapshot()
        elif limit is not None:
            limit -= 1
        nexts = self._nexts(start["next"])
        if target is not None:
            nexts = [number for number in nexts if number <= target["next"]]
        nexts = nexts if limit is None else nexts[:limit]
        return {"loads": loads, "next": nexts[-1] if nexts else end}

    def splits(self, start: Offset, end: Offset) -> list[PageRange | tuple[int, ...]]:
        loads: list[PageRange | tuple[int, ...]] = []
        if end["loads"] > start["loads"]:
            loads += self._load_splits()
        segments = [
            segment for segment in self.capture.segments.listed() if start["next"] <= segment.first < end["next"]
        ]
        if start["next"] < end["next"] and (not segments or segments[0].first != start["next"]):
            # Reading it says that it is gone.
            segments.insert(0, Segment(start["next"], 0))
        return [*loads, *_grouped(segments, self.parallelism)]

    def committed(self, offset: Offset) -> None:
        if offset["loads"] == self._loads:
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
            str(self.capture.table),
            rows=rows,
            seconds=seconds,
            staged_bytes=sum(segment.size for segment in unread),
            retained_bytes=self._retained(),
        )

    def start(self) -> None:
        capture, server = self.capture, self.capture.server
        with connected(server, f"preparing slot {capture.slot}") as connection:
            ensure_publication(connection, capture.publication, self.rows.form.table)
            origin = ensure_slot(server, connection, capture.slot, capture.state)
            capture.known_table.remember(self.rows.form.table)
            ((position,),) = query(connection, "select pg_current_wal_flush_lsn()::text")
        slot = Slot(server, capture.slot, capture.publication, origin, capture.max_staged, capture.heartbeat)
        self._clear_failure()
        self._receiver = Receiver(slot, capture.segments, self._check_relation, self._keep_failure)
        self._receiver.start()
        if capture.bounded:
            self._receiver.wait_for(lsn_number(position))

    def stop(self) -> None:
        if self._receiver:
            self._receiver.stop()
        self._close_snapshot()

    @property
    def _loads(self) -> int:
        return int(self.capture.loads)

    def _nexts(self, start: int) -> list[int]:
        """Return where the segments from a message on end: the number of the message after each."""
        listed = self.capture.segments.listed()
        if not listed or listed[-1].first < start:
            return []
        firsts = [segment.first for segment in listed if segment.first > start]
        return [*firsts, self.capture.segments.chain(0).next]

    def _load_splits(self) -> list[PageRange]:
        if self._snapshot is None:
            self._snapshot = Snapshot(self.capture.server)
            fence = self._snapshot.fence
            # The oldest fence: a sink may have rows of an earlier snapshot, if a driver died between two commits.
            read_or_create(f"{self.capture.state}/fence.json", fence.to_json, Fence.from_json)
        return page_ranges(self._snapshot, self.rows.form.table, self.parallelism)

    def _close_snapshot(self) -> None:
        if self._snapshot is not None:
            self._snapshot.close()
            self._snapshot = None

    def _check_relation(self, message: bytes) -> None:
        relation = relation_of(message)
        if (relation.schema, relation.table) != (self.capture.table.schema, self.capture.table.table):
            return
        with closing(connect(self.capture.server)) as connection:
            self.capture.known_table.check(describe(connection, self.capture.table))

    def _retained(self) -> int:
        sql = """
            select pg_wal_lsn_diff(pg_current_wal_lsn(), confirmed_flush_lsn)::bigint, wal_status
            from pg_replication_slots where slot_name = %s
        """
        with connected(self.capture.server, "measuring the lag of the slot") as connection:
            ((retained, status),) = query(connection, sql, self.capture.slot)
        if status == "unreserved":
            _log.warning("slot %s is about to be invalidated: it is too far behind", self.capture.slot)
        return int(retained)

    @property
    def _failure(self) -> tuple[Any, str]:
        return filesystem(f"{self.capture.state}/failure.json", {})

    def _keep_failure(self, error: VolleyError) -> None:
        """Keep the receiver's error for the planner, which is another process."""
        files, path = self._failure
        write_durably(files, path, error.to_json().encode())

    def _raise_failure(self) -> None:
        files, path = self._failure
        files.invalidate_cache(path)
        if files.exists(path):
            raise VolleyError.from_json(files.cat_file(path).decode())

    def _clear_failure(self) -> None:
        files, path = self._failure
        if files.exists(path):
            files.rm_file(path)


def _fence(state: str) -> Fence:
    files, path = filesystem(f"{state}/fence.json", {})
    try:
        return Fence.from_json(files.cat_file(path))
    except (FileNotFoundError, ValueError) as error:
        raise damaged(path, "is missing or damaged") from error


def _grouped(segments: Sequence[Segment], parallelism: int) -> Iterator[tuple[int, ...]]:
    """Yield neighbouring segments as splits of about equal size, not more than are read at once, if they are small."""
    share = max(_SPLIT_BYTES, sum(segment.size for segment in segments) / parallelism)
    group: list[int] = []
    size = 0
    for segment in segments:
        group.append(segment.first)
        size += segment.size
        if size >= share:
            yield tuple(group)
            group, size = [], 0
    if group:
        yield tuple(group)
