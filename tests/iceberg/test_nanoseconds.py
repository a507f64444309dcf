"""Columns of format version 3 with nanoseconds or of the type unknown are read by every way, with all digits."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import (
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzType,
)

from tests.iceberg.test_read_rows import IO, entry, equality_deletes
from volley import Environment, IcebergStorage, MaterializedView, col, count, lit, max_
from volley.iceberg import (
    IcebergSinkConfig,
    IcebergSource,
    IcebergSourceConfig,
    IcebergTable,
    TableRef,
    changes_between,
)
from volley.iceberg.read.entries import Content, PlannedFile
from volley.iceberg.read.rows import RowReader, file_task

# The last one is before 1970.
NANOS = [123_456_789, 1_000_000_999, -1_999]
_EPOCH = datetime(1970, 1, 1)
ROWS = [{"id": i, "ts": at, "tz": at, "u": None, "x": at} for i, at in enumerate(NANOS)]
# DuckDB has no nanoseconds of instants: it leaves out the digits.
_CUT = [row | {"tz": int(at / 1_000) * 1_000} for row, at in zip(ROWS, NANOS, strict=True)]
_SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "ts", TimestampType(), required=False),
    NestedField(3, "tz", TimestamptzType(), required=False),
    NestedField(4, "u", StringType(), required=False),
    NestedField(5, "inner", StructType(NestedField(6, "x", TimestampType(), required=False)), required=False),
)


def column(name: str, number: int, data_type: pa.DataType) -> pa.Field:
    return pa.field(name, data_type, metadata={"PARQUET:field_id": str(number)})


_STORED = pa.schema(
    [
        column("id", 1, pa.int64()),
        column("ts", 2, pa.timestamp("ns")),
        column("tz", 3, pa.timestamp("ns", "UTC")),
        column("inner", 5, pa.struct([column("x", 6, pa.timestamp("ns"))])),
    ]
)


@pytest.fixture
def ref(tmp_path: Path) -> TableRef:
    """A table with one row in each file and snapshot; pyiceberg can't write its format, so its files are replaced."""
    made = TableRef("db", "events", IcebergStorage.Local(str(tmp_path / "lake")))
    with made.load_catalog() as catalog:
        catalog.create_namespace("db")
        table = catalog.create_table("db.events", _SCHEMA, properties={"write.metadata.metrics.default": "none"})
        for number in range(len(NANOS)):
            table.append(pa.Table.from_pylist([{"id": number}], table.schema().as_arrow()))
        files = table.inspect.data_files()["file_path"].to_pylist()
    for path in files:
        file = path.removeprefix("file://")
        number = pq.read_table(file)["id"][0].as_py()
        nanos = pa.array([NANOS[number]], pa.timestamp("ns"))
        inner = pa.StructArray.from_arrays([nanos], fields=[_STORED.field("inner").type.field(0)])
        arrays = [pa.array([number]), nanos, nanos.cast(pa.timestamp("ns", "UTC")), inner]
        pq.write_table(pa.Table.from_arrays(arrays, schema=_STORED), file)
    place = Path(table.metadata_location.removeprefix("file://"))
    metadata = json.loads(place.read_text())
    metadata |= {"format-version": 3, "next-row-id": len(NANOS)}
    fields = metadata["schemas"][0]["fields"]
    for number, name in enumerate(["timestamp_ns", "timestamptz_ns", "unknown"], 1):
        fields[number]["type"] = name
    fields[4]["type"]["fields"][0]["type"] = "timestamp_ns"
    for number, snapshot in enumerate(metadata["snapshots"]):
        snapshot |= {"first-row-id": number, "added-rows": 1}
    place.write_text(json.dumps(metadata))
    return made


def stream(ref: TableRef) -> Any:
    return Environment().from_source(IcebergSource(IcebergSourceConfig(ref)))


def numbers(rows: pa.Table) -> list[dict[str, Any]]:
    """Return rows with their times in nanoseconds since 1970."""
    rows = rows.select(["id", "ts", "tz", "u", "inner"]).sort_by("id")
    columns = {name: rows[name].cast(pa.timestamp("ns", rows[name].type.tz)).cast(pa.int64()) for name in ("ts", "tz")}
    inner = rows["inner"].combine_chunks().field("x")
    assert all(value is None for value in rows["u"].to_pylist())
    x = inner.cast(pa.timestamp("ns")).cast(pa.int64())
    return pa.table({"id": rows["id"], **columns, "u": rows["u"], "x": x}).to_pylist()  # type: ignore[no-any-return]


WAYS: dict[str, Callable[[TableRef], pa.Table]] = {
    "table": lambda ref: IcebergTable(ref).to_arrow(),
    "reference": lambda ref: ref.to_arrow(),
    "polars": lambda ref: IcebergTable(ref).to_polars().to_arrow(),
    "pandas": lambda ref: pa.Table.from_pandas(IcebergTable(ref).to_pandas()),
    "filter": lambda ref: IcebergTable(ref).rows.filter(col("u").is_null()).to_arrow(),
    "changes": lambda ref: changes_between(ref, None).to_arrow(),
    "pyiceberg": lambda ref: ref.load().scan().to_arrow(),
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_rows_are_read(way: Callable[[TableRef], pa.Table], ref: TableRef) -> None:
    assert numbers(way(ref)) == ROWS


def test_rows_are_read_by_duckdb(ref: TableRef) -> None:
    assert numbers(IcebergTable(ref).to_duckdb().to_arrow_table()) == _CUT


FILTERS = {
    "equal as text": ("ts = '1970-01-01T00:00:00.123456789'", [0]),
    "equal as text in a zone": ("tz = timestamp '1970-01-01T01:00:00.123456789+01:00'", [0]),
    "cut": (col("ts") == _EPOCH + timedelta(microseconds=123_456), []),
    "between": (
        (col("ts") >= _EPOCH + timedelta(microseconds=123_456)) & (col("ts") < _EPOCH + timedelta(seconds=1)),
        [0],
    ),
    "greater": (col("tz") > _EPOCH.replace(tzinfo=UTC) + timedelta(seconds=1), [1]),
    "as text in a zone": (
        "tz > '1970-01-01T00:00:01.000000998+00:00' and tz <= '1970-01-01T00:00:01.000000999+00:00'",
        [1],
    ),
    "in": ("ts in ('1970-01-01 00:00:01.000000999', '1969-12-31 23:59:59.999998001', '2020-01-01')", [1, 2]),
    "truncated": ((col("ts").dt.truncate("second") == _EPOCH) & (col("id") == lit(0)), [0]),
    "year": (col("tz").dt.year() == 1969, [2]),
}


@pytest.mark.parametrize(("predicate", "ids"), FILTERS.values(), ids=FILTERS)
def test_filters_compare_all_digits(predicate: Any, ids: list[int], ref: TableRef) -> None:
    assert sorted(IcebergTable(ref).rows.filter(predicate).to_arrow()["id"].to_pylist()) == ids


def test_streams_and_views(ref: TableRef) -> None:
    types = {field.name: str(field.type) for field in stream(ref).schema}
    assert types["ts"] == "timestamp[ns]"
    assert types["u"] == "string"
    into = IcebergSinkConfig.from_table(ref.beside("last")).with_table_properties({"format-version": "3"})
    MaterializedView("last", stream(ref).key_by("u").aggregate(n=count(), last=max_("ts")), into).refresh()
    (row,) = IcebergTable(into).to_arrow().to_pylist()
    assert (row["u"], row["n"], row["last"].value) == (None, 3, NANOS[1])


def test_equality_deletes_compare_nanoseconds(tmp_path: Path) -> None:
    """Two times in one microsecond are two keys."""
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "ts", TimestampNanoType()))
    stored = pa.schema([column("id", 1, pa.int64()), column("ts", 2, pa.timestamp("ns"))])
    path = tmp_path / "data.parquet"
    pq.write_table(pa.table({"id": [0, 1], "ts": [1_001, 1_002]}, schema=stored), path)
    file = entry(path, Content.DATA, 2)
    deletes = equality_deletes(tmp_path, [2], schema.select("ts"), [])
    pq.write_table(pa.table({"ts": [1_001]}, schema=pa.schema([stored.field("ts")])), deletes.path)
    deletes = deletes._replace(rows=1, size=Path(deletes.path).stat().st_size)
    table = _metadata(schema)
    task = file_task(PlannedFile(file, (deletes,)), table)
    rows = [row for batch in RowReader.of(table).read(IO, task) for row in batch.to_pylist()]
    assert [(row["id"], row["ts"].value) for row in rows] == [(1, 1_002)]


def test_values_of_partitions_are_in_nanoseconds_too(tmp_path: Path) -> None:
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "ts", TimestampNanoType()))
    path = tmp_path / "data.parquet"
    pq.write_table(pa.table({"id": [0]}, schema=pa.schema([column("id", 1, pa.int64())])), path)
    table = _metadata(schema, PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "ts")))
    task = file_task(PlannedFile(entry(path, Content.DATA, 1)._replace(partition=(-1_999,))), table)
    rows = [row for batch in RowReader.of(table).read(IO, task) for row in batch.to_pylist()]
    assert [(row["id"], row["ts"].value) for row in rows] == [(0, NANOS[2])]


def _metadata(schema: Schema, spec: PartitionSpec | None = None) -> Any:
    from pyiceberg.table.metadata import TableMetadataV3

    return TableMetadataV3.model_validate(
        {
            **{"location": "/none", "last-column-id": 3, "schemas": [schema], "current-schema-id": 0},
            **{"partition-specs": [spec or PartitionSpec()], "default-spec-id": 0, "next-row-id": 0},
            **{"sort-orders": [], "default-sort-order-id": 0},
        }
    )
