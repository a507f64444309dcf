"""Avro messages of a registry whose schema differs from the one to read into, by values computed by hand."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from tests.avro import long, record
from volley import ConfigError, SourceError
from volley.formats.avro import AvroValues, avro_columns, resolution_of
from volley.formats.avro_defaults import in_nanoseconds

INSTANT = datetime(2023, 11, 14, 22, 13, 20, 123_000, tzinfo=UTC)
MILLIS, MICROS = 1_700_000_000_123, 1_700_000_000_123_000


@dataclass(frozen=True)
class Registry:
    """A registry of one schema."""

    text: str

    def schema(self, number: int) -> str:
        return self.text


def logical(type_name: str, kind: str, **more: Any) -> dict[str, Any]:
    return {"type": type_name, "logicalType": kind, **more}


def read(writer: Any, value: Any, reader: Any) -> Any:
    """Read one value, written by fastavro, as Kafka's source does."""
    stream = io.BytesIO(b"")
    fastavro.schemaless_writer(stream, fastavro.parse_schema(json.loads(json.dumps(writer))), value)
    values = AvroValues(json.dumps(reader), Registry(json.dumps(writer)))  # type: ignore[arg-type]
    (row,) = values.decode([b"\0\0\0\0\1" + stream.getvalue()]).to_pylist()
    return row


def column(writer: Any, value: Any, reader: Any) -> Any:
    return read(record(("a", writer)), {"a": value}, record(("a", reader)))["a"]


NANOS, LOCAL_NANOS = logical("long", "timestamp-nanos"), logical("long", "local-timestamp-nanos")
BEFORE = datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
INNER = record(("day", logical("int", "date")), ("data", "bytes", "\u00ff"), name="Inner")
DEFAULTS: list[tuple[Any, Any, Any]] = [
    ("bytes", "\u00ff\u0000", b"\xff\x00"),
    ({"type": "fixed", "name": "F", "size": 2}, "\u0001\u00fe", b"\x01\xfe"),
    (logical("bytes", "decimal", precision=5, scale=2), "\u0004\u00d2", Decimal("12.34")),
    (logical("fixed", "decimal", name="F", size=2, precision=4, scale=1), "\u00ff\u00ff", Decimal("-0.1")),
    (logical("long", "timestamp-millis"), MILLIS, INSTANT),
    (logical("long", "timestamp-micros"), MICROS, INSTANT),
    (logical("long", "local-timestamp-millis"), MILLIS, INSTANT.replace(tzinfo=None)),
    (logical("long", "local-timestamp-micros"), -1, datetime(1969, 12, 31, 23, 59, 59, 999_999)),
    (NANOS, -1, BEFORE),
    (LOCAL_NANOS, MICROS * 1_000 + 999, INSTANT.replace(tzinfo=None)),
    (logical("int", "time-millis"), 3_600_000, time(1)),
    (logical("long", "time-micros"), 3_600_000_001, time(1, 0, 0, 1)),
    (logical("int", "date"), -1, date(1969, 12, 31)),
    (logical("string", "uuid"), "6ba7b810-9dad-11d1-80b4-00c04fd430c8", "6ba7b810-9dad-11d1-80b4-00c04fd430c8"),
    ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B", "B"),
    ("double", 1, 1.0),
    (["null", "bytes"], None, None),
    (["bytes", "null"], "\u00ff", b"\xff"),
    ({"type": "array", "items": logical("int", "date")}, [0], [date(1970, 1, 1)]),
    ({"type": "map", "values": "bytes"}, {"k": "\u00ff"}, [("k", b"\xff")]),
    (INNER, {"day": 1}, {"day": date(1970, 1, 2), "data": b"\xff"}),
    ({"type": "array", "items": INNER}, [{"day": 1, "data": "x"}], [{"day": date(1970, 1, 2), "data": b"x"}]),
]


@pytest.mark.parametrize(("kind", "default", "wanted"), DEFAULTS)
def test_defaults_of_new_fields_are_values_of_their_types(kind: Any, default: Any, wanted: Any) -> None:
    new = record(("id", "long"), ("a", kind, default))
    assert read(record(("id", "long")), {"id": 7}, new) == {"id": 7, "a": wanted}
    # Inside of a record, a list and a map.
    for outside in ({"type": "array"}, {"type": "map"}):
        key = "items" if outside["type"] == "array" else "values"
        old = {**outside, key: record(("id", "long"), name="Part")}
        value = [{"id": 7}] if key == "items" else {"k": {"id": 7}}
        found = column(old, value, {**outside, key: record(("id", "long"), ("a", kind, default), name="Part")})
        assert found == ([{"id": 7, "a": wanted}] if key == "items" else [("k", {"id": 7, "a": wanted})])


UNITS: list[tuple[Any, Any, Any, Any]] = [
    ("long", MILLIS, logical("long", "timestamp-millis"), INSTANT),
    ("long", MICROS, logical("long", "timestamp-micros"), INSTANT),
    ("int", 1_500, logical("long", "timestamp-millis"), datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=UTC)),
    ("int", 3_600_000, logical("int", "time-millis"), time(1)),
    ("long", 3_600_000_001, logical("long", "time-micros"), time(1, 0, 0, 1)),
    ("int", -1, logical("int", "date"), date(1969, 12, 31)),
    ("bytes", b"\x04\xd2", logical("bytes", "decimal", precision=5, scale=2), Decimal("12.34")),
    (logical("long", "timestamp-millis"), INSTANT, "long", MILLIS),
    (logical("long", "timestamp-millis"), INSTANT, "double", float(MILLIS)),
    (logical("int", "date"), date(1969, 12, 31), "int", -1),
    (logical("int", "time-millis"), time(1), "long", 3_600_000),
    (logical("bytes", "decimal", precision=5, scale=2), Decimal("12.34"), "bytes", b"\x04\xd2"),
    (logical("string", "uuid"), "not one", "string", "not one"),
    (logical("long", "timestamp-millis"), INSTANT, logical("long", "timestamp-micros"), INSTANT),
    (
        logical("long", "timestamp-micros"),
        INSTANT,
        logical("long", "local-timestamp-millis"),
        INSTANT.replace(tzinfo=None),
    ),
    (logical("int", "time-millis"), time(1), logical("long", "time-micros"), time(1)),
    (
        logical("bytes", "decimal", precision=9, scale=2),
        Decimal("12.34"),
        logical("bytes", "decimal", precision=11, scale=3),
        Decimal("12.340"),
    ),
    (["null", "long"], MILLIS, ["null", logical("long", "timestamp-millis")], INSTANT),
    (["null", "long"], None, ["null", logical("long", "timestamp-millis")], None),
    (logical("long", "time-millis"), 5, logical("long", "time-millis"), 5),
    (NANOS, MICROS * 1_000 + 999, NANOS, INSTANT),
    (NANOS, -1, NANOS, BEFORE),
    (NANOS, -1_001, LOCAL_NANOS, BEFORE.replace(tzinfo=None) - timedelta(microseconds=1)),
    (LOCAL_NANOS, -1_000, LOCAL_NANOS, BEFORE.replace(tzinfo=None)),
    (NANOS, MICROS * 1_000 + 1, logical("long", "timestamp-millis"), INSTANT),
    (logical("long", "timestamp-millis"), INSTANT, NANOS, INSTANT),
    ("long", -1, NANOS, BEFORE),
    ("int", -1, LOCAL_NANOS, BEFORE.replace(tzinfo=None)),
    (NANOS, -1, "long", -1),
    (["null", NANOS], -1, ["null", NANOS], BEFORE),
]


@pytest.mark.parametrize(("writer", "value", "reader", "wanted"), UNITS)
def test_a_unit_is_never_guessed(writer: Any, value: Any, reader: Any, wanted: Any) -> None:
    assert column(writer, value, reader) == wanted
    for key, kind in (("items", "array"), ("values", "map")):
        inside = ({"type": kind, key: each} for each in (writer, reader))
        found = column(next(inside), [value] if key == "items" else {"k": value}, next(inside))
        assert found == ([wanted] if key == "items" else [("k", wanted)])


BYTES: list[tuple[Any, bytes, pa.DataType]] = [
    ({"type": "fixed", "name": "F", "size": 12, "logicalType": "duration"}, bytes(range(12)), pa.binary(12)),
    ({"type": "fixed", "name": "F", "size": 16, "logicalType": "uuid"}, bytes(range(16)), pa.binary(16)),
    (logical("bytes", "big-decimal"), b"\x04\xd2\x04", pa.binary()),
]


@pytest.mark.parametrize(("kind", "value", "data_type"), BYTES)
def test_logical_types_without_a_column_type_are_their_bytes(kind: Any, value: bytes, data_type: pa.DataType) -> None:
    assert column(kind, value, kind) == value
    assert avro_columns(json.dumps(record(("a", kind)))).field("a").type == data_type


IN_NANOSECONDS: list[tuple[Any, int, Any, int]] = [
    (NANOS, -1, NANOS, -1),
    (NANOS, 2**63 - 1, LOCAL_NANOS, 2**63 - 1),
    (["null", NANOS], 7, ["null", NANOS], 7),
    (logical("long", "timestamp-millis"), -1, NANOS, -1_000_000),
    (logical("long", "timestamp-micros"), MICROS, LOCAL_NANOS, MICROS * 1_000),
    ("long", 7, NANOS, 7),
    ("int", -1, LOCAL_NANOS, -1),
    # The reader's type says what the column is.
    (NANOS, MICROS * 1_000 + 999, logical("long", "timestamp-micros"), MICROS),
    (NANOS, 7, "long", 7),
]


@pytest.mark.parametrize(("writer", "value", "reader", "wanted"), IN_NANOSECONDS)
def test_nanoseconds_are_kept_if_they_are_wanted(writer: Any, value: int, reader: Any, wanted: int) -> None:
    written, stream = record(("a", writer)), io.BytesIO()
    bare = json.loads(json.dumps(written).replace("logicalType", "meaning"))
    fastavro.schemaless_writer(stream, bare, {"a": value})
    text = in_nanoseconds(json.dumps(record(("a", reader))))
    resolution = resolution_of(json.dumps(written), text)
    (row,) = resolution.rows(io.BytesIO(stream.getvalue()), 1)
    data_type = avro_columns(text).field("a").type
    assert pa.array([row["a"]], data_type).cast(pa.int64()).to_pylist() == [wanted]


def test_defaults_have_nanoseconds() -> None:
    new = record(("id", "long"), ("at", NANOS, 1_700_000_000_123_456_789), ("wall", LOCAL_NANOS, -1))
    text = in_nanoseconds(json.dumps(new))
    resolution = resolution_of(json.dumps(record(("id", "long"))), text)
    (row,) = resolution.rows(io.BytesIO(long(5)), 1)
    assert row == {"id": 5, "at": 1_700_000_000_123_456_789, "wall": -1}


def test_instants_and_days_behind_the_year_9999_are_kept() -> None:
    """Python has no objects for them, a column has."""
    instants = [
        ("timestamp-millis", 253_402_300_800_000, 253_402_300_800_000_000),
        ("local-timestamp-micros", 253_402_300_800_000_000, 253_402_300_800_000_000),
        ("timestamp-nanos", 2**63 - 1, (2**63 - 1) // 1_000),
    ]
    for name, number, microseconds in instants:
        batch = AvroValues(json.dumps(record(("a", logical("long", name)))), None).decode([long(number)])
        assert batch["a"].cast(pa.int64()).to_pylist() == [microseconds]
    days = AvroValues(json.dumps(record(("a", logical("int", "date")))), None).decode([long(3_000_000)])
    assert days["a"].cast(pa.int32()).to_pylist() == [3_000_000]
    with pytest.raises(SourceError, match="does not fit its column"):
        AvroValues(json.dumps(record(("a", logical("long", "timestamp-millis")))), None).decode([long(2**62)])


def test_an_empty_record_in_its_frame_is_a_row() -> None:
    assert read(record(), {}, record(("a", ["null", "long"], None))) == {"a": None}


def test_bytes_that_are_no_text_are_no_string() -> None:
    with pytest.raises(SourceError, match="UnicodeDecodeError"):
        column("bytes", b"\xff\xfe", "string")


PROMOTED = [("int", 5, "double", 5.0), ("long", 2**53 + 1, "double", float(2**53)), ("int", 5, ["null", "long"], 5)]
PROMOTED += [("string", "ä", "bytes", b"\xc3\xa4"), ("bytes", b"ab", "string", "ab"), ("float", 0.5, "double", 0.5)]  # type: ignore[list-item]
PROMOTED += [(["null", "int", "string"], 5, ["null", "long"], 5), (["null", "long"], 5, "long", 5)]  # type: ignore[list-item]


@pytest.mark.parametrize(("writer", "value", "reader", "wanted"), PROMOTED)
def test_promotions(writer: Any, value: Any, reader: Any, wanted: Any) -> None:
    assert column(writer, value, reader) == wanted


def test_records_of_one_short_name_keep_their_own_fields() -> None:
    first = {**record(("v", "long"), name="X"), "namespace": "n1"}
    second = {**record(("w", "string"), name="X"), "namespace": "n2"}
    schema = record(("a", first), ("b", second), ("c", "n1.X"), ("d", ["null", "n2.X"]), name="top.R")
    row = {"a": {"v": 1}, "b": {"w": "x"}, "c": {"v": 2}, "d": {"w": "y"}}
    assert read(schema, row, schema) == row
    wider = record(("v", "double"), ("new", "bytes", "\u00ff"), name="n1.X")
    reader = record(("a", wider), ("b", second), ("c", "n1.X"), ("d", ["null", "n2.X"]), name="top.R")
    new = {"v": 1.0, "new": b"\xff"}
    assert read(schema, row, reader) == {**row, "a": new, "c": {**new, "v": 2.0}}


def test_a_name_inherits_its_namespace() -> None:
    inner = {"type": "enum", "name": "Kind", "symbols": ["A"]}
    schema = {**record(("a", inner), ("b", "Kind"), ("c", "n.Kind")), "namespace": "n"}
    assert read(schema, {"a": "A", "b": "A", "c": "A"}, schema) == {"a": "A", "b": "A", "c": "A"}


def test_a_field_s_name_goes_before_an_alias() -> None:
    writer = record(("id", "long"), ("old", "long"))
    reader = record(("id", "long"), ("uid", "long", 0), ("new", "long"))
    reader["fields"][1]["aliases"], reader["fields"][2]["aliases"] = ["id"], ["old"]
    assert read(writer, {"id": 5, "old": 6}, reader) == {"id": 5, "uid": 0, "new": 6}


def test_aliases_of_types_are_names_in_their_namespace() -> None:
    reader = {**record(("id", "long"), name="n.New"), "aliases": ["Old"]}
    assert read(record(("id", "long"), name="n.Old"), {"id": 5}, reader) == {"id": 5}


def test_a_symbol_that_the_reader_lacks_is_its_default() -> None:
    wide = {"type": "enum", "name": "E", "symbols": ["A", "B", "C"]}
    assert column(wide, "C", {**wide, "symbols": ["B", "A"], "default": "A"}) == "A"
    assert column(wide, "A", {**wide, "symbols": ["C", "B", "A"]}) == "A"
    with pytest.raises(SourceError, match="C not found"):
        column(wide, "C", {**wide, "symbols": ["A", "B"]})


def test_fields_that_the_reader_lacks_are_skipped() -> None:
    tree = record(("next", ["null", "n.Tree"]), ("e", {"type": "enum", "name": "E", "symbols": ["A"]}), name="n.Tree")
    writer = record(("tree", tree), ("sizes", {"type": "map", "values": "n.E"}), ("id", "long"))
    value = {"tree": {"next": {"next": None, "e": "A"}, "e": "A"}, "sizes": {"k": "A"}, "id": 5}
    assert read(writer, value, record(("id", "long"))) == {"id": 5}


REFUSED: list[tuple[Any, Any, Any, str]] = [
    ("string", "x", "long", "field 'a' was written as string, which can't be read into long"),
    ("long", 5, "int", "field 'a' was written as long, which can't be read into int"),
    (
        logical("int", "date"),
        date(1970, 1, 2),
        logical("long", "timestamp-millis"),
        "int date.* into long timestamp-millis",
    ),
    ({"type": "array", "items": "long"}, [5], {"type": "map", "values": "long"}, "array.* into map"),
    (record(("v", "long"), name="A"), {"v": 5}, record(("v", "long"), name="B"), "record A.* into record B"),
    (
        record(("v", "long"), name="A"),
        {"v": 5},
        record(("v", "long"), ("w", "long"), name="A"),
        r"field 'a\.w' is not in the schema of the values, and has no default",
    ),
    (
        ["null", "int", "string"],
        "x",
        ["null", "long"],
        "field 'a' was written as string, which can't be read into long",
    ),
    (["null", "long"], None, "long", "field 'a' was written as null, which can't be read into long"),
    (
        ["null", record(("v", "long"), name="n.A")],
        {"v": 5},
        ["null", record(("v", "long"), name="n.B")],
        r"field 'a' was written as record n\.A, which can't be read into record n\.B",
    ),
]


@pytest.mark.parametrize(("writer", "value", "reader", "reason"), REFUSED)
def test_what_can_not_be_read_is_refused_by_name(writer: Any, value: Any, reader: Any, reason: str) -> None:
    with pytest.raises(SourceError, match=reason):
        column(writer, value, reader)


def test_a_default_does_not_stand_for_a_null() -> None:
    with pytest.raises(SourceError, match="field 'a' was written as null"):
        read(record(("a", ["null", "long"])), {"a": None}, record(("a", "long", 0)))


@pytest.mark.parametrize("place", ["message", "field", "union"])
def test_a_record_is_read_by_one_of_the_same_name_in_another_namespace(place: str) -> None:
    writer, reader = (record(("id", "long"), name=f"{space}.X") for space in ("n1", "n2"))
    if place == "message":
        assert read(writer, {"id": 5}, reader) == {"id": 5}
    else:
        inside = (["null", schema] if place == "union" else schema for schema in (writer, reader))
        assert column(next(inside), {"id": 5}, next(inside)) == {"id": 5}


def test_a_default_that_is_no_value_is_refused_by_name() -> None:
    new = record(("id", "long"), ("a", {"type": "fixed", "name": "F", "size": 2}, "x"))
    with pytest.raises(SourceError, match="the default of field 'a' is no value of its type: it has 1 bytes, not 2"):
        read(record(("id", "long")), {"id": 7}, new)


ENUM = {"type": "enum", "name": "E", "symbols": ["A"]}


@pytest.mark.parametrize(
    ("kind", "default"),
    [(ENUM, "Z"), ({"type": "array", "items": ENUM}, ["A", "Z"]), (record(("e", ENUM, "Z"), name="Inner"), {})],
)
def test_a_default_that_is_no_symbol_is_refused_by_name(kind: Any, default: Any) -> None:
    with pytest.raises(SourceError, match="the default of field 'a' is no value of its type: 'Z' is none of its"):
        read(record(("id", "long")), {"id": 7}, record(("id", "long"), ("a", kind, default)))


@pytest.mark.parametrize(("kind", "default"), [("int", 2**31), ("long", -(2**63) - 1), ("float", 1e39)])
def test_a_default_that_its_type_has_no_room_for_is_refused_by_name(kind: str, default: float) -> None:
    with pytest.raises(SourceError, match=r"the default of field 'a' is no value of its type: .* is too large"):
        read(record(("id", "long")), {"id": 7}, record(("id", "long"), ("a", kind, default)))


def test_a_default_that_no_double_holds_is_refused() -> None:
    text = json.dumps(record(("a", "double", 1.5)))
    with pytest.raises(ConfigError, match="not an Avro schema") as caught:
        avro_columns(text.replace("1.5", "1e400"))
    assert "no double holds 1e400" in str(caught.value)


def test_decimals_of_more_digits_than_a_column_has_are_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="field 'a' is a decimal of 45 digits; a column has at most 38"):
        avro_columns(json.dumps(record(("a", logical("bytes", "decimal", precision=45, scale=2)))))


def test_a_type_inside_of_an_attribute_is_refused() -> None:
    with pytest.raises(ConfigError, match="not an Avro schema"):
        avro_columns(json.dumps(record(("a", {"type": ["null", "long"]}))))


def test_a_decimal_that_its_column_can_not_hold_is_refused() -> None:
    writer, reader = (logical("bytes", "decimal", precision=9, scale=scale) for scale in (3, 2))
    assert column(writer, Decimal("12.340"), reader) == Decimal("12.34")
    with pytest.raises(SourceError, match=r"12\.345 is no decimal\(9,2\)"):
        column(writer, Decimal("12.345"), reader)


def test_numbers_of_a_float_column() -> None:
    assert avro_columns(json.dumps(record(("a", "float")))).field("a").type == pa.float32()
    assert column("long", 16_777_217, "float") == 16_777_216.0


A, B = record(("id", "long"), name="ns.A"), record(("id", "long"), name="ns.B")
EITHER = ["null", A, B]
UNIONS: list[tuple[Any, Any, bytes, Any]] = [
    # Iceberg's own form: the number of the branch, null counted, and a field for each; null is null as a whole.
    (EITHER, EITHER, b"\x02\x0a", {"tag": 1, "field1": {"id": 5}, "field2": None}),
    (EITHER, EITHER, b"\x04\x0a", {"tag": 2, "field1": None, "field2": {"id": 5}}),
    (EITHER, EITHER, b"\x00", None),
    (["double", "int"], ["double", "int"], b"\x02\x0a", {"tag": 1, "field0": None, "field1": 5}),
    (["string", "bytes"], ["string", "bytes"], b"\x02\x02a", {"tag": 1, "field0": None, "field1": b"a"}),
    (["string", "null", "long"], ["string", "null", "long"], b"\x02", None),
    # Other branches: the type itself, else the first one that it can be read into.
    (["int", "string"], ["null", "string", "long"], b"\x00\x0a", {"tag": 2, "field1": None, "field2": 5}),
    (A, EITHER, b"\x0a", {"tag": 1, "field1": {"id": 5}, "field2": None}),
    ("int", ["null", "double", "long"], b"\x0a", {"tag": 1, "field1": 5.0, "field2": None}),
    ("int", ["null", "long", "double"], b"\x0a", {"tag": 1, "field1": 5, "field2": None}),
    ("long", ["null", "double", "long"], b"\x0a", {"tag": 2, "field1": None, "field2": 5}),
    (
        ["null", logical("long", "timestamp-millis"), "string"],
        ["null", logical("long", "timestamp-micros"), "string"],
        b"\x02" + long(MILLIS),
        {"tag": 1, "field1": INSTANT, "field2": None},
    ),
    # One type and null, or one type alone, stays that type.
    (["long"], ["long"], b"\x00\x0a", 5),
]


@pytest.mark.parametrize(("writer", "reader", "data", "value"), UNIONS)
def test_unions_of_several_types(writer: Any, reader: Any, data: bytes, value: Any) -> None:
    texts = [json.dumps(record(("u", schema), ("end", "int"))) for schema in (writer, reader)]
    decoder = AvroValues(texts[1], Registry(texts[0]))  # type: ignore[arg-type]
    batch = decoder.decode([b"\0\0\0\0\1" + data + b"\x02"])
    batch.validate(full=True)
    assert batch.to_pylist() == [{"u": value, "end": 1}]


def test_the_columns_of_a_union_of_several_types() -> None:
    schema = avro_columns(json.dumps(record(("u", ["null", "long", "string"]))))
    assert schema == pa.schema({"u": pa.struct({"tag": pa.int32(), "field1": pa.int64(), "field2": pa.string()})})


@pytest.mark.parametrize(
    ("writer", "reader", "says"),
    [
        ("int", ["null", "boolean", "string"], "written as int, which can't be read into one of null, boolean, string"),
        (["int", "boolean"], ["bytes", "string"], "can't be read into one of bytes, string"),
    ],
)
def test_a_type_that_is_none_of_several_is_refused(writer: Any, reader: Any, says: str) -> None:
    with pytest.raises(SourceError, match=says):
        resolution_of(json.dumps(record(("u", writer))), json.dumps(record(("u", reader))))


def test_a_branch_that_the_reader_lacks_is_a_bad_row() -> None:
    texts = [json.dumps(record(("u", schema))) for schema in (["int", "boolean"], ["long", "string"])]
    decoder = AvroValues(texts[1], Registry(texts[0]))  # type: ignore[arg-type]
    read = decoder.sort([b"\0\0\0\0\1\x00\x0a", b"\0\0\0\0\1\x02\x01"])
    assert read.batch.to_pylist() == [{"u": {"tag": 0, "field0": 5, "field1": None}}]
    assert list(read.faults) == [1]


def test_defaults_of_unions_of_several_types() -> None:
    """A default is one of the first type that it can be."""
    reader = record(
        ("x", "int"),
        ("u", ["string", "long"], "d"),
        ("v", ["null", "long", "string"], None),
        ("w", ["long", "bytes"], "ÿ"),
    )
    assert read(record(("x", "int")), {"x": 1}, reader) == {
        "x": 1,
        "u": {"tag": 0, "field0": "d", "field1": None},
        "v": None,
        "w": {"tag": 1, "field0": None, "field1": b"\xff"},
    }


def test_a_record_or_null_has_the_columns_of_the_record() -> None:
    assert avro_columns(json.dumps(["null", A])) == pa.schema({"id": pa.int64()})
    assert read(["null", A], {"id": 5}, ["null", A]) == {"id": 5}
    assert read(["null", A], None, ["null", A]) == {"id": None}
    assert read(A, {"id": 5}, ["null", A]) == {"id": 5}
    with pytest.raises(SourceError, match="a value was written as null, which can't be read into record"):
        read(["null", A], None, A)


def test_one_of_several_records_has_a_column_for_each() -> None:
    rows = [read([A, B], (name, {"id": 5}), [A, B]) for name in ("ns.A", "ns.B")]
    assert rows == [
        {"tag": 0, "field0": {"id": 5}, "field1": None},
        {"tag": 1, "field0": None, "field1": {"id": 5}},
    ]


def test_records_of_a_union_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """By their length, and where that is not enough by a walk."""
    schema = json.dumps(["null", record(("a", {"type": "array", "items": "null"}))])
    bounds = resolution_of(schema, schema).bounds
    assert bounds.size(b"\x02" + long(3) + b"\0", 0) < 1_000
    monkeypatch.setattr("volley.formats.avro_bounds.LARGEST_VALUE", 1_000)
    with pytest.raises(SourceError, match="takes more than"):
        bounds.size(b"\x02" + long(100) + b"\0", 0)


def test_a_message_names_its_schema_by_a_guid() -> None:
    class ByGuid:
        def avro(self, head: bytes) -> str:
            assert head == b"\x01" + bytes(range(16))
            return json.dumps(A)

    decoder = AvroValues(json.dumps(A), ByGuid())  # type: ignore[arg-type]
    assert decoder.decode([b"\x01" + bytes(range(16)) + b"\x0a"]).to_pylist() == [{"id": 5}]
