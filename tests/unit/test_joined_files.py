"""Joins with files and frames: by value beside DuckDB, and which rows each epoch of a job has while they change."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from tests.duck import query
from volley import (
    ConfigError,
    Environment,
    ExpressionError,
    FileSource,
    MemorySource,
    PlanError,
    SnapshotExpiredError,
    SourceError,
    SourceNotFoundError,
    testing,
)
from volley.columns.nodes import lower
from volley.connectors.files.reader import FileReader
from volley.engine.joins import JoinedTables
from volley.plan import nodes
from volley.plan.joins import How
from volley.stream.stream import DataStream
from volley.task.joined_rows import LoadedRows, list_file, read_index, read_list, read_pin

ORDERS = pa.table({"id": [1, 2, 3, 4], "item": ["a", "b", None, "a"]})
ITEMS = pa.table({"item": ["a", "c", "a", None], "name": ["Apple", "Cherry", "Ananas", "?"], "rank": [1, 2, None, 4]})
NONE = ITEMS.slice(0, 0)


def orders(rows: Any = ORDERS) -> DataStream:
    return Environment().from_source(MemorySource(rows))


def csv(table: pa.Table, folder: Path) -> str:
    pa.csv.write_csv(table, folder / "items.csv")
    return str(folder / "items.csv")


def parquet(table: pa.Table, folder: Path, row_group_size: int = 2) -> Path:
    pq.write_table(table, folder / "items.parquet", row_group_size=row_group_size)
    return folder / "items.parquet"


def folder_of_days(table: pa.Table, folder: Path) -> FileSource:
    for number in range(table.num_rows):
        day = folder / f"day=2026-01-0{1 + number}"
        day.mkdir()
        pq.write_table(table.slice(number, 1), day / "items.parquet")
    return FileSource(folder, format="parquet", max_files_per_epoch=1, bounded=False)


FORMS: dict[str, Callable[[pa.Table, Path], Any]] = {
    "Arrow": lambda table, folder: table,
    "batches": lambda table, folder: table.to_batches(max_chunksize=1) or table,
    "dicts": lambda table, folder: table.to_pylist(),
    "pandas": lambda table, folder: table.to_pandas(),
    "pandas, indexed": lambda table, folder: table.to_pandas().set_index("item"),
    "polars": lambda table, folder: pl.DataFrame(table),
    "polars, categories": lambda table, folder: pl.DataFrame(table).with_columns(
        pl.col("item").cast(pl.Categorical), pl.col("name").cast(pl.Enum(["Apple", "Cherry", "Ananas", "?"]))
    ),
    "DuckDB": lambda table, folder: duckdb.from_arrow(table),
    "CSV": csv,
    "Parquet": parquet,
}


@pytest.mark.parametrize("how", ["inner", "left"])
@pytest.mark.parametrize("form", FORMS)
def test_any_form_of_a_table_is_joined_as_duckdb_does(tmp_path: Path, form: str, how: How) -> None:
    joined = orders().join(FORMS[form](ITEMS, tmp_path), on="item", how=how)
    expected = query(f"select o.*, i.name, i.rank from o {how} join i using (item)", o=ORDERS, i=ITEMS).fetchall()
    assert joined.columns == ["id", "item", "name", "rank"]
    assert sorted(map(repr, joined.to_arrow().to_pylist())) == sorted(
        repr(dict(zip(joined.columns, row, strict=True))) for row in _numbers(expected, joined)
    )


def _numbers(rows: list[tuple[Any, ...]], joined: DataStream) -> list[tuple[Any, ...]]:
    """The rows with the ranks as pandas has numbers beside nulls."""
    kind = float if pa.types.is_floating(joined.schema.field("rank").type) else int
    return [(*row, None if rank is None else kind(rank)) for *row, rank in rows]


@pytest.mark.parametrize("form", ["Arrow", "pandas", "polars", "Parquet"])
def test_an_empty_table_has_no_match(tmp_path: Path, form: str) -> None:
    table = FORMS[form](NONE if form != "pandas" else ITEMS, tmp_path)
    table = table[:0] if form == "pandas" else table
    assert orders().join(table, on="item").to_arrow().num_rows == 0
    assert orders().join(table, on="item", how="left").to_arrow()["name"].null_count == 4


def test_a_file_without_rows_has_the_columns_that_are_declared(tmp_path: Path) -> None:
    path = csv(NONE, tmp_path)
    with pytest.raises(SourceError, match="no rows with columns to infer a schema from"):
        orders().join(path, on="item").to_arrow()
    declared = FileSource(path, schema="item string, name string")
    assert orders().join(declared, on="item", how="left").to_arrow()["name"].to_pylist() == [None] * 4


def test_settings_of_files_hold_for_a_table(tmp_path: Path) -> None:
    days = folder_of_days(ITEMS, tmp_path)
    joined = orders().join(days, on="item", columns=["day", "name"])
    expected = query(
        f"select id, day, name from o join read_parquet('{tmp_path}/*/*', hive_partitioning = true) using (item)",
        o=ORDERS,
    ).fetchall()
    assert sorted((row["id"], row["day"], row["name"]) for row in joined.to_arrow().to_pylist()) == sorted(expected)


def test_a_large_file_is_divided_by_key(tmp_path: Path) -> None:
    table = pa.table({"item": [str(number) for number in range(5_000)] * 2, "n": range(10_000)})
    path, rows = parquet(table, tmp_path, 1_000), pa.table({"id": range(20), "item": [str(n * 300) for n in range(20)]})
    whole = orders(rows).join(path, on="item", how="left")
    divided = orders(rows).join(path, on="item", how="left", max_bytes=20_000)
    expected = query(f"select o.*, n from o left join '{path}' using (item) order by all", o=rows).fetchall()
    for joined in (whole, divided):
        assert sorted((row["id"], row["item"], row["n"]) for row in joined.to_arrow().to_pylist()) == sorted(expected)


@pytest.mark.parametrize(
    ("columns", "options", "error", "message"),
    [
        ({"item": [1]}, {"on": "item"}, ExpressionError, "the stream's 'item' is string, the other side's 'item' long"),
        ({"item": ["a"], "id": [1]}, {"on": "item"}, ExpressionError, "both have a column 'id'\n.*suffix="),
        ({"itm": ["a"]}, {"on": "item"}, ExpressionError, r"items\.csv.* has no column 'item'\n.*did you mean 'itm'"),
        ({"item": ["a"]}, {"on": "item", "as_of": "id"}, PlanError, "rows of one time only"),
    ],
)
def test_what_does_not_fit_names_the_file(
    tmp_path: Path, columns: dict[str, Any], options: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        orders().join(csv(pa.table(columns), tmp_path), **options).to_arrow()


def test_bad_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(SourceNotFoundError, match=r"items\.csv"):
        orders().join(tmp_path / "items.csv", on="item").to_arrow()
    with pytest.raises(ConfigError, match="format of 'items' is not known"):
        orders().join("items", on="item")
    (tmp_path / "twice.csv").write_text("item,n,n\na,1,2\n")
    with pytest.raises(SourceError, match=r"twice\.csv, line 1: column 'n' stands twice in the header"):
        orders().join(tmp_path / "twice.csv", on="item").to_arrow()
    (tmp_path / "bad.csv").write_text("item,n\na,1\nb,x\n")
    with pytest.raises(SourceError, match=r"bad\.csv.*\n?.*'x'"):
        orders().join(FileSource(tmp_path / "bad.csv", schema="item string, n long"), on="item").to_arrow()


def test_given_rows_take_the_place_of_a_file() -> None:
    joined = orders().join(FileSource("/nowhere/items.csv", schema="item string, n decimal(10,2)"), on="item")
    (row,) = testing.run(joined, [{"id": 1, "item": "a"}], [{"item": "a", "n": 5}])
    assert str(row["n"]) == "5.00"


class Job:
    """The tables of a job of one driver, and the rows of each epoch's join."""

    def __init__(self, folder: Path, stream: DataStream) -> None:
        self.tables = JoinedTables("job", str(folder / "checkpoint"))
        (node,) = self.tables.open([stream._node])
        assert isinstance(node, nodes.Join)
        self.node = node

    def rows(self, epoch: int) -> list[dict[str, Any]]:
        self.tables.pin(epoch)
        rows: Any = self.node.rows
        files = read_list(list_file(rows.folder, rows.layout, read_pin(rows.folder, epoch)))
        indices = (read_index(f"{rows.folder}/{file.name}").rows for file in files)
        names = self.node.join.added(rows.schema.names)
        found = (row for index in indices for row in index.select(names).to_pylist())
        return sorted(found, key=lambda row: str(row["name"] if "name" in row else row["n"]))


def test_an_epoch_keeps_the_rows_of_a_file_that_is_replaced(tmp_path: Path) -> None:
    def write(name: str) -> str:
        return csv(pa.table({"item": ["a"], "name": [name]}), tmp_path)

    joined = orders().join(write("Apple"), on="item")
    job = Job(tmp_path, joined)
    assert job.rows(0) == job.rows(1) == [{"name": "Apple"}]
    write("Banana")
    assert job.rows(2) == [{"name": "Banana"}]
    write("Cherry, that is longer")
    again = Job(tmp_path, joined)
    assert again.rows(2) == [{"name": "Banana"}]
    assert again.rows(3) == [{"name": "Cherry, that is longer"}]
    os.remove(tmp_path / "items.csv")
    assert again.rows(3) == [{"name": "Cherry, that is longer"}]
    with pytest.raises(SourceNotFoundError, match="items"):
        again.rows(4)


def test_an_epoch_keeps_the_rows_of_a_frame_that_another_run_has_changed(tmp_path: Path) -> None:
    frame = pd.DataFrame({"item": ["a", "b"], "n": [1, 2]})
    assert Job(tmp_path, orders().join(frame, on="item")).rows(0) == [{"n": 1}, {"n": 2}]
    # With a null among them pandas has floats.
    changed = pd.DataFrame({"item": ["a", "b", "c"], "n": [7, None, 9]})
    again = Job(tmp_path, orders().join(changed, on="item"))
    assert again.rows(0) == [{"n": 1}, {"n": 2}]
    # The rows of the epoch get the type that the job has now.
    rows: Any = again.node.rows
    old = LoadedRows(rows.schema, [read_index(str(path)) for path in tmp_path.rglob("*.arrow")])
    steps = lower([replace(again.node, rows=old)], ORDERS.schema)
    assert steps(ORDERS.to_batches()[0]).column("n").equals(pa.array([1.0, 2.0, 1.0]))
    assert again.rows(1) == [{"n": 7.0}, {"n": 9.0}, {"n": None}]


def test_rows_that_are_gone_with_their_copy_are_named(tmp_path: Path) -> None:
    path = csv(ITEMS, tmp_path)
    Job(tmp_path, orders().join(path, on="item")).rows(0)
    for copy in (tmp_path / "checkpoint").rglob("*.arrow"):
        copy.unlink()
    csv(ITEMS.slice(1), tmp_path)
    with pytest.raises(SnapshotExpiredError, match=r"epoch 0 joins FileSource.*items\.csv has been changed"):
        Job(tmp_path, orders().join(path, on="item")).rows(0)


def test_a_file_that_changes_while_it_is_read_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = csv(pa.table({"item": ["a", "b"], "name": ["old", "old"]}), tmp_path)
    job, read, changes = Job(tmp_path, orders().join(path, on="item")), FileReader.read, iter(["new"])

    def reading(self: FileReader, split: Any) -> Iterator[pa.RecordBatch]:
        yield from read(self, split)
        for name in changes:
            csv(pa.table({"item": ["b", "c"], "name": [name, name]}), tmp_path)

    monkeypatch.setattr(FileReader, "read", reading)
    assert job.rows(0) == [{"name": "new"}, {"name": "new"}]


def test_tasks_get_neither_the_rows_of_tables_nor_those_before_a_step() -> None:
    many = pa.table({"item": [str(number) for number in range(100_000)], "n": range(100_000)})
    (node,) = JoinedTables("job", "/nowhere").open([orders(many).join(many, on="item", suffix="_2")._node])
    assert len(pickle.dumps(lower([node], many.schema))) < 10_000
    assert str(pickle.loads(pickle.dumps(lower([node], many.schema))).nodes[0].label()).startswith(
        "inner join MemorySource"
    )
