"""Keeps secrets out of what is shown: values under telling names, passwords in URIs, bearer tokens become ``***``."""

from __future__ import annotations

import re
import traceback
from collections.abc import Collection, Iterator, Mapping
from dataclasses import MISSING, Field, fields
from typing import Any
from urllib.parse import quote, quote_plus

__all__ = ["MASK", "redact", "redact_mapping", "redact_uri", "redacted", "redacted_repr", "secrets_in"]

MASK = "***"

_SHORTEST = 4

_NAMES = r"credential|token|secret|passw|passphrase|pwd|key|authorization|cookie|signature|connection.?string|\bauth\b"
# Headers are there to carry credentials, whatever their names.
_TELLING = re.compile(rf"{_NAMES}|^headers?\b", re.I)
# Up to the last @: an unescaped password may hold one.
_PASSWORD = re.compile(r"(\w+://[^/\s:@]*):\S+@")
# A user without a password is a token on the web; elsewhere (abfss://container@account) it is a name.
_USER = re.compile(r"(https?://)[^/\s:@]+@", re.I)
_BARE = re.compile(
    r"\b((?:Bearer|Basic) +)[^\s'\"]+|\beyJ[\w-]+\.[\w-]+\.[\w-]*|-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*"
)
_PARAMETER = re.compile(rf"([?&;][^=&\s]*(?:{_NAMES}|\bsig)[^=&\s]*)=[^&\s]+", re.I)


def redact_mapping(values: Mapping[str, Any]) -> dict[str, Any]:
    """The mapping with every value masked whose key tells that it is a secret.

    Example:
        >>> redact_mapping({"s3.region": "eu", "s3.secret-access-key": "x"})
        {'s3.region': 'eu', 's3.secret-access-key': '***'}
    """
    return {key: MASK if _TELLING.search(key) else _masked(value) for key, value in values.items()}


def redact_uri(text: str) -> str:
    """The text with its secrets masked: passwords of URIs, secret parameters, bearer tokens, private keys.

    Example:
        >>> redact_uri("postgresql://me:hunter2@host/db")
        'postgresql://me:***@host/db'
    """
    text = _USER.sub(rf"\1{MASK}@", _PASSWORD.sub(rf"\1:{MASK}@", text))
    return _BARE.sub(lambda found: (found[1] or "") + MASK, _PARAMETER.sub(rf"\1={MASK}", text))


def redacted_repr(value: Any) -> str:
    """The repr of a dataclass: the fields that differ from their defaults, secrets masked."""
    parts = [
        f"{field.name}={(MASK if _TELLING.search(field.name) else _masked(found))!r}"
        for field in fields(value)
        if (found := getattr(value, field.name)) != _default(field)
    ]
    return f"{type(value).__qualname__}({', '.join(parts)})"


def secrets_in(values: Mapping[str, Any]) -> set[str]:
    """The texts that `redact_mapping` would hide, to be looked for elsewhere.

    Example:
        >>> secrets_in({"s3.region": "eu", "s3.secret-access-key": "hush-hush"})
        {'hush-hush'}
    """
    return {text for key, value in values.items() if _TELLING.search(key) for text in _texts(value)}


def redacted(error: BaseException, secrets: Collection[str] = ()) -> BaseException:
    """The error as the cause of one of ours: itself, or if its text or that of its causes holds a secret, a stand-in.

    Args:
        error: What a library raised.
        secrets: Texts that must not show; those that `redact_uri` recognises never do.
    """
    chain = "".join(traceback.format_exception(error))
    if redact(chain, secrets) == chain:
        return error
    return RuntimeError(redact(f"{type(error).__module__}.{type(error).__qualname__}: {error}", secrets))


def redact(text: str, secrets: Collection[str] = ()) -> str:
    """The text without these secrets, nor those that `redact_uri` recognises."""
    for secret in sorted(secrets, key=len, reverse=True):
        for form in {secret, secret.strip(), quote(secret), quote(secret, safe=""), quote_plus(secret)}:
            text = text.replace(form, MASK)
    return redact_uri(text)


def _texts(value: Any) -> Iterator[str]:
    """The texts in a value that are long enough to be told from others."""
    if isinstance(value, Mapping):
        # A service account's key names its project and its account too, which buckets are often named after.
        mixed = "private_key" in value
        value = [text for name, text in value.items() if not mixed or _TELLING.search(name)]
    if isinstance(value, list | tuple):
        for each in value:
            yield from _texts(each)
    elif isinstance(value, str) and len(value.strip()) >= _SHORTEST:
        yield value


def _masked(value: Any) -> Any:
    if isinstance(value, Mapping):
        return redact_mapping(value)
    if isinstance(value, list | tuple):
        return type(value)(map(_masked, value))
    return redact_uri(value) if isinstance(value, str) else value


def _default(field: Field[Any]) -> Any:
    return field.default if field.default_factory is MISSING else field.default_factory()
