"""Kafka as a source, with its offsets in the job's checkpoint, and as a sink that writes at least once."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from volley._checks import Duration, duration, keep, mapping, one_of, optional, seconds, text
from volley._secrets import show
from volley._types import arrow_schema, canonical_schema
from volley.connectors import _json_text, _kafka_settings
from volley.connectors._kafka_avro import AvroValues
from volley.connectors._kafka_client import Client, check_properties
from volley.connectors._kafka_cluster import Cluster, check_ends, check_ids
from volley.connectors._kafka_formats import Decoder, JsonValues, PlainValues, metadata_fields
from volley.connectors._kafka_offsets import Partition, Range, as_offset, offsets_of, ranges_between, shared, splits_of
from volley.connectors._kafka_registry import Registry
from volley.connectors._kafka_rows import RowReader
from volley.connectors._kafka_sink import KafkaCommitter, Target
from volley.connectors._kept import kept
from volley.errors import ConfigError, StorageError
from volley.sink import Committer, Sink, SinkContext
from volley.source import BadRow, Located, Offset, SplitSource

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["KafkaSink", "KafkaSource"]


@dataclass(frozen=True)
class _Opened:
    """What a source knows once it is opened."""

    cluster: Cluster
    initial: Offset
    reader: RowReader
    parallelism: int


@dataclass(frozen=True, repr=False)
class KafkaSource(SplitSource):
    """The messages of Kafka topics, each once: its offsets are in the job's checkpoint, no consumer group is joined.

    Only what is committed is read: messages of transactions that were aborted are left out. Partitions that are added
    are read from their beginning, with a pattern so are topics. A message without a value (a tombstone) is a row of
    nulls.

    Args:
        bootstrap_servers: The brokers to ask first, ``"host:9092,other:9092"``, or a list of them.
        topics: The topic to read, or several.
        pattern: Instead of topics: a regular expression for the whole of a topic's name.
        value_format: What a message's value is. ``"json"``: an object, its fields are the columns. ``"avro"``: a
            record, the same. ``"string"``: text, the column ``value``. ``"raw"``: bytes, the column ``value``.
        schema: The columns of JSON: an Arrow schema, ``"id long, name string"`` or a dict; missing ones are null. Of
            Avro: the schema to read into, as JSON text or a dict; None = the registry's latest one for the topic, kept
            for the life of the checkpoint.
        include: What to have beside the value, out of ``"key"``, ``"headers"``, ``"timestamp"``, ``"topic"``,
            ``"partition"``, ``"offset"``; the columns are called ``kafka_key`` and so on.
        on_unknown: What to do about fields of JSON objects that the schema lacks: ``"ignore"`` them; ``"keep"`` them,
            as JSON in the column ``kafka_unknown``; ``"fail"``: such a message is a bad row.
        starting_offsets: Where a new job begins: ``"earliest"``, ``"latest"``, or offsets by topic and partition,
            ``{"events": {0: 123}}``; partitions that are not named begin at their earliest.
        starting_timestamp: Instead of that: with the first message at or after this time.
        bounded: True: read what is there when the run starts, then stop. False: go on.
        max_rows_per_epoch: The most offsets of one epoch; partitions that have little give all they have, the others
            the same. None = all there is.
        min_rows_per_split: The fewest offsets of a task, if there are as many; partitions that have fewer go together.
        max_rows_per_split: The most offsets of a task; at least twice the former.
        on_lost_offsets: When messages were deleted before they were read: ``"fail"``, or ``"skip"`` them, with a
            warning in Spark's log that tells how many offsets.
        registry: The URL of a schema registry (Confluent's protocol) for Avro; messages then begin with the id of
            their schema. None = they begin with the record.
        publish_group: A consumer group under which the offsets are published when their epoch is done, for monitoring
            alone: nothing is read from it. Nobody else may be a member of it.
        timeout: The longest to wait for a broker's answer: a timedelta, seconds or a text such as ``"30s"``.
        properties: librdkafka's, for example of SASL and TLS; secrets in them are never shown.

    Raises:
        ConfigError: If a setting is wrong.

    Example:
        >>> KafkaSource("localhost:9092", "events", schema="id long, name string", include=["key", "offset"])
        KafkaSource(bootstrap_servers='localhost:9092', topics=('events',), schema='id long, name string', \
include=('key', 'offset'))
    """

    bootstrap_servers: str | Sequence[str]
    topics: str | Sequence[str] | None = None
    pattern: str | None = None
    value_format: str = "json"
    schema: Any = None
    include: Sequence[str] = ()
    on_unknown: str = "ignore"
    starting_offsets: str | Mapping[str, Mapping[int, int]] = field(default="earliest", hash=False)
    starting_timestamp: datetime | None = None
    bounded: bool = False
    max_rows_per_epoch: int | None = None
    min_rows_per_split: int = 25_000
    max_rows_per_split: int = 2_000_000
    on_lost_offsets: str = "fail"
    registry: str | None = None
    publish_group: str | None = None
    timeout: Duration = timedelta(seconds=60)
    properties: Mapping[str, Any] = field(default_factory=dict, hash=False)
    _opened: _Opened | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if self._opened is None:
            for name, value in _kafka_settings.checked(self).items():
                object.__setattr__(self, name, value)

    @property
    def identity(self) -> str:
        # Not the brokers: they may move. That it is another cluster is told by its topics' ids.
        return f"kafka:{','.join(self.topics)}" if self.topics else f"kafka:pattern:{self.pattern}"

    @property
    def limit(self) -> int | None:
        return self.max_rows_per_epoch

    def preview(self, state: str) -> pa.Schema | None:
        # What Avro has may stand in a registry.
        return None if self.value_format == "avro" else self._columns(self._decoder(state))

    def open(self, state: str, parallelism: int = 1) -> KafkaSource:
        client = Client(str(self.bootstrap_servers), dict(self.properties), seconds("timeout", self.timeout))
        cluster = Cluster(client, tuple(self.topics or ()), self.pattern, self.publish_group)
        # Spark asks where to begin again after a crash in the first epoch; "latest" would be another place by then.
        initial = kept(
            f"{state}/initial-offset.json", lambda: json.dumps(self._beginning(cluster)).encode(), json.loads
        )
        decoder = self._decoder(state)
        schema = self._columns(decoder)
        reader = RowReader(client, decoder, schema, self.on_lost_offsets == "skip")
        return replace(self, schema=schema, _opened=_Opened(cluster, initial, reader, parallelism))

    def initial_offset(self) -> Offset:
        return self._ready.initial

    def latest_offset(self, start: Offset, limit: int | None, target: Offset | None) -> Offset:
        cluster = self._ready.cluster
        if start != self._ready.initial:
            # Spark asks only when the epoch that ends here is done.
            cluster.publish(start)
        if target is not None:
            ends, ids = offsets_of(target), target["ids"]
        else:
            partitions, ids = cluster.partitions()
            check_ids(ids, start["ids"])
            ends = cluster.latest(partitions)
            check_ends(offsets_of(start), ends)
        begins = self._begins(offsets_of(start), ends, limit)
        shares = shared({each: max(0, end - begins[each]) for each, end in ends.items()}, limit)
        return as_offset({each: begins[each] + share for each, share in shares.items()}, ids)

    def splits(self, start: Offset, end: Offset) -> list[list[Range]]:
        # An epoch that is repeated after a crash does not pass latest_offset.
        check_ids(self._ready.cluster.partitions()[1], end["ids"])
        ranges = ranges_between(start, end)
        return splits_of(ranges, self._ready.parallelism, self.min_rows_per_split, self.max_rows_per_split)

    def read(self, split: list[Range]) -> Iterator[pa.RecordBatch]:
        return self._ready.reader.read(split)

    def read_tolerant(self, split: list[Range]) -> Iterator[Located | BadRow]:
        return self._ready.reader.read_tolerant(split)

    def __repr__(self) -> str:
        return show(replace(self, _opened=None))

    @property
    def _ready(self) -> _Opened:
        assert self._opened is not None, "open() comes first"
        return self._opened

    def _begins(
        self, start: Mapping[Partition, int], ends: Mapping[Partition, int], limit: int | None
    ) -> dict[Partition, int]:
        """Where each partition's next messages are: a new one begins at 0; what is lost takes no part of a limit."""
        skipping = limit is not None and self.on_lost_offsets == "skip"
        first = self._ready.cluster.earliest(ends) if skipping else {}
        return {each: max(start.get(each, 0), first.get(each, 0)) for each in ends}

    def _beginning(self, cluster: Cluster) -> Offset:
        """Where a new job starts."""
        partitions, ids = cluster.partitions()
        if self.starting_timestamp is not None:
            return as_offset(cluster.since(partitions, round(self.starting_timestamp.timestamp() * 1000)), ids)
        if self.starting_offsets == "latest":
            return as_offset(cluster.latest(partitions), ids)
        given = self.starting_offsets if isinstance(self.starting_offsets, Mapping) else {}
        named = {Partition(topic, number): at for topic, offsets in given.items() for number, at in offsets.items()}
        if unknown := sorted(named.keys() - set(partitions)):
            raise ConfigError(
                f"starting_offsets name partition {unknown[0].number} of topic {unknown[0].topic!r}, which it has not",
                hint=f"it has {sum(each.topic == unknown[0].topic for each in partitions)} partitions, counted from 0",
            )
        return as_offset({**cluster.earliest(partitions), **named}, ids)

    def _columns(self, decoder: Decoder) -> pa.Schema:
        import pyarrow as pa

        return pa.schema([*decoder.schema, *metadata_fields(self.include)])

    def _decoder(self, state: str) -> Decoder:
        if self.value_format == "json":
            columns = canonical_schema(arrow_schema(self.schema))
            _json_text.check(columns)
            return JsonValues(columns, self.on_unknown)
        if self.value_format != "avro":
            return PlainValues(text=self.value_format == "string")
        registry = None if self.registry is None else Registry(self.registry, seconds("timeout", self.timeout))
        return AvroValues(self.schema or self._kept_schema(state), registry)

    def _kept_schema(self, state: str) -> str:
        # Parsed to find out whether it is whole.
        return json.dumps(kept(f"{state}/schema.avsc", self._latest_schema, json.loads))

    def _latest_schema(self) -> bytes:
        assert self.registry is not None
        assert self.topics is not None
        registry = Registry(self.registry, seconds("timeout", self.timeout))
        return registry.latest(f"{self.topics[0]}-value").encode()


@dataclass(frozen=True, repr=False)
class KafkaSink(Sink):
    """Rows as messages of a Kafka topic, at least once: what an epoch that fails has sent is sent again with the next
    attempt, and readers see it twice. Within an attempt nothing is doubled, and rows of one key keep their order.

    Args:
        bootstrap_servers: The brokers to ask first, ``"host:9092,other:9092"``, or a list of them.
        topic: The topic; it has to exist.
        value_format: ``"json"``: the row as an object. ``"string"`` and ``"raw"``: what is in the column `value`; a
            null is a tombstone.
        key: The column with the message's key, a string, bytes or a whole number; None = no key.
        value: The column with the message's value; for ``"string"`` and ``"raw"``.
        timeout: The longest to try to deliver a message: a timedelta, seconds or a text such as ``"30s"``.
        properties: librdkafka's, for example of SASL and TLS; secrets in them are never shown.

    Raises:
        ConfigError: If a setting is wrong.

    Example:
        >>> KafkaSink("localhost:9092", "out", key="id")
        KafkaSink(bootstrap_servers='localhost:9092', topic='out', key='id')
    """

    bootstrap_servers: str | Sequence[str]
    topic: str
    value_format: str = "json"
    key: str | None = None
    value: str | None = None
    timeout: Duration = timedelta(seconds=60)
    properties: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "bootstrap_servers", _kafka_settings.brokers(self.bootstrap_servers))
        keep(self, topic=text, value_format=one_of(("json", "string", "raw")), key=optional(text), value=optional(text))
        keep(self, timeout=duration, properties=mapping)
        check_properties(self.properties)
        if (self.value is None) != (self.value_format == "json"):
            raise ConfigError(
                f"value is {self.value!r} with value_format={self.value_format!r}",
                hint='value names the column for "string" and "raw"; JSON takes the whole row',
            )

    @property
    def target(self) -> str | None:
        # Not the brokers: they may move.
        return f"kafka:{self.topic}"

    def open(self, context: SinkContext) -> Committer:
        timeout = seconds("timeout", self.timeout)
        client = Client(str(self.bootstrap_servers), dict(self.properties), timeout, StorageError)
        target = Target(client, self.topic, self.value_format, self.key, self.value)
        target.check(context.schema)
        return KafkaCommitter(target)

    def __repr__(self) -> str:
        # `key` is the name of a column here, no secret.
        return show(self).replace("key='***'", f"key={self.key!r}")
