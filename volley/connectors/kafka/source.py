"""Kafka as a source, with its offsets in the job's checkpoint, and as a sink that writes at least once."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from volley.checks import Duration, count, duration, flag, keep, mapping, names, one_of, optional, seconds, text
from volley.connectors.kafka import settings
from volley.connectors.kafka.client import Client, check_properties
from volley.connectors.kafka.cluster import Cluster
from volley.formats.schema_registry import Registry
from volley.secrets import show
from volley.source import Reader, Source, SourceContext
from volley.storage.remembered import read_or_create

if TYPE_CHECKING:
    import pyarrow as pa

    from volley.formats.messages import Decoder

__all__ = ["KafkaSource"]


@dataclass(frozen=True, repr=False)
class KafkaSource(Source):
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

    def __post_init__(self) -> None:
        keep(
            self, value_format=one_of(("json", "avro", "string", "raw")), on_unknown=one_of(("ignore", "keep", "fail"))
        )
        keep(self, on_lost_offsets=one_of(("fail", "skip")), timeout=duration, properties=mapping, bounded=flag)
        keep(self, topics=optional(names), pattern=optional(text), registry=optional(text))
        keep(self, publish_group=optional(text), max_rows_per_epoch=optional(count))
        keep(self, min_rows_per_split=count, max_rows_per_split=count)
        check_properties(self.properties)
        settings.check_sizes(self.min_rows_per_split, self.max_rows_per_split)
        settings.check_start(self.starting_offsets, self.starting_timestamp, self.topics)
        self._keep("bootstrap_servers", settings.brokers(self.bootstrap_servers))
        self._keep("schema", settings.value_schema(self.value_format, self.schema, self.registry, self.topics))
        self._keep("include", settings.columns_beside(self.include, self.on_unknown, self.value_format, self.schema))
        self._keep("topics", settings.topics_of(self.topics, self.pattern))

    def _keep(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    @property
    def identity(self) -> str:
        # Not the brokers: they may move. That it is another cluster is told by its topics' ids.
        return f"kafka:{','.join(self.topics)}" if self.topics else f"kafka:pattern:{self.pattern}"

    def preview(self, context: SourceContext) -> pa.Schema | None:
        from volley.connectors.kafka.reader import columns

        # What Avro has may stand in a registry.
        return None if self.value_format == "avro" else columns(self._decoder(context), self.include)

    def open(self, context: SourceContext) -> Reader:
        from volley.connectors.kafka.reader import KafkaReader, RowReader, beginning, columns

        client = Client(str(self.bootstrap_servers), dict(self.properties), seconds("timeout", self.timeout))
        cluster = Cluster(client, tuple(self.topics or ()), self.pattern, self.publish_group)

        def first() -> bytes:
            return json.dumps(beginning(cluster, self.starting_offsets, self.starting_timestamp)).encode()

        # Spark asks where to begin again after a crash in the first epoch; "latest" would be another place by then.
        initial = read_or_create(f"{context.state}/initial-offset.json", first, json.loads)
        decoder = self._decoder(context)
        schema = columns(decoder, self.include)
        return KafkaReader(
            cluster=cluster,
            rows=RowReader(client, decoder, schema, self.on_lost_offsets == "skip"),
            schema=schema,
            initial=initial,
            parallelism=context.parallelism,
            min_rows_per_split=self.min_rows_per_split,
            max_rows_per_split=self.max_rows_per_split,
            limit=self.max_rows_per_epoch,
        )

    def __repr__(self) -> str:
        return show(self)

    def _decoder(self, context: SourceContext) -> Decoder:
        from volley.connectors.kafka.reader import avro_decoder, plain_decoder

        if self.value_format != "avro":
            return plain_decoder(self.value_format, self.schema, self.on_unknown)
        registry = None if self.registry is None else Registry(self.registry, seconds("timeout", self.timeout))
        return avro_decoder(self.schema or self._kept_schema(context), registry)

    def _kept_schema(self, context: SourceContext) -> str:
        # Parsed to find out whether it is whole.
        return json.dumps(read_or_create(f"{context.state}/schema.avsc", self._latest_schema, json.loads))

    def _latest_schema(self) -> bytes:
        assert self.registry is not None
        assert self.topics is not None
        registry = Registry(self.registry, seconds("timeout", self.timeout))
        return registry.latest(f"{self.topics[0]}-value").encode()
