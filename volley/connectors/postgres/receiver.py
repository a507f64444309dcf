"""Receives the stream of a slot in a thread that lives as long as the job."""

from __future__ import annotations

import threading
from collections.abc import Callable

import psycopg2

from volley.capture.receiver import Receiver
from volley.connectors.postgres.capture import Capture
from volley.connectors.postgres.connection import LOST, encoding_hint
from volley.connectors.postgres.session import Replication
from volley.connectors.postgres.settings import ANEW
from volley.connectors.postgres.slot import Origin
from volley.connectors.postgres.watch import Watch
from volley.storage.remembered import FailureRecord

__all__ = ["SlotReceiver"]


class SlotReceiver(Receiver):
    """Reads a slot."""

    def __init__(self, capture: Capture, origin: Origin, watch: Watch, failure: FailureRecord) -> None:
        super().__init__(
            f"slot {capture.slot!r}", f"volley-slot-{capture.slot}", capture.server, capture.segments, failure
        )
        self._capture = capture
        self._origin = origin
        self._watch = watch

    def _session(self, reached: Callable[[int, bool], None], stopping: threading.Event) -> None:
        Replication(self._capture, self._origin, self._watch, reached, stopping).run()

    def _is_lost(self, error: Exception) -> bool:
        if not isinstance(error, psycopg2.Error) or isinstance(error, psycopg2.errors.ObjectNotInPrerequisiteState):
            return False
        # A server that shuts down ends the stream; psycopg2 then reports its own misuse, without a code.
        return not error.pgcode or isinstance(error, LOST)

    def _hint(self, error: Exception) -> str:
        if isinstance(error, psycopg2.Error) and error.pgcode:
            return encoding_hint(error) or ANEW
        return "start the job again; nothing that was staged is lost"
