"""ORC and Avro files as a source: all types with nulls at every level, parts, bad rows, damaged files."""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from pyarrow import orc

from tests.avro import avro_file, record
from volley import Environment, FileSource, MissingDependencyError, SourceContext, SourceError
from volley.contracts.rows import BadRow

ROWS: list[dict[str, Any]] = [
    {
        "id": 1,
        "small": 7,
        "real": 0.5,
        "money": Decimal("12.34"),
        "day": date(2024, 2, 29),
        "at": datetime(2024, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC),
        "data": b"\x00\xff",
        "tags": ["a", None, "ß"],
        "place": {"city": "Oslo", "code": None},
        "by": [("k", 1)],
    },
    dict.fromkeys(("id", "small", "real", "money", "day", "at", "data", "tags", "place", "by")),
    {"id": 3, "tags": [], "place": {"city": None, "code": 5}, "by": []},
]
SCHEMA = pa.schema(
    {
        **{"id": pa.int64(), "small": pa.int32(), "real": pa.float64(), "money": pa.decimal128(9, 2)},
        **{"day": pa.date32(), "at": pa.timestamp("us", "UTC"), "data": pa.binary(), "tags": pa.list_(pa.string())},
        "place": pa.struct({"city": pa.string(), "code": pa.int32()}),
        "by": pa.map_(pa.string(), pa.int64()),
    }
)
AVRO = {
    "type": "record",
    "name": "row",
    "fields": [
        {"name": "id", "type": ["null", "long"]},
        {"name": "small", "type": ["null", "int"]},
        {"name": "real", "type": ["null", "double"]},
        {"name": "money", "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}]},
        {"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}]},
        {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]},
        {"name": "data", "type": ["null", "bytes"]},
        {"name": "tags", "type": ["null", {"type": "array", "items": ["null", "string"]}]},
        {
            "name": "place",
            "type": [
                "null",
                {
                    "type": "record",
                    "name": "place",
                    "fields": [
                        {"name": "city", "type": ["null", "string"]},
                        {"name": "code", "type": ["null", "int"]},
                    ],
                },
            ],
        },
        {"name": "by", "type": ["null", {"type": "map", "values": ["null", "long"]}]},
    ],
}

ONE = record(("id", "long"))


def write_orc(path: Path) -> None:
    orc.write_table(pa.Table.from_pylist(ROWS, SCHEMA), path)


def write_avro(path: Path) -> None:
    records = [{**row, "by": None if row["by"] is None else dict(row["by"])} for row in ROWS]
    with path.open("wb") as file:
        fastavro.writer(file, fastavro.parse_schema(AVRO), records, codec="deflate")


FORMATS = pytest.mark.parametrize(("format", "write"), [("orc", write_orc), ("avro", write_avro)])


@FORMATS
def test_all_types_and_nulls_at_every_level(format: str, write: Callable[[Path], None], tmp_path: Path) -> None:
    write(tmp_path / f"rows.{format}")
    table = Environment().from_source(FileSource(tmp_path / f"rows.{format}")).to_arrow()
    assert table.schema.equals(SCHEMA)
    assert table.to_pylist() == [{name: row.get(name) for name in SCHEMA.names} for row in ROWS]


@FORMATS
def test_a_declared_schema_is_read_into(format: str, write: Callable[[Path], None], tmp_path: Path) -> None:
    write(tmp_path / f"rows.{format}")
    source = FileSource(tmp_path, format=format, schema="small long, id long, missing string")  # type: ignore[arg-type]
    assert Environment().from_source(source).to_arrow().to_pylist() == [
        {"small": 7, "id": 1, "missing": None},
        {"small": None, "id": None, "missing": None},
        {"small": None, "id": 3, "missing": None},
    ]


@FORMATS
def test_rows_that_do_not_fit_are_bad_rows(format: str, write: Callable[[Path], None], tmp_path: Path) -> None:
    write(tmp_path / f"rows.{format}")
    source = FileSource(tmp_path / f"rows.{format}", schema="real long")
    reader = source.open(SourceContext(str(tmp_path / "state")))
    (split,) = reader.splits(reader.initial_offset(), reader.latest_offset(reader.initial_offset(), None, None))
    rows = list(reader.read_tolerant(split))
    (bad,) = [row for row in rows if isinstance(row, BadRow)]
    assert bad.position.endswith("row 1")
    assert sum(row.batch.num_rows for row in rows if not isinstance(row, BadRow)) == 2
    with pytest.raises(SourceError, match="row 1"):
        list(reader.read(split))


@FORMATS
@pytest.mark.parametrize("damage", [lambda data: data[: len(data) // 2], lambda data: b"none of it"])
def test_a_damaged_file_is_named(
    format: str, write: Callable[[Path], None], damage: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    path = tmp_path / f"rows.{format}"
    write(path)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(SourceError, match=rf"rows\.{format} (is not a whole|can't be read as)") as caught:
        Environment().from_source(FileSource(path, schema="id long")).to_arrow()
    assert caught.value.hint


def test_a_large_orc_file_is_read_in_parts_by_stripes(tmp_path: Path) -> None:
    rows = pa.table({"id": range(200_000), "text": [f"value {number}" for number in range(200_000)]})
    orc.write_table(rows, tmp_path / "big.orc", stripe_size=1 << 16, compression="uncompressed")
    assert orc.ORCFile(tmp_path / "big.orc").nstripes > 2
    reader = FileSource(tmp_path / "big.orc").open(SourceContext(str(tmp_path / "state"), parallelism=3))
    splits = reader.splits(reader.initial_offset(), reader.latest_offset(reader.initial_offset(), None, None))
    read = [[row for batch in reader.read(split) for row in batch["id"].to_pylist()] for split in splits]
    assert sorted(number for part in read for number in part) == list(range(200_000))


def test_a_name_with_a_dot_is_no_path_in_an_orc_file(tmp_path: Path) -> None:
    rows = pa.table({"a.b": [1, 2], "a": [{"b": 7}, {"b": 8}], "c": [5, 6]})
    orc.write_table(rows, tmp_path / "a.orc")
    for columns in map(frozenset, (["a.b", "a", "c"], ["a.b"], ["a"], ["c"])):
        reader = FileSource(tmp_path / "a.orc").open(SourceContext(str(tmp_path / "state"), columns=columns))
        (split,) = reader.splits(reader.initial_offset(), reader.latest_offset(reader.initial_offset(), None, None))
        read = pa.Table.from_batches(reader.read(split))
        assert read.equals(rows.select([name for name in rows.column_names if name in columns]))


def test_two_columns_of_one_name_in_an_orc_file_are_refused(tmp_path: Path) -> None:
    orc.write_table(pa.table([[1], [2]], names=["a", "a"]), tmp_path / "a.orc")
    reader = FileSource(tmp_path / "a.orc", schema="a long").open(SourceContext(str(tmp_path / "state")))
    (split,) = reader.splits(reader.initial_offset(), reader.latest_offset(reader.initial_offset(), None, None))
    with pytest.raises(SourceError, match="column 'a' is there 2 times"):
        list(reader.read(split))


def test_uuids_of_an_avro_file_are_text_or_their_bytes(tmp_path: Path) -> None:
    fields = [
        {"name": "text", "type": ["null", {"type": "string", "logicalType": "uuid"}]},
        {"name": "data", "type": {"type": "fixed", "name": "F", "size": 16, "logicalType": "uuid"}},
    ]
    rows = [
        {"text": "6ba7b810-9dad-11d1-80b4-00c04fd430c8", "data": bytes(range(16))},
        {"text": None, "data": b"x" * 16},
    ]
    with (tmp_path / "rows.avro").open("wb") as file:
        fastavro.writer(file, {"type": "record", "name": "row", "fields": fields}, rows)
    assert Environment().from_source(FileSource(tmp_path / "rows.avro")).to_arrow().to_pylist() == rows


def test_nanoseconds_of_an_avro_file_are_rounded_down(tmp_path: Path) -> None:
    zoned, local = ({"type": "long", "logicalType": f"{zone}timestamp-nanos"} for zone in ("", "local-"))
    schema = record(("zoned", zoned), ("local", ["null", local]), ("list", {"type": "array", "items": local}))
    values = {"zoned": -1, "local": 1_700_000_000_123_456_789, "list": [-1_001, 999]}
    with (tmp_path / "rows.avro").open("wb") as file:
        fastavro.writer(file, schema, [values])
    table = Environment().from_source(FileSource(tmp_path / "rows.avro")).to_arrow()
    assert [table.schema.field(name).type for name in ("zoned", "local")] == [
        pa.timestamp("us", "UTC"),
        pa.timestamp("us"),
    ]
    assert [table["zoned"].cast(pa.int64())[0].as_py(), table["local"].cast(pa.int64())[0].as_py()] == [
        -1,
        1_700_000_000_123_456,
    ]
    assert table["list"].combine_chunks().values.cast(pa.int64()).to_pylist() == [-2, 0]
    # Other users of fastavro read what they did.
    with (tmp_path / "rows.avro").open("rb") as file:
        assert next(iter(fastavro.reader(file))) == values


def test_records_of_one_short_name_in_an_avro_file(tmp_path: Path) -> None:
    parts = [
        {"type": "record", "name": "X", "namespace": f"n{number}", "fields": [{"name": name, "type": "long"}]}
        for number, name in enumerate("vw")
    ]
    fields = [{"name": "a", "type": parts[0]}, {"name": "b", "type": parts[1]}, {"name": "c", "type": "n0.X"}]
    row = {"a": {"v": 1}, "b": {"w": 2}, "c": {"v": 3}}
    with (tmp_path / "rows.avro").open("wb") as file:
        fastavro.writer(file, {"type": "record", "name": "row", "fields": fields}, [row])
    assert Environment().from_source(FileSource(tmp_path / "rows.avro")).to_arrow().to_pylist() == [row]


@pytest.mark.parametrize("codec", ["null", "deflate", "bzip2", "xz", "lz4"])
def test_codecs_of_files_by_fastavro(codec: str, tmp_path: Path) -> None:
    numbers = [{"id": number} for number in range(10_000)]
    with (tmp_path / "rows.avro").open("wb") as file:
        fastavro.writer(file, ONE, numbers, codec=codec)
    assert Environment().from_source(FileSource(tmp_path / "rows.avro")).to_arrow().to_pylist() == numbers


@pytest.mark.parametrize(("codec", "name"), [("snappy", "snappy"), ("zstd", "zstandard")])
def test_codecs_of_which_arrow_compresses_the_blocks(codec: str, name: str, tmp_path: Path) -> None:
    content = b"".join(bytes([2 * number]) for number in range(60))
    block = pa.compress(content, codec, asbytes=True)
    block += zlib.crc32(content).to_bytes(4, "big") if codec == "snappy" else b""
    (tmp_path / "rows.avro").write_bytes(avro_file(ONE, 60, block, name))
    table = Environment().from_source(FileSource(tmp_path / "rows.avro")).to_arrow()
    assert table["id"].to_pylist() == list(range(60))


@pytest.mark.parametrize("codec", ["deflate", "snappy", "zstandard", "bzip2", "xz", "lz4"])
def test_a_block_that_does_not_decompress_is_named(codec: str, tmp_path: Path) -> None:
    (tmp_path / "rows.avro").write_bytes(avro_file(ONE, 1, b"\x02\0\0\0none of it", codec))
    with pytest.raises(SourceError, match=rf"rows\.avro, block 1 is damaged: {codec} can't decompress it"):
        Environment().from_source(FileSource(tmp_path / "rows.avro")).to_arrow()


def test_a_snappy_block_with_another_checksum_is_damaged(tmp_path: Path) -> None:
    block = pa.compress(b"\x02", "snappy", asbytes=True) + b"\0\0\0\0"
    (tmp_path / "rows.avro").write_bytes(avro_file(ONE, 1, block, "snappy"))
    with pytest.raises(SourceError, match="block 1 is damaged: snappy can't decompress it: it has a wrong checksum"):
        Environment().from_source(FileSource(tmp_path / "rows.avro")).to_arrow()


def test_an_unknown_codec_is_named_with_those_that_are_read(tmp_path: Path) -> None:
    (tmp_path / "rows.avro").write_bytes(avro_file(ONE, 1, b"\x02", "brotli"))
    with pytest.raises(SourceError, match=r"rows\.avro has the codec 'brotli', which Volley does not read") as caught:
        Environment().from_source(FileSource(tmp_path / "rows.avro")).to_arrow()
    assert "deflate, snappy, zstandard" in str(caught.value.hint)


def test_a_codec_whose_package_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lz4.block", None)
    (tmp_path / "rows.avro").write_bytes(avro_file(ONE, 1, b"\x02", "lz4"))
    with pytest.raises(MissingDependencyError, match="needs the package lz4") as caught:
        Environment().from_source(FileSource(tmp_path / "rows.avro")).to_arrow()
    assert caught.value.hint == "pip install lz4"


def test_a_block_with_more_bytes_than_records_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.avro"
    with path.open("wb") as file:
        schema = {"type": "record", "name": "row", "fields": [{"name": "id", "type": "long"}]}
        fastavro.writer(file, schema, [{"id": 1}, {"id": 2}], sync_marker=b"s" * 16)
    # Two records in two bytes, between the two marks, become one record.
    path.write_bytes(path.read_bytes().replace(b"\x04\x04\x02\x04", b"\x02\x04\x02\x04"))
    with pytest.raises(SourceError, match=r"rows\.avro is not a whole .* block 1 of 1 records has 1 bytes left over"):
        Environment().from_source(FileSource(path)).to_arrow()
