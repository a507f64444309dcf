"""Tables with variants, geometries and geographies: read, written and kept, judged by DuckDB and by their files."""

from __future__ import annotations

import json
import struct
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import DataFile, ManifestContent
from pyiceberg.schema import Schema
from pyiceberg.types import GeographyType, GeometryType, ListType, LongType, NestedField, StringType, StructType

from tests.duck import query
from tests.upserts.lake import Lake
from volley import ConfigError, SchemaMismatchError, SourceError, col
from volley.iceberg import Append, IcebergTable, SchemaEvolution, Upsert
from volley.iceberg.modes import CommitMode
from volley.iceberg.schema.foreign_types import VariantType
from volley.types.arrow import arrow_schema

TEXTS = pa.schema({"id": pa.int64(), "v": pa.string()})
VALUES = ['{"a":1,"b":["x",null,1.50]}', None, "null", '"text"', "[]", '{"c":{"d":true}}']


def table_of(lake: Lake, *fields: NestedField) -> IcebergTable:
    ref = lake.config.ref
    with ref.load_catalog() as catalog:
        catalog.create_namespace_if_not_exists("db")
        schema = Schema(NestedField(1, "id", LongType(), required=False), *fields)
        catalog.create_table("db.events", schema, properties={"format-version": "3"})
    return IcebergTable(ref)


def variants(folder: Path, mode: CommitMode, schema: pa.Schema = TEXTS) -> tuple[Lake, IcebergTable]:
    lake = Lake(folder, mode, schema)
    return lake, table_of(lake, NestedField(2, "v", VariantType(), required=False))


def location(table: IcebergTable) -> str:
    return table.ref.load().metadata_location.removeprefix("file://")


def entries_of(table: IcebergTable) -> list[DataFile]:
    """The live data files; pyiceberg's own tables of metadata know no variants."""
    loaded = table.ref.load()
    snapshot = loaded.current_snapshot()
    assert snapshot is not None
    manifests = [manifest for manifest in snapshot.manifests(loaded.io) if manifest.content == ManifestContent.DATA]
    return [entry.data_file for manifest in manifests for entry in manifest.fetch_manifest_entry(loaded.io)]


def files_of(table: IcebergTable) -> list[pq.ParquetFile]:
    return [pq.ParquetFile(file.file_path.removeprefix("file://")) for file in entries_of(table)]


def stored(table: IcebergTable) -> dict[int, Any]:
    """The bytes of the variants, by the id of their row."""
    return {row["id"]: row["v"] for file in files_of(table) for row in file.read(["id", "v"]).to_pylist()}


def assert_rows(table: IcebergTable, expected: dict[int, str | None]) -> None:
    """Volley and DuckDB read these values; every file says that they are variants."""
    rows = table.to_arrow()
    assert rows.schema.field("v").type == pa.string()
    ours = {row["id"]: row["v"] for row in rows.to_pylist()}
    assert {key: parsed(value) for key, value in ours.items()} == {k: parsed(v) for k, v in expected.items()}
    theirs = query(f"select id, v::json::varchar from iceberg_scan('{location(table)}')").fetchall()
    # DuckDB shows a variant that is null like no variant.
    assert {key: parsed(value) for key, value in theirs} == {k: parsed(v or "null") for k, v in expected.items()}
    assert all(" v (Variant(1))" in str(file.schema) for file in files_of(table))


def parsed(text: str | None) -> Any:
    return text if text is None else (json.loads(text),)


def test_texts_become_variants_and_maintenance_keeps_their_bytes(tmp_path: Path) -> None:
    lake, table = variants(tmp_path, Append())
    for start in (0, 3):
        lake.epoch([{"id": start + n, "v": value} for n, value in enumerate(VALUES[start : start + 3])])
    expected = dict(enumerate(VALUES))
    assert_rows(table, expected)
    before = stored(table)
    assert table.compact(rewrite_all=True).files_after == 1
    assert table.compact(rewrite_all=True, sort_by=["id desc"]).files_after == 1
    assert stored(table) == before
    SchemaEvolution(table.ref.load().schema()).add("note", "string").rename("v", "value").apply(table.ref)
    assert sorted(table.to_arrow().schema.names) == ["id", "note", "value"]
    SchemaEvolution(table.ref.load().schema()).rename("value", "v").drop("note").apply(table.ref)
    assert table.compact(rewrite_all=True).files_after == 1
    assert stored(table) == before
    assert_rows(table, expected)
    assert table.rows.filter(col("v").is_null()).to_arrow()["id"].to_pylist() == [1]
    assert table.rows.filter(col("v") == '"text"').to_arrow()["id"].to_pylist() == [3]
    assert sorted(table.rows.filter("v is not null and id < 3").to_arrow()["id"].to_pylist()) == [0, 2]
    assert [file.null_value_counts[2] for file in entries_of(table)] == [1]


@pytest.mark.parametrize("strategy", ["copy_on_write", "merge_on_read"])
def test_upserts_keep_the_bytes_of_other_rows(strategy: Any, tmp_path: Path) -> None:
    lake, table = variants(tmp_path, Upsert("id", strategy=strategy))
    lake.epoch([{"id": n, "v": value} for n, value in enumerate(VALUES)])
    before = stored(table)
    lake.epoch([{"id": 0, "v": '{"new": 1}'}, {"id": 7, "v": "7"}], [{"id": 4, "v": None}])
    assert_rows(table, {**dict(enumerate(VALUES)), 0: '{"new":1}', 7: "7", 4: None})
    after = stored(table)
    assert all(after[key] == before[key] for key in (1, 2, 3, 5))


def test_incomplete_changes_keep_the_variant_that_they_leave_out(tmp_path: Path) -> None:
    schema = pa.schema(
        {**dict(zip(TEXTS.names, TEXTS.types, strict=True)), "n": pa.int64(), "lack": pa.list_(pa.string())}
    )
    lake = Lake(tmp_path, Upsert("id", unchanged_field="lack"), schema)
    lake_table = table_of(
        lake, NestedField(2, "v", VariantType(), required=False), NestedField(3, "n", LongType(), required=False)
    )
    lake.epoch([{"id": n, "v": value, "n": n} for n, value in enumerate(VALUES)])
    lake.epoch([{"id": 0, "n": 5, "lack": ["v"]}, {"id": 3, "v": "3", "lack": ["n"]}])
    assert_rows(lake_table, {**dict(enumerate(VALUES)), 3: "3"})
    assert lake_table.to_arrow().sort_by("id")["n"].to_pylist() == [5, 1, 2, 3, 4, 5]


def test_objects_become_variants_with_their_types(tmp_path: Path) -> None:
    schema = pa.schema({"id": pa.int64(), "v": pa.struct({"n": pa.int64(), "tags": pa.list_(pa.string())})})
    lake, table = variants(tmp_path, Append(), schema)
    lake.epoch([{"id": 1, "v": {"n": 5, "tags": ["a"]}}, {"id": 2, "v": None}, {"id": 3, "v": {"n": None, "tags": []}}])
    assert_rows(table, {1: '{"n":5,"tags":["a"]}', 2: None, 3: '{"n":null,"tags":[]}'})


def test_variants_in_lists_and_structs(tmp_path: Path) -> None:
    schema = arrow_schema("id long, list array<string>, inner struct<v: string, n: long>")
    lake = Lake(tmp_path, Upsert("id", strategy="copy_on_write"), schema)
    inner = StructType(
        NestedField(5, "v", VariantType(), required=False), NestedField(6, "n", LongType(), required=False)
    )
    table = table_of(
        lake,
        NestedField(2, "list", ListType(4, VariantType(), element_required=False), required=False),
        NestedField(3, "inner", inner, required=False),
    )
    rows: list[dict[str, Any]] = [
        {"id": 1, "list": ['{"a":1}', None, "2"], "inner": {"v": "[1]", "n": 1}},
        {"id": 2, "list": None, "inner": None},
        {"id": 3, "list": [], "inner": {"v": None, "n": 3}},
    ]
    lake.epoch(rows)
    lake.epoch([{"id": 2, "list": ["true"], "inner": None}])
    rows[1]["list"] = ["true"]
    assert table.to_arrow().sort_by("id").to_pylist() == rows
    scanned = f"iceberg_scan('{location(table)}')"
    (theirs,) = zip(*query(f"select list::json[]::varchar[] from {scanned} order by id").fetchall(), strict=True)
    assert theirs == (['{"a":1}', "null", "2"], ["true"], [])
    shown = str(files_of(table)[0].schema)
    assert shown.count("(Variant(1))") == 2


def test_what_is_no_json_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    lake, table = variants(tmp_path, Append())
    with pytest.raises(SourceError, match=r"column 'v': 'plain' is no JSON for a variant"):
        lake.epoch([{"id": 1, "v": "plain"}])
    assert table.ref.load().current_snapshot() is None


def test_a_number_does_not_fit_a_variant(tmp_path: Path) -> None:
    lake, _ = variants(tmp_path, Append(), pa.schema({"id": pa.int64(), "v": pa.int64()}))
    with pytest.raises(SchemaMismatchError, match="'v': the stream has long, the table variant"):
        lake.epoch([{"id": 1, "v": 1}])


def test_columns_are_added_by_the_name_of_their_type(tmp_path: Path) -> None:
    lake = Lake(tmp_path, Append(), TEXTS)
    table = table_of(lake, NestedField(2, "name", StringType(), required=False))
    SchemaEvolution(table.ref.load().schema()).add("v", "variant").add("p", "geometry(srid:3857)").apply(table.ref)
    lake.epoch([{"id": 1, "v": "[1]"}])
    assert_rows(table, {1: "[1]"})
    # DuckDB 1.5 reads no table with this type.
    SchemaEvolution(table.ref.load().schema()).add("g", "geography(EPSG:4326, karney)").apply(table.ref)
    types = [field["type"] for field in json.loads(Path(location(table)).read_text())["schemas"][-1]["fields"]]
    assert types == ["long", "string", "variant", "geometry(srid:3857)", "geography(EPSG:4326, karney)"]
    assert SchemaEvolution({"id": "int"}).add("v", "variant").to_sql("t") == "ALTER TABLE `t` ADD COLUMN `v` variant;"
    lake.epoch([{"id": 2, "v": "2"}])
    assert sorted(table.to_arrow()["v"].to_pylist()) == ["2", "[1]"]
    with pytest.raises(ConfigError, match="is no type of Iceberg"):
        SchemaEvolution({"id": "int"}).add("g", "geography(a, b, c)")


@pytest.mark.parametrize("strategy", ["copy_on_write", "merge_on_read"])
def test_types_of_tables_are_added_in_lists_maps_and_structs(strategy: Any, tmp_path: Path) -> None:
    schema = arrow_schema("id long, list array<string>, map map<string, string>, inner struct<v: string, g: binary>")
    lake = Lake(tmp_path, Upsert("id", strategy=strategy), schema)
    table = table_of(lake)
    evolution = SchemaEvolution(table.ref.load().schema()).add("list", "array<variant>")
    evolution = evolution.add("map", "map<string, variant>").add("inner", "struct<v: variant, g: geometry(EPSG:4326)>")
    evolution.apply(table.ref)
    rows: list[dict[str, Any]] = [
        {"id": 1, "list": ['{"a":1}', None], "map": [("k", '{"b":[1.50]}'), ("n", None)], "inner": None},
        {"id": 2, "list": None, "map": [], "inner": {"v": '"x"', "g": wkb(1, 2)}},
        {"id": 3, "list": [], "map": None, "inner": {"v": None, "g": None}},
    ]
    lake.epoch(rows[:2])
    lake.epoch([rows[2], {**rows[1], "list": ["true"]}])
    rows[1]["list"] = ["true"]
    assert table.to_arrow().sort_by("id").to_pylist() == rows
    assert table.compact(rewrite_all=True).files_after == 1
    assert table.to_arrow().sort_by("id").to_pylist() == rows
    scanned = f"iceberg_scan('{location(table)}')"
    shown = query(
        f'select list::json[]::varchar[], "map"[\'k\']::json::varchar, "inner".v::json::varchar from {scanned}'
    )
    # It shows a variant that is null like none.
    assert sorted(shown.fetchall(), key=repr) == [
        (["true"], "null", '"x"'),
        (['{"a":1}', "null"], '{"b":[1.50]}', "null"),
        ([], "null", "null"),
    ]
    for wrong, said in (
        ("map<variant, int>", "the keys of a map can't be variant"),
        ("array<varint>", "type 'varint'"),
    ):
        with pytest.raises(ConfigError, match=said):
            evolution.add("x", wrong)
    with pytest.raises(ConfigError, match="unknown type 'variant'") as refused:
        arrow_schema("v array<variant>")
    assert "SchemaEvolution(…).add(column, 'variant'); that of a stream is then a string" in str(refused.value.hint)


@pytest.mark.parametrize("strategy", ["copy_on_write", "merge_on_read"])
def test_a_column_without_values_gets_a_type_with_its_first_ones(strategy: Any, tmp_path: Path) -> None:
    lake = Lake(tmp_path, Upsert("id", strategy=strategy), pa.schema({"id": pa.int64()}))
    table = table_of(lake)
    lake.epoch([{"id": 1}])
    SchemaEvolution(table.ref.load().schema()).add("later", "unknown").add("s", "struct<u: unknown>").apply(table.ref)
    lake.epoch([{"id": 2}])
    lake.epoch([{"id": 1}])
    assert table.compact(rewrite_all=True).files_after == 1
    assert table.to_arrow().sort_by("id").to_pylist() == [{"id": n, "later": None, "s": None} for n in (1, 2)]
    lake.schema = pa.schema({"id": pa.int64(), "later": pa.date32()})
    lake.config = lake.config.with_schema_evolution("full")
    lake.epoch([{"id": 2, "later": date(2024, 2, 29)}, {"id": 3}])
    assert table.compact(rewrite_all=True).files_after == 1
    assert [row["later"] for row in table.to_arrow().sort_by("id").to_pylist()] == [None, date(2024, 2, 29), None]
    schema = table.ref.load().schema()
    assert str(schema.find_field("later").field_type) == "date"


def test_a_variant_needs_format_version_3(tmp_path: Path) -> None:
    lake = Lake(tmp_path, Append(), pa.schema({"id": pa.int64()}), **{"format-version": "2"})
    lake.epoch([{"id": 1}])
    with pytest.raises(SchemaMismatchError, match="variant needs format version 3, the table has 2"):
        SchemaEvolution(lake.config.ref.load().schema()).add("v", "variant").apply(lake.config.ref)


def wkb(x: float, y: float) -> bytes:
    return b"\x01\x01\x00\x00\x00" + struct.pack("<dd", x, y)


@pytest.mark.parametrize(
    "kind", [GeometryType(), GeometryType("EPSG:4326"), GeographyType("OGC:CRS84", "karney")], ids=str
)
@pytest.mark.parametrize("mode", [Append(), Upsert("id", strategy="copy_on_write")], ids=["append", "upsert"])
def test_shapes_are_bytes_with_their_reference(kind: Any, mode: CommitMode, tmp_path: Path) -> None:
    lake = Lake(tmp_path, mode, pa.schema({"id": pa.int64(), "g": pa.binary()}))
    table = table_of(lake, NestedField(2, "g", kind, required=False))
    shapes = {1: wkb(1, 2), 2: None, 3: wkb(-0.5, 90)}
    lake.epoch([{"id": 1, "g": shapes[1]}, {"id": 2, "g": None}])
    lake.epoch([{"id": 3, "g": shapes[3]}])
    for compacted in (False, True):
        if compacted:
            assert table.compact(rewrite_all=True).files_after == 1
        assert {row["id"]: row["g"] for row in table.to_arrow().to_pylist()} == shapes
        annotation = "Geometry" if isinstance(kind, GeometryType) else "Geography"
        assert all(f"binary field_id=2 g ({annotation}(" in str(file.schema) for file in files_of(table))
        assert all(2 not in (file.lower_bounds or {}) for file in entries_of(table))
    assert json.loads(Path(location(table)).read_text())["schemas"][0]["fields"][1]["type"] == str(kind)
    assert table.rows.filter(col("g").is_null()).to_arrow()["id"].to_pylist() == [2]
    assert table.rows.filter(col("g") == shapes[3]).to_arrow()["id"].to_pylist() == [3]
    if annotation == "Geometry":
        found = query(f"select id, ST_AsWKB(g) from iceberg_scan('{location(table)}')").fetchall()
        assert {key: value and bytes(value) for key, value in found} == shapes
