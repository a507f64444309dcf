"""Redacts secrets in text and settings: values under secret-like names, passwords in URIs, bearer tokens → ``***``."""

from __future__ import annotations

import json
import re
import traceback
from collections.abc import Collection, Iterator, Mapping
from typing import Any
from urllib.parse import quote, quote_plus

from volley.html_table import changed_settings, titled

__all__ = [
    "MASK",
    "is_secret_name",
    "redact",
    "redact_mapping",
    "redact_uri",
    "redacted",
    "redacted_html",
    "redacted_repr",
    "secrets_in",
]

MASK = "***"

_MIN_LENGTH = 4

_WORDS = (
    r"credential|token|secret|passw|passphrase|pwd|key|authorization|cookie|signature|connection.?string"
    r"|\bauth\b|\bsas\b"
)
# Any header may carry credentials, whatever its name.
_SECRET_NAME = re.compile(rf"{_WORDS}|^headers?\b", re.I)
# Match up to the last @: an unescaped password may contain one.
_PASSWORD = re.compile(r"(\w+://[^/\s:@]*):\S+@")
# In http(s), a user without a password is a token; elsewhere (abfss://container@account) it is a name.
_USER = re.compile(r"(https?://)[^/\s:@]+@", re.I)
_BARE = re.compile(
    r"\b((?:Bearer|Basic) +)[^\s'\"]+|\beyJ[\w-]+\.[\w-]+\.[\w-]*|-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*"
)
_PARAMETER = re.compile(rf"([?&;][^=&\s]*(?:{_WORDS}|\bsig)[^=&\s]*)=[^&\s]+", re.I)


def is_secret_name(name: str) -> bool:
    """Return True if `redact_mapping` masks the value of this key.

    Example:
        >>> is_secret_name("s3.secret-access-key"), is_secret_name("s3.region")
        (True, False)
    """
    return _SECRET_NAME.search(name) is not None


def redact_mapping(values: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return the mapping with the values of secret-like keys masked; keys may be numbers, too.

    Example:
        >>> redact_mapping({"s3.region": "eu", "s3.secret-access-key": "x"})
        {'s3.region': 'eu', 's3.secret-access-key': '***'}
    """
    return {key: MASK if is_secret_name(str(key)) else _redacted_value(value) for key, value in values.items()}


def redact_uri(text: str) -> str:
    """Return the text with its secrets masked: passwords in URIs, secret parameters, bearer tokens, private keys.

    Example:
        >>> redact_uri("postgresql://me:hunter2@host/db")
        'postgresql://me:***@host/db'
    """
    text = _USER.sub(rf"\1{MASK}@", _PASSWORD.sub(rf"\1:{MASK}@", text))
    return _BARE.sub(lambda match: (match[1] or "") + MASK, _PARAMETER.sub(rf"\1={MASK}", text))


def redacted_repr(value: Any) -> str:
    """Return the repr of a dataclass: the fields that differ from their defaults, secrets masked."""
    parts = (f"{name}={content!r}" for name, content in _redacted_fields(value).items())
    return f"{type(value).__qualname__}({', '.join(parts)})"


def redacted_html(value: Any) -> str:
    """Return a dataclass as a table for notebooks: the fields that differ from their defaults, secrets masked."""
    return titled(value, _redacted_fields(value))


def _redacted_fields(value: Any) -> dict[str, Any]:
    settings = changed_settings(value).items()
    return {name: MASK if is_secret_name(name) else _redacted_value(content) for name, content in settings}


def secrets_in(values: Mapping[str, Any]) -> set[str]:
    """Return the secrets that `redact_mapping` masks, to redact them in other texts too.

    Example:
        >>> secrets_in({"s3.region": "eu", "s3.secret-access-key": "hush-hush"})
        {'hush-hush'}
    """
    return {text for key, value in values.items() if is_secret_name(key) for text in _texts(value)}


def redacted(error: BaseException, secrets: Collection[str] = ()) -> BaseException:
    """Return the error, or a redacted stand-in if its traceback contains a secret; for use after ``raise … from``.

    Args:
        error: What a library raised.
        secrets: Further secrets; those that `redact_uri` recognises are always redacted.
    """
    chain = "".join(traceback.format_exception(error))
    if redact(chain, secrets) == chain:
        return error
    return RuntimeError(redact(f"{type(error).__module__}.{type(error).__qualname__}: {error}", secrets))


def redact(text: str, secrets: Collection[str] = ()) -> str:
    """Return the text without these secrets and those that `redact_uri` recognises.

    Example:
        >>> password = "a\\nb 'c'"
        >>> redact(f"the password {password!r} is wrong", {password})
        'the password "***" is wrong'
    """
    for form in sorted({form for secret in secrets for form in _forms(secret)}, key=len, reverse=True):
        text = text.replace(form, MASK)
    return redact_uri(text)


def _forms(secret: str) -> Iterator[str]:
    """Yield a secret as it may stand in a text: as it is, in a URL, quoted by Python in either way, in JSON."""
    for text in {secret, secret.strip()} - {""}:
        yield from (text, quote(text), quote(text, safe=""), quote_plus(text))
        # The second is how Python quotes a text with double quotes in it, behind which the secret stands.
        yield from (repr(text)[1:-1], repr(f'"{text}')[2:-1])
        yield from (json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1])


def _texts(value: Any) -> Iterator[str]:
    """Yield the texts in a value that are long enough to search for."""
    if isinstance(value, Mapping):
        # A service account's key also has the project's and the account's name, which bucket names often contain.
        has_public_fields = "private_key" in value
        value = [text for name, text in value.items() if not has_public_fields or is_secret_name(name)]
    if isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, str) and len(value.strip()) >= _MIN_LENGTH:
        yield value


def _redacted_value(value: Any) -> Any:
    if isinstance(value, Mapping):
        return redact_mapping(value)
    if isinstance(value, list | tuple):
        return type(value)(map(_redacted_value, value))
    return redact_uri(value) if isinstance(value, str) else value
