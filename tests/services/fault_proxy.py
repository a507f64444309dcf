"""A small HTTP proxy before a real catalog or storage: it forwards, records, and injects the faults a test arms."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

FORWARD_SECONDS = 30


@dataclass(frozen=True)
class Request:
    """What a client asked."""

    method: str
    path: str
    headers: dict[str, str] = field(repr=False)
    body: bytes = field(repr=False)


@dataclass(frozen=True)
class Answer:
    """What a client is told."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


@dataclass(frozen=True)
class Exchange:
    """What was asked, by which fault it was met, what the server said (None: it was not asked), what the client got
    (None: the connection was dropped)."""

    method: str
    path: str
    fault: str | None
    server: int | None
    client: int | None


Server = Callable[[], Answer]
"""Asks the real server."""
Fault = Callable[[Server], Answer | None]
"""Makes the client's answer, with the real server's or without; None drops the connection."""


def answer_with(status: int, code: str = "Injected", **headers: str) -> Fault:
    """The client is refused, the server hears nothing; the body is an Iceberg REST error."""
    text = f'{{"error": {{"message": "injected {status}", "type": "{code}", "code": {status}}}}}'
    made = Answer(status, {"Content-Type": "application/json", **headers}, text.encode())
    return named(f"answer {status}", lambda server: made)


def answer_as_s3(status: int, code: str) -> Fault:
    """The same with an error of S3."""
    text = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>injected {status}</Message></Error>"
    made = Answer(status, {"Content-Type": "application/xml"}, text.encode())
    return named(f"answer {status}", lambda server: made)


def answer_after(status: int) -> Fault:
    """The server does what was asked; the client is told otherwise, as by a gateway that gave up or asked twice."""
    refused = answer_with(status)

    def forward_and_refuse(server: Server) -> Answer | None:
        server()
        return refused(server)

    return named(f"answer {status} after", forward_and_refuse)


def lose_answer(server: Server) -> None:
    """The server does what was asked; the client never hears of it."""
    server()


def lose_request(server: Server) -> None:
    """The connection ends before the server hears anything."""


def hold_answer(until: threading.Event) -> Fault:
    """The server does what was asked; its answer waits for the test."""

    def hold(server: Server) -> Answer:
        answer = server()
        until.wait(FORWARD_SECONDS)
        return answer

    return named("hold answer", hold)


def hold_request(until: threading.Event, done: threading.Event) -> Fault:
    """The server hears of it only when the test says so, long after the client gave up; then `done` is set."""

    def hold(server: Server) -> None:
        until.wait(FORWARD_SECONDS)
        server()
        done.set()

    return named("hold request", hold)


def with_config(settings: dict[str, str]) -> Fault:
    """The client gets the server's answer with these settings in its ``config``."""

    def configured(server: Server) -> Answer:
        answer = server()
        if answer.status == 304:
            return answer
        body = json.loads(answer.body)
        body["config"] = {**body.get("config", {}), **settings}
        return Answer(answer.status, answer.headers, json.dumps(body).encode())

    return named("with config", configured)


def expire_tokens(proxy: FaultProxy, status: int) -> Fault:
    """The bearer tokens given so far have expired; those that are asked for from now on are good."""
    tokens = r"/oauth/tokens"
    given, refused = len(proxy.asked("POST", tokens)), answer_with(status)

    def check(server: Server) -> Answer | None:
        return refused(server) if len(proxy.asked("POST", tokens)) == given else server()

    return named("expired token", check)


def kill(pid: Callable[[], int]) -> Fault:
    """The server does what was asked; then the process dies as by ``kill -9``, and gets no answer."""

    def forward_and_kill(server: Server) -> None:
        server()
        os.kill(pid(), signal.SIGKILL)

    return named("kill", forward_and_kill)


def twice(server: Server) -> Answer:
    """The server is asked twice, and the client has the second answer, as of a gateway that repeats requests."""
    server()
    return server()


def named(name: str, fault: Fault) -> Fault:
    """The fault under the name that exchanges show."""
    fault.__name__ = name
    return fault


def kind_of(fault: Fault) -> str:
    """Return a fault's name without the status of its answer."""
    return re.sub(r"\d", "", fault.__name__)


LIES: list[Fault] = [
    lose_answer,
    lose_request,
    twice,
    *map(answer_after, (400, 401, 403, 404, 408, 409, 419, 422, 429, 500, 501, 502, 503, 504)),
    *map(answer_with, (409, 429, 500, 502, 503, 504)),
]
"""Faults of a gateway after which a client has to repeat a commit, or to find out that it has landed."""


@dataclass
class Rule:
    """Which requests meet a fault: `skip` matching ones pass, then `times` are met; None = all that follow."""

    fault: Fault
    method: str
    path: re.Pattern[str]
    times: int | None
    skip: int

    def meets(self, request: Request) -> bool:
        """Whether this request is one; counts it."""
        if self.times == 0 or request.method != self.method or not self.path.search(request.path):
            return False
        # Reports are sent beside the work, whenever their thread gets to it.
        if "/metrics" in request.path and "metrics" not in self.path.pattern:
            return False
        if self.skip:
            self.skip -= 1
            return False
        if self.times is not None:
            self.times -= 1
        return True


class FaultProxy:
    """Listens on a port of its own and forwards to `upstream`, an ``http://host:port``.

    Args:
        upstream: The real server.
    """

    def __init__(self, upstream: str) -> None:
        where = urlsplit(upstream)
        assert where.hostname, upstream
        assert where.port, upstream
        self._upstream = (where.hostname, where.port)
        self._lock = threading.Lock()
        self._rules: list[Rule] = []
        self._server: _Listener | None = None
        self.exchanges: list[Exchange] = []
        self.port = 0
        self.listen()

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def arm(self, fault: Fault, method: str, path: str, *, times: int | None = 1, skip: int = 0) -> None:
        """Meet requests of this method whose path (with its query) matches the regex with the fault."""
        with self._lock:
            self._rules.append(Rule(fault, method, re.compile(path), times, skip))

    def disarm(self) -> None:
        """From now on, forward all."""
        with self._lock:
            self._rules.clear()

    def asked(self, method: str, path: str) -> list[Exchange]:
        """The matching exchanges so far, in order."""
        with self._lock:
            return [e for e in self.exchanges if e.method == method and re.search(path, e.path)]

    def listen(self) -> None:
        """Take connections, on the same port as before; nothing happens if it does already."""
        if self._server is None:
            self._server = _Listener(("127.0.0.1", self.port), _handler(self))
            self.port = self._server.server_address[1]
            threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def refuse(self) -> None:
        """Stop listening: connections are refused."""
        if self._server is not None:
            server, self._server = self._server, None
            server.shutdown()
            server.server_close()

    def refuse_from_now(self, server: Server) -> None:
        """A fault: this request is lost, and the following ones find nobody listening."""
        self.refuse()

    def lose_answer_and_refuse(self, server: Server) -> None:
        """A fault: the server does what was asked, the client never hears of it, nor can it ask again."""
        server()
        self.refuse()

    def exchange(self, request: Request) -> Answer | None:
        """What the client is told."""
        told: list[int] = []

        def server() -> Answer:
            answer = self._forward(request)
            told.append(answer.status)
            return answer

        fault = self._fault(request)
        answer = fault(server) if fault else server()
        made = Exchange(
            request.method,
            request.path,
            fault.__name__ if fault else None,
            told[0] if told else None,
            answer.status if answer else None,
        )
        with self._lock:
            self.exchanges.append(made)
        return answer

    def _fault(self, request: Request) -> Fault | None:
        with self._lock:
            return next((rule.fault for rule in self._rules if rule.meets(request)), None)

    def _forward(self, request: Request) -> Answer:
        connection = http.client.HTTPConnection(*self._upstream, timeout=FORWARD_SECONDS)
        try:
            # With the client's own Host header: S3's signatures cover it.
            connection.request(request.method, request.path, request.body, request.headers)
            answer = connection.getresponse()
            return Answer(answer.status, dict(answer.getheaders()), answer.read())
        except OSError:
            return Answer(502)
        finally:
            connection.close()

    def __enter__(self) -> FaultProxy:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.refuse()


class _Listener(ThreadingHTTPServer):
    """One thread per connection; they end with the process."""

    daemon_threads = True
    allow_reuse_address = True
    block_on_close = False
    # Twenty clients may connect at once: a connection beyond these waits for a second.
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is part of the game."""


# Headers of one connection, or of a body that is sent whole here.
_OWN = {"connection", "content-length", "date", "expect", "keep-alive", "server", "transfer-encoding"}


def _handler(proxy: FaultProxy) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _pass_on(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            kept = {name: value for name, value in self.headers.items() if name.lower() not in _OWN}
            answer = proxy.exchange(Request(self.command, self.path, kept, body))
            # One request per connection: a client finds out at once when nobody listens any more.
            self.close_connection = True
            if answer is None:
                self._drop()
            else:
                self._tell(answer)

        do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = _pass_on

        def _tell(self, answer: Answer) -> None:
            self.send_response_only(answer.status)
            length = str(len(answer.body))
            for name, value in answer.headers.items():
                if name.lower() == "content-length" and self.command == "HEAD":
                    length = value
                if name.lower() not in _OWN:
                    self.send_header(name, value)
            self.send_header("Content-Length", length)
            self.send_header("Connection", "close")
            self.end_headers()
            # An answer to HEAD has no body: aiohttp refuses what comes behind it, if it comes in time.
            if self.command != "HEAD":
                self.wfile.write(answer.body)

        def _drop(self) -> None:
            with suppress(OSError):
                self.connection.shutdown(socket.SHUT_RDWR)

        def log_message(self, format: str, *args: Any) -> None:
            """The record is `FaultProxy.exchanges`."""

    return Handler
