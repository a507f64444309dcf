"""Tables written by Volley are read back, value by value, by readers that others wrote."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import UUIDType
from pyspark.sql import SparkSession

from tests.services.readers import READERS, Lake, Reader, by_spark, in_order
from volley import Environment, FileSource, IcebergSink, MemorySource
from volley.iceberg.schema import to_iceberg_schema

_INSTANT, _MOMENT = pa.timestamp("us", "UTC"), pa.timestamp("us")
_LEAF = pa.struct({"a": pa.int32(), "b": pa.string()})
_INNER = pa.struct({"day": pa.date32(), "prices": pa.map_(pa.string(), pa.decimal128(5, 2))})
SCHEMA = pa.schema(
    {
        "id": pa.int64(),
        "flag": pa.bool_(),
        "small": pa.int32(),
        "real": pa.float32(),
        "double": pa.float64(),
        "money": pa.decimal128(38, 9),
        "cents": pa.decimal128(9, 2),
        "units": pa.decimal128(18, 3),
        "day": pa.date32(),
        "clock": pa.time64("us"),
        "moment": _MOMENT,
        "instant": _INSTANT,
        "text": pa.string(),
        "uuid": pa.binary(16),
        "fixed": pa.binary(4),
        "raw": pa.binary(),
        "numbers": pa.list_(pa.int64()),
        "deep": pa.list_(pa.list_(_LEAF)),
        "map": pa.map_(pa.string(), pa.list_(pa.int64())),
        "struct": pa.struct({"x": pa.float64(), "when": _INSTANT, "inner": _INNER}),
    }
)
NULLS: dict[str, Any] = dict.fromkeys(SCHEMA.names)
FULL = {
    "id": 1,
    "flag": True,
    "small": -(2**31),
    "real": 1.5,
    "double": float("-inf"),
    "money": Decimal("-12345678901234567890123456789.123456789"),
    "cents": Decimal("-9999999.99"),
    "units": Decimal("999999999999999.001"),
    "day": dt.date(1583, 10, 15),
    "clock": dt.time(23, 59, 59, 999999),
    "moment": dt.datetime(1969, 12, 31, 23, 59, 59, 999999),
    "instant": dt.datetime(1900, 1, 1, 0, 0, 0, 1, dt.UTC),
    "text": "naïve ☃ 𝄞\n\"'",
    "uuid": UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7").bytes,
    "fixed": b"\x00\xff\x00\x01",
    "raw": b"\x00raw\xff",
    "numbers": [2**63 - 1, None, -(2**63)],
    "deep": [[{"a": 1, "b": "one"}, None, {"a": None, "b": None}], None, []],
    "map": [("full", [1, None]), ("empty", []), ("null", None)],
    "struct": {
        "x": 0.1,
        "when": dt.datetime(2262, 4, 11, tzinfo=dt.UTC),
        "inner": {"day": dt.date(1969, 12, 31), "prices": [("tea", Decimal("2.50")), ("none", None)]},
    },
}
ROWS = [
    FULL,
    NULLS | {"id": 2},
    NULLS | {"id": 3, "text": "", "raw": b"", "numbers": [], "deep": [], "map": []},
    NULLS | {"id": 4, "struct": {"x": None, "when": None, "inner": None}},
    NULLS | {"id": 5, "struct": {"x": None, "when": None, "inner": {"day": None, "prices": None}}},
    FULL | {"id": 6, "day": dt.date(9999, 12, 31), "double": -0.0, "flag": False, "small": 2**31 - 1},
]


def write(lake: Lake, environment: Environment, name: str, rows: pa.Table) -> None:
    """Two rows an epoch into a table whose column ``uuid`` is one."""
    catalog = lake.catalog()
    catalog.create_namespace_if_not_exists("db")
    catalog.create_table(f"db.{name}", _with_uuid(to_iceberg_schema(rows.schema)))
    source = MemorySource(rows, rows_per_epoch=2)
    environment.from_source(source).to_sink(IcebergSink(lake.config(name))).execute(name)


def _with_uuid(schema: Schema) -> Schema:
    made = [
        field.model_copy(update={"field_type": UUIDType()}) if field.name == "uuid" else field
        for field in schema.fields
    ]
    return Schema(*made)


@pytest.fixture(scope="module", params=[True, False], ids=["arrow-native", "general"])
def lake(request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """The table ``events`` with all types, ``spark_events`` without the one Spark lacks, and ``letters``."""
    folder = tmp_path_factory.mktemp("readers")
    environment = Environment(spark=spark, checkpoint_dir=str(folder / "checkpoints"), arrow_native=request.param)
    made = Lake(folder / "lake")
    (folder / "lake").mkdir()
    rows = pa.Table.from_pylist(ROWS, schema=SCHEMA)
    # Spark has no type for the time of a day, so neither has the general path.
    spark_rows = rows.drop_columns("clock")
    write(made, environment, "events", rows if request.param else spark_rows)
    write(made, environment, "spark_events", spark_rows)
    return made


@pytest.fixture(autouse=True)
def planner(monkeypatch: pytest.MonkeyPatch) -> None:
    """Polars' native reader plans its scans by pyiceberg: its own planner is another package."""
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")


@pytest.fixture(scope="module")
def letters(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A table of dead letters."""
    folder = tmp_path_factory.mktemp("letters")
    (folder / "in.json").write_text('{"id": 1}\nnot json ☃\n{"id": "two"}\n')
    made = Lake(folder / "lake")
    config = made.config("events").with_dead_letter("letters")
    environment = Environment(spark=spark, checkpoint_dir=str(folder / "checkpoints"))
    source = FileSource(str(folder / "in.json"), schema="id long")
    environment.from_source(source).to_sink(IcebergSink(config)).execute("job")
    return made


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
