"""Entries of manifests are those that pyiceberg reads, whoever wrote them and in whatever form."""

from __future__ import annotations

import json
import math
import random
import struct
from copy import deepcopy
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.avro.decoder import StreamingBinaryDecoder
from pyiceberg.manifest import DataFileContent, ManifestEntry, ManifestEntryStatus, ManifestFile
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, IdentityTransform, TruncateTransform
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from tests.iceberg.manifests import (
    CODECS,
    IO,
    avro,
    avro_field,
    data_file,
    java_record,
    java_schema,
    manifest_of,
    write_manifest,
)
from volley.errors import StorageError
from volley.iceberg.pyiceberg_private.entries import read_entries
from volley.iceberg.read import avro as volley_avro
from volley.iceberg.read import entries as volley_entries
from volley.iceberg.read.decoder import UnknownSchemaError, decode_function
from volley.iceberg.read.entries import EntryStatus, FileEntry, entries_of, read_manifest

VALUES: dict[str, tuple[Any, list[Any]]] = {
    "whole": (IntegerType(), [0, -1, 2**31 - 1]),
    "long": (LongType(), [0, -(2**63), 2**63 - 1]),
    "double": (DoubleType(), [0.1, 1e300, -0.0]),
    "real": (FloatType(), [1.5, -math.inf, 0.10000000149011612]),
    "text": (StringType(), ["", "ärger %2F", "日本" * 40]),
    "flag": (BooleanType(), [True, False, True]),
    "day": (DateType(), [0, -1, 2_932_896]),
    "clock": (TimeType(), [0, 1, 86_399_999_999]),
    "moment": (TimestampType(), [0, -1, 2**62]),
    "instant": (TimestamptzType(), [0, -1, 2**62]),
    "uuid": (UUIDType(), [bytes(16), b"\xff" * 16, bytes(range(16))]),
    "binary": (BinaryType(), [b"", b"\x00\xff", b"a" * 200]),
    "fixed": (FixedType(3), [b"abc", b"\x00\x00\x00", b"\xff\xff\xff"]),
    "money": (DecimalType(9, 2), [Decimal("0.00"), Decimal("-1.23"), Decimal("9999999.99")]),
    "wide": (DecimalType(38, 10), [Decimal("0E-10"), Decimal("-1.2345678901"), Decimal("1" * 28 + ".0123456789")]),
}
SCHEMA = Schema(*(NestedField(number + 1, name, VALUES[name][0]) for number, name in enumerate(VALUES)))
STATISTICS = {
    "lower_bounds": {1: struct.pack("<i", 1), 5: b"a"},
    "upper_bounds": {1: struct.pack("<i", 9), 5: "é".encode()},
    "value_counts": {1: 10, 5: 2**40},
    "null_value_counts": {1: 0, 5: 3},
    "nan_value_counts": {3: 1},
    "column_sizes": {1: 5, 5: 7},
}


def _by_pyiceberg(manifest: ManifestFile) -> list[FileEntry]:
    return [FileEntry(**entry) for entry in read_entries(IO, manifest)]


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is read by pyiceberg's reader."""

    def fail(*arguments: Any) -> Any:
        raise AssertionError("read by pyiceberg")

    monkeypatch.setattr(volley_entries, "read_entries", fail)


def _spec(*names: str) -> PartitionSpec:
    fields = (SCHEMA.find_field(name) for name in names)
    return PartitionSpec(*(PartitionField(f.field_id, 1000 + f.field_id, IdentityTransform(), f.name) for f in fields))


def _entries(spec: PartitionSpec, partitions: list[list[Any]], **attributes: Any) -> list[ManifestEntry]:
    return [
        ManifestEntry.from_args(
            status=ManifestEntryStatus.ADDED,
            snapshot_id=70,
            data_file=data_file(f"s3://b/{number}.parquet", spec, Record(*partition), **attributes),
        )
        for number, partition in enumerate(partitions)
    ]


@pytest.mark.usefixtures("decoded")
@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("codec", ["gzip", "zstd", "uncompressed"])
def test_entries_of_all_partition_types(version: int, codec: str, tmp_path: Path) -> None:
    spec = _spec(*VALUES)
    partitions = [[values[number] for _, values in VALUES.values()] for number in range(3)]
    entries = _entries(spec, [*partitions, [None] * len(VALUES)], split_offsets=[4, 2**40], **STATISTICS)
    codec = "null" if codec == "uncompressed" else codec
    manifest = write_manifest(tmp_path / "m.avro", spec, SCHEMA, entries, version, codec=codec)
    read = read_manifest(IO, manifest)
    assert [list(entry.partition) for entry in read] == [*partitions, [None] * len(VALUES)]
    assert read == _by_pyiceberg(manifest)
    assert read[0].values == STATISTICS["value_counts"]
    assert read[0].split_offsets == (4, 2**40)


@pytest.mark.usefixtures("decoded")
@pytest.mark.parametrize("name", ["double", "real"])
def test_nan_in_a_partition(name: str, tmp_path: Path) -> None:
    spec = _spec(name)
    manifest = write_manifest(tmp_path / "m.avro", spec, SCHEMA, _entries(spec, [[math.nan]]))
    (entry,) = read_manifest(IO, manifest)
    assert math.isnan(entry.partition[0])


@pytest.mark.usefixtures("decoded")
def test_entries_of_transforms_and_odd_names(tmp_path: Path) -> None:
    spec = PartitionSpec(
        PartitionField(2, 1000, BucketTransform(16), "a b"),
        PartitionField(5, 1001, TruncateTransform(2), "class"),
        PartitionField(1, 1002, IdentityTransform(), "1); raise SystemExit('x"),
        spec_id=3,
    )
    manifest = write_manifest(tmp_path / "m.avro", spec, SCHEMA, _entries(spec, [[7, "日本", 5], [None, None, None]]))
    assert [(entry.partition, entry.spec_id) for entry in read_manifest(IO, manifest)] == [
        ((7, "日本", 5), 3),
        ((None, None, None), 3),
    ]
    assert read_manifest(IO, manifest) == _by_pyiceberg(manifest)


@pytest.mark.usefixtures("decoded")
def test_delete_files(tmp_path: Path) -> None:
    spec = _spec("long")
    by_key = _entries(spec, [[1]], content=DataFileContent.EQUALITY_DELETES, equality_ids=[2, 5])
    by_position = _entries(spec, [[2]], content=DataFileContent.POSITION_DELETES, **STATISTICS)
    manifest = write_manifest(tmp_path / "m.avro", spec, SCHEMA, [*by_key, *by_position], deletes=True)
    read = read_manifest(IO, manifest)
    assert [(entry.content, entry.equality_ids) for entry in read] == [(2, (2, 5)), (1, ())]
    assert read == _by_pyiceberg(manifest)


def test_statistics_of_the_fields_that_are_asked_for(tmp_path: Path) -> None:
    spec = _spec("long")
    manifest = write_manifest(tmp_path / "m.avro", spec, SCHEMA, _entries(spec, [[1], [2]], **STATISTICS))
    (whole, _) = read_manifest(IO, manifest)
    (without, _) = entries_of(IO, manifest)
    assert without == whole.without_statistics() != whole
    (one, _) = entries_of(IO, manifest, [5, 99])
    assert (one.lower, one.upper, one.values, one.nulls, one.nans) == (
        {5: b"a"},
        {5: "é".encode()},
        {5: 2**40},
        {5: 3},
        {},
    )
    (two, _) = entries_of(IO, manifest, [3])
    assert (two.lower, two.nans) == ({5: b"a"}, {3: 1})
    assert entries_of(IO, manifest)[0] is two


def test_a_manifest_is_read_once(tmp_path: Path) -> None:
    spec = _spec("long")
    manifest = write_manifest(tmp_path / "m.avro", spec, SCHEMA, _entries(spec, [[1]]))
    read = entries_of(IO, manifest)
    (tmp_path / "m.avro").unlink()
    assert entries_of(IO, manifest) is read
    with pytest.raises(StorageError, match=r"reading .*m\.avro failed"):
        read_manifest(IO, manifest)


# By hand: what other writers may do.


@pytest.mark.usefixtures("decoded")
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("version", [1, 2, 3])
def test_every_version_and_compression(version: int, codec: str, tmp_path: Path) -> None:
    content = avro(java_schema(version), [java_record(version, number) for number in range(5)], codec)
    manifest = manifest_of(tmp_path / "m.avro", content, sequence_number=0 if version == 1 else 7)
    read = read_manifest(IO, manifest)
    if codec != "snappy":
        # pyiceberg reads it with a package only.
        assert read == _by_pyiceberg(manifest)
    assert [entry.path for entry in read] == [f"s3://b/{number}" for number in range(5)]
    first = read[1]
    assert (first.format, first.partition, first.values) == ("PARQUET", (1, Decimal("1.23"), None), {1: 3, 2: 1})
    assert (first.sequence_number, first.file_sequence_number) == ((0, 0) if version == 1 else (3, 4))
    vector = ("s3://b/data", 4, 40) if version == 3 else (None, None, None)
    assert (first.referenced_file, first.blob_offset, first.blob_size) == vector


@pytest.mark.usefixtures("decoded")
@pytest.mark.parametrize(
    ("status", "numbers"),
    [(EntryStatus.ADDED, (70, 7, 7)), (EntryStatus.EXISTING, (70, 0, 0)), (EntryStatus.DELETED, (70, 0, 0))],
)
def test_added_entries_inherit(status: int, numbers: tuple[int, int, int], tmp_path: Path) -> None:
    nothing: dict[str, Any] = {"snapshot_id": None, "sequence_number": None, "file_sequence_number": None}
    manifest = manifest_of(tmp_path / "m.avro", avro(java_schema(2), [java_record(2, status=int(status), **nothing)]))
    (entry,) = read_manifest(IO, manifest)
    assert (entry.snapshot_id, entry.sequence_number, entry.file_sequence_number) == numbers
    assert [entry] == _by_pyiceberg(manifest)
    assert entry.is_live == (status != EntryStatus.DELETED)


@pytest.mark.usefixtures("decoded")
def test_unknown_fields_of_any_type_are_skipped(tmp_path: Path) -> None:
    schema = java_schema(3)
    color = {"type": "enum", "name": "color", "symbols": ["RED", "BLUE"]}
    inner = {
        "type": "record",
        "name": "inner",
        "fields": [avro_field("x", 901, "double"), avro_field("y", 902, ["null", "color"])],
    }
    extras: list[tuple[Any, Any]] = [
        (color, "BLUE"),
        (inner, {"x": 1.0, "y": "RED"}),
        (["null", "string", "long"], 5),
        ({"type": "map", "values": "string"}, {"a": "b", "c": ""}),
        ({"type": "array", "items": "inner"}, [{"x": 2.0, "y": None}] * 3),
        ({"type": "array", "items": {"type": "array", "items": "boolean"}}, [[True], []]),
        ({"type": "fixed", "name": "five", "size": 5}, b"12345"),
        ("float", 1.5),
        ("boolean", True),
        ("bytes", b"xyz"),
        ("null", None),
        ({"type": "string", "logicalType": "uuid"}, "5a6b5c2e-0000-0000-0000-000000000000"),
    ]
    records = [java_record(3, number) for number in range(3)]
    plain = read_manifest(IO, manifest_of(tmp_path / "plain.avro", avro(schema, records)))
    of_file = schema["fields"][-1]["type"]["fields"]
    for number, (data_type, value) in enumerate(extras):
        of_file.insert(2 * number, avro_field(f"extra{number}", 5000 + number, data_type))
        for record in records:
            record["data_file"][f"extra{number}"] = value
    schema["fields"].insert(1, avro_field("outer", 6000, {"type": "array", "items": "string"}))
    records = [{**record, "outer": ["a", "b"]} for record in records]
    assert read_manifest(IO, manifest_of(tmp_path / "m.avro", avro(schema, records, "deflate"))) == plain


@pytest.mark.usefixtures("decoded")
def test_a_type_that_is_defined_once_and_named_twice(tmp_path: Path) -> None:
    schema, partition = java_schema(2), {"day": 1, "money": Decimal("1.23"), "more": Decimal("-4.56")}
    schema["fields"][-1]["type"]["fields"][3]["type"]["fields"][2]["type"][1] = "d"
    manifest = manifest_of(tmp_path / "m.avro", avro(schema, [java_record(2, partition=partition)]))
    assert read_manifest(IO, manifest)[0].partition == tuple(partition.values())


@pytest.mark.usefixtures("decoded")
def test_names_that_are_no_identifiers(tmp_path: Path) -> None:
    named = deepcopy(java_schema(2))
    for number, field in enumerate(named["fields"][-1]["type"]["fields"][3]["type"]["fields"]):
        field["name"] = ["year day", "'\n); import os #", "日本"][number]
    manifest = manifest_of(tmp_path / "m.avro", avro(java_schema(2), [java_record(2)], named=named))
    assert read_manifest(IO, manifest)[0].partition == (0, Decimal("1.23"), None)


def test_the_decoder_in_python_reads_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = manifest_of(
        tmp_path / "m.avro", avro(java_schema(3), [java_record(3, number) for number in range(5)], "deflate")
    )
    read = read_manifest(IO, manifest)
    monkeypatch.setattr(volley_avro, "new_decoder", StreamingBinaryDecoder)
    assert read_manifest(IO, manifest) == read


def test_blocks_with_their_length_in_front(tmp_path: Path) -> None:
    """Avro allows a negative number of items, followed by their bytes; and several blocks of items."""
    number = _zigzag
    pair = number(1) + number(3)
    counts = number(-1) + number(len(pair)) + pair + number(1) + number(2) + number(4) + number(0)
    bound = number(1) + number(1) + b"a"
    bounds = number(-1) + number(len(bound)) + bound + number(0)
    offsets = number(-2) + number(2) + number(4) + number(8) + number(1) + number(9) + number(0)
    one = number(1)
    entry = number(1) + one + number(12) + one + number(3) + one + number(4)
    entry += number(0) + number(1) + b"p" + number(7) + b"PARQUET" + number(0) * 3 + number(5) + number(6)
    entry += one + counts + one + counts + one + counts + number(0) + one + bounds + one + bounds
    entry += number(0) + one + offsets + number(0) + number(0)
    empty = avro(java_schema(2), [])
    content = empty + number(1) + number(len(entry)) + entry + empty[-16:]
    manifest = manifest_of(tmp_path / "m.avro", content)
    (read,) = read_manifest(IO, manifest)
    assert [read] == _by_pyiceberg(manifest)
    assert (read.values, read.lower, read.split_offsets) == ({1: 3, 2: 4}, {1: b"a"}, (4, 8, 9))
    assert entries_of(IO, manifest) == [read.without_statistics()]


def _zigzag(value: int) -> bytes:
    value = (value << 1) ^ (value >> 63)
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def test_a_form_that_only_pyiceberg_knows_is_read_by_it(tmp_path: Path) -> None:
    schema = java_schema(3)
    offsets = next(field for field in schema["fields"][-1]["type"]["fields"] if field["name"] == "split_offsets")
    offsets["type"][1]["items"] = ["null", "long"]
    content = avro(schema, [java_record(3, 4)])
    with pytest.raises(UnknownSchemaError):
        decode_function(volley_avro.JoinedBlocks(content).schema, tuple(FileEntry.__annotations__), None)
    (entry,) = read_manifest(IO, manifest_of(tmp_path / "m.avro", content))
    assert (entry.path, entry.values, entry.split_offsets) == ("s3://b/4", {1: 3, 2: 4}, (4, 8))
    assert (entry.referenced_file, entry.blob_size) == ("s3://b/data", 40)


def _endless() -> dict[str, Any]:
    schema = java_schema(2)
    node = {"type": "record", "name": "node", "fields": [avro_field("next", 900, ["null", "node"])]}
    schema["fields"].append(avro_field("list", 901, node))
    return schema


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"Obj\x01",
        b"<html>404</html>",
        avro(java_schema(2), [java_record(2)]).replace(b"avro.codec\x08null", b"avro.codec\x08abcd"),
        avro(avro_field("x", 1, "long")["type"], [1]),
        avro({"type": "record", "name": "manifest_file", "fields": [avro_field("manifest_path", 500, "string")]},
             [{"manifest_path": "a"}]),
    ],
    ids=["empty", "cut", "html", "codec", "number", "manifest list"],
)  # fmt: skip
def test_what_is_no_manifest_is_named(content: bytes, tmp_path: Path) -> None:
    manifest = manifest_of(tmp_path / "m.avro", content)
    with pytest.raises(StorageError, match=r"manifest .*m\.avro can't be read") as raised:
        read_manifest(IO, manifest)
    assert raised.value.hint is not None
    assert "roll the table back" in raised.value.hint


def test_a_type_inside_itself_is_no_endless_loop() -> None:
    with pytest.raises(UnknownSchemaError):
        decode_function(json.dumps(_endless()), tuple(FileEntry.__annotations__), frozenset())


@pytest.mark.parametrize("codec", CODECS)
def test_a_file_that_ends_too_early_is_named(codec: str, tmp_path: Path) -> None:
    content = avro(java_schema(2), [java_record(2, number) for number in range(6)], codec)
    for end in random.Random(1).sample(range(len(content)), 30):
        manifest = manifest_of(tmp_path / "m.avro", content[:end], manifest_length=len(content))
        with pytest.raises(StorageError, match=r"m\.avro can't be read"):
            read_manifest(IO, manifest)
        manifest = manifest_of(tmp_path / "m.avro", content[:end])
        try:
            # At the end of a block nothing shows it but the length in the manifest list.
            assert len(read_manifest(IO, manifest)) in (0, 2, 4)
        except StorageError as error:
            assert "m.avro can't be read" in str(error)  # noqa: PT017


def test_a_block_that_does_not_end_where_it_should_is_named(tmp_path: Path) -> None:
    content = bytearray(avro(java_schema(2), [java_record(2)], "deflate"))
    content[-3] ^= 1
    with pytest.raises(StorageError, match="a block does not end where it should"):
        read_manifest(IO, manifest_of(tmp_path / "m.avro", bytes(content)))


def test_a_wrong_checksum_is_named(tmp_path: Path) -> None:
    content = bytearray(avro(java_schema(2), [java_record(2)], "snappy"))
    content[-17] ^= 1
    with pytest.raises(StorageError, match="checksum"):
        read_manifest(IO, manifest_of(tmp_path / "m.avro", bytes(content)))
