"""Who may send requests, as values: signatures, bearer tokens, the files of TLS."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from volley.checks import Duration, duration, keep, optional, path, secret, text
from volley.errors import ConfigError
from volley.secrets import redacted_html, redacted_repr

__all__ = ["BearerAuth", "HmacAuth", "ServerTls"]


def _secrets(name: str, value: Any) -> tuple[str, ...]:
    """Check one secret or several, and return them as a tuple; errors don't show them."""
    values = (value,) if isinstance(value, str) else value
    if not isinstance(values, list | tuple) or not values:
        raise ConfigError(f"{name} is not a text, nor a list of texts", hint="one secret, or two while they rotate")
    return tuple(secret(name, value) for value in values)


@dataclass(frozen=True, repr=False)
class HmacAuth:
    """Requests are signed with HMAC-SHA256 of their body.

    Args:
        scheme: How the sender signs: ``"github"`` (``X-Hub-Signature-256``), ``"stripe"`` (``Stripe-Signature``, with a
            timestamp), ``"slack"`` (``X-Slack-Signature``, with a timestamp), or the name of another header, which has
            the signature of the body in hexadecimal, with or without ``sha256=`` in front.
        secret: The shared secret, or several: a request signed with any of them is accepted, so that senders can move
            from an old one to a new one.
        tolerance: The greatest difference between a timestamp that the sender signs and this machine's clock:
            a timedelta, seconds or a text such as ``"5m"``.

    Raises:
        ConfigError: If a setting is wrong.

    Example:
        >>> HmacAuth("github", ["the-new-one", "the-old-one"])
        HmacAuth(scheme='github', secret='***')
    """

    scheme: str
    secret: str | Sequence[str]
    tolerance: Duration = timedelta(minutes=5)

    def __post_init__(self) -> None:
        keep(self, scheme=text, secret=_secrets, tolerance=duration)

    def __repr__(self) -> str:
        return redacted_repr(self)

    _repr_html_ = redacted_html


@dataclass(frozen=True, repr=False)
class BearerAuth:
    """Requests have a token in the header ``Authorization: Bearer …``.

    Args:
        token: The token, or several, each of which is accepted.

    Raises:
        ConfigError: If it is not a text.

    Example:
        >>> BearerAuth("a-long-random-token")
        BearerAuth(token='***')
    """

    token: str | Sequence[str]

    def __post_init__(self) -> None:
        keep(self, token=_secrets)

    def __repr__(self) -> str:
        return redacted_repr(self)

    _repr_html_ = redacted_html


@dataclass(frozen=True)
class ServerTls:
    """The files for HTTPS, in PEM.

    Args:
        certificate: The server's certificate, with those that signed it.
        key: Its private key.
        client_ca: The authorities whose client certificates are accepted; a client without one is refused. None =
            clients need no certificate.

    Raises:
        ConfigError: If a path is empty.

    Example:
        >>> ServerTls("server.pem", "server.key").client_ca is None
        True
    """

    certificate: str
    key: str
    client_ca: str | None = None

    def __post_init__(self) -> None:
        keep(self, certificate=path, key=path, client_ca=optional(path))
