"""The consumer group under which a job publishes its offsets for monitors, as Kafka's own admin client shows it."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import OFFSET_INVALID, Consumer, KafkaException, TopicPartition
from pyspark.sql import SparkSession

from tests.servers.kafka import Kafka
from tests.services.test_kafka import numbers, of_numbers
from tests.waiting import wait_until
from volley import Environment, MemorySink, Pipeline, SourceContext, SourceError

pytestmark = pytest.mark.waits

NOTHING = [OFFSET_INVALID] * 2


@pytest.fixture
def topic(kafka: Kafka) -> str:
    topic = kafka.topic(partitions=2)
    put(kafka, topic, 0, 10)
    return topic


def put(kafka: Kafka, topic: str, first: int, last: int) -> None:
    """Numbers, the even ones in one partition, the odd ones in the other."""
    kafka.produce(topic, [{**each, "partition": at % 2} for at, each in enumerate(numbers(first, last))])


def published(kafka: Kafka, group: str, topic: str) -> list[int]:
    """The offsets of the group, partition by partition; -1001 = there is none."""
    # The admin client is not asked while the coordinator is away.
    asker = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": group})
    found: list[TopicPartition] = []

    def answered() -> bool:
        try:
            found[:] = asker.committed([TopicPartition(topic, number) for number in range(2)], timeout=60)
        except KafkaException as error:
            # A broker that was started a moment ago may not be the coordinator yet.
            if not error.args[0].retriable():
                raise
        return bool(found)

    try:
        wait_until(answered, 60, "the coordinator of the group")
        return [each.offset for each in found]
    finally:
        asker.close()


def forget(kafka: Kafka, group: str) -> None:
    (future,) = kafka.admin.delete_consumer_groups([group]).values()
    future.result(30)


@pytest.fixture(params=["plain", "stateful"])
def pipeline(request: pytest.FixtureRequest, kafka: Kafka, topic: str, spark: SparkSession, tmp_path: Path) -> Pipeline:
    environment = Environment(spark=spark, checkpoint_dir=str(tmp_path / "checkpoints"))
    source = of_numbers(kafka, topic, bounded=True, max_rows_per_epoch=4, publish_group=f"monitor-{topic}")
    stream = environment.from_source(source)
    stream = stream.deduplicate("id") if request.param == "stateful" else stream
    return stream.to_sink(MemorySink("out"))


def test_a_job_publishes_how_far_it_has_come(kafka: Kafka, topic: str, pipeline: Pipeline) -> None:
    group = f"monitor-{topic}"
    pipeline.execute("job")
    assert published(kafka, group, topic) == [5, 5]
    # What was lost is there again when the job is started, with nothing to read.
    forget(kafka, group)
    assert published(kafka, group, topic) == NOTHING
    pipeline.execute("job")
    assert published(kafka, group, topic) == [5, 5]
    put(kafka, topic, 10, 13)
    pipeline.execute("job")
    assert published(kafka, group, topic) == [7, 6]


def test_the_offsets_are_those_of_the_epoch_that_is_committed(kafka: Kafka, topic: str, tmp_path: Path) -> None:
    group = f"monitor-{topic}"
    reader = of_numbers(kafka, topic, publish_group=group).open(SourceContext(str(tmp_path)))
    start = reader.initial_offset()
    middle = reader.latest_offset(start, 4, None)
    end = reader.latest_offset(middle, 4, None)
    assert published(kafka, group, topic) == NOTHING
    reader.committed(middle)
    assert published(kafka, group, topic) == [2, 2]
    reader.committed(end)
    reader.committed(end)
    assert published(kafka, group, topic) == [4, 4]


def test_a_member_of_the_group_does_not_disturb_the_job(
    kafka: Kafka, topic: str, pipeline: Pipeline, caplog: pytest.LogCaptureFixture
) -> None:
    group = f"monitor-{topic}"
    member = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": group, "enable.auto.commit": False})
    member.subscribe([topic])

    def joined() -> bool:
        member.poll(0.1)
        return bool(member.assignment())

    wait_until(joined, 60, "the group's partitions")
    try:
        assert pipeline.execute("job").progress.rows == 10
    finally:
        member.close()
    assert "KafkaReader failed to acknowledge epoch" in caplog.text
    assert published(kafka, group, topic) == NOTHING
    pipeline.execute("job")
    assert published(kafka, group, topic) == [5, 5]


def test_a_broker_that_is_down_does_not_hold_up_the_job(stoppable_kafka: Kafka, tmp_path: Path) -> None:
    kafka = stoppable_kafka
    topic = kafka.topic(partitions=2)
    put(kafka, topic, 0, 10)
    source = of_numbers(kafka, topic, publish_group="monitor", timeout=1)
    reader = source.open(SourceContext(str(tmp_path)))
    offset = reader.latest_offset(reader.initial_offset(), None, None)
    kafka.stop()
    try:
        with pytest.raises(SourceError, match=r"gave no answer within 1 s|Waiting for coordinator"):
            reader.committed(offset)
        # The next epoch waits for it, and so does the end of the job.
        del reader
    finally:
        kafka.start()
