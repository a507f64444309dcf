"""Later schemas of a registry: merged into the kept one, so that messages of both are read, and noticed in messages."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from tests.avro import record
from tests.protobuf import compiled, encoded, message_class
from tests.unit.test_schema_registry import Server, server
from volley import ConfigError, SchemaChangedError, SourceError
from volley.formats.avro import AvroValues, avro_columns, merged_texts
from volley.formats.joined_values import Joined
from volley.formats.json_schema import Items, Members, Node, Plain, Struct, Text, Whole, columns_of, text_of
from volley.formats.json_schema_values import JsonSchemaValues, from_text, to_text
from volley.formats.json_schema_values import merged_texts as merged_json
from volley.formats.newer_schemas import KINDS, NewerSchemas, Subject
from volley.formats.protobuf import ProtobufValues
from volley.formats.protobuf_merge import merged as merged_protobuf
from volley.formats.registered import Registered
from volley.formats.schema_registry import Registry

__all__ = ["server"]


def avro(*fields: tuple[Any, ...]) -> str:
    return json.dumps(record(*fields))


def read_avro(reader: str, writer: str, value: Any) -> Any:
    """Return a row that was written by one schema and is read by another."""
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(json.loads(writer)), value)
    registry = Fixed(writer)
    return AvroValues(reader, registry).decode([b"\0\0\0\0\x01" + stream.getvalue()]).to_pylist()[0]


class Fixed(Registry):
    """A registry with one schema."""

    def __init__(self, text: str) -> None:
        super().__init__("http://fixed", 1)
        object.__setattr__(self, "text", text)

    def schema(self, number: int) -> str:
        return str(self.text)  # type: ignore[attr-defined]


INNER = record(("a", "long"), name="P")
WIDER = record(("b", ["null", "string"]), ("a", "long"), name="P")
FIRST = avro(("id", "int"), ("p", INNER), ("q", "P"), ("u", ["int", "string"]), ("old", "string"), ("s", "int"))
LATER = avro(
    ("id", "long"),
    ("q", WIDER),
    ("p", ["null", "P"]),
    ("u", ["null", "int", "string", record(("z", "int"), name="Z")]),
    ("zs", {"type": "array", "items": "Z"}),
    ("at", {"type": "long", "logicalType": "timestamp-micros"}, 5),
    ("s", "string"),
)


def test_avro_of_both_schemas_is_read_by_the_merged_one() -> None:
    both = merged_texts(FIRST, LATER)
    inner = pa.struct({"a": pa.int64(), "b": pa.string()})
    union = pa.struct(
        {"tag": pa.int32(), "field0": pa.int32(), "field1": pa.string(), "field3": pa.struct({"z": pa.int32()})}
    )
    columns = {"id": pa.int64(), "p": inner, "q": inner, "u": union, "old": pa.string(), "s": pa.int32()}
    columns |= {"zs": pa.list_(pa.struct({"z": pa.int32()})), "at": pa.timestamp("us", "UTC")}
    assert avro_columns(both) == pa.schema(columns)
    row = read_avro(both, FIRST, {"id": 1, "p": {"a": 2}, "q": {"a": 3}, "u": "x", "old": "o", "s": 4})
    assert (row["id"], row["p"], row["old"], row["s"]) == (1, {"a": 2, "b": None}, "o", 4)
    assert row["u"] == {"tag": 1, "field0": None, "field1": "x", "field3": None}
    assert (row["zs"], row["at"].microsecond) == (None, 5)


def test_avro_of_a_field_that_can_not_become_another_type_is_a_bad_row() -> None:
    both = merged_texts(FIRST, LATER)
    row = {"id": 2**40, "q": {"a": 3, "b": "y"}, "p": None, "u": {"z": 4}, "zs": [{"z": 1}], "at": 7, "s": "text"}
    with pytest.raises(SourceError, match="field 's' was written as string, which can't be read into int"):
        read_avro(both, LATER, row)
    without = json.loads(LATER)
    without["fields"].pop()
    read = read_avro(merged_texts(FIRST, json.dumps(without)), json.dumps(without), row)
    assert (read["id"], read["q"], read["p"], read["old"]) == (2**40, {"a": 3, "b": "y"}, None, None)
    assert read["u"] == {"tag": 3, "field0": None, "field1": None, "field3": {"z": 4}}


@pytest.mark.parametrize(
    ("kept", "latest", "merged"),
    [
        ("long", "int", "long"),
        ("int", "long", "long"),
        ("float", "double", "double"),
        ("int", "float", "int"),
        (["null", "int"], "long", ["null", "long"]),
        ("int", ["long", "null"], ["null", "long"]),
        (["null", "int"], ["null", "int", "string"], ["null", "int"]),
        ({"type": "map", "values": "int"}, {"type": "map", "values": "long"}, {"type": "map", "values": "long"}),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2},
            {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
            {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        ),
        (
            {"type": "long", "logicalType": "timestamp-micros"},
            "long",
            {"type": "long", "logicalType": "timestamp-micros"},
        ),
        (
            {"type": "enum", "name": "E", "symbols": ["a"]},
            {"type": "enum", "name": "E", "symbols": ["b", "a"]},
            {"type": "enum", "name": "E", "symbols": ["a", "b"]},
        ),
        (["int", "string"], ["string"], ["int", "string"]),
    ],
)
def test_avro_types(kept: Any, latest: Any, merged: Any) -> None:
    both = merged_texts(avro(("v", kept)), avro(("v", latest)))
    assert json.loads(both)["fields"] == [{"name": "v", "type": merged}]
    assert merged_texts(both, avro(("v", latest))) == both == merged_texts(both, avro(("v", kept)))


def test_avro_with_nothing_new_is_the_same_text() -> None:
    text = f" {FIRST} "
    assert merged_texts(text, FIRST) == text
    assert merged_texts(text, avro(("id", "int"), ("p", INNER), ("q", "P"), ("u", ["int"]), ("old", "string"))) != text


def schema_of(**properties: Any) -> bytes:
    return to_text(Registered("JSON", json.dumps({"type": "object", "properties": properties}))).encode()


def test_json_keeps_its_types_and_gets_fields() -> None:
    item = {"type": "object", "properties": {"n": {"type": "integer"}}}
    first = schema_of(id={"type": "integer"}, items={"type": "array", "items": item}, any={})
    more = {"type": "object", "properties": {"m": {"type": "string", "format": "date"}, "n": {"type": "string"}}}
    later = schema_of(id={"type": "number"}, items={"type": "array", "items": more}, at={"type": "boolean"})
    both = merged_json(first, later)
    columns = {"id": pa.int64(), "items": pa.list_(pa.struct({"n": pa.int64(), "m": pa.date32()})), "any": pa.string()}
    assert JsonSchemaValues(from_text(both), "drop").schema == pa.schema({**columns, "at": pa.bool_()})
    assert merged_json(both, later) == both == merged_json(both, first)
    assert merged_json(first, first) == first


def test_the_text_of_columns_has_the_same_columns() -> None:
    plain: list[Node] = [
        Plain(pa.bool_()),
        Plain(pa.float64()),
        Plain(pa.string()),
        Plain(pa.date32()),
        Whole(),
        Text(),
    ]
    plain += [Plain(pa.timestamp("us", "UTC"))]
    inner = Struct(tuple((f"c{number}", node) for number, node in enumerate(plain)))
    parts: list[Node] = [inner, Items(inner), Members(Text()), Members(inner), Items(Items(Whole()))]
    struct = Struct(tuple((f"d{number}", node) for number, node in enumerate(parts)))
    assert columns_of(Registered("JSON", text_of(struct))) == struct


PROTO = """
syntax = "proto3"; package shop;
enum Color { RED = 0; BLUE = 1; }
message Money { int64 units = 1; }
message Order {
  int32 id = 1; Money price = 2; Color color = 3; oneof by { string name = 4; } optional int32 n = 5; string gone = 6;
  map<string, int32> tags = 7;
}
"""
LATER_PROTO = """
syntax = "proto3"; package shop;
import "google/protobuf/timestamp.proto";
enum Color { RED = 0; BLUE = 1; GREEN = 2; }
message Money { int64 units = 1; string currency = 2; }
message Line { Money each = 1; enum Kind { A = 0; } Kind kind = 2; }
message Order {
  reserved 6; int64 id = 1; Money cost = 2; Color color = 3;
  oneof by { string name = 4; int64 number = 8; } optional int32 n = 5; optional string m = 9;
  oneof other { bool x = 10; Line y = 11; }
  map<string, int32> tags = 7; map<int32, Line> lines = 12; google.protobuf.Timestamp at = 13;
}
"""


def test_protobuf_of_both_schemas_is_read_by_the_merged_one() -> None:
    first, later = compiled(PROTO), compiled(LATER_PROTO)
    both = merged_protobuf(first, later)
    assert merged_protobuf(both, later) == both == merged_protobuf(both, first)
    assert merged_protobuf(first, first) == first
    values = ProtobufValues(both, "shop.Order", None)
    old, new = (message_class(files, "shop.Order") for files in (first, later))
    line = {"each": {"units": 1, "currency": "EUR"}, "kind": 0}
    message = new(id=2**40, cost={"units": 5, "currency": "EUR"}, color=2, number=0, m="", y=line, at={"seconds": 1})
    message.lines[3].CopyFrom(message.y)
    written = [old(id=1, price={"units": 4}, name="x", gone="g", tags={"a": 1}), message]
    rows = values.decode([part.SerializeToString() for part in written]).to_pylist()
    assert [*rows[0]] == ["id", "price", "color", "name", "n", "gone", "tags", "number", "m", "x", "y", "lines", "at"]
    assert rows[0]["price"] == {"units": 4, "currency": ""}
    assert (rows[0]["id"], rows[0]["name"], rows[0]["gone"], rows[0]["tags"]) == (1, "x", "g", [("a", 1)])
    assert [rows[0][name] for name in ("number", "m", "x", "y", "lines", "at")] == [None, None, None, None, [], None]
    told = {"each": {"units": 1, "currency": "EUR"}, "kind": "A"}
    assert (rows[1]["id"], rows[1]["color"], rows[1]["name"], rows[1]["number"]) == (2**40, "GREEN", None, 0)
    assert (rows[1]["m"], rows[1]["x"], rows[1]["y"], rows[1]["lines"]) == ("", None, told, [(3, told)])


@pytest.mark.parametrize(
    ("latest", "reason"),
    [
        ('syntax = "proto3"; message M { int32 a = 2; }', "field 'a' of M has the number 2 now, and had 1"),
        ('syntax = "proto2"; message M { optional int32 a = 1; }', "has another syntax now"),
    ],
)
def test_protobuf_that_does_not_go_with_what_is_kept(latest: str, reason: str) -> None:
    with pytest.raises(SourceError, match=reason):
        merged_protobuf(compiled('syntax = "proto3"; message M { int32 a = 1; }'), compiled(latest))


def test_descriptors_that_are_damaged_are_refused() -> None:
    """As the fuzzer found them: an index outside of its list."""
    damaged = FileDescriptorSet.FromString(compiled(LATER_PROTO))
    damaged.file[-1].public_dependency.append(7)
    with pytest.raises(SourceError, match="the Protobuf schema is no valid file"):
        merged_protobuf(compiled(PROTO), damaged.SerializeToString())


CASES = {
    "avro": (avro(("id", "long")), avro(("id", "long"), ("name", "string"))),
    "json": (
        '{"type": "object", "properties": {"id": {"type": "integer"}}}',
        '{"type": "object", "properties": {"id": {"type": "integer"}, "name": {"type": "string"}}}',
    ),
    "protobuf": (
        encoded(compiled('syntax = "proto3"; message M { int64 id = 1; }')),
        encoded(compiled('syntax = "proto3"; message M { int64 id = 1; string name = 2; }')),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_message_of_a_later_schema_is_noticed(name: str, server: Server, tmp_path: Path) -> None:
    kind = KINDS[name]
    first, later = ({"schema": text, "schemaType": kind.name, "version": 1, "subject": "s"} for text in CASES[name])
    server.answers["/schemas/ids/1"] = [(200, {**first, "id": 1})]
    server.answers["/schemas/ids/2"] = [(200, {**later, "id": 2})]
    latest = "/subjects/s/versions/latest"
    server.answers[latest] = [(200, {**first, "id": 1})]
    subject = Subject(Registry(server.url, 5), "s", kind)
    kept = subject.merged(str(tmp_path))
    newer = NewerSchemas(subject, kept)
    messages = [b"\0\0\0\0\x01", None, b"", b"no frame", b"\0\0\0\0\x63unknown"]
    newer.check(Joined.of(messages))
    # Fields that the subject's latest schema lacks are no columns for a job that starts again either.
    newer.check(Joined.of([b"\0\0\0\0\x02"]))
    server.answers[latest] = [(200, {**later, "id": 2})]
    with pytest.raises(SchemaChangedError, match="schema 2 has fields or types that were not there"):
        NewerSchemas(subject, kept).check(Joined.of([*messages, b"\0\0\0\0\x02"]))
    now = subject.merged(str(tmp_path))
    assert now == subject.kept(str(tmp_path)) != kept
    NewerSchemas(subject, now).check(Joined.of([*messages, b"\0\0\0\0\x02"]))


def test_a_subject_that_is_gone_is_named(server: Server, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has no subject 'gone'"):
        Subject(Registry(server.url, 5), "gone", KINDS["avro"]).merged(str(tmp_path))
