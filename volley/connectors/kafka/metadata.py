"""What Kafka's messages hold: their values → the columns of a batch, and the columns about the message itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from volley.connectors.kafka.ranges import Messages

__all__ = ["metadata_columns", "metadata_fields"]


def metadata_fields(names: Sequence[str]) -> list[pa.Field]:
    """The columns about the message, of those names out of `METADATA`."""
    header = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
    types = {
        "key": pa.binary(),
        "headers": pa.list_(header),
        "timestamp": pa.timestamp("us", "UTC"),
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
    }
    return [pa.field(f"kafka_{name}", types[name]) for name in names]


def metadata_columns(fields: Sequence[pa.Field], messages: Messages) -> list[pa.Array]:
    """The values of those columns."""
    return [_METADATA[field.name.removeprefix("kafka_")](messages, field.type) for field in fields]


def _keys(messages: Messages, kind: pa.DataType) -> pa.Array:
    return pa.array(messages.kept["key"], kind)


def _headers(messages: Messages, kind: pa.DataType) -> pa.Array:
    rows = messages.kept["headers"]
    return pa.array([[{"key": key, "value": value} for key, value in row or ()] for row in rows], kind)


def _timestamps(messages: Messages, kind: pa.DataType) -> pa.Array:
    # The first of the pair says what the time is of; 0 = the message has none.
    times = [at * 1000 if what else None for what, at in messages.kept["timestamp"]]
    return pa.array(times, pa.int64()).cast(kind)


def _same(value: Callable[[Messages], Any]) -> Callable[[Messages, pa.DataType], pa.Array]:
    def column(messages: Messages, kind: pa.DataType) -> pa.Array:
        return pa.repeat(pa.scalar(value(messages), kind), len(messages.values))

    return column


def _offsets(messages: Messages, kind: pa.DataType) -> pa.Array:
    return pa.array(messages.offsets, kind)


_METADATA: dict[str, Callable[[Messages, Any], Any]] = {
    "key": _keys,
    "headers": _headers,
    "timestamp": _timestamps,
    "topic": _same(lambda messages: messages.topic),
    "partition": _same(lambda messages: messages.partition),
    "offset": _offsets,
}
