"""Kafka → Iceberg under kills: each message is once in the table, or once in the dead letters of its epoch."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from tests.drivers import Drivers
from tests.recovery import pipeline
from tests.recovery.runs import FILES, ROWS_PER_FILE, load
from tests.servers.kafka import Kafka

pytestmark = pytest.mark.usefixtures("spark")

ROWS = FILES * ROWS_PER_FILE
BROKEN = range(0, ROWS, 50)


@pytest.fixture
def topic(kafka: Kafka) -> str:
    """The rows that the files of the other tests have: each epoch takes the same from both partitions."""
    topic = kafka.topic(partitions=2)
    values = [json.dumps({"id": i, "name": f"row {i}"}) for i in range(ROWS)]
    kafka.produce(topic, [{"value": value, "partition": i % 2} for i, value in enumerate(values)])
    return topic


def test_killed_in_every_epoch(drivers: Drivers, kafka: Kafka, topic: str, tmp_path: Path) -> None:
    for epoch, point in enumerate(("after-commit", "before-checkpoint", "after-files", "after-task")):
        job = partial(pipeline.main, tmp_path, "local[1]", kafka=(kafka.bootstrap, topic))
        drivers.die(f"{point}@{epoch}", job, kill_driver=point == "after-task")
        # What comes meanwhile is read in its turn.
        kafka.produce(topic, [{"value": json.dumps({"id": 7 * (ROWS + epoch), "name": "filtered out"})}])
    pipeline.main(tmp_path, kafka=(kafka.bootstrap, topic))
    rows = load(tmp_path).scan().to_arrow().sort_by("id").to_pylist()
    assert rows == [{"id": i, "name": f"row {i}", "twice": 2 * i} for i in range(ROWS) if i % 7]
    check_rows(tmp_path, [row["id"] for row in rows])


def test_with_dead_letters(drivers: Drivers, kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.topic(partitions=2)
    values = ["{" if i in BROKEN else json.dumps({"id": i}) for i in range(ROWS)]
    kafka.produce(topic, [{"value": value, "partition": i % 2} for i, value in enumerate(values)])
    job = partial(pipeline.main, tmp_path, dead_letter="dead", kafka=(kafka.bootstrap, topic))
    drivers.die("between-commits@1", job, "local[1]")
    job()
    check_rows(tmp_path, [i for i in range(ROWS) if i % 7 and i % 10 != 3 and i not in BROKEN])
    letters = load(tmp_path, "db.dead").scan().to_arrow().to_pylist()
    found = sorted((row["epoch"], int(row["position"].rpartition("/")[2])) for row in letters if row["payload"] == "{")
    assert found == [(i // ROWS_PER_FILE, i // 2) for i in BROKEN]
    assert {row["position"].rpartition("/")[0] for row in letters} == {f"{topic}/0", f"{topic}/1"}
    divided = sorted(json.loads(row["payload"])["id"] for row in letters if row["payload"] != "{")
    assert divided == [i for i in range(ROWS) if i % 7 and i % 10 == 3]


def check_rows(folder: Path, ids: list[int]) -> None:
    """Compare with what is in the table, row by row."""
    table = load(folder)
    assert table.scan().to_arrow().sort_by("id")["id"].to_pylist() == ids
    epochs = [snapshot.summary["volley.epoch"] for snapshot in table.snapshots() if snapshot.summary]
    assert len(epochs) == len(set(epochs)) >= FILES
