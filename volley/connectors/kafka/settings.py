"""The settings of KafkaSource and KafkaSink, each checked and in one form; names of the columns that they add."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from volley.checks import names, of_type, one_of
from volley.errors import ConfigError
from volley.formats.options import value_schema

__all__ = ["METADATA", "UNKNOWN", "brokers", "check_sizes", "check_start", "namespace", "schema_of", "topics_of"]

METADATA = ("key", "headers", "timestamp", "topic", "partition", "offset")
"""The parts of a message besides its value; their columns are named ``kafka_…``."""

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


def schema_of(value_format: str, schema: Any, registry: str | None, topics: Sequence[str] | None) -> Any:
    """Return the schema of messages in a hashable form; None if there is none, or the registry has it.

    Raises:
        ConfigError: If the format needs a schema and there is none, or takes none.
    """
    if registry is not None and (value_format != "avro" or not re.match("https?://", registry)):
        raise ConfigError("registry is the URL of a schema registry, for Avro", hint='for example "http://host:8081"')
    return _avro_schema(schema, registry, topics) if value_format == "avro" else value_schema(value_format, schema)


def _avro_schema(schema: Any, registry: str | None, topics: Sequence[str] | None) -> str | None:
    if schema is None:
        if registry is None or len(topics or ()) != 1:
            raise ConfigError(
                "Avro needs a schema, or a registry that has one for the one topic",
                hint="schema=…, the text of an .avsc file",
            )
        return None
    return schema if isinstance(schema, str) else json.dumps(schema)
