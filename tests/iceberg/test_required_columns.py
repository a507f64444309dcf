"""Tables with required columns, as most engines make them, are read, followed, kept as views and rewritten."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import ListType, LongType, MapType, NestedField, StringType, StructType

from volley import IcebergStorage, MaterializedView, col, count, max_
from volley.environment import Environment
from volley.iceberg import IcebergSinkConfig, IcebergSource, IcebergSourceConfig, IcebergTable, TableRef

_INNER = StructType(NestedField(11, "a", LongType(), required=True), NestedField(12, "b", StringType(), required=False))
_SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "name", StringType(), required=False),
    NestedField(3, "inner", _INNER, required=True),
    NestedField(4, "tags", ListType(13, StringType(), element_required=True), required=True),
    NestedField(5, "notes", MapType(14, StringType(), 15, LongType(), value_required=True), required=True),
)
_ROWS = [
    {"id": i, "name": f"n{i}" if i % 2 else None, "inner": {"a": i, "b": None}, "tags": ["x"] * i, "notes": [("k", i)]}
    for i in range(4)
]


@pytest.fixture
def ref(tmp_path: Path) -> TableRef:
    """A table whose every column but one is required, at every level, with two data files."""
    made = TableRef("db", "events", IcebergStorage.Local(str(tmp_path / "lake")))
    with made.load_catalog() as catalog:
        catalog.create_namespace("db")
        table = catalog.create_table("db.events", _SCHEMA)
        for rows in (_ROWS[:2], _ROWS[2:]):
            table.append(pa.Table.from_pylist(rows, table.schema().as_arrow()))
    return made


def test_rows_are_read_by_every_way(ref: TableRef) -> None:
    table = IcebergTable(ref)
    snapshot = table.snapshots()[-1].id
    for rows in (table, table.rows, table.at(snapshot)):
        assert sorted(rows.to_arrow().to_pylist(), key=lambda row: row["id"]) == _ROWS
    assert table.to_arrow(limit=1).num_rows == 1
    assert sorted(table.to_polars()["id"]) == sorted(table.to_pandas()["id"]) == [0, 1, 2, 3]
    assert table.to_duckdb().aggregate("sum(id)").fetchone() == (6,)
    assert table.rows.filter(col("id") > 1).select("id").to_arrow()["id"].to_pylist() == [2, 3]


def test_changes_are_told(ref: TableRef) -> None:
    first, second = [snapshot.id for snapshot in IcebergTable(ref).snapshots()]
    changes = IcebergTable(ref).changes(first, second).to_arrow()
    assert sorted(changes["id"].to_pylist()) == [2, 3]


def test_a_view_is_refreshed_by_changes(ref: TableRef, tmp_path: Path) -> None:
    source = Environment().from_source(IcebergSource(IcebergSourceConfig(ref)))
    into = IcebergSinkConfig(namespace="db", table="totals", storage=ref.storage)
    view = MaterializedView("totals", source.key_by("name").aggregate(n=count(), most=max_("id")), into=into)
    view.refresh()
    with ref.load_catalog() as catalog:
        table = catalog.load_table("db.events")
        table.append(pa.Table.from_pylist([{**_ROWS[1], "id": 9}], table.schema().as_arrow()))
    view.refresh(mode="incremental")
    rows = IcebergTable(into).to_arrow().to_pylist()
    assert {row["name"]: (row["n"], row["most"]) for row in rows} == {None: (2, 2), "n1": (2, 9), "n3": (1, 3)}


def test_files_are_rewritten_under_the_tables_schema(ref: TableRef) -> None:
    IcebergTable(ref).compact(small_bytes=1 << 20, least_files=2)
    table = ref.load()
    assert len(table.inspect.files()) == 1
    assert [field.required for field in table.schema().fields] == [True, False, True, True, True]
    assert table.scan().to_arrow().sort_by("id").to_pylist() == _ROWS
