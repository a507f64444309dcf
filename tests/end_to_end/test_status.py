"""The status and page of a running job, the token that guards them, and the history that a run leaves."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import pytest
from pyiceberg.table import Table

from tests.waiting import wait_until, wait_while_it_runs
from volley import (
    Environment,
    FileSink,
    FileSource,
    IcebergSink,
    IcebergSinkConfig,
    MemorySink,
    MemorySource,
    Upsert,
    col,
    count,
    lit,
    tumbling,
)
from volley.contracts.rows import note_unknown

START = datetime(2026, 1, 1, tzinfo=UTC)


def asked(url: str, token: str | None = None) -> Any:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    with urlopen(Request(url, headers=headers), timeout=10) as answer:
        return answer.read().decode()


def test_what_was_read_before_a_job_is_not_told_of_it(native: Environment) -> None:
    note_unknown(["price"], "another.json")
    job = native.from_source(MemorySource([{"id": 1}])).to_sink(MemorySink("clean")).execute("clean")
    assert job.status().notes == ()


def test_the_status_of_a_running_job_is_what_its_page_gets(native: Environment, tmp_path: Path) -> None:
    gate = tmp_path / "gate"

    def slow(row: dict[str, Any]) -> dict[str, Any]:
        if row["id"] == 9:
            wait_until(gate.exists, 120, "the gate")
        return {"id": row["id"], "price": 6 // row["id"]}

    rows = MemorySource([{"id": i} for i in range(10)], rows_per_epoch=5)
    stream = native.from_source(rows).filter_expr(col("id") < lit(100)).map(slow, schema="id long, price long")
    pipeline = stream.to_sink(MemorySink("good"), dead_letter=FileSink(f"{tmp_path}/bad", "json"))
    job = native.start("watched", pipeline, ui_port=0, metrics_port=0, metrics_token="s3cret")
    assert job.ui is not None
    assert job.metrics_url == f"{job.ui}metrics"
    try:
        wait_while_it_runs(job, lambda: job.progress.epochs == 1, "an epoch")
        (shown,) = json.loads(asked(f"{job.ui}status.json", "s3cret"))["jobs"]
        assert (shown["job"], shown["state"], shown["epochs"], shown["rows"], shown["rejected"]) == (
            *("watched", "running", 1, 4, 1),
        )
        assert [(node["kind"], node["rows"], node["inputs"]) for node in shown["graph"]] == [
            ("source", 5, []),
            ("step", 5, [0]),
            ("step", 4, [1]),
            ("sink", 4, [2]),
            ("dead letter", 1, [3]),
        ]
        assert [node["bad"] for node in shown["graph"]] == [0, 0, 1, 0, 0]
        assert [(source["rows"], source["lag"]) for source in shown["sources"]] == [(5, None)]
        assert [sink["rows"] for sink in shown["sinks"]] == [4, 1]
        (epoch,) = shown["recent"]
        assert {"plan", "read", "commit", "acknowledge"} == {*epoch["phases"]}
        assert sum(epoch["phases"].values()) <= epoch["seconds"] + epoch["phases"]["acknowledge"]
        assert [minute["rows"] for minute in shown["minutes"]] == [4]
        assert "<title>Volley</title>" in asked(f"{job.ui}?token=s3cret")
        with pytest.raises(HTTPError, match="401"):
            asked(f"{job.ui}status.json")
        with pytest.raises(HTTPError, match="401"):
            asked(job.metrics_url, "other")
        assert asked(f"{job.ui}healthz").strip() == "ok"
        assert "s3cret" not in repr(job)
    finally:
        gate.touch()
    assert job.wait(120)
    with pytest.raises(URLError, match="refused"):
        asked(job.ui)
    ended = job.status()
    assert (ended.state, ended.epochs, ended.rows, ended.rejected, ended.running) == ("finished", 2, 9, 1, None)
    (run,) = job.history()
    assert (run.state, run.epochs, run.rows, run.rejected) == ("finished", 2, 9, 1)
    assert [epoch.rows for epoch in run.recent] == [4, 5]
    assert {**run.status, "sinks": None} == {**json.loads(ended.to_json()), "sinks": None}
    assert [sink["rows"] for sink in run.status["sinks"]] == [9, 1]


def test_a_job_that_failed_has_its_error_in_status_and_history(native: Environment) -> None:
    def fails(row: dict[str, Any]) -> dict[str, Any]:
        raise RuntimeError("no such price")

    stream = native.from_source(MemorySource([{"id": 1}])).map(fails, schema="id long")
    job = native.start("failing", stream.to_sink(MemorySink("none")))
    assert job.wait(120)
    status, (run,) = job.status(), native.runs("failing")
    assert (status.state, run.state) == ("failed", "failed")
    assert "no such price" in str(status.reason)
    assert run.error == status.reason


def test_a_page_is_there_only_if_it_is_asked_for(native: Environment, tmp_path: Path) -> None:
    gate = tmp_path / "gate"

    def slow(row: dict[str, Any]) -> dict[str, Any]:
        wait_until(gate.exists, 120, "the gate")
        return row

    job = native.start(
        "plain", native.from_source(MemorySource([{"id": 1}])).map(slow).to_sink(MemorySink("p")), metrics_port=0
    )
    try:
        assert job.ui is None
        assert job.metrics_url is not None
        with pytest.raises(HTTPError, match="404"):
            asked(job.metrics_url.replace("metrics", "status.json"))
    finally:
        gate.touch()
    assert job.wait(120)


def test_sources_have_their_lags_and_watermarks(native: Environment, tmp_path: Path) -> None:
    streams = []
    for name, last in (("a", 50), ("b", 90)):
        write_times(tmp_path / name, 0, last)
        source = FileSource(str(tmp_path / name), format="json", schema="user string, at timestamp", bounded=True)
        streams.append(native.from_source(source))
    counts = streams[0].union(streams[1]).key_by("user").window(tumbling("1m"), on="at", lateness="10s")
    job = native.execute("timed", counts.aggregate(n=count()).to_sink(MemorySink("counts")))
    status = job.status()
    assert [(source.name, source.rows, source.watermark) for source in status.sources] == [
        (f"files:json:{tmp_path}/{name}", 2, START + timedelta(seconds=last - 10))
        for name, last in (("a", 50), ("b", 90))
    ]
    lags = [source.lag for source in status.sources]
    assert [lag and (lag.source, lag.files, lag.bytes, lag.seconds) for lag in lags] == [
        (str(tmp_path / name), 0, 0, 0.0) for name in ("a", "b")
    ]
    text = job.metrics.to_prometheus_format()
    assert f'volley_iceberg_source_watermark_seconds{{job_name="timed",source="files:json:{tmp_path}/a"}}' in text
    assert f'volley_iceberg_source_lag_files{{job_name="timed",source="{tmp_path}/b"}} 0.0' in text


@pytest.mark.parametrize("in_tasks", [False, True], ids=["on the driver", "in tasks of Spark"])
def test_each_node_of_the_graph_has_its_rows(native: Environment, tmp_path: Path, in_tasks: bool) -> None:
    """Every number is the one that plain Python counts; bad rows are counted where they fail, also one by one."""
    ids = [*range(20), *range(10)]
    (tmp_path / "in").mkdir()
    for number, part in enumerate((ids[:15], ids[15:])):
        lines = [json.dumps({"id": each, "word": str(60 // each) if each else "none", "at": at(each)}) for each in part]
        (tmp_path / "in" / f"{number}.json").write_text("\n".join([*lines, "{"]) + "\n")
    source = FileSource(
        f"{tmp_path}/in", format="json", schema="id long, word string, at timestamp", max_files_per_epoch=1
    )
    events = native.from_source(replace(source, bounded=True))
    if in_tasks:
        events = events.map(lambda row: row)
    small, large = events.filter(col("id") != 3).split(col("id") < 10)
    divided = small.with_columns(part=col("word").cast("long")).drop("at")
    once = large.deduplicate("id", event_time="at", within="1m")
    letter, sinks = FileSink(f"{tmp_path}/bad", "json"), [MemorySink("a"), MemorySink("b"), MemorySink("c")]
    job = native.execute(
        "counted",
        divided.to_sink(sinks[0], dead_letter=letter),
        divided.filter(col("part") > 20).to_sink(sinks[1], dead_letter=letter),
        once.to_sink(sinks[2]),
    )
    good = [each for each in ids if each != 3]
    below = [each for each in good if each < 10]
    parts = [60 // each for each in below if each]
    kinds = [(node.kind, node.label.split()[0], node.rows, node.bad) for node in job.status().graph]
    expected = [
        ("source", "read", len(ids) + 2, 2),
        *([("step", "map", len(ids), 0)] if in_tasks else []),
        ("step", "filter", len(good), 0),
        ("step", "filter", len(below), 0),
        ("step", "with_columns", len(parts), 2),
        ("step", "drop", len(parts), 0),
        ("sink", "write", len(parts), 0),
        ("step", "filter", len([part for part in parts if part > 20]), 0),
        ("sink", "write", len([part for part in parts if part > 20]), 0),
        ("step", "filter", 10, 0),
        ("keyed", "deduplicate", 10, 0),
        ("sink", "write", 10, 0),
        ("dead letter", "write", 4, 0),
    ]
    assert [(kind, rows, bad) for kind, _, rows, bad in kinds] == [
        (kind, rows, bad) for kind, _, rows, bad in expected
    ], kinds


def test_the_state_of_each_step_has_a_size(native: Environment, tmp_path: Path) -> None:
    rows = native.from_source(MemorySource([{"id": number} for number in range(5_000)], rows_per_epoch=2_500))
    once = rows.deduplicate("id").limit(10_000)
    job = native.execute("sizes", once.to_sink(MemorySink("sizes")))
    sizes = [node.state_bytes for node in job.status().graph if node.kind == "keyed"]
    files = tmp_path.glob("**/deduplicate-0/*/state-*.arrow")
    assert sizes[0] == sum(file.stat().st_size for file in files) > 5_000 * 8
    assert 0 < sizes[1] < 1_000
    text = job.metrics.to_prometheus_format()
    assert f'volley_iceberg_state_bytes{{job_name="sizes",step="deduplicate-0"}} {float(sizes[0])}' in text


def test_the_tables_of_a_job_have_their_totals(
    native: Environment, config: IcebergSinkConfig, load: Callable[[], Table]
) -> None:
    sink = IcebergSink(replace(config, commit_mode=Upsert(["id"], strategy="merge_on_read")))
    rows = MemorySource([{"id": number % 4} for number in range(6)], rows_per_epoch=3)
    job = native.execute("upserts", native.from_source(rows).to_sink(sink))
    (table,) = job.status().tables
    inspected = load().inspect
    files = inspected.files().to_pylist()
    data, deletes = ([each for each in files if (each["content"] == 0) == is_data] for is_data in (True, False))
    assert table.totals is not None
    assert (table.sink, table.name, table.rows_parked) == ("db.events", "db.events", 0)
    assert asdict(table.totals) == {
        "rows": sum(each["record_count"] for each in data),
        "deleted_rows": sum(each["record_count"] for each in deletes),
        "data_files": len(data),
        "delete_files": len(deletes),
        "bytes": sum(each["file_size_in_bytes"] for each in files),
        "snapshots": inspected.snapshots().num_rows,
    }
    assert table.totals.deleted_rows
    text = job.metrics.to_prometheus_format()
    labels = 'job_name="upserts",sink="db.events",table="db.events"'
    assert f"volley_iceberg_table_data_files{{{labels}}} {float(len(data))}" in text


def at(second: int) -> str:
    return (START + timedelta(seconds=second)).isoformat()


def write_times(folder: Path, *seconds: int) -> None:
    folder.mkdir()
    rows = ({"user": "ada", "at": at(second)} for second in seconds)
    (folder / "0.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
