"""The address at which requests are received: errors of listening there, and a look whether it can be done."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager

from volley.connectors.webhook.auth import ServerTls
from volley.errors import ConfigError, SourceError

__all__ = ["check_address", "listening_errors", "tls_context"]


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
