"""Receives a stream of changes in a thread that lives as long as the job."""

from __future__ import annotations

import errno
import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Protocol

from volley.capture.segments import Segments, SegmentTaken
from volley.errors import SourceError, VolleyError
from volley.secrets import redact
from volley.storage.remembered import FailureRecord

__all__ = ["Receiver"]

_log = logging.getLogger(__name__)
_RETRY_SECONDS = 1.0
_STOP_SECONDS = 10.0
_ROOM_SECONDS = 10.0
_FULL_DISK = (errno.ENOSPC, errno.EDQUOT)


class Server(Protocol):
    """The server that sends the stream; its text names it."""

    @property
    def timeout(self) -> float:
        """How long to wait for a connection, in seconds."""

    @property
    def secrets(self) -> tuple[str, ...]:
        """What errors must not show."""


class Receiver(ABC):
    """Reads a stream in a thread until it is stopped; connects again whenever the connection breaks.

    Args:
        name: What is read, for messages, as ``slot 'orders'``.
        thread: The name of the thread.
    """

    def __init__(self, name: str, thread: str, server: Server, segments: Segments, failure: FailureRecord) -> None:
        self._name = name
        self._server = server
        self._segments = segments
        self._failure = failure
        self._stopping = threading.Event()
        self._moved = threading.Condition()
        self._position = 0
        self._is_at_limit = False
        # Since when there is no connection, and why.
        self._lost: tuple[float, str] | None = None
        self._error: VolleyError | None = None
        self._thread = threading.Thread(target=self._run, name=thread, daemon=True)

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
            _log.warning("%s: the server has not answered for %.0f s", self._name, _STOP_SECONDS)

    def wait_for(self, position: int) -> None:
        """Wait until every transaction before a position is staged, or as much as may be staged.

        Raises:
            SourceError: If the receiver has failed, or has no connection for longer than it may take to make one.
        """
        with self._moved:
            while not (self._error or self._is_at_limit or self._position >= position):
                self._moved.wait(_RETRY_SECONDS)
                self._check_connection()
        if self._error:
            raise self._error

    def _check_connection(self) -> None:
        if self._lost is None:
            return
        (since, reason), server = self._lost, self._server
        if time.monotonic() - since > server.timeout:
            raise SourceError(
                f"{server}: {self._name} was out of reach for {server.timeout:.0f} s: {reason}",
                hint="check that the server runs, and that nothing else reads it; no change is lost",
            )

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._receive()
        except VolleyError as error:
            self._fail(error)
        except Exception as error:
            text = redact(str(error).strip() or repr(error), self._server.secrets)
            self._fail(SourceError(f"{self._name} can't be read: {text}", hint=self._hint(error)))

    @abstractmethod
    def _session(self, reached: Callable[[int, bool], None], stopping: threading.Event) -> None:
        """Receive by one connection until it breaks, or `stopping`.

        Args:
            reached: Called with the position up to which all is staged, and whether no more may be.

        Raises:
            SegmentTaken: If another receiver has continued the chain of segments.
        """

    @abstractmethod
    def _is_lost(self, error: Exception) -> bool:
        """Return True if an error says that the connection broke, and another one may do."""

    @abstractmethod
    def _hint(self, error: Exception) -> str:
        """Return the way out of an error."""

    def _receive(self) -> None:
        """Receive until the connection breaks, another receiver adds to the chain, or `stop`."""
        try:
            self._session(self._reached, self._stopping)
        except SegmentTaken as error:
            _log.warning("%s: another receiver has written %s; continuing after it", self._name, error)
        except Exception as error:
            if self._is_full(error):
                self._wait_for_room(error)
            elif self._is_lost(error):
                self._connect_later(error)
            else:
                raise

    def _connect_later(self, error: Exception) -> None:
        text = redact(str(error).strip() or repr(error), self._server.secrets)
        if not self._stopping.is_set():
            _log.warning("%s: connecting again: %s", self._name, text)
        with self._moved:
            self._lost = self._lost or (time.monotonic(), text)
        self._stopping.wait(_RETRY_SECONDS)

    def _is_full(self, error: Exception) -> bool:
        """Return True if the disk is full, and the job makes room by reading all segments but the last one."""
        is_full = isinstance(error, OSError) and error.errno in _FULL_DISK
        return is_full and len(self._segments.listed()) >= 2

    def _wait_for_room(self, error: Exception) -> None:
        _log.warning("%s: waiting until the job has read what is staged: %s", self._name, error)
        self._reached(0, True)
        self._stopping.wait(_ROOM_SECONDS)

    def _reached(self, position: int, is_full: bool) -> None:
        with self._moved:
            self._position, self._is_at_limit, self._lost = max(self._position, position), is_full, None
            self._moved.notify_all()

    def _fail(self, error: VolleyError) -> None:
        _log.error("%s: %s", self._name, error)
        with self._moved:
            self._error = error
            self._moved.notify_all()
        self._failure.keep(error, self._stopping)
