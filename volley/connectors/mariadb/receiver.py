"""Receives the binary log in a thread that lives as long as the job."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pymysql

from volley.capture.receiver import Receiver
from volley.connectors.mariadb.capture import Capture
from volley.connectors.mariadb.connection import is_lost
from volley.connectors.mariadb.origin import Origin
from volley.connectors.mariadb.session import Replication
from volley.connectors.mariadb.settings import ANEW
from volley.connectors.mariadb.watch import Watch
from volley.storage.remembered import FailureRecord

__all__ = ["LogReceiver"]


class LogReceiver(Receiver):
    """Reads the binary log."""

    def __init__(self, capture: Capture, origin: Origin, watch: Watch, failure: FailureRecord) -> None:
        super().__init__("the binary log", "volley-binary-log", capture.server, capture.segments, failure)
        self._capture = capture
        self._origin = origin
        self._watch = watch

    def _session(self, reached: Callable[[int, bool], None], stopping: threading.Event) -> None:
        Replication(self._capture, self._origin, self._watch, reached, stopping).run()

    def _is_lost(self, error: Exception) -> bool:
        return is_lost(error)

    def _hint(self, error: Exception) -> str:
        if isinstance(error, pymysql.Error) and error.args[:1] == (1227,):
            return "grant replication slave on *.* to the job's user"
        if isinstance(error, pymysql.Error):
            return ANEW
        return "start the job again; nothing that was staged is lost"
