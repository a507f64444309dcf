"""One replication connection: stages what the server sends, and acknowledges it when it is durable."""

from __future__ import annotations

import re
import select
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import replace
from itertools import islice
from operator import itemgetter
from typing import Any

import psycopg2

from volley.capture.segments import SegmentChain, SegmentTaken, SegmentWriter
from volley.connectors.postgres.capture import Capture
from volley.connectors.postgres.connection import connect, lsn_text, query, replication
from volley.connectors.postgres.messages import BEGIN, COMMIT, RELATION, TRUNCATE, TYPE, begin_of, commit_of
from volley.connectors.postgres.slot import Origin, check_position
from volley.connectors.postgres.watch import Watch
from volley.task.failpoints import reach

__all__ = ["Replication"]

_READ_MESSAGES = 256
_FEEDBACK_SECONDS = 0.5
_WAIT_SECONDS = 0.05
_OWN_SECONDS = 5.0
# Two minutes: PostgreSQL's own receivers give up after one (wal_receiver_timeout).
_MOST_UNANSWERED = 240
# A wake-up costs as much as reading dozens of messages.
_GATHER_SECONDS = 0.002
_DESCRIPTIONS = (RELATION, TYPE)
_KIND = itemgetter(0)
_NO_ROWS = re.compile(rb"[^IUD]")


class Replication:
    """Receives from where the segments end, until the connection breaks or the receiver stops.

    Args:
        reached: Called with the position up to which every transaction is staged, and whether no more may be.
    """

    def __init__(
        self,
        capture: Capture,
        origin: Origin,
        watch: Watch,
        reached: Callable[[int, bool], None],
        stopping: threading.Event,
    ) -> None:
        self._capture = capture
        self._segments = capture.segments
        self._origin = origin
        self._watch = watch
        self._reached = reached
        self._stopping = stopping
        self._chain = SegmentChain(0, 0, 0)
        self._open: SegmentWriter | None = None
        self._end = (0, 0.0)
        # What the server has described so far: it does so once a session, and each segment begins with it.
        self._described: dict[bytes, bytes] = {}
        self._begin: bytes | None = None
        self._xid = 0
        self._in_transaction = self._skips = False
        self._fed_back = self._beat = time.monotonic()
        self._unanswered = 0

    def run(self) -> None:
        """Receive until `stopping`.

        Raises:
            psycopg2.Error: If the connection breaks, or the slot can't be read.
            SegmentTaken: If another receiver has continued the chain of segments.
            SourceError: If changes are gone, or the table is another one now.
        """
        with closing(replication(self._capture.server)) as connection, connection.cursor() as cursor:
            self._own(cursor)
            self._segments.clear_unfinished()
            try:
                self._receive(cursor)
            finally:
                if self._open is not None:
                    self._open.abort()
                self._watch.close()

    def _own(self, cursor: Any) -> None:
        """Start replication; end another session that still has the slot. Only then list what it has staged."""
        chain = self._segments.chain(self._origin.position)
        options = f"(proto_version '1', publication_names '{self._capture.publication}')"
        command = f'START_REPLICATION SLOT "{self._capture.slot}" LOGICAL {lsn_text(chain.end)} {options}'
        deadline = time.monotonic() + _OWN_SECONDS
        while True:
            try:
                cursor.start_replication_expert(command, decode=False)
                break
            except psycopg2.errors.ObjectInUse:
                if self._stopping.wait(_WAIT_SECONDS) or time.monotonic() > deadline:
                    raise
                self._end_other()
        reach("slot-owned", 0)
        with closing(connect(self._capture.server)) as connection:
            position = self._origin.position
            self._chain = check_position(connection, self._capture.slot, lambda: self._segments.chain(position))
        if self._chain.end != chain.end:
            raise SegmentTaken(f"the messages before {self._chain.next}")
        self._watch.resume()
        self._reached(self._chain.end, self._is_full())

    def _end_other(self) -> None:
        with closing(connect(self._capture.server)) as connection:
            sql = "select pg_terminate_backend(active_pid) from pg_replication_slots where slot_name = %s"
            query(connection, sql, self._capture.slot)

    def _receive(self, cursor: Any) -> None:
        while not self._stopping.is_set():
            # All that are there, without a step of Python's for each.
            messages = islice(iter(cursor.read_message, None), _READ_MESSAGES)
            payloads = [message.payload for message in messages]
            if payloads:
                self._take(payloads)
                # Only here: what has been read counts as acknowledged when nothing is held.
                self._feed_back_if_due(cursor)
            else:
                self._wait(cursor)
        # Also of a run that ends before it is due: the server keeps its log up to what it is told.
        with suppress(psycopg2.Error):
            self._feed_back(cursor)

    def _take(self, payloads: list[bytes]) -> None:
        """Hold the messages of rows, and act on those between them."""
        first = 0
        for other in _NO_ROWS.finditer(bytes(map(_KIND, payloads))):
            number = other.start()
            self._hold(payloads[first:number])
            self._act_on(payloads[number])
            first = number + 1
        self._hold(payloads[first:])

    def _act_on(self, payload: bytes) -> None:
        kind = payload[0]
        if kind == BEGIN:
            self._begin_transaction(payload)
        elif kind == COMMIT:
            self._commit(payload)
        elif kind in _DESCRIPTIONS:
            self._describe(payload)
        elif not self._skips:
            if kind == TRUNCATE:
                self._watch.truncated(payload, self._xid)
            self._hold([payload])

    def _begin_transaction(self, payload: bytes) -> None:
        self._in_transaction, self._begin = True, payload
        position, self._xid = begin_of(payload)
        # After a crash the server may have forgotten what it was told, and sends it again.
        self._skips = position < self._chain.end

    def _commit(self, payload: bytes) -> None:
        self._in_transaction = False
        # A transaction without changes is not staged: it is acknowledged when the server is idle.
        if self._begin is None and not self._skips:
            self._hold([payload])
            self._end = commit_of(payload)
        self._begin, self._skips = None, False
        self._cut_if_due()

    def _describe(self, payload: bytes) -> None:
        """Hold a description if it is new, and what it leaves out of a table."""
        # The server repeats it whenever its catalog changes, which may be more than it says.
        table = self._watch.describe(payload, self._xid) if payload[0] == RELATION else None
        for description in filter(None, [payload, table]):
            if self._described.get(description[:5]) == description:
                continue
            # A segment that is not open yet begins with it.
            if self._open is not None and not self._skips:
                self._hold([description])
            self._described[description[:5]] = description

    def _hold(self, payloads: list[bytes]) -> None:
        if not payloads or self._skips:
            return
        if self._open is None:
            self._open = self._segments.writer(self._chain)
            self._open.hold([*self._described.values()])
        if self._begin is not None:
            begin, self._begin = self._begin, None
            self._open.hold([begin])
        self._open.hold(payloads)

    def _cut_if_due(self) -> None:
        if self._open is not None and self._open.is_due and not self._in_transaction:
            self._cut(self._open)

    def _cut(self, segment: SegmentWriter) -> None:
        number, (position, committed) = self._chain.next, self._end
        reach("before-segment", number)
        messages = segment.finish(position, committed)
        self._open = None
        reach("after-segment", number)
        self._chain = SegmentChain(number + messages, position, max(self._chain.told, position))
        self._watch.passed(position)
        self._reached(position, self._is_full())

    def _is_full(self) -> bool:
        # The last one stays when the job has read it, however large its transaction was.
        return sum(segment.size for segment in self._segments.listed()[:-1]) >= self._capture.max_staged

    def _wait(self, cursor: Any) -> None:
        """End the segment if it is due, acknowledge, and wait until there is more to read."""
        self._cut_if_due()
        self._feed_back_if_due(cursor)
        self._send_heartbeat()
        # Not `select.select`: it takes no descriptor above 1023.
        poll = select.poll()
        poll.register(cursor, select.POLLIN)
        if poll.poll(_WAIT_SECONDS * 1000):
            time.sleep(_GATHER_SECONDS)

    def _feed_back_if_due(self, cursor: Any) -> None:
        if time.monotonic() - self._fed_back < _FEEDBACK_SECONDS:
            return
        self._check_answers(cursor)
        self._feed_back(cursor)
        self._watch.look_if_due()
        # Without reading more: the rest waits in the server's log, which grows.
        while self._is_full():
            self._reached(self._chain.end, True)
            if self._stopping.wait(_FEEDBACK_SECONDS):
                break
            self._feed_back(cursor)

    def _check_answers(self, cursor: Any) -> None:
        """Count the acknowledgements that nothing has followed, though each asks for an answer.

        A proxy may keep the connection whose other end is gone.
        """
        told = cursor.feedback_timestamp
        self._unanswered = 0 if told is None or cursor.io_timestamp > told else self._unanswered + 1
        if self._unanswered > _MOST_UNANSWERED:
            raise psycopg2.OperationalError("the server does not answer")

    def _feed_back(self, cursor: Any) -> None:
        """Acknowledge what is durable; if nothing is held, also what the server's log has of other tables."""
        self._fed_back = time.monotonic()
        is_idle = self._open is None and not self._in_transaction
        position = max(self._chain.end, cursor.wal_end) if is_idle else self._chain.end
        # psycopg2 acknowledges up to wal_end by itself if all it has read before is acknowledged.
        if (told := max(position, cursor.wal_end)) > self._chain.told:
            self._segments.tell(told)
            self._chain = replace(self._chain, told=told)
        cursor.send_feedback(write_lsn=position, flush_lsn=position, reply=True)
        reach("acknowledged", 0)
        if is_idle:
            self._watch.passed(position)
            self._reached(position, self._is_full())

    def _send_heartbeat(self) -> None:
        every = self._capture.heartbeat
        if every is None or time.monotonic() - self._beat < every:
            return
        self._beat = time.monotonic()
        self._watch.run("select pg_logical_emit_message(false, 'volley', '')")
