"""What the driver asks a Kafka cluster: which topics there are, and where their partitions begin and end."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, TypeVar

from volley.connectors.kafka.client import Client, Reports
from volley.connectors.kafka.offsets import Partition, offsets_of
from volley.errors import SourceError, near
from volley.source import Offset

__all__ = ["Cluster", "check_ends", "check_ids", "gone_back"]

T = TypeVar("T")

_WHO_IS_THERE_SECONDS = 2.0
# The next epoch waits for it.
_PUBLISH_SECONDS = 10.0
_POLL_SECONDS = 0.05


def check_ids(ids: Mapping[str, str], known: Mapping[str, str]) -> None:
    """Raise SourceError if a topic is another one than it was, or is gone: its offsets mean nothing any more.

    Args:
        ids: The topics' ids now.
        known: Their ids in the checkpoint.
    """
    for topic, was in known.items():
        if topic not in ids:
            raise SourceError(
                f"topic {topic!r} is gone, which this job has read from",
                hint="start under another job name to read what is left",
            )
        if ids[topic] != was:
            raise SourceError(
                f"topic {topic!r} was deleted and made again: its id was {was}, now {ids[topic]}; "
                "the offsets in the checkpoint belong to the old one",
                hint="start under another job name to read the new one from its beginning",
            )


def check_ends(reached: Mapping[Partition, int], ends: Mapping[Partition, int]) -> None:
    """Raise SourceError if a partition ends before the offset up to which it was read."""
    for partition, at in reached.items():
        if ends.get(partition, 0) < at:
            raise gone_back(partition, at, ends.get(partition, 0))


def gone_back(partition: Partition, reached: int, end: int) -> SourceError:
    """The error that tells that a partition has lost its last messages."""
    return SourceError(
        f"topic {partition.topic!r}, partition {partition.number} ends at offset {end} now, it reached {reached}: "
        "its offsets have gone back",
        hint="it was deleted and made again, or lost its last messages; start under another job name",
    )


@dataclass(frozen=True)
class Cluster:
    """The topics of one source; its connection is made when it is first asked, and does not travel.

    Args:
        client: How to reach it.
        names: The topics to read.
        pattern: Instead of them a regular expression that the whole of a topic's name has to match.
        group: The consumer group under which offsets are published; None = they are not.
    """

    client: Client
    names: tuple[str, ...]
    pattern: str | None = None
    group: str | None = None

    def partitions(self) -> tuple[list[Partition], dict[str, str]]:
        """All partitions of the topics, and the topics' ids.

        Raises:
            SourceError: If a topic does not exist, or the cluster does not answer.
        """
        described = self._described(self.names if self.pattern is None else self._matching())
        ids = {name: str(topic.topic_id) for name, topic in described.items()}
        found = [Partition(name, each.id) for name, topic in described.items() for each in topic.partitions]
        return sorted(found), ids

    def earliest(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """The first offset that each partition still has."""
        from confluent_kafka.admin import OffsetSpec

        return self._offsets(dict.fromkeys(partitions, OffsetSpec.earliest()))

    def latest(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """The offset behind the last message of each partition that is committed."""
        from confluent_kafka.admin import OffsetSpec

        return self._offsets(dict.fromkeys(partitions, OffsetSpec.latest()))

    def since(self, partitions: Iterable[Partition], milliseconds: int) -> dict[Partition, int]:
        """The offset of the first message at or after a time; where there is none, the latest one."""
        from confluent_kafka.admin import OffsetSpec

        partitions = list(partitions)
        found = self._offsets(dict.fromkeys(partitions, OffsetSpec.for_timestamp(milliseconds)))
        return {**found, **self.latest(partition for partition, offset in found.items() if offset < 0)}

    def publish(self, offset: Offset) -> None:
        """Show the group's monitors how far the job has come.

        Raises:
            SourceError: If the cluster does not take the offsets, or not in time.
        """
        from confluent_kafka import TopicPartition

        if self.group is None:
            return
        at = [TopicPartition(*partition, offset) for partition, offset in offsets_of(offset).items()]
        patience = min(self.client.timeout, _PUBLISH_SECONDS)
        self.client.answer(lambda seconds: self._publish(at, seconds), self._reports, patience)

    def _matching(self) -> list[str]:
        assert self.pattern is not None
        return sorted(name for name in self._names() if re.fullmatch(self.pattern, name))

    def _names(self) -> list[str]:
        """The names of all topics there are."""
        return self.client.answer(lambda seconds: list(self._admin.list_topics(timeout=seconds).topics), self._reports)

    def _described(self, names: Iterable[str]) -> dict[str, Any]:
        from confluent_kafka import TopicCollection

        asked = list(names)
        if not asked:
            return {}

        def ask(seconds: float) -> dict[str, Any]:
            topics = self._admin.describe_topics(TopicCollection(asked), request_timeout=seconds)
            return {name: self._topic(name, future, seconds) for name, future in topics.items()}

        return self._answer(ask)

    def _topic(self, name: str, future: Any, seconds: float) -> Any:
        from confluent_kafka import KafkaError, KafkaException

        try:
            return self.client.result(future, self._reports, seconds)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise
        known = [each for each in self._names() if each[0] != "_"]
        raise SourceError(f"Kafka at {self.client.bootstrap} has no topic {name!r}", hint=near(name, known))

    def _offsets(self, asked: Mapping[Partition, Any]) -> dict[Partition, int]:
        return self._answer(lambda seconds: self._offsets_now(asked, seconds)) if asked else {}

    def _offsets_now(self, asked: Mapping[Partition, Any], seconds: float) -> dict[Partition, int]:
        from confluent_kafka import OFFSET_INVALID, IsolationLevel, KafkaError, KafkaException, TopicPartition

        wanted = {TopicPartition(*partition): spec for partition, spec in asked.items()}
        # What an open transaction has written is not to be read yet, nor what lies behind it.
        level = IsolationLevel.READ_COMMITTED
        futures = self._admin.list_offsets(wanted, isolation_level=level, request_timeout=seconds)
        found = {
            Partition(at.topic, at.partition): self.client.result(future, self._reports, seconds).offset
            for at, future in futures.items()
        }
        # What librdkafka gives, as no error, when the leader has gone away.
        if lost := [each for each, offset in found.items() if offset == OFFSET_INVALID]:
            reason = f"topic {lost[0].topic!r}, partition {lost[0].number} has no leader that answers"
            raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE, reason))
        return found

    def _answer(self, ask: Callable[[float], T]) -> T:
        from confluent_kafka import KafkaException

        def ask_who_is_there(seconds: float) -> T:
            try:
                return ask(seconds)
            except KafkaException:
                # Until it asks for topics, librdkafka goes on with the controller and the leaders that it knows.
                self._admin.list_topics(timeout=min(seconds, _WHO_IS_THERE_SECONDS))
                raise

        return self.client.answer(ask_who_is_there, self._reports)

    @cached_property
    def _reports(self) -> Reports:
        return Reports()

    @cached_property
    def _admin(self) -> Any:
        return self.client.admin(self._reports)

    def _publish(self, at: list[Any], seconds: float) -> None:
        # While the coordinator is away, a commit that is waited for takes 40 s, and librdkafka's admin client crashes.
        from confluent_kafka import KafkaError, KafkaException

        publisher, answers = self._publisher
        publisher.commit(offsets=at, asynchronous=True)
        deadline = time.monotonic() + seconds
        while not answers and time.monotonic() < deadline:
            publisher.poll(_POLL_SECONDS)
        if not answers:
            # What it answers later would be taken for the answer to the next question.
            del self.__dict__["_publisher"]
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        if error := answers.pop():
            raise KafkaException(error)

    @cached_property
    def _publisher(self) -> tuple[Any, list[Any]]:
        """The consumer by which offsets are published, and what it is answered: errors, None = it is done."""
        assert self.group is not None
        answers: list[Any] = []

        def take(error: Any, partitions: Iterable[Any]) -> None:
            answers.append(error or next((each.error for each in partitions if each.error), None))

        return self.client.consumer(self._reports, self.group, take), answers

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}
