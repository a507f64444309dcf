"""Columns under names that a name mapping gives to others would take over values: they are refused, by any way."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.recovery.lake import Lake
from volley import CatalogError, Environment, IcebergSink, MaterializedView, Metrics, SchemaMismatchError, SinkContext
from volley.iceberg import (
    IcebergSinkConfig,
    IcebergSource,
    IcebergSourceConfig,
    IcebergTable,
    SchemaEvolution,
)

PLACE = pa.struct({"city": pa.string()})
SCHEMA = pa.schema({"id": pa.int64(), "price": pa.float64(), "place": PLACE, "stops": pa.list_(PLACE)})
ROW = {"id": 1, "price": 9.5, "place": {"city": "Ulm"}, "stops": [{"city": "Bonn"}]}
GIVEN = "schema.name-mapping.default gives this name to"


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    """A table with a file of another tool, without field ids, and the mapping that plain pyiceberg makes for it."""
    made = Lake(tmp_path)
    catalog: Any = made.config.ref.load_catalog()
    catalog.create_namespace("db")
    table = catalog.create_table("db.events", SCHEMA)
    file = tmp_path / "other.parquet"
    pq.write_table(pa.Table.from_pylist([ROW], SCHEMA), file)
    table.add_files([f"file://{file}"])
    yield made
    made.close()


def changed(lake: Lake, *changes: Callable[[SchemaEvolution], SchemaEvolution]) -> None:
    evolution = SchemaEvolution(lake.config.ref.load().schema())
    for change in changes:
        evolution = change(evolution)
    evolution.apply(lake.config)


def opened(lake: Lake, schema: pa.Schema, **renames: str) -> Any:
    config = lake.config.with_schema_evolution("full", renames=renames)
    return IcebergSink(config).open(SinkContext("job", schema, Metrics()))


def rows(lake: Lake) -> list[dict[str, Any]]:
    return list(IcebergTable(lake.config).to_arrow().to_pylist())


def test_a_column_under_the_old_name_of_another_is_refused(lake: Lake) -> None:
    changed(lake, lambda table: table.rename("price", "amount"))
    assert rows(lake)[0]["amount"] == 9.5
    with pytest.raises(SchemaMismatchError, match=f"'price'.*{GIVEN} column 'amount'"):
        changed(lake, lambda table: table.add("price", "double"))
    with pytest.raises(SchemaMismatchError, match=f"'price'.*{GIVEN} column 'amount'"):
        opened(lake, pa.schema({"id": pa.int64(), "amount": pa.float64(), "price": pa.float64()}))
    assert rows(lake) == [{**{name: ROW[name] for name in ("id", "place", "stops")}, "amount": 9.5}]


def test_a_column_under_the_name_of_a_dropped_one_is_refused(lake: Lake) -> None:
    changed(lake, lambda table: table.drop("price"))
    with pytest.raises(SchemaMismatchError, match=f"{GIVEN} a column that was dropped"):
        changed(lake, lambda table: table.add("price", "double"))
    with pytest.raises(SchemaMismatchError, match=f"{GIVEN} a column that was dropped"):
        opened(lake, SCHEMA)
    assert "price" not in rows(lake)[0]


def test_both_in_one_change_are_refused(lake: Lake) -> None:
    with pytest.raises(SchemaMismatchError, match=GIVEN):
        changed(lake, lambda table: table.rename("price", "amount"), lambda table: table.add("price", "double"))
    with pytest.raises(SchemaMismatchError, match=GIVEN):
        changed(lake, lambda table: table.drop("price"), lambda table: table.add("price", "double"))


def test_another_column_that_is_renamed_so_is_refused(lake: Lake) -> None:
    changed(lake, lambda table: table.rename("price", "amount"), lambda table: table.add("fee", "double"))
    with pytest.raises(SchemaMismatchError, match=f"can't be renamed to 'price': .*{GIVEN} column 'amount'"):
        changed(lake, lambda table: table.rename("fee", "price"))
    with pytest.raises(SchemaMismatchError, match="can't be renamed to 'price'"):
        opened(lake, pa.schema({"id": pa.int64(), "price": pa.float64()}), fee="price")


@pytest.mark.parametrize("parent", ["place", "stops.element"])
def test_fields_of_structs_and_lists_are_columns_too(parent: str, lake: Lake) -> None:
    changed(lake, lambda table: table.rename(f"{parent}.city", "town"))
    with pytest.raises(SchemaMismatchError, match=f"{GIVEN} column 'town'"):
        changed(lake, lambda table: table.add(f"{parent}.city", "string"))
    both = pa.struct({"town": pa.string(), "city": pa.string()})
    column = pa.field("place", both) if parent == "place" else pa.field("stops", pa.list_(both))
    with pytest.raises(SchemaMismatchError, match=f"city.*{GIVEN} column 'town'"):
        opened(lake, pa.schema([pa.field("id", pa.int64()), column]))
    # The name is another one beside the struct.
    changed(lake, lambda table: table.add("city", "string"))
    assert rows(lake)[0]["city"] is None


def test_a_view_s_table_is_one_of_them(lake: Lake) -> None:
    source = Environment().from_source(IcebergSource(IcebergSourceConfig(lake.config.ref)))
    into = IcebergSinkConfig.from_table(lake.config.ref.beside("ids"))
    MaterializedView("ids", source.select("id"), into).refresh()
    mapping = json.dumps([{"field-id": 1, "names": ["id", "price"]}])
    with lake.config.ref.beside("ids").load().transaction() as transaction:
        transaction.set_properties({"schema.name-mapping.default": mapping})
    with pytest.raises(SchemaMismatchError, match=f"{GIVEN} column 'id'"):
        MaterializedView("ids", source.select("id", "price"), into).refresh("full")


def test_a_name_goes_back_to_its_own_column(lake: Lake) -> None:
    changed(lake, lambda table: table.rename("price", "amount"))
    changed(lake, lambda table: table.rename("amount", "price"))
    assert rows(lake) == [ROW]


@pytest.mark.parametrize("mapping", ["[]", ""])
def test_an_empty_mapping_forbids_nothing(mapping: str, lake: Lake) -> None:
    set_mapping(lake, mapping)
    changed(lake, lambda table: table.rename("price", "amount"), lambda table: table.add("price", "double"))


@pytest.mark.parametrize("mapping", ["{", "{}", '[{"names": 1}]', "null"])
@pytest.mark.parametrize("use", [rows, lambda lake: opened(lake, SCHEMA)], ids=["rows", "sink"])
def test_a_mapping_that_is_none_is_named(use: Callable[[Lake], Any], mapping: str, lake: Lake) -> None:
    set_mapping(lake, mapping)
    with pytest.raises(CatalogError, match=r"property schema\.name-mapping\.default .* is no name mapping"):
        use(lake)


def set_mapping(lake: Lake, mapping: str) -> None:
    with lake.config.ref.load().transaction() as transaction:
        transaction.set_properties({"schema.name-mapping.default": mapping})
