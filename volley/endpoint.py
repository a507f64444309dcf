"""The HTTP endpoint of a running job: its metrics, whether it is healthy, and whether it is ready."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterable
from http import HTTPStatus
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from volley.errors import JobError
from volley.exposition import Exposed, registry

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIEnvironment

__all__ = ["Endpoint", "Probe"]

Probe = Callable[[], str | None]
"""Answers a question about a job: None = yes, or else the reason."""


class Endpoint:
    """Serves ``/metrics``, ``/healthz`` and ``/readyz`` over HTTP in daemon threads until it is closed.

    A probe answers 200, or 503 with the reason; other paths are 404. Notes stand below the "ok" of ``/readyz``.

    Attributes:
        url: The address of the metrics.

    Args:
        read: Returns the current metrics.
        host: The address to listen at.
        port: The port; 0 = a free one.

    Raises:
        JobError: If the port is in use, or the address is not one of this machine.
    """

    def __init__(self, read: Callable[[], Exposed], host: str, port: int) -> None:
        from prometheus_client import make_wsgi_app

        self._metrics = make_wsgi_app(registry(read, "volley"))
        self._probes: dict[str, Probe] = {"/healthz": lambda: None, "/readyz": _is_starting}
        self._notes: Callable[[], Iterable[str]] = tuple
        try:
            self._server = _Server(host, port)
        except OSError as error:
            raise JobError(
                f"metrics can't be served at {host}:{port}: {error}",
                hint="take another metrics_port, or 0 for a free one; metrics_host is an address of this machine",
            ) from error
        self._server.set_app(self._answer)
        # It looks every 0.05 s whether it is to end: the job waits for that.
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.05,), name="volley-endpoint", daemon=True
        )
        self._thread.start()
        url_host = f"[{host}]" if ":" in host else host
        self.url = f"http://{url_host}:{self._server.server_port}/metrics"

    def probe(self, healthy: Probe, ready: Probe, notes: Callable[[], Iterable[str]]) -> None:
        """Answer by these from now on; until then the job is healthy and not ready."""
        self._notes = notes
        self._probes = {"/healthz": healthy, "/readyz": ready}

    def close(self) -> None:
        """Stop serving and free the port."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _answer(self, request: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        path = request["PATH_INFO"]
        if path == "/metrics":
            answer: Iterable[bytes] = self._metrics(request, start)
            return answer
        if path not in self._probes:
            return _plain(start, HTTPStatus.NOT_FOUND, f"no {path}: /metrics, /healthz, /readyz")
        if reason := self._probes[path]():
            return _plain(start, HTTPStatus.SERVICE_UNAVAILABLE, reason)
        notes = self._notes() if path == "/readyz" else ()
        return _plain(start, HTTPStatus.OK, "\n".join(["ok", *notes]))


def _is_starting() -> str:
    return "the job is starting"


def _plain(start: StartResponse, status: HTTPStatus, text: str) -> list[bytes]:
    start(f"{status.value} {status.phrase}", [("Content-Type", "text/plain; charset=utf-8")])
    return [f"{text}\n".encode()]


class _Quiet(WSGIRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Write nothing to stderr."""


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True

    def __init__(self, host: str, port: int) -> None:
        self.address_family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        super().__init__((host, port), _Quiet)
