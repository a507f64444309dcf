"""Checks the settings of KafkaSource and KafkaSink when they are built, and brings them into one form."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from volley._checks import count, duration, flag, keep, mapping, names, of_type, one_of, optional, text
from volley._types import check_schema, column_names
from volley.connectors._kafka_client import check_properties
from volley.connectors._kafka_columns import METADATA, UNKNOWN
from volley.errors import ConfigError

if TYPE_CHECKING:
    from volley.connectors.kafka import KafkaSource

__all__ = ["FORMATS", "brokers", "checked"]

FORMATS = ("json", "avro", "string", "raw")


def checked(source: KafkaSource) -> dict[str, Any]:
    """The settings that have several forms, each in one.

    Raises:
        ConfigError: If a setting is wrong.
    """
    keep(source, value_format=one_of(FORMATS), on_unknown=one_of(("ignore", "keep", "fail")))
    keep(source, on_lost_offsets=one_of(("fail", "skip")), timeout=duration, properties=mapping, bounded=flag)
    keep(source, topics=optional(names), pattern=optional(text), registry=optional(text), publish_group=optional(text))
    check_properties(source.properties)
    _check_sizes(source)
    _check_start(source)
    include = names("include", source.include)
    for each in include:
        one_of(METADATA)("include", each)
    schema = _schema(source)
    _check_columns(source, schema, include)
    return {
        "bootstrap_servers": brokers(source.bootstrap_servers),
        "topics": _topics(source),
        "include": include,
        "schema": schema,
    }


def brokers(given: str | Sequence[str]) -> str:
    """The brokers as librdkafka takes them."""
    found = ",".join(names("bootstrap_servers", given))
    if not found or re.search(r"\s|://", found):
        raise ConfigError(f"bootstrap_servers {found!r} are no brokers", hint='for example "host:9092,other:9092"')
    return found


def _topics(source: KafkaSource) -> tuple[str, ...] | None:
    if (source.topics is None) == (source.pattern is None):
        raise ConfigError("KafkaSource reads topics, or a pattern of them", hint='give one: topics="events"')
    if source.pattern is not None:
        _check_pattern(source.pattern)
        return None
    topics = tuple(source.topics or ())
    if not topics:
        raise ConfigError(f"topics {topics!r} name no topic", hint='for example topics=["events", "orders"]')
    if twice := [name for name, count in Counter(topics).items() if count > 1]:
        raise ConfigError(f"topic {twice[0]!r} is there twice", hint="once is enough")
    return topics


def _check_pattern(pattern: str) -> None:
    try:
        re.compile(pattern)
    except re.error as error:
        raise ConfigError(
            f"pattern {pattern!r} is no regular expression: {error}", hint='for example "events-.*"'
        ) from error


def _check_sizes(source: KafkaSource) -> None:
    keep(source, max_rows_per_epoch=optional(count), min_rows_per_split=count, max_rows_per_split=count)
    least, most = source.min_rows_per_split, source.max_rows_per_split
    if most < 2 * least:
        raise ConfigError(
            f"min_rows_per_split is {least}, max_rows_per_split {most}",
            hint="the second is at least twice the first",
        )


def _check_start(source: KafkaSource) -> None:
    start, time = source.starting_offsets, source.starting_timestamp
    if time is not None and start != "earliest":
        raise ConfigError("both starting_offsets and starting_timestamp are given", hint="give one of them")
    if time is not None:
        of_type(datetime, "datetime(2024, 1, 1, tzinfo=UTC)")("starting_timestamp", time)
    if time is not None and time.tzinfo is None:
        raise ConfigError(f"starting_timestamp {time} has no time zone", hint="for example datetime(…, tzinfo=UTC)")
    if isinstance(start, Mapping):
        _check_offsets(start, source)
    else:
        one_of(("earliest", "latest"))("starting_offsets", start)


def _check_offsets(start: Mapping[str, Any], source: KafkaSource) -> None:
    topics = tuple(source.topics or start)
    for topic, offsets in start.items():
        one_of(topics)("a topic of starting_offsets,", topic)
        if not isinstance(offsets, Mapping) or not all(_is_count(each) for pair in offsets.items() for each in pair):
            raise ConfigError(
                f"starting_offsets of topic {topic!r} are {offsets!r}", hint='for example {"events": {0: 123, 1: 0}}'
            )


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _schema(source: KafkaSource) -> Any:
    """The schema in a form that can be hashed."""
    format, schema = source.value_format, source.schema
    if source.registry is not None and (format != "avro" or not re.match("https?://", source.registry)):
        raise ConfigError("registry is the URL of a schema registry, for Avro", hint='for example "http://host:8081"')
    if format == "avro":
        return _avro_schema(source)
    if source.on_unknown != "ignore" and format != "json":
        raise ConfigError(f"on_unknown={source.on_unknown!r} is for JSON, not for {format}", hint="leave it out")
    if format == "json":
        if schema is None:
            raise ConfigError("JSON messages need a schema", hint='schema="id long, name string"')
        return check_schema(schema)
    if schema is not None:
        raise ConfigError(f"value_format={format!r} has one column, value; no schema", hint="leave schema out")
    return None


def _avro_schema(source: KafkaSource) -> str | None:
    if source.on_unknown != "ignore":
        raise ConfigError(f"on_unknown={source.on_unknown!r} is for JSON, not for avro", hint="leave it out")
    if source.schema is None:
        if source.registry is None or source.pattern is not None or not _is_one(source.topics):
            raise ConfigError(
                "Avro needs a schema, or a registry that has one for the one topic",
                hint="schema=…, the text of an .avsc file",
            )
        return None
    return source.schema if isinstance(source.schema, str) else json.dumps(source.schema)


def _is_one(topics: str | Sequence[str] | None) -> bool:
    return isinstance(topics, str) or len(topics or ()) == 1


def _check_columns(source: KafkaSource, schema: Any, include: Sequence[str]) -> None:
    """Refuse columns of the value that are called as those of the message."""
    if twice := [name for name, count in Counter(include).items() if count > 1]:
        raise ConfigError(f"include names {twice[0]!r} twice", hint="once is enough")
    added = {f"kafka_{each}" for each in include} | ({UNKNOWN} if source.on_unknown == "keep" else set())
    names = column_names(schema) if source.value_format == "json" else []
    if taken := sorted(added & set(names)):
        raise ConfigError(
            f"column {taken[0]!r} is in the schema, and is what include or on_unknown would add",
            hint="leave it out there, or out of the schema",
        )
