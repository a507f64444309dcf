"""One connection as a replica: stages the changes of tables that the server's log has."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import closing

from volley.capture.changes import DELETE, INSERT, UPDATE
from volley.capture.segments import SegmentChain, SegmentWriter
from volley.connectors.mariadb.capture import Capture
from volley.connectors.mariadb.connection import connect
from volley.connectors.mariadb.log import (
    DELETE_ROWS,
    HEARTBEAT,
    INSERT_ROWS,
    QUERY,
    ROTATE,
    TABLE_MAP,
    UNREADABLE_ROWS,
    UPDATE_ROWS,
    XA_PREPARE,
    XID,
    BinaryLog,
    Event,
    is_gtid,
    opens_transaction,
    statement,
    unreadable,
)
from volley.connectors.mariadb.messages import begin, change, count_numbers, table_message, truncation
from volley.connectors.mariadb.origin import Origin, check_log
from volley.connectors.mariadb.positions import FILE_BITS
from volley.connectors.mariadb.settings import ANEW
from volley.connectors.mariadb.statements import Truncated, effects
from volley.connectors.mariadb.tables import table_number
from volley.connectors.mariadb.watch import Watch
from volley.errors import SourceError
from volley.task.failpoints import reach

__all__ = ["Replication"]

_FULL_SECONDS = 0.5
_KINDS = {INSERT_ROWS: INSERT, UPDATE_ROWS: UPDATE, DELETE_ROWS: DELETE}
_ROWS_HEAD = 8


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
        self._committed = 0.0
        self._position = 0
        self._gtids = capture.server.dialect.gtids_of("")
        self._described: dict[int, bytes] = {}
        # By the log's numbers of tables: the event that described each, and its own number; None = it is not read.
        self._maps: dict[int, tuple[bytes, int | None]] = {}
        self._in_transaction = self._is_standalone = False
        self._begin: bytes | None = None
        self._checked = time.monotonic()

    def run(self) -> None:
        """Receive until `stopping`.

        Raises:
            pymysql.Error: If the connection breaks.
            SegmentTaken: If another receiver has continued the chain of segments.
            SourceError: If changes are gone, or a table is another one now.
        """
        self._chain = self._segments.chain(self._origin.position)
        self._position = self._chain.end
        gtids = self._last_gtids()
        dialect = self._capture.server.dialect
        self._gtids = dialect.gtids_of(gtids)
        with closing(connect(self._capture.server)) as connection:
            check_log(connection, dialect, self._origin, self._position, gtids)
        self._watch.resume()
        self._segments.clear_unfinished()
        log = BinaryLog(self._capture.server, self._position, self._origin.file)
        try:
            self._reached(self._position, self._is_full())
            for event in log.events():
                if self._stopping.is_set():
                    return
                self._take(event)
        finally:
            log.close()
            if self._open is not None:
                self._open.abort()
            self._watch.close()

    def _last_gtids(self) -> str:
        listed = self._segments.listed()
        return str(self._segments.opened(listed[-1].first).end["gtids"]) if listed else self._origin.gtids

    def _take(self, event: Event) -> None:
        kind = event.type
        if kind in _KINDS:
            self._change(_KINDS[kind], event.body)
        elif kind in UNREADABLE_ROWS:
            if self._own_number(event.body) is not None:
                raise unreadable(kind)
        elif kind == TABLE_MAP:
            self._map(event.body)
        elif is_gtid(event):
            self._begin_transaction(event)
        elif kind == XID:
            self._commit(event)
        elif kind == QUERY:
            self._query(event)
        elif kind == XA_PREPARE:
            if not event.body[0]:
                self._refuse_rows("is prepared for XA, and may be rolled back later", "commit without xa prepare")
            self._commit(event)
        elif kind == ROTATE:
            # The server counts tables anew when it starts, in another file.
            self._maps.clear()
        if not self._in_transaction:
            self._pass(event, kind == HEARTBEAT)

    def _pass(self, event: Event, is_idle: bool) -> None:
        """Note how far the log was read between transactions."""
        self._position = max(self._position, event.end)
        if self._open is not None:
            if self._open.is_due or is_idle:
                self._cut(self._open)
        elif self._position >> FILE_BITS != self._chain.end >> FILE_BITS:
            # Nothing was captured from a whole file, which the server may purge.
            self._hold(begin(self._position, event.time))
        else:
            self._reached(self._position, False)
        self._wait_for_room()

    def _wait_for_room(self) -> None:
        """Wait without reading more, if the job has not read what is staged: the rest waits in the server's log."""
        if time.monotonic() - self._checked < _FULL_SECONDS:
            return
        self._checked = time.monotonic()
        while self._open is None and self._is_full():
            self._reached(self._position, True)
            if self._stopping.wait(_FULL_SECONDS):
                return

    def _begin_transaction(self, event: Event) -> None:
        self._in_transaction = True
        self._is_standalone = self._gtids.begin(event)
        self._begin = begin(self._position, event.time)

    def _commit(self, event: Event) -> None:
        self._in_transaction = False
        if self._begin is None:
            self._committed = float(event.time)
        self._begin = None

    def _query(self, event: Event) -> None:
        database, text, is_strict = statement(event.body)
        word = text[:12].upper().rstrip("; ")
        if word == "COMMIT":
            self._commit(event)
            return
        if word == "ROLLBACK":
            self._refuse_rows("was rolled back after it had changed a table without transactions", ANEW)
            self._commit(event)
            return
        if opens_transaction(text):
            self._is_standalone = False
        for effect in effects(database, text, is_strict):
            self._watch.apply(effect)
            if isinstance(effect, Truncated):
                self._truncate(effect)
        if self._is_standalone:
            self._commit(event)

    def _truncate(self, effect: Truncated) -> None:
        known = self._watch.known_table(effect.table)
        if known is None or effect.table not in self._capture.selection:
            return
        number, table = known
        if number not in self._described:
            self._describe(number, table_message(number, table))
        self._hold(truncation(number))

    def _refuse_rows(self, reason: str, hint: str) -> None:
        """Raise if the open transaction has changes of tables that are read."""
        if self._in_transaction and self._begin is None:
            raise SourceError(f"a transaction with changes of captured tables {reason}", hint=hint)

    def _map(self, body: bytes) -> None:
        number = table_number(body)
        known = self._maps.get(number)
        if known is not None and known[0] == body:
            return
        described = self._watch.describe(body)
        if described is None:
            self._maps[number] = (body, None)
            return
        own, table = described
        self._maps[number] = (body, own)
        self._describe(own, table_message(own, table))

    def _describe(self, number: int, message: bytes) -> None:
        if self._described.get(number) == message:
            return
        self._described[number] = message
        # A segment that is not open yet begins with it.
        if self._open is not None:
            self._open.hold([message])

    def _change(self, kind: int, body: bytes) -> None:
        if (own := self._own_number(body)) is not None:
            self._hold(change(kind, own, body[_ROWS_HEAD:]))

    def _own_number(self, body: bytes) -> int | None:
        """Return the number under which the table of an event of rows is captured; None if it is not."""
        return self._maps[table_number(body)][1]

    def _hold(self, message: bytes) -> None:
        if self._open is None:
            self._open = self._segments.writer(self._chain, count_numbers)
            self._open.hold([*self._described.values()])
        if self._begin is not None:
            begun, self._begin = self._begin, None
            self._open.hold([begun])
        self._open.hold([message])

    def _cut(self, segment: SegmentWriter) -> None:
        number, position = self._chain.next, self._position
        reach("before-segment", number)
        messages = segment.finish(position, self._committed, {"gtids": self._gtids.text})
        self._open = None
        reach("after-segment", number)
        self._chain = SegmentChain(number + messages, position, position)
        self._reached(position, self._is_full())

    def _is_full(self) -> bool:
        # The last one stays when the job has read it, however large its transaction was.
        return sum(segment.size for segment in self._segments.listed()[:-1]) >= self._capture.max_staged
