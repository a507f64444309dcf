"""The settings of KafkaSource and KafkaSink, each checked and in one form; names of the columns that they add."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, get_args

from volley.checks import names, of_type, one_of
from volley.errors import ConfigError
from volley.formats.contract import contract_of
from volley.formats.options import Policy, value_schema

__all__ = [
    "METADATA",
    "REGISTERED",
    "UNKNOWN",
    "KeyFormat",
    "brokers",
    "check_key",
    "check_registry",
    "check_rescue",
    "check_sizes",
    "check_start",
    "key_schema",
    "namespace",
    "schema_of",
    "topics_of",
]

METADATA = ("key", "headers", "timestamp", "topic", "partition", "offset")
"""The parts of a message besides its value; their columns are named ``kafka_…``."""

KeyFormat = Literal["json", "avro", "protobuf", "string", "short", "int", "long", "float", "double"]
"""The formats of keys."""

REGISTERED = {
    "avro": ("Avro", "schema=…, the text of an .avsc file; or subject=…"),
    "debezium": ("debezium", 'schema="id long, name string"; or subject=…'),
    "json": ("JSON", 'schema="id long, name string"; or subject=…'),
    "protobuf": ("Protobuf", 'schema=…, the path of a descriptor file, "events.desc"; or subject=…'),
}
"""The formats whose schemas a registry has: what they are called, and how to give a schema."""

UNKNOWN = "kafka_unknown"
"""The column of the fields of a JSON object that the schema lacks."""


def brokers(servers: str | Sequence[str]) -> str:
    """Return the brokers as one text for librdkafka.

    Raises:
        ConfigError: If there is none, or one is not an address.
    """
    text = ",".join(names("bootstrap_servers", servers))
    if not text or re.search(r"\s|://", text):
        raise ConfigError(f"bootstrap_servers {text!r} are no brokers", hint='for example "host:9092,other:9092"')
    return text


def namespace(servers: str) -> str:
    """Return the namespace of a cluster's topics for lineage: its first broker."""
    host, _, port = servers.partition(",")[0].rpartition(":")
    return f"kafka://{host}:{port}" if host and port.isdigit() else f"kafka://{servers.partition(',')[0]}:9092"


def topics_of(topics: Sequence[str] | None, pattern: str | None) -> tuple[str, ...] | None:
    """Return the topics to read; None if a pattern names them.

    Raises:
        ConfigError: If neither or both are given, a topic is given twice, or the pattern is not a regular expression.
    """
    if (topics is None) == (pattern is None):
        raise ConfigError("KafkaSource reads topics, or a pattern of them", hint='give one: topics="events"')
    if pattern is not None:
        _check_pattern(pattern)
        return None
    topics = tuple(topics or ())
    if not topics:
        raise ConfigError(f"topics {topics!r} name no topic", hint='for example topics=["events", "orders"]')
    if duplicates := [name for name, count in Counter(topics).items() if count > 1]:
        raise ConfigError(f"topic {duplicates[0]!r} is there twice", hint="once is enough")
    return topics


def _check_pattern(pattern: str) -> None:
    try:
        re.compile(pattern)
    except re.error as error:
        raise ConfigError(
            f"pattern {pattern!r} is no regular expression: {error}", hint='for example "events-.*"'
        ) from error


def check_sizes(least: int, most: int) -> None:
    """Check the minimum and maximum offsets of a split."""
    if most < 2 * least:
        raise ConfigError(
            f"min_rows_per_split is {least}, max_rows_per_split {most}",
            hint="the second is at least twice the first",
        )


def check_start(offsets: Any, time: datetime | None, topics: Sequence[str] | None) -> None:
    """Check the offsets or the time where a new job starts.

    Raises:
        ConfigError: If both are given, or one is invalid.
    """
    if time is not None and offsets != "earliest":
        raise ConfigError("both starting_offsets and starting_timestamp are given", hint="give one of them")
    if time is not None:
        of_type(datetime, "datetime(2024, 1, 1, tzinfo=UTC)")("starting_timestamp", time)
    if time is not None and time.tzinfo is None:
        raise ConfigError(f"starting_timestamp {time} has no time zone", hint="for example datetime(…, tzinfo=UTC)")
    if isinstance(offsets, Mapping):
        _check_offsets(offsets, tuple(topics or offsets))
    else:
        one_of(("earliest", "latest"))("starting_offsets", offsets)


def _check_offsets(start: Mapping[str, Any], topics: Sequence[str]) -> None:
    for topic, offsets in start.items():
        one_of(topics)("a topic of starting_offsets,", topic)
        numbers = [number for pair in offsets.items() for number in pair] if isinstance(offsets, Mapping) else [None]
        if not all(map(_is_count, numbers)):
            raise ConfigError(
                f"starting_offsets of topic {topic!r} are {offsets!r}", hint='for example {"events": {0: 123, 1: 0}}'
            )


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def check_registry(
    value_format: str, registry: str | None, subject: str | None, message: str | None, key_format: str | None
) -> None:
    """Check the settings of a schema registry and its schemas."""
    formats = {value_format, key_format}
    if registry is not None and (not formats & REGISTERED.keys() or not re.match("https?://", registry)):
        raise ConfigError(
            "registry is the URL of a schema registry, for Avro, Protobuf, JSON and Debezium in Avro",
            hint='for example "http://host:8081"',
        )
    if subject is not None and registry is None:
        raise ConfigError(f"subject {subject!r} is one of a schema registry", hint="give the registry, too")
    if message is not None and value_format != "protobuf":
        raise ConfigError(f"message {message!r} is one of a Protobuf schema", hint='value_format="protobuf"')


def check_nanoseconds(nanoseconds: bool, value_format: str, key_format: str | None) -> None:
    """Check that a format has timestamps whose schema does not tell what columns they are."""
    if nanoseconds and not {value_format, key_format} & {"avro", "protobuf"}:
        raise ConfigError(
            f"nanoseconds are a setting of Avro and Protobuf, not of {value_format}",
            hint="declare the columns: schema='id long, at timestamp(9)'",
        )


def check_rescue(policy: Policy, schema: Any, registry: str | None) -> None:
    """Refuse to rescue what does not fit a registry's schema: such messages were not written by it."""
    if registry is not None and contract_of(policy) is not None:
        raise ConfigError(
            f"on_unknown={policy!r} is for JSON without a registry, whose schemas evolve by themselves",
            hint="leave out on_unknown, and schema='infer'; or the registry",
        )
    if policy == "rescue" and registry is not None and schema is None:
        raise ConfigError(
            "on_unknown='rescue' is for declared columns, not for those of a registry",
            hint='declare a schema, or choose "keep"',
        )


def schema_of(value_format: str, schema: Any, registry: str | None, named: bool) -> Any:
    """Return the schema of messages in a hashable form; None if there is none, or the registry has it.

    Args:
        named: True: the registry's subject is known.

    Raises:
        ConfigError: If the format needs a schema and there is none, or takes none.
    """
    if value_format not in REGISTERED:
        return value_schema(value_format, schema)
    if value_format in ("debezium", "json") and (schema is not None or registry is None):
        return value_schema(value_format, schema)
    name, way = REGISTERED[value_format]
    if schema is not None:
        return _protobuf_schema(schema) if value_format == "protobuf" else _avro_schema(schema)
    if registry is None or not named:
        raise ConfigError(f"{name} needs a schema, or a registry that has one for the one topic", hint=way)
    return None


def key_schema(
    key_format: str | None, schema: Any, registry: str | None, named: bool, subject: str | None, message: str | None
) -> Any:
    """Return the schema of keys as `schema_of` does, whose other arguments it has.

    Raises:
        ConfigError: If a setting of keys has no meaning, or the format needs a schema and there is none.
    """
    given = {"key_schema": schema, "key_subject": subject, "key_message": message}
    for name, value in given.items():
        if value is not None and key_format not in REGISTERED:
            formats = ", ".join(repr(each) for each in REGISTERED if each in get_args(KeyFormat))
            raise ConfigError(
                f"{name} is for keys in {formats}, not for key_format={key_format!r}", hint="leave it out"
            )
    if key_format not in REGISTERED:
        return None
    if subject is not None and registry is None:
        raise ConfigError(f"key_subject {subject!r} is one of a schema registry", hint="give the registry, too")
    if message is not None and key_format != "protobuf":
        raise ConfigError(f"key_message {message!r} is one of a Protobuf schema", hint='key_format="protobuf"')
    if schema is None and (registry is None or not named):
        raise ConfigError(
            "keys need a schema, or a registry that has one for the one topic", hint="key_schema=…; or key_subject=…"
        )
    return schema_of(key_format, schema, registry, named)


def check_key(key_format: str | None, include: Sequence[str]) -> None:
    """Check that keys come once."""
    if key_format is not None and "key" in include:
        raise ConfigError("key_format decodes the keys that include=['key'] keeps as bytes", hint="leave one out")


def _avro_schema(schema: Any) -> str:
    return schema if isinstance(schema, str) else json.dumps(schema)


def _protobuf_schema(schema: Any) -> str | bytes:
    """Return the text of a .proto file, or descriptors as bytes or base64; reads a file."""
    path = Path(schema) if isinstance(schema, os.PathLike) or _is_path(schema) else None
    try:
        schema = schema if path is None else path.read_text("utf-8") if path.suffix == ".proto" else path.read_bytes()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the Protobuf schema {str(path)!r} can't be read: {error}", hint="see the path") from error
    if not isinstance(schema, str | bytes):
        raise ConfigError(f"schema {schema!r:.80} is none of Protobuf", hint=REGISTERED["protobuf"][1])
    return schema


def _is_path(schema: Any) -> bool:
    return isinstance(schema, str) and bool(re.fullmatch(r"[^\n{;]+\.(proto|desc|pb|binpb)", schema))
