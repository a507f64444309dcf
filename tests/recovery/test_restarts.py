"""Jobs that start again by themselves: after which failures, how often, and each row exactly once."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import volley.engine.commits
import volley.engine.epochs
import volley.engine.run
import volley.iceberg.commit.epochs
from tests.duck import query
from tests.endpoint import answer
from tests.sinks import config_of, sink_of
from tests.waiting import wait_until
from volley import (
    CatalogUnreachableError,
    ConfigError,
    DataStream,
    Environment,
    FileSource,
    IcebergSink,
    IcebergSource,
    IcebergSourceConfig,
    IcebergStorage,
    JobError,
    MemorySink,
    MemorySource,
    RateSource,
    Restart,
    SchemaMismatchError,
    SourceError,
    SourceNotFoundError,
    State,
    TableNotFoundError,
    col,
)
from volley.engine.display import progress_line
from volley.task.failpoints import POINTS

SOON = Restart(backoff="10ms")


@pytest.fixture
def environment(spark: SparkSession, tmp_path: Path) -> Environment:
    return Environment(spark=spark, checkpoint_dir=str(tmp_path / "checkpoints"))


def source(folder: Path) -> IcebergSourceConfig:
    return IcebergSourceConfig(namespace=["db"], table="events", storage=IcebergStorage.Local(str(folder / "lake")))


def ids(sink: IcebergSink) -> list[int]:
    rows = query(f"select id from iceberg_scan('{sink.table().metadata_location}') order by id").fetchall()
    return [row[0] for row in rows]


class Faults:
    """Raises an error where each of some failpoints is reached for the first time; epoch n fails at the n-th."""

    def __init__(self, points: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
        self.left = {(point, epoch) for epoch, point in enumerate(points)}
        for module in (volley.engine.run, volley.engine.epochs, volley.engine.commits, volley.iceberg.commit.epochs):
            monkeypatch.setattr(module, "reach", self.reach)

    def reach(self, point: str, epoch: int) -> None:
        if (point, epoch) in self.left:
            self.left.remove((point, epoch))
            raise CatalogUnreachableError(f"the connection was cut at {point}")


def test_rows_are_there_once_wherever_a_connection_is_cut(
    environment: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    faults = Faults(POINTS, monkeypatch)
    rows = [{"id": number} for number in range(2 * len(POINTS))]
    stream = environment.from_source(MemorySource(rows, rows_per_epoch=2))
    sink = sink_of(tmp_path)
    job = stream.to_sink(sink).execute("cut", restart=SOON)
    assert faults.left == set()
    # The committer itself tries a commit again whose connection was cut.
    restarts = len(POINTS) - len(("before-commit", "after-commit"))
    assert (job.progress.state, job.progress.restarts) == (State.FINISHED, restarts)
    assert ids(sink) == [row["id"] for row in rows]
    assert len(sink.table().metadata.snapshots) == len(POINTS)
    assert job.metrics.commits_success == len(POINTS)
    exposed = job.metrics.to_prometheus_format()
    assert f'volley_iceberg_job_restarts_total{{job_name="cut"}} {restarts:.1f}' in exposed
    assert 'volley_iceberg_job_state{job_name="cut",state="running"} 1.0' in exposed
    assert list(job.metrics.by_sink) == [sink.label]
    assert caplog.text.count("cut: failed, restart 1 of 5 in 0.0 s") == restarts


def test_a_job_survives_its_killed_workers(environment: Environment, tmp_path: Path) -> None:
    killed = tmp_path / "killed"

    def die_once(row: dict[str, Any]) -> dict[str, Any]:
        if row["id"] == 5 and not killed.exists():
            killed.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return row

    source = MemorySource([{"id": number} for number in range(10)], rows_per_epoch=2)
    sink = sink_of(tmp_path)
    job = environment.from_source(source).map(die_once).to_sink(sink).execute("dies", restart=SOON)
    assert (job.progress.restarts, job.progress.rows) == (1, 10)
    assert ids(sink) == list(range(10))


def test_a_job_waits_for_what_it_can_not_reach_at_first(environment: Environment, tmp_path: Path) -> None:
    sink = MemorySink("out")
    source = FileSource(str(tmp_path / "late"), format="json", schema="id long")
    job = (
        environment.from_source(source)
        .to_sink(sink)
        .start("late", restart=Restart("always", limit=1000, backoff="50ms"))
    )
    wait_until(lambda: job.progress.restarts >= 1, 60, "a restart")
    assert job.exception is None
    (tmp_path / "late").mkdir()
    (tmp_path / "late" / "1.json").write_text('{"id": 1}\n')
    assert job.wait(60)
    assert (job.progress.state, sink.rows()) == (State.FINISHED, [{"id": 1}])


def _missing_folder(folder: Path) -> DataStream:
    return Environment(checkpoint_dir=str(folder)).from_source(
        FileSource(str(folder / "none"), format="json", schema="id long", bounded=False)
    )


def _missing_table(folder: Path) -> DataStream:
    return Environment(checkpoint_dir=str(folder)).from_source(IcebergSource(source(folder)))


def _missing_joined_table(folder: Path) -> DataStream:
    rows = Environment(checkpoint_dir=str(folder)).from_source(MemorySource([{"id": 1}]))
    return rows.join(source(folder), on="id")


@pytest.mark.parametrize("stream", [_missing_folder, _missing_table, _missing_joined_table])
def test_what_nobody_has_made_is_not_waited_for(stream: Callable[[Path], DataStream], tmp_path: Path) -> None:
    with pytest.raises((SourceNotFoundError, TableNotFoundError), match=r"does not exist|not found"):
        stream(tmp_path).to_sink(MemorySink("out")).start("missing", restart=Restart(backoff="1h"))


def test_what_is_missing_later_may_come_back() -> None:
    for missing in (SourceNotFoundError("no folder"), TableNotFoundError("no table")):
        assert not Restart().allows(missing, 1)
        assert Restart().allows(missing, 1, had_epochs=True)
        assert Restart("always").allows(missing, 5)
        assert not Restart("always").allows(missing, 6)
        assert not Restart("never").allows(missing, 1, had_epochs=True)


def test_a_job_is_stopped_while_it_waits(environment: Environment, tmp_path: Path) -> None:
    source = FileSource(str(tmp_path / "never"), format="json", schema="id long")
    stream = environment.from_source(source).to_sink(MemorySink("out"))
    job = stream.start("waits", restart=Restart("always", backoff="1h"), metrics_port=0)
    wait_until(lambda: job.progress.state is State.RESTARTING, 60, "the wait for a restart")
    assert (job.progress.restarts, job.exception) == (1, None)
    assert repr(job) == "Job('waits', restarting, epoch None, 0 rows)"
    assert progress_line("waits", job.progress).startswith("waits: restarting · no epoch yet · ")
    assert '"state": "restarting"' in job.progress.to_json()
    assert (answer(job, "/healthz"), answer(job, "/readyz")[0]) == ((200, "ok"), 503)
    assert "job 'waits' starts again after a failure: " in answer(job, "/readyz")[1]
    assert 'job_state{job_name="waits",state="restarting"} 1.0' in answer(job, "/metrics")[1]
    job.stop()
    assert (job.wait(0), job.progress.state, job.exception) == (True, State.STOPPED, None)
    # Its checkpoint is free again.
    with pytest.raises(SourceError):
        environment.from_source(source).to_sink(MemorySink("out")).start("waits")


def test_failures_that_would_only_be_repeated_are_the_jobs(environment: Environment, tmp_path: Path) -> None:
    environment.from_source(MemorySource([{"id": 1}])).to_sink(sink_of(tmp_path)).execute("first")
    strict = IcebergSink(config_of(tmp_path).with_schema_evolution("strict"))
    other = environment.from_source(MemorySource([{"id": 1}])).with_column("more", col("id"))
    with pytest.raises(SchemaMismatchError, match="more"):
        other.to_sink(strict).execute("other", restart=SOON)


def test_a_job_gives_up_after_so_many_failures_in_a_row(environment: Environment, tmp_path: Path) -> None:
    failed = threading.Event()
    stream = environment.from_source(MemorySource([{"id": 1}])).map(_broken, "id long").to_sink(MemorySink("out"))
    job = stream.start("broken", restart=Restart(limit=2, backoff="10ms"), on_error=lambda error: failed.set())
    assert job.wait(120)
    assert (job.progress.state, job.progress.restarts, failed.is_set()) == (State.FAILED, 2, True)
    assert type(job.exception) is JobError


def _broken(row: dict[str, Any]) -> dict[str, Any]:
    raise RuntimeError("no luck")


def test_restart_takes_its_value(environment: Environment) -> None:
    stream = environment.from_source(RateSource(10)).to_sink(MemorySink("out"))
    with pytest.raises(ConfigError, match="restart"):
        stream.start("wrong", restart=3)  # type: ignore[arg-type]


def test_waits_double_up_to_five_minutes() -> None:
    waits = [Restart(backoff="5s").seconds(failures) for failures in (1, 2, 3, 7, 8, 100_000)]
    assert waits == [5, 10, 20, 300, 300, 300]
