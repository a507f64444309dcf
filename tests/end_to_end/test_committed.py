"""A job starts its readers, tells them what every sink has, in order and again where it must, and stops them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.spool import Spool, calls, fill, note
from tests.waiting import wait_while_it_runs
from volley import Environment, JobError, MemorySink, SourceError, SparkSource, State
from volley.connectors.memory.committer import MemoryCommitter
from volley.contracts.epoch import Epoch, WriteResult
from volley.contracts.sink import Committer, SinkContext


@dataclass(frozen=True)
class Noted(MemorySink):
    """Rows in memory, whose commits are noted with the calls of a spool."""

    folder: Path = Path()

    def open(self, context: SinkContext) -> Committer:
        return _NotedCommitter(self, context)


class _NotedCommitter(MemoryCommitter):
    def __init__(self, sink: Noted, context: SinkContext) -> None:
        super().__init__(sink._epochs, context.schema)
        self._sink = sink

    def commit(self, epoch: Epoch, results: Sequence[WriteResult]) -> None:
        super().commit(epoch, results)
        note(self._sink.folder, self._sink.name, epoch.number)


def ids(sink: MemorySink) -> list[int]:
    return sorted(row["id"] for row in sink.rows())


def test_each_epoch_is_told_when_every_sink_has_it(environment: Environment, tmp_path: Path) -> None:
    expected = fill(tmp_path, range(3))
    one, other = Noted("one", folder=tmp_path), Noted("other", folder=tmp_path)
    stream = environment.from_source(Spool(tmp_path)).to_sink(one).to_sink(other)
    stream.execute("job")
    epochs = [(("one", n), ("other", n), ("committed", n + 1)) for n in range(3)]
    assert calls(tmp_path) == [("start",), *(call for epoch in epochs for call in epoch), ("stop",)]
    assert ids(one) == ids(other) == expected
    assert list(tmp_path.glob("*.json")) == []


def test_the_last_epoch_is_told_again_after_a_restart(environment: Environment, tmp_path: Path) -> None:
    sink = MemorySink("out")
    stream = environment.from_source(Spool(tmp_path)).to_sink(sink)
    expected = fill(tmp_path, range(2))
    stream.execute("job")
    calls(tmp_path)
    expected += fill(tmp_path, range(2, 3))
    stream.execute("job")
    assert calls(tmp_path) == [("start",), ("committed", 2), ("committed", 3), ("stop",)]
    stream.execute("job")
    assert calls(tmp_path) == [("start",), ("committed", 3), ("stop",)]
    assert ids(sink) == expected


def test_a_reader_that_fails_to_let_go_is_asked_again(
    environment: Environment, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sink = MemorySink("out")
    stream = environment.from_source(Spool(tmp_path)).to_sink(sink)
    expected = fill(tmp_path, range(2))
    (tmp_path / "committed").touch()
    assert stream.execute("job").progress.state is State.FINISHED
    assert calls(tmp_path) == [("start",), ("committed", 1), ("committed", 2), ("stop",)]
    assert "SpoolReader failed to acknowledge epoch 0" in caplog.text
    assert "as the test wants it" in caplog.text
    # There is no next epoch: it is asked at the end.
    expected += fill(tmp_path, range(2, 3))
    stream.execute("job")
    calls(tmp_path)
    expected += fill(tmp_path, range(3, 4))
    (tmp_path / "stop").touch()
    assert stream.execute("job").progress.state is State.FINISHED
    assert calls(tmp_path) == [("start",), ("committed", 3), ("committed", 4), ("stop",)]
    assert "SpoolReader can't stop: as the test wants it" in caplog.text
    assert ids(sink) == expected


def test_a_failure_at_the_start_is_made_up_for_at_the_end(environment: Environment, tmp_path: Path) -> None:
    stream = environment.from_source(Spool(tmp_path)).to_sink(MemorySink("out"))
    fill(tmp_path, range(2))
    stream.execute("job")
    calls(tmp_path)
    (tmp_path / "committed").touch()
    stream.execute("job")
    assert calls(tmp_path) == [("start",), ("committed", 2), ("committed", 2), ("stop",)]


def test_each_source_is_told_its_own_offset(native: Environment, tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("a", "b", "c")]
    sizes = (3, 1, 2)
    for folder, size in zip(folders, sizes, strict=True):
        fill(folder, range(size))
    first, *others = [native.from_source(Spool(folder)) for folder in folders]
    sink = MemorySink("out")
    first.union(*others).to_sink(sink).execute("job")
    for folder, size in zip(folders, sizes, strict=True):
        told = [min(epoch, size) for epoch in (1, 2, 3)]
        assert calls(folder) == [("start",), *(("committed", each) for each in told), ("stop",)]
    assert len(sink.rows()) == 3 * sum(sizes)


@dataclass(frozen=True)
class TwoRates(SparkSource):
    """Two streams of Spark's in one frame."""

    bounded = False
    identity = "rates"

    def load(self, spark: SparkSession) -> DataFrame:
        frames = [spark.readStream.format("rate").load().selectExpr("-value - 1 as id") for _ in range(2)]
        return frames[0].union(frames[1])


def test_streams_of_sparks_own_are_passed_over(spark: SparkSession, tmp_path: Path) -> None:
    expected = fill(tmp_path, range(3))
    environment = Environment(spark=spark, checkpoint_dir=str(tmp_path / "checkpoints"), checkpoint_interval=0)
    sink = MemorySink("out")
    stream = environment.from_source(TwoRates()).union(environment.from_source(Spool(tmp_path)))
    job = stream.to_sink(sink).start("job")
    wait_while_it_runs(job, lambda: not list(tmp_path.glob("*.json")), "the end of all files")
    job.stop()
    assert job.exception is None
    told = [call[1] for call in calls(tmp_path) if call[0] == "committed"]
    # The rates have epochs without a new file too.
    assert list(dict.fromkeys(told)) == sorted(set(told)) == [1, 2, 3]
    assert [each for each in ids(sink) if each >= 0] == expected


def test_with_state_an_epoch_is_told_when_all_sinks_have_it(native: Environment, tmp_path: Path) -> None:
    expected = fill(tmp_path, range(3))
    sink = Noted("out", folder=tmp_path)
    native.from_source(Spool(tmp_path)).deduplicate("id").to_sink(sink).execute("job")
    assert calls(tmp_path) == [
        *(("start",), ("out", 0), ("committed", 1), ("out", 1), ("committed", 2), ("out", 2), ("committed", 3)),
        ("stop",),
    ]
    assert ids(sink) == expected


def test_a_reader_that_can_not_start_keeps_the_job_from_starting(native: Environment, tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    expected = fill(one, range(1)) + fill(other, range(1))
    sink = MemorySink("out")
    stream = native.from_source(Spool(one)).union(native.from_source(Spool(other))).to_sink(sink)
    (other / "start").touch()
    with pytest.raises(SourceError, match="SpoolReader can't start: as the test wants it") as caught:
        stream.execute("job")
    assert isinstance(caught.value.cause, OSError)
    assert (calls(one), calls(other)) == ([("start",), ("stop",)], [("start",)])
    stream.execute("job")
    assert ids(sink) == sorted(expected)


@dataclass(frozen=True)
class Counts(SparkSource):
    """A plan that Spark refuses when the query starts: an aggregation of a stream without a watermark."""

    bounded = False
    identity = "counts"

    def load(self, spark: SparkSession) -> DataFrame:
        return spark.readStream.format("rate").load().groupBy("value").count().selectExpr("value as id")


def test_readers_are_stopped_when_the_query_can_not_start(native: Environment, tmp_path: Path) -> None:
    fill(tmp_path, range(1))
    stream = native.from_source(Spool(tmp_path)).union(native.from_source(Counts()))
    with pytest.raises(JobError, match="aggregation"):
        stream.to_sink(MemorySink("out")).execute("job")
    assert calls(tmp_path) == [("start",), ("stop",)]


def test_readers_are_stopped_when_the_job_fails(environment: Environment, tmp_path: Path) -> None:
    fill(tmp_path, range(2))

    def fail(row: dict[str, int]) -> dict[str, int]:
        if row["id"] == 4:
            raise ValueError("four")
        return row

    with pytest.raises(JobError, match="four"):
        environment.from_source(Spool(tmp_path)).map(fail).to_sink(MemorySink("out")).execute("job")
    assert calls(tmp_path) == [("start",), ("committed", 1), ("stop",)]
