"""KafkaSink: rows as messages of a topic, at least once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from volley.checks import Duration, duration, keep, mapping, one_of, optional, seconds, text
from volley.connectors.kafka.client import Client, check_properties
from volley.connectors.kafka.committer import KafkaCommitter, Target
from volley.connectors.kafka.settings import brokers
from volley.errors import ConfigError, StorageError
from volley.secrets import redacted_repr
from volley.sink import Committer, Sink, SinkContext

__all__ = ["KafkaSink"]


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
        object.__setattr__(self, "bootstrap_servers", brokers(self.bootstrap_servers))
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
        return redacted_repr(self).replace("key='***'", f"key={self.key!r}")
