"""Jobs run, show their progress, wait, stop between epochs and go on afterwards."""

from __future__ import annotations

import gc
import logging
import os
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.table import Table
from pyspark.sql import SparkSession

import volley.engine.run
import volley.spark.session
from tests.spark.files import SparkFiles
from tests.waiting import wait_until, wait_while_it_runs
from volley import (
    ABORT,
    ConfigError,
    DataStream,
    Environment,
    FileSource,
    FinishedEpoch,
    IcebergSink,
    IcebergSinkConfig,
    Job,
    JobError,
    MemorySink,
    MemorySource,
    PlanError,
    RateSource,
    SchemaChangedError,
    SourceError,
    State,
    VolleyError,
    col,
)
from volley.contracts.source import Offset, Reader, Source, SourceContext, Split
from volley.spark.offsets import _Stream

Rows = Callable[[], list[dict[str, Any]]]


def test_start_returns_a_running_job_that_stops(spark: SparkSession, tmp_path: Path) -> None:
    sink = MemorySink("out")
    environment = Environment(
        spark=spark, checkpoint_dir=str(tmp_path), checkpoint_interval=timedelta(milliseconds=100)
    )
    job = environment.from_source(RateSource(rows_per_second=200)).to_sink(sink).start("rate")
    assert job.progress.state.value == "running"
    assert not job.wait(0)
    wait_while_it_runs(job, lambda: job.progress.rows >= 20, "20 rows")
    job.stop()
    assert job.wait(0)
    assert job.progress.state is State.STOPPED
    assert job.exception is None
    values = sorted(row["value"] for row in sink.rows())
    assert values == list(range(len(values)))
    assert job.progress.rows == len(values)

    again = environment.from_source(RateSource(rows_per_second=200)).to_sink(sink).start("rate")
    wait_while_it_runs(again, lambda: len(sink.rows()) > len(values), "more rows")
    again.stop()
    values = sorted(row["value"] for row in sink.rows())
    assert values == list(range(len(values)))


class Asked(Reader):
    """Ten rows, and a file with the process in which the offsets were asked for and of how many rows at most."""

    schema = pa.schema({"n": pa.int64()})
    limit = 4

    def __init__(self, file: Path) -> None:
        self.file = file

    def initial_offset(self) -> Offset:
        return {"n": 0}

    def latest_offset(self, start: Offset, limit: int | None, target: Offset | None) -> Offset:
        with self.file.open("a") as file:
            file.write(f"{os.getpid()} {id(self)} {start['n']} {limit} {target and target['n']}\n")
        return {"n": 10 if limit is None else min(10, start["n"] + limit)}

    def splits(self, start: Offset, end: Offset) -> list[Split]:
        return [range(start["n"], end["n"])]

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"n": list(split)}, self.schema)


@dataclass(frozen=True)
class AskedSource(Source):
    file: Path
    reader: list[Asked] = field(default_factory=list)
    bounded = True
    identity = "asked"

    def open(self, context: SourceContext) -> Reader:
        self.reader.append(Asked(self.file))
        return self.reader[-1]


def test_a_copy_of_the_reader_is_asked_for_offsets(environment: Environment, tmp_path: Path) -> None:
    """In this process: Spark's own for Python sources take more than a second to start."""
    source, sink = AskedSource(tmp_path / "asked"), MemorySink("asked")
    job = environment.from_source(source).to_sink(sink).execute("asked")
    assert (sorted(row["n"] for row in sink.rows()), job.progress.epochs) == (list(range(10)), 3)
    asked = [line.split() for line in source.file.read_text().splitlines()]
    assert {process for process, *_ in asked} == {str(os.getpid())}
    assert len({reader for _, reader, *_ in asked}) == 1
    assert asked[0][1] != str(id(source.reader[-1]))
    # The run ends with the rows that are there at its start.
    starts = [" ".join(rest) for _, _, *rest in asked]
    assert starts[:4] == ["0 None None", "0 4 10", "4 4 10", "8 4 10"]


@dataclass(frozen=True)
class GrowingSource(Source):
    """A row that has as many columns as the source was opened times; it can be read with `enough` of them."""

    enough: int
    opened: list[SourceContext] = field(default_factory=list)
    bounded = True
    identity = "growing"

    def open(self, context: SourceContext) -> Reader:
        self.opened.append(context)
        return GrowingReader(len(self.opened), self.enough)


class GrowingReader(Reader):
    def __init__(self, columns: int, enough: int) -> None:
        self.schema = pa.schema({f"c{number}": pa.int64() for number in range(columns)})
        self.enough = enough

    def initial_offset(self) -> Offset:
        return {"n": 0}

    def latest_offset(self, start: Offset, limit: int | None, target: Offset | None) -> Offset:
        return {"n": 1}

    def splits(self, start: Offset, end: Offset) -> list[Split]:
        return [*range(start["n"], end["n"])]

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        if len(self.schema) < self.enough:
            raise SchemaChangedError(f"there are {self.enough} columns now")
        yield pa.record_batch([[number] for number in range(self.enough)], schema=self.schema)


def test_a_job_is_planned_anew_for_rows_of_another_schema(environment: Environment) -> None:
    source, sink = GrowingSource(2), MemorySink("growing")
    job = environment.from_source(source).to_sink(sink).execute("growing")
    assert sink.rows() == [{"c0": 0, "c1": 1}]
    assert (job.metrics.restarts, len(source.opened)) == (0, 2)


def test_a_job_that_does_not_get_the_schema_of_its_rows_fails(environment: Environment) -> None:
    source = GrowingSource(5)
    with pytest.raises(SchemaChangedError, match="5 columns"):
        environment.from_source(source).to_sink(MemorySink("growing")).execute("growing")
    assert len(source.opened) == 2


def test_a_run_with_nothing_new_says_so(environment: Environment, caplog: pytest.LogCaptureFixture) -> None:
    stream = environment.from_source(MemorySource([{"id": 1}, {"id": 2}], rows_per_epoch=1)).to_sink(MemorySink("out"))
    stream.execute("again")
    assert "nothing new" not in caplog.text
    stream.execute("again")
    (warning,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert warning.startswith("again: nothing new since epoch 1 (checkpoint /")
    assert warning.endswith("/again); to start over: fresh=True")


def test_a_watching_job_that_finds_nothing_says_so_again_and_again(
    environment: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(volley.engine.run, "_WARNING_SECONDS", 1)
    monkeypatch.setattr(volley.engine.run, "_LONGEST_SILENCE", 1)
    (tmp_path / "in").mkdir()
    sink = MemorySink("out")
    source = FileSource(str(tmp_path / "in"), format="json", schema="id long", bounded=False)
    stream = replace(environment, checkpoint_interval=0.1).from_source(source).to_sink(sink)
    with stream.start("watching") as job:
        wait_while_it_runs(job, lambda: caplog.text.count("watching: no rows after") >= 2, "two warnings")
        (tmp_path / "in" / "1.json").write_text('{"id": 1}')
        wait_while_it_runs(job, lambda: sink.rows() == [{"id": 1}], "the row")
    assert "s: FileSource(" in caplog.text


def test_a_job_that_is_forgotten_starts_over(environment: Environment, config: IcebergSinkConfig) -> None:
    sink = IcebergSink(config)
    stream = environment.from_source(MemorySource([{"id": 1}])).to_sink(sink)
    stream.execute("over")
    environment.forget("over")
    with pytest.raises(PlanError, match="has no checkpoint"):
        environment.forget("over")
    with pytest.raises(PlanError, match="add every row again"):
        stream.execute("over")
    assert stream.execute("over", into="append").progress.rows == 1
    assert sink.table().scan().to_arrow()["id"].to_pylist() == [1, 1]


def test_a_job_that_runs_is_not_forgotten_and_ends_with_its_block(environment: Environment) -> None:
    watched = environment.from_source(RateSource(10)).to_sink(MemorySink("out"))
    with watched.start("block") as job, pytest.raises(PlanError, match="runs in this process"):
        environment.forget("block")
    assert job.progress.state is State.STOPPED


def test_a_job_is_a_table_in_a_notebook(environment: Environment) -> None:
    rows = [{"id": number} for number in range(2000)]
    job = environment.from_source(MemorySource(rows)).to_sink(MemorySink("out")).execute("<b>shown")
    shown = job._repr_html_()
    assert "<th>job</th><td>&lt;b&gt;shown</td>" in shown
    assert "<th>state</th><td>finished</td>" in shown
    assert "<th>rows</th><td>2,000</td>" in shown
    assert "None" not in shown


def test_each_commit_is_logged_with_its_figures(
    environment: Environment, config: IcebergSinkConfig, load: Callable[[], Table], caplog: pytest.LogCaptureFixture
) -> None:
    source, epochs = MemorySource([{"id": 1}, {"id": 2}, {"id": 3}], rows_per_epoch=2), list[FinishedEpoch]()
    with caplog.at_level(logging.INFO, "volley"):
        job = environment.from_source(source).to_sink(IcebergSink(config)).execute("logged", on_epoch=epochs.append)
    commits = [record for record in caplog.records if "is in" in record.getMessage()]
    snapshots = [snapshot.snapshot_id for snapshot in load().snapshots()]
    assert [(each.job, each.epoch, each.rows) for each in commits] == [("logged", 0, 2), ("logged", 1, 1)]  # type: ignore[attr-defined]
    assert [each.snapshot for each in commits] == snapshots  # type: ignore[attr-defined]
    assert all(each.files >= 1 and each.bytes > 0 and each.seconds > 0 for each in commits)  # type: ignore[attr-defined]
    assert commits[0].getMessage().startswith("logged: epoch 0 is in table db.events: 2 rows, ")
    assert commits[0].getMessage().endswith(f", snapshot {snapshots[0]}")
    # Rows per second are counted without the start.
    progress, writing = job.progress, sum(epoch.seconds for epoch in epochs)
    assert progress.seconds - writing > progress.startup > 0
    assert progress.rows / writing > progress.rows_per_second > progress.rows / progress.seconds


def test_stop_waits_for_the_running_epoch(environment: Environment, tmp_path: Path) -> None:
    entered, gate = tmp_path / "entered", tmp_path / "gate"

    def slow(row: dict[str, Any]) -> dict[str, Any]:
        entered.touch()
        wait_until(gate.exists, 120, "the gate")
        return row

    sink = MemorySink("out")
    source = MemorySource([{"id": i} for i in range(5)], rows_per_epoch=1)
    stream = environment.from_source(source).map(slow).to_sink(sink)
    job = stream.start("slow")
    wait_while_it_runs(job, entered.exists, "the first row")
    stopper = threading.Thread(target=job.stop)
    stopper.start()
    wait_until(job._stop_requested.is_set, 60, "the stop")
    assert stopper.is_alive()
    assert sink.rows() == []
    gate.touch()
    stopper.join(60)
    assert [row["id"] for row in sink.rows()] == [0]
    assert job.progress.state is State.STOPPED
    stream.execute("slow")
    assert sorted(row["id"] for row in sink.rows()) == [0, 1, 2, 3, 4]


class Hanging(Asked):
    """It does not tell how many rows there are until the gate is there."""

    def latest_offset(self, start: Offset, limit: int | None, target: Offset | None) -> Offset:
        entered, gate = self.file.with_name("entered"), self.file.with_name("gate")
        entered.touch()
        wait_until(gate.exists, 120, "the gate")
        return super().latest_offset(start, limit, target)


@dataclass(frozen=True)
class HangingSource(Source):
    file: Path
    bounded = False
    identity = "hanging"

    def open(self, context: SourceContext) -> Reader:
        return Hanging(self.file)


def test_a_source_that_hangs_does_not_hold_up_a_stop(
    native: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(volley.spark.session, "STOP_SECONDS", 1)
    sink = MemorySink("out")
    environment = replace(native, checkpoint_interval=0.1)
    stream = environment.from_source(HangingSource(tmp_path / "asked")).to_sink(sink)
    job = stream.start("hangs")
    wait_while_it_runs(job, (tmp_path / "entered").exists, "the question")
    job.stop()
    assert isinstance(job.exception, SourceError)
    assert job.progress.state is State.FAILED
    assert "HangingSource(" in str(job.exception)
    with pytest.raises(PlanError, match=r"'hangs' was stopped, but its query on checkpoint .* has not ended"):
        stream.start("hangs")
    (tmp_path / "gate").touch()

    jobs: list[Job] = []

    def starts() -> bool:
        with suppress(PlanError):
            jobs.append(stream.start("hangs"))
        return bool(jobs)

    wait_until(starts, 60, "the end of the query")
    with jobs[0]:
        wait_while_it_runs(jobs[0], lambda: len(sink.rows()) == 10, "all rows")
    assert jobs[0].exception is None


def test_a_failed_job_says_why_and_can_be_started_again(
    environment: Environment, config: IcebergSinkConfig, rows: Rows
) -> None:
    source = MemorySource([{"id": 1}, {"id": 2}, ABORT, {"id": 3}, {"id": 4}], rows_per_epoch=2)
    stream = environment.from_source(source).to_sink(IcebergSink(config))
    job = stream.start("aborted")
    assert job.wait("2m")
    assert isinstance(job.exception, SourceError)
    assert job.progress.state is State.FAILED
    assert rows() == [{"id": 1}, {"id": 2}]
    stream.execute("aborted")
    assert rows() == [{"id": i} for i in range(1, 5)]


def test_verbs_together(environment: Environment) -> None:
    sink = MemorySink("out")
    one = environment.from_source(MemorySource([{"id": i, "text": f"a b{i}"} for i in range(4)], name="one"))
    two = environment.from_source(MemorySource([{"text": "c", "id": 3}, {"text": "d", "id": 9}], name="two"))
    (
        one.union(two)
        .deduplicate("id")
        .flat_map(lambda row: [{"id": row["id"], "word": word} for word in row["text"].split()], "id long, word string")
        .map(lambda row: {**row, "word": row["word"].upper()})
        .rename({"word": "w"})
        .select("w", (col("id") + 1).alias("next"))
        .to_sink(sink)
        .execute("verbs")
    )
    found = sorted((row["next"], row["w"]) for row in sink.rows())
    first = [(n, w) for n, w in found if n not in (4, 10)]
    assert first == [(1, "A"), (1, "B0"), (2, "A"), (2, "B1"), (3, "A"), (3, "B2")]
    assert [w for n, w in found if n == 4] in (["A", "B3"], ["C"])
    assert [w for n, w in found if n == 10] == ["D"]


def test_deduplicate_remembers_over_epochs_and_restarts(environment: Environment) -> None:
    from volley import EOF

    sink = MemorySink("out")
    events: list[Any] = [{"id": 1}, {"id": 2}, {"id": 1}, EOF, {"id": 2}, {"id": 3}]
    stream = environment.from_source(MemorySource(events, rows_per_epoch=2)).deduplicate("id").to_sink(sink)
    stream.execute("distinct")
    stream.execute("distinct")
    assert sorted(row["id"] for row in sink.rows()) == [1, 2, 3]


def test_a_sparks_error_has_its_cause_first(environment: Environment) -> None:
    stream = environment.from_source(MemorySource([{"id": 2**62}])).with_column("more", col("id") * 4)
    with pytest.raises(Exception, match=r"(?i)overflow") as caught:
        stream.to_sink(MemorySink("out")).execute("overflow")
    assert not str(caught.value).startswith("[STREAM_FAILED]")


def beside_a_source_of_sparks(environment: Environment) -> DataStream:
    """One row, in a job whose epochs Spark plans."""
    folder = Path(str(environment.checkpoint_dir)) / "none"
    folder.mkdir(parents=True)
    rows = environment.from_source(MemorySource([{"id": 1}], schema="id long"))
    return rows.union(environment.from_source(SparkFiles(folder, "id long")))


def test_an_error_of_java_has_its_class_and_its_trace_is_in_the_log(
    native: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_Stream, "planInputPartitions", lambda *_: None)
    stream = beside_a_source_of_sparks(native).to_sink(MemorySink("out"))
    with pytest.raises(JobError, match=r"Cannot .* is null.* \(java.lang.NullPointerException\)\n") as caught:
        stream.execute("nothing")
    log = str(caught.value.hint).rpartition(" ")[2]
    assert "Caused by: java.lang.NullPointerException: Cannot" in Path(log).read_text()


def test_a_users_function_that_fails_is_told_in_short(environment: Environment) -> None:
    stream = environment.from_source(MemorySource([{"id": 0}])).map(lambda row: {"id": 1 // row["id"]})
    with pytest.raises(JobError, match=rf"^{__file__}:\d+: .*<lambda> failed on the row {{'id': 0}}: Zero") as caught:
        stream.to_sink(MemorySink("out")).execute("short")
    shown = "".join(traceback.format_exception(caught.value))
    assert len(shown.splitlines()) < 20
    assert "py4j" not in shown
    log = str(caught.value.hint).rpartition(" ")[2]
    assert "ZeroDivisionError: integer division or modulo by zero\n\nThe above" in Path(log).read_text()


def test_a_function_with_a_value_that_can_t_be_sent_is_told(environment: Environment) -> None:
    lock = threading.Lock()
    stream = environment.from_source(MemorySource([{"id": 0}])).map(lambda row: {**row, "id": lock.locked()})
    with pytest.raises(JobError, match="can't be sent to the executors: cannot pickle") as caught:
        stream.to_sink(MemorySink("out")).execute("lock")
    assert "inside of the function" in str(caught.value.hint)


def test_a_given_sessions_settings_do_not_change_what_expressions_mean(spark: SparkSession, tmp_path: Path) -> None:
    given = spark.newSession()
    given.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    given.conf.set("spark.sql.ansi.enabled", "false")
    environment = Environment(spark=given, checkpoint_dir=str(tmp_path))
    stream = environment.from_source(MemorySource([{"at": "2024-01-01 00:00:00", "n": 2**62}]))
    sink = MemorySink("out")
    stream.select(col("at").cast("timestamp").alias("at")).to_sink(sink).execute("zone")
    assert sink.rows() == [{"at": datetime(2024, 1, 1, tzinfo=UTC)}]
    with pytest.raises(VolleyError, match=r"(?i)overflow"):
        stream.with_column("n", col("n") * 4).to_sink(sink).execute("overflow")
    assert given.conf.get("spark.sql.session.timeZone") == "Asia/Tokyo"


def test_a_pipeline_needs_a_sink_and_a_name(native: Environment) -> None:
    stream = native.from_source(MemorySource([{"id": 1}]))
    with pytest.raises(ConfigError, match=r"job name 'x+'… is too long: .* 256 bytes"):
        stream.to_sink(MemorySink("out")).execute("x" * 256)
    with pytest.raises(ConfigError, match="name"):
        stream.to_sink(MemorySink("out")).execute(" ")
    with pytest.raises(ConfigError, match="a job needs a pipeline"):
        native.execute("nothing")
    with pytest.raises(ConfigError, match="a job runs pipelines, not DataStream"):
        native.execute("no-sink", stream)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="another environment"):
        Environment(checkpoint_dir="elsewhere").execute("foreign", stream.to_sink(MemorySink("out")))
    sink = MemorySink("out")
    with pytest.raises(PlanError, match="is in this job twice"):
        native.execute("twice", stream.to_sink(sink), stream.drop("id").to_sink(sink))


def test_a_verb_in_the_wrong_place_is_answered_with_the_right_one(native: Environment) -> None:
    stream: Any = native.from_source(MemorySource([{"id": 1}]))
    with pytest.raises(PlanError, match="a stream has no 'execute'") as caught:
        stream.execute("no-sink")
    assert "to_sink" in str(caught.value.hint)
    with pytest.raises(PlanError, match="a pipeline has no 'deduplicate'") as caught:
        stream.to_sink(MemorySink("a")).deduplicate("id")
    assert "before to_sink" in str(caught.value.hint)
    with pytest.raises(PlanError, match="a stream has no 'filter_exp'") as caught:
        stream.filter_exp(col("id") > 0)
    assert "'filter_expr'" in str(caught.value.hint)
    assert not hasattr(stream, "execute")


def test_explain_prints_the_plan(environment: Environment, capsys: pytest.CaptureFixture[str]) -> None:
    stream = environment.from_source(MemorySource([{"id": 1}])).filter_expr(col("id") > 0).to_sink(MemorySink("out"))
    stream.explain()
    plan = capsys.readouterr().out.splitlines()
    assert [line.strip().split()[0] for line in plan] == ["write", "filter", "read"]


def test_job_error_is_ours(environment: Environment) -> None:
    def leave(row: dict[str, Any]) -> dict[str, Any]:
        raise SystemExit(3)

    with pytest.raises(JobError):
        environment.from_source(MemorySource([{"id": 1}])).map(leave).to_sink(MemorySink("out")).execute("exit")


def test_a_workers_second_task_finds_what_the_first_has_loaded_out_of_the_collectors_sight(
    environment: Environment,
) -> None:
    def frozen(batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.record_batch({"process": [os.getpid()], "frozen": [gc.get_freeze_count()]})

    sink = MemorySink("out")
    source = MemorySource([{"id": i} for i in range(12)], rows_per_epoch=1)
    stream = environment.from_source(source).map_batches(frozen, schema="process long, frozen long")
    stream.to_sink(sink).execute("job")
    found = [(row["process"], row["frozen"]) for row in sink.rows()]
    again = [count for number, (process, count) in enumerate(found) if process in dict(found[:number])]
    assert again
    assert min(again) > 10_000


def test_a_second_start_of_a_running_job_is_refused_and_leaves_the_first_one_alone(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    sink = MemorySink("out")

    def start(folder: Path) -> Job:
        environment = Environment(spark=spark, checkpoint_dir=str(folder), checkpoint_interval="100ms")
        return environment.from_source(RateSource(rows_per_second=100)).to_sink(sink).start("once")

    first = start(tmp_path)
    for folder in (tmp_path, tmp_path / "link"):
        with pytest.raises(PlanError, match="job 'once' runs in this process already"):
            start(folder)
    wait_while_it_runs(first, sink.rows, "a row")
    first.stop()
    assert first.progress.state is State.STOPPED
    start(tmp_path).stop()


def test_a_query_whose_thread_dies_is_no_end(native: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    dying = threading.Event()

    def plan(stream: _Stream, start: object, end: object) -> None:
        dying.set()
        raise RuntimeError("the offsets are logged")

    def name(stream: _Stream) -> str:
        if dying.is_set():
            raise RuntimeError("Spark puts the failure into words")
        return "rows"

    sink = MemorySink("rows")
    pipeline = beside_a_source_of_sparks(native).to_sink(sink)
    with monkeypatch.context() as patch:
        patch.setattr(_Stream, "planInputPartitions", plan)
        patch.setattr(_Stream, "toString", name)
        with pytest.raises(JobError, match="ended within epoch 0 without an error"):
            pipeline.execute("dies")
    assert pipeline.execute("dies").progress.rows == 1
    assert sink.rows() == [{"id": 1}]
