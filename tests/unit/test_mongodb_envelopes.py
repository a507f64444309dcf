"""Reads the envelopes of Debezium's connector for MongoDB by value, as its documentation shows them."""

from __future__ import annotations

import base64
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest

from volley import ConfigError, FileSource, KafkaSource
from volley.formats.change_options import ChangeOptions
from volley.formats.changes.decoder import ChangeValues
from volley.formats.framing import Keyed
from volley.formats.rows import Sorted
from volley.types.arrow import arrow_schema

SOURCE = {
    **{"version": "3.0.0.Final", "connector": "mongodb", "name": "fulfillment", "ts_ms": 1558965508000},
    **{"snapshot": "false", "db": "inventory", "sequence": None, "rs": "rs0", "collection": "customers", "ord": 31},
    **{"h": 1546547425148721999, "resume_token": "8263", "lsid": None, "txnNumber": None},
}
OID = '{"_id": {"$oid": "596e275826f08b2730779e1f"}'


def envelope(op: str, after: Any = None, before: Any = None, update: Any = None, **source: Any) -> bytes:
    texts = {
        name: None if value is None else value if isinstance(value, str) else json.dumps(value)
        for name, value in (("before", before), ("after", after))
    }
    told = {"op": op, **texts, "updateDescription": update, "source": {**SOURCE, **source}, "ts_ms": 1558965515240}
    return json.dumps(told).encode()


def keyed(value: bytes, id: Any) -> Keyed:
    return Keyed.of(value, json.dumps({"payload": {"id": json.dumps(id)}}).encode())


def read(schema: str, values: list[Any], on_unknown: str = "drop", **options: Any) -> Sorted:
    options = {"documents": True, "key_fields": ["_id"], **options}
    return ChangeValues(arrow_schema(schema), "debezium", ChangeOptions(**options), on_unknown).sort(values)


def rows(schema: str, values: list[Any], **options: Any) -> list[dict[str, Any]]:
    result = read(schema, values, **options)
    assert not result.faults
    listed: list[dict[str, Any]] = result.batch.to_pylist()
    return listed


UUID_TEXT = "00112233-4455-6677-8899-aabbccddeeff"
UUID_BYTES = base64.b64encode(bytes.fromhex(UUID_TEXT.replace("-", ""))).decode()
MOMENT = datetime(2026, 3, 29, 1, 30, 0, 123000, UTC)
MILLIS = 1774747800123
SEVENS: list[Any] = [{"$numberLong": "7"}, {"$numberInt": "7"}, 7, 7.0]
PATTERN = {"$regularExpression": {"pattern": "^a", "options": ""}}
BYTES = {"$binary": {"base64": "3q0=", "subType": "00"}}
ADDRESS = {"city": "Sète", "at": {"$date": MILLIS}, "raw": BYTES}
OBJECTS: list[Any] = [PATTERN, {"$minKey": 1}, {"a": [{}]}]
VALUES: list[tuple[str, Any, Any]] = [
    ("string", {"$oid": "596e275826f08b2730779e1f"}, "596e275826f08b2730779e1f"),
    *(("long", value, 2**60) for value in ({"$numberLong": str(2**60)}, 2**60)),
    *(("int", value, -7) for value in ({"$numberInt": "-7"}, -7)),
    *(("string", value, "7") for value in ({"$numberLong": "7"}, 7)),
    *(("double", value, 0.1) for value in ({"$numberDouble": "0.1"}, 0.1, {"$numberDecimal": "0.1"})),
    ("double", {"$numberDouble": "-Infinity"}, float("-inf")),
    *(("decimal(10,2)", {"$numberDecimal": text}, Decimal("1200.50")) for text in ("1200.50", "1.2005E+3")),
    *(("decimal(10,2)", value, Decimal("7.00")) for value in SEVENS),
    ("array<decimal(10,2)>", [{"$numberDecimal": "1.5"}, 2], [Decimal("1.50"), Decimal("2.00")]),
    ("string", {"$numberDecimal": "1.2005E+3"}, "1.2005E+3"),
    *(
        ("timestamp", value, MOMENT)
        for value in (
            *({"$date": {"$numberLong": str(MILLIS)}}, {"$date": MILLIS}),
            *({"$date": "2026-03-29T01:30:00.123Z"}, {"$date": "2026-03-29T03:30:00.123+02:00"}),
        )
    ),
    ("timestamp_ntz", {"$date": MILLIS}, MOMENT.replace(tzinfo=None)),
    ("timestamp", {"$date": {"$numberLong": "-62135596800000"}}, datetime(1, 1, 1, tzinfo=UTC)),
    ("long", {"$date": MILLIS}, MILLIS),
    ("date", {"$date": "2026-03-29T00:00:00Z"}, date(2026, 3, 29)),
    ("string", {"$date": MILLIS}, "2026-03-29T01:30:00.123Z"),
    *(
        ("binary", value, b"\xde\xad")
        for value in ({"$binary": {"base64": "3q0=", "subType": "00"}}, {"$binary": "3q0=", "$type": "00"})
    ),
    ("string", {"$binary": {"base64": "3q0=", "subType": "00"}}, "3q0="),
    *(
        ("uuid", value, UUID(UUID_TEXT))
        for value in ({"$binary": {"base64": UUID_BYTES, "subType": "04"}}, {"$uuid": UUID_TEXT})
    ),
    ("string", {"$binary": UUID_BYTES, "$type": "04"}, UUID_TEXT),
    ("timestamp", {"$timestamp": {"t": 1774747800, "i": 3}}, MOMENT.replace(microsecond=0)),
    ("string", {"$timestamp": {"t": 1, "i": 3}}, '{"$timestamp":{"t":1,"i":3}}'),
    ("string", {"$symbol": "s"}, "s"),
    ("string", {"$undefined": True}, None),
    *(("string", value, json.dumps(value, separators=(",", ":"))) for value in OBJECTS),
    ("boolean", True, True),
    ("string", "", ""),
    ("string", 'é "x"', 'é "x"'),
    ("string", None, None),
    ("array<long>", [{"$numberLong": "1"}, 2, None], [1, 2, None]),
    ("array<timestamp>", [{"$date": MILLIS}], [MOMENT]),
    (
        "struct<city: string, at: timestamp, raw: binary>",
        ADDRESS,
        {"city": "Sète", "at": MOMENT, "raw": b"\xde\xad"},
    ),
]


@pytest.mark.parametrize(
    ("column", "value", "expected"), VALUES, ids=[f"{name} {str(v)[:30]}" for name, v, _ in VALUES]
)
def test_a_value_of_extended_json_is_the_value_of_its_column(column: str, value: Any, expected: Any) -> None:
    result = rows(f"_id long, v {column}", [envelope("c", {"_id": 1, "v": value}), envelope("r", {"_id": 2})])
    assert [(row["_id"], row["v"], row["_op"]) for row in result] == [(1, expected, "i"), (2, None, "r")]


def test_the_documented_events() -> None:
    """A create, an update with its description, a deletion with its key, a tombstone; with and without schemas."""
    first = '{"_id" : {"$numberLong" : "1004"},"first_name" : "Anne","last_name" : "Kretchmar"}'
    later = '{"_id" : {"$numberLong" : "1004"},"first_name" : "Anne Marie"}'
    change = {"removedFields": ["last_name"], "updatedFields": '{"first_name": "Anne Marie"}', "truncatedArrays": None}
    messages = [
        envelope("c", first),
        envelope("u", later, update=change, ord=32),
        keyed(envelope("d", ord=33), {"$numberLong": "1004"}),
    ]
    field = {"type": "string", "optional": True, "name": "io.debezium.data.Json", "field": "after"}
    wrapped = [
        type(each).of(text, each.key) if isinstance(each, Keyed) else text
        for each in messages
        for text in [
            json.dumps({"schema": {"type": "struct", "fields": [field]}, "payload": json.loads(each)}).encode()
        ]
    ]
    for values in (messages, wrapped):
        result = rows("_id long, first_name string, last_name string", [*values, None], source=["collection"])
        assert [(row["_op"], row["_id"], row["first_name"], row["last_name"]) for row in result] == [
            *(("i", 1004, "Anne", "Kretchmar"), ("u", 1004, "Anne Marie", None), ("d", 1004, None, None)),
        ]
        assert [row["_seq"] for row in result] == sorted({row["_seq"] for row in result})
        assert [row["_unchanged"] for row in result] == [None] * 3
        assert {row["source_collection"] for row in result} == {"customers"}


def test_an_update_without_its_document_has_what_it_changed_alone() -> None:
    """By `capture.mode=change_streams`, or as the document is gone when Debezium looks it up."""
    change = {"removedFields": ["b"], "updatedFields": '{"a": {"$numberLong": "7"}, "other.x": 1}'}
    (row,) = rows("_id string, a long, b string, c string", [keyed(envelope("u", update=change), "x")])
    assert (row["_id"], row["a"], row["b"], row["c"], row["_unchanged"]) == ("x", 7, None, None, ["c"])
    (row,) = rows(
        "_id string, a long, b string, c string", [envelope("u", update=change, before=OID + ', "c": "old"}')]
    )
    assert (row["_id"], row["_unchanged"]) == ("596e275826f08b2730779e1f", ["c"])


PART = {"updatedFields": '{"c.d": 1}'}
NO_PART = {"updatedFields": "{}"}
CUT = {"truncatedArrays": [{"field": "c", "size": 1}]}
FAULTS: list[tuple[str, Any]] = [
    ("a part of column 'c' alone", keyed(envelope("u", update=PART), 1)),
    ("a part of column 'c' alone", keyed(envelope("u", update=CUT), 1)),
    ("an update with neither after nor updateDescription", keyed(envelope("u"), 1)),
    ("an update without a document, which only the record's key tells", envelope("u", update=NO_PART)),
    ("a deletion without a document, which only the record's key tells", envelope("d")),
    ("has no id of a document", Keyed.of(envelope("d"), b'{"key": 1}')),
    ("op 'c' without after", envelope("c")),
    ("is no document in extended JSON", envelope("c", "[1]")),
    ("no extended JSON, or out of range", envelope("c", {"_id": 1, "c": {"$date": "yesterday"}})),
    ("no extended JSON, or out of range", envelope("c", {"_id": 1, "c": {"$date": {"$numberLong": str(2**60)}}})),
    ("no extended JSON, or out of range", envelope("c", {"_id": 1, "c": {"$numberLong": "x"}})),
    ("no envelope of MongoDB's", b'{"op": "c", "after": {"_id": 1}}'),
    ("no envelope of MongoDB's", b"[]"),
    ("column 'm'", envelope("c", {"_id": 1, "m": {"$numberDecimal": "1.234"}})),
    ("column 'm'", envelope("c", {"_id": 1, "m": {"$numberDecimal": "NaN"}})),
    ("column 'm'", envelope("c", {"_id": 1, "m": "seven"})),
    ("op 'x' is none of Debezium's", b'{"op": "x"}'),
]


@pytest.mark.parametrize(("fault", "value"), FAULTS, ids=[fault for fault, _ in FAULTS])
def test_what_tells_no_row_is_a_bad_row_by_name(fault: str, value: bytes) -> None:
    result = read(
        "_id long, c timestamp, m decimal(10,2)", [envelope("c", {"_id": 1}), value, envelope("c", {"_id": 2})]
    )
    assert result.numbers == [0, 2]
    assert fault in result.faults[1]


def test_other_messages_are_no_rows_and_unknown_fields_are_told() -> None:
    others = [b'{"ts_ms": 1}', b'{"status": "BEGIN", "id": "1"}', None, b"null"]
    assert rows("_id long", others) == []
    result = read("_id long", [envelope("c", {"_id": 1, "extra": {"$date": 1}})], on_unknown="fail")
    assert result.faults == {0: "field 'extra' is not in the schema"}


def test_a_snapshot_has_no_place_among_the_events_of_its_second() -> None:
    (row,) = rows("_id long", [envelope("r", {"_id": 1}, ord=-1, snapshot="true")])
    (later,) = rows("_id long", [envelope("u", {"_id": 1}, ord=1)])
    assert row["_seq"] < later["_seq"]


@pytest.mark.parametrize(
    "settings",
    [{"schema": "infer"}, {"format": "maxwell"}, {"options": {"documents": True, "flattened": True}}],
)
def test_documents_need_declared_columns(settings: dict[str, Any]) -> None:
    given = {"format": "debezium", "schema": "_id string", "options": {"documents": True}, **settings}
    with pytest.raises(ConfigError, match="documents are the rows of MongoDB's envelopes in JSON"):
        FileSource("changes", **given)


def test_documents_are_not_read_by_a_registry() -> None:
    with pytest.raises(ConfigError, match="documents are the rows of MongoDB's envelopes in JSON"):
        KafkaSource(
            *("broker:9092", "customers"),
            value_format="debezium",
            schema="_id string",
            registry="http://registry:8081",
            options={"documents": True},
        )


def test_many_documents_are_read_at_once() -> None:
    values = [envelope("c", {"_id": number, "v": {"$numberLong": str(number)}}, ord=number) for number in range(1_000)]
    result = read("_id long, v long", values)
    assert result.batch.column("v") == pa.array(range(1_000), pa.int64())
