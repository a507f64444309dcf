"""The HTTP endpoint of a running job: its metrics, whether it is healthy, and whether it is ready."""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from http import HTTPStatus
from io import BytesIO
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs
from wsgiref.simple_server import WSGIRequestHandler

from volley.errors import JobError
from volley.metrics.page import PAGE, PAGE_HEADERS

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

    from prometheus_client import CollectorRegistry

__all__ = ["Endpoint", "HealthCheck", "Statuses"]

MOST_CONNECTIONS = 64
REQUEST_SECONDS = 10.0
_MOST_BYTES = 16 << 10
_PIECE = 64 << 10
_QUEUE = 128
_EVENT_SECONDS = 1.0
_REST_SECONDS = 0.2
_PAGES = ("/", "/status.json", "/events")
_STREAM = "text/event-stream"
_TOO_LARGE = b"HTTP/1.0 431 Request Header Fields Too Large\r\nContent-Length: 0\r\n\r\n"

Statuses = Callable[[], str]
"""Returns what ``/status.json`` answers."""

HealthCheck = Callable[[], str | None]
"""Answers a question about a job: None = yes, or else the reason."""


class Endpoint:
    """Serves ``/metrics``, ``/healthz`` and ``/readyz`` over HTTP in a daemon thread until it is closed.

    It also serves a page, if it has one to show: ``/``, ``/status.json``, and ``/events``, which sends that value every
    second (server-sent events).

    A probe answers 200, or 503 with the reason; other paths are 404. Notes stand below the "ok" of ``/readyz``. A
    request for another host is 403: a web page may let its own name lead to this machine, and a browser here would
    read the metrics for it.

    Attributes:
        url: The address of the metrics.
        page: The address of the page.

    Args:
        metrics: The metrics that it serves; None = none.
        host: The address to listen at.
        port: The port; 0 = a free one.
        hosts: The names under which it may be asked, besides addresses, ``localhost`` and `host`.
        token: What a request must bring, as a bearer token or in ``?token=``; probes need none. None = nothing.

    Raises:
        JobError: If the port is in use, or the address is not one of this machine.
    """

    def __init__(
        self,
        metrics: CollectorRegistry | None,
        host: str,
        port: int,
        hosts: Collection[str] = (),
        token: str | None = None,
    ) -> None:
        self._hosts = {name.lower() for name in ("localhost", host, *hosts)}
        self._metrics = None if metrics is None else _application(metrics)
        self._probes: dict[str, HealthCheck] = {"/healthz": lambda: None, "/readyz": _is_starting}
        self._notes: Callable[[], Iterable[str]] = tuple
        self._token = token
        self._statuses: Statuses | None = None
        self._told, self._told_at = b"", -_EVENT_SECONDS
        try:
            self._server = _Server(self._answer, self._event, host, port)
        except OSError as error:
            raise JobError(
                f"nothing can be served at {host}:{port}: {error}",
                hint="take another port (metrics_port, ui_port), or 0 for a free one; metrics_host is an address of "
                "this machine",
            ) from error
        url_host = f"[{host}]" if ":" in host else host
        self.page = f"http://{url_host}:{self._server.port}/"
        self.url = f"{self.page}metrics"

    def probe(self, healthy: HealthCheck, ready: HealthCheck, notes: Callable[[], Iterable[str]]) -> None:
        """Answer by these from now on; until then the job is healthy and not ready."""
        self._notes = notes
        self._probes = {"/healthz": healthy, "/readyz": ready}

    def show(self, statuses: Statuses) -> None:
        """Serve the page from now on, with what this function returns."""
        self._statuses = statuses

    def close(self) -> None:
        """Stop serving and free the port."""
        self._server.close()

    def _answer(self, request: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        if not self._is_allowed(request.get("HTTP_HOST")):
            return _plain(start, HTTPStatus.FORBIDDEN, "this host is not one of metrics_allowed_hosts")
        path = request["PATH_INFO"]
        if path not in self._probes and not self._has_token(request):
            return _plain(start, HTTPStatus.UNAUTHORIZED, "a token is needed: Authorization: Bearer …, or ?token=…")
        if path == "/metrics" and self._metrics is not None:
            answer: Iterable[bytes] = self._metrics(request, start)
            return answer
        if path in _PAGES and self._statuses is not None:
            return self._shown(path, self._statuses, start)
        if path not in self._probes:
            return _plain(start, HTTPStatus.NOT_FOUND, f"no {path}: /metrics, /healthz, /readyz")
        if reason := self._probes[path]():
            return _plain(start, HTTPStatus.SERVICE_UNAVAILABLE, reason)
        notes = self._notes() if path == "/readyz" else ()
        return _plain(start, HTTPStatus.OK, "\n".join(["ok", *notes]))

    def _shown(self, path: str, statuses: Statuses, start: StartResponse) -> Iterable[bytes]:
        """Answer with the page, the status, or the first event of a stream."""
        if path == "/":
            start("200 OK", [("Content-Type", "text/html; charset=utf-8"), *PAGE_HEADERS])
            return [PAGE]
        headers = [("Cache-Control", "no-store")]
        if path == "/status.json":
            start("200 OK", [("Content-Type", "application/json"), *headers])
            return [statuses().encode()]
        start("200 OK", [("Content-Type", _STREAM), *headers])
        # wsgiref gives a single piece a length, and this answer has none.
        return [b"retry: 2000\n\n", self._event()]

    def _event(self) -> bytes:
        """Return what the streams of all pages get; it is made twice a second at most, however many are open."""
        assert self._statuses is not None
        if time.monotonic() - self._told_at > _EVENT_SECONDS / 2:
            self._told = b"data: " + self._statuses().encode() + b"\n\n"
            self._told_at = time.monotonic()
        return self._told

    def _has_token(self, request: WSGIEnvironment) -> bool:
        if self._token is None:
            return True
        given = request.get("HTTP_AUTHORIZATION", "").removeprefix("Bearer ").strip()
        given = given or parse_qs(request.get("QUERY_STRING", "")).get("token", [""])[0]
        return hmac.compare_digest(given.encode(), self._token.encode())

    def _is_allowed(self, host: str | None) -> bool:
        """Return False if a browser may have been led here under another name; one always sends the name."""
        if host is None:
            return True
        name = _without_port(host.strip()).lower()
        return name in self._hosts or _is_address(name)


def _application(metrics: CollectorRegistry) -> WSGIApplication:
    from prometheus_client import make_wsgi_app

    return make_wsgi_app(metrics)


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


class _Server:
    """Serves a WSGI application in a daemon thread until it is closed; one request a connection.

    A connection has ten seconds for its request and its answer; bodies of requests are not read. If there are more than
    64 connections, the oldest one is closed for the next one. The application answers quickly: one request at a time.

    Args:
        event: Returns what a stream of events goes on with, every second.
    """

    def __init__(self, application: WSGIApplication, event: Callable[[], bytes], host: str, port: int) -> None:
        self._event = event
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        both = family == socket.AF_INET6 and socket.has_dualstack_ipv6()
        self._listening = socket.create_server((host, port), family=family, backlog=_QUEUE, dualstack_ipv6=both)
        self.port = int(self._listening.getsockname()[1])
        self._answer = _Wsgi(application, host, self.port)
        # In the order in which they were accepted.
        self._open: dict[asyncio.Task[None], None] = {}
        self._loop, self._closed = asyncio.new_event_loop(), asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="volley-endpoint", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop serving and free the port."""
        self._loop.call_soon_threadsafe(self._closed.set)
        self._thread.join()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        accepting = self._loop.create_task(self._accept())
        await self._closed.wait()
        accepting.cancel()
        self._listening.close()

    async def _accept(self) -> None:
        """Accept connections: asyncio's own server logs 128 errors at once where the process has no descriptor left."""
        self._listening.setblocking(False)
        while True:
            try:
                accepted, _ = await self._loop.sock_accept(self._listening)
                self._begin(*await asyncio.open_connection(sock=accepted))
            except OSError:
                # The client waits meanwhile, or is gone.
                await asyncio.sleep(_REST_SECONDS)

    def _begin(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._open) >= MOST_CONNECTIONS:
            oldest = next(iter(self._open))
            del self._open[oldest]
            oldest.cancel()
        task = self._loop.create_task(self._connected(reader, writer))
        self._open[task] = None
        task.add_done_callback(lambda task: self._open.pop(task, None))

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # The client may be gone or slow, or make room for another one; or the job has no status to tell.
        with suppress(Exception, asyncio.CancelledError):
            async with asyncio.timeout(REQUEST_SECONDS):
                goes_on = await self._respond(reader, writer)
            while goes_on:
                await self._send_event(writer)
        writer.close()

    async def _respond(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer a request; return True if the answer goes on with events."""
        request = await _request(reader)
        if request is None:
            return False
        address = writer.get_extra_info("peername")
        answer = self._answer(request, address) if _has_head(request) else _TOO_LARGE
        writer.write(answer)
        await writer.drain()
        if _is_stream(answer):
            return True
        # A client that still sends would lose the answer if the socket were closed now.
        writer.write_eof()
        while await reader.read(_PIECE):
            pass
        return False

    async def _send_event(self, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(_EVENT_SECONDS)
        async with asyncio.timeout(REQUEST_SECONDS):
            writer.write(self._event())
            await writer.drain()


async def _request(reader: asyncio.StreamReader) -> bytes | None:
    """Return what comes until the head of the request is there, or has become too large; None if it ends before."""
    request = b""
    while not _has_head(request) and len(request) < _MOST_BYTES:
        if not (data := await reader.read(_PIECE)):
            return None
        request += data
    return request


def _has_head(request: bytes) -> bool:
    head = request[:_MOST_BYTES]
    return b"\r\n\r\n" in head or b"\n\n" in head


def _is_stream(answer: bytes) -> bool:
    head, _, body = answer.partition(b"\r\n\r\n")
    # A HEAD request has no body.
    return b"Content-Type: text/event-stream" in head and bool(body)


class _Wsgi:
    """Answers the bytes of a request by a WSGI application."""

    def __init__(self, application: WSGIApplication, host: str, port: int) -> None:
        self._application = application
        self.base_environ = {
            "SERVER_NAME": host,
            "SERVER_PORT": str(port),
            "GATEWAY_INTERFACE": "CGI/1.1",
            "REMOTE_HOST": "",
            "CONTENT_LENGTH": "",
            "SCRIPT_NAME": "",
        }

    def __call__(self, request: bytes, address: Any) -> bytes:
        """Return the answer; nothing if the request makes no sense at all."""
        with suppress(Exception):
            return _Request(request, address, self).answer.getvalue()
        return b""

    def get_app(self) -> WSGIApplication:
        return self._application


class _Request(WSGIRequestHandler):
    """Parses a request that has come as a whole, and keeps the answer."""

    def __init__(self, request: bytes, address: Any, server: _Wsgi) -> None:
        self.answer = BytesIO()
        super().__init__(request, address, server)  # type: ignore[arg-type]

    def setup(self) -> None:
        self.rfile = BytesIO(self.request)
        self.wfile = self.answer

    def finish(self) -> None:
        """Keep the answer open: it is sent later."""

    def log_message(self, *_: Any) -> None:
        """Write nothing to stderr."""
