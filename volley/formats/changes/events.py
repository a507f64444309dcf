"""What a shape of messages makes of them: events, each with its row as it is written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from volley.formats.changes.wire import Wire, json_type

__all__ = [
    *("INSERTED", "LOADED", "REMOVED", "TRUNCATED", "UPDATED"),
    *("Events", "Shape", "columns_of", "nothing", "operations", "row_type"),
]

LOADED, INSERTED, UPDATED, REMOVED, TRUNCATED = "r", "i", "u", "d", "t"
"""The operations of events, as `PostgresSource` has them."""


@dataclass(frozen=True)
class Events:
    """The events of a batch of messages.

    Args:
        row: The columns of their rows, as they are written, by name; those that no message has are left out.
        operation: What each event is; null = it is none, and left out.
        sequence: The place of each in the log of the database; null where it is unknown.
        source: What is known of the place of events, by the names of `SOURCE_FIELDS`.
        numbers: For each event, the number of its message; None = each message is one.
        faults: Why messages are bad, by their numbers; their events are left out.
    """

    row: Mapping[str, pa.Array]
    operation: pa.Array
    sequence: pa.Array
    source: Mapping[str, pa.Array] = field(default_factory=dict)
    numbers: np.ndarray[Any, Any] | None = None
    faults: Mapping[int, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.operation)


class Shape(Protocol):
    """How a program writes changes. Picklable."""

    @property
    def path(self) -> tuple[str, ...] | None:
        """The fields of a message that may have its row; empty = the message is one; None = it has several rows."""

    @property
    def texts(self) -> bool:
        """True if all values are JSON strings."""

    def message(self, row: pa.DataType) -> pa.Schema:
        """Return the fields to read of messages, whose rows are of this type."""

    def events(self, messages: pa.RecordBatch) -> Events:
        """Return the events of messages that have these fields."""


def row_type(columns: pa.Schema, wires: Mapping[str, Wire]) -> pa.StructType:
    """Return the type to read rows as; without the columns that no message has, or that JSON's parser can't read."""
    types = {column.name: json_type(wires[column.name], column.type) for column in columns if column.name in wires}
    return pa.struct([(name, data_type) for name, data_type in types.items() if data_type is not None])


def operations(names: pa.Array, known: Mapping[str, str]) -> pa.Array:
    """Return the operation of each name; null for one that is not known."""
    places = pc.index_in(names, pa.array(list(known), pa.string()))
    return pa.array(list(known.values()), pa.string()).take(places)


def nothing(messages: pa.RecordBatch) -> pa.Array:
    """Return a sequence that is unknown for each message."""
    return pa.nulls(messages.num_rows, pa.binary())


def columns_of(rows: pa.StructArray) -> dict[str, pa.Array]:
    """Return the fields of structs, which are null where the structs are."""
    return dict(zip((part.name for part in rows.type), rows.flatten(), strict=True))
