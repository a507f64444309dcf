"""Hostile names of tables, columns, jobs and files: refused before anything is written, or rows in = rows out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from tests.tiers import some
from volley import (
    ConfigError,
    Environment,
    ExpressionError,
    FileSource,
    IcebergSink,
    IcebergSinkConfig,
    IcebergStorage,
    MemorySource,
    VolleyError,
    col,
)

NAMES = [
    "back`tick",
    "é",
    "\u202ereversed",
    "שלום",
    ".",
    "c" * 300,
    "slash/and\\backslash",
    " padded ",
]


def config_for(tmp_path: Path, table: str = "events", namespace: Any = ("db",)) -> IcebergSinkConfig:
    return IcebergSinkConfig(namespace=namespace, table=table, storage=IcebergStorage.Local(str(tmp_path / "lake")))


def rows(config: IcebergSinkConfig, tmp_path: Path) -> list[dict[str, Any]]:
    """The table's rows, read by plain pyiceberg; DuckDB finds as many in its files."""
    catalog = SqlCatalog("volley", uri=f"sqlite:///{tmp_path}/lake/catalog.db")
    try:
        table = catalog.load_table(config.identifier)
    finally:
        catalog.close()
    found: list[dict[str, Any]] = table.scan().to_arrow().to_pylist()
    files = [task.file.file_path for task in table.scan().plan_files()]
    assert files
    counted = duckdb.sql("select count(*) from read_parquet(?)", params=[files]).fetchall()
    assert counted == [(len(found),)]
    return found


def assert_all_inside(tmp_path: Path) -> None:
    """Nothing was written but into the warehouse and the checkpoints."""
    assert {path.name for path in tmp_path.iterdir()} <= {"lake", "checkpoints", "in"}


@pytest.mark.parametrize("name", some(NAMES, by=str.isascii), ids=ascii)
def test_a_column_of_any_name_works(name: str, environment: Environment, tmp_path: Path) -> None:
    config = config_for(tmp_path)
    run_with_column(name, environment, config)
    expected = [{"id": number, name: number * 10, "copy": number * 10 + 1} for number in range(1, 4)]
    assert sorted(rows(config, tmp_path), key=lambda row: int(row["id"])) == expected
    assert_all_inside(tmp_path)


@pytest.mark.parametrize("name", ["", "nul\x00byte"])
def test_a_name_that_is_none_is_refused(name: str, environment: Environment, tmp_path: Path) -> None:
    with pytest.raises((ConfigError, ExpressionError)) as caught:
        run_with_column(name, environment, config_for(tmp_path))
    assert caught.value.hint or "column's name" in caught.value.message
    assert not list(tmp_path.rglob("*.parquet"))


def run_with_column(name: str, environment: Environment, config: IcebergSinkConfig) -> None:
    """Rows with a column of this name, which expressions use."""
    (
        environment.from_source(MemorySource([{"id": number, name: number * 10} for number in range(4)]))
        .filter_expr(col(name) > 0)
        .with_column("copy", col(name) + 1)
        .to_sink(IcebergSink(config))
        .execute("names")
    )


def test_ordinary_special_characters_in_column_names_do_work(environment: Environment, tmp_path: Path) -> None:
    names = ["it's", 'quo"te', "two words", "🐘", "select", "x'; DROP TABLE t; --", "É", "é"]
    config = config_for(tmp_path)
    stream = environment.from_source(MemorySource([dict.fromkeys(names, 1)]))
    stream.select(*map(col, names)).rename({"🐘": "🦣"}).drop("select").to_sink(IcebergSink(config)).execute("all")
    (row,) = rows(config, tmp_path)
    assert list(row) == ["it's", 'quo"te', "two words", "🦣", "x'; DROP TABLE t; --", "É", "é"]


def test_dots_and_backticks_in_column_names_do_work(environment: Environment, tmp_path: Path) -> None:
    config = config_for(tmp_path)
    source = MemorySource([{"a.b": 1, "back`tick": 2}])
    stream = environment.from_source(source).filter_expr(col("a.b") < col("back`tick")).map(lambda row: row)
    stream.rename({"a.b": "c.d"}).to_sink(IcebergSink(config)).execute("dots")
    assert rows(config, tmp_path) == [{"c.d": 1, "back`tick": 2}]


def test_names_that_differ_only_in_case_stay_apart(environment: Environment, tmp_path: Path) -> None:
    config = config_for(tmp_path)
    stream = environment.from_source(MemorySource([{"id": 1, "ID": 2, "Id": 3}])).filter_expr(col("ID") == 2)
    stream.to_sink(IcebergSink(config)).execute("case")
    catalog = SqlCatalog("volley", uri=f"sqlite:///{tmp_path}/lake/catalog.db")
    try:
        found = catalog.load_table(config.identifier).scan().to_arrow().to_pylist()
    finally:
        catalog.close()
    assert found == [{"id": 1, "ID": 2, "Id": 3}]


@pytest.mark.parametrize(
    "name", ["it's", 'quo"te', "two words", "🐘", "x'; DROP TABLE t; --", "select", "~", "file:", "c" * 300], ids=ascii
)
@pytest.mark.parametrize("place", some(["table", "namespace"]))
def test_a_table_of_any_name_works_or_is_refused(name: str, place: str, native: Environment, tmp_path: Path) -> None:
    try:
        config = config_for(tmp_path, table=name) if place == "table" else config_for(tmp_path, namespace=["db", name])
        native.from_source(MemorySource([{"id": 1}])).to_sink(IcebergSink(config)).execute("tables")
    except VolleyError as error:
        assert error.hint  # noqa: PT017
        assert not list(tmp_path.rglob("*.parquet"))
    else:
        assert rows(config, tmp_path) == [{"id": 1}]
    assert_all_inside(tmp_path)


@pytest.mark.parametrize("name", ["..", "a/../b", "/etc", "a\\b", "nul\0byte", "%2e%2e%2f", "", " ", "a.b"], ids=ascii)
def test_names_that_could_leave_the_warehouse_are_refused_when_the_config_is_built(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="table"):
        config_for(tmp_path, table=name)
    with pytest.raises(ConfigError, match="namespace"):
        config_for(tmp_path, namespace=["db", name])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "warehouse", ["../out", "a/../../out", "/etc", "file:///etc", "a/%2e%2e/%2e%2e/out", "a\\..\\.."]
)
def test_a_warehouse_outside_of_the_storage_is_refused_or_stays_inside(
    warehouse: str, native: Environment, tmp_path: Path
) -> None:
    storage = IcebergStorage.Local(str(tmp_path / "lake"))
    try:
        config = IcebergSinkConfig(warehouse=warehouse, namespace=["db"], table="events", storage=storage)
        native.from_source(MemorySource([{"id": 1}])).to_sink(IcebergSink(config)).execute("warehouse")
    except VolleyError as error:
        assert error.hint  # noqa: PT017
    assert_all_inside(tmp_path)


@pytest.mark.parametrize("name", ["../../out", "..", "a\nb", "%2e%2e/x", "it's 🐘 `x`", "nul\0byte"], ids=ascii)
def test_a_job_of_any_name_keeps_its_checkpoint_in_the_folder(name: str, native: Environment, tmp_path: Path) -> None:
    config = config_for(tmp_path)
    stream = native.from_source(MemorySource([{"id": 1}])).to_sink(IcebergSink(config))
    stream.execute(name)
    stream.execute(name)
    assert rows(config, tmp_path) == [{"id": 1}]
    (checkpoint,) = {path.name for path in (tmp_path / "checkpoints").iterdir()} - {".runs"}
    assert [path.name for path in (tmp_path / "checkpoints" / ".runs").iterdir()] == [checkpoint]
    assert_all_inside(tmp_path)


@pytest.mark.parametrize("name", ["two words 🐘", "100%41", "a#b", "what?", "star*", "[ab]"])
def test_a_folder_and_a_file_of_any_name_are_read(name: str, native: Environment, tmp_path: Path) -> None:
    folder = tmp_path / "in" / name
    folder.mkdir(parents=True)
    (folder / f"{name}.json").write_text(json.dumps({"id": 1}) + "\n")
    config = config_for(tmp_path)
    source = FileSource(str(folder), format="json", schema="id long")
    native.from_source(source).to_sink(IcebergSink(config)).execute("paths")
    assert rows(config, tmp_path) == [{"id": 1}]
