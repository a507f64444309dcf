"""Who may send requests: signatures by a secret or a key, bearer tokens, topics of SNS, the files of TLS."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

from volley.checks import Duration, duration, keep, names, one_of, optional, path, secret, text
from volley.errors import ConfigError
from volley.html_table import settings_html
from volley.secrets import redacted_html, redacted_repr

__all__ = [
    *("SCHEMES", "Auth", "BearerAuth", "HmacAuth", "PublicKeyAuth", "ServerTls", "SignatureScheme", "SnsAuth"),
    *("scheme_of", "secret_bytes"),
]

_HMAC = ("sha256", "sha1", "sha512")
_KEYS = ("ecdsa", "ed25519")
_TOPIC = re.compile(r"arn:aws[\w-]*:sns:[a-z0-9-]+:\d{12}:[\w-]{1,256}(\.fifo)?", re.ASCII)


def _secrets(name: str, value: Any) -> tuple[str, ...]:
    """Check one secret or several, and return them as a tuple; errors don't show them."""
    values = (value,) if isinstance(value, str) else value
    if not isinstance(values, list | tuple) or not values:
        raise ConfigError(f"{name} is not a text, nor a list of texts", hint="one secret, or two while they rotate")
    return tuple(secret(name, value) for value in values)


def _header(name: str, value: Any) -> str:
    if not re.fullmatch(r"[\w-]+", text(name, value), re.ASCII):
        raise ConfigError(f"{name} {value!r} is no name of a header", hint='for example "X-Signature"')
    return str(value)


def _place(name: str, value: Any) -> str | None:
    """Return the header of a timestamp, or what stands before it within the header of the signature."""
    return None if value is None else f"{_header(name, text(name, value).removesuffix('='))}{'=' * value.endswith('=')}"


def _signed(name: str, value: Any) -> str:
    places = re.findall(r"\{(.*?)\}", text(name, value))
    if places.count("body") != 1 or not {*places} <= {"body", "timestamp", "id"}:
        raise ConfigError(
            f"{name} {value!r} is not valid",
            hint='"{body}" once, and maybe "{timestamp}" and "{id}": "v0:{timestamp}:{body}"',
        )
    return str(value)


@dataclass(frozen=True)
class SignatureScheme:
    """How a sender signs its requests.

    Args:
        header: The header that has the signature.
        signed: What is signed: a text in which ``{body}`` stands for the body as it is sent, ``{timestamp}`` and
            ``{id}`` for the texts of `timestamp` and `id`.
        algorithm: ``"sha256"`` (the default), ``"sha1"`` or ``"sha512"`` of an HMAC, for `HmacAuth`; ``"ecdsa"`` (with
            SHA-256) or ``"ed25519"``, for `PublicKeyAuth`.
        encoding: How the signature is written: ``"hex"`` or ``"base64"``.
        prefix: What stands before a signature, such as ``"sha256="``.
        separator: What stands between several signatures in the header, one of which must be right; only those that
            begin with the prefix count. None = there is one.
        timestamp: The header of the time at which it was signed, in seconds since 1970; with ``=`` at its end, such as
            ``"t="``, the part of the signature's header that begins so. None = none is signed, and a request that
            somebody has recorded can be sent again at any time.
        id: The header that has the text for ``{id}``; None = there is none.
        secret_encoding: ``"text"``: the secret is used as it is; ``"base64"``: it is decoded, a ``whsec_`` before it
            left out.

    Raises:
        ConfigError: If a setting is wrong.

    Example:
        >>> scheme = SignatureScheme("Paddle-Signature", "{timestamp}:{body}", "sha256", "hex", "h1=", ";", "ts=")
        >>> HmacAuth(scheme, "secret").tolerance
        datetime.timedelta(seconds=300)
    """

    header: str
    signed: str = "{body}"
    algorithm: Literal["sha256", "sha1", "sha512", "ecdsa", "ed25519"] = "sha256"
    encoding: Literal["hex", "base64"] = "hex"
    prefix: str = ""
    separator: str | None = None
    timestamp: str | None = None
    id: str | None = None
    secret_encoding: Literal["text", "base64"] = "text"

    def __post_init__(self) -> None:
        keep(
            self, header=_header, signed=_signed, algorithm=one_of((*_HMAC, *_KEYS)), encoding=one_of(("hex", "base64"))
        )
        keep(self, separator=optional(text), timestamp=_place, id=optional(_header))
        keep(self, secret_encoding=one_of(("text", "base64")))
        if not isinstance(self.prefix, str):
            raise ConfigError(f"prefix is of type {type(self.prefix).__name__}, not a text", hint='"sha256="')
        for place, value in (("timestamp", self.timestamp), ("id", self.id)):
            if (value is None) == (f"{{{place}}}" in self.signed):
                raise ConfigError(
                    f"{place} is {value!r}, and signed {self.signed!r}",
                    hint=f"give {place}, and {{{place}}} in signed, or neither: what is not signed proves nothing",
                )
        if self.timestamp is not None and self.timestamp.endswith("=") and self.separator is None:
            raise ConfigError(f"timestamp {self.timestamp!r} needs a separator", hint='separator=","')

    _repr_html_ = settings_html


SCHEMES = {
    "github": SignatureScheme("X-Hub-Signature-256", prefix="sha256="),
    "sendgrid": SignatureScheme(
        "X-Twilio-Email-Event-Webhook-Signature",
        "{timestamp}{body}",
        algorithm="ecdsa",
        encoding="base64",
        timestamp="X-Twilio-Email-Event-Webhook-Timestamp",
    ),
    "shopify": SignatureScheme("X-Shopify-Hmac-Sha256", encoding="base64"),
    "slack": SignatureScheme(
        "X-Slack-Signature", "v0:{timestamp}:{body}", prefix="v0=", timestamp="X-Slack-Request-Timestamp"
    ),
    "standard": SignatureScheme(
        "webhook-signature",
        "{id}.{timestamp}.{body}",
        encoding="base64",
        prefix="v1,",
        separator=" ",
        timestamp="webhook-timestamp",
        id="webhook-id",
        secret_encoding="base64",
    ),
    "stripe": SignatureScheme("Stripe-Signature", "{timestamp}.{body}", prefix="v1=", separator=",", timestamp="t="),
    "svix": SignatureScheme(
        "svix-signature",
        "{id}.{timestamp}.{body}",
        encoding="base64",
        prefix="v1,",
        separator=" ",
        timestamp="svix-timestamp",
        id="svix-id",
        secret_encoding="base64",
    ),
}
"""The schemes that have a name."""


def _scheme(algorithms: Sequence[str], value: Any) -> str | SignatureScheme:
    """Return the name of a scheme, or a scheme, whose algorithm is one of these."""
    if not isinstance(value, SignatureScheme):
        text("scheme", value)
    scheme = SCHEMES.get(value) if isinstance(value, str) else value
    if scheme is None:
        # Compare in lower case: "GitHub" would be the name of a header.
        if value.lower() in SCHEMES:
            raise ConfigError(f"scheme {value!r} is unknown", hint=f"{value.lower()!r}")
        _header("scheme", value)
    elif scheme.algorithm not in algorithms:
        needed = (
            "PublicKeyAuth, with the sender's public key" if scheme.algorithm in _KEYS else "HmacAuth, with a secret"
        )
        raise ConfigError(
            f"scheme {value if isinstance(value, str) else scheme.header!r} is one of another kind", hint=needed
        )
    return value  # type: ignore[no-any-return]


def scheme_of(scheme: str | SignatureScheme) -> SignatureScheme:
    """Return the scheme of a name, or of a header that has the signature of the body."""
    if isinstance(scheme, SignatureScheme):
        return scheme
    return SCHEMES.get(scheme) or SignatureScheme(scheme, prefix="sha256=")


def secret_bytes(scheme: SignatureScheme, value: str) -> bytes:
    """Return the key of an HMAC.

    Raises:
        ConfigError: If a secret is no base64, and the scheme says that it is; does not show it.
    """
    if scheme.secret_encoding == "text":
        return value.encode()
    try:
        return base64.b64decode(value.removeprefix("whsec_"), validate=True)
    except (binascii.Error, ValueError):
        # Without the cause, which may show a part of it.
        raise ConfigError("secret is no base64", hint='copy it from the sender, as "whsec_…"') from None


@dataclass(frozen=True, repr=False)
class HmacAuth:
    """Requests are signed with a secret (HMAC).

    Args:
        scheme: How the sender signs: ``"github"``, ``"shopify"``, ``"slack"``, ``"stripe"``, ``"standard"`` (Standard
            Webhooks), ``"svix"``, a `SignatureScheme`, or the name of another header, which has the HMAC-SHA256 of the
            body in hexadecimal, with or without ``sha256=`` in front.
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

    scheme: str | SignatureScheme
    secret: str | Sequence[str]
    tolerance: Duration = timedelta(minutes=5)

    def __post_init__(self) -> None:
        keep(self, scheme=lambda _, value: _scheme(_HMAC, value), secret=_secrets, tolerance=duration)
        for value in self.secret:
            secret_bytes(scheme_of(self.scheme), value)

    __repr__ = redacted_repr
    _repr_html_ = redacted_html


@dataclass(frozen=True)
class PublicKeyAuth:
    """Requests are signed with the sender's private key.

    Args:
        scheme: How the sender signs: ``"sendgrid"``, or a `SignatureScheme` with the algorithm ``"ecdsa"`` or
            ``"ed25519"``.
        key: The sender's public key, or several while it changes: in PEM, or the same without the lines around it; of
            ``"ed25519"`` also in hexadecimal.
        tolerance: The greatest difference between the signed timestamp and this machine's clock: a timedelta, seconds
            or a text such as ``"5m"``.

    Raises:
        ConfigError: If a setting is wrong.

    Example:
        >>> PublicKeyAuth("sendgrid", "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE83T4O/n84i…").scheme
        'sendgrid'
    """

    scheme: str | SignatureScheme
    key: str | Sequence[str]
    tolerance: Duration = timedelta(minutes=5)

    def __post_init__(self) -> None:
        keep(self, scheme=lambda _, value: _scheme(_KEYS, value), key=names, tolerance=duration)
        if isinstance(self.scheme, str) and self.scheme not in SCHEMES:
            known = ", ".join(name for name, scheme in SCHEMES.items() if scheme.algorithm in _KEYS)
            raise ConfigError(f"scheme {self.scheme!r} is unknown", hint=f"{known}, or a SignatureScheme")
        if any("PRIVATE" in key for key in self.key) or not self.key:
            raise ConfigError("key is no public key", hint="the sender keeps the private one, and shows the public one")

    _repr_html_ = settings_html


@dataclass(frozen=True)
class SnsAuth:
    """Requests are messages of Amazon SNS, signed by it; subscriptions of the named topics are confirmed.

    A certificate is fetched only from the host of SNS in the topic's region, by HTTPS, and a redirect is not followed.

    Args:
        topics: The ARN of the topic, or of several: messages of another one are refused.

    Raises:
        ConfigError: If one is no ARN of a topic.

    Example:
        >>> SnsAuth("arn:aws:sns:eu-west-1:123456789012:orders").topics
        ('arn:aws:sns:eu-west-1:123456789012:orders',)
    """

    topics: str | Sequence[str]

    def __post_init__(self) -> None:
        keep(self, topics=names)
        for topic in self.topics:
            if not _TOPIC.fullmatch(topic):
                raise ConfigError(f"topics has {topic!r}", hint='"arn:aws:sns:eu-west-1:123456789012:orders"')
        if not self.topics:
            raise ConfigError("topics is empty", hint='"arn:aws:sns:eu-west-1:123456789012:orders"')

    _repr_html_ = settings_html


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


Auth = HmacAuth | PublicKeyAuth | BearerAuth | SnsAuth
"""Who may send."""
