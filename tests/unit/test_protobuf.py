"""Protobuf messages become rows: each type, presence, framing and change of schema, by values written by hand."""

from __future__ import annotations

import base64
import pickle
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from tests.protobuf import compiled, encoded, message_class
from volley import ConfigError, KafkaSource, SourceError
from volley.contracts.source import SourceContext
from volley.formats import protobuf_bounds
from volley.formats.messages import TooManyError
from volley.formats.protobuf import ProtobufValues
from volley.formats.protobuf_schema import files_of, message_named
from volley.formats.registered import Registered

PROTO3 = """
syntax = "proto3";
package a;
import "google/protobuf/any.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/empty.proto";
import "google/protobuf/struct.proto";
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
message M {
  int32 i32 = 1; sint64 s64 = 2; uint64 u64 = 3; fixed32 f32 = 4; bool b = 5; float fl = 6; double db = 7;
  string s = 8; bytes by = 9; E e = 10; optional int32 oi = 11; repeated int32 ri = 12; repeated E re = 13;
  map<string, int32> m = 14; map<int64, Sub> mm = 15;
  oneof choice { int32 ca = 16; string cb = 17; Sub cc = 18; google.protobuf.Empty cd = 19; }
  Sub sub = 20; repeated Sub rs = 21; google.protobuf.Int32Value w = 22; google.protobuf.Timestamp at = 23;
  google.protobuf.Duration took = 24; google.protobuf.Any any = 25; google.protobuf.Struct st = 26;
  google.protobuf.Value v = 27; google.protobuf.UInt64Value wu = 28; repeated google.protobuf.StringValue rw = 29;
  uint32 u32 = 30; fixed64 f64 = 31; string Clear = 32; string from = 33; google.protobuf.ListValue l = 34;
}
enum E { option allow_alias = true; RED = 0; GREEN = 1; VERT = 1; }
message Sub { int32 x = 1; repeated string y = 2; }
"""
UNSET: dict[str, Any] = {
    **{"i32": 0, "s64": 0, "u64": Decimal(0), "f32": 0, "b": False, "fl": 0.0, "db": 0.0, "s": "", "by": b""},
    **{"e": "RED", "oi": None, "ri": [], "re": [], "m": [], "mm": [], "ca": None, "cb": None, "cc": None, "cd": None},
    **{"sub": None, "rs": [], "w": None, "at": None, "took": None, "any": None, "st": None, "v": None, "wu": None},
    **{"rw": [], "u32": 0, "f64": Decimal(0), "Clear": "", "from": "", "l": None},
}
DAY = datetime(2024, 1, 1, 0, 0, 0, 500_000, tzinfo=UTC)


def values(text: str = PROTO3, message: str | None = None, registry: Any = None) -> ProtobufValues:
    files = compiled(text)
    decoder = ProtobufValues(files, message_named(files, message).full_name, registry)
    restored: ProtobufValues = pickle.loads(pickle.dumps(decoder))
    return restored


def row(data: bytes, text: str = PROTO3) -> dict[str, Any]:
    (read,) = values(text).decode([data]).to_pylist()
    return dict(read)


@pytest.mark.parametrize(
    ("data", "fields"),
    [
        ("", {}),
        ("0805", {"i32": 5}),
        ("08ffffffffffffffffff01", {"i32": -1}),
        ("1003", {"s64": -2}),
        ("18ffffffffffffffffff01", {"u64": Decimal(2**64 - 1)}),
        ("25ffffffff", {"f32": 2**32 - 1}),
        ("f001ffffffff0f", {"u32": 2**32 - 1}),
        ("f901ffffffffffffffff", {"f64": Decimal(2**64 - 1)}),
        ("2801", {"b": True}),
        ("350000c03f", {"fl": 1.5}),
        ("39000000000000f0bf", {"db": -1.0}),
        ("4202c3bc", {"s": "ü"}),
        ("4a02fbff", {"by": b"\xfb\xff"}),
        # An enum's number without a name is kept; of two names the first.
        ("5001", {"e": "GREEN"}),
        ("5007", {"e": "7"}),
        ("6a03000701", {"re": ["RED", "7", "GREEN"]}),
        # Presence: set to 0 is not unset.
        ("5800", {"oi": 0}),
        ("800100", {"ca": 0}),
        ("8a0100", {"cb": ""}),
        ("920100", {"cc": {"x": 0, "y": []}}),
        ("9a0100", {"cd": True}),
        # Of several members of a oneof, the last.
        ("8001058a010161", {"cb": "a"}),
        # Packed or one by one.
        ("6203010203", {"ri": [1, 2, 3]}),
        ("600160026003", {"ri": [1, 2, 3]}),
        # Maps: entries without a key or value have their defaults, the last of a key counts; by key in order.
        ("72050a0162100272030a0161", {"m": [("a", 0), ("b", 2)]}),
        ("72050a0161100172050a01611002", {"m": [("a", 2)]}),
        ("7a06080512020801", {"mm": [(5, {"x": 1, "y": []})]}),
        # Messages: parts of one are merged.
        ("a20100", {"sub": {"x": 0, "y": []}}),
        ("a201020801a20103120161", {"sub": {"x": 1, "y": ["a"]}}),
        ("aa0100aa01020801", {"rs": [{"x": 0, "y": []}, {"x": 1, "y": []}]}),
        ("b20100", {"w": 0}),
        ("b2010205", "not Protobuf of a.M"),
        ("b201020805", {"w": 5}),
        ("e2010b08ffffffffffffffffff01", {"wu": Decimal(2**64 - 1)}),
        ("ea0100ea01030a0161", {"rw": ["", "a"]}),
        ("820200", {"Clear": ""}),
        ("8202016b8a02017a", {"Clear": "k", "from": "z"}),
        ("f87f05", {}),
        ("0a0161", {}),
        # What is damaged, or has a text that is none.
        ("08", "not Protobuf of a.M"),
        ("4202fffe", "not Protobuf of a.M"),
        ("0b", "not Protobuf of a.M"),
    ],
)
def test_bytes_become_a_row(data: str, fields: dict[str, Any] | str) -> None:
    if isinstance(fields, str):
        with pytest.raises(SourceError, match=fields):
            row(bytes.fromhex(data))
    else:
        assert row(bytes.fromhex(data)) == UNSET | fields


def test_well_known_types() -> None:
    message = message_class(compiled(PROTO3))()
    message.at.FromJsonString("2024-01-01T00:00:00.500000999Z")
    message.took.seconds, message.took.nanos = 0, -500_000_000
    message.any.type_url, message.any.value = "type.googleapis.com/unknown.Type", b"\x01"
    message.st.update({"b": 5, "a": [1.5, None, True, {"ü": "x"}], "n": float("nan"), "big": 2.0**60})
    message.v.null_value = 0
    message.l.extend([1, "a"])
    read = row(message.SerializeToString())
    assert (read["at"], read["took"]) == (DAY, Decimal("-0.500000000"))
    assert read["any"] == {"type_url": "type.googleapis.com/unknown.Type", "value": b"\x01"}
    assert read["st"] == '{"a":[1.5,null,true,{"ü":"x"}],"b":5,"big":1.152921504606847e+18,"n":"NaN"}'
    assert (read["v"], read["l"]) == ("null", '[1,"a"]')


@pytest.mark.parametrize(
    ("at", "says"),
    [
        ({"seconds": 253_402_300_800}, "field 'at' has 253402300800 seconds"),
        ({"seconds": -62_135_596_801}, "field 'at' has -62135596801 seconds"),
        ({"nanos": -1}, "field 'at' has -1 nanos"),
        ({"nanos": 1_000_000_000}, "field 'at' has 1000000000 nanos"),
    ],
)
def test_a_timestamp_that_is_none_is_refused(at: dict[str, int], says: str) -> None:
    with pytest.raises(SourceError, match=says):
        row(message_class(compiled(PROTO3))(at=at).SerializeToString())


def test_the_first_and_last_timestamps() -> None:
    kind = message_class(compiled(PROTO3))
    times = [{"seconds": -62_135_596_800}, {"seconds": 253_402_300_799, "nanos": 999_999_999}]
    column = values().decode([kind(at=at).SerializeToString() for at in times]).column("at").cast(pa.int64())
    assert column.to_pylist() == [-62_135_596_800_000_000, 253_402_300_799_999_999]


def test_timestamps_keep_their_nanoseconds_if_they_are_wanted() -> None:
    text = """syntax = "proto3"; import "google/protobuf/timestamp.proto";
    message M { google.protobuf.Timestamp at = 1; repeated google.protobuf.Timestamp all = 2; I in = 3; }
    message I { google.protobuf.Timestamp at = 1; }"""
    kind, files = message_class(compiled(text)), compiled(text)
    decoder = pickle.loads(pickle.dumps(ProtobufValues(files, "M", None, True)))
    last = {"seconds": 9_223_372_035, "nanos": 999_999_999}
    whole = kind(at={"seconds": -1, "nanos": 999_999_999}, all=[{"nanos": 7}, last])
    getattr(whole, "in").at.nanos = 5
    batch = decoder.decode([whole.SerializeToString(), kind().SerializeToString(), None])
    assert decoder.schema.field("at").type == pa.timestamp("ns", "UTC")
    assert batch["at"].cast(pa.int64()).to_pylist() == [-1, None, None]
    assert batch["all"].values.cast(pa.int64()).to_pylist() == [7, 9_223_372_035_999_999_999]
    assert batch["in"].field("at").cast(pa.int64()).to_pylist()[0] == 5
    with pytest.raises(SourceError, match="field 'at' has 9223372036 seconds, outside of"):
        decoder.decode([kind(at={"seconds": 9_223_372_036}).SerializeToString()])


PROTO2 = """
syntax = "proto2";
message M {
  optional int32 a = 1; required int32 r = 2; optional int32 d = 3 [default = 7]; optional E e = 4;
  repeated E re = 5; optional group G = 6 { optional int32 x = 1; } repeated group RG = 7 { optional int32 x = 1; }
  repeated int32 p = 8 [packed = true]; optional string s = 9; extensions 100 to 200;
}
enum E { Z = 0; O = 1; }
extend M { optional int32 more = 100; }
"""
OF_PROTO2: dict[str, Any] = {
    "a": None,
    "r": None,
    "d": None,
    "e": None,
    "re": [],
    "g": None,
    "rg": [],
    "p": [],
    "s": None,
}


@pytest.mark.parametrize(
    ("data", "fields"),
    [
        ("", {}),
        ("0800", {"a": 0}),
        # Closed enums: a number without a name is unset, and not in a list.
        ("2007", {}),
        ("2001", {"e": "O"}),
        ("280028072801", {"re": ["Z", "O"]}),
        ("33080134", {"g": {"x": 1}}),
        ("3b08013c3b3c", {"rg": [{"x": 1}, {"x": None}]}),
        ("42020102", {"p": [1, 2]}),
        ("a00605", {}),
    ],
)
def test_proto2(data: str, fields: dict[str, Any]) -> None:
    assert row(bytes.fromhex(data), PROTO2) == OF_PROTO2 | fields


def test_a_text_of_proto2_that_is_not_utf8_is_refused() -> None:
    with pytest.raises(SourceError, match=r"a value does not fit its column: .*not a utf8 string"):
        row(bytes.fromhex("4a02fffe"), PROTO2)


EDITION = """
edition = "EDITION";
message M {
  int32 a = 1; int32 i = 2 [features.field_presence = IMPLICIT];
  Sub s = 3 [features.message_encoding = DELIMITED]; repeated int32 r = 4; E e = 5; C c = 6;
}
message Sub { int32 x = 1; }
enum E { Z = 0; O = 1; }
enum C { option features.enum_type = CLOSED; CZ = 0; CO = 1; }
"""


@pytest.mark.parametrize("edition", ["2023", "2024"])
def test_editions(edition: str) -> None:
    text = EDITION.replace("EDITION", edition)
    unset: dict[str, Any] = {"a": None, "i": 0, "s": None, "r": [], "e": None, "c": None}
    assert row(b"", text) == unset
    assert row(bytes.fromhex("08001b08011c2202010228073007"), text) == {
        **unset,
        **{"a": 0, "s": {"x": 1}, "r": [1, 2], "e": "7"},
    }


def test_a_tombstone_is_a_row_of_nulls_and_an_empty_message_is_not() -> None:
    text = 'syntax = "proto3"; message M { int32 a = 1; repeated int32 b = 2; }'
    rows = values(text).decode([b"\x08\x01", None, b""]).to_pylist()
    assert rows == [{"a": 1, "b": []}, {"a": None, "b": None}, {"a": 0, "b": []}]
    assert values(text).decode([None]).to_pylist() == [{"a": None, "b": None}]
    assert values(text).decode([]).num_rows == 0


def test_more_messages_than_are_parsed_at_once() -> None:
    text = 'syntax = "proto3"; message M { int32 a = 1; optional string b = 2; }'
    kind = message_class(compiled(text))
    rows = [{"a": number, "b": str(number) if number % 3 else None} for number in range(1_300)]
    read = values(text).decode([kind(**row).SerializeToString() for row in rows])
    assert read.to_pylist() == rows
    read.validate(full=True)


def test_a_well_known_type_can_be_the_message_of_a_topic() -> None:
    """Confluent's own reader can't read it."""
    text = 'syntax = "proto3"; import "google/protobuf/wrappers.proto"; message M { google.protobuf.Int64Value v = 1; }'
    files = compiled(text)
    decoder = ProtobufValues(files, "google.protobuf.Int64Value", None)
    assert decoder.decode([b"\x08\x05", b""]).to_pylist() == [{"value": 5}, {"value": 0}]


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("message M { M next = 1; }", "field 'M.next': the message M contains itself"),
        ("message M { repeated N a = 1; } message N { map<string, M> b = 1; }", "the message M contains itself"),
        ("message M { }", "the message M has no fields"),
    ],
)
def test_messages_that_make_no_columns_are_refused(body: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        _ = values(f'syntax = "proto3"; {body}').schema


def test_a_message_of_too_many_fields_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("volley.formats.protobuf_columns.MOST_PARTS", 5)
    text = 'syntax = "proto3"; message M { N a = 1; N b = 2; } message N { int32 a = 1; int32 b = 2; int32 c = 3; }'
    with pytest.raises(ConfigError, match="has more than 5 fields"):
        _ = values(text).schema


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ("", "it has no file"),
        (b"\xff", "it is no descriptor"),
        ("syntax", "does not compile: volley_schema.proto:1"),
        ('syntax = "proto3"; import "other.proto"; message M { int32 a = 1; }', "does not compile: .*other.proto"),
        (
            FileDescriptorSet(file=[{"name": "a.proto", "dependency": ["b.proto"]}]).SerializeToString(),
            "it imports 'b.proto', which is not there",
        ),
        (
            FileDescriptorSet(
                file=[
                    {"name": "a.proto", "dependency": ["b.proto"]},
                    {"name": "b.proto", "dependency": ["a.proto"]},
                ]
            ).SerializeToString(),
            "in a circle",
        ),
    ],
)
def test_what_is_no_schema_is_refused(schema: str | bytes, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        files_of(schema)


def test_a_message_that_is_not_there() -> None:
    with pytest.raises(ConfigError, match="no message 'Other'") as raised:
        message_named(compiled(PROTO3), "Other")
    assert raised.value.hint == "it has a.M, a.Sub"


def test_a_schema_as_path_bytes_or_text(tmp_path: Path) -> None:
    text = 'syntax = "proto3"; package shop; message Order { int64 id = 1; } message Other { bool b = 1; }'
    files = compiled(text)
    (tmp_path / "shop.desc").write_bytes(files)
    (tmp_path / "shop.proto").write_text(text)
    encoded_set = base64.b64encode(files).decode()
    for schema in (files, text, encoded_set, tmp_path / "shop.desc", str(tmp_path / "shop.proto")):
        source = KafkaSource("b:1", "t", value_format="protobuf", schema=schema)
        assert source.preview(SourceContext("")) == pa.schema({"id": pa.int64()})
    other = KafkaSource("b:1", "t", value_format="protobuf", schema=files, message="Other", include=["key"])
    assert other.preview(SourceContext("")) == pa.schema({"b": pa.bool_(), "kafka_key": pa.binary()})
    with pytest.raises(ConfigError, match=r"'none\.desc' can't be read"):
        KafkaSource("b:1", "t", value_format="protobuf", schema="none.desc")


@dataclass(frozen=True)
class Schemas:
    """A registry of these schemas, by id, and by GUID 16 bytes of the id."""

    texts: tuple[str, ...]
    kind: str = "PROTOBUF"
    asked: list[bytes] = field(default_factory=list, hash=False)

    def registered(self, head: bytes, kind: str) -> Registered:
        self.asked.append(head)
        number = head[-1]
        if number >= len(self.texts):
            raise SourceError(f"the schema registry has no schema {number}")
        return Registered(kind, self.texts[number])


NESTED = """
syntax = "proto3";
message M0 { int32 a = 1; } message M1 { int32 a = 1; }
message M2 { map<string, int32> m = 3; message X { int32 a = 1; } message Inner { message Deep { int32 a = 1; } } }
"""


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("0000000000000805", "M0"),
        ("0000000000" + "0200" + "0805", "M0"),
        ("000000000002020805", "M1"),
        # A map's entries are a message within the one before which they stand.
        ("0000000000060404000805", "M2.Inner.Deep"),
        ("01" + "00" * 16 + "000805", "M0"),
        ("01" + "00" * 16 + "02020805", "M1"),
        # The schema as a descriptor.
        ("000000000102020805", "M1"),
    ],
)
def test_the_message_of_the_index_is_read(data: str, message: str) -> None:
    decoder = values(NESTED, message, Schemas((NESTED, encoded(compiled(NESTED)))))
    assert decoder.decode([bytes.fromhex(data)] * 2).to_pylist() == [{"a": 5}] * 2


def test_groups_count_among_the_messages_of_a_file() -> None:
    inside = "optional group G = 1 { optional int32 x = 1; } message In { optional int32 a = 1; }"
    text = f'syntax = "proto2"; message M {{ {inside} }}'
    for message, index, name in (("M.G", "00", "x"), ("M.In", "02", "a")):
        decoder = values(text, message, Schemas((text,)))
        assert decoder.decode([bytes.fromhex(f"00000000000400{index}0805")]).to_pylist() == [{name: 5}]


def test_an_empty_message_in_its_frame() -> None:
    decoder = values(NESTED, "M0", Schemas((NESTED,)))
    assert decoder.decode([bytes(6), None]).to_pylist() == [{"a": 0}, {"a": None}]


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ("0805", "not in Confluent's format: it does not begin with 0 and a schema's id"),
        ("", "not in Confluent's format"),
        ("0100", "not in Confluent's format"),
        ("0000000000", "its message indexes are cut"),
        ("00000000000280", "its message indexes are cut"),
        ("0000000000ffffff7f", "it has -"),
        ("00000000000206", r"its schema has no message at \[3\]"),
        ("00000000000202", "schema 0: it is a message M1, and M0 is read"),
        ("000000000900", "has no schema 9"),
        ("000000000100", "schema 1: it does not compile"),
    ],
)
def test_what_is_framed_otherwise_is_a_bad_row(data: str, says: str) -> None:
    decoder = values(NESTED, "M0", Schemas((NESTED, "no schema")))
    good = bytes.fromhex("0000000000000805")
    with pytest.raises(SourceError, match=says):
        decoder.decode([bytes.fromhex(data)])
    read = decoder.sort([good, bytes.fromhex(data), good])
    assert (read.batch.to_pylist(), read.numbers) == ([{"a": 5}] * 2, [0, 2])
    (fault,) = read.faults.values()
    assert fault


CHANGES = [
    # Added, left out, renamed: by their numbers.
    ("int32 a = 1;", "int32 a = 1; string b = 2;", "0805", {"a": 5, "b": ""}),
    ("int32 a = 1; int32 b = 2;", "int32 a = 1;", "08051001", {"a": 5}),
    ("int32 a = 1;", "int32 renamed = 1;", "0805", {"renamed": 5}),
    # Wider, or of the same bytes and room for them.
    ("int32 a = 1;", "int64 a = 1;", "08ffffffffffffffffff01", {"a": -1}),
    ("uint32 a = 1;", "int64 a = 1;", "08ffffffff0f", {"a": 2**32 - 1}),
    ("bool a = 1;", "int32 a = 1;", "0801", {"a": 1}),
    ("string a = 1;", "bytes a = 1;", "0a0161", {"a": b"a"}),
    ("int32 a = 1;", "repeated int32 a = 1;", "0805", {"a": [5]}),
    # Others would be read as another value, or not at all.
    ("int64 a = 1;", "int32 a = 1;", "0805", "written as int64, which can't be read as int32"),
    ("uint64 a = 1;", "int64 a = 1;", "0805", "written as uint64, which can't be read as int64"),
    ("int32 a = 1;", "sint32 a = 1;", "0805", "written as int32, which can't be read as sint32"),
    ("string a = 1;", "int32 a = 1;", "0805", "written as string, which can't be read as int32"),
    ("fixed32 a = 1;", "float a = 1;", "0d00000000", "written as fixed32, which can't be read as float"),
    ("repeated int32 a = 1;", "int32 a = 1;", "0805", "written as repeated, which can't be read as one value"),
    ("N n = 1;", "O n = 1;", "0a020801", r"field 'a' \(1 of O\) was written as int32, which can't be read as string"),
]


@pytest.mark.parametrize(("writer", "reader", "data", "result"), CHANGES)
def test_a_schema_that_has_changed(writer: str, reader: str, data: str, result: Any) -> None:
    text = 'syntax = "proto3"; message M {{ {} }} message N {{ int32 a = 1; }} message O {{ string a = 1; }}'
    decoder = values(text.format(reader), None, Schemas((encoded(compiled(text.format(writer))),)))
    framed = bytes(6) + bytes.fromhex(data)
    if isinstance(result, str):
        with pytest.raises(SourceError, match=result):
            decoder.decode([framed])
    else:
        assert decoder.decode([framed]).to_pylist() == [result]


WIDE = 'syntax = "proto3"; message M { repeated N n = 1; string s = 2; repeated int32 r = 3; } message N { '
WIDE += " ".join(f"int64 f{number} = {number};" for number in range(1, 9)) + " }"


def test_messages_that_take_too_much_memory_are_read_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = message_class(compiled(WIDE))
    monkeypatch.setattr(protobuf_bounds, "LARGEST_VALUE", 2_000)
    monkeypatch.setattr("volley.formats.protobuf.LARGEST_VALUE", 2_000)
    few, many = kind(n=[{"f1": 1}] * 5).SerializeToString(), kind(n=[{}] * 100).SerializeToString()
    decoder = values(WIDE)
    assert len(decoder.decode([few]).to_pylist()[0]["n"]) == 5
    with pytest.raises(TooManyError):
        decoder.decode([few] * 10)
    with pytest.raises(SourceError, match=r"takes more than .* in memory"):
        decoder.decode([many])
    # A long text takes no more than its bytes.
    assert decoder.decode([kind(s="x" * 1_000).SerializeToString()]).num_rows == 1
    read = decoder.sort([few, many])
    assert (list(read.numbers), list(read.faults)) == ([0], [1])


def test_names_of_enums_count_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    text = f'syntax = "proto3"; enum E {{ {"A" * 200} = 0; }} message M {{ repeated E e = 1; E one = 2; }}'
    kind = message_class(compiled(text))
    monkeypatch.setattr(protobuf_bounds, "LARGEST_VALUE", 2_000)
    monkeypatch.setattr("volley.formats.protobuf.LARGEST_VALUE", 2_000)
    decoder = values(text)
    assert decoder.decode([kind(e=[0] * 5).SerializeToString()]).num_rows == 1
    with pytest.raises(SourceError, match=r"takes more than .* in memory"):
        decoder.decode([kind(e=[0] * 50).SerializeToString()])
    with pytest.raises(TooManyError):
        decoder.decode([b""] * 10)


def test_flat_messages_are_read_together(monkeypatch: pytest.MonkeyPatch) -> None:
    text = 'syntax = "proto3"; message M { int64 id = 1; string s = 2; }'
    monkeypatch.setattr("volley.formats.protobuf.LARGEST_VALUE", 10_000)
    sent = [message_class(compiled(text))(id=id, s="x" * 60).SerializeToString() for id in range(80)]
    # By their bytes they could be numbers of 16 bytes each, but no field repeats.
    assert values(text).decode(sent).num_rows == 80


def test_bad_messages_among_good_ones() -> None:
    text = (
        'syntax = "proto3"; import "google/protobuf/timestamp.proto"; message M { google.protobuf.Timestamp at = 1; }'
    )
    kind = message_class(compiled(text))
    good, bad = kind(at={"seconds": 1}).SerializeToString(), kind(at={"nanos": -1}).SerializeToString()
    read = values(text).sort([good, bad, None, b"\x08", good])
    assert list(read.numbers) == [0, 2, 4]
    assert list(read.faults) == [1, 3]
    assert "field 'at' has -1 nanos" in read.faults[1]
