"""KafkaSource: reads Kafka topics, with offsets in the job's checkpoint."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

from volley.checks import Duration, count, duration, flag, keep, mapping, names, one_of, optional, seconds, text
from volley.connectors.kafka import settings
from volley.connectors.kafka.client import Client, check_properties
from volley.connectors.kafka.cluster import Cluster
from volley.connectors.kafka.settings import METADATA, UNKNOWN, KeyFormat
from volley.contracts.datasets import Dataset
from volley.contracts.reports import PROBE_SECONDS, Probe
from volley.contracts.source import PayloadDecoder, Reader, Source, SourceContext
from volley.errors import brief_methods
from volley.formats.change_options import CHANGES, ChangeFormat, ChangeOptions, check_options
from volley.formats.contract import INFER, Contract, contract_of
from volley.formats.message_format import MessageFormat
from volley.formats.options import Policy, check_columns, fate_of_unknown, on_unknown, parts_of, policy_of
from volley.formats.schema_registry import Registry
from volley.secrets import redacted_html, redacted_repr
from volley.storage.remembered import read_or_create
from volley.storage.state_formats import INITIAL_OFFSET
from volley.task.failpoints import SCHEMA_POINT, reach

if TYPE_CHECKING:
    import pyarrow as pa

    from volley.connectors.kafka.keys import KeyDecoder
    from volley.formats.messages import Decoder
    from volley.types.names import SchemaLike

__all__ = ["KafkaSource"]


@brief_methods
@dataclass(frozen=True, repr=False)
class KafkaSource(Source):
    """Reads the messages of Kafka topics, each once: offsets are in the job's checkpoint, no consumer group is joined.

    Only committed messages are read; those of aborted transactions are skipped. New partitions, and with a pattern new
    topics, are read from their beginning. A message without a value (a tombstone) is a row of nulls.

    Args:
        bootstrap_servers: The bootstrap brokers: ``"host:9092,other:9092"``, or a list of them.
        topics: The topic to read, or several.
        pattern: A regular expression that must match a topic's whole name; replaces `topics`.
        value_format: The format of a message's value. ``"json"`` (the default): an object, its fields are the columns.
            ``"avro"``: a record, likewise. ``"protobuf"``: a message, likewise. ``"string"``: text, in the column
            ``value``. ``"raw"``: bytes, in the column ``value``. ``"debezium"``, ``"maxwell"``, ``"canal"``, ``"dms"``,
            ``"airbyte"``, ``"olake"``, and ``"changes"``, whose shape the option ``unwrap`` tells: changes of rows, in
            JSON, or of Debezium also in Avro by a `registry`; the columns are those of the rows, and ``_op``, ``_seq``
            and ``_unchanged``, which tell an upsert what to do. A message that is no change is no row.
        schema: For JSON, the columns: a text such as ``"id long, name string"``, a dict of names and types, a
            dataclass, a pydantic model or a `pyarrow.Schema`; missing fields are null; ``"infer"`` = they are found in
            the messages, as ``on_unknown="evolve"`` does beside declared ones, of Debezium in the schemas that they
            carry. For Avro, the schema to read into, as JSON text or a dict. For Protobuf, what ``protoc
            --include_imports --descriptor_set_out`` writes, as bytes, base64 or the path of a file (``.desc``, ``.pb``,
            ``.binpb``); or a .proto file, as text or path.
            None = the registry's latest schema of the subject; what later ones have besides is read from their first
            message on.
        key_format: The format of a message's key: ``"json"``, ``"avro"``, ``"protobuf"``, ``"string"``, or a number as
            Kafka's serializers write it, ``"short"``, ``"int"``, ``"long"``, ``"float"`` or ``"double"``. The fields of
            a record are the columns ``kafka_key_<field>``, any other key is ``kafka_key``. None = it is not decoded.
        key_schema: The schema of keys, as `schema`. None = the registry's latest schema of `key_subject`.
        key_subject: The registry's subject of the keys; None = the topic's, ``"events-key"``.
        key_message: The message of the keys' Protobuf schema; None = the first one of the file.
        include: The parts of a message to add as columns ``kafka_key`` and so on, out of ``"key"``, ``"headers"``,
            ``"timestamp"``, ``"topic"``, ``"partition"``, ``"offset"``.
        on_unknown: What to do with JSON fields that the schema lacks: ``"warn"`` (the default) leaves them out
            and warns once of each, ``"keep"`` keeps them as JSON in the column ``kafka_unknown``, ``"rescue"`` keeps
            them in ``rescued``, with values that don't fit their column, which is then null, ``"evolve"`` makes them
            columns, and rescues values that don't fit, ``"fail"`` makes the message a bad row, ``"drop"`` leaves them
            out; or a `Contract`. A message without any field of the schema is bad, unless they are kept.
        starting_offsets: Where a new job starts: ``"earliest"`` (the default), ``"latest"``, or offsets by topic and
            partition, ``{"events": {0: 123}}``; other partitions start at their earliest offset.
        starting_timestamp: Start a new job with the first message at or after this time; replaces `starting_offsets`.
        bounded: True: read the messages that exist when the run starts, then stop. False: keep reading.
        max_rows_per_epoch: The maximum offsets per epoch; partitions with few new offsets give all, the others give
            equal numbers. None = all.
        min_rows_per_split: The minimum offsets of a task, if an epoch has as many; small partitions are combined.
        max_rows_per_split: The maximum offsets of a task; at least twice `min_rows_per_split`.
        on_lost_offsets: What to do if messages were deleted before they were read: ``"fail"`` (the default), or
            ``"skip"`` them and log a warning with the number of offsets to Spark's log. Of topics, the others go on
            without one that is deleted; one that is made again is read from its beginning.
        registry: The URL of a schema registry (Confluent's protocol) for Avro, Protobuf, JSON and Debezium in Avro;
            messages then start with the id of their schema, or have it in a header. None = they start with the record.
        subject: The registry's subject whose latest schema gives the columns; None = the topic's, ``"events-value"``.
        message: The message of the Protobuf schema to read, by its full name or that within its package; another one
            is a bad row. None = the first one of the file.
        nanoseconds: True: timestamps of Avro in nanoseconds, and all of Protobuf, are columns ``timestamp(9)``, of keys
            too, which only tables of format version 3 have; False (the default) rounds them down to microseconds.
        publish_group: A consumer group under which offsets are published after each epoch, for monitoring only: they
            are never read back. The group must have no members.
        timeout: The timeout of a request to a broker: a timedelta, seconds or a text such as ``"30s"``. A new job whose
            connections all fail stops after 10 seconds.
        properties: Properties of librdkafka, for example for SASL and TLS; secrets in them are never shown.
        options: Options of a format of changes: ``key_fields``, ``wire``, ``flattened``, ``documents``,
            ``packed``, ``placeholder``, ``unrepresentable``, ``truncations``, ``tombstones``, ``row_end``,
            ``source`` and ``unwrap``, as in ``{"key_fields": ["id"]}``; see `ChangeOptions`.

    Raises:
        ConfigError: If a setting is wrong.

    Example:
        >>> KafkaSource("localhost:9092", "events", schema="id long, name string", include=["key", "offset"])
        KafkaSource(bootstrap_servers='localhost:9092', topics=('events',), schema='id long, name string', \
include=('key', 'offset'))
    """

    worker_modules: ClassVar[tuple[str, ...]] = ("volley.connectors.kafka.reader",)

    bootstrap_servers: str | Sequence[str]
    topics: str | Sequence[str] | None = None
    pattern: str | None = None
    value_format: Literal["json", "avro", "protobuf", "string", "raw"] | ChangeFormat = "json"
    schema: SchemaLike | Mapping[str, Any] | bytes | None = None
    key_format: KeyFormat | None = None
    key_schema: SchemaLike | Mapping[str, Any] | bytes | None = None
    key_subject: str | None = None
    key_message: str | None = None
    include: Sequence[str] = ()
    on_unknown: Policy = field(default="warn", metadata={"keys": Contract})
    starting_offsets: Literal["earliest", "latest"] | Mapping[str, Mapping[int, int]] = field(
        default="earliest", hash=False
    )
    starting_timestamp: datetime | None = None
    bounded: bool = False
    max_rows_per_epoch: int | None = None
    min_rows_per_split: int = 25_000
    max_rows_per_split: int = 2_000_000
    on_lost_offsets: Literal["fail", "skip"] = "fail"
    registry: str | None = None
    subject: str | None = None
    message: str | None = None
    nanoseconds: bool = False
    publish_group: str | None = None
    timeout: Duration = timedelta(seconds=60)
    properties: Mapping[str, Any] = field(default_factory=dict, hash=False)
    options: Mapping[str, Any] = field(default_factory=dict, hash=False, metadata={"keys": ChangeOptions})

    def __post_init__(self) -> None:
        formats = ("json", "avro", "protobuf", "string", "raw", *CHANGES)
        keep(self, value_format=one_of(formats), on_unknown=on_unknown)
        keep(self, on_lost_offsets=one_of(("fail", "skip")), timeout=duration, properties=mapping, bounded=flag)
        keep(self, options=mapping)
        keep(self, topics=optional(names), pattern=optional(text), registry=optional(text))
        keep(self, subject=optional(text), message=optional(text))
        keep(self, publish_group=optional(text), max_rows_per_epoch=optional(count))
        keep(self, min_rows_per_split=count, max_rows_per_split=count)
        check_properties(self.properties)
        settings.check_sizes(self.min_rows_per_split, self.max_rows_per_split)
        settings.check_start(self.starting_offsets, self.starting_timestamp, self.topics)
        self._keep("bootstrap_servers", settings.brokers(self.bootstrap_servers))
        keep(self, key_format=optional(one_of(get_args(KeyFormat))))
        keep(self, key_subject=optional(text), key_message=optional(text))
        keep(self, nanoseconds=flag)
        settings.check_nanoseconds(self.nanoseconds, self.value_format, self.key_format)
        settings.check_registry(self.value_format, self.registry, self.subject, self.message, self.key_format)
        named = self.subject is not None or len(self.topics or ()) == 1
        schema, policy = policy_of(self.schema, self.on_unknown, self.value_format)
        self._keep("on_unknown", policy)
        if self.schema != INFER:
            self._keep("schema", settings.schema_of(self.value_format, self.schema, self.registry, named))
            schema = self.schema
        named = self.key_subject is not None or len(self.topics or ()) == 1
        key = settings.key_schema(
            self.key_format, self.key_schema, self.registry, named, self.key_subject, self.key_message
        )
        self._keep("key_schema", key)
        self._keep("include", parts_of(self.include, METADATA))
        settings.check_key(self.key_format, self.include)
        registered = None if self.options.get("documents") and self.registry else schema
        added = [*check_options(self.value_format, registered, self.options, policy, has_keys=True), *self._added]
        settings.check_rescue(self.on_unknown, schema, self.registry)
        check_columns(self.value_format, schema, self.on_unknown, UNKNOWN, added)
        self._keep("topics", settings.topics_of(self.topics, self.pattern))

    def _keep(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    @property
    def _added(self) -> list[str]:
        return [f"kafka_{part}" for part in self.include]

    @property
    def identity(self) -> str:
        # Without the brokers: they may move. Another cluster is recognised by its topics' ids.
        return f"kafka:{','.join(self.topics)}" if self.topics else f"kafka:pattern:{self.pattern}"

    def datasets(self) -> Sequence[Dataset]:
        cluster = settings.namespace(str(self.bootstrap_servers))
        return [Dataset(cluster, topic, "TOPIC") for topic in self.topics or [str(self.pattern)]]

    def probes(self) -> Sequence[Probe]:
        timeout = min(seconds("timeout", self.timeout), PROBE_SECONDS)
        return super(KafkaSource, replace(self, timeout=timeout)).probes()

    def preview(self, context: SourceContext) -> pa.Schema | None:
        from volley.connectors.kafka.reader import rows_of

        if self._asks(self.value_format, self.schema) or self._asks(self.key_format, self.key_schema):
            return None
        if (contract := contract_of(self.on_unknown)) and contract.evolves:
            return None
        return rows_of(self._decoder(context), self.include, self._keys(context)).schema

    def declared(self) -> pa.Schema | None:
        return self.preview(SourceContext(""))

    def explain(self, context: SourceContext) -> str | None:
        return fate_of_unknown(self.on_unknown, UNKNOWN) if self.value_format in ("json", *CHANGES) else None

    def open(self, context: SourceContext) -> Reader:
        from volley.connectors.kafka.offsets import parse_offset
        from volley.connectors.kafka.reader import KafkaReader, beginning, rows_of
        from volley.formats.inferred import learn_first

        client = Client(str(self.bootstrap_servers), dict(self.properties), seconds("timeout", self.timeout))
        cluster = Cluster(client, tuple(self.topics or ()), self.pattern, self.publish_group)

        def first() -> bytes:
            return json.dumps(beginning(cluster, self.starting_offsets, self.starting_timestamp)).encode()

        # Spark asks for the initial offset again after a crash in the first epoch; "latest" would have moved by then.
        initial = read_or_create(f"{context.state}/initial-offset.json", INITIAL_OFFSET, first, parse_offset)
        rows = rows_of(self._decoder(context), self.include, self._keys(context))
        reader = KafkaReader(
            cluster=cluster,
            rows=rows,
            schema=rows.schema,
            newer=self._format.newer(context.state),
            framed=self._registry(self.value_format) is not None,
            keyed=self._keyed,
            skip_lost=self.on_lost_offsets == "skip",
            initial=initial,
            parallelism=context.parallelism,
            min_rows_per_split=self.min_rows_per_split,
            max_rows_per_split=self.max_rows_per_split,
            limit=self.max_rows_per_epoch,
        )
        if learn_first(reader, rows.inferred):
            rows = rows_of(self._decoder(context), self.include, self._keys(context))
            reader = replace(reader, rows=rows, schema=rows.schema)
        # The schema is kept, and the tables don't have it yet.
        reach(SCHEMA_POINT, len(rows.schema))
        return reader

    def payload_decoder(self, format: str, schema: pa.Schema) -> PayloadDecoder | None:
        if format != self.value_format or format != "json":
            return None
        if contract := contract_of(self.on_unknown):
            from volley.formats.decoders import payload_values

            return payload_values(schema, contract, self._added)
        return self._decoder(SourceContext(""))

    __repr__ = redacted_repr
    _repr_html_ = redacted_html

    def _asks(self, format: str | None, schema: Any) -> bool:
        """Return True if the registry has the columns."""
        return self.registry is not None and schema is None and format in settings.REGISTERED

    def _decoder(self, context: SourceContext) -> Decoder:
        return self._format.decoder(context.state)

    def _keys(self, context: SourceContext) -> KeyDecoder | None:
        """Return what decodes keys; None if they are not decoded."""
        from volley.connectors.kafka.keys import KeyDecoder

        if self.key_format is None:
            return None
        subject = self.key_subject or (f"{self.topics[0]}-key" if self.topics else None)
        registry = self._registry(self.key_format)
        keys = MessageFormat(
            self.key_format,
            self.key_schema,
            registry,
            subject,
            self.key_message,
            "warn",
            UNKNOWN,
            {},
            self.nanoseconds,
            True,
        )
        decoder = keys.decoder(f"{context.state}/key")
        is_alone = self.key_format not in settings.REGISTERED or keys.is_alone(decoder)
        return KeyDecoder(is_alone, decoder, registry is not None, keys.newer(f"{context.state}/key"))

    @property
    def _keyed(self) -> Literal["tombstones", "values"] | None:
        if self.options.get("documents") or self.options.get("packed"):
            return "values"
        return "tombstones" if self.options.get("tombstones") == "delete" else None

    def _registry(self, format: str) -> Registry | None:
        """Return the registry of messages in this format; None if it has none."""
        if self.registry is None or format not in settings.REGISTERED:
            return None
        return Registry(self.registry, seconds("timeout", self.timeout))

    @property
    def _format(self) -> MessageFormat:
        registry = self._registry(self.value_format)
        subject = self.subject or (f"{self.topics[0]}-value" if self.topics else None)
        return MessageFormat(
            *(self.value_format, policy_of(self.schema, self.on_unknown)[0], registry, subject, self.message),
            *(self.on_unknown, UNKNOWN, self.options, self.nanoseconds),
            reserved=tuple(self._added),
        )
