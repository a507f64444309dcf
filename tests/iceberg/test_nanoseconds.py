"""Columns of format version 3 with nanoseconds or of the type unknown are read by every way, in microseconds."""

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

# The last one is before 1970: it is rounded down.
NANOS = [123_456_789, 1_000_000_999, -1_999]
_EPOCH = datetime(1970, 1, 1)
TIMES = [_EPOCH + timedelta(microseconds=nanos // 1000) for nanos in NANOS]
ROWS = [{"id": i, "ts": at, "tz": at.replace(tzinfo=UTC), "u": None, "inner": {"x": at}} for i, at in enumerate(TIMES)]
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


WAYS: dict[str, Callable[[TableRef], list[dict[str, Any]]]] = {
    "table": lambda ref: IcebergTable(ref).to_arrow().to_pylist(),
    "reference": lambda ref: ref.to_arrow().to_pylist(),
    "polars": lambda ref: IcebergTable(ref).to_polars().to_dicts(),
    "duckdb": lambda ref: IcebergTable(ref).to_duckdb().to_arrow_table().to_pylist(),
    "pandas": lambda ref: pa.Table.from_pandas(IcebergTable(ref).to_pandas()).to_pylist(),
    "filter": lambda ref: IcebergTable(ref).rows.filter(col("u").is_null()).to_arrow().to_pylist(),
    "changes": lambda ref: (
        changes_between(ref, None).to_arrow().select([field.name for field in _SCHEMA.fields]).to_pylist()
    ),
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_rows_are_read(way: Callable[[TableRef], list[dict[str, Any]]], ref: TableRef) -> None:
    assert sorted(way(ref), key=lambda row: row["id"]) == ROWS


FILTERS = {
    "equal": col("ts") == TIMES[0],
    "equal in a zone": col("tz") == TIMES[0].replace(tzinfo=UTC),
    "equal as text": "ts = '1970-01-01T00:00:00.123456'",
    "between": (col("ts") >= TIMES[0]) & (col("ts") < TIMES[1]),
    "as text in a zone": "tz > '1970-01-01T00:00:00+00:00' and tz <= '1970-01-01T00:00:00.123456+00:00'",
    "truncated": (col("ts").dt.truncate("second") == _EPOCH) & (col("id") == lit(0)),
}


@pytest.mark.parametrize("predicate", FILTERS.values(), ids=FILTERS)
def test_filters_compare_what_is_shown(predicate: Any, ref: TableRef) -> None:
    assert IcebergTable(ref).rows.filter(predicate).to_arrow()["id"].to_pylist() == [0]


def test_streams_and_views(ref: TableRef) -> None:
    types = {field.name: str(field.type) for field in stream(ref).schema}
    assert types["ts"] == "timestamp[us]"
    assert types["u"] == "string"
    into = IcebergSinkConfig.from_table(ref.beside("last"))
    MaterializedView("last", stream(ref).key_by("u").aggregate(n=count(), last=max_("ts")), into).refresh()
    (row,) = IcebergTable(into).to_arrow().to_pylist()
    assert (row["u"], row["n"], row["last"]) == (None, 3, TIMES[1])


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
    assert rows == [{"id": 1, "ts": _EPOCH + timedelta(microseconds=1)}]


def test_values_of_partitions_are_in_nanoseconds_too(tmp_path: Path) -> None:
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "ts", TimestampNanoType()))
    path = tmp_path / "data.parquet"
    pq.write_table(pa.table({"id": [0]}, schema=pa.schema([column("id", 1, pa.int64())])), path)
    table = _metadata(schema, PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "ts")))
    task = file_task(PlannedFile(entry(path, Content.DATA, 1)._replace(partition=(-1_999,))), table)
    rows = [row for batch in RowReader.of(table).read(IO, task) for row in batch.to_pylist()]
    assert rows == [{"id": 0, "ts": TIMES[2]}]


def _metadata(schema: Schema, spec: PartitionSpec | None = None) -> Any:
    from pyiceberg.table.metadata import TableMetadataV3

    return TableMetadataV3.model_validate(
        {
            **{"location": "/none", "last-column-id": 3, "schemas": [schema], "current-schema-id": 0},
            **{"partition-specs": [spec or PartitionSpec()], "default-spec-id": 0, "next-row-id": 0},
            **{"sort-orders": [], "default-sort-order-id": 0},
        }
    )
