"""A small HTTP server: one thread, a bounded number of connections, each with a bounded time and size."""

from __future__ import annotations

import logging
import selectors
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from io import BytesIO
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler

if TYPE_CHECKING:
    from wsgiref.types import WSGIApplication

__all__ = ["Server"]

_log = logging.getLogger(__name__)

MOST_CONNECTIONS = 64
REQUEST_SECONDS = 10.0
_MOST_BYTES = 16 << 10
_PIECE = 64 << 10
_REST_SECONDS = 0.2
_QUEUE = 128
_TOO_LARGE = b"HTTP/1.0 431 Request Header Fields Too Large\r\nContent-Length: 0\r\n\r\n"


class Server:
    """Serves a WSGI application in a daemon thread until it is closed; one request a connection.

    A connection has ten seconds for its request and its answer; bodies of requests are not read. If there are more than
    64 connections, the oldest one is closed for the next one.

    Attributes:
        port: The port at which it listens.

    Args:
        application: Answers requests, quickly: one at a time.
        host: The address to listen at.
        port: The port; 0 = a free one.

    Raises:
        OSError: If the port is in use, or the address is not one of this machine.
    """

    def __init__(self, application: WSGIApplication, host: str, port: int) -> None:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        both = family == socket.AF_INET6 and socket.has_dualstack_ipv6()
        self._listening = socket.create_server((host, port), family=family, backlog=_QUEUE, dualstack_ipv6=both)
        self._listening.setblocking(False)
        self.port = int(self._listening.getsockname()[1])
        self._answer = _Wsgi(application, host, self.port)
        self._wake, self._end = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._end, selectors.EVENT_READ)
        self._rests_until: float | None = None
        # In the order in which they were accepted.
        self._open: dict[_Connection, None] = {}
        self._listen()
        self._thread = threading.Thread(target=self._run, name="volley-endpoint", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop serving and free the port."""
        self._wake.close()
        self._thread.join()

    def _run(self) -> None:
        while True:
            for key, _ in self._selector.select(self._seconds_left()):
                if key.fileobj is self._end:
                    self._shut()
                    return
                if key.fileobj is self._listening:
                    self._accept()
                else:
                    self._advance(key.data)
            # What has come is read before time is up: the process may have been held up.
            self._close_expired(time.monotonic())

    def _shut(self) -> None:
        for connection in list(self._open):
            self._drop(connection)
        for used in (self._listening, self._end, self._selector):
            used.close()

    def _listen(self) -> None:
        self._rests_until = None
        self._selector.register(self._listening, selectors.EVENT_READ)

    def _accept(self) -> None:
        try:
            accepted, address = self._listening.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError as error:
            _log.warning("the endpoint's connections wait, for none can be accepted: %s", error)
            self._selector.unregister(self._listening)
            self._rests_until = time.monotonic() + _REST_SECONDS
            return
        if len(self._open) >= MOST_CONNECTIONS:
            self._drop(next(iter(self._open)))
        connection = _Connection(accepted, address, self._answer, time.monotonic() + REQUEST_SECONDS)
        self._open[connection] = None
        self._selector.register(accepted, selectors.EVENT_READ, connection)

    def _advance(self, connection: _Connection) -> None:
        if connection not in self._open:
            return  # closed for another one meanwhile
        try:
            events = connection.advance()
        except BlockingIOError:
            return
        except OSError:
            events = 0  # the client is gone
        if events:
            self._selector.modify(connection.socket, events, connection)
        else:
            self._drop(connection)

    def _drop(self, connection: _Connection) -> None:
        del self._open[connection]
        self._selector.unregister(connection.socket)
        connection.socket.close()

    def _seconds_left(self) -> float | None:
        """Return the time until something is due; None = nothing is."""
        times = [connection.deadline for connection in self._open][:1]
        if self._rests_until is not None:
            times.append(self._rests_until)
        return max(0.0, min(times) - time.monotonic()) if times else None

    def _close_expired(self, now: float) -> None:
        for connection in list(self._open):
            if connection.deadline > now:
                break
            self._drop(connection)
        if self._rests_until is not None and now >= self._rests_until:
            self._listen()


class _Connection:
    """A connection: its request is read, answered, and then what still comes is passed over.

    Attributes:
        socket: Its socket.
        deadline: When it is closed.
    """

    def __init__(self, accepted: socket.socket, address: Any, answer: Callable[..., bytes], deadline: float) -> None:
        accepted.setblocking(False)
        self.socket = accepted
        self.deadline = deadline
        self._address = address
        self._answer = answer
        self._request = b""
        self._rest: memoryview | None = None
        self._step = self._read

    def advance(self) -> int:
        """Go on as far as possible without waiting; return the event to wait for, 0 = the connection has ended."""
        return self._step()

    def _read(self) -> int:
        data = self.socket.recv(_PIECE)
        self._request += data
        head = self._request[:_MOST_BYTES]
        if b"\r\n\r\n" in head or b"\n\n" in head:
            self._rest = memoryview(self._answer(self._request, self._address))
        elif len(self._request) < _MOST_BYTES:
            return selectors.EVENT_READ if data else 0
        else:
            self._rest = memoryview(_TOO_LARGE)
        self._step = self._write
        return selectors.EVENT_WRITE

    def _write(self) -> int:
        assert self._rest is not None
        self._rest = self._rest[self.socket.send(self._rest) :]
        if self._rest:
            return selectors.EVENT_WRITE
        # A client that still sends would lose the answer if the socket were closed now.
        self.socket.shutdown(socket.SHUT_WR)
        self._step = self._pass_over
        return selectors.EVENT_READ

    def _pass_over(self) -> int:
        return selectors.EVENT_READ if self.socket.recv(_PIECE) else 0


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
