"""Debezium's messages: its envelope, and rows that its transformation ExtractNewRecordState has flattened."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from volley.formats.changes.events import (
    INSERTED,
    LOADED,
    REMOVED,
    TRUNCATED,
    UPDATED,
    Events,
    columns_of,
    operations,
)
from volley.formats.changes.sequence import SOURCE, sequence_of

__all__ = ["NO_ENVELOPE", "Envelope", "Flattened", "Keys"]

NO_ENVELOPE = "no envelope of Debezium: it has no op; rows that were flattened need flattened: true"

_OPERATIONS = {"c": INSERTED, "r": LOADED, "u": UPDATED, "d": REMOVED, "t": TRUNCATED}
_MESSAGE = "m"
_TRANSACTION = pa.struct([("id", pa.string()), ("total_order", pa.int64())])


@dataclass(frozen=True)
class Envelope:
    """Reads envelopes: ``before``, ``after``, ``source``, ``op``.

    Heartbeats, the ends of transactions, changes of schemas and logical messages are known by their fields, and left
    out: they may come in the same topic.
    """

    texts: ClassVar[bool] = False
    path: ClassVar[tuple[str, ...]] = ("after", "before")

    def message(self, row: pa.DataType) -> pa.Schema:
        return pa.schema(
            [
                *(("op", pa.string()), ("before", row), ("after", row), ("source", pa.struct(SOURCE))),
                *(("transaction", _TRANSACTION), ("ts_ms", pa.int64()), ("status", pa.string())),
                *(("databaseName", pa.string()), ("ddl", pa.string())),
            ]
        )

    def events(self, messages: pa.RecordBatch) -> Events:
        op, before, after = (messages.column(name) for name in ("op", "before", "after"))
        operation = operations(op, _OPERATIONS)
        is_removed = pc.equal(operation, REMOVED).fill_null(False)
        old, new = columns_of(before), columns_of(after)
        row = {name: pc.if_else(is_removed, old[name], new[name]) for name in old}
        source = columns_of(messages.column("source"))
        order = messages.column("transaction").flatten()[1]
        return Events(
            row,
            operation,
            sequence_of(source.__getitem__, order),
            source,
            faults=_faults(messages, operation, pc.if_else(is_removed, before.is_valid(), after.is_valid())),
        )


def _faults(messages: pa.RecordBatch, operation: pa.Array, has_row: pa.Array) -> dict[int, str]:
    """Return why messages are bad."""
    op = messages.column("op")
    others = pc.and_(operation.is_null(), pc.not_equal(op, _MESSAGE).fill_null(True))
    told = [messages.column(name).is_valid() for name in ("status", "databaseName", "ddl")]
    is_heartbeat = pc.and_(messages.column("ts_ms").is_valid(), messages.column("source").is_null())
    passed = pc.and_(op.is_null(), pc.or_(pc.or_(told[0], told[1]), pc.or_(told[2], is_heartbeat)))
    no_event = pc.and_(others, pc.invert(passed))
    no_row = pc.and_(pc.and_(operation.is_valid(), pc.not_equal(operation, TRUNCATED)), pc.invert(has_row))
    if not (pc.any(no_event).as_py() or pc.any(no_row.fill_null(False)).as_py()):
        return {}
    names = op.to_pylist()
    faults = {number: _no_event(names[number]) for number in pc.indices_nonzero(no_event).to_pylist()}
    for number in pc.indices_nonzero(no_row.fill_null(False)).to_pylist():
        faults[number] = _no_row(names[number])
    return faults


def _no_event(op: str | None) -> str:
    if op is None:
        return NO_ENVELOPE
    return f"op {op[:20]!r} is none of Debezium's"


def _no_row(op: str) -> str:
    if op == "d":
        return "a deletion without before, which has the key: the table has no replica identity, or before is left out"
    return f"op {op!r} without after"


@dataclass(frozen=True)
class Flattened:
    """Reads flattened rows: ``__op`` and ``__deleted`` tell what happened, other fields with underscores the place."""

    texts: ClassVar[bool] = False
    path: ClassVar[tuple[str, ...]] = ()

    def message(self, row: pa.DataType) -> pa.Schema:
        told = [pa.field(f"{prefix}{field.name}", field.type) for field in SOURCE for prefix in ("__", "__source_")]
        added = [pa.field(name, pa.string()) for name in ("__op", "__deleted")]
        return pa.schema([*row, *added, *told, pa.field("__transaction_total_order", pa.int64())])

    def events(self, messages: pa.RecordBatch) -> Events:
        columns = dict(zip(messages.schema.names, messages.columns, strict=True))
        told = {name: pc.coalesce(columns.pop(f"__{name}"), columns.pop(f"__source_{name}")) for name in SOURCE.names}
        op, deleted = columns.pop("__op"), columns.pop("__deleted")
        order = columns.pop("__transaction_total_order")
        # Without either, each row is the latest one of its key.
        operation = pc.if_else(op.is_null(), UPDATED, operations(op, _OPERATIONS))
        operation = pc.if_else(pc.equal(deleted, "true").fill_null(False), REMOVED, operation)
        source = {**told, "connector": _connector(told)}
        known = pc.or_(op.is_null(), pc.is_in(op, pa.array([*_OPERATIONS, _MESSAGE])))
        names = op.to_pylist() if pc.all(known).as_py() is False else []
        faults = {number: _no_event(names[number]) for number in pc.indices_nonzero(pc.invert(known)).to_pylist()}
        return Events(columns, operation, sequence_of(source.__getitem__, order), source, faults=faults)


@dataclass(frozen=True)
class Keys:
    """Reads the keys of records without a value: each is the deletion of its row.

    Args:
        names: The columns of the primary key.
    """

    names: tuple[str, ...]
    texts: ClassVar[bool] = False
    path: ClassVar[tuple[str, ...]] = ()

    def message(self, row: pa.DataType) -> pa.Schema:
        return pa.schema([field for field in row if field.name in self.names])

    def events(self, messages: pa.RecordBatch) -> Events:
        columns = dict(zip(messages.schema.names, messages.columns, strict=True))
        removed = pa.array([REMOVED] * messages.num_rows, pa.string())
        return Events(columns, removed, pa.nulls(messages.num_rows, pa.binary()))


def _connector(told: Mapping[str, pa.Array]) -> pa.Array:
    """Return the connector of each row: told, or known by the fields that it alone has."""
    own = {
        "sequence": "postgresql",
        "file": "mysql",
        "commit_scn": "oracle",
        "commit_lsn": "sqlserver",
        "ord": "mongodb",
    }
    nothing = pa.scalar(None, pa.string())
    guesses = [pc.if_else(told[name].is_valid(), connector, nothing) for name, connector in own.items()]
    return pc.coalesce(told["connector"], *guesses)
