"""A schema of the registry evolves while the job runs: the table gets its columns, and each row is there once."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from tests.drivers import Drivers
from tests.recovery import evolving
from tests.recovery.evolving import FORMATS, Topic, expected
from tests.recovery.runs import load
from tests.servers.apicurio import Apicurio
from tests.servers.kafka import Kafka
from tests.tiers import some
from volley.task.failpoints import SCHEMA_POINT

pytestmark = pytest.mark.usefixtures("spark")


@pytest.fixture(params=some(FORMATS))
def topic(kafka: Kafka, apicurio: Apicurio, request: pytest.FixtureRequest) -> Topic:
    return Topic(kafka.bootstrap, apicurio.uri, kafka.topic(), request.param)


def test_a_table_gets_columns_while_the_job_runs(topic: Topic, tmp_path: Path) -> None:
    topic.send(0, range(40))
    job = evolving.run(tmp_path, topic, 39, range(40, 80))
    assert job.progress.restarts == 0
    topic.send(0, range(80, 90))
    evolving.run(tmp_path, topic, 89)
    table = load(tmp_path).scan().to_arrow().sort_by("id")
    assert table.schema.field("price").type == pa.struct({"units": pa.int64()})
    assert table.to_pylist() == expected((0, range(40)), (1, range(40, 80)), (0, range(80, 90)))


def test_killed_between_the_schema_and_the_table(drivers: Drivers, topic: Topic, tmp_path: Path) -> None:
    """The schema is kept, and the table does not have it; the table has it, and no row; the row, and no checkpoint."""
    topic.send(0, range(40))
    drivers.die(f"{SCHEMA_POINT}@3", evolving.run, tmp_path, topic, 39, range(40, 80), "local[1]")
    assert load(tmp_path).schema().column_names == ["id", "name"]
    assert load(tmp_path).scan().to_arrow().sort_by("id").to_pylist() == [evolving.row(0, id) for id in range(40)]
    drivers.die("before-commit@1", partial(evolving.run, tmp_path, topic, 79, master="local[1]"))
    drivers.die("before-checkpoint@1", partial(evolving.run, tmp_path, topic, 79, master="local[1]"))
    topic.send(0, range(80, 90))
    evolving.run(tmp_path, topic, 89)
    rows = load(tmp_path).scan().to_arrow().sort_by("id").to_pylist()
    assert rows == expected((0, range(40)), (1, range(40, 80)), (0, range(80, 90)))
