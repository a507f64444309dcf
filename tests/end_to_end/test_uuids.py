"""UUIDs of Parquet files and of Python: on both paths, at every depth, into every sink, read back by others."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table import Table
from pyiceberg.types import ListType, StructType, UUIDType

from volley import (
    Environment,
    ExpressionError,
    FileSink,
    FileSource,
    IcebergSink,
    IcebergSinkConfig,
    MemorySink,
    MemorySource,
    col,
)
from volley.columns.exact import array_of
from volley.iceberg import Partitioning, Upsert

ONE, TWO = UUID(int=1), UUID("ffeeddcc-bbaa-9988-7766-554433221100")
SCHEMA = pa.schema(
    {
        "id": pa.int64(),
        "u": pa.uuid(),
        "many": pa.list_(pa.uuid()),
        "pair": pa.struct({"u": pa.uuid(), "n": pa.int32()}),
        "by": pa.map_(pa.string(), pa.uuid()),
    }
)
ROWS: list[dict[str, Any]] = [
    {"id": 1, "u": ONE, "many": [ONE, None, TWO], "pair": {"u": TWO, "n": 1}, "by": [("a", ONE)]},
    {"id": 2, "u": None, "many": None, "pair": None, "by": None},
    {"id": 3, "u": TWO, "many": [], "pair": {"u": None, "n": None}, "by": []},
]


@pytest.fixture
def source(tmp_path: Path) -> FileSource:
    """A Parquet file whose UUIDs have Parquet's own type for them."""
    columns = [array_of([row[field.name] for row in ROWS], field.type) for field in SCHEMA]
    (tmp_path / "in").mkdir()
    pq.write_table(pa.table(columns, schema=SCHEMA), tmp_path / "in" / "rows.parquet")
    return FileSource(tmp_path / "in", format="parquet")


def test_every_sink_has_them_by_value(
    environment: Environment, source: FileSource, config: IcebergSinkConfig, load: Callable[[], Table], tmp_path: Path
) -> None:
    memory, out = MemorySink(), tmp_path / "out"
    stream = environment.from_source(source).filter_expr(col("u").is_null() | (col("id") != 0))
    whole = stream.to_sink(memory).to_sink(IcebergSink(config))
    whole = whole.to_sink(FileSink(out / "parquet")).to_sink(FileSink(out / "json", "json"))
    flat = stream.drop("many", "pair", "by").to_sink(FileSink(out / "csv", "csv"))
    environment.execute("uuids", whole, flat)
    assert sorted(memory.rows(), key=lambda row: int(row["id"])) == ROWS
    table = load()
    kinds = {field.name: field.field_type for field in table.schema().fields}
    assert isinstance(kinds["u"], UUIDType)
    assert isinstance(kinds["many"], ListType)
    assert isinstance(kinds["many"].element_type, UUIDType)
    assert isinstance(kinds["pair"], StructType)
    (data,) = (task.file.file_path.removeprefix("file://") for task in table.scan().plan_files())
    for file in (data, *map(str, (out / "parquet").glob("[!._]*.parquet"))):
        read = duckdb.sql(f"select id, u, many, pair, map_entries(\"by\") from '{file}' order by id").fetchall()
        assert [row[:4] for row in read] == [tuple(row[name] for name in SCHEMA.names[:4]) for row in ROWS]
        assert [row[4] and [tuple(each.values()) for each in row[4]] for row in read] == [row["by"] for row in ROWS]
    found = table.scan(row_filter=f"u == '{TWO}'").to_arrow()
    assert found["id"].to_pylist() == [3]
    (lines,) = (file.read_text().splitlines() for file in (out / "json").glob("[!._]*.json"))
    assert sorted((json.loads(line) for line in lines), key=lambda row: int(row["id"]))[0] == {
        **{"id": 1, "u": str(ONE), "many": [str(ONE), None, str(TWO)], "pair": {"u": str(TWO), "n": 1}},
        "by": {"a": str(ONE)},
    }
    (text,) = (file.read_text() for file in (out / "csv").glob("[!._]*.csv"))
    assert sorted(csv.DictReader(text.splitlines()), key=lambda row: row["id"])[2] == {"id": "3", "u": str(TWO)}


def test_rows_of_python_with_them(environment: Environment) -> None:
    sink = MemorySink()
    rows = MemorySource(ROWS, schema=SCHEMA)
    stream = environment.from_source(rows).map(lambda row: {**row, "many": [row["u"]]})
    stream.with_column("text", col("u").cast(str)).to_sink(sink).execute("python")
    found = sorted(sink.rows(), key=lambda row: int(row["id"]))
    assert [row["text"] for row in found] == [str(ONE), None, str(TWO)]
    assert [row["many"] for row in found] == [[ONE], [None], [TWO]]
    assert [row["pair"] for row in found] == [row["pair"] for row in ROWS]


def test_keys_and_partitions(native: Environment, config: IcebergSinkConfig, load: Callable[[], Table]) -> None:
    keyed = config.with_partitioning([Partitioning.bucket("u", n=4)]).with_commit_mode(Upsert("u", order_by="n"))
    rows = [{"u": ONE, "n": 1}, {"u": TWO, "n": 1}, {"u": ONE, "n": 2}, {"u": TWO, "n": 3}]
    source = MemorySource(rows, schema={"u": UUID, "n": int}, rows_per_epoch=2)
    native.from_source(source).to_sink(IcebergSink(keyed)).execute("keys")
    table = load()
    assert sorted(zip(*table.scan().to_arrow().select(["u", "n"]).to_pydict().values(), strict=True)) == [
        (ONE, 2),
        (TWO, 3),
    ]
    identity = IcebergSinkConfig(namespace="db", table="by", storage=config.storage)
    identity = identity.with_partitioning([Partitioning.identity("u")])
    native.from_source(source).to_sink(IcebergSink(identity)).execute("identity")
    other = table.catalog.load_table("db.by")
    assert sorted(other.scan(row_filter=f"u == '{ONE}'").to_arrow()["n"].to_pylist()) == [1, 2]


def test_duplicates(native: Environment) -> None:
    sink = MemorySink()
    rows = MemorySource([{"u": ONE}, {"u": TWO}, {"u": ONE}], schema="u uuid")
    native.from_source(rows).deduplicate("u").to_sink(sink).execute("duplicates")
    assert sorted(row["u"] for row in sink.rows()) == [ONE, TWO]


def test_they_are_compared_as_texts(native: Environment) -> None:
    stream = native.from_source(MemorySource([{"u": ONE}], schema="u uuid"))
    with pytest.raises(ExpressionError, match="plain values") as caught:
        stream.filter_expr(col("u") == col("u")).to_sink(MemorySink()).execute("compared")
    assert "cast" in str(caught.value.hint)
