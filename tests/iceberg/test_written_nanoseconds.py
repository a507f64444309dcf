"""Nanoseconds from files and from memory land in tables of format version 3 with all digits, and stay there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.transforms import BucketTransform, DayTransform, HourTransform, MonthTransform, YearTransform
from pyiceberg.types import TimestampNanoType, TimestamptzNanoType

from tests.avro import record
from tests.sinks import config_of
from volley import (
    Environment,
    FileSource,
    MemorySource,
    Partitioning,
    SchemaMismatchError,
    Upsert,
    count,
    tumbling,
)
from volley.iceberg import IcebergSink, IcebergSinkConfig, IcebergTable
from volley.iceberg.layout.layout import transformed

pytestmark = pytest.mark.usefixtures("spark")

NANOS = [1704067200123456789, 1_000_000_999, -1_999, 0, None]
TEXTS = ["2024-01-01T00:00:00.123456789", "1970-01-01 00:00:01.000000999", "1969-12-31T23:59:59.999998001"]
SCHEMA = "id long, at timestamp(9), wall timestamp_ntz(9)"


def config(folder: Path) -> IcebergSinkConfig:
    table = config_of(folder)
    return table.with_table_properties({"format-version": "3"})


def write(folder: Path, source: Any, table: IcebergSinkConfig, steps: Any = lambda stream: stream) -> None:
    environment = Environment(checkpoint_dir=str(folder / "checkpoints"))
    steps(environment.from_source(source)).to_sink(IcebergSink(table)).execute(table.table)


def rows_of(table: IcebergSinkConfig) -> list[tuple[Any, ...]]:
    """Return the rows as pyiceberg reads them, with times in nanoseconds."""
    rows = table.ref.load().scan().to_arrow().sort_by("id")
    return list(zip(*(rows[name].cast(pa.int64()).to_pylist() for name in ("id", "at", "wall")), strict=True))


def rows_in_memory(nanos: list[int | None], ids: Any = None) -> pa.Table:
    times = {"at": pa.array(nanos, pa.timestamp("ns", "UTC")), "wall": pa.array(nanos, pa.timestamp("ns"))}
    return pa.table({"id": ids or range(len(nanos))} | times)


def in_memory(nanos: list[int | None], ids: Any = None) -> MemorySource:
    return MemorySource(rows_in_memory(nanos, ids), schema=SCHEMA)


def files(folder: Path, name: str) -> FileSource:
    place = folder / "in"
    place.mkdir()
    if name == "parquet":
        pq.write_table(rows_in_memory(NANOS), place / "a.parquet")
    elif name == "json":
        rows = [{"id": i, "at": text + "Z", "wall": text} for i, text in enumerate(TEXTS)]
        (place / "a.json").write_text(
            "\n".join(map(json.dumps, [*rows, {"id": 3, "at": "1970-01-01", "wall": "1970-01-01"}, {"id": 4}]))
        )
    elif name == "avro":
        nanos = [{"type": "long", "logicalType": f"{zone}timestamp-nanos"} for zone in ("", "local-")]
        pairs = [("id", "long"), *(zip(("at", "wall"), (["null", each] for each in nanos), strict=True))]
        avro = [{"id": i, "at": at, "wall": at} for i, at in enumerate(NANOS)]
        with (place / "a.avro").open("wb") as file:
            fastavro.writer(file, record(*pairs), avro)
    else:
        lines = [f"{i},{text}Z,{text}" for i, text in enumerate(TEXTS)]
        (place / "a.csv").write_text("\n".join(["id,at,wall", *lines, "3,1970-01-01,1970-01-01", "4,,"]))
    return FileSource(str(place), format=cast(Any, name), schema=SCHEMA)


@pytest.mark.parametrize("name", ["parquet", "json", "csv", "avro"])
def test_files_land_with_all_digits(tmp_path: Path, name: str) -> None:
    parts = [Partitioning.bucket("at", n=4), Partitioning.time("wall", granularity="hour")]
    table = config(tmp_path).with_partitioning(parts)
    write(tmp_path, files(tmp_path, name), table)
    assert rows_of(table) == [(i, at, at) for i, at in enumerate(NANOS)]
    kinds = {field.name: type(field.field_type) for field in table.ref.load().schema().fields}
    assert kinds["at"] is TimestamptzNanoType
    assert kinds["wall"] is TimestampNanoType


def test_keys_of_upserts_and_sorted_compactions_have_all_digits(tmp_path: Path) -> None:
    table = config(tmp_path).with_commit_mode(Upsert(["at"]))
    write(tmp_path, in_memory([1_001, 1_002, 1_999], [1, 2, 3]), table)
    write(tmp_path / "more", in_memory([1_002, 2_000], [20, 4]), table)
    expected = [(1, 1_001, 1_001), (3, 1_999, 1_999), (4, 2_000, 2_000), (20, 1_002, 1_002)]
    assert rows_of(table) == expected
    IcebergTable(table.ref).compact(rewrite_all=True, sort_by=["at desc"])
    assert rows_of(table) == expected


def test_version_2_is_refused_by_name(tmp_path: Path) -> None:
    table = config(tmp_path).with_table_properties({"format-version": "2"})
    with pytest.raises(SchemaMismatchError, match=r"column 'at' .* timestamptz_ns needs format version 3") as refused:
        write(tmp_path, in_memory(NANOS), table)
    assert "upgrade(3)" in str(refused.value)


def test_windows_start_at_microseconds(tmp_path: Path) -> None:
    table = config(tmp_path)

    def windows(stream: Any) -> Any:
        return stream.key_by("key").window(tumbling("1s"), on="wall").aggregate(n=count())

    source = pa.table({"key": [1, 1, 1], "wall": pa.array([1, 999_999_999, 1_000_000_000], pa.timestamp("ns"))})
    write(tmp_path, MemorySource(source, schema="key long, wall timestamp_ntz(9)"), table, windows)
    rows = IcebergTable(table.ref).to_arrow().sort_by("window_start")
    assert rows["window_start"].type == pa.timestamp("us")
    assert rows["n"].to_pylist() == [2, 1]


@given(st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), max_size=20))
@settings(deadline=None)
def test_transforms_are_those_of_pyiceberg(nanos: list[int | None]) -> None:
    for zone, kind in ((None, TimestampNanoType()), ("UTC", TimestamptzNanoType())):
        values = pa.array(nanos, pa.timestamp("ns", zone))
        transforms: list[Any] = [
            YearTransform(),
            MonthTransform(),
            DayTransform(),
            HourTransform(),
            BucketTransform(16),
        ]
        for transform in transforms:
            compute = transform.transform(kind)
            expected = [None if number is None else compute(number) for number in nanos]
            assert transformed(transform, values).to_pylist() == expected, transform
