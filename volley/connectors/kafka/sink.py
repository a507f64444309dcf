"""KafkaSink: sends rows as messages to a topic, at least once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from html import escape
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from volley.checks import Duration, duration, keep, mapping, one_of, optional, seconds, text
from volley.connectors.kafka.client import Client, check_properties
from volley.connectors.kafka.committer import Destination, KafkaCommitter
from volley.connectors.kafka.settings import brokers, namespace
from volley.contracts.datasets import Dataset
from volley.contracts.reports import PROBE_SECONDS, Probe
from volley.contracts.sink import Committer, Sink, SinkContext
from volley.errors import ConfigError, StorageError, brief_methods
from volley.secrets import redacted_html, redacted_repr

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["KafkaSink"]


@brief_methods
@dataclass(frozen=True, repr=False)
class KafkaSink(Sink):
    """Sends rows as messages to a Kafka topic, at least once.

    An epoch that fails is sent again, so readers see its messages twice. Within an attempt no message is duplicated,
    and rows of one key keep their order.

    Args:
        bootstrap_servers: The bootstrap brokers: ``"host:9092,other:9092"``, or a list of them.
        topic: The topic; it must exist.
        value_format: ``"json"`` (the default): the row as a JSON object. ``"string"`` and ``"raw"``: the column named
            by `value`, as text or bytes; a null is a tombstone.
        key: The column with the message's key: a string, bytes or a whole number; None = no key.
        value: The column with the message's value, for ``"string"`` and ``"raw"``.
        timeout: How long to retry the delivery of a message: a timedelta, seconds or a text such as ``"30s"``.
        properties: Properties of librdkafka, for example for SASL and TLS; secrets in them are never shown.

    Raises:
        ConfigError: If a setting is wrong.

    Example:
        >>> KafkaSink("localhost:9092", "out", key="id")
        KafkaSink(bootstrap_servers='localhost:9092', topic='out', key='id')
    """

    worker_modules: ClassVar[tuple[str, ...]] = ("volley.connectors.kafka.committer",)

    bootstrap_servers: str | Sequence[str]
    topic: str
    value_format: Literal["json", "string", "raw"] = "json"
    key: str | None = None
    value: str | None = None
    timeout: Duration = timedelta(seconds=60)
    properties: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "bootstrap_servers", brokers(self.bootstrap_servers))
        keep(self, topic=text, value_format=one_of(("json", "string", "raw")), key=optional(text), value=optional(text))
        keep(self, timeout=duration, properties=mapping)
        check_properties(self.properties, "Producer")
        if (self.value is None) != (self.value_format == "json"):
            raise ConfigError(
                f"value is {self.value!r} with value_format={self.value_format!r}",
                hint='value names the column for "string" and "raw"; JSON takes the whole row',
            )

    @property
    def target(self) -> str | None:
        # Without the brokers: they may move.
        return f"kafka:{self.topic}"

    def check_columns(self, schema: pa.Schema) -> None:
        self._destination(PROBE_SECONDS).check_columns(schema)

    def datasets(self, tables: Sequence[str] = ()) -> Sequence[Dataset]:
        return [Dataset(namespace(str(self.bootstrap_servers)), self.topic, "TOPIC")]

    def probes(self, schema: pa.Schema | None) -> Sequence[Probe]:
        def run() -> str:
            destination = self._destination(min(seconds("timeout", self.timeout), PROBE_SECONDS))
            if schema is None:
                destination.check_topic()
            else:
                destination.check(schema)
            return f"topic {self.topic}"

        return [Probe("topic", run)]

    def open(self, context: SinkContext) -> Committer:
        destination = self._destination(seconds("timeout", self.timeout))
        destination.check(context.schema, context.resumed)
        return KafkaCommitter(destination)

    def _destination(self, timeout: float) -> Destination:
        client = Client(str(self.bootstrap_servers), dict(self.properties), timeout, StorageError)
        return Destination(client, self.topic, self.value_format, self.key, self.value)

    def __repr__(self) -> str:
        # `key` is a column's name here, not a secret.
        return redacted_repr(self).replace("key='***'", f"key={self.key!r}")

    def _repr_html_(self) -> str:
        return redacted_html(self).replace("<th>key</th><td>***</td>", f"<th>key</th><td>{escape(str(self.key))}</td>")
