"""Data files and delete files in Avro, as fastavro writes them by Iceberg's specification (appendix A)."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DateType,
    DecimalType,
    FixedType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from tests.iceberg.test_read_rows import IO, SCHEMA, entry, equality_deletes, position_deletes
from volley.iceberg.read.entries import Content, FileEntry
from volley.iceberg.read.rows import FileTask, RowReader

COUNT = 25_000


def optional(name: str, number: int, data_type: Any) -> dict[str, Any]:
    return {"name": name, "type": ["null", data_type], "default": None, "field-id": number}


def avro_file(
    folder: Path, fields: Sequence[dict[str, Any]], rows: Iterable[dict[str, Any]], content: Content, **more: Any
) -> FileEntry:
    path = folder / f"{content.name}{len(list(folder.iterdir()))}.avro"
    schema, records = {"type": "record", "name": "table", "fields": fields}, list(rows)
    with path.open("wb") as file:
        fastavro.writer(file, schema, records, codec="deflate", sync_interval=4_000)
    return entry(path, content, len(records), format="AVRO", **more)


def many(folder: Path) -> FileEntry:
    """Rows in several blocks and batches, of which `id` is the position."""
    rows = ({"id": number, "name": f"n{number % 7}"} for number in range(COUNT))
    return avro_file(folder, [optional("id", 1, "long"), optional("name", 2, "string")], rows, Content.DATA)


def ids(task: FileTask, **more: Any) -> list[Any]:
    reader = RowReader(SCHEMA.select("id", "real"), **more)
    return [row["id"] for batch in reader.read(IO, task) for row in batch.to_pylist()]


def test_values_of_all_types(tmp_path: Path) -> None:
    inner = {"type": "record", "name": "r7", "fields": [optional("x", 8, "int")]}
    pair = {
        **{"type": "record", "name": "k10_v11"},
        "fields": [{"name": "key", "type": "int", "field-id": 10}, {"name": "value", "type": "string", "field-id": 11}],
    }
    fields = [
        optional("t", 1, {"type": "long", "logicalType": "time-micros"}),
        optional("u", 2, {"type": "fixed", "name": "uuid_fixed", "size": 16, "logicalType": "uuid"}),
        optional("f", 3, {"type": "fixed", "name": "fixed_3", "size": 3}),
        optional("ts", 4, {"type": "long", "logicalType": "timestamp-micros", "adjust-to-utc": False}),
        optional("tz", 5, {"type": "long", "logicalType": "timestamp-micros", "adjust-to-utc": True}),
        optional("small", 6, "int"),
        optional("inner", 7, inner),
        optional("numbers", 9, {"type": "array", "logicalType": "map", "items": pair}),
        optional("tags", 12, {"type": "map", "values": ["null", "long"], "key-id": 13, "value-id": 14}),
        optional("list", 15, {"type": "array", "items": ["null", "int"], "element-id": 16}),
        optional("d", 17, {"type": "int", "logicalType": "date"}),
        optional(
            "m",
            18,
            {**{"type": "fixed", "name": "m_9_2", "size": 4}, "logicalType": "decimal", "precision": 9, "scale": 2},
        ),
        optional("dropped", 19, "string"),
    ]
    key, old = uuid.UUID(int=7), datetime(1960, 2, 3, 4, 5, 6, 7)
    whole = {
        **{"t": time(0, 0, 1, 1), "u": key.bytes, "f": b"\x00\x01\x02", "ts": old.replace(tzinfo=UTC)},
        **{"tz": old.replace(tzinfo=UTC), "small": 5, "inner": {"x": 1}, "numbers": [{"key": 1, "value": "a"}]},
        **{"tags": {"a": None, "b": 2}, "list": [1, None], "d": date(1960, 1, 1), "m": Decimal("1.50")},
    }
    file = avro_file(tmp_path, fields, [whole, {}, {"inner": {}, "numbers": [], "list": []}], Content.DATA)
    schema = Schema(
        NestedField(1, "t", TimeType()),
        NestedField(2, "u", UUIDType()),
        NestedField(3, "f", FixedType(3)),
        NestedField(4, "ts", TimestampType()),
        NestedField(5, "tz", TimestamptzType()),
        NestedField(6, "wide", LongType()),
        NestedField(7, "inner", StructType(NestedField(8, "x", LongType()), NestedField(20, "new", StringType()))),
        NestedField(9, "numbers", MapType(10, IntegerType(), 11, StringType())),
        NestedField(12, "tags", MapType(13, StringType(), 14, LongType(), False)),
        NestedField(15, "list", ListType(16, LongType(), False)),
        NestedField(17, "d", DateType()),
        NestedField(18, "m", DecimalType(12, 2)),
        NestedField(21, "added", IntegerType(), initial_default=5),
    )
    read = [row for batch in RowReader(schema).read(IO, FileTask(file)) for row in batch.to_pylist()]
    nothing = dict.fromkeys([field.name for field in schema.fields]) | {"added": 5}
    assert read == [
        {
            **{"t": time(0, 0, 1, 1), "u": key, "f": b"\x00\x01\x02", "ts": old, "tz": old.replace(tzinfo=UTC)},
            **{"wide": 5, "inner": {"x": 1, "new": None}, "numbers": [(1, "a")], "tags": [("a", None), ("b", 2)]},
            **{"list": [1, None], "d": date(1960, 1, 1), "m": Decimal("1.50"), "added": 5},
        },
        nothing,
        {**nothing, "inner": {"x": None, "new": None}, "numbers": [], "list": []},
    ]


def test_nanoseconds(tmp_path: Path) -> None:
    zoned = {"type": "long", "logicalType": "timestamp-nanos", "adjust-to-utc": True}
    local = {**zoned, "adjust-to-utc": False}
    inner = {"type": "record", "name": "r3", "fields": [optional("at", 4, zoned)]}
    fields = [optional("zoned", 1, zoned), optional("local", 2, local), optional("inner", 3, inner)]
    number = 1_700_000_000_123_456_789
    rows = [{"zoned": number, "local": -1, "inner": {"at": 7}}, {}]
    schema = Schema(
        NestedField(1, "zoned", TimestamptzNanoType()),
        NestedField(2, "local", TimestampNanoType()),
        NestedField(3, "inner", StructType(NestedField(4, "at", TimestamptzNanoType()))),
    )
    file = avro_file(tmp_path, fields, rows, Content.DATA)
    (batch,) = RowReader(schema).read(IO, FileTask(file))
    columns = (batch["zoned"], batch["local"], pc.struct_field(batch["inner"], "at"))
    assert [column.cast(pa.int64()).to_pylist() for column in columns] == [[number, None], [-1, None], [7, None]]


def test_all_blocks_are_read_once_whatever_the_parts(tmp_path: Path) -> None:
    file = many(tmp_path)
    assert ids(FileTask(file)) == list(range(COUNT))
    assert [len(ids(FileTask(file, part=(number, 3)))) for number in range(3)] == [COUNT, 0, 0]
    assert ids(FileTask(file), batch_rows=999) == list(range(COUNT))
    reader = RowReader(SCHEMA.select("real"))
    batches = list(reader.read(IO, FileTask(file, constants={3: 2.5})))
    assert [value for batch in batches for value in batch["real"].to_pylist()] == [2.5] * COUNT


def test_deleted_rows(tmp_path: Path) -> None:
    file, gone = many(tmp_path), [3, 10_000, COUNT - 1]
    fields = [
        {"name": "file_path", "type": "string", "field-id": 2147483546},
        {"name": "pos", "type": "long", "field-id": 2147483545},
    ]
    places = [*((file.path, position) for position in gone), ("/other.avro", 0)]
    rows = ({"file_path": path, "pos": position} for path, position in places)
    in_avro = avro_file(tmp_path, fields, rows, Content.POSITION_DELETES)
    for deletes in (in_avro, position_deletes(tmp_path, places)):
        assert ids(FileTask(file, (deletes,))) == [number for number in range(COUNT) if number not in gone]
        deleted = RowReader(SCHEMA.select("id")).read_deleted(IO, FileTask(file), FileTask(file, (deletes,)))
        assert [row["id"] for batch in deleted for row in batch.to_pylist()] == gone


def test_equality_deletes(tmp_path: Path) -> None:
    file, schema = many(tmp_path), SCHEMA.select("name")
    rows: list[dict[str, Any]] = [{"name": "n3"}, {"name": None}]
    in_avro = avro_file(tmp_path, [optional("name", 2, "string")], rows, Content.EQUALITY_DELETES, equality_ids=(2,))
    in_parquet = equality_deletes(tmp_path, [2], schema, [{"name": "n4"}])
    keys = {delete.path: schema for delete in (in_avro, in_parquet)}
    kept = [number for number in range(COUNT) if number % 7 not in (3, 4)]
    assert ids(FileTask(file, (in_avro, in_parquet), keys=keys)) == kept


def test_single_rows_with_their_positions(tmp_path: Path) -> None:
    file, numbers = many(tmp_path), [5, 10_001, COUNT - 2]
    reader, by = RowReader(SCHEMA.select("id", "name")), SCHEMA.select("id")

    def chosen(rows: pa.RecordBatch) -> np.ndarray[Any, np.dtype[np.bool_]]:
        return np.isin(rows["id"].to_numpy(), numbers)

    located = list(reader.read_located(IO, FileTask(file), chosen, by))
    assert [int(position) for _, positions in located for position in positions] == numbers
    rows = [row for batch, _ in located for row in batch.to_pylist()]
    assert rows == [{"id": number, "name": f"n{number % 7}"} for number in numbers]
