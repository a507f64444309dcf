"""Runs a KafkaSource: queries the partitions' last offsets, cuts new ranges into splits, and reads them as rows."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Literal

import pyarrow as pa

from volley.connectors.kafka.cluster import Cluster, check_ends, check_ids
from volley.connectors.kafka.consumers import connection
from volley.connectors.kafka.keys import KeyDecoder, KeyedRows
from volley.connectors.kafka.offsets import (
    OffsetRange,
    SeenEnds,
    TopicPartition,
    as_offset,
    fair_shares,
    offsets_of,
    ranges_between,
    same_topics,
    splits_of,
)
from volley.connectors.kafka.ranges import Messages, RangeReader, metadata_columns, metadata_fields
from volley.contracts.reports import Lag
from volley.contracts.rows import BadRow, PositionedBatch, SeenColumns, note_lost
from volley.contracts.source import Offset, Reader
from volley.errors import ConfigError, SourceError
from volley.formats.joined_values import Joined
from volley.formats.messages import Decoder, MessageRows
from volley.formats.newer_schemas import NewerSchemas

__all__ = ["KafkaReader", "beginning", "rows_of"]

_log = logging.getLogger(__name__)
_MESSAGE_BYTES = 1 << 10


@dataclass
class _Counts:
    """Counts what this process has read."""

    messages: int = 0
    bytes: int = 0

    def add(self, messages: Messages) -> None:
        self.messages += len(messages.values)
        self.bytes += messages.bytes

    @property
    def bytes_a_message(self) -> int:
        """The mean size of a message; before the first one a guess."""
        return self.bytes // self.messages + 1 if self.messages else _MESSAGE_BYTES


@dataclass(frozen=True)
class KafkaReader(Reader):
    """Reads topics of a cluster."""

    cluster: Cluster
    rows: MessageRows
    schema: pa.Schema
    newer: NewerSchemas | None  # notices messages with fields that the schema lacks; None: it is not a registry's
    framed: bool  # True: messages name their schema, in front of them or in a header
    keyed: Literal["tombstones", "values"] | None  # the messages that are decoded with their key
    skip_lost: bool  # True: skip messages that retention has deleted; False: raise
    initial: Offset
    parallelism: int  # the number of splits that are read at the same time
    min_rows_per_split: int  # the minimum offsets of a split, if an epoch has as many
    max_rows_per_split: int  # the maximum offsets of a split
    limit: int | None  # the maximum offsets per epoch; None = all

    def initial_offset(self) -> Offset:
        return self.initial

    def latest_offset(self, start: Offset, limit: int | None, target: Offset | None) -> Offset:
        if target is not None:
            ends, ids = offsets_of(target), target["ids"]
            start = same_topics(start, ids)
        else:
            partitions, now = self.cluster.partitions(start["ids"])
            start = self._kept(start, now)
            # A topic that is gone keeps its place: it may only be out of sight.
            ends, ids = {**offsets_of(start), **self.cluster.latest(partitions)}, {**start["ids"], **now}
            check_ends(offsets_of(_seen(start, now)), ends)
        begins = self._begins(offsets_of(start), ends, limit)
        available = {partition: max(0, end - begins[partition]) for partition, end in ends.items()}
        shares = fair_shares(available, limit)
        return as_offset({partition: begins[partition] + share for partition, share in shares.items()}, ids)

    def splits(self, start: Offset, end: Offset) -> list[list[OffsetRange]]:
        # Spark doesn't call latest_offset for an epoch that is repeated after a crash.
        now = self.cluster.partitions(end["ids"])[1]
        self._kept(end, now)
        ids = end["ids"]
        ranges = [part for part in ranges_between(start, end) if now.get(part.topic) == ids.get(part.topic)]
        return splits_of(ranges, self.parallelism, self.min_rows_per_split, self.max_rows_per_split)

    def size(self, split: list[OffsetRange]) -> int:
        return sum(offset_range.size for offset_range in split) * self._counts.bytes_a_message

    def read(self, split: list[OffsetRange]) -> Iterator[pa.RecordBatch]:
        return self.rows.read(self._messages(split))

    def read_tolerant(self, split: list[OffsetRange]) -> Iterator[PositionedBatch | BadRow]:
        return self.rows.read_tolerant(self._messages(split))

    def _messages(self, split: list[OffsetRange]) -> Iterator[Messages]:
        metadata: list[str] = self.schema.names[len(self.rows.decoder.schema) :]
        names = frozenset(metadata) & {"kafka_key", "kafka_headers", "kafka_timestamp"}
        keys = {"key", "headers"} if isinstance(self.rows, KeyedRows) else set()
        parts = frozenset(name.removeprefix("kafka_") for name in names) | keys
        parts |= ({"headers"} if self.framed else set()) | ({"key", "headers"} if self.keyed else set())
        largest = max((offset_range.size for offset_range in split), default=0)
        with connection(self.cluster.client, largest, self.cluster.connections) as lent:
            for messages in RangeReader(lent, self.skip_lost, parts).read(split):
                self._counts.add(messages)
                framed = messages.framed() if self.framed else messages
                if self.newer is not None:
                    self.newer.check(Joined.of(framed.values))
                yield _with_keys(framed, self.keyed)

    @property
    def learns(self) -> bool:
        return self.rows.inferred is not None

    def learn(self, seen: Sequence[SeenColumns]) -> None:
        if self.rows.inferred is not None:
            self.rows.inferred.learn(seen)

    @property
    def acknowledges(self) -> bool:
        return self.cluster.group is not None

    def committed(self, offset: Offset) -> None:
        if self.cluster.group is not None:
            self.cluster.publish(self._in_sight(offset))

    def _in_sight(self, offset: Offset) -> Offset:
        """Return the part of an offset whose topics are there, if lost messages are skipped."""
        return _seen(offset, self.cluster.partitions(offset["ids"])[1]) if self.skip_lost else offset

    @property
    def knows_lag(self) -> bool:
        return True

    def lag(self, offset: Offset) -> Lag:
        reached, now = offsets_of(self._in_sight(offset)), time.monotonic()
        ends = self.cluster.ends(reached)
        self._ends.see(ends, now)
        rows = sum(max(0, end - reached[partition]) for partition, end in ends.items())
        return Lag(self.cluster.title, rows=rows, seconds=now - self._ends.since(reached, now))

    @cached_property
    def _ends(self) -> SeenEnds:
        return SeenEnds()

    def nothing(self) -> SourceError:
        topics = ", ".join(sorted({partition.topic for partition in offsets_of(self.initial)}))
        return SourceError(
            f"Kafka topic {topics} has no messages from the job's first offsets on",
            hint='produce some first, or begin earlier: starting_offsets="earliest"; bounded=False waits for one',
        )

    def _begins(
        self, start: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], limit: int | None
    ) -> dict[TopicPartition, int]:
        """Return each partition's next offset: 0 for a new one; lost messages don't count towards a limit."""
        first: Mapping[TopicPartition, int] = {}
        if limit is not None and self.skip_lost:
            partitions, _ = self.cluster.partitions({partition.topic for partition in ends})
            first = self.cluster.earliest(ends.keys() & {*partitions})
        return {partition: max(start.get(partition, 0), first.get(partition, 0)) for partition in ends}

    def _kept(self, offset: Offset, ids: Mapping[str, str]) -> Offset:
        """Return an offset without the topics that were made again, whose first messages are then read.

        Raises:
            SourceError: If a topic is gone or was made again, and lost messages are not skipped.
        """
        if not self.skip_lost:
            check_ids(ids, offset["ids"])
            return offset
        for topic, known in offset["ids"].items():
            if ids.get(topic) != known and (topic, ids.get(topic)) not in self._told:
                self._told.add((topic, ids.get(topic)))
                state = "was deleted and made again" if topic in ids else "is gone"
                lost = f"topic {topic} {state}: what was not read of it is lost, skipped"
                _log.warning(lost)
                # Metrics and readiness have it by the note, whichever process plans.
                note_lost(lost, 'read a topic to its end before it is deleted, or choose on_lost_offsets="fail"')
        return same_topics(offset, ids)

    @cached_property
    def _counts(self) -> _Counts:
        return _Counts()

    @cached_property
    def _told(self) -> set[tuple[str, str | None]]:
        """The topics of which a warning tells that they are gone, or others now."""
        return set()


def _with_keys(messages: Messages, keyed: str | None) -> Messages:
    if keyed is None:
        return messages
    return messages.with_tombstones() if keyed == "tombstones" else messages.with_keys()


def _seen(offset: Offset, ids: Mapping[str, str]) -> Offset:
    """Return the part of an offset whose topics are there."""
    return {part: {topic: value for topic, value in offset[part].items() if topic in ids} for part in offset}


def beginning(cluster: Cluster, start: str | Mapping[str, Mapping[int, int]], since: datetime | None) -> Offset:
    """Return the offset where a new job starts.

    Args:
        start: ``"earliest"``, ``"latest"``, or offsets by topic and partition.
        since: A time; replaces `start`.

    Raises:
        ConfigError: If `start` names a partition that the topic does not have.
        SourceError: If the cluster does not respond.
    """
    cluster.connect()
    partitions, ids = cluster.partitions()
    if since is not None:
        return as_offset(cluster.since(partitions, round(since.timestamp() * 1000)), ids)
    if start == "latest":
        return as_offset(cluster.latest(partitions), ids)
    topics = start if isinstance(start, Mapping) else {}
    named = {
        TopicPartition(topic, number): offset for topic, offsets in topics.items() for number, offset in offsets.items()
    }
    if unknown := sorted(named.keys() - set(partitions)):
        topic, number = unknown[0]
        raise ConfigError(
            f"starting_offsets name partition {number} of topic {topic!r}, which it has not",
            hint=f"it has {sum(partition.topic == topic for partition in partitions)} partitions, counted from 0",
        )
    return as_offset({**cluster.earliest(partitions), **named}, ids)


def rows_of(decoder: Decoder, include: Sequence[str], keys: KeyDecoder | None) -> MessageRows:
    """Return what decodes messages into the columns of values, followed by those of the messages' metadata and keys.

    Raises:
        ConfigError: If two columns have one name.
    """
    schema = pa.schema([*decoder.schema, *metadata_fields(include), *(keys.fields if keys else ())])
    for number, name in enumerate(schema.names):
        if name in schema.names[:number]:
            raise ConfigError(f"column {name!r} is there twice: in values and in keys", hint="give the values a schema")
    if keys is None:
        return MessageRows(decoder, schema, metadata_columns)
    return KeyedRows(decoder, schema, metadata_columns, keys)
