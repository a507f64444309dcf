"""What a running job shows: the epoch that runs, counters by sink, an HTTP endpoint that lives as long as the job."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import pyarrow as pa
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.endpoint import answer
from tests.waiting import wait_until, wait_while_it_runs
from volley import (
    ConfigError,
    Environment,
    EpochProgress,
    FileSource,
    IcebergSink,
    IcebergSinkConfig,
    IcebergStorage,
    Job,
    JobError,
    MemorySink,
    MemorySource,
    RateSource,
    col,
    lit,
)
from volley.connectors.files.reader import FileReader
from volley.contracts.rows import note_lost
from volley.contracts.source import Offset
from volley.engine.display import progress_line

# Three splits, the last of one row.
ROWS = 20_001


def scraped(job: Job) -> dict[tuple[str, str], float]:
    """What Prometheus would read, by name and sink."""
    assert job.metrics_url
    with urlopen(job.metrics_url, timeout=10) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain")
        families = list(text_string_to_metric_families(answer.read().decode()))
    samples = [sample for family in families for sample in family.samples]
    assert {sample.labels["job_name"] for sample in samples} == {job.name}
    return {(sample.name, sample.labels.get("sink", "")): sample.value for sample in samples}


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Path]:
    """A file that a task waits for; it is there at the latest when the test has ended, so that no task waits on."""
    path = tmp_path / "gate"
    yield path
    path.touch()


def test_a_running_epoch_shows_what_its_ended_tasks_wrote(
    environment: Environment, config: IcebergSinkConfig, gate: Path
) -> None:
    def slow(row: dict[str, Any]) -> dict[str, Any]:
        if row["id"] == ROWS - 1:
            wait_until(gate.exists, 120, "the gate")
        return row

    stream = environment.from_source(MemorySource(pa.table({"id": range(ROWS)}))).map(slow)
    few = stream.filter_expr(col("id") < 5).to_sink(MemorySink("few"))
    job = environment.start("slow", stream.to_sink(IcebergSink(config)), few, metrics_port=0)
    wait_while_it_runs(job, lambda: (job.progress.running or EpochProgress(0)).tasks == 2, "two tasks")
    now = job.progress
    assert (now.rows, now.files, now.epochs) == (0, 0, 0)
    assert now.running
    assert (now.running.number, now.running.rows, now.running.files) == (0, ROWS - 1, 2)
    assert now.running.seconds > 0
    assert f"epoch 0 so far: {ROWS - 1:,} rows · 2 files" in progress_line(job.name, now)
    assert json.loads(now.to_json())["running"]["bytes"] == now.running.bytes > 0
    shown = scraped(job)
    assert shown["volley_iceberg_running_epoch_rows", ""] == ROWS - 1
    assert shown["volley_iceberg_records_written_total", "db.events"] == 0
    gate.touch()
    assert job.wait(60)
    assert job.exception is None
    assert job.progress.running is job.metrics.running is None
    assert (job.progress.rows, job.progress.files) == (ROWS, 3)
    assert (
        job.progress.bytes
        == job.metrics.by_sink["db.events"].bytes_written + job.metrics.by_sink["MemorySink('few')"].bytes_written
    )


def test_the_endpoint_tells_the_sinks_apart_and_ends_with_the_job(
    native: Environment, config: IcebergSinkConfig, gate: Path
) -> None:
    def slow(row: dict[str, Any]) -> dict[str, Any]:
        if row["id"] == 9:
            wait_until(gate.exists, 120, "the gate")
        return row

    source = MemorySource([{"id": i} for i in range(10)], rows_per_epoch=5)
    few, all_rows = MemorySink("few"), IcebergSink(config)
    stream = native.from_source(source).map(slow)
    pipelines = stream.to_sink(all_rows), stream.filter_expr(col("id") < 2).to_sink(few)
    job = native.start("two sinks", *pipelines, metrics_port=0)
    wait_while_it_runs(job, lambda: job.progress.epochs == 1, "an epoch")
    shown = scraped(job)
    assert shown["volley_iceberg_records_written_total", "db.events"] == 5
    assert shown["volley_iceberg_records_written_total", "MemorySink('few')"] == 2
    assert shown["volley_iceberg_batches_committed_total", "db.events"] == 1
    assert shown["volley_iceberg_commit_duration_seconds_count", "db.events"] == 1
    assert shown["volley_iceberg_seconds_since_last_commit", "db.events"] >= 0
    # A process with Python, pyarrow and pyiceberg in it, in bytes.
    assert 30 << 20 < shown["volley_iceberg_worker_memory_bytes", "db.events"] < 2 << 30
    gate.touch()
    assert job.wait(60)
    assert job.metrics.records_written == 12
    with pytest.raises(URLError, match="refused"):
        scraped(job)


def test_probes_tell_whether_the_job_is_ready_and_healthy(native: Environment, gate: Path) -> None:
    def slow(row: dict[str, Any]) -> dict[str, Any]:
        wait_until(gate.exists, 120, "the gate")
        return row

    stream = native.from_source(MemorySource([{"id": 1}, {"id": 2}], rows_per_epoch=1)).map(slow)
    job = stream.to_sink(MemorySink("out")).start("probed", metrics_port=0, healthy_within="0.5s")
    assert answer(job, "/readyz") == (503, "job 'probed' has not finished an epoch yet")
    wait_until(lambda: answer(job, "/healthz")[0] == 503, 60, "the bound")
    assert re.fullmatch(r"job 'probed' has committed nothing for \d+ s", answer(job, "/healthz")[1])
    assert answer(job, "/elsewhere") == (404, "no /elsewhere: /metrics, /healthz, /readyz")
    assert scraped(job)
    gate.touch()
    assert job.wait(60)


def test_a_job_without_a_bound_is_healthy_while_it_runs(native: Environment) -> None:
    often = replace(native, checkpoint_interval=0)
    stream = often.from_source(RateSource(rows_per_second=10)).to_sink(MemorySink("out"))
    job = stream.start("steady", metrics_port=0)
    try:
        wait_while_it_runs(job, lambda: answer(job, "/readyz") == (200, "ok"), "an epoch")
        assert answer(job, "/healthz") == (200, "ok")
    finally:
        job.stop()


def test_a_port_that_is_taken_is_told_before_anything_is_written(
    native: Environment, config: IcebergSinkConfig, tmp_path: Path
) -> None:
    stream = native.from_source(MemorySource([{"id": 1}])).to_sink(IcebergSink(config))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        with pytest.raises(JobError, match=r"nothing can be served at 127\.0\.0\.1:\d+: .*in use") as caught:
            stream.execute("taken", metrics_port=taken.getsockname()[1])
        assert "0 for a free one" in str(caught.value.hint)
    assert not list(tmp_path.iterdir())
    with pytest.raises(ConfigError, match="metrics_port 70000 is not valid"):
        stream.execute("wrong", metrics_port=70_000)


def test_a_job_that_does_not_start_frees_its_port(native: Environment) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    stream = native.from_source(MemorySource([{"id": 1}])).filter_expr(col("no") > 1).to_sink(MemorySink("out"))
    with pytest.raises(Exception, match="no"):
        stream.execute("refused", metrics_port=port)
    socket.create_server(("127.0.0.1", port)).close()


def test_readyz_tells_which_tables_are_parked(native: Environment, tmp_path: Path) -> None:
    config = IcebergSinkConfig(namespace="db", table="all", storage=IcebergStorage.Local(str(tmp_path / "lake")))
    sink = IcebergSink(config).routed("{kind}", create=False, on_error="park")
    ticks = replace(native, checkpoint_interval=0).from_source(RateSource(rows_per_second=10))
    job = ticks.with_column("kind", lit("missing")).to_sink(sink).start("parks", metrics_port=0)
    try:
        wait_while_it_runs(job, lambda: "rows are parked" in answer(job, "/readyz")[1], "parked rows")
        status, text = answer(job, "/readyz")
        assert status == 200
        assert re.match(r"ok\ntable db.missing: \d+ rows are parked: .*db.missing not found", text)
    finally:
        job.stop()


def test_each_unknown_field_is_warned_of_once_and_shown(
    environment: Environment, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The schema is that of the first file; three later ones have a field more."""
    (tmp_path / "in").mkdir()
    for number in range(4):
        more = ', "price": 1.5' if number else ""
        (tmp_path / "in" / f"{number}.json").write_text(f'{{"id": {number}{more}}}\n')
    source = FileSource(tmp_path / "in", format="json", bounded=False, max_files_per_epoch=1)
    out = MemorySink("out")
    job = replace(environment, checkpoint_interval=0).from_source(source).to_sink(out).start("grows", metrics_port=0)
    note = f"field 'price' of {tmp_path}/in/1.json is in no column; its values are left out"
    try:
        wait_while_it_runs(job, lambda: job.progress.rows == 4, "all files")
        assert answer(job, "/readyz") == (200, f"ok\n{note}")
    finally:
        job.stop()
    warnings = [record.getMessage() for record in caplog.records if "price" in record.getMessage()]
    assert warnings == [f'grows: {note}: declare it in the schema, or choose on_unknown="keep" or "drop"']
    assert not list(tmp_path.glob("checkpoints/*/volley/source-0/unknown/*"))


def test_input_that_is_lost_is_shown_without_an_epoch(
    native: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As of a topic of Kafka that is gone: it is noted in a look for new rows, of which there are none."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "0.json").write_text('{"id": 1}\n')
    look = FileReader.latest_offset

    def latest_offset(self: FileReader, start: Offset, *more: Any) -> Offset:
        if start != self.initial_offset():
            note_lost("topic t is gone", "read it first")
        return look(self, start, *more)

    monkeypatch.setattr(FileReader, "latest_offset", latest_offset)
    source = FileSource(tmp_path / "in", format="json", schema="id long", bounded=False)
    job = (
        replace(native, checkpoint_interval=0)
        .from_source(source)
        .to_sink(MemorySink("out"))
        .start("loses", metrics_port=0)
    )
    try:
        wait_while_it_runs(job, lambda: answer(job, "/readyz") == (200, "ok\ntopic t is gone"), "the note")
        assert job.metrics.inputs_lost == 1
        assert "volley_iceberg_inputs_lost_total" in answer(job, "/metrics")[1]
    finally:
        job.stop()
    assert "loses: topic t is gone: read it first" in caplog.text
