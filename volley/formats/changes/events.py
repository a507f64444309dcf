"""What a shape of messages makes of them: events, each with its row as it is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from volley.formats.changes.wire import Wire, json_type

__all__ = [
    *("INSERTED", "LOADED", "REMOVED", "TRUNCATED", "UPDATED"),
    *("Events", "Shape", "columns_of", "nothing", "operations", "row_type"),
    *("unknown", "with_moves", "without"),
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


def with_moves(events: Events, old: Mapping[str, pa.Array], keys: Sequence[str]) -> Events:
    """Return events with a deletion of the old key before each update that has changed it."""
    changed = [pc.not_equal(old[key], events.row[key]).fill_null(False) for key in keys if key in old]
    if not changed:
        return events
    moved = np.logical_or.reduce([mask.to_numpy(zero_copy_only=False) for mask in changed])
    moved &= pc.equal(events.operation, UPDATED).fill_null(False).to_numpy(zero_copy_only=False)
    if not moved.any():
        return events
    numbers = np.arange(len(events)) if events.numbers is None else events.numbers
    at = np.repeat(np.arange(len(events)), 1 + moved)
    is_old = np.zeros(len(at), np.bool_)
    is_old[np.flatnonzero(moved) + np.arange(moved.sum())] = True
    rows, mask = pa.array(at), pa.array(is_old)

    def row(name: str) -> pa.Array:
        new = events.row[name].take(rows)
        return pc.if_else(mask, pc.coalesce(old[name].take(rows), new), new) if name in keys else new

    return Events(
        {name: row(name) for name in events.row},
        pc.if_else(mask, REMOVED, events.operation.take(rows)),
        events.sequence.take(rows),
        {name: values.take(rows) for name, values in events.source.items()},
        numbers[at],
        events.faults,
    )


def unknown(names: pa.Array, is_unknown: pa.Array) -> dict[int, str]:
    """Return the faults of messages whose operation is not known."""
    return {
        row: f"what happened is not known: {str(names[row].as_py())[:40]!r}"
        for row in pc.indices_nonzero(is_unknown.fill_null(True)).to_pylist()
    }


def without(operation: pa.Array, has_row: pa.Array, field: str) -> dict[int, str]:
    """Return the faults of events without a row."""
    missing = pc.and_(operation.is_valid(), pc.invert(has_row))
    return dict.fromkeys(pc.indices_nonzero(missing).to_pylist(), f"a change without {field}")
