"""Receives the stream of a slot in a thread that lives as long as the job."""

from __future__ import annotations

import errno
import logging
import threading
import time
from collections.abc import Callable

import psycopg2

from volley.connectors.postgres.connection import LOST, encoding_hint
from volley.connectors.postgres.segments import Segments, SegmentTaken
from volley.connectors.postgres.session import Replication, Slot
from volley.connectors.postgres.settings import ANEW
from volley.connectors.postgres.watch import Watch
from volley.errors import SourceError, VolleyError
from volley.secrets import redact

__all__ = ["Receiver"]

_log = logging.getLogger(__name__)
_RETRY_SECONDS = 1.0
_STOP_SECONDS = 10.0
_ROOM_SECONDS = 10.0
_FULL_DISK = (errno.ENOSPC, errno.EDQUOT)


class Receiver:
    """Reads a slot in a thread until it is stopped; connects again whenever the connection breaks.

    Args:
        on_failure: Called with the error that ends the thread.
    """

    def __init__(
        self,
        slot: Slot,
        segments: Segments,
        watch: Watch,
        on_failure: Callable[[VolleyError], None],
    ) -> None:
        self._slot = slot
        self._segments = segments
        self._watch = watch
        self._on_failure = on_failure
        self._stopping = threading.Event()
        self._moved = threading.Condition()
        self._position = 0
        self._is_full = False
        # Since when there is no connection, and why.
        self._lost: tuple[float, str] | None = None
        self._error: VolleyError | None = None
        self._thread = threading.Thread(target=self._run, name=f"volley-slot-{slot.name}", daemon=True)

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
            _log.warning("slot %s: the server has not answered for %.0f s", self._slot.name, _STOP_SECONDS)

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
        (since, reason), server = self._lost, self._slot.server
        if time.monotonic() - since > server.timeout:
            raise SourceError(
                f"{server}: slot {self._slot.name!r} was out of reach for {server.timeout:.0f} s: {reason}",
                hint="check that the server runs, and that nothing else reads the slot; no change is lost",
            )

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._receive()
        except VolleyError as error:
            self._fail(error)
        except Exception as error:
            text = redact(str(error).strip() or repr(error), self._slot.server.secrets)
            self._fail(SourceError(f"slot {self._slot.name!r} can't be read: {text}", hint=_hint(error)))

    def _receive(self) -> None:
        """Receive until the connection breaks, another receiver adds to the chain, or `stop`."""
        try:
            Replication(self._slot, self._segments, self._watch, self._reached, self._stopping).run()
        except SegmentTaken as error:
            _log.warning("slot %s: another receiver has written %s; continuing after it", self._slot.name, error)
        except psycopg2.errors.ObjectNotInPrerequisiteState:
            raise
        except psycopg2.Error as error:
            # A server that shuts down ends the stream; psycopg2 then reports its own misuse, without a code.
            if error.pgcode and not isinstance(error, LOST):
                raise
            text = redact(str(error).strip(), self._slot.server.secrets)
            _log.warning("slot %s: connecting again: %s", self._slot.name, text)
            with self._moved:
                self._lost = self._lost or (time.monotonic(), text)
            self._stopping.wait(_RETRY_SECONDS)
        except OSError as error:
            # The job makes room by reading all segments but the last one.
            if error.errno not in _FULL_DISK or len(self._segments.listed()) < 2:
                raise
            _log.warning("slot %s: waiting until the job has read what is staged: %s", self._slot.name, error)
            self._reached(0, True)
            self._stopping.wait(_ROOM_SECONDS)

    def _reached(self, position: int, is_full: bool) -> None:
        with self._moved:
            self._position, self._is_full, self._lost = max(self._position, position), is_full, None
            self._moved.notify_all()

    def _fail(self, error: VolleyError) -> None:
        _log.error("slot %s: %s", self._slot.name, error)
        with self._moved:
            self._error = error
            self._moved.notify_all()
        while not self._stopping.is_set() and not self._is_told(error):
            self._stopping.wait(_RETRY_SECONDS)

    def _is_told(self, error: VolleyError) -> bool:
        """Tell of the error; return False if that fails, as on a disk that is full or a storage out of reach."""
        try:
            self._on_failure(error)
        except Exception as reason:
            _log.warning("slot %s: its error can't be recorded: %s", self._slot.name, reason)
            return False
        return True


def _hint(error: Exception) -> str:
    if isinstance(error, psycopg2.Error) and error.pgcode:
        return encoding_hint(error) or ANEW
    return "start the job again; nothing that was staged is lost"
