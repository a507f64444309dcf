"""Checks who has sent a request, by its headers and its body as it was sent."""

from __future__ import annotations

import base64
import binascii
import hmac
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from volley.connectors.webhook.auth import (
    BearerAuth,
    HmacAuth,
    PublicKeyAuth,
    SignatureScheme,
    scheme_of,
    secret_bytes,
)
from volley.errors import ConfigError, MissingDependencyError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

__all__ = ["Verify", "verifier"]

# Each signature of a public key costs 0.1 ms, also a wrong one.
_MOST_SIGNATURES = 8

Verify = Callable[[Mapping[str, str], bytes, float], str | None]
"""Takes a request's headers, its body as sent, and the time; returns why it is refused, None = it is accepted."""

Matches = Callable[[bytes, Sequence[str]], bool]
"""Takes what is signed, and signatures as they were sent; returns True if one is right."""


def verifier(auth: HmacAuth | PublicKeyAuth | BearerAuth | None) -> Verify:
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
    scheme = scheme_of(auth.scheme)
    assert isinstance(auth.tolerance, timedelta)
    matches = _hmac(scheme, auth.secret) if isinstance(auth, HmacAuth) else _public_key(scheme, auth.key)
    return _signature(scheme, matches, auth.tolerance.total_seconds())


def _bearer(tokens: Sequence[bytes]) -> Verify:
    def verify(headers: Mapping[str, str], body: bytes, now: float) -> str | None:
        sent = headers.get("Authorization", "").encode(errors="replace")
        # Compare with all of them, so that the time does not tell which one fits.
        matches = [hmac.compare_digest(sent, token) for token in tokens]
        return None if any(matches) else "wrong token"

    return verify


def _signature(scheme: SignatureScheme, matches: Matches, tolerance: float) -> Verify:
    """Return the check of a scheme."""
    before, _, after = scheme.signed.partition("{body}")
    header, is_plain = scheme.header, not before and not after

    def verify(headers: Mapping[str, str], body: bytes, now: float) -> str | None:
        sent = headers.get(header)
        if sent is None:
            return f"no header {header}"
        if is_plain:
            return None if matches(body, _sent(scheme, sent)) else "wrong signature"
        values = {}
        if scheme.timestamp is not None:
            values["{timestamp}"] = time = _time(scheme, headers, sent)
            if refusal := _signed_at(time, now, tolerance):
                return refusal
        if scheme.id is not None:
            values["{id}"] = headers.get(scheme.id, "")
        signed = _filled(before, values) + body + _filled(after, values)
        return None if matches(signed, _sent(scheme, sent)) else "wrong signature"

    return verify


def _time(scheme: SignatureScheme, headers: Mapping[str, str], sent: str) -> str:
    """Return the timestamp of a request; a text that is none if it has none, or several."""
    place = scheme.timestamp or ""
    if not place.endswith("="):
        return headers.get(place, "")
    return "".join(item.removeprefix(place) for item in _items(scheme, sent) if item.startswith(place))


def _signed_at(time: str, now: float, tolerance: float) -> str | None:
    if not re.fullmatch(r"\d{1,15}", time, re.ASCII):
        return "no timestamp"
    return None if abs(now - int(time)) <= tolerance else "the timestamp is too old, or a clock is wrong"


def _filled(text: str, values: Mapping[str, str]) -> bytes:
    """Return a text with its places filled; what stands in one is not looked at again."""
    return re.sub(r"\{\w+\}", lambda place: values[place[0]], text).encode(errors="surrogateescape")


def _items(scheme: SignatureScheme, sent: str) -> list[str]:
    return [item.strip() for item in sent.split(scheme.separator)]


def _sent(scheme: SignatureScheme, sent: str) -> list[str]:
    """Return the signatures in a header."""
    if scheme.separator is None:
        return [sent.removeprefix(scheme.prefix)]
    return [item.removeprefix(scheme.prefix) for item in _items(scheme, sent) if item.startswith(scheme.prefix)]


def _hmac(scheme: SignatureScheme, secrets: str | Sequence[str]) -> Matches:
    # Copied for each request, which spares the set-up of the algorithm: half of the time.
    begun = [hmac.new(secret_bytes(scheme, secret), digestmod=scheme.algorithm) for secret in secrets]
    is_hex = scheme.encoding == "hex"

    def matches(signed: bytes, signatures: Sequence[str]) -> bool:
        sent = [(text.lower() if is_hex else text).encode(errors="replace") for text in signatures]
        expected = []
        for secret in begun:
            signature = secret.copy()
            signature.update(signed)
            expected.append(signature.hexdigest().encode() if is_hex else base64.b64encode(signature.digest()))
        # Compare with all of them, so that the time does not tell which one fits.
        fits = [hmac.compare_digest(mine, theirs) for mine in expected for theirs in sent]
        return any(fits)

    return matches


def _public_key(scheme: SignatureScheme, keys: str | Sequence[str]) -> Matches:
    try:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, EllipticCurvePublicKey
        from cryptography.hazmat.primitives.hashes import SHA256
    except ImportError as error:
        raise MissingDependencyError(
            "signatures by a key need cryptography", hint='pip install "volley-stream[http]"'
        ) from error
    loaded = [_key(scheme, key) for key in keys]

    def fits(key: EllipticCurvePublicKey | Ed25519PublicKey, signed: bytes, text: str) -> bool:
        try:
            signature = bytes.fromhex(text) if scheme.encoding == "hex" else base64.b64decode(text, validate=True)
            if isinstance(key, EllipticCurvePublicKey):
                key.verify(signature, signed, ECDSA(SHA256()))
            else:
                key.verify(signature, signed)
        except (InvalidSignature, ValueError):
            return False
        return True

    def matches(signed: bytes, signatures: Sequence[str]) -> bool:
        return any(fits(key, signed, text) for text in signatures[:_MOST_SIGNATURES] for key in loaded)

    return matches


def _key(scheme: SignatureScheme, text: str) -> EllipticCurvePublicKey | Ed25519PublicKey:
    """Return a public key of its text.

    Raises:
        ConfigError: If it is none of the scheme's algorithm.
    """
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    expected = EllipticCurvePublicKey if scheme.algorithm == "ecdsa" else Ed25519PublicKey
    try:
        if scheme.algorithm == "ed25519" and re.fullmatch("[0-9a-fA-F]{64}", text):
            return Ed25519PublicKey.from_public_bytes(bytes.fromhex(text))
        lines = re.sub(r"-----[A-Z ]+-----|\s", "", text)
        key = serialization.load_der_public_key(base64.b64decode(lines, validate=True))
    except (binascii.Error, ValueError, UnsupportedAlgorithm) as error:
        raise ConfigError(f"key {text[:40]!r} is no public key: {error}", hint="copy it from the sender") from error
    if not isinstance(key, expected):
        raise ConfigError(f"key {text[:40]!r} is none of {scheme.algorithm}", hint="copy it from the sender")
    return key
