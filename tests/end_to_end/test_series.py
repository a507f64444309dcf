"""Series in jobs: both paths, a run that goes on, late rows, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from volley import (
    DataStream,
    Environment,
    ExpressionError,
    FileSource,
    MemorySink,
    MemorySource,
    PlanError,
    VolleyError,
    col,
    count,
    ewm_mean,
    previous,
    rate,
    rolling,
    tumbling,
)

START = datetime(2026, 1, 1, tzinfo=UTC)
SCHEMA = pa.schema({"user": pa.string(), "price": pa.float64(), "at": pa.timestamp("us", "UTC"), "unused": pa.int64()})


def write(folder: Path, number: int, *rows: tuple[str, float, int | None]) -> None:
    folder.mkdir(exist_ok=True)
    values = [
        {"user": user, "price": price, "at": None if at is None else START + timedelta(seconds=at)}
        for user, price, at in rows
    ]
    pq.write_table(pa.Table.from_pylist(values, SCHEMA), folder / f"{number}.parquet")


def series(environment: Environment, folder: Path, **options: Any) -> DataStream:
    events = environment.from_source(FileSource(str(folder), format="parquet", max_files_per_epoch=1))
    users = events.filter(col("price") >= 0).key_by(name=col("user").str.upper())
    rows = users.series(on="at", lateness="10s", **options)
    return rows.with_columns(n=rolling("1m", count()), before=previous("price")).select("user", "at", "n", "before")


def rows_of(sink: MemorySink) -> list[tuple[Any, ...]]:
    rows = ((row["user"], int((row["at"] - START).total_seconds()), row["n"], row["before"]) for row in sink.rows())
    return sorted(rows, key=repr)


def test_series_of_a_run_that_goes_on(environment: Environment, tmp_path: Path) -> None:
    sink, folder = MemorySink("series"), tmp_path / "in"
    write(folder, 0, ("ada", 3.0, 30), ("ada", 1.0, 0), ("bob", 1.0, 20), ("ada", -1.0, 10))
    write(folder, 1, ("Ada", 2.0, 25), ("ada", 1.0, 90), ("ada", 1.0, None), ("ada", 1.0, 5))
    job = series(environment, folder).to_sink(sink).execute("series")
    first = [("Ada", 25, 2, 1.0), ("ada", 0, 1, None), ("ada", 30, 3, 2.0), ("ada", 90, 1, 3.0), ("bob", 20, 1, None)]
    assert rows_of(sink) == first
    assert (job.metrics.rows_late, job.metrics.rows_untimed) == (1, 1)
    # The end of the source has let all rows out: those before it are late now.
    write(folder, 2, ("ada", 5.0, 100), ("bob", 7.0, 89))
    job = series(environment, folder).to_sink(sink).execute("series")
    assert rows_of(sink) == sorted([*first, ("ada", 100, 2, 1.0)], key=repr)
    assert job.metrics.rows_late == 1


def test_a_pause_begins_a_series_anew(native: Environment, tmp_path: Path) -> None:
    sink, folder = MemorySink("paused"), tmp_path / "in"
    write(folder, 0, ("ada", 1.0, 0), ("ada", 2.0, 19), ("bob", 1.0, 0))
    write(folder, 1, ("ada", 3.0, 39), ("bob", 2.0, 400))
    write(folder, 2, ("ada", 4.0, 410))
    series(native, folder, pause="20s").to_sink(sink).execute("paused")
    assert rows_of(sink) == [
        *[("ada", 0, 1, None), ("ada", 19, 2, 1.0), ("ada", 39, 1, None), ("ada", 410, 1, None)],
        *[("bob", 0, 1, None), ("bob", 400, 1, None)],
    ]


def test_what_series_refuse(native: Environment) -> None:
    rows = native.from_source(MemorySource([{"user": "ada", "tags": ["x"], "at": START}])).key_by("user")
    refused: dict[str, Callable[[], object]] = {
        "takes a number": lambda: rows.series(on="at").with_columns(x=ewm_mean("user", "1m")).columns,
        "unknown column 'price'": lambda: rows.series(on="at").with_columns(x=rate("price")).columns,
        "series on 'user', which is string": lambda: rows.series(on="user").with_columns(x=previous("at")).columns,
        "series without functions": lambda: rows.series(on="at").with_columns(),
        "x is Aggregation, not a series function": lambda: rows.series(on="at").with_columns(x=count()),  # type: ignore[arg-type]
        "takes an aggregate, not Expr": lambda: rolling("1m", col("at")),  # type: ignore[arg-type]
    }
    for message, build in refused.items():
        with pytest.raises(ExpressionError, match=message):
            build()
    ordered = rows.series(on="at").with_columns(x=previous("at"))
    with pytest.raises(PlanError, match="follows event time by 'x', and how late that can be behind series"):
        ordered.key_by().window(tumbling("1m"), on="x").aggregate(n=count()).to_sink(MemorySink("x")).execute("x")


def test_what_a_series_keeps_must_fit(native: Environment, tmp_path: Path) -> None:
    sink, folder = MemorySink("kept"), tmp_path / "in"
    write(folder, 0, ("ada", 3.0, 30))
    series(native, folder).to_sink(sink).execute("kept")
    rows = native.from_source(FileSource(str(folder), format="parquet", max_files_per_epoch=1))
    for changed in (
        rows.key_by("user").series(on="at").with_columns(n=rolling("1m", count()), before=previous("price")),
        rows.key_by("user").series(on="at").with_columns(n=rolling("2m", count())),
    ):
        with pytest.raises(PlanError, match="keyed steps have changed"):
            changed.to_sink(sink).execute("kept")
    write(folder, 1, ("ada", 4.0, 40))
    for name in ("state-*.arrow", "done.json"):
        (state,) = (tmp_path / "checkpoints" / "kept" / "volley" / "series-0").rglob(name)
        whole = state.read_bytes()
        for damaged in (whole[: len(whole) // 2], None):
            state.write_bytes(damaged) if damaged else state.unlink()
            with pytest.raises(VolleyError, match="state"):
                series(native, folder).to_sink(sink).execute("kept")
        state.write_bytes(whole)
    series(native, folder).to_sink(sink).execute("kept")
    assert rows_of(sink) == [("ada", 30, 1, None), ("ada", 40, 2, 3.0)]
