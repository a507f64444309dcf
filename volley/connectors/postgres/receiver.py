"""Receives the stream of a slot in a thread that lives as long as the job."""

from __future__ import annotations

import errno
import logging
import threading
import time

import psycopg2

from volley.capture.segments import SegmentTaken
from volley.connectors.postgres.capture import Capture
from volley.connectors.postgres.connection import LOST, encoding_hint
from volley.connectors.postgres.session import Replication
from volley.connectors.postgres.settings import ANEW
from volley.connectors.postgres.slot import Origin
from volley.connectors.postgres.watch import Watch
from volley.errors import SourceError, VolleyError
from volley.secrets import redact
from volley.storage.remembered import FailureRecord

__all__ = ["Receiver"]

_log = logging.getLogger(__name__)
_RETRY_SECONDS = 1.0
_STOP_SECONDS = 10.0
_ROOM_SECONDS = 10.0
_FULL_DISK = (errno.ENOSPC, errno.EDQUOT)


class Receiver:
    """Reads a slot in a thread until it is stopped; connects again whenever the connection breaks."""

    def __init__(self, capture: Capture, origin: Origin, watch: Watch, failure: FailureRecord) -> None:
        self._capture = capture
        self._origin = origin
        self._watch = watch
        self._failure = failure
        self._stopping = threading.Event()
        self._moved = threading.Condition()
        self._position = 0
        self._is_full = False
        # Since when there is no connection, and why.
        self._lost: tuple[float, str] | None = None
        self._error: VolleyError | None = None
        self._thread = threading.Thread(target=self._run, name=f"volley-slot-{capture.slot}", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread, and wait for its end. What is not staged yet is sent again to the next receiver.

        A thread that waits for an answer of the server ends once that comes, and does nothing more.
        """
        self._stopping.set()
        self._thread.join(_STOP_SECONDS)
        if self._thread.is_alive():
            _log.warning("slot %s: the server has not answered for %.0f s", self._capture.slot, _STOP_SECONDS)

    def wait_for(self, position: int) -> None:
        """Wait until every transaction before a position is staged, or as much as may be staged.

        Raises:
            SourceError: If the receiver has failed, or has no connection for longer than it may take to make one.
        """
        with self._moved:
            while not (self._error or self._is_full or self._position >= position):
                self._moved.wait(_RETRY_SECONDS)
                self._check_connection()
        if self._error:
            raise self._error

    def _check_connection(self) -> None:
        if self._lost is None:
            return
        (since, reason), server = self._lost, self._capture.server
        if time.monotonic() - since > server.timeout:
            raise SourceError(
                f"{server}: slot {self._capture.slot!r} was out of reach for {server.timeout:.0f} s: {reason}",
                hint="check that the server runs, and that nothing else reads the slot; no change is lost",
            )

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._receive()
        except VolleyError as error:
            self._fail(error)
        except Exception as error:
            text = redact(str(error).strip() or repr(error), self._capture.server.secrets)
            self._fail(SourceError(f"slot {self._capture.slot!r} can't be read: {text}", hint=_hint(error)))

    def _receive(self) -> None:
        """Receive until the connection breaks, another receiver adds to the chain, or `stop`."""
        try:
            Replication(self._capture, self._origin, self._watch, self._reached, self._stopping).run()
        except SegmentTaken as error:
            _log.warning("slot %s: another receiver has written %s; continuing after it", self._capture.slot, error)
        except psycopg2.errors.ObjectNotInPrerequisiteState:
            raise
        except psycopg2.Error as error:
            # A server that shuts down ends the stream; psycopg2 then reports its own misuse, without a code.
            if error.pgcode and not isinstance(error, LOST):
                raise
            text = redact(str(error).strip(), self._capture.server.secrets)
            _log.warning("slot %s: connecting again: %s", self._capture.slot, text)
            with self._moved:
                self._lost = self._lost or (time.monotonic(), text)
            self._stopping.wait(_RETRY_SECONDS)
        except OSError as error:
            # The job makes room by reading all segments but the last one.
            if error.errno not in _FULL_DISK or len(self._capture.segments.listed()) < 2:
                raise
            _log.warning("slot %s: waiting until the job has read what is staged: %s", self._capture.slot, error)
            self._reached(0, True)
            self._stopping.wait(_ROOM_SECONDS)

    def _reached(self, position: int, is_full: bool) -> None:
        with self._moved:
            self._position, self._is_full, self._lost = max(self._position, position), is_full, None
            self._moved.notify_all()

    def _fail(self, error: VolleyError) -> None:
        _log.error("slot %s: %s", self._capture.slot, error)
        with self._moved:
            self._error = error
            self._moved.notify_all()
        self._failure.keep(error, self._stopping)


def _hint(error: Exception) -> str:
    if isinstance(error, psycopg2.Error) and error.pgcode:
        return encoding_hint(error) or ANEW
    return "start the job again; nothing that was staged is lost"
