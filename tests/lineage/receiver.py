"""An endpoint of OpenLineage that keeps what arrives; it can refuse, or keep silent."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.lineage.spec import check
from tests.waiting import wait_until

__all__ = ["Receiver", "events_in", "receiving"]


class Receiver:
    """What has arrived, each event checked against the specification.

    Attributes:
        url: Its address.
        status: What it answers.
        gate: Requests wait until it is set.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.status = 201
        self.gate = threading.Event()
        self.gate.set()
        self.asked = 0
        self._events: list[dict[str, Any]] = []

    def take(self, body: bytes) -> int:
        """Keep an event; returns the status to answer."""
        self.asked += 1
        self.gate.wait(60)
        if self.status == 201:
            self._events.append(json.loads(body))
        return self.status

    def events(self, last: str = "", job: str | None = None, times: int = 1) -> list[dict[str, Any]]:
        """The events of a job so far, once so many of this type are among them."""

        def are_there() -> bool:
            return not last or [event["eventType"] for event in self._of(job)].count(last) >= times

        wait_until(are_there, 20, f"{times} events {last} of {job or 'any job'}")
        for event in self._of(job):
            check(event)
        return self._of(job)

    def _of(self, job: str | None) -> list[dict[str, Any]]:
        return [event for event in self._events if job in (None, event["job"]["name"])]


@contextmanager
def receiving() -> Iterator[Receiver]:
    """An endpoint that takes events."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            assert self.path == "/api/v1/lineage"
            self.send_response(receiver.take(body))
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    receiver = Receiver(f"http://127.0.0.1:{server.server_port}")
    threading.Thread(target=server.serve_forever, args=[0.01], daemon=True).start()
    try:
        yield receiver
    finally:
        receiver.gate.set()
        server.shutdown()
        server.server_close()


def events_in(file: Path) -> list[dict[str, Any]]:
    """The events that the client has appended to a file, checked."""
    events = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    for event in events:
        check(event)
    return events
