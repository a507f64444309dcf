"""Data files and delete files in ORC, as Hive, Impala and Spark write them: with field ids in the types' attributes."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import UTC, datetime, time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import orc
from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import MappedField
from pyiceberg.types import (
    DoubleType,
    FixedType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from tests.iceberg.test_read_rows import IO, SCHEMA, entry, equality_deletes, position_deletes
from volley import SourceError
from volley.iceberg.read.entries import Content, FileEntry
from volley.iceberg.read.rows import FileTask, RowReader

COUNT = 20_000
STRIPE_ROWS = 4_096


def orc_file(folder: Path, table: pa.Table, content: Content = Content.DATA, **more: Any) -> FileEntry:
    path = folder / f"{content.name}{len(list(folder.iterdir()))}.orc"
    orc.write_table(table, path, stripe_size=1, batch_size=STRIPE_ROWS)
    return entry(path, content, table.num_rows, format="ORC", **more)


def column(name: str, number: int, data_type: pa.DataType) -> pa.Field:
    return pa.field(name, data_type, metadata={"iceberg.id": str(number)})


def many(folder: Path) -> FileEntry:
    """Rows in several stripes, of which `id` is the position."""
    schema = pa.schema([column("id", 1, pa.int64()), column("name", 2, pa.string())])
    columns = {"id": range(COUNT), "name": [f"n{i % 7}" for i in range(COUNT)]}
    file = orc_file(folder, pa.table({name: list(values) for name, values in columns.items()}, schema=schema))
    assert orc.ORCFile(file.path).nstripes > 2
    return file


def ids(task: FileTask, **more: Any) -> list[Any]:
    reader = RowReader(SCHEMA.select("id", "real"), **more)
    return [row["id"] for batch in reader.read(IO, task) for row in batch.to_pylist()]


def test_values_of_all_types(tmp_path: Path) -> None:
    inner = pa.struct([column("x", 9, pa.int32()), column("tags", 10, pa.list_(column("item", 11, pa.string())))])
    key, bits = uuid.UUID(int=7), b"\x00\x01\x02"
    stored = pa.schema(
        [
            column("t", 1, pa.int64()),
            column("u", 2, pa.binary()),
            column("f", 3, pa.binary()),
            column("ts", 4, pa.timestamp("ns")),
            column("tz", 5, pa.timestamp("ns", "UTC")),
            column("small", 6, pa.int16()),
            column("real", 7, pa.float32()),
            column("inner", 8, inner),
        ]
    )
    old = datetime(1960, 2, 3, 4, 5, 6, 7)
    values = [1_000_001, key.bytes, bits, old, old.replace(tzinfo=UTC), 5, 0.5, {"x": 1, "tags": ["a", None]}]
    rows = [dict(zip(stored.names, values, strict=True)), dict.fromkeys(stored.names), {"inner": {"x": None}}]
    file = orc_file(tmp_path, pa.Table.from_pylist(rows, schema=stored))
    schema = Schema(
        NestedField(1, "t", TimeType()),
        NestedField(2, "u", UUIDType()),
        NestedField(3, "f", FixedType(3)),
        NestedField(4, "ts", TimestampType()),
        NestedField(5, "tz", TimestamptzType()),
        NestedField(6, "wide", IntegerType()),
        NestedField(7, "real", DoubleType()),
        NestedField(
            8,
            "inner",
            StructType(
                NestedField(9, "x", LongType()),
                NestedField(10, "tags", ListType(11, StringType(), False)),
                NestedField(12, "new", StringType()),
            ),
        ),
        NestedField(13, "added", IntegerType(), initial_default=5),
    )
    read = [row for batch in RowReader(schema).read(IO, FileTask(file)) for row in batch.to_pylist()]
    nothing = dict.fromkeys([field.name for field in schema.fields]) | {"added": 5}
    assert read == [
        {
            **{"t": time(0, 0, 1, 1), "u": key, "f": bits, "ts": old, "tz": old.replace(tzinfo=UTC), "wide": 5},
            **{"real": 0.5, "inner": {"x": 1, "tags": ["a", None], "new": None}, "added": 5},
        },
        nothing,
        {**nothing, "inner": {"x": None, "tags": None, "new": None}},
    ]


def test_all_stripes_are_read_once_whatever_the_parts(tmp_path: Path) -> None:
    file = many(tmp_path)
    assert ids(FileTask(file)) == list(range(COUNT))
    assert [len(ids(FileTask(file, part=(number, 3)))) for number in range(3)] == [COUNT, 0, 0]
    assert ids(FileTask(file), batch_rows=999) == list(range(COUNT))
    # A column that the file lacks has the value of its partition, in all rows.
    reader = RowReader(SCHEMA.select("real"))
    batches = list(reader.read(IO, FileTask(file, constants={3: 2.5})))
    assert [value for batch in batches for value in batch["real"].to_pylist()] == [2.5] * COUNT


def positions_in_orc(folder: Path, positions: Sequence[tuple[str, int]]) -> FileEntry:
    columns = {"file_path": [path for path, _ in positions], "pos": [position for _, position in positions]}
    return orc_file(folder, pa.table(columns), Content.POSITION_DELETES)


def test_deleted_rows(tmp_path: Path) -> None:
    file, gone = many(tmp_path), [3, STRIPE_ROWS, COUNT - 1]
    others = [("/other.orc", 0)]
    for make in (positions_in_orc, position_deletes):
        deletes = make(tmp_path, [*((file.path, position) for position in gone), *others])
        assert ids(FileTask(file, (deletes,))) == [i for i in range(COUNT) if i not in gone]
        reader = RowReader(SCHEMA.select("id"))
        deleted = reader.read_deleted(IO, FileTask(file), FileTask(file, (deletes,)))
        assert [row["id"] for batch in deleted for row in batch.to_pylist()] == gone


def test_equality_deletes(tmp_path: Path) -> None:
    file, schema = many(tmp_path), SCHEMA.select("name")
    stored = pa.table({"name": ["n3", None]}, schema=pa.schema([column("name", 2, pa.string())]))
    in_orc = orc_file(tmp_path, stored, Content.EQUALITY_DELETES, equality_ids=(2,))
    in_parquet = equality_deletes(tmp_path, [2], schema, [{"name": "n4"}])
    keys = {delete.path: schema for delete in (in_orc, in_parquet)}
    left = [i for i in range(COUNT) if i % 7 not in (3, 4)]
    assert ids(FileTask(file, (in_orc, in_parquet), keys=keys)) == left


def test_single_rows_with_their_positions(tmp_path: Path) -> None:
    file, wanted = many(tmp_path), [5, STRIPE_ROWS + 1, COUNT - 2]
    reader, by = RowReader(SCHEMA.select("id", "name")), SCHEMA.select("id")

    def chosen(rows: pa.RecordBatch) -> np.ndarray[Any, np.dtype[np.bool_]]:
        return np.isin(rows["id"].to_numpy(), wanted)

    located = list(reader.read_located(IO, FileTask(file), chosen, by))
    assert [int(position) for _, positions in located for position in positions] == wanted
    rows = [row for batch, _ in located for row in batch.to_pylist()]
    assert rows == [{"id": i, "name": f"n{i % 7}"} for i in wanted]


def test_files_without_ids_are_read_by_the_tables_name_mapping(tmp_path: Path) -> None:
    file = orc_file(tmp_path, pa.table({"was": pa.array([1, 2], pa.int32())}))
    names = MappedField.model_validate({"field-id": 1, "names": ["was"]})
    assert ids(FileTask(file), names=(names,)) == [1, 2]


def test_a_time_that_arrow_cannot_hold_is_named(tmp_path: Path) -> None:
    stored = pa.schema([column("ts", 1, pa.timestamp("us"))])
    file = orc_file(tmp_path, pa.table({"ts": [datetime(3000, 1, 1)]}, schema=stored))
    schema = Schema(NestedField(1, "ts", TimestampType()))
    with pytest.raises(SourceError, match=r"\.orc can't be read as ORC: .* out of range"):
        list(RowReader(schema).read(IO, FileTask(file)))
