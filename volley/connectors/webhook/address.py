"""The address at which requests are received: errors of listening there, and a look whether it can be done."""

from __future__ import annotations

import errno
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager

from volley.connectors.webhook.auth import ServerTls
from volley.errors import ConfigError, SourceError

__all__ = ["check_address", "listen", "listening_errors", "tls_context"]

_QUEUE = 1024


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
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    return list(dict.fromkeys((family, str(address[0])) for family, _, _, _, address in found))


def _close(sockets: list[socket.socket]) -> None:
    for listening in sockets:
        listening.close()


def tls_context(files: ServerTls) -> ssl.SSLContext:
    """Return the context of HTTPS.

    Raises:
        OSError: If a file can't be read.
        ssl.SSLError: If the files don't fit together.
    """
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
