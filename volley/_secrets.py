"""Keeps secrets out of what is shown: values under telling names, and passwords in URIs, become ``***``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields
from typing import Any

__all__ = ["MASK", "mask_mapping", "mask_uri", "show"]

MASK = "***"

_NAMES = r"credential|token|secret|password|key|authorization|connection.?string"
_TELLING = re.compile(_NAMES, re.I)
_PASSWORD = re.compile(r"(\w+://[^/\s:@]*):[^@\s]+@")
_PARAMETER = re.compile(rf"([?&;][^=&\s]*(?:{_NAMES}|\bsig)[^=&\s]*)=[^&\s]+", re.I)


def mask_mapping(values: Mapping[str, Any]) -> dict[str, Any]:
    """The mapping with every value masked whose key tells that it is a secret.

    Example:
        >>> mask_mapping({"s3.region": "eu", "s3.secret-access-key": "x"})
        {'s3.region': 'eu', 's3.secret-access-key': '***'}
    """
    return {key: MASK if _TELLING.search(key) else _masked(value) for key, value in values.items()}


def mask_uri(text: str) -> str:
    """The text with the passwords of the URIs in it masked, before the host and among the parameters.

    Example:
        >>> mask_uri("postgresql://me:hunter2@host/db")
        'postgresql://me:***@host/db'
    """
    return _PARAMETER.sub(rf"\1={MASK}", _PASSWORD.sub(rf"\1:{MASK}@", text))


def show(value: Any) -> str:
    """The repr of a dataclass: the fields that differ from their defaults, secrets masked."""
    parts = [
        f"{field.name}={(MASK if _TELLING.search(field.name) else _masked(found))!r}"
        for field in fields(value)
        if (found := getattr(value, field.name)) != _default(field)
    ]
    return f"{type(value).__qualname__}({', '.join(parts)})"


def _masked(value: Any) -> Any:
    if isinstance(value, Mapping):
        return mask_mapping(value)
    return mask_uri(value) if isinstance(value, str) else value


def _default(field: Field[Any]) -> Any:
    return field.default if field.default_factory is MISSING else field.default_factory()
