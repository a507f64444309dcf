"""Who may send requests: signatures as GitHub, Stripe and Slack make them, bearer tokens, the files of TLS."""

from __future__ import annotations

import hmac
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from volley.checks import Duration, duration, keep, optional, path, secret, text
from volley.errors import ConfigError
from volley.html_table import settings_html
from volley.secrets import redacted_html, redacted_repr

__all__ = ["BearerAuth", "HmacAuth", "ServerTls", "Verify", "verifier"]


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

    __repr__ = redacted_repr
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

    __repr__ = redacted_repr
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

    _repr_html_ = settings_html


Verify = Callable[[Mapping[str, str], bytes, float], str | None]
"""Takes a request's headers, its body as sent, and the time; returns why it is refused, None = it is accepted."""


def verifier(auth: HmacAuth | BearerAuth | None) -> Verify:
    """Return the check of a setting.

    Example:
        >>> verifier(BearerAuth("token"))({"Authorization": "Bearer token"}, b"", 0.0) is None
        True
        >>> verifier(HmacAuth("github", "secret"))({}, b"{}", 0.0)
        'no header X-Hub-Signature-256'
    """
    if auth is None:
        return lambda headers, body, now: None
    if isinstance(auth, BearerAuth):
        return _bearer([f"Bearer {token}".encode() for token in auth.token])
    # Copied for each request, which spares the set-up of the algorithm: half of the time.
    secrets = [hmac.new(secret.encode(), digestmod="sha256") for secret in auth.secret]
    assert isinstance(auth.tolerance, timedelta)
    tolerance = auth.tolerance.total_seconds()
    if auth.scheme == "stripe":
        return _stripe(secrets, tolerance)
    if auth.scheme == "slack":
        return _slack(secrets, tolerance)
    return _plain(secrets, "X-Hub-Signature-256" if auth.scheme == "github" else auth.scheme)


def _bearer(tokens: Sequence[bytes]) -> Verify:
    def verify(headers: Mapping[str, str], body: bytes, now: float) -> str | None:
        sent = headers.get("Authorization", "").encode(errors="replace")
        # Compare with all of them, so that the time does not tell which one fits.
        matches = [hmac.compare_digest(sent, token) for token in tokens]
        return None if any(matches) else "wrong token"

    return verify


def _plain(secrets: Sequence[hmac.HMAC], header: str) -> Verify:
    def verify(headers: Mapping[str, str], body: bytes, now: float) -> str | None:
        sent = headers.get(header)
        if sent is None:
            return f"no header {header}"
        return _match(secrets, body, [sent.removeprefix("sha256=")])

    return verify


def _stripe(secrets: Sequence[hmac.HMAC], tolerance: float) -> Verify:
    def verify(headers: Mapping[str, str], body: bytes, now: float) -> str | None:
        sent = headers.get("Stripe-Signature")
        if sent is None:
            return "no header Stripe-Signature"
        pairs = [pair.strip().partition("=") for pair in sent.split(",")]
        times = [value for name, _, value in pairs if name == "t"]
        signatures = [value for name, _, value in pairs if name == "v1"]
        return _signed_at("".join(times), now, tolerance) or _match(secrets, f"{times[0]}.".encode() + body, signatures)

    return verify


def _slack(secrets: Sequence[hmac.HMAC], tolerance: float) -> Verify:
    def verify(headers: Mapping[str, str], body: bytes, now: float) -> str | None:
        sent, time = headers.get("X-Slack-Signature"), headers.get("X-Slack-Request-Timestamp", "")
        if sent is None:
            return "no header X-Slack-Signature"
        return _signed_at(time, now, tolerance) or _match(
            secrets, f"v0:{time}:".encode() + body, [sent.removeprefix("v0=")]
        )

    return verify


def _signed_at(time: str, now: float, tolerance: float) -> str | None:
    if not re.fullmatch(r"\d{1,15}", time, re.ASCII):
        return "no timestamp"
    return None if abs(now - int(time)) <= tolerance else "the timestamp is too old, or a clock is wrong"


def _match(secrets: Sequence[hmac.HMAC], signed: bytes, signatures: Sequence[str]) -> str | None:
    expected = [_signature(secret, signed) for secret in secrets]
    sent = [signature.lower().encode(errors="replace") for signature in signatures]
    # Compare with all of them, so that the time does not tell which one fits.
    matches = [hmac.compare_digest(mine, theirs) for mine in expected for theirs in sent]
    return None if any(matches) else "wrong signature"


def _signature(secret: hmac.HMAC, signed: bytes) -> bytes:
    signature = secret.copy()
    signature.update(signed)
    return signature.hexdigest().encode()
