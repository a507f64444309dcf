"""Reads Debezium's messages by value: the rules of what Debezium 3.6.1 writes, type by type and case by case."""

from __future__ import annotations

import base64
import hashlib
import json
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest

from volley import ConfigError, FileSource, KafkaSource
from volley.formats.change_options import ChangeOptions
from volley.formats.changes import warned
from volley.formats.changes.decoder import ChangeValues
from volley.formats.framing import Tombstone
from volley.formats.rows import Sorted
from volley.types.arrow import arrow_schema

PLACEHOLDER = "__debezium_unavailable_value"
ENCODED = base64.b64encode(PLACEHOLDER.encode()).decode()
POSTGRES = {"connector": "postgresql", "db": "shop", "schema": "public", "table": "t", "snapshot": "false", "lsn": 9}


def envelope(op: str, before: Any = None, after: Any = None, source: Any = POSTGRES, **more: Any) -> dict[str, Any]:
    return {"op": op, "before": before, "after": after, "source": source, "ts_ms": 1, "transaction": None, **more}


def read(schema: str, messages: list[Any], on_unknown: str = "warn", **options: Any) -> Sorted:
    decoder = ChangeValues(arrow_schema(schema), "debezium", ChangeOptions(**options), on_unknown)
    values = [message if isinstance(message, bytes | None) else json.dumps(message).encode() for message in messages]
    return decoder.sort(values)


def rows(schema: str, messages: list[Any], **options: Any) -> list[dict[str, Any]]:
    result = read(schema, messages, **options)
    assert not result.faults
    listed: list[dict[str, Any]] = result.batch.to_pylist()
    return listed


def connect(name: str, kind: str, logical: str = "", **more: Any) -> dict[str, Any]:
    return {"field": name, "type": kind, "optional": True, **({"name": logical} if logical else {}), **more}


def wrapped(payload: Any, *fields: dict[str, Any]) -> dict[str, Any]:
    row = {"type": "struct", "fields": list(fields), "optional": True, "name": "t.Value"}
    places = [{**row, "field": "before"}, {**row, "field": "after"}]
    schema = {"type": "struct", "fields": [*places, connect("op", "string")], "name": "t.Envelope", "optional": False}
    return {"schema": schema, "payload": payload}


TIME = "io.debezium.time."
DATA = "io.debezium.data."
KAFKA = "org.apache.kafka.connect.data."
MOMENT = datetime(2026, 3, 29, 1, 30, 0, 123456)
ZONED = MOMENT.replace(tzinfo=UTC)
MILLIS = datetime(2026, 3, 29, 1, 30, 0, 123000)
VARIABLE = {"type": "struct", "fields": [connect("scale", "int32"), connect("value", "bytes")]}
NUMBER = {"scale": 1, "value": "MDk="}
WKB = [connect("wkb", "bytes"), connect("srid", "int32")]
GEOMETRY = {"type": "struct", "fields": WKB}
POINT = {"type": "struct", "fields": [connect("x", "double"), connect("y", "double"), *WKB]}
PLACE = {"x": 1.0, "y": -2.0, "wkb": "AQI=", "srid": 0}


def items(kind: str, logical: str = "", **more: Any) -> dict[str, Any]:
    return {"items": {"type": kind, **({"name": logical} if logical else {}), **more}}


# PostgreSQL's numeric(3, -2): its scale counts from 2048.
NEGATIVE = base64.b64encode((1200 * 10**2046).to_bytes(852, "big")).decode()

# What a column is written as, and what it becomes; `wire` is what schemaless messages need to be told.
TYPES = [
    ("decimal(10,2)", "bytes", KAFKA + "Decimal", {"scale": "2"}, "AeI6", Decimal("1234.50"), "Decimal"),
    ("decimal(10,2)", "bytes", KAFKA + "Decimal", {"scale": "2"}, "/h3G", Decimal("-1234.50"), "Decimal"),
    ("decimal(20,0)", "bytes", KAFKA + "Decimal", {"scale": "0"}, "AP//////////", Decimal(2**64 - 1), "Decimal"),
    ("decimal(10,2)", "string", "", {}, "1234.50", Decimal("1234.50"), "text"),
    ("decimal(10,0)", "bytes", KAFKA + "Decimal", {"scale": "2046"}, NEGATIVE, Decimal(1200), None),
    ("string", "struct", DATA + "VariableScaleDecimal", VARIABLE, NUMBER, "1234.5", None),
    ("decimal(10,2)", "struct", DATA + "VariableScaleDecimal", VARIABLE, NUMBER, Decimal("1234.50"), None),
    # Zeros are stripped in front of the point too.
    ("string", "struct", DATA + "VariableScaleDecimal", VARIABLE, {"scale": -2, "value": "DA=="}, "1200", None),
    ("decimal(19,2)", "bytes", KAFKA + "Decimal", {"scale": "2"}, "BNI=", Decimal("12.34"), "Decimal"),
    ("double", "double", "", {}, "NaN", "nan", None),
    ("double", "double", "", {}, "-Infinity", float("-inf"), None),
    ("float", "float", "", {}, "NaN", "nan", None),
    ("double", "string", "", {}, "NAN", "nan", "text"),
    ("double", "string", "", {}, "Infinity", float("inf"), "text"),
    ("string", "string", "", {}, "NAN", "NAN", None),
    ("boolean", "boolean", "", {}, True, True, None),
    # BOOLEAN of MariaDB.
    ("int", "int16", "", {}, -1, -1, None),
    ("long", "int64", "", {}, 4294967295, 4294967295, None),
    ("timestamp_ntz", "int64", TIME + "Timestamp", {}, 1774747800123, MILLIS, "Timestamp"),
    ("timestamp_ntz", "int64", TIME + "MicroTimestamp", {}, 1774747800123456, MOMENT, "MicroTimestamp"),
    ("timestamp_ntz", "int64", TIME + "NanoTimestamp", {}, 1774747800123456789, MOMENT, "NanoTimestamp"),
    ("timestamp_ntz", "int64", KAFKA + "Timestamp", {}, 1774747800123, MILLIS, "Timestamp"),
    ("timestamp_ntz", "string", TIME + "IsoTimestamp", {}, "2026-03-29T01:30:00.123456Z", MOMENT, "IsoTimestamp"),
    ("timestamp", "string", TIME + "ZonedTimestamp", {}, "2026-03-29T01:30:00.123456Z", ZONED, None),
    ("timestamp", "string", TIME + "ZonedTimestamp", {}, "1970-01-01T00:00:00Z", datetime.fromtimestamp(0, UTC), None),
    ("date", "int32", TIME + "Date", {}, 20541, date(2026, 3, 29), None),
    ("date", "int32", TIME + "Date", {}, 0, date(1970, 1, 1), None),
    ("date", "int32", KAFKA + "Date", {}, 20541, date(2026, 3, 29), "Date"),
    ("date", "string", TIME + "IsoDate", {}, "2026-03-29Z", date(2026, 3, 29), "IsoDate"),
    ("time", "int32", TIME + "Time", {}, 5400123, time(1, 30, 0, 123000), "Time"),
    ("time", "int64", TIME + "MicroTime", {}, 5400123456, time(1, 30, 0, 123456), "MicroTime"),
    ("time", "int64", TIME + "NanoTime", {}, 5400123456789, time(1, 30, 0, 123456), "NanoTime"),
    ("time", "string", TIME + "IsoTime", {}, "01:30:00.123456Z", time(1, 30, 0, 123456), "IsoTime"),
    ("time", "string", TIME + "IsoTime", {}, "00:00:00Z", time(0), "IsoTime"),
    ("string", "string", TIME + "ZonedTime", {}, "23:30:00.123456Z", "23:30:00.123456Z", None),
    ("long", "int64", TIME + "MicroTime", {}, 3020399999999, 3020399999999, "MicroTime"),
    ("long", "int64", TIME + "MicroTime", {}, -1500000, -1500000, "MicroTime"),
    ("int", "int32", TIME + "Year", {}, 2026, 2026, None),
    ("long", "int64", TIME + "MicroDuration", {}, 2719800500000, 2719800500000, None),
    ("string", "string", TIME + "Interval", {}, "P0Y1M1DT1H0M0.5S", "P0Y1M1DT1H0M0.5S", None),
    ("binary", "bytes", "", {}, "3q2+7w==", b"\xde\xad\xbe\xef", None),
    ("binary", "string", "", {}, "3q2+7w==", b"\xde\xad\xbe\xef", "base64"),
    ("binary", "string", "", {}, "3q2+7w==", b"3q2+7w==", "plain"),
    ("binary", "string", "", {}, "3q2-7w==", b"\xde\xad\xbe\xef", "base64url"),
    ("binary", "string", "", {}, "deadbeef", b"\xde\xad\xbe\xef", "hex"),
    ("binary", "bytes", DATA + "Bits", {"length": "10"}, "AQI=", b"\x01\x02", "Bits"),
    ("string", "bytes", DATA + "Bits", {"length": "10"}, "AQI=", "1000000001", None),
    ("string", "string", DATA + "Json", {}, '{"a": 1}', '{"a": 1}', None),
    ("string", "string", DATA + "Ltree", {}, "a.b", "a.b", None),
    ("string", "string", DATA + "Tsvector", {}, "'a':1", "'a':1", None),
    ("string", "string", "", {}, "1.2.3.0/24", "1.2.3.0/24", None),
    # What Debezium does not know, with include.unknown.datatypes: bytes of a text.
    ("string", "bytes", "", {}, "e1sxLDUpfQ==", "{[1,5)}", None),
    ("string", "string", DATA + "Xml", {}, "<a/>", "<a/>", None),
    ("string", "string", DATA + "Enum", {}, "b\\,c", "b,c", "Enum"),
    ("string", "string", DATA + "EnumSet", {}, "b\\,c,d", "b,c,d", "EnumSet"),
    ("decimal(20,0)", "int64", "", {}, -1, Decimal(2**64 - 1), "unsigned"),
    ("binary", "struct", DATA + "geometry.Geometry", GEOMETRY, {"wkb": "AQI=", "srid": 4326}, b"\x01\x02", None),
    ("struct<y: double, wkb: binary>", "struct", DATA + "geometry.Point", POINT, PLACE, {"y": -2.0, "wkb": b"\1\2"},
     None),
    ("array<int>", "array", "", items("int32"), [1, None, 3], [1, None, 3], None),
    # An array of two dimensions.
    ("array<int>", "array", "", items("int32"), [None, None], [None, None], None),
    ("array<string>", "array", "", items("bytes"), ["MS41MDA="], ["1.500"], None),
    ("array<decimal(5,2)>", "array", "", items("bytes", KAFKA + "Decimal", parameters={"scale": "2"}), ["Ew==", None],
     [Decimal("0.19"), None], "Decimal"),
    ("array<timestamp_ntz>", "array", "", items("int64", TIME + "MicroTimestamp"), [1774747800123456, None],
     [MOMENT, None], "MicroTimestamp"),
    ("array<time>", "array", "", items("int64", TIME + "MicroTime"), [5400123000], [time(1, 30, 0, 123000)],
     "MicroTime"),
    # bit(3)[]: typed as one value, and always null.
    ("array<string>", "bytes", DATA + "Bits", {"length": "3"}, None, None, None),
    ("map<string, string>", "map", "", {}, {"a": "b"}, [("a", "b")], None),
]  # fmt: skip


def _case(case: tuple[Any, ...]) -> str:
    return f"{case[2].rpartition('.')[2] or case[1]} {case[4]} to {case[0]}"[:60]


# A plain string is told apart from hex and base64 by the user's word alone.
SURE = [case for case in TYPES if case[6] != "unsigned" and (case[1] != "string" or case[2] or case[6] is None)]


@pytest.mark.parametrize("case", SURE, ids=_case)
def test_reads_a_value_by_the_schema_that_its_message_carries(case: tuple[Any, ...]) -> None:
    data_type, kind, logical, more, written, value, _ = case
    extra = more if "fields" in more or "items" in more else {"parameters": more}
    message = wrapped(envelope("c", None, {"v": written}), connect("v", kind, logical, **extra))
    (row,) = rows(f"v {data_type}", [message])
    assert str(row["v"]) == value if value == "nan" else row["v"] == value


@pytest.mark.parametrize("case", [case for case in TYPES if case[6]], ids=_case)
def test_reads_a_value_as_it_is_told_to_where_messages_have_no_schema(case: tuple[Any, ...]) -> None:
    data_type, _, _, _, written, value, wire = case
    (row,) = rows(f"v {data_type}", [envelope("c", None, {"v": written})], wire={"v": wire})
    assert str(row["v"]) == value if value == "nan" else row["v"] == value


def test_reads_uuids_structs_and_lists_of_logical_types() -> None:
    fields = [
        connect("u", "string", DATA + "Uuid"),
        connect("g", "struct", DATA + "geometry.Geometry", **GEOMETRY),
        connect("d", "array", items={"type": "bytes", "name": KAFKA + "Decimal", "parameters": {"scale": "2"}}),
        connect("z", "array", items={"type": "string", "name": TIME + "ZonedTimestamp"}),
        connect("n", "struct", DATA + "VariableScaleDecimal", **VARIABLE),
    ]
    name = "b68a35a7-17ad-35b3-af2a-ae46edb45450"
    after = {"u": name, "g": {"wkb": "AQI=", "srid": 1}, "d": ["Ew==", None], "z": ["2026-03-29T01:30:00Z"]}
    after["n"] = {"scale": 1, "value": "MDk="}
    schema = "u uuid, g struct<wkb: binary, srid: int>, d array<decimal(5,2)>, z array<timestamp>, n decimal(10,2)"
    (row,) = rows(schema, [wrapped(envelope("c", None, after), *fields)])
    assert row["u"] == UUID(name)
    assert row["g"] == {"wkb": b"\x01\x02", "srid": 1}
    assert (row["d"], row["n"]) == ([Decimal("0.19"), None], Decimal("1234.50"))
    assert row["z"] == [datetime(2026, 3, 29, 1, 30, tzinfo=UTC)]


@pytest.mark.parametrize("has_schema", [False, True])
def test_reads_maps_and_refuses_what_is_none(has_schema: bool) -> None:
    field = {"field": "v", "type": "map", "keys": {"type": "string"}, "values": {"type": "string"}, "optional": True}
    values = [{"a": "b", "c": None}, {}, None, 5, "x", [["a", "b"]]]
    messages = [envelope("c", None, {"v": value}) for value in values]
    result = read(
        "v map<string, string>", [wrapped(message, field) for message in messages] if has_schema else messages
    )
    assert [row["v"] for row in result.batch.to_pylist()] == [[("a", "b"), ("c", None)], [], None]
    assert list(result.faults) == [3, 4, 5]


def test_reads_maps_of_logical_types() -> None:
    decimal = {"type": "bytes", "name": KAFKA + "Decimal", "parameters": {"scale": "2"}}
    field = {"field": "v", "type": "map", "keys": {"type": "string"}, "values": decimal, "optional": True}
    values = [None, {"a": "Ew==", "b": None}, {}, {"c": "AeI6"}]
    read_as = rows(
        "v map<string, decimal(10,2)>", [wrapped(envelope("c", None, {"v": each}), field) for each in values]
    )
    assert [row["v"] for row in read_as] == [
        *(None, [("a", Decimal("0.19")), ("b", None)], [], [("c", Decimal("1234.50"))]),
    ]


@pytest.mark.parametrize(
    ("data_type", "written"),
    [("timestamp_ntz", 1), ("time", 1), ("decimal(10,2)", "1234")],
)
def test_does_not_guess_what_may_be_written_in_several_ways(data_type: str, written: Any) -> None:
    """Digits alone may be base64, and a number of seconds, milliseconds or microseconds."""
    faults = read(f"v {data_type}", [envelope("c", None, {"v": written})]).faults
    assert "column 'v' may be written in several ways" in faults[0]


@pytest.mark.parametrize(
    ("data_type", "wire", "written"),
    [
        ("timestamp_ntz", "MicroTimestamp", 9223372036825200000),
        ("timestamp_ntz", "MicroTimestamp", -9223372036832400000),
        ("timestamp_ntz", "MicroTimestamp", -63517780800000000),
        ("timestamp_ntz", "Timestamp", 9223372036825200),
        ("timestamp_ntz", "IsoTimestamp", "+294247-01-10T04:00:25.2Z"),
        ("timestamp_ntz", "NanoTimestamp", 2**63 - 1),
        ("timestamp_ntz", "NanoTimestamp", -(2**63)),
        ("timestamp_ntz(9)", "NanoTimestamp", 2**63 - 1),
        ("timestamp", "ZonedTimestamp", "infinity"),
        ("date", "plain", "0000-00-00"),
        ("timestamp", "ZonedTimestamp", "-infinity"),
        ("timestamp", "ZonedTimestamp", "-0043-03-15T12:00:00.000000Z"),
        ("date", "Date", -2147472692),
        ("date", "Date", -2147472691),
        ("date", "IsoDate", "-5877611-06-21Z"),
        ("time", "MicroTime", 86400000000),
        ("time", "MicroTime", -1500000),
        ("decimal(10,2)", "text", "NAN"),
        ("decimal(10,2)", "text", "-Infinity"),
    ],
)
def test_tells_values_that_iceberg_does_not_have_or_writes_null(data_type: str, wire: str, written: Any) -> None:
    messages = [envelope("c", None, {"v": written}), envelope("c", None, {"v": None})]
    result = read(f"v {data_type}", messages, wire={"v": wire})
    assert list(result.faults) == [0]
    assert result.faults[0].startswith("column 'v': ")
    assert [row["v"] for row in rows(f"v {data_type}", messages, wire={"v": wire}, unrepresentable="null")] == [
        None,
        None,
    ]


@pytest.mark.parametrize(
    ("data_type", "wire"),
    [("timestamp", "ZonedTimestamp"), ("timestamp_ntz", "IsoTimestamp"), ("date", "IsoDate"), ("date", "plain")],
)
@pytest.mark.parametrize("written", ["x", "1477053217", "2026-02-30"])
def test_a_text_that_is_no_time_at_all_is_never_null(data_type: str, wire: str, written: str) -> None:
    message = envelope("c", None, {"v": written})
    assert list(read(f"v {data_type}", [message], wire={"v": wire}, unrepresentable="null").faults) == [0]


NAME_UUID = "b68a35a7-17ad-35b3-af2a-ae46edb4545a"
UNSENT = [
    ("string", "string", "", {}, PLACEHOLDER),
    ("string", "string", DATA + "Json", {}, PLACEHOLDER),
    ("string", "string", DATA + "Json", {}, json.dumps({PLACEHOLDER: PLACEHOLDER})),
    ("binary", "bytes", "", {}, ENCODED),
    ("binary", "string", "", {}, PLACEHOLDER),
    ("array<string>", "array", "", {"items": {"type": "string"}}, [PLACEHOLDER]),
    ("array<int>", "array", "", {"items": {"type": "int32"}}, [*PLACEHOLDER.encode()]),
    ("array<date>", "array", "", {"items": {"type": "int32", "name": TIME + "Date"}}, [*PLACEHOLDER.encode()]),
    ("array<uuid>", "array", "", {"items": {"type": "string", "name": DATA + "Uuid"}}, [NAME_UUID]),
    ("map<string, string>", "map", "", {}, {PLACEHOLDER: PLACEHOLDER}),
    ("string", "string", DATA + "Json", {}, json.dumps({PLACEHOLDER: PLACEHOLDER}, separators=(",", ":"))),
    ("decimal(10,2)", "string", "", {}, PLACEHOLDER),
]  # fmt: skip


@pytest.mark.parametrize(("data_type", "kind", "logical", "more", "written"), UNSENT)
def test_knows_the_placeholder_of_a_value_that_has_not_changed(
    data_type: str, kind: str, logical: str, more: dict[str, Any], written: Any
) -> None:
    fields = connect("id", "int64"), connect("v", kind, logical, **more)
    message = wrapped(envelope("u", None, {"id": 1, "v": written}), *fields)
    (row,) = rows(f"id long, v {data_type}", [message], key_fields=["id"])
    assert (row["v"], row["_unchanged"]) == (None, ["v"])


def forms(text: str) -> list[tuple[str, str | None, Any]]:
    """Return a placeholder as types and handling modes have it, and how the column is written."""
    data = text.encode()
    name = str(UUID(bytes=hashlib.md5(data).digest(), version=3))
    return [
        *(("string", None, written) for written in (text, json.dumps({text: text}), {text: text})),
        *(("binary", None, base64.b64encode(data).decode()), ("binary", "hex", text), ("binary", "base64url", text)),
        *(("array<string>", None, [text]), ("array<uuid>", None, [name]), ("decimal(10,2)", "text", text)),
        *((f"array<{item}>", None, [*data]) for item in ("int", "long", "double", "date")),
        ("map<string, string>", None, {text: text}),
    ]


@pytest.mark.parametrize("text", [PLACEHOLDER, "same é"])
def test_a_placeholder_of_ones_own_is_known_in_all_forms(text: str) -> None:
    for data_type, wire, written in forms(text):
        options: dict[str, Any] = {"wire": {"v": wire}} if wire else {}
        messages = [envelope("u", None, {"id": 1, "v": written}) for written in (written, None)]
        first, second = rows(f"id long, v {data_type}", messages, placeholder=text, **options)
        assert (first["v"], first["_unchanged"]) == (None, ["v"]), (data_type, written)
        assert second["_unchanged"] is None
    (other,) = rows("v string", [envelope("u", None, {"v": PLACEHOLDER})], placeholder="other")
    assert (other["v"], other["_unchanged"]) == (PLACEHOLDER, None)


@pytest.mark.parametrize("has_schema", [False, True])
def test_a_field_that_an_update_does_not_have_is_unchanged_and_a_null_is_a_null(has_schema: bool) -> None:
    messages = [envelope(op, None, after) for op in "cu" for after in ({"id": 1, "v": None}, {"id": 1})]
    if has_schema:
        named = {"id": connect("id", "int64"), "v": connect("v", "string")}
        messages = [wrapped(message, *(named[name] for name in message["after"])) for message in messages]
    result = rows("id long, v string", messages, key_fields=["id"])
    assert [row["_unchanged"] for row in result] == [None, None, None, ["v"]]


def test_a_deletion_has_its_key_alone_as_the_rest_is_made_up() -> None:
    before = {"id": 7, "name": "", "at": 0}
    (row,) = rows("id long, name string, at date", [envelope("d", before)], key_fields=["id"])
    assert (row["id"], row["name"], row["at"], row["_op"], row["_unchanged"]) == (7, None, None, "d", None)


def test_warns_of_a_deletion_whose_key_is_zero(caplog: pytest.LogCaptureFixture) -> None:
    warned.warn_once.cache_clear()
    rows("id long", [envelope("d", {"id": 3})], key_fields=["id"])
    assert not caplog.records
    rows("id long", [envelope("d", {"id": 0})], key_fields=["id"])
    assert "REPLICA IDENTITY USING INDEX" in caplog.text


NULLABLE = connect("w", "string", default="dflt")


def test_warns_of_defaults_that_nulls_are_written_as(caplog: pytest.LogCaptureFixture) -> None:
    """A message whose own ``snapshot`` is null is written by a converter that keeps nulls."""
    warned.warn_once.cache_clear()
    told = wrapped(envelope("c", None, {"w": "dflt"}, {**POSTGRES, "snapshot": None}), NULLABLE)
    assert [row["w"] for row in rows("w string", [told])] == ["dflt"]
    rows("w string", [wrapped(envelope("c", None, {"w": "x"}), connect("w", "string"))])
    assert not caplog.records
    rows("w string", [wrapped(envelope("c", None, {"w": "dflt"}), NULLABLE)])
    assert "columns 'w' have defaults" in caplog.text
    assert "replace.null.with.default=false" in caplog.text


def test_texts_of_bytes_are_not_guessed() -> None:
    """Of the handling modes, only ``bytes`` has a schema that tells them from other texts."""
    messages = [wrapped(envelope("c", None, {"v": text}), connect("v", "string")) for text in ("deadbeef", None)]
    result = read("v binary", messages)
    assert list(result.faults) == [0]
    assert "bytes are written as texts in several ways" in result.faults[0]


def test_operations_of_a_key_update_come_in_their_order_and_other_messages_are_no_rows() -> None:
    messages = [
        envelope("r", None, {"id": 1}),
        envelope("d", {"id": 1}),
        None,
        b"null",
        envelope("c", None, {"id": 2}),
        envelope("u", {"id": 2}, {"id": 2}),
        {"ts_ms": 1774747800123},
        {"status": "BEGIN", "id": "571:53195829", "event_count": None, "data_collections": None, "ts_ms": 1},
        {"status": "END", "id": "571:53195832", "event_count": 2, "data_collections": [], "ts_ms": 1},
        {"op": "m", "source": {**POSTGRES, "table": ""}, "message": {"prefix": "p", "content": "aA=="}, "ts_ms": 1},
        {"source": {"connector": "mariadb"}, "databaseName": "shop", "ddl": "alter table t …", "tableChanges": []},
    ]
    result = read("id long", messages, key_fields=["id"])
    assert [(row["id"], row["_op"]) for row in result.batch.to_pylist()] == [(1, "r"), (1, "d"), (2, "i"), (2, "u")]
    assert (result.numbers, result.faults) == ([0, 1, 4, 5], {})


def test_messages_that_are_no_changes_are_bad_rows_by_name() -> None:
    messages = [
        envelope("x", None, {"id": 1}),
        envelope("u", {"id": 1}, None),
        envelope("d", None, None),
        {"id": 1, "op": None},
        b"{",
        envelope("c", None, {"id": "one"}),
        envelope("t"),
        {"id": 1, "name": "flattened"},
    ]
    faults = read("id long", messages).faults
    assert faults[0] == "op 'x' is none of Debezium's"
    assert faults[1] == "op 'u' without after"
    assert faults[2].startswith("a deletion without before")
    assert faults[3].startswith("no envelope of Debezium: it has no op")
    assert "not JSON" in faults[4]
    assert "changed from number to string" in faults[5]
    assert faults[6].startswith("the table was truncated")
    assert faults[7] == faults[3]
    assert list(read("id long", [envelope("t")], truncations="skip").faults) == []


def test_a_column_that_is_added_shows_from_the_message_on_that_has_it() -> None:
    first, second = connect("id", "int64"), connect("c", "int32")
    messages = [
        wrapped(envelope("c", None, {"id": 1}), first),
        wrapped(envelope("u", None, {"id": 0, "c": 7}), first, second),
        wrapped(envelope("c", None, {"id": 2}), first),
    ]
    result = rows("id long, c int", messages, key_fields=["id"])
    assert [(row["id"], row["c"]) for row in result] == [(1, None), (0, 7), (2, None)]


@pytest.mark.parametrize("has_schema", [False, True])
def test_a_field_without_a_column_is_bad_if_it_must_not_be(has_schema: bool) -> None:
    messages = [envelope("c", None, {"id": 1, "new": 1})]
    if has_schema:
        messages = [wrapped(messages[0], connect("id", "int64"), connect("new", "int32"))]
    assert read("id long", messages, on_unknown="fail").faults == {0: "field 'new' is not in the schema"}
    assert read("id long", messages, on_unknown="drop").numbers == [0]


FLAT = {"id": 1, "name": "Ada", "__op": "u", "__deleted": "false", "__lsn": 9, "__source_ts_us": 3}


def test_reads_flattened_rows() -> None:
    messages = [
        FLAT,
        {**FLAT, "__op": "c", "__source_sequence": '["4","9"]'},
        {"id": 1, "name": "", "__op": "d", "__deleted": "true"},
        {"id": 1, "name": "", "__deleted": "true"},
        {"id": 1},
        None,
        {**FLAT, "__op": "x"},
    ]
    result = read("id long, name string", messages, flattened=True, key_fields=["id"], tombstones="skip")
    assert [(row["name"], row["_op"]) for row in result.batch.to_pylist()] == [
        ("Ada", "u"),
        ("Ada", "i"),
        (None, "d"),
        (None, "d"),
        (None, "u"),
    ]
    places = [row["_seq"] for row in result.batch.to_pylist()]
    assert places == [None, bytes(7) + b"\4" + bytes(7) + b"\11" + bytes(8), None, None, None]
    assert result.batch["_unchanged"].to_pylist()[4] == ["name"]
    assert list(result.faults) == [6]


def told(name: str, payload: dict[str, Any], *fields: dict[str, Any]) -> dict[str, Any]:
    schema = {"type": "struct", "fields": list(fields), "optional": False, "name": f"io.debezium.connector.{name}"}
    return {"schema": schema, "payload": payload}


END = {"status": "END", "id": "571:9", "event_count": 2, "data_collections": [], "ts_ms": 1}
ALTERED = {"source": {"connector": "mysql"}, "ts_ms": 1, "databaseName": "d", "ddl": "alter …", "tableChanges": []}
EMITTED = {"op": "m", "ts_ms": 1, "source": POSTGRES, "message": {"prefix": "p", "content": "aA=="}}
NO_ROWS = [
    told("common.Heartbeat", {"ts_ms": 5}, connect("ts_ms", "int64")),
    told("common.TransactionMetadataValue", END, connect("status", "string"), connect("id", "string")),
    told("mysql.SchemaChangeValue", ALTERED, connect("ddl", "string")),
    told("postgresql.MessageValue", EMITTED, connect("op", "string")),
]


def test_messages_that_flattening_leaves_as_they_are_are_no_rows() -> None:
    """Of one topic or file with the rows; a table may have columns of the same names."""
    messages = [*NO_ROWS, *(message["payload"] for message in NO_ROWS), {"id": "x", "__op": "c"}]
    result = read("id string, status string", messages, flattened=True)
    assert (result.numbers, result.faults) == ([8], {})
    assert read("ts_ms long", [{"ts_ms": 5}], flattened=True).numbers == [0]
    of_names = {"ts_ms": 5, "id": "1", "status": "new", "event_count": 1, "data_collections": "x"}
    assert rows("id string, data_collections string", [of_names], flattened=True)[0]["data_collections"] == "x"
    assert rows("id long, message string", [{**EMITTED, "id": 1, "message": "m"}], flattened=True)[0]["message"] == "m"
    assert rows("id long", [{"id": 1, "ts_ms": 5}], flattened=True)[0]["id"] == 1


def test_a_deletion_that_only_a_tombstone_tells_is_a_bad_row_by_name() -> None:
    """Flattening writes nothing else, unless it is told to rewrite deletions."""
    result = read("id long", [{"id": 1}, None, b"null", {"id": 2}], flattened=True, key_fields=["id"])
    assert result.numbers == [0, 3]
    assert list(result.faults) == [1, 2]
    assert all('tombstones="delete" takes the record\'s key' in fault for fault in result.faults.values())


@pytest.mark.parametrize("has_schemas", [False, True])
def test_a_tombstone_is_the_deletion_of_its_key(has_schemas: bool) -> None:
    """In the order of messages; with neither value nor key, and with another key, it is a bad row."""

    def key(payload: Any) -> Tombstone:
        schema = {"type": "struct", "fields": [connect("at", "int64", TIME + "MicroTimestamp"), connect("n", "int32")]}
        wrapped = {"schema": schema, "payload": payload} if has_schemas and isinstance(payload, dict) else payload
        return Tombstone(json.dumps(wrapped).encode())

    moment = 1774747800123456
    rest = [key({"at": moment, "n": 1}), {"at": moment, "n": 2}, None, key({"at": moment}), key(7)]
    result = read(
        "at timestamp_ntz, n int, name string",
        [{"at": moment, "n": 1, "name": "Ada", "__op": "c"}, *rest, key({"at": moment, "n": 3})],
        flattened=True,
        key_fields=["at", "n"],
        tombstones="delete",
        wire={"at": "MicroTimestamp"},
    )
    assert [(row["_op"], row["at"], row["n"], row["name"]) for row in result.batch.to_pylist()] == [
        *(("i", MOMENT, 1, "Ada"), ("d", MOMENT, 1, None), ("u", MOMENT, 2, None), ("d", MOMENT, 3, None)),
    ]
    assert result.numbers == [0, 1, 2, 6]
    assert list(result.faults) == [3, 4, 5]
    assert result.faults[4] == "its key: a deletion whose key has no 'n'"
    assert result.faults[5].startswith("its key: not a JSON object")


@pytest.mark.parametrize("has_schema", [False, True])
def test_a_row_without_its_key_or_any_column_is_a_bad_row(has_schema: bool) -> None:
    named = {name: connect(name, "int64") for name in ("id", "n", "other")}
    afters = [{"id": 1, "n": None}, {"id": None, "n": 1}, {"n": 1}, {"other": 1}]
    messages = [envelope("c", None, after) for after in afters] + [envelope("d", {"id": None, "n": 1})]
    if has_schema:
        messages = [
            wrapped(message, *(named[name] for name in message["after"] or message["before"])) for message in messages
        ]
    result = read("id long, n long", messages, key_fields=["id"])
    no_key = "a row whose key has no 'id'"
    assert result.numbers == [0]
    assert result.faults == {1: no_key, 2: no_key, 3: no_key, 4: "a deletion whose key has no 'id'"}
    result = read("id long, n long", messages)
    assert result.numbers == [0, 1, 2, 4]
    assert result.faults == {3: "a row with none of the columns: it has 'other'"}


def test_versions_of_rows_that_have_ended_are_left_out() -> None:
    """Of a table of MariaDB with system versioning, an update that ends a row is its deletion."""
    now, past, later = "2038-01-19T03:14:07.999999Z", "2026-03-29T01:30:00.123456Z", "2106-02-07T06:28:15.999999Z"
    messages = [
        envelope("r", None, {"id": 1, "v": "a", "until": now}),
        envelope("u", {"id": 1, "v": "a", "until": now}, {"id": 1, "v": "b", "until": now}),
        envelope("c", None, {"id": 1, "v": "a", "until": past}),
        envelope("u", {"id": 1, "v": "b", "until": now}, {"id": 1, "v": "b", "until": past}),
        envelope("d", {"id": 1, "v": "a", "until": past}),
        envelope("c", None, {"id": 2, "v": "c", "until": later}),
    ]
    result = rows("id long, v string, until timestamp", messages, key_fields=["id"], row_end="until")
    assert [(row["_op"], row["id"], row["v"]) for row in result] == [
        *(("r", 1, "a"), ("u", 1, "b"), ("d", 1, None), ("i", 2, "c")),
    ]
    assert [row["until"] for row in result][2:] == [None, datetime(2106, 2, 7, 6, 28, 15, 999999, tzinfo=UTC)]


def test_an_envelope_of_mongodb_is_a_bad_row_by_name() -> None:
    place = {"connector": "mongodb", "collection": "t", "ts_ms": 1, "ord": 1}
    messages = [envelope("c", None, '{"_id": {"$oid": "6"}}', place), envelope("c", None, {"id": 1})]
    result = read("id long", messages)
    assert result.numbers == [1]
    assert result.faults[0].startswith("an envelope of MongoDB's, whose rows are texts: read them with documents: true")


def source(connector: str, **more: Any) -> dict[str, Any]:
    return {"connector": connector, "snapshot": "false", **more}


LSN = "00000027:00000758:"
# The places of each connector in the order of what happened.
SEQUENCES = {
    "postgresql": [
        source("postgresql", snapshot="first", sequence='[null,"900"]'),
        source("postgresql", sequence='[null,"850"]'),
        source("postgresql", snapshot=None, sequence='["900","950"]'),
        {"connector": "postgresql", "sequence": '["900","960"]'},
        source("postgresql", sequence='["900","1000"]'),
        source("postgresql", sequence='["1000","990"]'),
        source("postgresql", sequence='["10000","10001"]'),
    ],
    "mariadb": [
        source("mariadb", snapshot="true", file="log.000009", pos=328, row=0),
        source("mariadb", file="log.000009", pos=328, row=0),
        source("mariadb", file="log.000009", pos=328, row=1),
        source("mariadb", file="log.000009", pos=1000, row=0),
        source("mariadb", file="log.000010", pos=4, row=0),
        source("mariadb", file="log.1000000", pos=4, row=0),
    ],
    "oracle": [
        source("oracle", snapshot="last", scn="1000", commit_scn=None),
        source("oracle", scn="900", commit_scn="1001"),
        source("oracle", scn="999", commit_scn="1001", ssn=0),
        source("oracle", scn="999", commit_scn="1001", ssn=1),
        source("oracle", scn="1", commit_scn="10001"),
    ],
    "sqlserver": [
        source("sqlserver", snapshot="true", commit_lsn=LSN + "0003", change_lsn=None),
        source("sqlserver", commit_lsn=LSN + "0005", change_lsn=LSN + "0003", event_serial_no=1),
        source("sqlserver", commit_lsn=LSN + "0005", change_lsn=LSN + "0003", event_serial_no=2),
        source("sqlserver", commit_lsn=LSN + "000a", change_lsn=LSN + "0006", event_serial_no=1),
        source("sqlserver", commit_lsn="00000028:00000001:0001", change_lsn="00000028:00000001:0000"),
    ],
    "mongodb": [
        source("mongodb", ts_ms=1000, ord=1),
        source("mongodb", ts_ms=1000, ord=10),
        source("mongodb", ts_ms=2000, ord=1),
    ],
}


def test_decimals_that_are_all_null_are_nulls() -> None:
    paid = connect("paid", "bytes", KAFKA + "Decimal", parameters={"scale": "2"})
    messages = [wrapped(envelope("c", None, {"paid": None}), paid)] * 2
    assert [row["paid"] for row in rows("paid decimal(10,2)", messages)] == [None, None]


@pytest.mark.parametrize("connector", SEQUENCES)
def test_places_in_a_log_compare_right_as_they_are(connector: str) -> None:
    messages = [envelope("c", None, {"id": 1}, place) for place in SEQUENCES[connector]]
    places = [row["_seq"] for row in rows("id long", messages)]
    assert places == sorted(places)
    assert len(set(places)) == len(places)
    assert len({*map(len, places)}) == 1


def test_the_place_in_a_transaction_orders_what_has_one_place_in_the_log() -> None:
    place = source("postgresql", sequence='["1","2"]')
    messages = [
        envelope("c", None, {"id": 1}, place, transaction={"id": "7:9", "total_order": order}) for order in (2, 10)
    ]
    places = [row["_seq"] for row in rows("id long", messages)]
    assert places[0] < places[1]


@pytest.mark.parametrize("place", [source("vitess", vgtid="x"), source("postgresql", lsn=9), source("mysql"), {}])
def test_a_place_that_is_not_known_is_null(place: dict[str, Any]) -> None:
    (row,) = rows("id long", [envelope("c", None, {"id": 1}, place)])
    assert row["_seq"] is None


def test_adds_what_is_known_of_the_source() -> None:
    message = envelope("c", None, {"id": 1}, {**POSTGRES, "ts_ms": 5})
    (row,) = rows("id long", [message], source=["schema", "table", "ts_ms"])
    assert (row["source_schema"], row["source_table"], row["source_ts_ms"]) == ("public", "t", 5)


def test_the_stream_tells_an_upsert_its_keys() -> None:
    files = FileSource("x.json", format="debezium", schema="id long, v string", options={"key_fields": ["id"]})
    declared = files.declared()
    assert isinstance(declared, pa.Schema)
    assert declared.names == ["id", "v", "_op", "_seq", "_unchanged"]
    assert declared.field("id").metadata == {b"volley.role": b"key 0 of 1"}
    assert "key_fields': ['id']" in repr(files)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"key_fields": ["di"]}, "key_fields names 'di', which is no column"),
        ({"wire": {"id": "Decimals"}}, "wire of column 'id' is 'Decimals'"),
        ({"wire": {"x": "Decimal"}}, "wire names 'x', which is no column"),
        ({"row_end": "until"}, "row_end names 'until', which is no column"),
        ({"keys": ["id"]}, "debezium has no option 'keys'"),
        ({"source": ["lsn"]}, "source"),
        ({"truncations": "do"}, "truncations"),
        ({"tombstones": "do", "flattened": True}, "tombstones"),
        ({"tombstones": "skip"}, "tombstones='skip' is for flattened rows"),
        ({"tombstones": "delete", "flattened": True}, "tombstones are deletions, and no key is known"),
    ],
)
def test_options_are_checked_when_a_source_is_built(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        KafkaSource("host:9092", "t", value_format="debezium", schema="id long", options=options)


def test_files_have_no_keys_of_records() -> None:
    options = {"flattened": True, "key_fields": ["id"], "tombstones": "delete"}
    with pytest.raises(ConfigError, match="which is in Kafka alone"):
        FileSource("x.json", format="debezium", schema="id long", options=options)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"value_format": "debezium"}, "debezium needs a schema"),
        ({"value_format": "debezium", "schema": "_op string"}, "column '_op' is there twice"),
        ({"value_format": "maxwell", "schema": "id long", "options": {"flattened": True}}, "flattened is for debezium"),
        ({"schema": "id long", "options": {"key_fields": ["id"]}}, "options are those of formats of changes"),
        ({"value_format": "canal", "schema": "id long", "on_unknown": "keep"}, "on_unknown='keep' is for JSON"),
    ],
)  # fmt: skip
def test_settings_that_do_not_fit_a_format_of_changes_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        KafkaSource("host:9092", "t", **settings)
