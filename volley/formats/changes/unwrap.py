"""Splits messages of Kafka Connect's JSON converter into the schema that they carry and their payload."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import Raw, Struct

from volley.errors import SourceError
from volley.formats.changes.wire import Wire, fields_of_schema, wires_of_schema

__all__ = [
    *("Groups", "fields_named", "fields_with_values", "is_of_no_row", "key_names", "unwrapped", "wires_of"),
    *("without_others", "without_schemas"),
]

_PAYLOAD = b'"payload"'
# The last parts of the names of the schemas of Debezium's messages that are no rows: heartbeats, the beginnings and
# ends of transactions, changes of schemas, logical messages.
_OTHERS = ("Heartbeat", "TransactionMetadataValue", "SchemaChangeValue", "MessageValue")
_CLOCK = frozenset({"ts_ms", "ts_us", "ts_ns"})
_TRANSACTION = frozenset({"status", "id", "event_count", "data_collections"})
_CHANGED_SCHEMA = frozenset({"source", "databaseName", "ddl", "tableChanges"})
_LOGICAL = frozenset({"op", "source", "message"})


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


def without_schemas(values: Sequence[bytes | None]) -> Groups:
    """Return messages as they are: a field ``schema`` is one of theirs; those without a value are left out."""
    units = [(number, value) for number, value in enumerate(values) if value is not None and value != _NULL]
    return {b"": units} if units else {}


def _parts(value: bytes) -> tuple[bytes, bytes]:
    if _PAYLOAD in value:
        try:
            wrapped = _WRAPPED.decode(value)
        except msgspec.DecodeError:
            return b"", value
        schema = bytes(wrapped.schema)
        return b"" if schema == _NULL else schema, bytes(wrapped.payload)
    return b"", value


def without_others(groups: Groups, columns: Collection[str]) -> Groups:
    """Return the messages that are flattened rows, without those that flattening leaves as they are.

    Args:
        columns: The columns of rows: with one of these names, a field of a message without a schema is theirs.
    """
    kept: Groups = {}
    for schema, units in groups.items():
        if not schema:
            units = [unit for unit in units if not _looks_of_no_row(unit[1], columns)]
        if units and not (schema and _is_of_no_row(schema)):
            kept[schema] = units
    return kept


def is_of_no_row(name: str) -> bool:
    """Return True if the schema of this name is that of messages of Debezium's that are no rows."""
    return name.startswith("io.debezium.connector.") and name.endswith(tuple(f".{other}" for other in _OTHERS))


@lru_cache(maxsize=100)
def _is_of_no_row(schema: bytes) -> bool:
    try:
        return is_of_no_row(str(msgspec.json.decode(schema, type=dict[str, Any]).get("name")))
    except msgspec.DecodeError:
        return False


def _looks_of_no_row(payload: bytes, columns: Collection[str]) -> bool:
    # All have a time of their own, and few rows a field of this name.
    if b'"ts_ms"' not in payload:
        return False
    names = fields_named(payload, ())
    if "ts_ms" not in names or not names.isdisjoint(_CLOCK.intersection(columns)):
        return False
    rest = names - _CLOCK
    if not rest or rest == _TRANSACTION:
        return "data_collections" not in columns
    return any(marks <= rest and marks.isdisjoint(columns) for marks in (_CHANGED_SCHEMA, _LOGICAL))


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
        path: The fields of which the first that is no null is the row, such as ``"payload.after"``; empty = the message
            is one.
    """
    return frozenset(_fields(payload, path))


def fields_with_values(payload: bytes, path: Sequence[str]) -> frozenset[str]:
    """Return the names of the fields of a message's row that are no nulls; arguments as of `fields_named`."""
    return frozenset(name for name, value in _fields(payload, path).items() if bytes(value) != _NULL)


def _fields(payload: bytes, path: Sequence[str]) -> Mapping[str, Raw]:
    try:
        fields = msgspec.json.decode(payload, type=dict[str, Raw])
        rows = (_row_at(fields, name.split(".")) for name in path)
        return next((row for row in rows if row is not None), {}) if path else fields
    except msgspec.DecodeError:
        return {}


def _row_at(fields: Mapping[str, Raw], names: Sequence[str]) -> Mapping[str, Raw] | None:
    """Return the fields of a struct in a struct; None if it is null, or not there."""
    for name in names:
        if bytes(fields.get(name, _NULL)) == _NULL:
            return None
        fields = msgspec.json.decode(fields[name], type=dict[str, Raw])
    return fields


def key_names(key: bytes) -> tuple[str, ...]:
    """Return the names of the fields of a record's key, in their order; none if it is null.

    Raises:
        SourceError: If it is no object.

    Example:
        >>> key_names(b'{"schema": null, "payload": {"id": 7}}')
        ('id',)
    """
    _, payload = _parts(key)
    try:
        return tuple(msgspec.json.decode(payload, type=dict[str, Raw] | None) or ())
    except msgspec.DecodeError as error:
        raise SourceError(
            "its key is no JSON object, which tells the key of its table",
            hint="key.converter=org.apache.kafka.connect.json.JsonConverter writes one",
        ) from error
