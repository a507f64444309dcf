"""Keeps secrets out of what is shown: values of telling keys and passwords in URIs become ``***``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

__all__ = ["MASK", "mask_mapping", "mask_uri", "show"]

MASK = "***"
_TELLING = re.compile(r"secret|token|password|credential|access[-_]?key|account[-_]?key|sas|service_account_key", re.I)
_PASSWORD = re.compile(r"(\w+://[^/\s:@]*):[^@/\s]+@")


def mask_mapping(values: Mapping[str, Any]) -> dict[str, Any]:
    """The mapping with every value masked whose key tells that it is a secret.

    Example:
        >>> mask_mapping({"s3.region": "eu", "s3.secret-access-key": "x"})
        {'s3.region': 'eu', 's3.secret-access-key': '***'}
    """
    return {key: MASK if _TELLING.search(key) else value for key, value in values.items()}


def mask_uri(uri: str) -> str:
    """The URI without its password.

    Example:
        >>> mask_uri("postgresql://me:hunter2@host/db")
        'postgresql://me:***@host/db'
    """
    return _PASSWORD.sub(rf"\1:{MASK}@", uri)


def show(value: Any) -> str:
    """The repr of a dataclass: only fields that differ from their default, secrets masked."""
    parts = []
    for field in fields(value):
        found = getattr(value, field.name)
        if not field.repr or found == field.default or found in ({}, None):
            continue
        if _TELLING.search(field.name):
            found = MASK
        elif isinstance(found, Mapping):
            found = mask_mapping(found)
        elif isinstance(found, str):
            found = mask_uri(found)
        parts.append(f"{field.name}={found!r}")
    return f"{type(value).__qualname__}({', '.join(parts)})"
