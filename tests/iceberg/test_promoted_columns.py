"""Columns that were dates, or unknown, when older files were written are read, filtered and rewritten by value."""

from __future__ import annotations

import json
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import DateType, LongType, NestedField, StructType, UnknownType

from volley import Environment, IcebergStorage, MemorySource, SchemaEvolution, col
from volley.iceberg import (
    Delete,
    IcebergSink,
    IcebergSinkConfig,
    IcebergSource,
    IcebergSourceConfig,
    IcebergTable,
    Insert,
    TableRef,
    Update,
    Upsert,
    changes_between,
)
from volley.types.arrow import arrow_type

pytestmark = pytest.mark.usefixtures("spark")

DAYS = [date(1969, 12, 31), date(2024, 2, 29), None]


@pytest.fixture(params=["timestamp", "timestamp_ns"])
def ref(request: pytest.FixtureRequest, tmp_path: Path) -> TableRef:
    """A table of dates, one in each file, whose columns were promoted; no library that is known does it."""
    made = TableRef("db", "events", IcebergStorage.Local(str(tmp_path / "lake")))
    schema = Schema(
        NestedField(1, "id", LongType(), required=False),
        NestedField(2, "at", DateType(), required=False),
        NestedField(3, "inner", StructType(NestedField(4, "at", DateType(), required=False)), required=False),
    )
    with made.load_catalog() as catalog:
        catalog.create_namespace("db")
        table = catalog.create_table("db.events", schema, properties={"format-version": "2"})
        for number, day in enumerate(DAYS):
            rows = [{"id": number, "at": day, "inner": {"at": day}}]
            table.append(pa.Table.from_pylist(rows, table.schema().as_arrow()))
    place = Path(table.metadata_location.removeprefix("file://"))
    metadata = json.loads(place.read_text())
    metadata |= {"format-version": 3, "next-row-id": len(DAYS)}
    for number, snapshot in enumerate(metadata["snapshots"]):
        snapshot |= {"first-row-id": number, "added-rows": 1}
    fields = metadata["schemas"][0]["fields"]
    fields[1]["type"] = fields[2]["type"]["fields"][0]["type"] = request.param
    place.write_text(json.dumps(metadata))
    return made


def rows_of(ref: TableRef) -> list[tuple[Any, Any, Any]]:
    rows = IcebergTable(ref).to_arrow().sort_by("id")
    inner = rows["inner"].combine_chunks().field("at")
    assert rows["at"].type == inner.type
    at, within = (values.cast(pa.timestamp("us")).to_pylist() for values in (rows["at"], inner))
    return list(zip(rows["id"].to_pylist(), at, within, strict=True))


EXPECTED = [(i, *[day and datetime(day.year, day.month, day.day)] * 2) for i, day in enumerate(DAYS)]


def test_dates_are_read_as_midnights(ref: TableRef) -> None:
    assert rows_of(ref) == EXPECTED
    IcebergTable(ref).compact(rewrite_all=True)
    assert rows_of(ref) == EXPECTED


@pytest.mark.parametrize("strategy", ["merge_on_read", "copy_on_write"])
def test_upserts_find_what_were_dates(ref: TableRef, tmp_path: Path, strategy: Any) -> None:
    kind = {"timestamp": "timestamp_ntz", "timestamp_ns": "timestamp_ntz(9)"}[
        str(ref.load().schema().fields[1].field_type)
    ]
    midnight, later, march = datetime(2024, 2, 29), datetime(2024, 2, 29, 1), datetime(2024, 3, 1)
    steps = [
        ("at", [{"id": 10, "at": midnight, "inner": None}, {"id": 11, "at": later, "inner": {"at": later}}]),
        ("id", [{"id": 0, "at": march, "inner": None}]),
    ]
    for number, (key, rows) in enumerate(steps):
        config = IcebergSinkConfig.from_table(ref).with_commit_mode(Upsert([key], strategy=strategy))
        source = MemorySource(rows, schema=f"id long, at {kind}, inner struct<at: {kind}>")
        environment = Environment(checkpoint_dir=str(tmp_path / f"checkpoints-{number}"))
        environment.from_source(source).to_sink(IcebergSink(config)).execute(f"job {number}")
    expected = [(0, march, None), (2, None, None), (10, midnight, None), (11, later, later)]
    assert rows_of(ref) == expected
    changes = [*changes_between(ref, None)]
    inserted = {each.row["id"]: each.row["at"] for each in changes if isinstance(each, Insert)}
    assert inserted == {**dict(enumerate([datetime(1969, 12, 31), midnight, None])), 10: midnight, 11: later}
    assert [each.row["at"] for each in changes if isinstance(each, Delete)] == [midnight]
    updates = [(each.before["at"], each.after["at"]) for each in changes if isinstance(each, Update)]
    assert updates == [(datetime(1969, 12, 31), march)]
    stream = Environment().from_source(IcebergSource(IcebergSourceConfig(ref))).to_arrow().sort_by("id")
    assert stream["at"].cast(pa.timestamp("us")).to_pylist() == [at for _, at, _ in expected]
    IcebergTable(ref).compact(rewrite_all=True, sort_by=["at desc"])
    assert rows_of(ref) == expected


@pytest.mark.parametrize(
    ("predicate", "ids"),
    [
        (col("at") == datetime(2024, 2, 29), [1]),
        (col("at") < datetime(1970, 1, 1), [0]),
        ("at > '1969-12-31 00:00:00.000001'", [1]),
        (col("at").is_null(), [2]),
        (col("at").dt.year() == 1969, [0]),
    ],
)
def test_bounds_of_dates_leave_out_no_row(ref: TableRef, predicate: Any, ids: list[int]) -> None:
    assert IcebergTable(ref).rows.filter(predicate).to_arrow()["id"].to_pylist() == ids


@pytest.mark.parametrize("data_type", ["int", "string", "timestamp(9)"])
def test_unknown_columns_become_any_plain_type(tmp_path: Path, data_type: str) -> None:
    table = IcebergSinkConfig(namespace="db", table="events", storage=IcebergStorage.Local(str(tmp_path / "lake")))
    table = table.with_table_properties({"format-version": "3"}).with_schema_evolution("full")

    def write(number: int, rows: pa.Table, schema: str) -> None:
        environment = Environment(checkpoint_dir=str(tmp_path / f"checkpoints-{number}"))
        environment.from_source(MemorySource(rows, schema=schema)).to_sink(IcebergSink(table)).execute(f"job {number}")

    write(1, pa.table({"id": [1]}), "id long")
    SchemaEvolution(table.ref.load().schema()).add("u", UnknownType()).apply(table.ref)
    write(2, pa.table({"id": [2]}), "id long")
    values = pa.nulls(2, arrow_type(data_type))
    write(3, pa.table({"id": [3, 4], "u": values}), f"id long, u {data_type}")
    rows = IcebergTable(table.ref).to_arrow().sort_by("id")
    assert rows["u"].type == arrow_type(data_type)
    assert rows["u"].null_count == 4
    assert table.ref.load().scan().to_arrow()["u"].null_count == 4
