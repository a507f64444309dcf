"""Joins of streams in jobs: both paths, several sinks, late rows, restarts and what may change between them."""

from __future__ import annotations

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
    tumbling,
)

START = datetime(2026, 1, 1, tzinfo=UTC)
ORDERS = pa.schema({"id": pa.int64(), "user": pa.string(), "at": pa.timestamp("us", "UTC"), "unused": pa.string()})
PAYMENTS = pa.schema({"payer": pa.string(), "amount": pa.float64(), "paid_at": pa.timestamp("us", "UTC")})


def write(folder: Path, number: int, schema: pa.Schema, *rows: tuple[Any, ...]) -> None:
    """One file; the times are seconds from START."""
    folder.mkdir(exist_ok=True)
    timed = [[START + timedelta(seconds=value) if type(value) is float else value for value in row] for row in rows]
    columns = {
        name: [row[place] for row in timed] if timed and place < len(timed[0]) else [None] * len(timed)
        for place, name in enumerate(schema.names)
    }
    pq.write_table(pa.table(columns, schema), folder / f"{number}.parquet")


def sides(environment: Environment, folder: Path) -> tuple[DataStream, DataStream]:
    orders, payments = (
        environment.from_source(FileSource(str(folder / name), format="parquet", max_files_per_epoch=1))
        for name in ("orders", "payments")
    )
    return orders, payments


def paid(environment: Environment, folder: Path, **options: Any) -> DataStream:
    orders, payments = sides(environment, folder)
    settings = {"how": "left", "within": ("0s", "60s"), "time": ("at", "paid_at"), "columns": ["amount"], **options}
    return orders.join(payments.with_column("amount", col("amount") / 100), {"user": "payer"}, **settings)


def rows_of(sink: MemorySink) -> list[tuple[Any, ...]]:
    return sorted(((row["id"], row["amount"]) for row in sink.rows()), key=repr)


def test_a_join_feeds_several_sinks(environment: Environment, tmp_path: Path) -> None:
    write(tmp_path / "orders", 0, ORDERS, (1, "ada", 0.0), (2, "bob", 1.0), (3, None, 2.0))
    write(tmp_path / "orders", 1, ORDERS, (4, "ada", 50.0), (5, "cyd", 51.0))
    write(tmp_path / "payments", 0, PAYMENTS, ("bob", 100, 30.0), ("bob", 200, 61.0), ("bob", 300, 61.000001))
    write(tmp_path / "payments", 1, PAYMENTS, ("ada", 400, 60.0), (None, 500, 61.0))
    names = MemorySource([{"user": "ada", "name": "Ada"}, {"user": "bob", "name": "Bob"}], name="names")
    joined = paid(environment, tmp_path).join(names, on="user", how="left")
    much, little = joined.split(col("amount") > 2)
    orders, _ = sides(environment, tmp_path)
    sinks = [MemorySink(name) for name in ("all", "much", "little", "raw")]
    streams = (joined, much, little.drop("at"), orders)
    job = environment.execute("paid", *(each.to_sink(sink) for each, sink in zip(streams, sinks, strict=True)))
    everything = [(1, 4.0), (2, 1.0), (2, 2.0), (3, None), (4, 4.0), (5, None)]
    assert rows_of(sinks[0]) == everything
    assert rows_of(sinks[1]) == [(1, 4.0), (4, 4.0)]
    assert rows_of(sinks[2]) == [row for row in everything if row[1] != 4]
    assert {row["name"] for row in sinks[0].rows() if row["id"] == 2} == {"Bob"}
    assert len(sinks[3].rows()) == 5
    assert job.metrics.rows_late == 0


def test_a_stream_is_joined_with_itself(environment: Environment, tmp_path: Path) -> None:
    write(tmp_path / "orders", 0, ORDERS, (1, "ada", 0.0), (2, "ada", 5.0))
    write(tmp_path / "orders", 1, ORDERS, (3, "ada", 9.0), (4, "bob", 9.0))
    orders = environment.from_source(FileSource(str(tmp_path / "orders"), format="parquet", max_files_per_epoch=1))
    sink, selected = MemorySink("near"), orders.select("id", "user", "at")
    near = selected.join(selected, on="user", within=("0s", "5s"), time="at", suffix="_2", lateness="1m")
    near.filter(col("id") != col("id_2")).to_sink(sink).execute("near")
    assert sorted((row["id"], row["id_2"]) for row in sink.rows()) == [(1, 2), (2, 3)]


def test_late_rows_are_in_the_dead_letter(native: Environment, tmp_path: Path) -> None:
    write(tmp_path / "orders", 0, ORDERS, (1, "ada", 100.0))
    write(tmp_path / "payments", 0, PAYMENTS, ("ada", 100, 100.0))
    write(tmp_path / "orders", 1, ORDERS, (2, "ada", 99.0), (3, "ada", 100.0), (4, "ada", None))
    write(tmp_path / "payments", 1, PAYMENTS, ("ada", 100, 1.0), ("ada", 100, 1e9))
    sink, letters = MemorySink("on time"), FileSink(str(tmp_path / "late"), format="parquet")
    joined = paid(native, tmp_path, late="dead_letter")
    job = joined.to_sink(sink, dead_letter=letters).execute("late")
    assert rows_of(sink) == [(1, 1.0), (3, 1.0)]
    found = query(f"select error, position from '{tmp_path}/late/*.parquet' order by error").fetchall()
    assert [error.partition(" (")[0] for error, _ in found] == [
        "it has no time in 'at', so it can't be joined",
        "it is late: rows that it matches may have come out already",
        "it is late: rows that it matches may have come out already",
        "its time is more than 1 day, 0:00:00 ahead of the clock",
    ]
    assert "1.parquet" in found[1][1]
    metrics = job.metrics
    assert (metrics.rows_late, metrics.rows_ahead, metrics.rows_untimed, metrics.records_failed) == (2, 1, 1, 4)
    assert metrics.watermark == START + timedelta(seconds=160.000001)


def test_late_rows_count_once_beside_rows_of_the_other_side(native: Environment, tmp_path: Path) -> None:
    write(tmp_path / "orders", 0, ORDERS, (0, "ada", 100.0), (1, "ada", 100.0))
    write(tmp_path / "orders", 1, ORDERS, (2, "ada", 99.0), (3, "ada", 200.0), (4, "ada", 98.0), (5, "ada", 201.0))
    orders = native.from_source(FileSource(str(tmp_path / "orders"), format="parquet", max_files_per_epoch=1))
    even, odd = orders.split(col("id") % 2 == 0)
    near = even.join(odd, on="user", within="1m", time="at", suffix="_2", late="dead_letter")
    letters = FileSink(str(tmp_path / "late"), format="parquet")
    job = near.to_sink(MemorySink("near"), dead_letter=letters).execute("late")
    assert (job.metrics.rows_late, job.metrics.records_failed) == (2, 2)


def test_a_run_goes_on_where_the_last_one_ended(native: Environment, tmp_path: Path) -> None:
    sink = MemorySink("inner")
    write(tmp_path / "orders", 0, ORDERS, (1, "ada", 0.0))
    write(tmp_path / "payments", 0, PAYMENTS, ("bob", 1, 0.0))
    paid(native, tmp_path, how="inner").to_sink(sink).execute("inner")
    write(tmp_path / "payments", 1, PAYMENTS, ("ada", 100, 60.0))
    # Lateness may change.
    paid(native, tmp_path, how="inner", lateness="1m").to_sink(sink).execute("inner")
    assert rows_of(sink) == [(1, 1.0)]
    changed: list[dict[str, Any]] = [{"how": "left"}, {"within": "60s"}]
    for options in changed:
        with pytest.raises(PlanError, match="keyed steps have changed"):
            paid(native, tmp_path, **{"how": "inner", **options}).to_sink(sink).execute("inner")
    orders, payments = sides(native, tmp_path)
    payments = payments.with_column("amount", col("amount") / 100)
    settings: dict[str, Any] = {"within": ("0s", "60s"), "columns": ["amount"]}
    for other in (
        orders.join(payments, {"user": "payer", "id": "amount"}, time=("at", "paid_at"), **settings),
        orders.with_column("until", col("at")).join(payments, {"user": "payer"}, time=("until", "paid_at"), **settings),
    ):
        with pytest.raises(PlanError, match="keyed steps have changed"):
            other.to_sink(sink).execute("inner")
    two = paid(native, tmp_path, how="inner").to_sink(sink).to_sink(FileSink(str(tmp_path / "new")))
    with pytest.raises(PlanError, match="can't fill a sink of a job with windows, joined streams"):
        two.execute("inner", backfill=True)


def test_what_a_job_refuses(native: Environment, tmp_path: Path) -> None:
    rows = native.from_source(MemorySource([{"id": 1, "user": "ada", "at": START}]))
    joined = rows.join(rows, on="id", within="1m", time="at", columns=["user"], suffix="_2")
    refused = {
        "follows event time by 'at', and how late that can be": joined.map(dict)
        .key_by("user")
        .window(tumbling("1m"), on="at")
        .aggregate(n=count()),
        "how late that can be behind full join of streams": rows.join(
            rows, on="id", how="full", within="1m", time="at", columns=["user"], suffix="_2"
        )
        .key_by("user")
        .window(tumbling("1m"), on="at")
        .aggregate(n=count()),
        'has late="dead_letter", and no sink': rows.join(
            rows, on="id", within="1m", time="at", columns=["user"], suffix="_2", late="dead_letter"
        ),
    }
    for message, stream in refused.items():
        with pytest.raises(PlanError, match=message):
            stream.to_sink(MemorySink("refused")).execute("refused")
