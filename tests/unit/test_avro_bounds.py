"""Avro that claims or takes more than there is: refused before it is decoded; all limits are lowered here."""

from __future__ import annotations

import bz2
import json
import lzma
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fastavro
import lz4.block
import pyarrow as pa
import pytest

from tests.avro import MARK, avro_file, long, record, text
from volley import ConfigError, Environment, FileSource, SourceContext, SourceError
from volley.contracts.rows import BadRow
from volley.formats.avro import AvroValues, avro_columns, resolution_of
from volley.formats.messages import MessageRows, TooManyError

KILOBYTE = 1 << 10


@dataclass(frozen=True)
class Registry:
    """A registry of one schema."""

    text: str

    def schema(self, number: int) -> str:
        return self.text


@pytest.fixture(autouse=True)
def lowered(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("avro", "avro_bounds", "avro_files"):
        monkeypatch.setattr(f"volley.formats.{module}.LARGEST_VALUE", 64 * KILOBYTE)
    monkeypatch.setattr("volley.formats.avro._SMALL_VALUE", 1 * KILOBYTE)
    monkeypatch.setattr("volley.formats.avro_blocks.LARGEST_BLOCK", 256 * KILOBYTE)
    monkeypatch.setattr("volley.formats.avro_blocks._LONGEST_HEADER", 16 * KILOBYTE)
    monkeypatch.setattr("volley.formats.avro_bounds.MOST_PARTS", 50)
    monkeypatch.setattr("volley.formats.avro_bounds.DEEPEST", 10)
    monkeypatch.setattr("volley.formats.avro.DEEPEST", 10)


def rows_of(path: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = Environment().from_source(FileSource(path)).to_arrow().to_pylist()
    return rows


def of_file(data: bytes, folder: Path) -> list[dict[str, Any]]:
    (folder / "rows.avro").write_bytes(data)
    return rows_of(folder / "rows.avro")


def of_message(schema: Any, value: bytes, reader: Any = None) -> list[dict[str, Any]]:
    registry: Any = Registry(json.dumps(schema))
    batch = AvroValues(json.dumps(reader or schema), registry).decode([b"\0\0\0\0\1" + value])
    rows: list[dict[str, Any]] = batch.to_pylist()
    return rows


EMPTY = record(("nothing", "null"), name="Empty")
NUMBERS = {"type": "array", "items": "long"}
NESTED = record(("value", "long"), ("next", ["null", "Nested"]), name="Nested")

# What claims more items or bytes than are there, or takes more memory than a value may: type, bytes, reason.
CLAIMS: dict[str, tuple[Any, bytes, str]] = {
    "nulls": ({"type": "array", "items": "null"}, long(5_000) + long(0), r"'a' takes more than 0\.0625 MB in memory"),
    "empty records": ({"type": "array", "items": EMPTY}, long(5_000) + long(0), r"takes more than 0\.0625 MB"),
    "empty fixed": (
        {"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}},
        long(5_000) + long(0),
        "takes more than",
    ),
    "nulls in several blocks": (
        {"type": "array", "items": "null"},
        (long(-1_000) + long(0)) * 5 + long(0),
        "takes more than",
    ),
    "small records": (
        {"type": "array", "items": record(("n", "null"), ("b", "boolean"), name="S")},
        long(2_000) + b"\1" * 2_000 + long(0),
        "takes more than",
    ),
    "nulls of a wide fixed": (
        {"type": "array", "items": ["null", {"type": "fixed", "name": "F", "size": 1_000}]},
        long(70) + long(0) * 70 + long(0),
        "takes more than",
    ),
    "nulls of a record": (
        {"type": "array", "items": ["null", record(*[(f"f{n}", "long") for n in range(20)], name="S")]},
        long(300) + long(0) * 300 + long(0),
        "takes more than",
    ),
    "long symbols": (
        {"type": "array", "items": {"type": "enum", "name": "E", "symbols": ["x" * 1_000]}},
        long(100) + long(0) * 100 + long(0),
        "takes more than",
    ),
    "numbers": (NUMBERS, long(5_000) + long(1) * 5_000 + long(0), "takes more than"),
    "a map": ({"type": "map", "values": "null"}, long(5_000) + text("k") * 5_000 + long(0), "takes more than"),
    "a long text": ("string", text("x" * 70_000), "takes more than"),
    "arrays in arrays": (
        {"type": "array", "items": {"type": "array", "items": "null"}},
        long(50) + (long(100) + long(0)) * 50 + long(0),
        "takes more than",
    ),
    "more items than bytes": (NUMBERS, long(20_000) + long(1) * 10_000, r"20,000 items in 10,00. bytes"),
    "more entries than bytes": (
        {"type": "map", "values": "long"},
        long(10_009) + long(1) * 10_000,
        r"10,009 items in 10,00. bytes",
    ),
    "a longer text than there is": (
        {"type": "array", "items": "string"},
        long(4_000) + long(10_000) + b"x" * 9_000,
        "10,000 bytes, of which",
    ),
    "a text of less than no bytes": (
        {"type": "array", "items": "string"},
        long(4_000) + long(-1) + b"x" * 9_000,
        "-1 bytes, of which",
    ),
    "a branch that is none": (
        {"type": "array", "items": ["null", "long"]},
        long(4_000) + long(-1) * 5_000,
        "branch -1 of 2",
    ),
    "a number without an end": (NUMBERS, long(4_000) + b"\xff" * 9_000, "more than 64 bits"),
}


@pytest.mark.parametrize("name", CLAIMS)
def test_a_message_that_claims_too_much(name: str) -> None:
    data_type, value, reason = CLAIMS[name]
    with pytest.raises(SourceError, match=reason):
        of_message(record(("a", data_type)), value)


@pytest.mark.parametrize("name", CLAIMS)
def test_a_file_that_claims_too_much_is_named(name: str, tmp_path: Path) -> None:
    data_type, value, reason = CLAIMS[name]
    with pytest.raises(SourceError, match=reason) as caught:
        of_file(avro_file(record(("a", data_type)), 1, value), tmp_path)
    assert "rows.avro" in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize("name", CLAIMS)
def test_a_field_that_is_not_read_is_bounded_too(name: str) -> None:
    data_type, value, reason = CLAIMS[name]
    with pytest.raises(SourceError, match=reason):
        of_message(record(("a", data_type), ("b", "long")), value + long(7), record(("b", "long")))


@pytest.mark.parametrize("name", CLAIMS)
def test_a_message_that_claims_too_much_is_a_bad_row(name: str) -> None:
    data_type, value, reason = CLAIMS[name]
    schema = record(("a", ["null", data_type]))
    chunk: Any = Chunk([long(0), long(1) + value, None])
    rows = list(messages(schema).read_tolerant([chunk]))
    (bad,) = [row for row in rows if isinstance(row, BadRow)]
    assert bad.position == "message 1"
    assert re.search(reason, bad.error)
    assert sum(row.batch.num_rows for row in rows if not isinstance(row, BadRow)) == 2


SMALL: dict[str, tuple[Any, Any]] = {
    "nulls": ({"type": "array", "items": "null"}, [None] * 4_000),
    "empty records": ({"type": "array", "items": EMPTY}, [{"nothing": None}] * 1_000),
    "numbers": (NUMBERS, list(range(4_000))),
    "texts": ({"type": "array", "items": "string"}, ["x" * 900] * 60),
    "an empty array": (NUMBERS, []),
    "arrays": ({"type": "array", "items": {"type": "array", "items": "double"}}, [[0.5] * 30] * 100),
    "fixed and null": (
        {"type": "array", "items": ["null", {"type": "fixed", "name": "F", "size": 9}]},
        [b"x" * 9, None],
    ),
    "symbols": ({"type": "array", "items": {"type": "enum", "name": "E", "symbols": ["A", "B"]}}, ["A", "B"] * 900),
    "booleans and floats": (
        {"type": "array", "items": record(("b", "boolean"), ("f", "float"), name="S")},
        [{"b": True, "f": 0.5}] * 900,
    ),
}


@pytest.mark.parametrize("name", SMALL)
def test_values_up_to_the_limit_are_read_by_the_walk_and_without(name: str, tmp_path: Path) -> None:
    data_type, value = SMALL[name]
    path = tmp_path / "rows.avro"
    with path.open("wb") as file:
        # Large blocks, whose records are walked through.
        fastavro.writer(file, record(("a", data_type)), [{"a": value}] * 3, sync_interval=1 << 20)
    assert rows_of(path) == [{"a": value}] * 3


def test_entries_of_maps_up_to_the_limit(tmp_path: Path) -> None:
    value = {str(number): number for number in range(1_800)}
    with (tmp_path / "rows.avro").open("wb") as file:
        fastavro.writer(file, record(("a", {"type": "map", "values": "long"})), [{"a": value}] * 3)
    assert rows_of(tmp_path / "rows.avro") == [{"a": list(value.items())}] * 3


def test_defaults_that_reading_adds_count(tmp_path: Path) -> None:
    items = (
        {"type": "array", "items": record(("b", "boolean"), *new, name="S")}
        for new in ((), (("c", "string", "x" * 900),))
    )
    writer, reader = (record(("a", each)) for each in items)
    few = of_message(writer, long(60) + b"\1" * 60 + long(0), reader)
    assert few == [{"a": [{"b": True, "c": "x" * 900}] * 60}]
    with pytest.raises(SourceError, match="'a' takes more than"):
        of_message(writer, long(80) + b"\1" * 80 + long(0), reader)
    chunk: Any = [b"\0\0\0\0\1" + long(1)] * 80
    old, new = record(("b", "boolean")), record(("b", "boolean"), ("c", "string", "x" * 900))
    registry: Any = Registry(json.dumps(old))
    with pytest.raises(TooManyError):
        AvroValues(json.dumps(new), registry).decode(chunk)


def chain(levels: int) -> bytes:
    return b"".join(long(number) + long(1) for number in range(levels)) + long(levels) + long(0)


def test_a_skipped_value_of_a_type_that_contains_itself_has_a_depth() -> None:
    writer, reader = record(("a", NESTED), ("b", "long")), record(("b", "long"))
    assert of_message(writer, chain(3) + long(7), reader) == [{"b": 7}]
    with pytest.raises(SourceError, match="field 'a' has more than 10 levels"):
        of_message(writer, chain(20) + long(7), reader)


def doubled(levels: int) -> dict[str, Any]:
    """A record with two fields of a record with two fields and so on."""
    fields: list[tuple[Any, ...]] = [("t0", record(("x", "long"), name="T0"))]
    for level in range(1, levels):
        last = f"T{level - 1}"
        fields.append((f"t{level}", record(("x", last), ("y", last), name=f"T{level}")))
    return record(*fields)


def nested(levels: int) -> dict[str, Any]:
    schema: Any = "long"
    for level in range(levels):
        schema = record(("x", schema), name=f"T{level}")
    assert isinstance(schema, dict)
    return schema


def chained(levels: int) -> dict[str, Any]:
    """Types that each name the one before: deep, but written side by side."""
    fields: list[tuple[Any, ...]] = [("t0", record(("x", "long"), name="T0"))]
    fields += [(f"t{level}", record(("x", f"T{level - 1}"), name=f"T{level}")) for level in range(1, levels)]
    return record(*fields)


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        (doubled(5), "more than 50 fields"),
        (nested(15), "more than 10 levels"),
        (nested(150), "more than 10 levels"),
        (chained(15), "more than (10 levels|50 fields)"),
        (record(("a", {"type": "fixed", "name": "F", "size": 1 << 20})), "has 1048576 bytes"),
    ],
    ids=["doubled", "nested", "nested deeper", "chained", "fixed"],
)
def test_a_schema_that_is_too_large_is_refused(schema: Any, reason: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=reason) as caught:
        avro_columns(json.dumps(schema))
    assert caught.value.hint
    with pytest.raises(SourceError, match=reason):
        of_message(schema, b"", record(("b", "long", 0)))
    with pytest.raises((SourceError, ConfigError), match=reason):
        of_file(avro_file(schema, 1, b""), tmp_path)


def test_types_inside_the_limits_are_read() -> None:
    assert avro_columns(json.dumps(doubled(3))).names == ["t0", "t1", "t2"]
    assert avro_columns(json.dumps(nested(8))).names == ["x"]


ONE = record(("id", "long"))


@pytest.mark.parametrize(
    ("count", "block", "reason"),
    [
        (3, long(1) * 2, "block 1 has 3 records in 2 bytes"),
        (5_000, long(1) * 2, "block 1 has 5,000 records in 2 bytes"),
        (-1, long(1), "block 1 has -1 records"),
        (1, long(1) * 2, "1 bytes left over"),
    ],
)
def test_blocks_with_other_records_than_they_say(count: int, block: bytes, reason: str, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=rf"rows\.avro .*{reason}"):
        of_file(avro_file(ONE, count, block), tmp_path)


def test_records_without_bytes_have_a_number(tmp_path: Path) -> None:
    schema = record(("a", "null"))
    assert of_file(avro_file(schema, 1_000, b""), tmp_path) == [{"a": None}] * 1_000
    several = avro_file(schema, 1_000, b"") + (long(1_000) + long(0) + MARK) * 3
    with pytest.raises(SourceError, match=r"rows\.avro, block 3: more than 2,048 records without a byte"):
        of_file(several, tmp_path)


@pytest.mark.parametrize("size", [300_000, -1, 1_000])
def test_a_block_that_says_it_is_longer_than_the_file(size: int, tmp_path: Path) -> None:
    whole = avro_file(ONE, 1, b"")
    cut = whole[: -len(MARK) - 1]
    with pytest.raises(SourceError, match=r"rows\.avro is not a whole Avro file"):
        of_file(cut + long(size) + long(1) + MARK, tmp_path)


def test_a_block_over_the_limit_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"rows\.avro, block 1: a block of more than 0\.25 MB") as caught:
        of_file(avro_file(ONE, 300 * KILOBYTE, long(1) * 300 * KILOBYTE), tmp_path)
    assert "shorter block" in str(caught.value.hint)


@pytest.mark.parametrize("codec", ["deflate", "bzip2", "xz", "zstandard", "snappy", "lz4"])
def test_the_content_of_a_block_is_bounded_while_it_is_decompressed(
    codec: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("volley.formats.avro_blocks.LARGEST_BLOCK", 8 * KILOBYTE)
    pack: dict[str, Any] = {
        "deflate": lambda data: zlib.compress(data, wbits=-15),
        "bzip2": bz2.compress,
        "xz": lzma.compress,
        "zstandard": lambda data: pa.compress(data, "zstd", asbytes=True),
        "snappy": lambda data: pa.compress(data, "snappy", asbytes=True) + zlib.crc32(data).to_bytes(4, "big"),
        "lz4": lz4.block.compress,
    }
    fits, more = long(1) * 8 * KILOBYTE, long(1) * (8 * KILOBYTE + 1)
    assert len(of_file(avro_file(ONE, len(fits), pack[codec](fits), codec), tmp_path)) == len(fits)
    with pytest.raises(SourceError, match=r"rows\.avro, block 1: a block of more than 0\.007812 MB"):
        of_file(avro_file(ONE, len(more), pack[codec](more), codec), tmp_path)


@pytest.mark.parametrize("length", [300_000, -1, 17_000])
def test_lengths_in_the_header_are_bounded(length: int, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"rows\.avro"):
        of_file(b"Obj\x01" + long(1) + text("avro.schema") + long(length) + b"x" * 20_000, tmp_path)


def test_many_entries_in_the_header_are_bounded(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"rows\.avro: a header of more than 0\.01562 MB"):
        of_file(b"Obj\x01" + long(9_000) + (text("k") + text("v")) * 5_000, tmp_path)


def test_batches_of_files_are_small_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "rows.avro"
    with path.open("wb") as file:
        fastavro.writer(file, record(("a", "string")), [{"a": "x" * 1_000}] * 500)
    reader = FileSource(path).open(SourceContext(str(tmp_path / "state")))
    (split,) = reader.splits(reader.initial_offset(), reader.latest_offset(reader.initial_offset(), None, None))
    counts = [batch.num_rows for batch in reader.read(split)]
    assert sum(counts) == 500
    assert max(counts) <= 64


@dataclass(frozen=True)
class Chunk:
    """Messages of a test."""

    values: Sequence[bytes | None]
    first: int = 0

    def part(self, start: int, end: int) -> Chunk:
        return Chunk(self.values[start:end], self.first + start)

    def position(self, row: int) -> str:
        return f"message {self.first + row}"


def messages(schema: Any) -> MessageRows:
    decoder = AvroValues(json.dumps(schema), None)
    return MessageRows(decoder, decoder.schema, lambda fields, chunk: [])


def test_messages_that_take_too_much_together_are_read_in_several_batches() -> None:
    schema = record(("a", {"type": "array", "items": "null"}))
    chunk: Any = Chunk([long(1_000) + long(0)] * 40 + [None])
    with pytest.raises(TooManyError):
        AvroValues(json.dumps(schema), None).decode(chunk.values)
    batches = list(messages(schema).read([chunk]))
    assert sum(batch.num_rows for batch in batches) == 41
    assert len(batches) > 1
    tolerant = [row.batch for row in messages(schema).read_tolerant([chunk])]  # type: ignore[union-attr]
    assert sum(batch.num_rows for batch in tolerant) == 41


def test_the_first_bad_one_of_many_large_messages_is_named() -> None:
    schema = record(("a", {"type": "array", "items": "null"}))
    good = long(1_000) + long(0)
    chunk: Any = Chunk([good] * 30 + [good + b"x"] + [good] * 10)
    with pytest.raises(SourceError, match=r"message 30: .*left over"):
        list(messages(schema).read([chunk]))


def test_why_a_schema_can_t_be_read_is_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    parsed = fastavro.parse_schema

    def counted(schema: Any) -> Any:
        calls.append(schema)
        return parsed(schema)

    monkeypatch.setattr(fastavro, "parse_schema", counted)
    writer, reader = json.dumps(record(("once", "string"))), json.dumps(record(("once", "long")))
    for _ in range(3):
        with pytest.raises(SourceError, match="field 'once' was written as string"):
            resolution_of(writer, reader)
    assert len(calls) == 2
