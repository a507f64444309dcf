"""Rows become messages: on the executors, by an idempotent producer that is flushed before its task is done."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from volley.connectors.kafka.client import Client, Reports
from volley.epoch import Epoch, WriteResult
from volley.errors import ConfigError, SchemaMismatchError, StorageError, near
from volley.formats.encoders import holds, json_texts
from volley.sink import Committer, TaskWriter, Writer

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["KafkaCommitter", "Target"]

_POLL_SECONDS = 0.1


@dataclass(frozen=True)
class Target:
    """Where messages go, and what they are made of; travels to the executors.

    Args:
        client: How to reach the cluster.
        topic: The topic.
        format: What a value is: ``"json"``, ``"string"`` or ``"raw"``.
        key: The column of the keys, if there is one.
        value: The column of the values; None = the whole row.
    """

    client: Client
    topic: str
    format: str
    key: str | None
    value: str | None

    def check(self, schema: pa.Schema) -> None:
        """Find out whether rows of this schema can be sent to the topic; nothing is sent.

        Raises:
            ConfigError: If a column or the topic does not exist.
            SchemaMismatchError: If a column can't be what it is to be.
            StorageError: If the broker does not answer.
        """
        import pyarrow as pa

        t = pa.types
        if self.key is not None:
            kind = _field(schema, "key", self.key).type
            _require("the key", self.key, kind, t.is_string(kind) or t.is_binary(kind) or t.is_integer(kind))
        if self.value is not None:
            kind = _field(schema, "value", self.value).type
            _require("the value", self.value, kind, t.is_string(kind) if self.format == "string" else t.is_binary(kind))
        else:
            for each in schema:
                _require("a field of JSON", each.name, each.type, holds("json", each.type))
        self._check_topic()

    def _check_topic(self) -> None:
        reports = Reports()
        admin = self.client.admin(reports)
        topics = self.client.answer(lambda seconds: admin.list_topics(timeout=seconds).topics, reports)
        if self.topic not in topics:
            known = [name for name in topics if not name.startswith("__")]
            raise ConfigError(
                f"Kafka at {self.client.bootstrap} has no topic {self.topic!r}", hint=near(self.topic, known)
            )

    def messages(self, batch: pa.RecordBatch) -> Iterable[tuple[Any, Any]]:
        """Key and value of each row."""
        keys = [None] * batch.num_rows if self.key is None else [_as_key(key) for key in batch[self.key].to_pylist()]
        values = json_texts(batch) if self.value is None else batch[self.value].to_pylist()
        return zip(keys, values, strict=True)


def _field(schema: pa.Schema, setting: str, name: str) -> pa.Field:
    if name not in schema.names:
        raise ConfigError(f"{setting} column {name!r} is not in the stream", hint=near(name, schema.names))
    return schema.field(name)


def _require(what: str, name: str, kind: pa.DataType, fits: bool) -> None:
    if not fits:
        raise SchemaMismatchError(f"column {name!r} ({kind}) can't be {what}", hint="cast or drop it before the sink")


def _as_key(key: Any) -> Any:
    return str(key) if isinstance(key, int) else key


@dataclass(frozen=True)
class KafkaCommitter(Committer):
    """Nothing is left to commit when the tasks are done; which epochs there were, Kafka is not told."""

    out: Target

    def __str__(self) -> str:
        return f"topic {self.out.topic}"

    def writer(self, epoch: Epoch) -> _KafkaWriter:
        return _KafkaWriter(self.out)

    def commit(self, epoch: Epoch, results: Sequence[WriteResult]) -> None:
        """The messages are there already."""


@dataclass(frozen=True)
class _KafkaWriter(Writer):
    out: Target

    def open(self, task: int) -> _KafkaTaskWriter:
        return _KafkaTaskWriter(self.out)


class _KafkaTaskWriter(TaskWriter):
    """Sends rows as they come; the broker's answers are heard meanwhile, and the last ones waited for."""

    def __init__(self, out: Target) -> None:
        self._out = out
        self._reports = Reports()
        self._producer: Any = None
        self._failed: list[str] = []
        self._result = WriteResult()
        self._began = time.perf_counter()

    def write(self, batch: pa.RecordBatch) -> None:
        if self._producer is None:
            self._producer = self._out.client.producer(self._reports)
        size = 0
        for key, value in self._out.messages(batch):
            self._send(key, value)
            size += len(value or ())
        self._producer.poll(0)
        self._check()
        self._result = replace(self._result.with_batch(batch.num_rows), bytes=self._result.bytes + size)

    def close(self) -> WriteResult:
        if self._producer is None:
            return WriteResult()
        deadline = time.monotonic() + self._out.client.timeout
        # A message that can't be delivered is given up by the producer itself at about the same time, with a reason.
        while self._producer.flush(_POLL_SECONDS) and not self._reports.refused:
            if time.monotonic() > deadline + 1:
                break
        self._check()
        if len(self._producer):
            raise self._out.client.silence(self._reports)
        return replace(self._result, seconds=time.perf_counter() - self._began)

    def abort(self) -> None:
        if self._producer is not None:
            self._producer.purge()

    def _send(self, key: Any, value: Any) -> None:
        from confluent_kafka import KafkaException

        while True:
            try:
                self._producer.produce(self._out.topic, value, key, on_delivery=self._heard)
                return
            except BufferError:
                self._producer.poll(_POLL_SECONDS)
                self._check()
            except KafkaException as error:
                raise self._undelivered(error.args[0].str()) from None

    def _heard(self, error: Any, message: Any) -> None:
        if error is not None:
            self._failed.append(error.str())

    def _check(self) -> None:
        if self._failed:
            raise self._undelivered(self._failed[0])

    def _undelivered(self, reason: str) -> StorageError:
        return StorageError(
            f"topic {self._out.topic!r}: a message was not delivered: {reason}{self._told()}",
            hint="check the topic's limits and rights, and that its brokers run",
        )

    def _told(self) -> str:
        return f" ({self._reports.last})" if self._reports.last else ""
