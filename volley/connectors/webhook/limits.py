"""Limits of clients: how often they may send, how long a connection may wait for a request."""

from __future__ import annotations

import asyncio
from typing import Any

from aiohttp import web

__all__ = ["Connections", "RateLimit"]

_MOST_CLIENTS = 10_000
_BUSY = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 5\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class RateLimit:
    """Limits each client to a number of requests a second, with a second's worth at once.

    It keeps one time a client, that at which all of its requests so far would be due at this rate (the generic cell
    rate algorithm of ATM networks).

    Args:
        rate: Requests a second.

    Example:
        >>> limit = RateLimit(2)
        >>> [limit.wait("10.0.0.1", now=100.0) for _ in range(4)]
        [0.0, 0.0, 0.5, 0.5]
    """

    def __init__(self, rate: float) -> None:
        self._interval = 1 / rate
        self._due: dict[str, float] = {}

    def wait(self, client: str, now: float) -> float:
        """Return after how many seconds a client may send; 0 = now, and the request counts."""
        due = max(now, self._due.get(client, 0.0)) + self._interval
        if due - now > max(1.0, self._interval):
            return due - now - max(1.0, self._interval)
        if len(self._due) >= _MOST_CLIENTS:
            self._due = {name: time for name, time in self._due.items() if time > now}
        self._due[client] = due
        return 0.0


class Connections(web.Server):
    """A server of aiohttp that closes connections which wait too long for a whole request, and refuses too many.

    aiohttp itself lets a client take any time for the headers of its first request.

    Args:
        handler: Answers requests; it calls `busy` first and `idle` last.
        most: The most connections.
        timeout: Seconds in which a request's headers must come, also after another request.
        options: For aiohttp.
    """

    def __init__(self, handler: Any, most: int, timeout: float, **options: Any) -> None:
        super().__init__(handler, **options)
        self._most = most
        self._timeout = timeout
        # In the order in which they began to wait.
        self._waiting: dict[web.RequestHandler, float] = {}

    def connection_made(self, handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        if len(self._connections) > self._most:
            transport.write(_BUSY)
            transport.close()
        self.idle(handler)

    def connection_lost(self, handler: web.RequestHandler, exc: BaseException | None = None) -> None:
        self._waiting.pop(handler, None)
        super().connection_lost(handler, exc)

    def busy(self, connection: web.RequestHandler) -> None:
        """Note that a connection has sent a request's headers."""
        self._waiting.pop(connection, None)

    def idle(self, connection: web.RequestHandler) -> None:
        """Note that a connection waits for the next request."""
        self._waiting[connection] = self._loop.time()

    def close_expired(self) -> None:
        """Close the connections that have waited too long; call it about once a second."""
        for connection, since in list(self._waiting.items()):
            if since > self._loop.time() - self._timeout:
                break
            del self._waiting[connection]
            connection.force_close()
