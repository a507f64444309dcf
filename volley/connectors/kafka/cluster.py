"""Queries a Kafka cluster on the driver: its topics, and the first and last offsets of their partitions."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, TypeVar

from volley.connectors.kafka.client import RIGHTS, Client, ConnectionErrors
from volley.connectors.kafka.consumers import Connection
from volley.connectors.kafka.offsets import TopicPartition, offsets_of
from volley.contracts.source import Offset
from volley.errors import SourceError, SourceNotFoundError, near

__all__ = ["Cluster", "check_ends", "check_ids", "gone_back"]

T = TypeVar("T")

_METADATA_SECONDS = 2.0
# Publishing offsets delays the next epoch: don't wait for the full timeout.
_PUBLISH_SECONDS = 10.0
_POLL_SECONDS = 0.05


def check_ids(ids: Mapping[str, str], known: Mapping[str, str]) -> None:
    """Raise SourceError if a topic is gone or was recreated: the offsets in the checkpoint don't apply to it."""
    for topic, known_id in known.items():
        if topic not in ids:
            raise SourceError(
                f"topic {topic!r} is gone, which this job has read from",
                hint='on_lost_offsets="skip" goes on with the other topics; or start under another job name',
            )
        if ids[topic] != known_id:
            raise SourceError(
                f"topic {topic!r} was deleted and made again: its id was {known_id}, now {ids[topic]}; "
                "the offsets in the checkpoint belong to the old one",
                hint='on_lost_offsets="skip" reads the new one from its beginning; or start under another job name',
            )


def check_ends(reached: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> None:
    """Raise SourceError if a partition ends before the offset up to which it was read."""
    for partition, offset in reached.items():
        if ends.get(partition, 0) < offset:
            raise gone_back(partition, offset, ends.get(partition, 0))


def gone_back(partition: TopicPartition, reached: int, end: int) -> SourceError:
    """Return the error for a partition that has lost its last messages."""
    return SourceError(
        f"topic {partition.topic!r}, partition {partition.number} ends at offset {end} now, it reached {reached}: "
        "its offsets have gone back",
        hint="it was deleted and made again, or lost its last messages; start under another job name",
    )


@dataclass(frozen=True)
class Cluster:
    """The topics of one source; connects at the first query, and pickles without the connection."""

    client: Client
    names: tuple[str, ...]
    pattern: str | None = None  # a regular expression that must match a topic's whole name; replaces `names`
    group: str | None = None  # the consumer group under which offsets are published; None = don't publish

    def connect(self) -> None:
        """Wait for the first answer of a broker.

        Raises:
            SourceError: If none comes, after some seconds already if no connection is made.
        """
        self.client.first_call(lambda seconds: self._admin.list_topics(timeout=seconds), self._errors)

    def partitions(self, known: Collection[str] = ()) -> tuple[list[TopicPartition], dict[str, str]]:
        """Return all partitions of the topics, and the topics' ids.

        Args:
            known: Topics that are left out if they are gone.

        Raises:
            SourceError: If a topic does not exist, or the cluster does not respond.
        """
        described = self._described(self.names if self.pattern is None else self._matching(), known)
        ids = {name: str(topic.topic_id) for name, topic in described.items()}
        partitions = [
            TopicPartition(name, partition.id) for name, topic in described.items() for partition in topic.partitions
        ]
        return sorted(partitions), ids

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the first offset that each partition still has."""
        from confluent_kafka.admin import OffsetSpec

        return self._offsets(dict.fromkeys(partitions, OffsetSpec.earliest()))

    def latest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offset after the last committed message of each partition."""
        from confluent_kafka.admin import OffsetSpec

        return self._offsets(dict.fromkeys(partitions, OffsetSpec.latest()))

    def ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the same as `latest`, for monitoring: it does not wait long for a broker."""
        from confluent_kafka.admin import OffsetSpec

        if not (specs := dict.fromkeys(partitions, OffsetSpec.latest())):
            return {}
        timeout = min(self.client.timeout, _PUBLISH_SECONDS)
        return self.client.call(lambda seconds: self._list_offsets(specs, seconds), self._errors, timeout)

    @property
    def title(self) -> str:
        """Its topics, as metrics have them."""
        return self.pattern or ",".join(self.names)

    def since(self, partitions: Iterable[TopicPartition], milliseconds: int) -> dict[TopicPartition, int]:
        """Return the offset of the first message at or after a time; if there is none, the latest offset."""
        from confluent_kafka.admin import OffsetSpec

        partitions = list(partitions)
        offsets = self._offsets(dict.fromkeys(partitions, OffsetSpec.for_timestamp(milliseconds)))
        return {**offsets, **self.latest(partition for partition, offset in offsets.items() if offset < 0)}

    def publish(self, offset: Offset) -> None:
        """Commit offsets under the consumer group, for monitoring.

        Raises:
            SourceError: If the cluster rejects the offsets, or does not respond in time.
        """
        import confluent_kafka as kafka

        if self.group is None:
            return
        positions = [kafka.TopicPartition(*partition, offset) for partition, offset in offsets_of(offset).items()]
        timeout = min(self.client.timeout, _PUBLISH_SECONDS)
        self.client.call(lambda seconds: self._publish(positions, seconds), self._errors, timeout)

    def _matching(self) -> list[str]:
        assert self.pattern is not None
        return sorted(name for name in self._names() if re.fullmatch(self.pattern, name))

    def _names(self) -> list[str]:
        """Return the names of all topics."""
        return self.client.call(lambda seconds: list(self._admin.list_topics(timeout=seconds).topics), self._errors)

    def _described(self, names: Iterable[str], known: Collection[str]) -> dict[str, Any]:
        from confluent_kafka import TopicCollection

        names = list(names)
        if not names:
            return {}

        def describe(seconds: float) -> dict[str, Any]:
            topics = self._admin.describe_topics(TopicCollection(names), request_timeout=seconds)
            described = {name: self._topic(name, future, seconds, known) for name, future in topics.items()}
            return {name: topic for name, topic in described.items() if topic is not None}

        # The address that a broker tells may be wrong, too.
        return self._call(describe, self.client.call if known else self.client.first_call)

    def _topic(self, name: str, future: Any, seconds: float, known: Collection[str]) -> Any:
        from confluent_kafka import KafkaError, KafkaException

        try:
            return self.client.result(future, self._errors, seconds)
        except KafkaException as error:
            if error.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                denied = f"Kafka at {self.client.bootstrap}: topic {name!r} is not there, or this user may not see it"
                raise SourceError(denied, hint=f"check the name; else {RIGHTS}") from None
            if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise
        # Of a pattern, it was deleted after the topics were listed.
        if self.pattern is not None or name in known:
            return None
        others = [topic for topic in self._names() if topic[0] != "_"]
        raise SourceNotFoundError(f"Kafka at {self.client.bootstrap} has no topic {name!r}", hint=near(name, others))

    def _offsets(self, specs: Mapping[TopicPartition, Any]) -> dict[TopicPartition, int]:
        return self._call(lambda seconds: self._list_offsets(specs, seconds)) if specs else {}

    def _list_offsets(self, specs: Mapping[TopicPartition, Any], seconds: float) -> dict[TopicPartition, int]:
        import confluent_kafka as kafka

        # Messages of an open transaction, and those after them, can't be read yet.
        futures = self._admin.list_offsets(
            {kafka.TopicPartition(*partition): spec for partition, spec in specs.items()},
            isolation_level=kafka.IsolationLevel.READ_COMMITTED,
            request_timeout=seconds,
        )
        offsets = {
            TopicPartition(partition.topic, partition.partition): self.client.result(
                future, self._errors, seconds
            ).offset
            for partition, future in futures.items()
        }
        # librdkafka returns this offset, without an error, when the leader is gone.
        if leaderless := [partition for partition, offset in offsets.items() if offset == kafka.OFFSET_INVALID]:
            topic, number = leaderless[0]
            reason = f"topic {topic!r}, partition {number} has no leader that answers"
            raise kafka.KafkaException(kafka.KafkaError(kafka.KafkaError.LEADER_NOT_AVAILABLE, reason))
        return offsets

    def _call(self, request: Callable[[float], T], ask: Callable[..., T] | None = None) -> T:
        from confluent_kafka import KafkaException

        def request_or_refresh(seconds: float) -> T:
            try:
                return request(seconds)
            except KafkaException:
                # librdkafka keeps the controller and the leaders that it knows until it lists topics.
                self._admin.list_topics(timeout=min(seconds, _METADATA_SECONDS))
                raise

        return (ask or self.client.call)(request_or_refresh, self._errors)

    @cached_property
    def connections(self) -> list[Connection]:
        """The consumers that this process keeps for its next ranges."""
        return []

    @cached_property
    def _errors(self) -> ConnectionErrors:
        return ConnectionErrors()

    @cached_property
    def _admin(self) -> Any:
        return self.client.admin(self._errors)

    def _publish(self, positions: list[Any], seconds: float) -> None:
        # Without a coordinator, a synchronous commit takes 40 s, and librdkafka's admin client may end the process.
        from confluent_kafka import KafkaError, KafkaException

        publisher, results = self._publisher
        publisher.commit(offsets=positions, asynchronous=True)
        deadline = time.monotonic() + seconds
        while not results and time.monotonic() < deadline:
            publisher.poll(_POLL_SECONDS)
        if not results:
            # Drop the consumer: a late result would be taken for the result of the next commit.
            del self.__dict__["_publisher"]
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        if error := results.pop():
            raise KafkaException(error)

    @cached_property
    def _publisher(self) -> tuple[Any, list[Any]]:
        """The consumer that publishes offsets, and the results of its commits: an error, or None = success."""
        assert self.group is not None
        results: list[Any] = []

        def on_commit(error: Any, partitions: Iterable[Any]) -> None:
            results.append(error or next((partition.error for partition in partitions if partition.error), None))

        return self.client.consumer(self._errors, group=self.group, on_commit=on_commit), results

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}
