"""Tables written by Volley are read back, value by value, by readers that others wrote."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.servers.iceberg_spark import IcebergSpark
from tests.services.every_type import ROWS, SCHEMA, in_order
from tests.services.readers import READERS, Lake, Reader, by_spark
from volley import Environment, FileSource, IcebergSink, MemorySource


@pytest.fixture(scope="module")
def lake(
    spark: SparkSession,
    iceberg_spark: IcebergSpark,
    tmp_path_factory: pytest.TempPathFactory,
) -> Lake:
    """The table ``events`` with all types, ``spark_events`` without the one Spark lacks, and ``letters``."""
    folder = tmp_path_factory.mktemp("readers")
    environment = Environment(spark=spark, checkpoint_dir=str(folder / "checkpoints"))
    made = Lake(folder / "lake", iceberg_spark)
    (folder / "lake").mkdir()
    rows = pa.Table.from_pylist(ROWS, schema=SCHEMA)
    made.write(environment, "events", rows)
    # Spark has no type for the time of a day.
    made.write(environment, "spark_events", rows.drop_columns("clock"))
    return made


@pytest.fixture(autouse=True)
def planner(monkeypatch: pytest.MonkeyPatch) -> None:
    """Polars' native reader plans its scans by pyiceberg: its own planner is another package."""
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")


@pytest.fixture(scope="module")
def letters(spark: SparkSession, iceberg_spark: IcebergSpark, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A table of dead letters."""
    folder = tmp_path_factory.mktemp("letters")
    (folder / "in.json").write_text('{"id": 1}\nnot json ☃\n{"id": "two"}\n')
    made = Lake(folder / "lake", iceberg_spark)
    config = made.config("events").with_dead_letter("letters")
    environment = Environment(spark=spark, checkpoint_dir=str(folder / "checkpoints"))
    source = FileSource(str(folder / "in.json"), schema="id long")
    environment.from_source(source).to_sink(IcebergSink(config)).execute("job")
    return made


@pytest.fixture(scope="module")
def evolved(spark: SparkSession, iceberg_spark: IcebergSpark, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A table with rows of two schemas."""
    folder = tmp_path_factory.mktemp("evolved")
    made = Lake(folder / "lake", iceberg_spark)
    environment = Environment(spark=spark, checkpoint_dir=str(folder / "checkpoints"))
    full = made.config("evolved").with_schema_evolution("full", {"label": "name", "in.x": "y"}, ["note"])
    for name, config, rows in (("old", made.config("evolved"), OLD), ("new", full, NEW)):
        environment.from_source(MemorySource(rows)).to_sink(IcebergSink(config)).execute(name)
    return made


OLD = pa.table(
    {
        "id": pa.array([1, 2], pa.int32()),
        "label": ["a", None],
        "price": pa.array([Decimal("1.50"), None], pa.decimal128(5, 2)),
        "real": pa.array([0.5, None], pa.float32()),
        "in": pa.array([{"x": 1}, None], pa.struct({"x": pa.int32()})),
        "all": pa.array([[{"x": 1}], []], pa.list_(pa.struct({"x": pa.int32()}))),
        "note": ["gone", "gone"],
    }
)
NEW = pa.table(
    {
        "id": pa.array([2**40]),
        "name": ["b"],
        "price": pa.array([Decimal("12345678.25")], pa.decimal128(12, 2)),
        "real": [0.1],
        "in": [{"y": 2**40, "z": "new"}],
        "all": [[{"x": 2**40, "z": "new"}]],
    }
)
SHOWN = [
    {
        "id": 1,
        "name": "a",
        "price": Decimal("1.50"),
        "real": 0.5,
        "in": {"y": 1, "z": None},
        "all": [{"x": 1, "z": None}],
    },
    {"id": 2, "name": None, "price": None, "real": None, "in": None, "all": []},
    *NEW.to_pylist(),
]


@pytest.mark.parametrize("read", READERS)
def test_every_value_of_every_type_is_read_back(lake: Lake, read: Reader) -> None:
    table = "spark_events" if read is by_spark else "events"
    columns = lake.table(table).schema().column_names
    found, expected = in_order(read(lake, table)), in_order(ROWS)
    for got, want in zip(found, expected, strict=True):
        for name in SCHEMA.names:
            if name in columns:
                assert got[name] == want[name], (name, got["id"])
    assert len(lake.table(table).snapshots()) == 3


@pytest.mark.parametrize("read", READERS)
def test_dead_letters_are_read_back(letters: Lake, read: Reader) -> None:
    found = sorted(read(letters, "letters"), key=lambda row: str(row["payload"]))
    assert [row["payload"] for row in found] == ["not json ☃", '{"id": "two"}']
    assert all(row["error"] and row["job"] == "job" and row["epoch"] == 0 for row in found)


@pytest.mark.parametrize("read", READERS)
def test_rows_of_an_old_schema_are_read_under_the_new_one(evolved: Lake, read: Reader) -> None:
    assert in_order(read(evolved, "evolved")) == in_order(SHOWN)
    assert len(evolved.table("evolved").snapshots()) == 2
