"""KafkaSource against a real broker: what it reads, from where on, and what it says when it can't."""

from __future__ import annotations

import gc
import io
import json
import logging
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import BaseRequestHandler, ThreadingTCPServer
from threading import Thread
from typing import Any, cast

import fastavro
import psutil
import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from typer.testing import CliRunner

from examples import kafka_avro
from tests.contracts.test_sources import Planner, rows_of
from tests.processes import ROOT, plain_environment
from tests.servers.certificates import self_signed
from tests.servers.kafka import Kafka
from tests.servers.process import free_ports
from tests.waiting import wait_until
from volley import (
    ConfigError,
    Epoch,
    JobError,
    KafkaSink,
    KafkaSource,
    Metrics,
    SinkContext,
    SourceContext,
    SourceError,
    StorageError,
)
from volley.cli.app import app
from volley.connectors.kafka import client, consumers
from volley.connectors.kafka.client import Client, ConnectionErrors
from volley.connectors.kafka.cluster import Cluster
from volley.contracts.rows import BadRow, PositionedBatch, taken_notes
from volley.contracts.source import Offset
from volley.spark.offsets import Offsets

pytestmark = pytest.mark.waits

NUMBERS = "id long"


def numbers(first: int, last: int, **more: Any) -> list[dict[str, Any]]:
    """Messages with the numbers from `first` up to, not including, `last`."""
    return [{"value": json.dumps({"id": number}), **more} for number in range(first, last)]


class Run:
    """A run of a job over a source, as Spark drives it.

    Args:
        source: The source.
        folder: The folder of its checkpoint.
        bounded: Whether it ends where the topics end when it begins.
    """

    def __init__(self, source: KafkaSource, folder: Path, *, bounded: bool = False) -> None:
        self.reader = source.open(SourceContext(str(folder / "state")))
        self.planner = Planner(self.reader, bounded=bounded)
        self.at: Offset = self.planner.reader.initial_offset()

    def epoch(self, limit: int | None = None) -> list[dict[str, Any]]:
        """The rows of the next epoch."""
        start, self.at = self.at, self.planner.next(self.at, limit)
        return rows_of(self.reader, self.planner, start, self.at)

    def ids(self, limit: int | None = None) -> list[int]:
        return [row["id"] for row in self.epoch(limit)]


def of_numbers(kafka: Kafka, topic: str, **settings: Any) -> KafkaSource:
    return KafkaSource(kafka.bootstrap, topic, schema=NUMBERS, **settings)


def test_a_message_has_all_its_parts(kafka: Kafka, tmp_path: Path) -> None:
    topic, at = kafka.topic(partitions=2), datetime(2026, 1, 2, 3, 4, 5, 678000, UTC)
    message = {"key": b"\xff", "headers": [("a", b"1"), ("a", None)], "timestamp": round(at.timestamp() * 1000)}
    kafka.produce(topic, [{"value": "ü", "partition": 1, **message}, {"value": None, "timestamp": 1}])
    include = ["key", "headers", "timestamp", "topic", "partition", "offset"]
    source = KafkaSource(kafka.bootstrap, topic, value_format="string", include=include)
    tombstone, full = Run(source, tmp_path).epoch()
    assert full == {
        "value": "ü",
        "kafka_key": b"\xff",
        "kafka_headers": [{"key": "a", "value": b"1"}, {"key": "a", "value": None}],
        "kafka_timestamp": at,
        "kafka_topic": topic,
        "kafka_partition": 1,
        "kafka_offset": 0,
    }
    assert (tombstone["value"], tombstone["kafka_key"], tombstone["kafka_headers"]) == (None, None, [])


def test_the_first_messages_of_a_topic_are_shown_as_what_they_are(kafka: Kafka) -> None:
    topic, other = kafka.topic(), kafka.topic()
    kafka.produce(topic, [{"value": '{"id": 1}', "key": b"a"}, {"value": "ü"}, {"value": None}])
    kafka.produce(other, [{"value": b"\xff\x00"}])
    targets = [f"kafka://{kafka.bootstrap}/{name}" for name in (topic, other)]
    shown = [CliRunner().invoke(app, ["head", target, "--json"]).stdout for target in targets]
    rows = [json.loads(line) for line in shown[0].splitlines()]
    assert [(row["value"], row["kafka_key"], row["kafka_offset"]) for row in rows] == [
        ('{"id": 1}', "a", 0),
        ("ü", None, 1),
        (None, None, 2),
    ]
    assert json.loads(shown[1])["value"] == "ff00"


def test_the_lag_is_what_the_topics_have_behind_an_offset(kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.topic(partitions=2)
    kafka.produce(topic, [*numbers(0, 5, partition=0), *numbers(5, 8, partition=1)])
    run = Run(of_numbers(kafka, topic), tmp_path)
    lags = []
    for limit in (2, 4, None):
        run.epoch(limit)
        lags.append(run.reader.lag(run.at))
    kafka.produce(topic, numbers(8, 9))
    lags.append(run.reader.lag(run.at))
    first = lags[0]
    assert first is not None
    assert first.seconds == 0.0
    assert [lag and (lag.source, lag.rows, lag.files) for lag in lags] == [(topic, rows, None) for rows in (6, 2, 0, 1)]
    # The two messages that wait were there at the first look.
    assert lags[1] is not None
    assert lags[1].seconds is not None
    assert lags[1].seconds > 0
    assert lags[2] is not None
    assert lags[2].seconds == 0.0


def test_messages_of_several_partitions_and_topics_are_one_batch(kafka: Kafka, tmp_path: Path) -> None:
    """Were each of them one, an epoch of few rows would cost by the number of partitions."""
    topics = sorted([kafka.topic(partitions=2), kafka.topic(partitions=3)])
    sizes = {(topic, partition): 1 + 2 * partition for topic in topics for partition in (0, 1)}
    for (topic, partition), size in sizes.items():
        kafka.produce(topic, numbers(0, size, partition=partition))
    source = KafkaSource(kafka.bootstrap, topics, schema=NUMBERS, include=["topic", "partition", "offset"])
    run = Run(source, tmp_path)
    (split,) = run.reader.splits(run.at, run.planner.next(run.at, None))
    (batch,) = run.reader.read(split)
    assert [tuple(row.values()) for row in batch.to_pylist()] == [
        (number, topic, partition, number) for (topic, partition), size in sizes.items() for number in range(size)
    ]


def test_a_pattern_reads_the_topics_that_match_and_those_to_come(kafka: Kafka, tmp_path: Path) -> None:
    for number, name in enumerate(("in-a", "in-b", "not-in-a")):
        kafka.produce(kafka.topic(name=name), numbers(number, number + 1))
    run = Run(KafkaSource(kafka.bootstrap, pattern="in-.", schema=NUMBERS), tmp_path)
    assert run.ids() == [0, 1]
    kafka.produce(kafka.topic(name="in-c"), numbers(3, 4))
    assert run.ids() == [3]


def test_a_compacted_topic_is_read_in_ranges_of_which_some_are_empty_by_now(kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.topic(cleanup_policy="compact", min_cleanable_dirty_ratio="0.001", segment_ms="1")
    keys = "aabbbbbbbbbbaccccccccc"
    kafka.produce(topic, [{"key": key, "value": json.dumps({"id": number})} for number, key in enumerate(keys)])
    run = Run(of_numbers(kafka, topic, min_rows_per_split=3, max_rows_per_split=6, include=["offset"]), tmp_path)
    end = run.planner.next(run.at, None)
    splits = run.planner.reader.splits(run.at, end)
    left = kafka.compacted(topic)
    rows = [[row["kafka_offset"] for batch in run.reader.read(split) for row in batch.to_pylist()] for split in splits]
    assert [at for each in rows for at in each] == left == [11, 12, 21]
    assert [] in rows


@pytest.mark.parametrize("size", [3, 1_000])
def test_only_what_was_committed_is_read_whatever_lies_between(kafka: Kafka, tmp_path: Path, size: int) -> None:
    topic = kafka.topic()
    for first in range(0, 60, 10):
        kafka.transaction(topic, numbers(first, first + 5))
        kafka.transaction(topic, numbers(first + 100, first + 104), commit=False)
    kafka.produce(topic, numbers(60, 62))
    kafka.transaction(topic, numbers(200, 230), commit=False)
    run = Run(of_numbers(kafka, topic, min_rows_per_split=size, max_rows_per_split=2 * size), tmp_path)
    found = []
    while ids := run.ids(limit=40):
        found += ids
    # The last epochs hold no message, but the marks of transactions.
    found += run.ids()
    assert found == [number for number in range(60) if number % 10 < 5] + [60, 61]
    assert run.at["offsets"][topic]["0"] == 99


def test_what_an_open_transaction_wrote_is_read_when_it_is_committed(kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.topic()
    kafka.produce(topic, numbers(0, 2))
    open_one = kafka.producer(**{"transactional.id": topic})
    open_one.init_transactions(30)
    open_one.begin_transaction()
    open_one.produce(topic, json.dumps({"id": 2}), partition=0)
    open_one.flush(30)
    kafka.produce(topic, numbers(3, 4))
    run = Run(of_numbers(kafka, topic), tmp_path)
    assert (run.ids(), run.ids()) == ([0, 1], [])
    kafka.end_transaction(open_one, topic)
    assert run.ids() == [2, 3]


def test_a_partition_that_is_added_is_read_from_its_beginning(kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.topic()
    kafka.produce(topic, numbers(0, 2))
    run = Run(of_numbers(kafka, topic, starting_offsets="latest"), tmp_path)
    assert run.ids() == []
    kafka.add_partitions(topic, 2)
    kafka.produce(topic, [*numbers(2, 4, partition=1), *numbers(4, 5)])
    assert run.ids() == [4, 2, 3]


def test_a_bounded_run_ends_where_the_topic_ended(kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.topic()
    kafka.produce(topic, numbers(0, 3))
    run = Run(of_numbers(kafka, topic, bounded=True), tmp_path, bounded=True)
    kafka.add_partitions(topic, 2)
    kafka.produce(topic, [*numbers(3, 5), *numbers(5, 6, partition=1)])
    assert (run.ids(2), run.ids(2), run.ids(2)) == ([0, 1], [2], [])


def test_a_bounded_run_over_a_topic_that_never_had_a_message_says_so(kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.topic()
    reader = of_numbers(kafka, topic, bounded=True).open(SourceContext(str(tmp_path)))
    start = reader.initial_offset()
    with pytest.raises(SourceError, match=f"topic {topic} has no messages"):
        Offsets(reader, None, is_bounded=True).latest(start)
    kafka.produce(topic, numbers(0, 1))
    end = Offsets(reader, None, is_bounded=True).latest(start)
    assert end != start
    assert Offsets(reader, None, is_bounded=True).latest(end) == end  # nothing new is no error


def test_a_new_job_begins_where_it_is_told_and_once(kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.topic(partitions=2, retention_ms="-1")
    hour = 3_600_000
    kafka.produce(topic, [each for n in range(4) for each in numbers(n, n + 1, timestamp=(n + 1) * hour)])
    starts: dict[str, dict[str, Any]] = {
        "earliest": {},
        "latest": {"starting_offsets": "latest"},
        "offset": {"starting_offsets": {topic: {0: 3}}},
        "time": {"starting_timestamp": datetime(1970, 1, 1, 3, tzinfo=UTC)},
        "future": {"starting_timestamp": datetime(2100, 1, 1, tzinfo=UTC)},
    }
    sources = {name: of_numbers(kafka, topic, **start) for name, start in starts.items()}
    for name, source in sources.items():
        source.open(SourceContext(str(tmp_path / name / "state")))
    kafka.produce(topic, numbers(4, 5, timestamp=9 * hour))
    # A driver that died in its first epoch comes again, and "latest" is still what it was.
    found = {name: Run(source, tmp_path / name).ids() for name, source in sources.items()}
    assert found == {"earliest": [0, 1, 2, 3, 4], "latest": [4], "offset": [3, 4], "time": [2, 3, 4], "future": [4]}
    with pytest.raises(ConfigError, match="partition 7"):
        of_numbers(kafka, topic, starting_offsets={topic: {7: 0}}).open(SourceContext(str(tmp_path / "wrong")))


def test_messages_that_are_gone_are_an_error_or_skipped(kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.topic()
    kafka.produce(topic, numbers(0, 10))
    failing, skipping = (
        Run(of_numbers(kafka, topic), tmp_path),
        Run(of_numbers(kafka, topic, on_lost_offsets="skip"), tmp_path),
    )
    assert failing.ids(2) == skipping.ids(2) == [0, 1]
    planned = skipping.planner.reader.splits(skipping.at, skipping.planner.next(skipping.at, None))
    kafka.delete_before(topic, 0, 7)
    with pytest.raises(SourceError, match=f"topic '{topic}', partition 0: offsets 2 to 6 are gone"):
        failing.ids()
    taken_notes()
    found = [row for split in planned for batch in skipping.reader.read(split) for row in batch["id"].to_pylist()]
    assert found == [7, 8, 9]
    assert list(map(str, taken_notes())) == [f"{topic}/0: 5 offsets from 2 on are lost, skipped"]
    # What is lost takes nothing from the limit.
    assert skipping.ids(1) == [7]
    kafka.delete_before(topic, 0, 10)
    assert skipping.ids() == []


def test_a_topic_that_was_made_again_is_an_error(kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.topic()
    kafka.produce(topic, numbers(0, 3))
    run = Run(of_numbers(kafka, topic), tmp_path)
    start = run.at
    assert run.ids() == [0, 1, 2]
    kafka.delete_topic(topic)
    with pytest.raises(SourceError, match="is gone, which this job has read from"):
        run.ids()
    kafka.topic(name=topic)
    # It has as many messages as the old one had, and more.
    kafka.produce(topic, numbers(10, 20))
    with pytest.raises(SourceError, match="deleted and made again"):
        run.ids()
    with pytest.raises(SourceError, match="deleted and made again"):
        run.planner.reader.splits(start, run.at)


@pytest.mark.parametrize("by_pattern", [True, False])
@pytest.mark.parametrize("limit", [None, 100])
def test_the_others_go_on_without_a_topic_that_is_deleted_for_good(
    kafka: Kafka, tmp_path: Path, caplog: pytest.LogCaptureFixture, by_pattern: bool, limit: int | None
) -> None:
    topics = first, second = sorted([kafka.topic(), kafka.topic()])
    kafka.produce(first, numbers(0, 3))
    kafka.produce(second, numbers(100, 103))

    def source(**settings: Any) -> KafkaSource:
        names: dict[str, Any] = {"pattern": f"{first}|{second}"} if by_pattern else {"topics": topics}
        return KafkaSource(kafka.bootstrap, schema=NUMBERS, **names, **settings)

    failing = Run(source(), tmp_path / "failing")
    skipping = Run(source(on_lost_offsets="skip", publish_group=f"monitor-{first}"), tmp_path / "skipping")
    assert sorted(failing.ids(limit)) == sorted(skipping.ids(limit)) == [0, 1, 2, 100, 101, 102]
    kafka.produce(first, numbers(3, 5))
    kafka.produce(second, numbers(103, 105))
    before, planned = skipping.at, skipping.planner.next(skipping.at, limit)
    kafka.delete_topic(second)
    for epoch in (failing.ids, lambda: failing.planner.reader.splits(before, planned)):
        with pytest.raises(SourceError, match=f"topic '{second}' is gone, which this job has read from") as error:
            epoch()
        assert 'on_lost_offsets="skip" goes on with the other topics' in str(error.value.hint)
    # The epoch was planned with messages that are gone by now.
    with caplog.at_level(logging.WARNING, "volley"):
        assert [row["id"] for row in rows_of(skipping.reader, skipping.planner, before, planned)] == [3, 4]
        assert skipping.ids(limit) == [3, 4]
        skipping.reader.committed(skipping.at)
        kafka.produce(first, numbers(5, 6))
        assert skipping.ids(limit) == [5]
    warning = f"topic {second} is gone: what was not read of it is lost, skipped"
    assert [record.getMessage() for record in caplog.records if record.name.startswith("volley")].count(warning) <= 2
    assert warning in caplog.text
    assert warning in map(str, taken_notes())
    # One that is made again has messages of its own, from its first one on.
    kafka.topic(name=second)
    kafka.produce(second, numbers(200, 202))
    with caplog.at_level(logging.WARNING, "volley"):
        assert skipping.ids(limit) == [200, 201]
    assert f"topic {second} was deleted and made again" in caplog.text
    kafka.produce(second, numbers(202, 203))
    assert skipping.ids(limit) == [202]


def test_a_topic_that_is_out_of_sight_for_a_while_keeps_its_place(
    kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with rights that are withdrawn and granted again: no message comes twice."""
    first, second = sorted([kafka.topic(), kafka.topic()])
    kafka.produce(first, numbers(0, 3))
    kafka.produce(second, numbers(100, 103))
    pattern = f"{first}|{second}"
    run = Run(KafkaSource(kafka.bootstrap, pattern=pattern, schema=NUMBERS, on_lost_offsets="skip"), tmp_path)
    assert len(run.ids()) == 6
    kafka.produce(second, numbers(103, 104))
    with monkeypatch.context() as patch:
        patch.setattr(Cluster, "_names", lambda _: [first])
        assert run.ids() == []
    assert run.ids() == [103]


def test_a_bounded_run_ends_without_a_topic_that_is_deleted_meanwhile(kafka: Kafka, tmp_path: Path) -> None:
    first, second = sorted([kafka.topic(), kafka.topic()])
    kafka.produce(first, numbers(0, 3))
    kafka.produce(second, numbers(100, 103))
    pattern = f"{first}|{second}"
    source = KafkaSource(kafka.bootstrap, pattern=pattern, schema=NUMBERS, on_lost_offsets="skip")
    run = Run(source, tmp_path, bounded=True)
    kafka.delete_topic(second)
    rows = run.ids(2) + run.ids(2) + run.ids(2)
    assert rows == [0, 1, 2]
    assert run.at == run.planner.target


def test_offsets_that_went_back_are_an_error(kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.topic()
    kafka.produce(topic, numbers(0, 3))
    run = Run(of_numbers(kafka, topic, on_lost_offsets="skip", timeout=timedelta(seconds=3)), tmp_path)
    ahead = {**run.at, "offsets": {topic: {"0": 5}}}
    with pytest.raises(SourceError, match="ends at offset 3 now, it reached 5"):
        run.planner.reader.latest_offset(ahead, None, None)
    for begin in (1, 5):
        with pytest.raises(SourceError, match="ends at offset 3 now, it reached 7"):
            list(run.reader.read([run.planner.reader.splits(run.at, ahead)[0][0]._replace(begin=begin, end=7)]))


def test_a_bad_message_is_named_with_its_place(kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.topic(partitions=2)
    bad: list[dict[str, Any]] = [{"value": "{"}, {"value": json.dumps({"id": "x"}), "partition": 1}]
    kafka.produce(topic, [*numbers(0, 5), bad[0], *numbers(5, 7), *numbers(7, 9, partition=1), bad[1]])
    run = Run(of_numbers(kafka, topic), tmp_path)
    start, end = run.at, run.planner.next(run.at, None)
    with pytest.raises(SourceError, match=rf"{topic}/0/5: not JSON .*: \{{\n"):
        rows_of(run.reader, run.planner, start, end)
    good: list[tuple[str, int]] = []
    letters = []
    for split in run.planner.reader.splits(start, end):
        for found in run.reader.read_tolerant(split):
            if isinstance(found, BadRow):
                letters.append((found.position, found.payload))
            else:
                assert isinstance(found, PositionedBatch)
                good += [(found.position(row), at) for row, at in enumerate(found.batch["id"].to_pylist())]
    assert letters == [(f"{topic}/0/5", "{"), (f"{topic}/1/2", '{"id": "x"}')]
    assert good == [(f"{topic}/0/{number + (number > 4)}", number) for number in range(7)] + [
        (f"{topic}/1/{number - 7}", number) for number in (7, 8)
    ]


def test_of_what_lies_behind_a_short_range_little_is_fetched(
    kafka: Kafka, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    topic = kafka.topic(partitions=2)
    for partition in range(2):
        kafka.produce(topic, numbers(0, 20_000, partition=partition), **{"batch.size": 2_000})
    properties = {"debug": "msg", "log_level": 7, "logger": logging.getLogger("librdkafka")}
    run = Run(of_numbers(kafka, topic, properties=properties), tmp_path)
    with caplog.at_level(logging.DEBUG, "librdkafka"):
        assert run.ids(limit=40) == [*range(20)] * 2
    fetched = sum(map(int, re.findall(r"Enqueue (\d+) message", caplog.text)))
    assert 40 <= fetched < 10_000


def test_the_size_of_a_split_is_a_guess_until_messages_are_read(kafka: Kafka, tmp_path: Path) -> None:
    """By it the driver decides whether to read an epoch itself."""
    topic = kafka.topic()
    kafka.produce(topic, [{"value": json.dumps({"id": number, "pad": "x" * 9_980})} for number in range(6)])
    run = Run(of_numbers(kafka, topic, on_unknown="drop"), tmp_path)
    (split,) = run.reader.splits(run.at, run.planner.next(run.at, None))
    assert run.reader.size(split) == 6 * 1_024
    assert [batch.num_rows for batch in run.reader.read(split)] == [6]
    assert run.reader.size(split) == pytest.approx(60_000, rel=0.01)


@pytest.fixture
def in_a_task(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What is read is read as in a task of Spark's, which leaves its consumer to later ones."""
    kept: list[consumers.Connection] = []
    monkeypatch.setattr(consumers, "task_context", object)
    monkeypatch.setattr(consumers, "_of_worker", kept)
    yield
    for connection in kept:
        connection.consumer.close()


def connected_to(kafka: Kafka, run: Run | None = None) -> set[int]:
    """The ports of this process's connections to a broker of one process, when `run` has planned once."""
    if run is not None:
        run.reader.splits(run.at, run.planner.next(run.at, None))
    port = int(kafka.bootstrap.rpartition(":")[2])
    connections = psutil.Process().net_connections("tcp")
    return {found.laddr.port for found in connections if found.raddr and found.raddr.port == port}


def test_a_task_reads_by_the_connection_of_the_task_before(kafka: Kafka, tmp_path: Path, in_a_task: None) -> None:
    topic = kafka.topic(partitions=2)
    kafka.produce(topic, [*numbers(0, 6), *numbers(6, 12, partition=1)])
    run = Run(of_numbers(kafka, topic), tmp_path)
    planner = connected_to(kafka, run)
    assert run.ids(limit=8) == [0, 1, 2, 3, 6, 7, 8, 9]
    first = connected_to(kafka) - planner
    assert run.ids(limit=2) == [4, 10]
    assert run.ids() == [5, 11]
    assert connected_to(kafka) - planner == first != set()


def test_the_driver_keeps_a_connection_with_the_reader(kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.topic()
    kafka.produce(topic, numbers(0, 12))
    run = Run(of_numbers(kafka, topic), tmp_path)
    planner = connected_to(kafka, run)
    (split,) = run.reader.splits(run.at, run.planner.next(run.at, None))
    assert [batch.num_rows for batch in run.reader.read(split)] == [12]
    first = connected_to(kafka) - planner
    assert [batch.num_rows for batch in run.reader.read(split)] == [12]
    assert connected_to(kafka) - planner == first != set()
    del run
    gc.collect()
    assert connected_to(kafka) & first == set()


@pytest.mark.parametrize("why", ["idle", "other"])
def test_a_connection_that_is_idle_for_long_or_of_other_settings_is_not_used_again(
    kafka: Kafka, tmp_path: Path, in_a_task: None, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    topic = kafka.topic()
    kafka.produce(topic, numbers(0, 12))
    run = Run(of_numbers(kafka, topic), tmp_path)
    planner = connected_to(kafka, run)
    assert run.ids(limit=4) == [0, 1, 2, 3]
    first = connected_to(kafka) - planner
    if why == "idle":
        monkeypatch.setattr(consumers, "_KEPT_SECONDS", 0)
    else:
        other = of_numbers(kafka, topic, properties={"client.id": "other"})
        run.reader = other.open(SourceContext(str(tmp_path / "state")))
    assert run.ids(limit=4) == [4, 5, 6, 7]
    second = connected_to(kafka) - planner
    assert first
    assert second - first
    assert (second >= first) == (why == "other")


def test_a_connection_that_was_left_amid_a_range_is_closed(
    kafka: Kafka, tmp_path: Path, in_a_task: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = kafka.topic()
    kafka.produce(topic, numbers(0, 12))
    run = Run(of_numbers(kafka, topic), tmp_path)
    planner = connected_to(kafka, run)
    monkeypatch.setattr("volley.connectors.kafka.ranges._CHUNK_ROWS", 1)
    monkeypatch.setattr("volley.connectors.kafka.ranges._FIRST_FETCH", 1)
    (split,) = run.reader.splits(run.at, run.planner.next(run.at, None))
    with closing(cast(Any, run.reader.read(split))) as batches:
        assert next(batches)["id"].to_pylist() == [0]
        assert connected_to(kafka) - planner
    assert connected_to(kafka) == planner


def test_messages_outlive_a_broker_that_is_killed_while_they_are_read(stoppable_kafka: Kafka, tmp_path: Path) -> None:
    kafka = stoppable_kafka
    topic = kafka.topic()
    kafka.produce(topic, numbers(0, 20_000, headers=[("pad", b"x" * 200)]), **{"batch.size": 20_000})
    # Little is fetched ahead, so that the broker is needed again.
    small = {"queued.min.messages": 1, "fetch.message.max.bytes": 50_000}
    source = of_numbers(kafka, topic, include=["offset"], timeout=timedelta(seconds=90), properties=small)
    run = Run(source, tmp_path)
    (split,) = run.planner.reader.splits(run.at, run.planner.next(run.at, None))
    reader = run.reader
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("volley.connectors.kafka.ranges._CHUNK_ROWS", 500)
        batches = reader.read(split)
        found = next(batches)["id"].to_pylist()
        kafka.stop()
        kafka.start()
        found += [row for batch in batches for row in batch["id"].to_pylist()]
    assert found == list(range(20_000))


def test_offsets_are_asked_for_again_when_the_broker_dies_that_was_asked(
    stoppable_kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka = stoppable_kafka
    topic = kafka.topic()
    run = Run(of_numbers(kafka, topic), tmp_path)
    kafka.produce(topic, numbers(0, 3))
    (broker,) = kafka.brokers.values()
    latest, result = Cluster.latest, Client.result
    starting = Thread(target=kafka.start)

    def result_of_another(client: Client, future: Any, errors: ConnectionErrors, seconds: float) -> Any:
        monkeypatch.undo()
        errors.poll(0.2)
        assert not future.done()
        broker.stop()
        # What is asked again meanwhile is asked of nobody.
        starting.start()
        return result(client, future, errors, seconds)

    def ask_nobody(*arguments: Any) -> Any:
        broker.freeze()
        monkeypatch.setattr(Client, "result", result_of_another)
        return latest(*arguments)

    monkeypatch.setattr(Cluster, "latest", ask_nobody)
    assert run.ids() == [0, 1, 2]
    starting.join()


@pytest.mark.services
def test_a_job_goes_on_when_the_leader_of_its_partition_dies(tmp_path: Path) -> None:
    kafka = Kafka(tmp_path, size=3)
    try:
        topic = kafka.start().topic()
        run = Run(of_numbers(kafka, topic), tmp_path)
        for number in range(2):
            kafka.start().produce(topic, numbers(number, number + 1))
            assert run.ids() == [number]
            kafka.leader(topic).stop()
            kafka.produce(topic, numbers(number + 10, number + 11))
            assert run.ids() == [number + 10]
    finally:
        kafka.stop()


def test_a_broker_that_is_not_there_is_an_error_in_time(tmp_path: Path) -> None:
    nowhere = f"127.0.0.1:{free_ports(1)[0]}"
    source = KafkaSource(nowhere, "t", schema=NUMBERS, timeout=timedelta(seconds=0.5))
    with pytest.raises(SourceError, match=rf"Kafka at {nowhere} gave no answer within 0.5 s: .*refused"):
        source.open(SourceContext(str(tmp_path)))


class _Web(BaseRequestHandler):
    """What is no broker at all."""

    def handle(self) -> None:
        self.request.recv(1000)
        self.request.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


@pytest.mark.parametrize(
    ("place", "properties", "reason"),
    [
        ("nowhere", {}, "Connection refused"),
        ("no-such-host.invalid:9092", {}, "Failed to resolve 'no-such-host.invalid:9092'"),
        ("sasl", {}, "no connection is answered: is security.protocol that of the listener?"),
        ("tls", {}, "no connection is answered: is security.protocol that of the listener?"),
        ("plain", {"security.protocol": "ssl"}, "connecting to a PLAINTEXT broker listener|SSL connection closed by"),
        ("web", {}, "Invalid response size"),
    ],
)
def test_a_wrong_address_is_told_soon(
    kafka: Kafka,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    place: str,
    properties: dict[str, str],
    reason: str,
) -> None:
    """A new job does not wait for the whole timeout of 60 s; one that has read before does."""
    monkeypatch.setattr(client, "_FIRST_CONNECTION_SECONDS", 1.0)
    web = ThreadingTCPServer(("127.0.0.1", 0), _Web)
    Thread(target=web.serve_forever, daemon=True).start()
    places = {
        **{"nowhere": f"127.0.0.1:{free_ports(1)[0]}", "web": f"127.0.0.1:{web.server_address[1]}"},
        **{"sasl": kafka.sasl_bootstrap, "tls": kafka.tls_bootstrap, "plain": kafka.bootstrap},
    }
    source = KafkaSource(places.get(place, place), "t", schema=NUMBERS, properties=properties)
    with pytest.raises(SourceError, match=rf"Kafka at \S+ gave no answer within (?!60 s)\S+ s: .*({reason})") as error:
        source.open(SourceContext(str(tmp_path)))
    web.shutdown()
    web.server_close()
    assert "timeout=" not in str(error.value.hint)


def test_a_topic_that_is_not_there_is_an_error(kafka: Kafka, tmp_path: Path) -> None:
    kafka.topic(name="events-of-today")
    with pytest.raises(SourceError, match="has no topic 'event-of-today'") as caught:
        of_numbers(kafka, "event-of-today").open(SourceContext(str(tmp_path)))
    assert "did you mean 'events-of-today'" in str(caught.value)


def test_credentials_are_checked_and_not_told(kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.topic()
    kafka.produce(topic, numbers(0, 3))
    login = {"security.protocol": "sasl_plaintext", "sasl.mechanism": "PLAIN", "sasl.username": kafka.user}
    right = KafkaSource(
        kafka.sasl_bootstrap, topic, schema=NUMBERS, properties={**login, "sasl.password": kafka.password}
    )
    assert Run(right, tmp_path).ids() == [0, 1, 2]
    wrong = KafkaSource(kafka.sasl_bootstrap, topic, schema=NUMBERS, properties={**login, "sasl.password": "hunter22"})
    with pytest.raises(SourceError, match=r"refused the connection: .*Authentication failed") as caught:
        wrong.open(SourceContext(str(tmp_path / "other")))
    assert "hunter22" not in str(caught.value)


def guest(kafka: Kafka) -> dict[str, str]:
    login = {"security.protocol": "sasl_plaintext", "sasl.mechanism": "PLAIN", "sasl.username": kafka.guest}
    return {**login, "sasl.password": kafka.password}


def test_a_user_without_a_right_is_told_which(kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.topic()
    source = KafkaSource(kafka.sasl_bootstrap, topic, schema=NUMBERS, properties=guest(kafka))
    with pytest.raises(SourceError, match=f"topic '{topic}' is not there, or this user may not see it") as caught:
        source.open(SourceContext(str(tmp_path)))
    assert "Describe and Read" in str(caught.value.hint)
    sink = KafkaSink(kafka.sasl_bootstrap, topic, properties=guest(kafka))
    with pytest.raises(ConfigError, match=f"has no topic '{topic}'") as refused:
        sink.open(SinkContext("job", pa.schema({"id": pa.int64()}), Metrics()))
    assert "this user may not see it" in str(refused.value.hint)


def test_a_user_needs_no_group_to_read(kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.topic()
    kafka.produce(topic, numbers(0, 3))
    for right in ("DESCRIBE", "READ"):
        kafka.allow(topic, right)
    source = KafkaSource(kafka.sasl_bootstrap, topic, schema=NUMBERS, properties=guest(kafka))
    wait_until(lambda: may_see(lambda: source.open(SourceContext(str(tmp_path / "look")))), 30, "the rights")
    # The broker's refusal of a group comes before or behind the first messages.
    for number in range(5):
        assert Run(source, tmp_path / str(number)).ids() == [0, 1, 2]


def test_a_user_that_may_only_see_a_topic_writes_nothing(kafka: Kafka) -> None:
    topic = kafka.topic()
    kafka.allow(topic, "DESCRIBE")
    sink = KafkaSink(kafka.sasl_bootstrap, topic, properties=guest(kafka))
    context = SinkContext("job", pa.schema({"id": pa.int64()}), Metrics())
    wait_until(lambda: may_see(lambda: sink.open(context)), 30, "the right")
    writer = sink.open(context).writer(Epoch("2b6f8a5e", 0)).open(0)
    writer.write(pa.record_batch({"id": [1]}))
    with pytest.raises(StorageError, match=r"a message was not delivered: .*authorization failed") as caught:
        writer.close()
    assert "rights" in str(caught.value.hint)
    assert kafka.messages(topic) == []


def may_see(look: Callable[[], object]) -> bool:
    """Return True once the broker has heard of a right."""
    with suppress(ConfigError, SourceError):
        look()
        return True
    return False


def test_a_broker_is_trusted_over_tls_if_its_authority_is(kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.topic()
    kafka.produce(topic, numbers(0, 3))
    login = {"security.protocol": "sasl_ssl", "sasl.mechanism": "PLAIN", "sasl.username": kafka.user}

    def trusting(authority: Path) -> KafkaSource:
        properties = {**login, "sasl.password": kafka.password, "ssl.ca.location": str(authority)}
        return KafkaSource(kafka.tls_bootstrap, topic, schema=NUMBERS, properties=properties)

    assert Run(trusting(kafka.certificate.file), tmp_path).ids() == [0, 1, 2]
    with pytest.raises(SourceError, match=r"refused the connection: .*certificate verify failed") as caught:
        trusting(self_signed(tmp_path).file).open(SourceContext(str(tmp_path / "other")))
    assert kafka.password not in str(caught.value)


def test_properties_that_librdkafka_does_not_know_are_refused(tmp_path: Path) -> None:
    unknown = KafkaSource("b:1", "t", schema=NUMBERS, properties={"sasl.jaas.config": "password=hunter22"})
    with pytest.raises(ConfigError, match="refuses the properties") as caught:
        unknown.open(SourceContext(str(tmp_path)))
    assert "hunter22" not in str(caught.value)


def test_the_newer_protocol_of_groups_reads_the_same_and_refuses_what_brokers_set(kafka: Kafka, tmp_path: Path) -> None:
    topic, newer = kafka.topic(), {"group.protocol": "consumer"}
    kafka.produce(topic, numbers(0, 3))
    assert Run(of_numbers(kafka, topic, properties=newer), tmp_path / "1").ids() == [0, 1, 2]
    both = of_numbers(kafka, topic, properties={**newer, "session.timeout.ms": 45_000})
    with pytest.raises(ConfigError, match=r"session\.timeout\.ms"):
        Run(both, tmp_path / "2").ids()


SCHEMAS = {
    1: {"type": "record", "name": "r", "fields": [{"name": "id", "type": "int"}]},
    2: {
        "type": "record",
        "name": "r",
        "fields": [{"name": "id", "type": "long"}, {"name": "name", "type": "string", "default": "?"}],
    },
}


@pytest.fixture
def registry() -> Iterator[str]:
    """A schema registry that asks for a password."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            number = 2 if self.path.endswith("-value/versions/latest") else int(self.path.rpartition("/")[2])
            known = self.headers["Authorization"] == "Basic bWU6cEBzcw=="
            self.send_response(401 if not known else 200 if number in SCHEMAS else 404)
            self.end_headers()
            self.wfile.write(json.dumps({"schema": json.dumps(SCHEMAS.get(number))}).encode())

        def log_message(self, *arguments: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://me:p%40ss@127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def confluent(number: int, record: dict[str, Any]) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(SCHEMAS[number]), record)
    return b"\0" + number.to_bytes(4, "big") + stream.getvalue()


def test_avro_is_read_by_the_schema_each_message_was_written_with(kafka: Kafka, registry: str, tmp_path: Path) -> None:
    topic = kafka.topic()
    values = [confluent(1, {"id": 1}), confluent(2, {"id": 2, "name": "ü"}), None]
    kafka.produce(topic, [{"value": each} for each in values])
    source = KafkaSource(kafka.bootstrap, topic, value_format="avro", registry=registry)
    run = Run(source, tmp_path)
    assert run.reader.schema == pa.schema({"id": pa.int64(), "name": pa.string()})
    assert [tuple(row.values()) for row in run.epoch()] == [(1, "?"), (2, "ü"), (None, None)]
    kafka.produce(topic, [{"value": b"\0\0\0\0\x09x"}])
    with pytest.raises(SourceError, match=f"{topic}/0/3: the schema registry has no schema 9"):
        run.epoch()
    # A registry that does not answer is no fault of a message.
    stranger = KafkaSource(
        kafka.bootstrap, topic, value_format="avro", registry=registry.replace("p%40ss", "hush-hush")
    )
    with pytest.raises(JobError, match="401") as caught:
        stranger.open(SourceContext(str(tmp_path / "other")))
    assert "hush" not in str(caught.value)


@pytest.mark.usefixtures("spark")
def test_the_example_of_avro(kafka: Kafka, registry: str, tmp_path: Path) -> None:
    topic = kafka.topic()
    kafka.produce(topic, [{"value": confluent(1, {"id": 1})}, {"value": confluent(2, {"id": 2, "name": "ü"})}])
    assert kafka_avro.main(kafka.bootstrap, topic, registry, str(tmp_path)) == 2
    catalog = SqlCatalog("volley", uri=f"sqlite:///{tmp_path}/lake/catalog.db")
    rows = catalog.load_table("db.users").scan().to_arrow().sort_by("id").to_pylist()
    assert rows == [{"id": 1, "name": "?", "kafka_offset": 0}, {"id": 2, "name": "ü", "kafka_offset": 1}]


def test_the_example_brings_each_message_into_the_lake_once(kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.topic(partitions=2)
    orders: list[dict[str, Any]] = [{"id": i, "item": "tea", "price": 2.5, "amount": i % 3} for i in range(60)]
    values = [json.dumps(order) if order["id"] % 20 else "no order" for order in orders]
    for part in (values[:40], values[40:]):
        kafka.produce(topic, [{"value": value, "partition": i % 2} for i, value in enumerate(part)])
        command = [sys.executable, "-m", "examples.kafka_to_iceberg", kafka.bootstrap, topic, str(tmp_path)]
        done = subprocess.run(command, env=plain_environment(), cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    assert "13 orders in 1 epochs, 1 messages to bad_orders" in done.stdout
    catalog = SqlCatalog("volley", uri=f"sqlite:///{tmp_path}/lake/catalog.db")
    tables = {name: catalog.load_table(f"shop.{name}").scan().to_arrow() for name in ("orders", "bad_orders")}
    catalog.close()
    found = tables["orders"].sort_by("id").select(["id", "total", "kafka_partition", "kafka_offset"]).to_pylist()
    wanted = [order["id"] for order in orders if order["id"] % 20 and order["amount"]]
    assert [tuple(row.values()) for row in found] == [(i, 2.5 * (i % 3), i % 2, i // 2) for i in wanted]
    places = sorted((row["position"], row["payload"], row["epoch"]) for row in tables["bad_orders"].to_pylist())
    assert places == [(f"{topic}/0/{i // 2}", "no order", i // 40) for i in (0, 20, 40)]
