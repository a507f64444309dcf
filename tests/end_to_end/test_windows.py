"""Windows in jobs: both paths, several sinks, dead letters of late rows, restarts and what may change between them."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.duck import query
from volley import (
    DataStream,
    Environment,
    FileSink,
    FileSource,
    MemorySink,
    MemorySource,
    PlanError,
    col,
    count,
    max_,
    previous,
    session,
    sum_,
    tumbling,
)

START = datetime(2026, 1, 1, tzinfo=UTC)
SCHEMA = pa.schema({"user": pa.string(), "price": pa.float64(), "at": pa.timestamp("us", "UTC")})


def write(folder: Path, number: int, *rows: tuple[str, float, int | None]) -> None:
    folder.mkdir(exist_ok=True)
    timed = [(user, price, None if at is None else START + timedelta(seconds=at)) for user, price, at in rows]
    columns = dict(zip(SCHEMA.names, zip(*timed, strict=True), strict=True))
    pq.write_table(pa.table(columns, SCHEMA), folder / f"{number}.parquet")


def per_minute(environment: Environment, folder: Path, **options: Any) -> DataStream:
    events = environment.from_source(FileSource(str(folder), format="parquet", max_files_per_epoch=1))
    users = events.filter(col("price") >= 0).key_by("user")
    return users.window(tumbling("1m"), on="at", lateness="10s", **options).aggregate(n=count(), total=sum_("price"))


def rows_of(sink: MemorySink) -> list[tuple[Any, ...]]:
    rows = ((int((row["window_start"] - START).total_seconds()), row["user"], row["n"]) for row in sink.rows())
    return sorted(rows, key=repr)


def test_windows_feed_several_sinks(environment: Environment, tmp_path: Path) -> None:
    write(tmp_path / "in", 0, ("ada", 1.0, 0), ("bob", 2.0, 30), ("ada", -1.0, 31), ("ada", 3.0, 61))
    write(tmp_path / "in", 1, ("ada", 1.0, 59), ("bob", 2.0, 150), ("ada", 1.0, None), ("ada", 1.0, 2))
    totals = per_minute(environment, tmp_path / "in")
    few, many = totals.split(col("total") < 3)
    sinks = [MemorySink(name) for name in ("all", "few", "many", "raw")]
    job = environment.execute(
        "windows",
        totals.to_sink(sinks[0]),
        few.drop("n").to_sink(sinks[1]),
        many.to_sink(sinks[2]),
        environment.from_source(MemorySource([{"id": 1}])).to_sink(sinks[3]),
    )
    assert rows_of(sinks[0]) == [(0, "ada", 3), (0, "bob", 1), (120, "bob", 1), (60, "ada", 1)]
    assert sorted(row["total"] for row in sinks[1].rows()) == [2.0, 2.0]
    assert sorted(row["total"] for row in sinks[2].rows()) == [3.0, 3.0]
    assert sinks[3].rows() == [{"id": 1}]
    assert (job.metrics.rows_untimed, job.metrics.rows_late) == (1, 0)


def test_functions_behind_windows_run_in_workers(environment: Environment, tmp_path: Path) -> None:
    """The driver merges few states itself, but calls no function of the user's."""
    write(tmp_path / "in", 0, ("ada", 1.0, 0))
    totals = per_minute(environment, tmp_path / "in")
    sinks = [MemorySink(name) for name in ("mapped", "all")]

    def pid(row: dict[str, Any]) -> dict[str, Any]:
        return {**row, "n": os.getpid()}

    for sink, stream in zip(sinks, (totals.map(pid), totals), strict=True):
        environment.execute(sink.name, stream.to_sink(sink))
    ((*_, worker),), ((*_, count),) = map(rows_of, sinks)
    assert (worker != os.getpid(), count) == (True, 1)


def test_a_run_that_goes_on_keeps_open_windows_and_closed_ones_closed(environment: Environment, tmp_path: Path) -> None:
    sink = MemorySink("updates")
    write(tmp_path / "in", 0, ("ada", 1.0, 0), ("ada", 1.0, 61))
    updates = per_minute(environment, tmp_path / "in", emit="updates")
    updates.to_sink(sink).execute("updates")
    write(tmp_path / "in", 1, ("ada", 1.0, 1), ("ada", 1.0, 62))
    updates.to_sink(sink).execute("updates")
    assert rows_of(sink) == [(0, "ada", 1), (0, "ada", 2), (60, "ada", 1), (60, "ada", 2)]

    final = MemorySink("final")
    per_minute(environment, tmp_path / "in").to_sink(final).execute("final")
    assert rows_of(final) == [(0, "ada", 2), (60, "ada", 2)]
    # The end of the source has closed all windows that had a row.
    write(tmp_path / "in", 2, ("ada", 1.0, 63), ("ada", 1.0, 121))
    job = per_minute(environment, tmp_path / "in").to_sink(final).execute("final")
    assert rows_of(final) == [(0, "ada", 2), (120, "ada", 1), (60, "ada", 2)]
    assert job.metrics.rows_late == 1


def test_late_rows_are_in_the_dead_letter(native: Environment, tmp_path: Path) -> None:
    write(tmp_path / "in", 0, ("ada", 1.0, 0), ("ada", 1.0, 200))
    write(tmp_path / "in", 1, ("bob", 1.0, 0), ("bob", 1.0, 201), ("bob", 1.0, None), ("bob", 2.0, 10**9))
    sink, letters = MemorySink("on time"), FileSink(str(tmp_path / "late"), format="parquet")
    totals = per_minute(native, tmp_path / "in", late="dead_letter")
    job = totals.to_sink(sink, dead_letter=letters).execute("late")
    assert rows_of(sink) == [(0, "ada", 1), (180, "ada", 1), (180, "bob", 1)]
    found = query(f"select error, position from '{tmp_path}/late/*.parquet' order by error").fetchall()
    assert [error.partition(" (")[0] for error, _ in found] == [
        "it has no time in 'at', so it is in no window",
        "it is late: its windows are closed",
        "its time is more than 1 day, 0:00:00 ahead of the clock",
    ]
    assert "1.parquet" in found[1][1]
    metrics = job.metrics
    assert (metrics.rows_late, metrics.rows_ahead, metrics.rows_untimed, metrics.records_failed) == (1, 1, 1, 3)
    assert [(node.kind, node.rejected) for node in job.status().graph if node.rejected] == [("keyed", 3)]


def test_the_watermark_is_a_metric(native: Environment, tmp_path: Path) -> None:
    write(tmp_path / "in", 0, ("ada", 1.0, 0), ("ada", 1.0, 200))
    job = per_minute(native, tmp_path / "in", emit="updates").to_sink(MemorySink("watermark")).execute("watermark")
    assert job.metrics.watermark == START + timedelta(seconds=190)
    lines = job.metrics.to_prometheus_format("volley").splitlines()
    values = {line.partition("{")[0]: float(line.split()[-1]) for line in lines if "{" in line and line[0] != "#"}
    assert values["volley_iceberg_watermark_seconds"] == (START + timedelta(seconds=190)).timestamp()
    assert values["volley_iceberg_rows_late_total"] == 0


def test_a_source_of_another_stream_does_not_hold_the_watermark(native: Environment, tmp_path: Path) -> None:
    write(tmp_path / "in", 0, ("ada", 1.0, 0), ("ada", 1.0, 200))
    updates = per_minute(native, tmp_path / "in", emit="updates")
    other = native.from_source(MemorySource([{"id": 1}]))
    job = native.execute("two", updates.to_sink(MemorySink("two")), other.to_sink(MemorySink("ids")))
    assert job.metrics.watermark == START + timedelta(seconds=190)


def another(change: Callable[[Any], Any]) -> Callable[[Environment, Path], DataStream]:
    def build(environment: Environment, folder: Path) -> DataStream:
        events = environment.from_source(FileSource(str(folder), format="parquet", max_files_per_epoch=1))
        stream: DataStream = change(events)
        return stream

    return build


CHANGED: dict[str, Callable[[Environment, Path], DataStream]] = {
    "the window": another(
        lambda rows: rows.key_by("user").window(tumbling("2m"), on="at").aggregate(n=count(), total=sum_("price"))
    ),
    "the key": another(
        lambda rows: rows.key_by().window(tumbling("1m"), on="at").aggregate(n=count(), total=sum_("price"))
    ),
    "an aggregate": another(
        lambda rows: rows.key_by("user").window(tumbling("1m"), on="at").aggregate(n=count(), total=max_("price"))
    ),
}


def test_what_may_not_change_while_there_is_state(native: Environment, tmp_path: Path) -> None:
    write(tmp_path / "in", 0, ("ada", 1.0, 0))
    per_minute(native, tmp_path / "in").to_sink(MemorySink("changed")).execute("changed")
    for build in CHANGED.values():
        with pytest.raises(PlanError, match="keyed steps have changed"):
            build(native, tmp_path / "in").to_sink(MemorySink("changed")).execute("changed")
    # Lateness, emission and the number of buckets may.
    write(tmp_path / "in", 1, ("ada", 1.0, 61))
    sink = MemorySink("changed")
    per_minute(native, tmp_path / "in", emit="updates", buckets=2).to_sink(sink).execute("changed")
    assert rows_of(sink)[-1] == (60, "ada", 1)


def test_the_gap_of_sessions_may_not_change_while_there_is_state(native: Environment, tmp_path: Path) -> None:
    write(tmp_path / "in", 0, ("ada", 1.0, 0))
    users = native.from_source(FileSource(str(tmp_path / "in"), format="parquet")).key_by("user")
    gap = 12_345_671
    users.window(session(gap), on="at").aggregate(n=count()).to_sink(MemorySink("visits")).execute("visits")
    for other in (gap + 1, "2m"):
        longer = users.window(session(other), on="at").aggregate(n=count())
        with pytest.raises(PlanError, match="keyed steps have changed"):
            longer.to_sink(MemorySink("visits")).execute("visits")


def test_what_a_job_with_windows_refuses(native: Environment, tmp_path: Path) -> None:
    rows = native.from_source(MemorySource([{"user": "ada", "price": 1.0, "at": START}]))
    updated = rows.key_by("user").window(tumbling("1m"), on="at", emit="updates").aggregate(price=sum_("price"))
    again = updated.key_by().window(session("1h"), on="window_start").aggregate(n=count())
    late = rows.key_by().window(tumbling("1m"), on="at", late="dead_letter").aggregate(n=count())
    mixed = updated.select("user", "price").union(rows.select("user", "price"))
    filled = rows.key_by("user").window(tumbling("1m"), on="at", fill_gaps="1h").aggregate(price=sum_("price"))
    refused = {
        "can't take back rows that aggregate .* replaces: a session would fall apart": again,
        "has no dead letter|no sink behind it": late,
        "a union of rows that replace earlier ones with others": mixed,
        "deduplicate by 'user' follows a step whose rows replace": updated.deduplicate("user"),
        "how late that can be behind aggregate": filled.key_by()
        .window(tumbling("1h"), on="window_end")
        .aggregate(n=count()),
    }
    for message, stream in refused.items():
        with pytest.raises(PlanError, match=message):
            stream.to_sink(MemorySink("refused")).execute("refused")


def test_a_stream_shows_the_rows_of_a_bounded_job(environment: Environment, tmp_path: Path) -> None:
    """Late, early and untimed rows included, for epochs are the same; and the windows that the end closes."""
    write(tmp_path / "in", 0, ("ada", 1.0, 0), ("bob", 2.0, 30), ("ada", 3.0, 61), ("cyd", 1.0, 10_000_000_000))
    write(tmp_path / "in", 1, ("ada", 1.0, 59), ("bob", 2.0, 150), ("ada", 1.0, None), ("ada", 1.0, 2))
    write(tmp_path / "in", 2, ("bob", 7.0, 400), ("bob", 8.0, 100), ("ada", 5.0, 290))
    events = environment.from_source(FileSource(str(tmp_path / "in"), format="parquet", max_files_per_epoch=1))
    users = events.key_by("user")
    totals = {"n": count(), "total": sum_("price")}
    streams = [
        per_minute(environment, tmp_path / "in"),
        per_minute(environment, tmp_path / "in", emit="updates"),
        per_minute(environment, tmp_path / "in", fill_gaps="1h"),
        users.window(session("40s"), on="at", lateness="10s", emit="updates").aggregate(**totals),
        users.window(session("40s"), on="at", lateness="2m").aggregate(**totals).filter(col("n") > 1),
        users.series("at", lateness="1m").with_columns(before=previous("price")),
        events.deduplicate("user"),
        events.deduplicate("user", event_time="at", within="1m").select("user", "at"),
        events.union(events.select("user", "at", price=col("price") * 2)).deduplicate("price"),
        events.join(events, on="user", within="1m", time="at", columns=["price"], suffix="_2", lateness="20s"),
        events.join(events, on="user", how="left", within=("1s", "1m"), time="at", columns=["price"], suffix="_2"),
        events.limit(5).select("user"),
    ]
    sinks = [MemorySink(str(number)) for number in range(len(streams))]
    pipelines = [stream.to_sink(sink) for stream, sink in zip(streams, sinks, strict=True)]
    environment.execute("shown", *pipelines)
    for stream, sink in zip(streams, sinks, strict=True):
        shown = stream.to_arrow()
        assert shown.schema == sink.to_arrow().schema
        assert sorted(map(repr, shown.to_pylist())) == sorted(map(repr, sink.to_arrow().to_pylist())), str(stream)


def test_no_other_user_reads_what_a_job_keeps(native: Environment, tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        for number, second in enumerate((0, 30, 300)):
            write(tmp_path / "in", number, ("ada", 1.0, second), ("bob", 2.0, second))
        names = MemorySource([{"user": "ada", "name": "Ada"}], name="names")
        totals = per_minute(native, tmp_path / "in").join(names, on="user")
        native.execute("private", totals.to_sink(MemorySink("private"))).wait()
    finally:
        os.umask(before)
    checkpoint = tmp_path / "checkpoints"
    ours = [checkpoint, checkpoint / "private", *(checkpoint / "private" / "volley").rglob("*")]
    assert sum(path.suffix in (".arrow", ".json") for path in ours) > 4
    assert {path: oct(path.stat().st_mode & 0o7777) for path in ours} == {
        path: "0o700" if path.is_dir() else "0o600" for path in ours
    }
