"""Listens at an address and accepts connections: as many as may be open, counted from the moment of acceptance."""

from __future__ import annotations

import asyncio
import errno
import logging
import resource
import socket
import ssl
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from volley.connectors.webhook.auth import ServerTls
from volley.connectors.webhook.connections import Connections
from volley.connectors.webhook.limits import Deadlines, Seldom
from volley.errors import ConfigError, SourceError

__all__ = ["Listener", "allowed_connections", "check_address", "listen", "listening_errors", "tls_context"]

_log = logging.getLogger(__name__)

_BUSY = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 5\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
_AT_ONCE = 128
_REST_SECONDS = 0.2
_MOST_REFUSALS = 64
_REFUSAL_SECONDS = 2.0
# asyncio's own timeout of a handshake goes by the clock, also while nothing is read.
_NEVER = 1 << 20
# For the log, the keys and their journal, modules that are loaded late, the listening sockets, and refusals.
_OTHER_FILES = 64 + _MOST_REFUSALS
_QUEUE = 1024


def allowed_connections(most: int) -> int:
    """Raise the limit of open files as far as this process may, and return the number of connections that it allows.

    Raises:
        SourceError: If it does not allow any.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = most + _OTHER_FILES
    if hard == resource.RLIM_INFINITY or files <= hard:
        if soft != resource.RLIM_INFINITY:
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, files), hard))
        return most
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if hard <= _OTHER_FILES:
        raise SourceError(
            f"the receiver may open {hard} files, and needs {_OTHER_FILES} besides a file for each connection",
            hint="raise the hard limit of open files: ulimit -Hn, LimitNOFILE= of systemd, --ulimit nofile= of Docker",
        )
    allowed = hard - _OTHER_FILES
    _log.warning(
        "max_connections is %d instead of %d: this process may open %d files; raise the hard limit (ulimit -Hn) to %d",
        *(allowed, most, hard, files),
    )
    return allowed


class Listener:
    """Accepts connections for a server of aiohttp.

    One more than `most` is answered with 503. If many of those stay open too, or the machine has no descriptor left,
    further ones wait in the kernel's queue until one closes.

    Args:
        tls: The context of HTTPS; None = HTTP.
        most: The most connections.
        timeout: Seconds in which a TLS handshake must be complete.
    """

    def __init__(
        self,
        connections: Connections,
        sockets: Sequence[socket.socket],
        tls: ssl.SSLContext | None,
        most: int,
        timeout: float,
        seldom: Seldom,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._connections = connections
        self._sockets = list(sockets)
        self._tls = tls
        self._most = most
        self._seldom = seldom
        self._faults = Seldom()
        self._open: set[asyncio.BaseProtocol] = set()
        self._refused: set[asyncio.BaseProtocol] = set()
        self._handshakes: Deadlines[asyncio.Task[None]] = Deadlines(timeout, asyncio.Task.cancel)
        self._waits = True
        connections.closed = self._closed

    @property
    def port(self) -> int:
        """The port at which it listens."""
        return int(self._sockets[0].getsockname()[1])

    def start(self) -> None:
        """Accept connections from now on."""
        self._waits = False
        for listening in self._sockets:
            self._loop.add_reader(listening, self._accept, listening)

    def close(self) -> None:
        """Accept no more; those that are open stay open."""
        self._wait()
        for listening in self._sockets:
            listening.close()
        self._sockets.clear()

    def close_expired(self) -> None:
        """Close connections whose TLS handshake has taken too long; call it every `LOOK_SECONDS`."""
        self._handshakes.look()

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(_AT_ONCE):
            if len(self._open) >= self._most and len(self._refused) >= _MOST_REFUSALS:
                self._wait()
                return
            try:
                accepted, address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._rest(error)
                return
            self._begin(accepted, str(address[0]))

    def _wait(self) -> None:
        """Let clients wait in the kernel's queue."""
        self._waits = True
        for listening in self._sockets:
            self._loop.remove_reader(listening)

    def _rest(self, error: OSError) -> None:
        """Wait a moment: the machine has no descriptor or memory left."""
        if self._faults.is_due("accept"):
            _log.warning("connections wait, for none can be accepted: %s", error)
        self._wait()
        self._loop.call_later(_REST_SECONDS, self.start)

    def _begin(self, accepted: socket.socket, client: str) -> None:
        is_refused = len(self._open) >= self._most
        protocol = _Refusal(self._closed) if is_refused else self._connections()
        (self._refused if is_refused else self._open).add(protocol)
        task = self._loop.create_task(self._serve(accepted, client, protocol, is_refused))
        self._handshakes.begin(task)
        task.add_done_callback(self._handshakes.stop)

    async def _serve(
        self, accepted: socket.socket, client: str, protocol: asyncio.BaseProtocol, is_refused: bool
    ) -> None:
        tls: dict[str, Any] = {}
        if self._tls is not None:
            tls = {"ssl": self._tls, "ssl_handshake_timeout": _REFUSAL_SECONDS if is_refused else _NEVER}
        try:
            await self._loop.connect_accepted_socket(lambda: protocol, accepted, **tls)
        except (OSError, asyncio.CancelledError) as error:
            self._closed(protocol)
            if isinstance(error, ssl.SSLError) and self._seldom.is_due(client):
                _log.warning("the TLS handshake of %s failed: %s", client, error.reason)

    def _closed(self, protocol: asyncio.BaseProtocol) -> None:
        self._open.discard(protocol)
        self._refused.discard(protocol)
        if self._waits and self._sockets:
            self.start()


class _Refusal(asyncio.Protocol):
    """Answers 503 at once, and reads on for a moment: a client that still sends would lose the answer otherwise."""

    def __init__(self, closed: Callable[[asyncio.BaseProtocol], None]) -> None:
        self._closed = closed
        self._end: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._end = asyncio.get_running_loop().call_later(_REFUSAL_SECONDS, transport.abort)
        transport.write(_BUSY)
        with suppress(NotImplementedError, OSError):  # TLS; the client is gone
            transport.write_eof()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._end is not None:
            self._end.cancel()
        self._closed(self)


def check_address(host: str, port: int, tls: ServerTls | None) -> None:
    """Listen at an address for a moment; a connection in this moment is closed.

    Raises:
        ConfigError: If the files of `tls` can't be used.
        SourceError: If the port is taken, the host is none of this machine, or a file is missing.
    """
    with listening_errors(host, port):
        if tls is not None:
            tls_context(tls)
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        socket.create_server((host, port), family=family).close()


def listen(host: str, port: int) -> list[socket.socket]:
    """Listen at all addresses of a host, at the same port; the sockets don't block.

    Raises:
        OSError: If none is an address of this machine, or the port is taken.
    """
    sockets: list[socket.socket] = []
    unusable: OSError | None = None
    for family, address in _addresses(host):
        try:
            sockets.append(socket.create_server((address, port), family=family, backlog=_QUEUE))
        except OSError as error:
            if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                _close(sockets)
                raise
            unusable = error
            continue
        sockets[-1].setblocking(False)
        port = sockets[0].getsockname()[1]
    if unusable is not None and not sockets:
        raise unusable
    return sockets


def _addresses(host: str) -> list[tuple[socket.AddressFamily, str]]:
    """Return the addresses of a host, each once."""
    entries = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    return list(dict.fromkeys((family, str(address[0])) for family, _, _, _, address in entries))


def _close(sockets: list[socket.socket]) -> None:
    for listening in sockets:
        listening.close()


def tls_context(files: ServerTls) -> ssl.SSLContext:
    """Return the context of HTTPS."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=files.client_ca)
    context.load_cert_chain(files.certificate, files.key)
    if files.client_ca is not None:
        context.verify_mode = ssl.CERT_REQUIRED
    return context


@contextmanager
def listening_errors(host: str, port: int) -> Iterator[None]:
    """Raise errors of listening at an address as ours."""
    try:
        yield
    except ssl.SSLError as error:
        raise ConfigError(
            f"the files of tls can't be used: {error}", hint="PEM; the key fits the certificate"
        ) from error
    except OSError as error:
        raise SourceError(
            f"requests can't be received at {host}:{port}: {error}",
            hint="take another port, or 0 for a free one; host is an address of this machine; tls has files that exist",
        ) from error
