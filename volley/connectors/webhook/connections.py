"""The connections of a receiver, as aiohttp serves them: within time, without a word of clients in the log; answers."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Mapping
from email.utils import formatdate
from http import HTTPStatus
from pathlib import Path
from typing import Any

from aiohttp import HttpVersion11, web
from aiohttp.abc import AbstractStreamWriter

from volley.connectors.webhook.limits import Deadlines, Seldom

__all__ = ["Connections", "Refused", "answer", "fault", "stored"]

_log = logging.getLogger(__name__)


class Connections(web.Server):
    """A server of aiohttp that closes connections which wait too long for a whole request.

    aiohttp itself lets a client take any time for the headers of its first request, and writes the values of headers
    that it can't read into its log.

    Attributes:
        closed: Called with each connection that has ended.

    Args:
        handler: Answers requests; it calls `busy` first and `idle` last.
        timeout: Seconds in which a request's headers must come, also after another request.
    """

    def __init__(self, handler: Any, timeout: float, seldom: Seldom, **options: Any) -> None:
        # aiohttp's own timeout goes by the clock, also while nothing is read.
        super().__init__(handler, access_log=None, keepalive_timeout=math.inf, **options)
        self.closed: Callable[[web.RequestHandler], object] = _ignore
        self._seldom = seldom
        self._requests: Deadlines[web.RequestHandler] = Deadlines(timeout, _cut_off)

    def __call__(self) -> web.RequestHandler:
        return _Connection(self, loop=self._loop, **self._kwargs)

    def connection_made(self, handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        self.idle(handler)

    def connection_lost(self, handler: web.RequestHandler, exc: BaseException | None = None) -> None:
        self._requests.stop(handler)
        super().connection_lost(handler, exc)
        self.closed(handler)

    def busy(self, connection: web.RequestHandler) -> None:
        """Note that a connection has sent a request's headers."""
        self._requests.stop(connection)

    def idle(self, connection: web.RequestHandler) -> None:
        """Note that a connection waits for the next request."""
        self._requests.begin(connection)

    def close_expired(self) -> None:
        """Close the connections that have waited too long; call it every `LOOK_SECONDS`."""
        self._requests.look()

    def complain(self, client: str, fault: str) -> None:
        """Write a line about a client's request, unless there was one in this minute; `fault` has nothing of it."""
        if self._seldom.is_due(client):
            _log.warning("a request of %s failed: %s; further ones of this minute are not written", client, fault)


class _Connection(web.RequestHandler):
    """A connection whose requests leave no values in the log: they may be secrets."""

    __slots__ = ("_server",)

    def __init__(self, server: Connections, **options: Any) -> None:
        super().__init__(server, **options)
        self._server = server

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer a request that aiohttp can't read, or that can't be answered."""
        self._server.complain(request.remote or "a client", f"status {status}, {fault(exc)}")
        if request.writer.output_size > 0:
            raise ConnectionError("a part of the answer is sent")
        response = answer(status, error="the request is malformed" if status < 500 else "the request can't be answered")
        response.force_close()
        return response

    def log_exception(self, *args: Any, exc_info: BaseException | None = None, **_: Any) -> None:
        """Write which exception aiohttp has met."""
        self._server.complain("a client", f"{args[0]}, {fault(exc_info)}")


def fault(error: BaseException | None) -> str:
    """Return the class of an error and the place that raised it: its message may have values of a request."""
    place = ""
    trace = None if error is None else error.__traceback__
    while trace is not None:
        place = f" at {Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}"
        trace = trace.tb_next
    return f"{type(error).__name__}{place}"


def _ignore(_: web.RequestHandler) -> None:
    """Do nothing: nobody counts connections yet."""


def _cut_off(connection: web.RequestHandler) -> None:
    transport = connection.transport
    connection.force_close()
    if transport is not None:
        # Also if the client does not take the rest of an answer, or does not close its side of TLS.
        transport.abort()


class Refused(Exception):
    """A request is refused.

    Args:
        headers: More headers, with _ for -.
    """

    def __init__(self, status: int, reason: str, **headers: str) -> None:
        super().__init__(reason)
        self.status = status
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}

    def answer(self) -> web.Response:
        """Return the answer."""
        response = answer(self.status, self.headers, error=str(self))
        if "Connection" in self.headers:
            response.force_close()
        return response


def answer(status: int, headers: Mapping[str, str] | None = None, /, **content: Any) -> web.Response:
    """Return an answer with a JSON object, or without a body."""
    if not content:
        return web.Response(status=status, headers=headers)
    return web.json_response(content, status=status, headers=headers)


class _Stored(web.StreamResponse):
    """The answer to a usual client, written as it stands: a tenth of a request's CPU less."""

    def __init__(self, status: HTTPStatus) -> None:
        super().__init__(status=status)
        self._line = f"HTTP/1.1 {status.value} {status.phrase}"
        self._second = 0
        self._bytes = b""

    @property
    def keep_alive(self) -> bool:
        return True

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        if request.transport is None:
            raise ConnectionResetError
        if self._second != (second := int(time.time())):
            date = formatdate(second, usegmt=True)
            self._bytes = f"{self._line}\r\nContent-Length: 0\r\nDate: {date}\r\n\r\n".encode()
            self._second = second
        request.transport.write(self._bytes)
        return None

    async def write_eof(self, data: bytes = b"") -> None:
        """Do nothing: the answer is complete."""


_STORED = {status.value: _Stored(status) for status in (HTTPStatus.OK, HTTPStatus.ACCEPTED)}


def stored(request: web.BaseRequest, status: int) -> web.StreamResponse:
    """Return the answer to a request that is on disk: 200 or 202."""
    is_usual = request.version == HttpVersion11 and request.keep_alive
    # aiohttp's own answer waits for a client that sends and sends, and does not read its answers.
    return _STORED[status] if is_usual and not request.protocol.writing_paused else web.Response(status=status)
