"""The HTTP endpoint of a running job: its metrics, whether it is healthy, and whether it is ready."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Collection, Iterable
from http import HTTPStatus
from typing import TYPE_CHECKING

from volley.errors import JobError
from volley.metrics.serving import Server

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIEnvironment

    from prometheus_client import CollectorRegistry

__all__ = ["Endpoint", "Probe"]

Probe = Callable[[], str | None]
"""Answers a question about a job: None = yes, or else the reason."""


class Endpoint:
    """Serves ``/metrics``, ``/healthz`` and ``/readyz`` over HTTP in a daemon thread until it is closed.

    A probe answers 200, or 503 with the reason; other paths are 404. Notes stand below the "ok" of ``/readyz``. A
    request for another host is 403: a web page may let its own name lead to this machine, and a browser here would
    read the metrics for it.

    Attributes:
        url: The address of the metrics.

    Args:
        metrics: The metrics that it serves.
        host: The address to listen at.
        port: The port; 0 = a free one.
        hosts: The names under which it may be asked, besides addresses, ``localhost`` and `host`.

    Raises:
        JobError: If the port is in use, or the address is not one of this machine.
    """

    def __init__(self, metrics: CollectorRegistry, host: str, port: int, hosts: Collection[str] = ()) -> None:
        from prometheus_client import make_wsgi_app

        self._hosts = {name.lower() for name in ("localhost", host, *hosts)}
        self._metrics = make_wsgi_app(metrics)
        self._probes: dict[str, Probe] = {"/healthz": lambda: None, "/readyz": _is_starting}
        self._notes: Callable[[], Iterable[str]] = tuple
        try:
            self._server = Server(self._answer, host, port)
        except OSError as error:
            raise JobError(
                f"metrics can't be served at {host}:{port}: {error}",
                hint="take another metrics_port, or 0 for a free one; metrics_host is an address of this machine",
            ) from error
        url_host = f"[{host}]" if ":" in host else host
        self.url = f"http://{url_host}:{self._server.port}/metrics"

    def probe(self, healthy: Probe, ready: Probe, notes: Callable[[], Iterable[str]]) -> None:
        """Answer by these from now on; until then the job is healthy and not ready."""
        self._notes = notes
        self._probes = {"/healthz": healthy, "/readyz": ready}

    def close(self) -> None:
        """Stop serving and free the port."""
        self._server.close()

    def _answer(self, request: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        if not self._is_allowed(request.get("HTTP_HOST")):
            return _plain(start, HTTPStatus.FORBIDDEN, "this host is not one of metrics_allowed_hosts")
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

    def _is_allowed(self, host: str | None) -> bool:
        """Return False if a browser may have been led here under another name; one always sends the name."""
        if host is None:
            return True
        name = _without_port(host.strip()).lower()
        return name in self._hosts or _is_address(name)


def _without_port(host: str) -> str:
    """Return the name of a Host header; an IPv6 address stands in brackets there."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].removesuffix(".")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _is_starting() -> str:
    return "the job is starting"


def _plain(start: StartResponse, status: HTTPStatus, text: str) -> list[bytes]:
    start(f"{status.value} {status.phrase}", [("Content-Type", "text/plain; charset=utf-8")])
    return [f"{text}\n".encode()]
