"""Builds the columns of a message's metadata: key, headers, timestamp, topic, partition, offset."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from volley.connectors.kafka.ranges import Messages

__all__ = ["metadata_columns", "metadata_fields"]


def metadata_fields(names: Sequence[str]) -> list[pa.Field]:
    """Return the columns of these parts of a message, which are names out of `METADATA`."""
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
    """Return the values of these columns."""
    return [_METADATA[field.name.removeprefix("kafka_")](messages, field.type) for field in fields]


def _keys(messages: Messages, data_type: pa.DataType) -> pa.Array:
    return pa.array(messages.kept["key"], data_type)


def _headers(messages: Messages, data_type: pa.DataType) -> pa.Array:
    rows = messages.kept["headers"]
    return pa.array([[{"key": key, "value": value} for key, value in row or ()] for row in rows], data_type)


def _timestamps(messages: Messages, data_type: pa.DataType) -> pa.Array:
    # The first of the pair is the timestamp's type; 0 = the message has no timestamp.
    times = [milliseconds * 1000 if type_ else None for type_, milliseconds in messages.kept["timestamp"]]
    return pa.array(times, pa.int64()).cast(data_type)


def _constant(value: Callable[[Messages], Any]) -> Callable[[Messages, pa.DataType], pa.Array]:
    def column(messages: Messages, data_type: pa.DataType) -> pa.Array:
        return pa.repeat(pa.scalar(value(messages), data_type), len(messages.values))

    return column


def _offsets(messages: Messages, data_type: pa.DataType) -> pa.Array:
    return pa.array(messages.offsets, data_type)


_METADATA: dict[str, Callable[[Messages, Any], Any]] = {
    "key": _keys,
    "headers": _headers,
    "timestamp": _timestamps,
    "topic": _constant(lambda messages: messages.topic),
    "partition": _constant(lambda messages: messages.partition),
    "offset": _offsets,
}
