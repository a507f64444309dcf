"""How messages of changes are encoded: which schema each carries, and how their fields are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain
from typing import Any, Protocol

import msgspec
import pyarrow as pa

from volley.errors import SourceError, message_of
from volley.formats.change_options import ChangeOptions
from volley.formats.changes.debezium import NO_ENVELOPE
from volley.formats.changes.documents import Documents, wires_of_documents
from volley.formats.changes.events import Shape, row_type
from volley.formats.changes.told import columns_told
from volley.formats.changes.unwrap import Groups, key_names, unwrapped, wires_of, without_others, without_schemas
from volley.formats.changes.wire import Wire, as_told, declared_wires
from volley.formats.messages import JsonValues, Values, decode_errors
from volley.formats.rows import Sorted

__all__ = ["Encoding", "Json"]

_NO_SCHEMA = (
    "it carries no schema, which tells the columns of its table: value.converter.schemas.enable=true has the connector "
    "write them"
)
_DOCUMENT = "an envelope of MongoDB's, whose rows are texts: read them with documents: true"


class Encoding(Protocol):
    """How messages are encoded. Picklable."""

    @property
    def format(self) -> str:
        """What a bad message is as a payload, see `BadRow`."""

    def groups(self, values: Values) -> tuple[Groups, Mapping[int, str]]:
        """Return messages by the schema that they carry, and the faults of those that can't be told apart."""

    def columns_of(self, schema: bytes) -> pa.Schema:
        """Return the columns of rows that a schema tells; none if its messages are no changes.

        Raises:
            SourceError: If the schema can't be read; or if there is none.
        """

    def key_fields(self, key: bytes | None) -> tuple[str, ...]:
        """Return the names of the columns in a record's key; none if it has none.

        Raises:
            SourceError: If it does not tell them.
        """

    def wires(self, schema: bytes) -> Mapping[str, Wire]:
        """Return how the columns of rows are written in messages that carry a schema.

        Raises:
            SourceError: If the schema can't be read, or does not tell how a column is written.
        """

    def read(self, schema: bytes, wires: Mapping[str, Wire], payloads: Sequence[bytes], place: str) -> Sorted:
        """Return the fields of messages that carry a schema, one row for each that is good."""


@dataclass(frozen=True)
class Json:
    """Messages in JSON, of which some carry a schema of Kafka Connect.

    Args:
        columns: The columns of rows.
        shape: How a message has its row.
        is_debezium: True: values without a schema are written in Debezium's ways.
        options: How values without a schema are written.
    """

    columns: pa.Schema
    shape: Shape
    is_debezium: bool
    options: ChangeOptions
    format: str = "json"

    def groups(self, values: Values) -> tuple[Groups, Mapping[int, str]]:
        groups = unwrapped(values) if self.options.unwrap is None else without_schemas(values)
        if self.options.flattened:
            groups = without_others(groups, self.columns.names)
        return self._of_documents(values, groups) if self.options.documents else (groups, {})

    def _of_documents(self, values: Values, groups: Groups) -> tuple[Groups, Mapping[int, str]]:
        """Return envelopes of documents as those of rows; their schemas tell no column."""
        documents = Documents(self.columns)
        rows, faults = list[tuple[int, bytes]](), dict[int, str]()
        for number, payload in sorted(chain.from_iterable(groups.values())):
            try:
                rows.append((number, documents.envelope(payload, getattr(values[number], "key", None))))
            except SourceError as error:
                faults[number] = message_of(error)
        return {b"": rows} if rows else {}, faults

    def columns_of(self, schema: bytes) -> pa.Schema:
        if not schema:
            raise SourceError(_NO_SCHEMA)
        return columns_told(schema, self.shape.path or (), self.options)

    def key_fields(self, key: bytes | None) -> tuple[str, ...]:
        return key_names(key) if key else ()

    def wires(self, schema: bytes) -> Mapping[str, Wire]:
        if not schema:
            if self.options.documents:
                return wires_of_documents(self.columns)
            return declared_wires(self.columns, self.options, self.is_debezium, self.shape.texts)
        wires = wires_of(schema, self.shape.path or ())
        told = {column: as_told(wires.get(column, Wire()), wire) for column, wire in self.options.wire.items()}
        return {**wires, **told}

    def read(self, schema: bytes, wires: Mapping[str, Wire], payloads: Sequence[bytes], place: str) -> Sorted:
        reader = _reader(self.shape.message(row_type(self.columns, wires)))
        try:
            return Sorted([reader.decode(payloads, place)], range(len(payloads)), {})
        except decode_errors:
            rows = reader.sort(payloads, place)
            if not self.is_debezium or self.options.documents:
                return rows
            fields = frozenset() if self.options.flattened else frozenset(self.shape.message(pa.struct([])).names)
            faults = {number: _named_fault(payloads[number], fault, fields) for number, fault in rows.faults.items()}
            return replace(rows, faults=faults)


def _named_fault(payload: bytes, fault: str, fields: frozenset[str]) -> str:
    """Return why a message is bad, if it is one of MongoDB's, or has none of an envelope's fields; else the fault."""
    try:
        message = msgspec.json.decode(payload, type=dict[str, Any])
    except msgspec.DecodeError:
        return fault
    if any(isinstance(message.get(name), str) for name in ("after", "before")):
        return _DOCUMENT
    return NO_ENVELOPE if fields and fields.isdisjoint(message) else fault


@lru_cache(maxsize=1_000)
def _reader(fields: pa.Schema) -> JsonValues:
    return JsonValues(fields, "drop")
