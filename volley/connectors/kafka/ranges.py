"""Reads ranges of Kafka offsets on an executor: every committed message of a range, in order, and no other."""

from __future__ import annotations

import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import accumulate, chain
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from volley.connectors.kafka.cluster import gone_back
from volley.connectors.kafka.consumers import Connection
from volley.connectors.kafka.offsets import OffsetRange, TopicPartition
from volley.contracts.rows import note_lost
from volley.errors import SourceError
from volley.formats.framing import Keyed, Tombstone, framed
from volley.formats.joined_values import Joined, Pieces

__all__ = ["Messages", "RangeReader", "Run", "metadata_columns", "metadata_fields"]


# Small enough to be in the processor's cache when it is decoded.
_CHUNK_BYTES = 4 << 20
_CHUNK_ROWS = 200_000
# Fewer than 700 live messages keep Python's garbage collector from running: a third cheaper per message.
_MAX_FETCH = 300
_FIRST_FETCH = 64
_POLL_SECONDS = 0.05
_LAST_TRY_SECONDS = 1.0
_KEEP_LONGER = "let the topic keep its messages for longer"
_HEADER = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])


class Run(NamedTuple):
    """Consecutive messages of one partition."""

    topic: str
    partition: int
    offsets: Sequence[int]


@dataclass(frozen=True)
class Messages:
    """Messages, those of one partition after those of another."""

    runs: Sequence[Run]
    values: Sequence[bytes | None]  # their values; None = a tombstone
    kept: Mapping[str, list[Any]]  # the values of each part besides: key, headers, timestamp
    bytes: int  # the length of the values, as they were fetched
    keys: pa.RecordBatch | None = None  # the keys as columns, if they are decoded

    def framed(self) -> Messages:
        """Return the messages with their schema in front of the value, also where a header names it."""
        headers = self.kept["headers"]
        if not any(headers):
            return self
        return replace(self, values=Joined.of([*map(partial(framed, "value"), self.values, headers)]))

    def with_tombstones(self) -> Messages:
        """Return the messages with a `Tombstone` where they have a key, and no value."""
        if not Joined.of(self.values).has_tombstones:
            return self
        keys = map(partial(framed, "key"), self.kept["key"], self.kept["headers"])
        values = [
            Tombstone(key) if value is None and key is not None else value
            for key, value in zip(keys, self.values, strict=True)
        ]
        return replace(self, values=values)

    def with_keys(self) -> Messages:
        """Return the messages with their key at the value."""
        keys = map(partial(framed, "key"), self.kept["key"], self.kept["headers"])
        pairs = zip(self.values, keys, strict=True)
        return replace(self, values=[None if value is None else Keyed.of(value, key) for value, key in pairs])

    def part(self, start: int, end: int) -> Messages:
        """Return the messages from `start` (inclusive) to `end` (exclusive)."""
        kept = {name: values[start:end] for name, values in self.kept.items()}
        keys = self.keys and self.keys.slice(start, end - start)
        runs, values = [*_sliced(self.runs, start, end)], self.values[start:end]
        return replace(self, runs=runs, values=values, kept=kept, keys=keys)

    def take(self, numbers: Sequence[int]) -> Messages:
        """Return the messages of these numbers, which ascend; their keys are not decoded yet."""
        runs, begin = [], 0
        for run, end in zip(self.runs, self.ends, strict=True):
            own = numbers[bisect_left(numbers, begin) : bisect_left(numbers, end)]
            runs += [run._replace(offsets=[run.offsets[number - begin] for number in own])] if own else []
            begin = end
        kept = {name: [values[number] for number in numbers] for name, values in self.kept.items()}
        values = [self.values[number] for number in numbers]
        return replace(self, runs=runs, values=values, kept=kept)

    @cached_property
    def ends(self) -> list[int]:
        """The row behind each run."""
        return list(accumulate(len(run.offsets) for run in self.runs))

    def position(self, row: int) -> str:
        """Return the topic, partition and offset of a message."""
        number = bisect_right(self.ends, row)
        topic, partition, offsets = self.runs[number]
        return f"{topic}/{partition}/{offsets[row - self.ends[number]]}"


def _sliced(runs: Iterable[Run], start: int, end: int) -> Iterator[Run]:
    """Yield what runs have of the rows from `start` (inclusive) to `end` (exclusive)."""
    for run in runs:
        if offsets := run.offsets[max(0, start) : max(0, end)]:
            yield run._replace(offsets=offsets)
        start, end = start - len(run.offsets), end - len(run.offsets)


class _Chunk:
    """Collects what librdkafka hands over, until there is enough for one batch.

    The bytes of the values are joined as they come: each value goes while a processor has it in its cache.

    Args:
        parts: The parts to keep besides value and offset.
    """

    def __init__(self, parts: frozenset[str]) -> None:
        self._runs: list[Run] = []
        self._pieces = Pieces()
        self._kept: dict[str, list[Any]] = {name: [] for name in parts}
        self.count = self.bytes = 0

    def add(self, topic: str, partition: int, messages: Sequence[Any]) -> None:
        message_type = type(messages[0])
        first, last = messages[0].offset(), messages[-1].offset()
        gapless = last - first + 1 == len(messages)
        offsets = range(first, last + 1) if gapless else list(map(message_type.offset, messages))
        self._runs.append(Run(topic, partition, offsets))
        for name, kept in self._kept.items():
            kept.extend(map(getattr(message_type, name), messages))
        self.count += len(messages)
        self.bytes += self._pieces.add([*map(message_type.value, messages)])

    @property
    def is_full(self) -> bool:
        return self.bytes >= _CHUNK_BYTES or self.count >= _CHUNK_ROWS

    def messages(self) -> Messages:
        """Return all that was added."""
        return Messages(self._runs, self._pieces.joined(), self._kept, self.bytes)


class RangeReader:
    """Reads ranges one after the other, with one consumer."""

    def __init__(self, connection: Connection, skip_lost: bool, parts: frozenset[str]) -> None:
        self._client, self._errors, self._consumer = connection.client, connection.errors, connection.consumer
        self._skip_lost = skip_lost
        self._parts = parts
        self._count = _FIRST_FETCH

    def read(self, ranges: Iterable[OffsetRange]) -> Iterator[Messages]:
        """Yield the messages of ranges, in chunks of some megabytes.

        Raises:
            SourceError: If messages are lost, or the broker does not respond in time.
        """
        chunk = _Chunk(self._parts)
        for offset_range in ranges:
            for messages in self._fetch(offset_range):
                chunk.add(offset_range.topic, offset_range.partition, messages)
                self._count = max(1, min(_MAX_FETCH, _CHUNK_BYTES * chunk.count // (chunk.bytes + 1)))
                if chunk.is_full:
                    yield chunk.messages()
                    chunk = _Chunk(self._parts)
        if chunk.count:
            yield chunk.messages()

    def _fetch(self, offset_range: OffsetRange) -> Iterator[list[Any]]:
        """Yield messages as they arrive, up to the end of the range.

        The end is reached by position, not by a message: aborted transactions, transaction markers and compaction
        leave offsets without a message. After the last message, the position is known only from librdkafka's
        end-of-partition event, or from a message beyond the range.
        """
        position = self._seek(offset_range, offset_range.begin)
        last_message = time.monotonic()
        while position < offset_range.end:
            messages = self._consumer.consume(min(self._count, offset_range.end - position), _POLL_SECONDS)
            events: list[Any] = []
            if messages and any(map(type(messages[0]).error, messages)):
                events = [message for message in messages if message.error()]
                messages = [message for message in messages if not message.error()]
            if messages:
                position, last_message = messages[-1].offset() + 1, time.monotonic()
                if position > offset_range.end:
                    messages = [message for message in messages if message.offset() < offset_range.end]
                if messages:
                    yield messages
            for event in events:
                position = max(position, self._after(event, offset_range, position))
            if self._errors.refused or time.monotonic() - last_message > self._client.timeout:
                self._bounds(offset_range, _LAST_TRY_SECONDS)
                raise self._client.timeout_error(self._errors)

    def _after(self, event: Any, offset_range: OffsetRange, position: int) -> int:
        """Return the position after an event that is not a message."""
        error = event.error()
        if error.code() == error._PARTITION_EOF:
            return int(event.offset())
        if error.code() == error._AUTO_OFFSET_RESET:
            return self._skip_or_raise(offset_range, position)
        if error.code() == error.GROUP_AUTHORIZATION_FAILED:
            # No group is joined, but the client asks for the coordinator of its name.
            return position
        raise SourceError(
            f"{offset_range.topic}/{offset_range.partition}/{position}: {error.str()}",
            hint="was the topic deleted, or the right to read it withdrawn?",
        )

    def _skip_or_raise(self, offset_range: OffsetRange, position: int) -> int:
        first = self._bounds(offset_range, self._client.timeout)
        topic, partition = offset_range.topic, offset_range.partition
        lost = min(first, offset_range.end) - position
        if not self._skip_lost:
            raise SourceError(
                f"topic {topic!r}, partition {partition}: offsets {position} to {position + lost - 1} are "
                f"gone, retention has deleted them before they were read (it begins at {first} now)",
                hint=f'{_KEEP_LONGER}; on_lost_offsets="skip" goes on behind the gap',
            )
        note_lost(f"{topic}/{partition}: {lost} offsets from {position} on are lost, skipped", _KEEP_LONGER)
        return self._seek(offset_range, first)

    def _bounds(self, offset_range: OffsetRange, timeout: float) -> int:
        """Return the partition's first offset; raise SourceError if the partition ends before the range does."""
        import confluent_kafka as kafka

        partition = kafka.TopicPartition(offset_range.topic, offset_range.partition)
        first, last = self._client.call(
            lambda seconds: self._consumer.get_watermark_offsets(partition, seconds), self._errors, timeout
        )
        if last < offset_range.end:
            raise gone_back(TopicPartition(offset_range.topic, offset_range.partition), offset_range.end, last)
        return int(first)

    def _seek(self, offset_range: OffsetRange, position: int) -> int:
        import confluent_kafka as kafka

        if position < offset_range.end:
            self._consumer.assign([kafka.TopicPartition(offset_range.topic, offset_range.partition, position)])
        return position


def metadata_fields(names: Sequence[str]) -> list[pa.Field]:
    """Return the columns of these parts of a message, which are names out of `METADATA`."""
    return [pa.field(f"kafka_{name}", _METADATA[name][0]) for name in names]


def metadata_columns(fields: Sequence[pa.Field], messages: Messages) -> list[pa.Array]:
    """Return the values of these columns; those of decoded keys come last."""
    keys = [] if messages.keys is None else messages.keys.columns
    return [*_parts(fields[: len(fields) - len(keys)], messages), *keys]


def _parts(fields: Sequence[pa.Field], messages: Messages) -> list[pa.Array]:
    return [_METADATA[field.name.removeprefix("kafka_")][1](messages, field.type) for field in fields]


def _keys(messages: Messages, data_type: pa.DataType) -> pa.Array:
    return pa.array(messages.kept["key"], data_type)


def _headers(messages: Messages, data_type: pa.DataType) -> pa.Array:
    rows = messages.kept["headers"]
    return pa.array([[{"key": key, "value": value} for key, value in row or ()] for row in rows], data_type)


def _timestamps(messages: Messages, data_type: pa.DataType) -> pa.Array:
    # The first of the pair is the timestamp's type; 0 = the message has no timestamp.
    times = [milliseconds * 1000 if type_ else None for type_, milliseconds in messages.kept["timestamp"]]
    return pa.array(times, pa.int64()).cast(data_type)


def _of_runs(name: str) -> Callable[[Messages, pa.DataType], pa.Array]:
    def column(messages: Messages, data_type: pa.DataType) -> pa.Array:
        of_each = pa.array([getattr(run, name) for run in messages.runs], data_type)
        sizes = np.array([len(run.offsets) for run in messages.runs], np.int64)
        return of_each.take(pa.array(np.repeat(np.arange(len(sizes)), sizes)))

    return column


def _offsets(messages: Messages, data_type: pa.DataType) -> pa.Array:
    return pa.array(list(chain.from_iterable(run.offsets for run in messages.runs)), data_type)


_METADATA: dict[str, tuple[pa.DataType, Callable[[Messages, pa.DataType], pa.Array]]] = {
    "key": (pa.binary(), _keys),
    "headers": (pa.list_(_HEADER), _headers),
    "timestamp": (pa.timestamp("us", "UTC"), _timestamps),
    "topic": (pa.string(), _of_runs("topic")),
    "partition": (pa.int32(), _of_runs("partition")),
    "offset": (pa.int64(), _offsets),
}
