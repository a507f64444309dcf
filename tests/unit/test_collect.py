"""Rows of a stream before it runs, and the steps of a pipeline over given rows: in this process, without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark import SparkContext

from volley import (
    EOF,
    ConfigError,
    DataStream,
    Environment,
    ExpressionError,
    FileSource,
    IcebergSink,
    IcebergSinkConfig,
    IcebergStorage,
    KafkaSource,
    MemorySource,
    PlanError,
    SourceError,
    SparkSource,
    VolleyError,
    col,
    testing,
)

ENVIRONMENT = Environment()


@pytest.fixture(autouse=True)
def nothing_starts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """No Spark starts, and nothing is left behind in the folder of the process."""
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)

    def start(master: str | None) -> Any:
        raise AssertionError("Spark was started")

    monkeypatch.setattr("volley.spark.session.open_context", start)
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    yield
    assert list(folder.iterdir()) == []


@pytest.fixture
def files(tmp_path: Path) -> FileSource:
    """Three files of a hundred rows."""
    folder = tmp_path / "in"
    folder.mkdir()
    for number in range(3):
        ids = range(number * 100, number * 100 + 100)
        pq.write_table(pa.table({"id": ids, "name": [f"n{each}" for each in ids]}), folder / f"{number}.parquet")
    return FileSource(folder, format="parquet")


def test_schema_and_columns(files: FileSource) -> None:
    stream = ENVIRONMENT.from_source(files).with_column("half", col("id") / 2).drop("name")
    assert stream.schema == pa.schema({"id": pa.int64(), "half": pa.float64()})
    assert stream.columns == ["id", "half"]
    assert stream.deduplicate("id").columns == ["id", "half"]


def test_rows_are_those_of_the_files(files: FileSource) -> None:
    stream = ENVIRONMENT.from_source(files)
    found = stream.filter(col("id") >= 150).select("id").to_arrow()
    assert sorted(found["id"].to_pylist()) == list(range(150, 300))
    assert stream.union(stream.select("name", "id")).to_arrow().num_rows == 600
    assert stream.to_pandas().shape == (300, 2)
    assert stream.to_polars(5).columns == ["id", "name"]
    assert stream.to_duckdb(limit=5).aggregate("count(*)").fetchone() == (5,)


def test_head_reads_no_more_files_than_it_needs(files: FileSource) -> None:
    last = Path(files.path, "2.parquet")
    # The footer stays, the pages before it are gone.
    last.write_bytes(bytes(b"PAR1".ljust(400, b"?")) + last.read_bytes()[400:])
    stream = ENVIRONMENT.from_source(files)
    assert sorted(stream.head(200)["id"].to_pylist()) == list(range(200))
    with pytest.raises(SourceError, match=r"2\.parquet"):
        stream.to_arrow()


def test_an_empty_result_has_its_columns(files: FileSource) -> None:
    found = ENVIRONMENT.from_source(files).filter(col("id") < 0).to_arrow()
    assert (found.num_rows, found.column_names) == (0, ["id", "name"])


def test_a_watched_folder_gives_what_is_there(files: FileSource) -> None:
    watched = FileSource(files.path, format="parquet", bounded=False, max_files_per_epoch=1)
    assert ENVIRONMENT.from_source(watched).to_arrow().num_rows == 300


def test_rows_of_several_epochs_and_markers(files: FileSource) -> None:
    assert ENVIRONMENT.from_source(MemorySource([{"id": 1}, {"id": 2}], rows_per_epoch=1)).to_arrow().num_rows == 2
    bounded = FileSource(files.path, format="parquet", max_files_per_epoch=1)
    assert ENVIRONMENT.from_source(bounded).to_arrow().num_rows == 300
    # EOF ends an epoch.
    marked = MemorySource([{"id": 1}, EOF, {"id": 2}])
    assert ENVIRONMENT.from_source(marked).to_arrow()["id"].to_pylist() == [1, 2]


def test_show_prints_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"id": 1, "name": "[bold]ä"}, {"id": 20, "name": None}, {"id": 3, "name": "x"}]
    ENVIRONMENT.from_source(MemorySource(rows)).show(2)
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines() if line.strip()]
    assert [line.split() for line in lines] == [
        ["id", "name"],
        ["int64", "string"],
        [lines[2].strip()],
        ["1", "[bold]ä"],
        ["20", "null"],
    ]


def test_a_step_that_fails_shows_the_row() -> None:
    stream = ENVIRONMENT.from_source(MemorySource([{"id": 1}, {"id": 0}])).select(left=col("id") % col("id"))
    with pytest.raises(VolleyError, match="division by zero") as raised:
        stream.to_arrow()
    assert 'row 2: the row {"id": 0}' in str(raised.value)


class Ticks(SparkSource):
    bounded = False
    identity = "ticks"

    def load(self, spark: Any) -> Any:
        return spark.readStream.format("rate").load()


@pytest.mark.parametrize(
    ("draw", "error", "message"),
    [
        (lambda _: ENVIRONMENT.from_source(Ticks()).head(), PlanError, "only Spark can read"),
        (lambda _: ENVIRONMENT.from_source(Ticks()).schema, PlanError, "only Spark can read"),
        (lambda stream: stream.head(0), ConfigError, "rows 0"),
        (lambda stream: stream.to_arrow(-1), ConfigError, "limit -1"),
        (lambda stream: stream.select("idd").head(), ExpressionError, "'idd'"),
        (lambda stream: stream.select("idd").schema, ExpressionError, "'idd'"),
        (lambda _: ENVIRONMENT.from_source(FileSource("/nowhere", format="parquet")).head(), SourceError, "/nowhere"),
    ],
)
def test_what_is_not_possible_has_its_reason(draw: Any, error: type[VolleyError], message: str) -> None:
    with pytest.raises(error, match=message):
        draw(ENVIRONMENT.from_source(MemorySource([{"id": 1}])))


def gross(stream: DataStream) -> DataStream:
    return stream.filter(col("price") > 0).select("id", gross=col("price") * 1.5)


def test_a_pipeline_runs_over_given_rows(tmp_path: Path) -> None:
    config = IcebergSinkConfig(namespace="db", table="t", storage=IcebergStorage.Local(str(tmp_path / "lake")))
    orders = ENVIRONMENT.from_source(FileSource("/data/orders", format="parquet")).pipe(gross)
    rows = [{"id": 1, "price": 2.0}, {"id": 2, "price": None}]
    assert testing.run(orders, rows) == [{"id": 1, "gross": 3.0}]
    assert testing.run(orders.to_sink(IcebergSink(config)), rows) == [{"id": 1, "gross": 3.0}]
    assert testing.run(orders, pa.table({"id": [1], "price": [4]})) == [{"id": 1, "gross": 6.0}]
    assert not (tmp_path / "lake").exists()


def test_given_rows_have_the_types_of_the_source() -> None:
    kafka = ENVIRONMENT.from_source(KafkaSource("nowhere:9092", "t", schema="id int, at timestamp", include=["key"]))
    rows = [{"id": 1, "at": datetime(2024, 1, 1)}]
    assert testing.run(kafka.select(i=col("id") + 1), rows) == [{"i": 2}]
    with pytest.raises(VolleyError, match="at"):
        testing.run(kafka, [{"id": 1, "at": "yesterday"}])
    # A column that the schema lacks, such as the key: the types are those of the values.
    assert testing.run(kafka.select("id", "key"), [{"id": 1, "key": b"k"}]) == [{"id": 1, "key": b"k"}]


def test_several_sources_get_rows_of_their_own() -> None:
    first, second = (ENVIRONMENT.from_source(FileSource(f"/{name}", format="parquet")) for name in "ab")
    both = first.filter(col("id") > 1).union(second).with_column("twice", col("id") * 2)
    found = testing.run(both, [{"id": 1}, {"id": 2}], [{"id": 0}])
    assert found == [{"id": 2, "twice": 4}, {"id": 0, "twice": 0}]
    with pytest.raises(PlanError, match="2 sources, and rows for 1"):
        testing.run(both, [])
    with pytest.raises(ConfigError, match="takes a pipeline"):
        testing.run([{"id": 1}])  # type: ignore[arg-type]


def test_a_stream_has_200_steps_at_most(capsys: pytest.CaptureFixture[str]) -> None:
    stream = Environment().from_source(MemorySource([{"n": 0}]))
    for _ in range(199):
        stream = stream.with_column("n", col("n") + 1)
    longest = stream.filter_expr(col("n") > 0)
    assert longest.to_arrow().to_pylist() == [{"n": 199}]
    longest.explain()
    assert capsys.readouterr().out.count("with_column 'n'") == 199
    with pytest.raises(PlanError, match=r"more than 200 steps\n.*with_columns"):
        longest.drop("n")
