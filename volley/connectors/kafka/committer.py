"""Runs a KafkaSink: tasks send messages with an idempotent producer, and flush it before they finish."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from volley.connectors.kafka.client import Client, ConnectionErrors
from volley.contracts.epoch import Epoch, WriteResult
from volley.contracts.sink import Committer, TaskWriter, Writer
from volley.errors import ConfigError, SchemaMismatchError, StorageError, near
from volley.formats.encoders import check_rows, holds, json_texts

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Destination", "KafkaCommitter"]

_POLL_SECONDS = 0.1


@dataclass(frozen=True)
class Destination:
    """The topic that messages are sent to, and the columns of their keys and values; picklable."""

    client: Client
    topic: str
    format: str  # the format of a value: "json", "string" or "raw"
    key: str | None  # the column of the keys; None = messages without a key
    value: str | None  # the column of the values; None = the whole row

    def check(self, schema: pa.Schema, resumed: bool = False) -> None:
        """Check that rows of this schema can be sent to the topic; sends nothing."""
        self.check_columns(schema)
        self.check_topic(resumed)

    def check_columns(self, schema: pa.Schema) -> None:
        """Check that rows of this schema can become messages; reach nothing.

        Raises:
            ConfigError: If a column does not exist.
            SchemaMismatchError: If a column's type can't be sent as key, value or JSON field.
        """
        import pyarrow as pa

        t = pa.types
        if self.key is not None:
            data_type = _field(schema, "key", self.key).type
            fits = t.is_string(data_type) or t.is_binary(data_type) or t.is_integer(data_type)
            _require("the key", self.key, data_type, fits)
        if self.value is not None:
            data_type = _field(schema, "value", self.value).type
            fits = t.is_string(data_type) if self.format == "string" else t.is_binary(data_type)
            _require("the value", self.value, data_type, fits)
        else:
            for field in schema:
                _require("a field of JSON", field.name, field.type, holds("json", field.type))

    def check_topic(self, resumed: bool = False) -> None:
        """Raise ConfigError if the topic does not exist, StorageError if the broker does not respond.

        Args:
            resumed: True if the job has written to the topic before: its address is right.
        """
        errors = ConnectionErrors()
        admin = self.client.admin(errors)
        ask = self.client.call if resumed else self.client.first_call
        topics = ask(lambda seconds: admin.list_topics(timeout=seconds).topics, errors)
        if self.topic not in topics:
            known = [name for name in topics if not name.startswith("__")]
            hint = f"{near(self.topic, known)}; or this user may not see it: grant Describe and Write"
            raise ConfigError(f"Kafka at {self.client.bootstrap} has no topic {self.topic!r}", hint=hint)

    def messages(self, batch: pa.RecordBatch) -> Iterable[tuple[Any, Any]]:
        """Return the key and value of each row."""
        keys = [None] * batch.num_rows if self.key is None else [_as_key(key) for key in batch[self.key].to_pylist()]
        values = json_texts(batch) if self.value is None else batch[self.value].to_pylist()
        return zip(keys, values, strict=True)


def _field(schema: pa.Schema, setting: str, name: str) -> pa.Field:
    if name not in schema.names:
        raise ConfigError(f"{setting} column {name!r} is not in the stream", hint=near(name, schema.names))
    return schema.field(name)


def _require(role: str, name: str, data_type: pa.DataType, fits: bool) -> None:
    if not fits:
        raise SchemaMismatchError(
            f"column {name!r} ({data_type}) can't be {role}", hint="cast or drop it before the sink"
        )


def _as_key(key: Any) -> Any:
    return str(key) if isinstance(key, int) else key


@dataclass(frozen=True)
class KafkaCommitter(Committer):
    """Commits nothing: tasks have flushed their messages. No epoch is recorded, so delivery is at least once."""

    destination: Destination

    def __str__(self) -> str:
        return f"topic {self.destination.topic}"

    def writer(self, epoch: Epoch) -> _KafkaWriter:
        return _KafkaWriter(self.destination)

    def commit(self, epoch: Epoch, results: Sequence[WriteResult]) -> None:
        """Do nothing: the tasks have sent the messages."""


@dataclass(frozen=True)
class _KafkaWriter(Writer):
    destination: Destination

    def open(self, task: int) -> _KafkaTaskWriter:
        return _KafkaTaskWriter(self.destination)


class _KafkaTaskWriter(TaskWriter):
    """Sends rows while they arrive and polls for delivery errors; `close` waits for the last deliveries."""

    def __init__(self, destination: Destination) -> None:
        self._destination = destination
        self._errors = ConnectionErrors()
        self._producer: Any = None
        self._failed: list[str] = []
        self._result = WriteResult()
        self._began = time.perf_counter()

    def check(self, batch: pa.RecordBatch) -> None:
        if self._destination.value is None:
            check_rows("json", batch)

    def write(self, batch: pa.RecordBatch) -> None:
        self.check(batch)
        if self._producer is None:
            self._producer = self._destination.client.producer(self._errors)
        size = 0
        for key, value in self._destination.messages(batch):
            self._send(key, value)
            size += len(value or ())
        self._producer.poll(0)
        self._check()
        self._result = replace(self._result.with_batch(batch.num_rows), bytes=self._result.bytes + size)

    def close(self) -> WriteResult:
        if self._producer is None:
            return WriteResult()
        deadline = time.monotonic() + self._destination.client.timeout
        # At about the same time the producer gives up undeliverable messages itself, with a reason.
        while self._flush() and not self._errors.refused:
            if time.monotonic() > deadline + 1:
                break
        self._check()
        if len(self._producer):
            raise self._destination.client.timeout_error(self._errors)
        return replace(self._result, seconds=time.perf_counter() - self._began)

    def abort(self) -> None:
        if self._producer is not None:
            self._producer.purge()

    def _flush(self) -> int:
        """Return how many messages are still on their way, after a moment."""
        from confluent_kafka import KafkaException

        try:
            return int(self._producer.flush(_POLL_SECONDS))
        except KafkaException as error:
            # Of a producer that the broker denies its number, for example.
            raise self._undelivered(error.args[0].str()) from None

    def _send(self, key: Any, value: Any) -> None:
        from confluent_kafka import KafkaException

        while True:
            try:
                self._producer.produce(self._destination.topic, value, key, on_delivery=self._on_delivery)
                return
            except BufferError:
                self._producer.poll(_POLL_SECONDS)
                self._check()
            except KafkaException as error:
                raise self._undelivered(error.args[0].str()) from None

    def _on_delivery(self, error: Any, message: Any) -> None:
        if error is not None:
            self._failed.append(error.str())

    def _check(self) -> None:
        if self._failed:
            raise self._undelivered(self._failed[0])

    def _undelivered(self, reason: str) -> StorageError:
        return StorageError(
            f"topic {self._destination.topic!r}: a message was not delivered: {reason}{self._connection_error()}",
            hint="check the topic's limits and rights, and that its brokers run",
        )

    def _connection_error(self) -> str:
        return f" ({self._errors.last})" if self._errors.last else ""
