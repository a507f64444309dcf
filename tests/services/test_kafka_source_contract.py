"""KafkaSource under the contract of all sources, with a real broker."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.contracts.test_sources import (
    FIRST,
    MORE,
    OTHERS,
    ROWS,
    SCHEMA,
    Case,
    check_old_copy,
    test_a_split_read_twice_gives_the_same_rows,
    test_any_cut_and_any_restart_gives_every_row_once,
    test_at_the_end_the_offset_stays,
    test_batches_have_the_schema_and_are_not_all_one,
    test_the_limit_counts_the_sources_own_units,
    test_the_source_is_a_value,
    test_the_target_is_not_passed,
    test_what_lies_behind_a_committed_offset_is_read_as_before,
)
from tests.servers.kafka import Kafka
from volley import KafkaSource, Reader, Source, SourceContext

__all__ = [
    "test_a_split_read_twice_gives_the_same_rows",
    "test_any_cut_and_any_restart_gives_every_row_once",
    "test_at_the_end_the_offset_stays",
    "test_batches_have_the_schema_and_are_not_all_one",
    "test_the_limit_counts_the_sources_own_units",
    "test_the_source_is_a_value",
    "test_the_target_is_not_passed",
    "test_what_lies_behind_a_committed_offset_is_read_as_before",
]


@pytest.fixture(scope="module")
def source(kafka: Kafka) -> Source:
    """One partition has most of the rows."""
    topic = kafka.topic(partitions=3)
    places = [0 if number < 40 else 1 + number % 2 for number in range(len(ROWS))]
    kafka.produce(topic, [{"value": json.dumps(row), "partition": at} for row, at in zip(ROWS, places, strict=True)])
    group = f"monitor-{topic}"
    return KafkaSource(
        kafka.bootstrap, topic, schema=SCHEMA, publish_group=group, min_rows_per_split=3, max_rows_per_split=8
    )


@pytest.fixture(scope="module")
def case(source: Source) -> Case:
    return Case(lambda folder: source, len(ROWS))


@pytest.fixture
def reader(source: Source, tmp_path: Path) -> Reader:
    return source.open(SourceContext(str(tmp_path / "state")))


@pytest.mark.parametrize("change", ["retention", "made-again"])
@pytest.mark.parametrize("on_lost_offsets", ["fail", "skip"])
def test_an_old_copy_of_the_checkpoint_takes_no_messages_for_others(
    kafka: Kafka, tmp_path: Path, change: str, on_lost_offsets: Any
) -> None:
    """What was read is deleted before others come, by retention or with the topic."""
    topic = kafka.topic()

    def moves(folder: Path, step: int) -> Source:
        if step == 2 and change == "retention":
            kafka.delete_before(topic, 0, len(FIRST + MORE))
        elif step == 2:
            kafka.delete_topic(topic)
            kafka.topic(name=topic)
        kafka.produce(topic, [{"value": json.dumps(row)} for row in (FIRST, MORE, OTHERS)[step]])
        return KafkaSource(kafka.bootstrap, topic, schema=SCHEMA, on_lost_offsets=on_lost_offsets)

    check_old_copy(moves, tmp_path)
