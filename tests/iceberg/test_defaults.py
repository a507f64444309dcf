"""Defaults of columns: old rows have them, rows without the column get them, and every rewrite keeps them."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest

from tests.sinks import config_of
from volley import (
    ConfigError,
    Environment,
    MemorySource,
    SchemaEvolution,
    SchemaMismatchError,
    Upsert,
    col,
)
from volley.iceberg import IcebergSink, IcebergSinkConfig, IcebergTable

pytestmark = pytest.mark.usefixtures("spark")

DEFAULTS: dict[str, tuple[Any, Any]] = {
    "boolean": (True, True),
    "int": (-7, -7),
    "long": (2**40, 2**40),
    "float": (0.5, 0.5),
    "double": (1e300, 1e300),
    "string": ("é\"'", "é\"'"),
    "binary": (b"\x00\xff", "00ff"),
    "date": (date(1969, 12, 31), "1969-12-31"),
    "time": (time(1, 2, 3, 4), "01:02:03.000004"),
    "timestamp": (datetime(2024, 1, 1, 0, 0, 0, 1, tzinfo=UTC), "2024-01-01T00:00:00.000001+00:00"),
    "timestamp_ntz": (datetime(1969, 12, 31, 23, 59, 59, 999_999), "1969-12-31T23:59:59.999999"),
    "decimal(10,2)": (Decimal("-1.50"), "-1.50"),
    "uuid": (UUID(int=5), str(UUID(int=5))),
}


def made(folder: Path, version: str = "3") -> IcebergSinkConfig:
    table = config_of(folder)
    table = table.with_table_properties({"format-version": version})
    write(folder, table, [{"id": 1, "inner": {"a": 1}, "items": [{"a": 1}, None], "by": {"k": {"a": 1}}}])
    return table


SCHEMA = "id long, inner struct<a: long>, items array<struct<a: long>>, by map<string, struct<a: long>>"


def write(folder: Path, table: IcebergSinkConfig, rows: Any, schema: str = SCHEMA) -> None:
    number = sum(1 for _ in folder.iterdir())
    environment = Environment(checkpoint_dir=str(folder / f"checkpoints-{number}"))
    environment.from_source(MemorySource(rows, schema=schema)).to_sink(IcebergSink(table)).execute(f"job {number}")


def rows_of(table: IcebergSinkConfig) -> list[dict[str, Any]]:
    """Return the rows as Volley reads them, which are those that pyiceberg reads."""
    rows: list[dict[str, Any]] = IcebergTable(table.ref).to_arrow().sort_by("id").to_pylist(maps_as_pydicts="strict")
    others = table.ref.load().scan().to_arrow().sort_by("id").to_pylist(maps_as_pydicts="strict")
    # pyiceberg reads a null list or map that is cast as an empty one.
    assert [row | {"items": row["items"] or [], "by": row["by"] or {}} for row in rows] == [
        row | {"items": row["items"] or [], "by": row["by"] or {}} for row in others
    ]
    return rows


def test_every_type_has_defaults_as_the_specification_writes_them(tmp_path: Path) -> None:
    table = made(tmp_path)
    evolution = SchemaEvolution(table.ref.load().schema())
    for number, (name, (default, _)) in enumerate(DEFAULTS.items()):
        evolution = evolution.add(f"c{number}", name, default=default, required=bool(number % 2))
    evolution.apply(table.ref)
    metadata = json.loads(Path(table.ref.load().metadata_location.removeprefix("file://")).read_text())
    schema = next(each for each in metadata["schemas"] if each["schema-id"] == metadata["current-schema-id"])
    fields = {field["name"]: field for field in schema["fields"]}
    written = [(fields[f"c{n}"]["initial-default"], fields[f"c{n}"]["write-default"]) for n in range(len(DEFAULTS))]
    assert written == [(text, text) for _, text in DEFAULTS.values()]
    write(tmp_path, table, [{"id": 2}])
    values = [value for value, _ in DEFAULTS.values()]
    for row in rows_of(table):
        assert [row[f"c{number}"] for number in range(len(values))] == values
    assert rows_of(table)[1]["inner"] is None


@pytest.mark.parametrize("strategy", ["merge_on_read", "copy_on_write"])
def test_nanoseconds_have_defaults_with_all_digits(tmp_path: Path, strategy: Any) -> None:
    table = made(tmp_path)
    evolution = SchemaEvolution(table.ref.load().schema())
    evolution = evolution.add("at", "timestamp(9)", default="2024-01-01T00:00:00.123456789Z", required=True)
    evolution.add("wall", "timestamp_ntz(9)", default=datetime(1969, 12, 31, 23, 59, 59, 999_999)).apply(table.ref)
    metadata = json.loads(Path(table.ref.load().metadata_location.removeprefix("file://")).read_text())
    written = [field.get("initial-default") for field in metadata["schemas"][-1]["fields"][-2:]]
    assert written == ["2024-01-01T00:00:00.123456789+00:00", "1969-12-31T23:59:59.999999000"]
    write(tmp_path, table, [{"id": 2}])
    number = 1_704_067_200_123_456_789
    rows = IcebergTable(table.ref).rows
    assert rows.filter("at = '2024-01-01 00:00:00.123456789Z'").to_arrow().num_rows == 2
    assert rows.filter("at = '2024-01-01 00:00:00.123456788Z'").to_arrow().num_rows == 0
    # The key of an upsert is the default of rows that have none.
    upserts = table.with_commit_mode(Upsert(["at"], strategy=strategy))
    given = pa.table({"id": [3, 4], "at": pa.array([number, number + 1], pa.timestamp("ns", "UTC"))})
    write(tmp_path, upserts, given, "id long, at timestamp(9)")
    for compacted in (False, True):
        if compacted:
            IcebergTable(table.ref).compact(rewrite_all=True)
        found = IcebergTable(table.ref).to_arrow().sort_by("id").select(["id", "at", "wall"])
        numbers = [found[name].cast(pa.int64()).to_pylist() for name in ("id", "at", "wall")]
        assert numbers == [[3, 4], [number, number + 1], [-1_000, -1_000]]


def evolved(folder: Path) -> IcebergSinkConfig:
    table = made(folder)
    evolution = SchemaEvolution(table.ref.load().schema()).add("c", "int", default=5)
    for path in ("inner", "items.element", "by.value"):
        evolution = evolution.add(f"{path}.b", "string", default="q")
    evolution.apply(table.ref)
    return table


_FULL = {"inner": {"a": 1, "b": "q"}, "items": [{"a": 1, "b": "q"}, None], "by": {"k": {"a": 1, "b": "q"}}, "c": 5}


def test_fields_in_structs_lists_and_maps(tmp_path: Path) -> None:
    table = evolved(tmp_path)
    row = {"inner": {"a": 1}, "items": [{"a": 1}, None], "by": {"k": {"a": 1}}}
    write(tmp_path, table, [{"id": 2, **row}, {"id": 3, "items": []}])
    nothing: dict[str, Any] = {"inner": None, "items": [], "by": None, "c": 5}
    assert rows_of(table) == [{"id": 1, **_FULL}, {"id": 2, **_FULL}, {"id": 3, **nothing}]
    given = "id long, inner struct<a: long, b: string>, c int"
    write(tmp_path, table, [{"id": 4, "inner": {"a": 1, "b": None}, "c": 6}], given)
    assert rows_of(table)[3] == {"id": 4, "inner": {"a": 1, "b": None}, "items": None, "by": None, "c": 6}


def test_upserts_and_compactions_keep_them(tmp_path: Path) -> None:
    table = evolved(tmp_path)
    upserts = table.with_commit_mode(Upsert(["id"]))
    write(tmp_path, upserts, [{"id": 2}], "id long")
    write(tmp_path, upserts, [{"id": 1, "c": 7}], "id long, c int")
    nothing: dict[str, Any] = {"inner": None, "items": None, "by": None}
    expected = [{"id": 1, **nothing, "c": 7}, {"id": 2, **nothing, "c": 5}]
    assert rows_of(table) == expected
    SchemaEvolution(table.ref.load().schema()).rename("c", "d").update_type("d", "long").apply(table.ref)
    IcebergTable(table.ref).compact(rewrite_all=True)
    write(tmp_path, table, [{"id": 3}], "id long")
    assert [row["d"] for row in rows_of(table)] == [7, 5, 5]


@pytest.mark.parametrize(("predicate", "ids"), [("c = 5", [1]), ("c is null", []), (col("c") > 5, [2])])
def test_filters_see_the_defaults_of_old_rows(tmp_path: Path, predicate: Any, ids: list[int]) -> None:
    table = evolved(tmp_path)
    write(tmp_path, table, [{"id": 2, "c": 6}], "id long, c int")
    assert IcebergTable(table.ref).rows.filter(predicate).to_arrow()["id"].to_pylist() == ids


def test_version_2_is_refused_by_name(tmp_path: Path) -> None:
    table = made(tmp_path, "2")
    with pytest.raises(SchemaMismatchError, match=r"'c': a default needs format version 3.*upgrade\(3\)"):
        SchemaEvolution(table.ref.load().schema()).add("c", "int", default=5).apply(table.ref)


@pytest.mark.parametrize(
    ("data_type", "default"),
    [
        ("int", "x"),
        ("int", 2**31),
        ("int", 1.5),
        ("int", True),
        ("boolean", 1),
        ("double", float("nan")),
        ("array<int>", [1]),
        ("timestamp(9)", 1),
        ("timestamp(9)", "yesterday"),
        ("timestamp_ntz(9)", datetime(2300, 1, 1)),
    ],
)
def test_defaults_that_are_no_values_are_refused(data_type: str, default: Any) -> None:
    with pytest.raises(ConfigError, match="default"):
        SchemaEvolution("id long").add("c", data_type, default=default)


def test_required_columns_need_a_default() -> None:
    with pytest.raises(ConfigError, match="'c' is required and has no default"):
        SchemaEvolution("id long").add("c", "int", required=True)


@pytest.mark.parametrize("dialect", ["spark", "trino"])
def test_no_dialect_says_a_default(dialect: str) -> None:
    with pytest.raises(SchemaMismatchError, match="can't add a column with a default"):
        SchemaEvolution("id long").add("c", "int", default=1).to_sql("db.t", dialect)
