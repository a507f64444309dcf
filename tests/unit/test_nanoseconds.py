"""Nanoseconds are read as microseconds, rounded down, before 1970 too: from every kind of source, as DuckDB does."""

from __future__ import annotations

import json
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

from tests.unit.test_connectors_formats import Files
from volley import MemorySource, SourceContext
from volley.columns.casts import cast, try_cast
from volley.iceberg.read.projection import FileField, Projection

NANOS = [-1, -1001, -1000, 0, 1, 1999, -(2**63) + 1, None]
# Floored by Python.
MICROS = [None if value is None else value // 1000 for value in NANOS]
TEXTS = [
    "1969-12-31T23:59:59.999999999Z",
    "1969-12-31T23:59:59.9999989",
    "2024-01-01T00:00:00.12345678+02:00",
    "2024-01-01 00:00:00",
]
SCHEMA = "id long, at timestamp, wall timestamp_ntz, all array<struct<at: timestamp>>"


def micros(values: pa.Array | pa.ChunkedArray) -> list[int | None]:
    numbers: list[int | None] = values.cast(pa.int64()).to_pylist()
    return numbers


def expected() -> list[int]:
    # Without its ICU extension DuckDB ignores offsets.
    texts = [text.replace("2024-01-01T00:00:00.12345678+02:00", "2023-12-31T22:00:00.12345678") for text in TEXTS]
    sql = "select epoch_us(cast(text as timestamp)) from unnest(?) as texts(text)"
    with duckdb.connect() as connection:
        return [row[0] for row in connection.execute(sql, [texts]).fetchall()]


def written(zone: str | None) -> pa.Table:
    at = pa.array(NANOS, pa.timestamp("ns", zone))
    return pa.table({"id": range(len(at)), "at": at, "in": pa.array([[value] for value in at], pa.list_(at.type))})


@pytest.mark.parametrize("declared", [True, False])
@pytest.mark.parametrize("zone", ["UTC", None])
def test_parquet_is_rounded_down(tmp_path: Path, zone: str | None, declared: bool) -> None:
    files = Files(tmp_path / "in")
    pq.write_table(written(zone), files.folder / "a.parquet")
    name = "timestamp" if zone else "timestamp_ntz"
    (batch,) = files.batches(**{"schema": f"id long, at {name}, in array<{name}>"} if declared else {})
    assert micros(batch.column("at")) == micros(batch.column("in").flatten()) == MICROS


def test_orc_is_rounded_down(tmp_path: Path) -> None:
    files = Files(tmp_path / "in")
    orc.write_table(pa.table({"at": pa.array(NANOS[:6], pa.timestamp("ns"))}), files.folder / "a.orc")
    (batch,) = files.batches()
    assert micros(batch.column("at")) == MICROS[:6]


def test_arrow_and_pandas_in_memory_are_rounded_down(tmp_path: Path) -> None:
    for rows in (written(None), written(None).to_pandas()[["at"]]):
        reader = MemorySource(rows).open(SourceContext(str(tmp_path)))
        (split,) = reader.splits(reader.initial_offset(), reader.latest_offset(reader.initial_offset(), None, None))
        (batch,) = reader.read(split)
        assert micros(batch.column("at")) == MICROS


def test_times_of_day_lose_nanoseconds(tmp_path: Path) -> None:
    files = Files(tmp_path / "in")
    pq.write_table(pa.table({"at": pa.array([1999, 1_000_000_001], pa.time64("ns"))}), files.folder / "a.parquet")
    (batch,) = files.batches()
    assert micros(batch.column("at")) == [1, 1_000_000]


def test_data_files_of_tables_are_rounded_down() -> None:
    from pyiceberg.types import NestedField, TimestampType

    at = pa.array(NANOS, pa.timestamp("ns"))
    target = pa.schema({"at": pa.timestamp("us")})
    (column,) = Projection({}).columns(
        [NestedField(1, "at", TimestampType())], target, {1: (FileField("at", 1), at)}, len(at)
    )
    assert micros(column) == MICROS


def test_json_has_up_to_nine_digits(tmp_path: Path) -> None:
    files = Files(tmp_path / "in")
    rows = [{"id": 1, "at": text, "wall": text, "all": [{"at": text}, None]} for text in TEXTS]
    files.put("a.json", "\n".join(map(json.dumps, [*rows, {"id": 2}])))
    table = pa.Table.from_batches(files.batches(schema=SCHEMA)).combine_chunks()
    assert micros(table["at"]) == micros(table["wall"]) == [*expected(), None]
    inner = table["all"].combine_chunks().flatten()
    assert micros(inner.field("at").filter(inner.is_valid())) == expected()


def test_csv_has_up_to_nine_digits(tmp_path: Path) -> None:
    files = Files(tmp_path / "in")
    walls = [text.partition("+")[0].removesuffix("Z") for text in TEXTS]
    lines = [f"{text},{wall},01:02:03.123456789" for text, wall in zip(TEXTS, walls, strict=True)]
    files.put("a.csv", "at,wall,time\n" + "\n".join(lines))
    batch = pa.Table.from_batches(files.batches(schema="at timestamp, wall timestamp_ntz, time time"))
    assert micros(batch.column("at")) == expected()
    assert micros(batch.column("wall"))[1] == expected()[1]
    assert set(micros(batch.column("time"))) == {3_723_123_456}


@pytest.mark.parametrize("name", ["a.json", "a.csv"])
def test_ten_digits_are_an_error(tmp_path: Path, name: str) -> None:
    files = Files(tmp_path / "in")
    text = "2024-01-01T00:00:00.1234567891Z"
    files.put(name, json.dumps({"at": text}) if name == "a.json" else f"at\n{text}\n")
    assert text in files.error(schema="at timestamp").message


@pytest.mark.parametrize("convert", [cast, try_cast])
def test_casts_of_texts_take_nine_digits(convert: object) -> None:
    assert callable(convert)
    assert micros(convert(pa.array(TEXTS), pa.timestamp("us", "UTC"))) == expected()
    assert micros(convert(pa.array(["01:02:03.1234567"]), pa.time64("us"))) == [3_723_123_456]


def test_a_csv_header_that_is_not_utf8_is_named(tmp_path: Path) -> None:
    files = Files(tmp_path / "in")
    files.put("a.csv", b"id,caf\xe9\n1,2\n")
    assert "not UTF-8" in files.error().message


FINE = (
    "id long, at timestamp(9), wall timestamp_ntz(9), all array<struct<at: timestamp(9)>>, by map<string, timestamp(9)>"
)
FINEST = "2024-01-01T00:00:00.123456789"


def test_declared_nanoseconds_are_kept_in_json(tmp_path: Path) -> None:
    files = Files(tmp_path / "in")
    row = {"at": f"{FINEST}Z", "wall": FINEST, "all": [{"at": f"{FINEST}Z"}], "by": {"a": f"{FINEST}Z"}}
    files.put("a.json", "\n".join(map(json.dumps, [row, row | {"wall": f"{FINEST}+00:00"}, {"id": 2}])))
    table = pa.Table.from_batches(files.batches(schema=FINE)).combine_chunks()
    expected = [1704067200123456789] * 2
    assert micros(table["at"]) == micros(table["wall"]) == [*expected, None]
    assert micros(table["all"].combine_chunks().flatten().field("at")) == expected
    assert micros(pa.concat_arrays([chunk.items for chunk in table["by"].chunks])) == expected


@pytest.mark.parametrize(("name", "text"), [("a.json", '{"at": %s}'), ("a.csv", "at\n%s")])
@pytest.mark.parametrize("number", ["1704067200.123456789", "1704067200.5"])
def test_fractions_of_epochs_keep_nanoseconds(tmp_path: Path, name: str, text: str, number: str) -> None:
    files = Files(tmp_path / "in")
    files.put(name, text % number)
    (batch,) = files.batches(schema="at timestamp(9)", options={"epoch": "s"})
    assert micros(batch.column("at")) == [1704067200123456789 if number.endswith("9") else 1704067200500000000]


@pytest.mark.parametrize(("name", "text"), [("a.json", '{"at": %s}'), ("a.csv", "at\n%s")])
def test_epochs_in_nanoseconds_are_kept(tmp_path: Path, name: str, text: str) -> None:
    files = Files(tmp_path / "in")
    files.put(name, text % "1704067200123456789")
    (batch,) = files.batches(schema="at timestamp(9)", options={"epoch": "ns"})
    assert micros(batch.column("at")) == [1704067200123456789]


@pytest.mark.parametrize("name", ["a.json", "a.csv"])
def test_times_beyond_nanoseconds_are_an_error(tmp_path: Path, name: str) -> None:
    files = Files(tmp_path / "in")
    text = "2262-04-11T23:47:16.854775808Z"
    files.put(name, json.dumps({"at": text}) if name == "a.json" else f"at\n{text}\n")
    assert text in files.error(schema="at timestamp(9)").message


def test_declared_nanoseconds_are_kept_in_parquet_and_orc(tmp_path: Path) -> None:
    files = Files(tmp_path / "in")
    pq.write_table(written("UTC"), files.folder / "a.parquet")
    (batch,) = files.batches(schema="id long, at timestamp(9), in array<timestamp(9)>")
    assert micros(batch.column("at")) == micros(batch.column("in").flatten()) == NANOS
