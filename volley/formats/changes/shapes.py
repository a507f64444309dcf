"""The messages of Maxwell, Canal, AWS DMS, Airbyte and OLake: each a table of the fields that tell what happened."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
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
    nothing,
    operations,
    unknown,
    with_moves,
    without,
)
from volley.formats.changes.sequence import number, of_numbers

__all__ = ["Airbyte", "Canal", "Dms", "Maxwell", "OLake"]

Rows = dict[str, pa.Array]
_PLACE = r"\.(?P<file>[0-9]+):(?P<pos>[0-9]+)$"
_FILE = r"\.(?P<file>[0-9]+)$"


@dataclass(frozen=True)
class Maxwell:
    """Reads Maxwell's rows: ``data``, and in ``old`` what an update has changed.

    Args:
        keys: The columns of the key: an update that changes one is the deletion of the old key, then the new row.
    """

    keys: tuple[str, ...]
    texts: ClassVar[bool] = False
    path: ClassVar[tuple[str, ...]] = ("data",)

    def message(self, row: pa.DataType) -> pa.Schema:
        texts = [pa.field(name, pa.string()) for name in ("type", "database", "table", "position")]
        numbers = [pa.field(name, pa.int64()) for name in ("ts", "xoffset")]
        return pa.schema([*texts, *numbers, pa.field("data", row), pa.field("old", row)])

    def events(self, messages: pa.RecordBatch) -> Events:
        names, data, old = (messages.column(name) for name in ("type", "data", "old"))
        operation = operations(names, _MAXWELL)
        is_other = pc.match_substring_regex(names, _MAXWELL_OTHERS).fill_null(False)
        faults = unknown(names, pc.and_(operation.is_null(), pc.invert(is_other)))
        faults |= without(operation, data.is_valid(), "data")
        place = pc.extract_regex(messages.column("position"), pattern=_PLACE)
        parts = [number(pc.struct_field(place, name)) for name in ("file", "pos")]
        loaded = pc.equal(operation, LOADED).fill_null(False)
        sequence = of_numbers([*parts, messages.column("xoffset")], pc.or_(place.is_valid(), loaded))
        source = {"db": messages.column("database"), "table": messages.column("table")}
        source["ts_ms"] = pc.multiply(messages.column("ts"), 1_000)
        events = Events(columns_of(data), operation, sequence, source, faults=faults)
        return with_moves(events, columns_of(old), self.keys)


_MAXWELL = {"insert": INSERTED, "update": UPDATED, "delete": REMOVED, "bootstrap-insert": LOADED}
_MAXWELL_OTHERS = "^(bootstrap-(start|complete)|(table|database)-(create|alter|drop))$"


@dataclass(frozen=True)
class Canal:
    """Reads Canal's flat messages: several rows in ``data``, all of them texts.

    Args:
        keys: As of `Maxwell`.
    """

    keys: tuple[str, ...]
    texts: ClassVar[bool] = True
    path: ClassVar[None] = None

    def message(self, row: pa.DataType) -> pa.Schema:
        texts = [pa.field(name, pa.string()) for name in ("type", "database", "table")]
        rows = [pa.field(name, pa.list_(row)) for name in ("data", "old")]
        return pa.schema([*texts, pa.field("es", pa.int64()), pa.field("isDdl", pa.bool_()), *rows])

    def events(self, messages: pa.RecordBatch) -> Events:
        names, data, old = (messages.column(name) for name in ("type", "data", "old"))
        operation = operations(names, _CANAL)
        is_row = pc.and_(operation.is_valid(), pc.not_equal(operation, TRUNCATED)).fill_null(False)
        is_other = pc.or_(messages.column("isDdl").fill_null(False), pc.is_in(names, pa.array(_CANAL_OTHERS)))
        faults = unknown(names, pc.and_(operation.is_null(), pc.invert(is_other)))
        faults |= without(pc.if_else(is_row, operation, None), data.is_valid(), "data")
        # A truncation has no rows, and is one event.
        rows = pc.if_else(is_row, pc.list_value_length(data).fill_null(0), operation.is_valid().cast(pa.int32()))
        lengths = rows.to_numpy()
        numbers = np.repeat(np.arange(messages.num_rows), lengths)
        within = np.arange(len(numbers)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        at = pa.array(numbers)
        source = {"db": messages.column("database"), "table": messages.column("table"), "ts_ms": messages.column("es")}
        events = Events(
            _items(data, numbers, within),
            operation.take(at),
            pa.nulls(len(numbers), pa.binary()),
            {name: values.take(at) for name, values in source.items()},
            numbers,
            faults,
        )
        return with_moves(events, _items(old, numbers, within), self.keys)


_CANAL = {"INSERT": INSERTED, "UPDATE": UPDATED, "DELETE": REMOVED, "TRUNCATE": TRUNCATED}
_CANAL_OTHERS = (
    *("CREATE", "ALTER", "ERASE", "QUERY", "RENAME", "CINDEX", "DINDEX"),
    *("XACOMMIT", "XAROLLBACK", "MHEARTBEAT"),
)


@dataclass(frozen=True)
class Dms:
    """Reads the records of AWS DMS in Kinesis and Kafka: ``data``, ``metadata``, and a before image if there is one.

    Args:
        keys: As of `Maxwell`; an update tells the old key only in its before image.
    """

    keys: tuple[str, ...]
    texts: ClassVar[bool] = False
    path: ClassVar[tuple[str, ...]] = ("data",)

    def message(self, row: pa.DataType) -> pa.Schema:
        names = ("operation", "record-type", "schema-name", "table-name")
        metadata = pa.struct([(name, pa.string()) for name in names])
        return pa.schema([("data", row), *((name, row) for name in _DMS_BEFORE), ("metadata", metadata)])

    def events(self, messages: pa.RecordBatch) -> Events:
        names, kind, schema, table = messages.column("metadata").flatten()
        operation = pc.if_else(pc.equal(kind, "control").fill_null(False), None, operations(names, _DMS))
        faults = unknown(names, pc.and_(operation.is_null(), pc.not_equal(kind, "control").fill_null(True)))
        faults |= without(operation, messages.column("data").is_valid(), "data")
        truncated = pc.and_(pc.equal(kind, "control"), pc.match_substring(names, "truncate")).fill_null(False)
        operation = pc.if_else(truncated, TRUNCATED, operation)
        source = {"schema": schema, "table": table}
        events = Events(columns_of(messages.column("data")), operation, nothing(messages), source, faults=faults)
        before = pc.coalesce(*(messages.column(name) for name in _DMS_BEFORE))
        return with_moves(events, columns_of(before), self.keys)


# DMS has no name for it: that of its documentation, and that of its files.
_DMS_BEFORE = ("before-image", "before")
_DMS = {"load": LOADED, "insert": INSERTED, "update": UPDATED, "delete": REMOVED}


@dataclass(frozen=True)
class Airbyte:
    """Reads Airbyte's raw records, and its protocol's messages; ``_ab_cdc_…`` tell deletions and the place."""

    texts: ClassVar[bool] = False
    path: ClassVar[tuple[str, ...]] = ("_airbyte_data",)

    def message(self, row: pa.DataType) -> pa.Schema:
        own = [pa.field(name, pa.string()) for name in ("_ab_cdc_deleted_at", "_ab_cdc_log_file")]
        own += [pa.field(name, pa.int64()) for name in ("_ab_cdc_lsn", "_ab_cdc_log_pos")]
        data = pa.struct([*row, *own])
        return pa.schema(
            [
                *(("_airbyte_data", data), ("_airbyte_stream", pa.string()), ("_airbyte_emitted_at", pa.int64())),
                *(("type", pa.string()), ("record", pa.struct([("stream", pa.string()), ("data", data)]))),
            ]
        )

    def events(self, messages: pa.RecordBatch) -> Events:
        record = messages.column("record").flatten()
        data = pc.coalesce(messages.column("_airbyte_data"), record[1])
        row = columns_of(data)
        deleted, file, lsn, pos = (row.pop(name) for name in _AIRBYTE)
        kind = messages.column("type")
        is_other = pc.is_in(kind, pa.array(_AIRBYTE_OTHERS))
        operation = pc.if_else(deleted.is_valid(), REMOVED, pa.scalar(UPDATED))
        operation = pc.if_else(data.is_valid(), operation, pa.scalar(None, pa.string()))
        missing = pc.and_(data.is_null(), pc.invert(is_other.fill_null(False)))
        faults = dict.fromkeys(pc.indices_nonzero(missing).to_pylist(), "no record of Airbyte: it has no _airbyte_data")
        log = number(pc.struct_field(pc.extract_regex(file, pattern=_FILE), "file"))
        sequence = of_numbers([log, pc.coalesce(pos, lsn)], pc.or_(log.is_valid(), lsn.is_valid()))
        source = {"table": pc.coalesce(messages.column("_airbyte_stream"), record[0])}
        source["ts_ms"] = messages.column("_airbyte_emitted_at")
        return Events(row, operation, sequence, source, faults=faults)


_AIRBYTE_OTHERS = ("STATE", "LOG", "TRACE", "SPEC", "CATALOG", "CONNECTION_STATUS", "CONTROL")
_AIRBYTE = ("_ab_cdc_deleted_at", "_ab_cdc_log_file", "_ab_cdc_lsn", "_ab_cdc_log_pos")


@dataclass(frozen=True)
class OLake:
    """Reads OLake's normalised rows, in which ``_op_type`` tells what happened."""

    texts: ClassVar[bool] = False
    path: ClassVar[tuple[str, ...]] = ()

    def message(self, row: pa.DataType) -> pa.Schema:
        return pa.schema([*row, pa.field("_op_type", pa.string())])

    def events(self, messages: pa.RecordBatch) -> Events:
        columns = dict(zip(messages.schema.names, messages.columns, strict=True))
        names = columns.pop("_op_type")
        operation = operations(names, _OLAKE)
        return Events(columns, operation, nothing(messages), faults=unknown(names, operation.is_null()))


_OLAKE = {"r": LOADED, "i": INSERTED, "c": INSERTED, "u": UPDATED, "d": REMOVED}


def _items(lists: pa.ListArray, numbers: np.ndarray[Any, Any], within: np.ndarray[Any, Any]) -> Rows:
    """Return the columns of items: of each message with a number the one at a place; null where there is none."""
    lengths = pc.list_value_length(lists).fill_null(0).to_numpy()
    starts = np.asarray(lists.offsets)[:-1]
    there = within < lengths[numbers]
    places = pa.array(np.where(there, starts[numbers] + within, 0), mask=~there)
    return {name: values.take(places) for name, values in columns_of(lists.values).items()}
