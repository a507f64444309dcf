"""Verbs on both execution paths: the rows that DuckDB has; and what a job tells of its epochs."""

from __future__ import annotations

import asyncio
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.duck import query
from volley import (
    DataStream,
    Environment,
    ExpressionError,
    FileSink,
    FinishedEpoch,
    MemorySink,
    MemorySource,
    PlanError,
    RateSource,
    State,
    VolleyError,
    col,
)

ROWS = pa.table(
    {
        "id": pa.array([1, 2, 3, 4, 5, 6], pa.int64()),
        "tags": pa.array([["a", None], [], None, ["b"], ["c", "d", "c"], []]),
        "name": pa.array(["x", "y", None, "ü", "", "z"]),
    }
)


def stream(environment: Environment) -> DataStream:
    return environment.from_source(MemorySource(ROWS, rows_per_epoch=4))


def listed(rows: list[dict[str, object]]) -> list[str]:
    return sorted(map(repr, rows))


def test_explode_sample_limit(job_session: SparkSession, tmp_path: Path) -> None:
    environment = Environment(spark=job_session, checkpoint_dir=tmp_path)
    exploded, kept, drawn, some = (MemorySink(name) for name in ("exploded", "kept", "drawn", "some"))
    rows = stream(environment)
    environment.execute(
        "verbs",
        rows.explode("tags").to_sink(exploded),
        rows.explode("tags", keep_empty=True).to_sink(kept),
        rows.sample(0.5, "id", seed=1).to_sink(drawn),
    )
    with duckdb.connect() as connection:
        connection.register("rows", ROWS)
        unnested = connection.sql("select id, unnest(tags) as tags, name from rows").to_arrow_table().to_pylist()
    assert listed(exploded.rows()) == listed(unnested)
    empty = [{**row, "tags": None} for row in ROWS.to_pylist() if not row["tags"]]
    assert listed(kept.rows()) == listed([*unnested, *empty])
    # The keys' hashes decide, so this process draws the same.
    assert listed(drawn.rows()) == listed(rows.sample(0.5, "id", seed=1).to_arrow().to_pylist())
    assert 0 < len(drawn.rows()) < 6
    rows.limit(5).to_sink(some).execute("limit")
    assert len({row["id"] for row in some.rows()}) == len(some.rows()) == 5


def test_a_limit_of_rows_without_end_is_refused() -> None:
    rows = Environment().from_source(RateSource(1))
    with pytest.raises(PlanError, match="without end"):
        rows.limit(3)
    with pytest.raises(ExpressionError, match="explode takes a list"):
        stream(Environment()).explode("name").schema  # noqa: B018


def test_a_job_is_awaited_and_tells_of_its_epochs(spark: SparkSession, tmp_path: Path) -> None:
    told: list[FinishedEpoch] = []
    pipeline = stream(Environment(spark=spark, checkpoint_dir=tmp_path)).to_sink(MemorySink("told"))

    async def run() -> list[FinishedEpoch]:
        job = pipeline.start("told", on_epoch=told.append)
        epochs = [epoch async for epoch in job.epochs()]
        assert (await job) is job
        assert len(job.plot().axes) == 2
        assert job.table().num_rows == 6
        return epochs

    epochs = asyncio.run(run())
    assert [(epoch.number, epoch.rows) for epoch in epochs] == [(0, 4), (1, 2)]
    assert told == epochs


def test_a_callback_stops_the_job(spark: SparkSession, tmp_path: Path) -> None:
    environment = Environment(spark=spark, checkpoint_dir=tmp_path, checkpoint_interval="10ms")
    pipeline = environment.from_source(RateSource(1_000)).to_sink(MemorySink("stopped"))
    job = pipeline.start("stopped", on_epoch=lambda epoch: job.stop())
    assert job.wait(60)
    assert job.progress.state is State.STOPPED
    assert job.exception is None


def test_an_awaited_job_raises_its_error(spark: SparkSession, tmp_path: Path) -> None:
    errors: list[object] = []

    def broken(row: dict[str, object]) -> dict[str, object]:
        raise ValueError("broken")

    pipeline = stream(Environment(spark=spark, checkpoint_dir=tmp_path)).map(broken).to_sink(MemorySink("broken"))

    async def run() -> None:
        def note(error: VolleyError) -> None:
            errors.append(error)
            job.stop()

        job = pipeline.start("broken", on_error=note)
        await job

    with pytest.raises(Exception, match="broken") as caught:
        asyncio.run(run())
    assert errors == [caught.value]


def test_repartition_and_sort(job_session: SparkSession, tmp_path: Path) -> None:
    environment = Environment(spark=job_session, checkpoint_dir=tmp_path / "c")
    ids = list(range(1000))
    source = MemorySource([{"id": number, "key": f"k{number % 7}"} for number in ids[::-1]], rows_per_epoch=500)
    rows = environment.from_source(source)
    one, keyed, spread, plain = (str(tmp_path / name) for name in ("one", "keyed", "spread", "plain"))
    job = environment.execute(
        "arranged",
        rows.repartition(1).sort_within_epoch("key desc", "id").to_sink(FileSink(one)),
        rows.filter(col("id") < 900).repartition(3, by="key").to_sink(FileSink(keyed)),
        rows.repartition(4).to_sink(FileSink(spread)),
        rows.sort_within_epoch("id").to_sink(FileSink(plain)),
    )
    assert job.progress.epochs == 2
    files = {folder: [query(f"select * from '{path}'") for path in Path(folder).glob("*.parquet")]
             for folder in (one, keyed, spread, plain)}  # fmt: skip
    found = {folder: sorted(row[0] for file in each for row in file.fetchall()) for folder, each in files.items()}
    assert found == {one: ids, keyed: ids[:900], spread: ids, plain: ids}
    # One file an epoch, sorted.
    assert len(files[one]) == 2
    for file in files[one]:
        assert (
            file.fetchall() == query("select * from file order by key desc, id", file=file.to_arrow_table()).fetchall()
        )
    # Each key in one file an epoch, and each of the tasks gets as many rows.
    keys = [{row[1] for row in file.fetchall()} for file in files[keyed]]
    assert sum(map(len, keys)) == 2 * 7
    assert len(keys) <= 2 * 3
    assert sorted(len(file) for file in files[spread]) == [125] * 8
    for file in files[plain]:
        numbers = [row[0] for row in file.fetchall()]
        assert numbers == sorted(numbers)


def test_repartition_by_unknown_columns_is_refused() -> None:
    rows = Environment().from_source(MemorySource(ROWS))
    with pytest.raises(ExpressionError, match="repartition: unknown column 'idd'"):
        rows.repartition(by="idd").schema  # noqa: B018
    with pytest.raises(ExpressionError, match="repartition by 'tags', which is nested"):
        rows.repartition(by="tags").schema  # noqa: B018
    with pytest.raises(PlanError, match="a step behind repartition 2"):
        rows.repartition(2).drop("id")
    assert rows.repartition(2).sort_within_epoch("id desc").to_arrow()["id"].to_pylist() == [6, 5, 4, 3, 2, 1]
