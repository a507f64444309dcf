"""Splits messages of Kafka Connect's JSON converter into the schema that they carry and their payload."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import Raw, Struct

from volley.errors import SourceError
from volley.formats.changes.wire import Wire, fields_of_schema, wires_of_schema

__all__ = ["Groups", "fields_named", "unwrapped", "wires_of"]

_PAYLOAD = b'"payload"'


class _Wrapped(Struct, forbid_unknown_fields=True):
    schema: Raw
    payload: Raw


_WRAPPED = msgspec.json.Decoder(_Wrapped)
_NULL = b"null"

Groups = dict[bytes, list[tuple[int, bytes]]]
"""The numbers and payloads of messages, by the schema that they carry; empty = none."""


def unwrapped(values: Sequence[bytes | None]) -> Groups:
    """Return messages by their schemas; those without a value, which say that a key is gone, are left out."""
    groups: Groups = {}
    for number, value in enumerate(values):
        if value is None or value == _NULL:
            continue
        schema, payload = _parts(value)
        if payload != _NULL:
            groups.setdefault(schema, []).append((number, payload))
    return groups


def _parts(value: bytes) -> tuple[bytes, bytes]:
    if _PAYLOAD in value:
        try:
            wrapped = _WRAPPED.decode(value)
        except msgspec.DecodeError:
            return b"", value
        schema = bytes(wrapped.schema)
        return b"" if schema == _NULL else schema, bytes(wrapped.payload)
    return b"", value


@lru_cache(maxsize=100)
def wires_of(schema: bytes, path: tuple[str, ...]) -> Mapping[str, Wire]:
    """Return how the columns of rows are written, by the schema that their messages carry.

    Args:
        path: The fields that have a row; empty = messages are rows.

    Raises:
        SourceError: If it is no schema of Kafka Connect.
    """
    try:
        tree: Any = msgspec.json.decode(schema)
        if path:
            rows = [part for name in path if (part := fields_of_schema(tree, name)) is not None]
            tree = rows[0] if rows else {}
        return wires_of_schema(tree)
    except (msgspec.DecodeError, KeyError, TypeError, AttributeError, ValueError) as error:
        raise SourceError("the schema of the message is not one of Kafka Connect") from error


def fields_named(payload: bytes, path: Sequence[str]) -> frozenset[str]:
    """Return the names of the fields of a message's row.

    Args:
        path: The fields of which the first that is no null is the row; empty = the message is one.
    """
    try:
        fields = msgspec.json.decode(payload, type=dict[str, Raw])
        for name in path:
            if bytes(fields.get(name, _NULL)) != _NULL:
                return frozenset(msgspec.json.decode(fields[name], type=dict[str, Raw]))
        return frozenset() if path else frozenset(fields)
    except msgspec.DecodeError:
        return frozenset()
