"""Reads ranges of Kafka's offsets on an executor: every committed message of a range, in order, nothing behind it."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import Any

from volley.connectors.kafka.client import Client, Reports
from volley.connectors.kafka.cluster import gone_back
from volley.connectors.kafka.offsets import Partition, Range
from volley.errors import SourceError

__all__ = ["Messages", "RangeReader"]

_log = logging.getLogger(__name__)

# What is still in the processor's cache when it is decoded costs less.
_CHUNK_BYTES = 4 << 20
_CHUNK_ROWS = 200_000
# Python's garbage collector runs when 700 objects more were made than freed, and messages are such objects: with fewer
# at a time it never does, which makes a message a third cheaper.
_AT_ONCE = 300
_FIRST = 64
_POLL_SECONDS = 0.05
_LAST_TRY_SECONDS = 1.0


@dataclass
class Messages:
    """Messages of one partition that follow each other.

    Args:
        topic: Their topic.
        partition: Their partition.
        wanted: What to keep beside value and offset: ``key``, ``headers``, ``timestamp``.
        runs: Their offsets, in runs.
        values: Of each its value; None = a tombstone.
        kept: Of each what is wanted.
        bytes: The values' size.
    """

    topic: str
    partition: int
    wanted: frozenset[str]
    runs: list[Sequence[int]] = field(default_factory=list)
    values: list[bytes | None] = field(default_factory=list)
    kept: dict[str, list[Any]] = field(default_factory=dict)
    bytes: int = 0

    def add(self, messages: Sequence[Any]) -> None:
        """Take messages of librdkafka's."""
        kind = type(messages[0])
        first, last = messages[0].offset(), messages[-1].offset()
        gapless = last - first + 1 == len(messages)
        self.runs.append(range(first, last + 1) if gapless else list(map(kind.offset, messages)))
        self.values += map(kind.value, messages)
        for name in self.wanted:
            self.kept.setdefault(name, []).extend(map(getattr(kind, name), messages))
        self.bytes += sum(map(len, messages))

    @property
    def full(self) -> bool:
        """True if it is enough for one batch."""
        return self.bytes >= _CHUNK_BYTES or len(self.values) >= _CHUNK_ROWS

    def part(self, start: int, end: int) -> Messages:
        """Some of them."""
        kept = {name: each[start:end] for name, each in self.kept.items()}
        return replace(self, runs=[self.offsets[start:end]], values=self.values[start:end], kept=kept)

    @cached_property
    def offsets(self) -> list[int]:
        """Of each its offset; asked when all are there."""
        return list(chain.from_iterable(self.runs))

    def position(self, row: int) -> str:
        """Where a message stands."""
        return f"{self.topic}/{self.partition}/{self.offsets[row]}"


class RangeReader:
    """One consumer that reads ranges, one after the other.

    Args:
        client: How to reach the cluster.
        skip_lost: Whether to pass over messages that are gone; False = they are an error.
        wanted: What to keep of a message beside its value and offset.
    """

    def __init__(self, client: Client, skip_lost: bool, wanted: frozenset[str]) -> None:
        self._client = client
        self._skip_lost = skip_lost
        self._wanted = wanted
        self._reports = Reports()
        self._consumer = client.consumer(self._reports)
        self._count = _FIRST

    def read(self, asked: Range) -> Iterator[Messages]:
        """The messages of a range, in chunks of some megabytes.

        Raises:
            SourceError: If messages are gone, or the broker does not answer in time.
        """
        held = Messages(asked.topic, asked.partition, self._wanted)
        for messages in self._pieces(asked):
            held.add(messages)
            self._count = max(1, min(_AT_ONCE, _CHUNK_BYTES * len(held.values) // (held.bytes + 1)))
            if held.full:
                yield held
                held = Messages(asked.topic, asked.partition, self._wanted)
        if held.values:
            yield held

    def close(self) -> None:
        """Let go of the connections."""
        self._consumer.close()

    def _pieces(self, asked: Range) -> Iterator[list[Any]]:
        """What arrives, up to the end of the range.

        It is reached when the position is: aborted transactions, the marks of transactions and compaction leave
        offsets without a message. Behind the last message the position is only known by librdkafka's word that
        the partition ends there, or by a message beyond.
        """
        position = self._seek(asked, asked.begin)
        heard = time.monotonic()
        while position < asked.end:
            messages = self._consumer.consume(min(self._count, asked.end - position), _POLL_SECONDS)
            events: list[Any] = []
            if messages and any(map(type(messages[0]).error, messages)):
                events = [message for message in messages if message.error()]
                messages = [message for message in messages if not message.error()]
            if messages:
                position, heard = messages[-1].offset() + 1, time.monotonic()
                if position > asked.end:
                    messages = [message for message in messages if message.offset() < asked.end]
                if messages:
                    yield messages
            for event in events:
                position = max(position, self._after(event, asked, position))
            if self._reports.refused or time.monotonic() - heard > self._client.timeout:
                self._bounds(asked, _LAST_TRY_SECONDS)
                raise self._client.silence(self._reports)

    def _after(self, event: Any, asked: Range, position: int) -> int:
        """The position after something that is no message."""
        error = event.error()
        if error.code() == error._PARTITION_EOF:
            return int(event.offset())
        if error.code() == error._AUTO_OFFSET_RESET:
            return self._past_the_lost(asked, position)
        raise SourceError(
            f"{asked.topic}/{asked.partition}/{position}: {error.str()}",
            hint="was the topic deleted, or the right to read it withdrawn?",
        )

    def _past_the_lost(self, asked: Range, position: int) -> int:
        first = self._bounds(asked, self._client.timeout)
        lost = min(first, asked.end) - position
        if not self._skip_lost:
            raise SourceError(
                f"topic {asked.topic!r}, partition {asked.partition}: offsets {position} to {position + lost - 1} are "
                f"gone, retention has deleted them before they were read (it begins at {first} now)",
                hint='let the topic keep its messages for longer; on_lost_offsets="skip" goes on behind the gap',
            )
        _log.warning("%s/%d: %d offsets from %d on are lost, skipped", asked.topic, asked.partition, lost, position)
        return self._seek(asked, first)

    def _bounds(self, asked: Range, timeout: float) -> int:
        """Where the partition begins now; raises SourceError if it ends before the range does."""
        from confluent_kafka import TopicPartition

        partition = TopicPartition(asked.topic, asked.partition)
        first, last = self._client.answer(
            lambda seconds: self._consumer.get_watermark_offsets(partition, seconds), self._reports, timeout
        )
        if last < asked.end:
            raise gone_back(Partition(asked.topic, asked.partition), asked.end, last)
        return int(first)

    def _seek(self, asked: Range, position: int) -> int:
        from confluent_kafka import TopicPartition

        if position < asked.end:
            self._consumer.assign([TopicPartition(asked.topic, asked.partition, position)])
        return position
