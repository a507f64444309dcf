"""Keyed steps behind each other in jobs: several runs, metrics, sinks at each level."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from volley import DataStream, Environment, FileSource, MemorySink, count, session, sum_, tumbling

START = datetime(2026, 1, 1, tzinfo=UTC)


def write(folder: Path, number: int, *rows: tuple[str, int]) -> None:
    folder.mkdir(exist_ok=True)
    columns = {"user": [user for user, _ in rows], "at": [START + timedelta(seconds=at) for _, at in rows]}
    schema = pa.schema({"user": pa.string(), "at": pa.timestamp("us", "UTC")})
    pq.write_table(pa.table(columns, schema), folder / f"{number}.parquet")


def visits(environment: Environment, folder: Path) -> DataStream:
    rows = environment.from_source(FileSource(str(folder), format="parquet", max_files_per_epoch=1))
    return rows.key_by("user").window(session("10s"), on="at").aggregate(n=count())


def per_minute(visits: DataStream) -> DataStream:
    return visits.key_by().window(tumbling("1m"), on="window_end").aggregate(visits=count(), n=sum_("n"))


def rows_of(sink: MemorySink) -> list[tuple[int, ...]]:
    return sorted((int((row["window_start"] - START).total_seconds()), row["n"]) for row in sink.rows())


def test_the_end_of_a_run_closes_all_levels(native: Environment, tmp_path: Path) -> None:
    """Rows of a later run that belong to a closed minute are late at the first level, where they are counted."""
    sinks = [MemorySink("visits"), MemorySink("minutes")]
    for number, rows in enumerate([[("ada", 0), ("ada", 5), ("bob", 30)], [("cyd", 41), ("ada", 45), ("ada", 70)]]):
        write(tmp_path / "in", number, *rows)
        first = visits(native, tmp_path / "in")
        job = native.execute("levels", first.to_sink(sinks[0]), per_minute(first).to_sink(sinks[1]))
        assert job.metrics.rows_late == 2 * number
    assert rows_of(sinks[0]) == [(0, 2), (30, 1), (70, 1)]
    assert rows_of(sinks[1]) == [(0, 3), (60, 1)]


def test_a_run_that_goes_on_keeps_what_each_level_has(native: Environment, tmp_path: Path) -> None:
    """Rows of an epoch come out of the second level with the watermark of the first one, in the same epoch."""
    write(tmp_path / "in", 0, ("ada", 0), ("ada", 15))
    write(tmp_path / "in", 1, ("ada", 80))
    write(tmp_path / "in", 2, ("ada", 100))
    first, sink = visits(native, tmp_path / "in"), MemorySink("minutes")
    per_minute(first).to_sink(sink).execute("goes-on")
    assert rows_of(sink) == [(0, 2), (60, 2)]


def test_first_rows_of_windows(native: Environment, tmp_path: Path) -> None:
    write(tmp_path / "in", 0, ("ada", 0), ("ada", 15))
    write(tmp_path / "in", 1, ("ada", 40), ("bob", 40))
    sink = MemorySink("first")
    visits(native, tmp_path / "in").deduplicate("user").to_sink(sink).execute("first")
    assert [row["user"] for row in sorted(sink.rows(), key=lambda row: str(row["user"]))] == ["ada", "bob"]
