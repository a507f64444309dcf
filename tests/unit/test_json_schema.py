"""JSON by a JSON Schema of a registry: types, references and combinations to columns, by values written by hand."""

from __future__ import annotations

import json
import pickle
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pytest

from volley import ConfigError, SourceError
from volley.formats.framed_values import FramedValues
from volley.formats.json_schema_values import JsonSchemaValues, from_text, to_text
from volley.formats.messages import JsonValues
from volley.formats.registered import Registered

FRAME = bytes([0, 0, 0, 0, 7])
GUID = bytes([1]) + bytes(16)


def values(schema: Any, references: dict[str, Any] | None = None, on_unknown: str = "drop") -> FramedValues:
    named = tuple((name, Registered("JSON", json.dumps(text))) for name, text in (references or {}).items())
    schema = from_text(to_text(Registered("JSON", json.dumps(schema), named)))
    decoder: FramedValues = pickle.loads(pickle.dumps(FramedValues(JsonSchemaValues(schema, on_unknown))))
    return decoder


def of(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def column(schema: Any, text: str, references: dict[str, Any] | None = None, **more: Any) -> tuple[pa.DataType, Any]:
    """Return the type of a property, and its value in a message with this text."""
    batch = values({**of(a=schema), **more}, references).decode([FRAME + b'{"a":' + text.encode() + b"}"])
    batch.validate(full=True)
    return batch.schema.field("a").type, batch.column("a")[0].as_py()


TEXT, LONG, DOUBLE, TIME = pa.string(), pa.int64(), pa.float64(), pa.timestamp("us", "UTC")
POINT, NAME = of(x={"type": "integer"}), of(y={"type": "string"})
BOTH = pa.struct({"x": LONG, "y": TEXT})
STRUCT = pa.struct({"x": LONG})
CASES: list[tuple[Any, str, pa.DataType, Any]] = [
    ({"type": "string"}, '"ü"', TEXT, "ü"),
    ({"type": "boolean"}, "true", pa.bool_(), True),
    ({"type": "number"}, "1.5", DOUBLE, 1.5),
    ({"type": "number"}, "5", DOUBLE, 5.0),
    ({"type": "integer"}, "5", LONG, 5),
    # Writers may send whole numbers so; others are kept to the digit.
    ({"type": "integer"}, "5.0", LONG, 5),
    ({"type": "integer"}, "-12e2", LONG, -1200),
    ({"type": "integer"}, "9007199254740993", LONG, 9007199254740993),
    ({"type": "integer"}, "null", LONG, None),
    ({"type": ["string", "null"]}, "null", TEXT, None),
    ({"type": ["null", "integer"]}, "5.0", LONG, 5),
    ({"type": "string", "format": "date-time"}, '"2024-01-01T01:00:00+01:00"', TIME, datetime(2024, 1, 1, tzinfo=UTC)),
    ({"type": "string", "format": "date"}, '"2024-01-01"', pa.date32(), date(2024, 1, 1)),
    ({"type": "string", "format": "time"}, '"10:00:00Z"', TEXT, "10:00:00Z"),
    ({"type": "string", "format": "uuid"}, '"not one"', TEXT, "not one"),
    ({"enum": ["a", "b", None]}, '"b"', TEXT, "b"),
    ({"enum": [1, 2]}, "2.0", LONG, 2),
    ({"const": "a"}, '"a"', TEXT, "a"),
    (POINT, '{"x": 1.0}', STRUCT, {"x": 1}),
    ({"properties": {"x": {"type": "integer"}}}, '{"x": 1}', STRUCT, {"x": 1}),
    ({"type": "array", "items": {"type": "integer"}}, "[1, 2.0, null]", pa.list_(LONG), [1, 2, None]),
    ({"type": "array", "items": POINT}, '[{"x": 1.0}, null]', pa.list_(STRUCT), [{"x": 1}, None]),
    # Maps.
    ({"type": "object", "additionalProperties": {"type": "integer"}}, "{}", pa.map_(TEXT, LONG), []),
    ({"type": "object", "additionalProperties": {"type": "integer"}}, "null", pa.map_(TEXT, LONG), None),
    (
        {"type": "object", "additionalProperties": {"type": "integer"}},
        '{"b": 1.0, "a\\"": null}',
        pa.map_(TEXT, LONG),
        [("b", 1), ('a"', None)],
    ),
    (
        {"type": "object", "additionalProperties": {"type": "object", "additionalProperties": POINT}},
        '{"k": {"l": {"x": 1}}, "n": null}',
        pa.map_(TEXT, pa.map_(TEXT, STRUCT)),
        [("k", [("l", {"x": 1})]), ("n", None)],
    ),
    # Combinations.
    ({"oneOf": [{"type": "null"}, {"type": "string"}]}, "null", TEXT, None),
    ({"anyOf": [{"type": "integer"}, {"type": "number"}]}, "1", DOUBLE, 1.0),
    (
        {"oneOf": [POINT, NAME]},
        '{"y": "a"}',
        BOTH,
        {"x": None, "y": "a"},
    ),
    ({"allOf": [POINT, NAME]}, '{"x": 1}', BOTH, {"x": 1, "y": None}),
    ({"allOf": [POINT, {"required": ["x"]}]}, '{"x": 1}', STRUCT, {"x": 1}),
    # What no column can be is its JSON, as it was written.
    ({}, '{"k": [1.50, "ü"]}', TEXT, '{"k": [1.50, "ü"]}'),
    (True, '"a"', TEXT, '"a"'),
    ({}, "null", TEXT, None),
    ({"type": ["string", "integer"]}, "5", TEXT, "5"),
    ({"oneOf": [{"type": "string"}, POINT]}, '{"x":1}', TEXT, '{"x":1}'),
    ({"type": "object"}, '{"a": 1}', TEXT, '{"a": 1}'),
    ({"type": "array"}, "[1]", TEXT, "[1]"),
    ({"type": "array", "items": [{"type": "string"}]}, '["a", 1]', TEXT, '["a", 1]'),
    ({"enum": ["a", 1]}, "1", TEXT, "1"),
]


@pytest.mark.parametrize(("schema", "text", "data_type", "value"), CASES)
def test_a_property_is_a_column(schema: Any, text: str, data_type: pa.DataType, value: Any) -> None:
    assert column(schema, text) == (data_type, value)


def test_many_rows_with_nulls_and_tombstones() -> None:
    maps = {"type": "object", "additionalProperties": {"type": "array", "items": {"type": "integer"}}}
    decoder = values(of(m=maps, n=of(m=maps), t={}))
    texts = ['{"m":{"a":[1]},"n":{"m":{"b":[2,3],"c":null}},"t":[1]}', '{"m":null,"n":null,"t":null}', "{}", '{"n":{}}']
    batch = decoder.decode([*(FRAME + text.encode() for text in texts), None])
    batch.validate(full=True)
    nothing = {"m": None, "n": None, "t": None}
    assert batch.to_pylist() == [
        {"m": [("a", [1])], "n": {"m": [("b", [2, 3]), ("c", None)]}, "t": "[1]"},
        nothing,
        nothing,
        {**nothing, "n": {"m": None}},
        nothing,
    ]


def test_references_are_found() -> None:
    money = of(amount={"type": "integer"}, unit={"$ref": "#/definitions/unit"})
    money |= {"$id": "https://shop/money.json", "definitions": {"unit": {"enum": ["eur"]}}}
    kind = pa.struct({"amount": LONG, "unit": TEXT})
    value = {"amount": 5, "unit": "eur"}
    text = json.dumps(value)
    references = {"money.json": money}
    assert column({"$ref": "money.json"}, text, references) == (kind, value)
    assert column({"$ref": "money.json#/properties/amount"}, "5", references) == (LONG, 5)
    assert column({"$ref": "https://shop/money.json"}, text, references) == (kind, value)
    assert column({"$ref": "money.json"}, text, references, **{"$id": "https://shop/order.json"}) == (kind, value)
    own = {"a/b": {"type": "integer"}}
    assert column({"$ref": "#/$defs/a~1b"}, "5", **{"$defs": own}) == (LONG, 5)


def test_a_type_that_contains_itself_is_text_from_there_on() -> None:
    node = {"$defs": {"node": of(v={"type": "integer"}, next={"$ref": "#/$defs/node"})}}
    kind, value = column({"$ref": "#/$defs/node"}, '{"v":1,"next":{"v":2}}', **node)
    assert (kind, value) == (pa.struct({"v": LONG, "next": TEXT}), {"v": 1, "next": '{"v":2}'})


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ({"type": "string"}, "not that of an object with properties"),
        (True, "not that of an object with properties"),
        (of(a={"$ref": "other.json"}), "refers to 'other.json', which is not among its references"),
        (of(a={"$ref": "#/definitions/x"}), "refers to '#/definitions/x', which is not there"),
        (of(a={"$ref": "#name"}), "refers to the anchor '#name'"),
        ({"type": "object", "properties": ["a"]}, "not a JSON Schema"),
    ],
)
def test_what_makes_no_columns_is_refused(schema: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        _ = values(schema).schema


def test_a_schema_of_too_many_parts_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("volley.formats.json_schema._MOST_PARTS", 5)
    with pytest.raises(ConfigError, match="more than 5 parts"):
        _ = values(of(**{name: {"type": "string"} for name in "abcdef"})).schema


SIMPLE = of(id={"type": "integer"}, at={"type": "string", "format": "date-time"})


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (b'{"id": 1}', "not in Confluent's format"),
        (b"", "not in Confluent's format"),
        (FRAME, "not JSON"),
        (FRAME + b"[1]", "object"),
        (FRAME + b'{"id": 5.5}', "5.5"),
        (FRAME + b'{"id": 9223372036854775808}', "9223372036854775808"),
        (FRAME + b'{"id": 1e400}', "Number too big"),
        (FRAME + b'{"id": 1, "at": "not a date"}', "not a date"),
    ],
)
def test_what_does_not_fit_is_a_bad_row(value: bytes, says: str) -> None:
    decoder = values(SIMPLE)
    good = FRAME + b'{"id": 5.0}'
    with pytest.raises((SourceError, pa.ArrowInvalid)):
        decoder.decode([good, value])
    read = decoder.sort([good, value, None, GUID + b'{"id":6}'])
    assert list(read.numbers) == [0, 2, 3]
    assert [row["id"] for row in read.batch.to_pylist()] == [5, None, 6]
    (fault,) = read.faults.values()
    assert says in fault


@pytest.mark.parametrize(("text", "value"), [("NaN", "nan"), ("Infinity", "inf"), ("-Infinity", "-inf")])
def test_numbers_that_json_lacks_are_those_of_a_double(text: str, value: str) -> None:
    """Confluent's writer for Python sends them bare."""
    kind, number = column({"type": "number"}, text)
    assert (kind, str(number)) == (DOUBLE, value)
    decoder = values(of(a={"type": "integer"}))
    assert list(decoder.sort([FRAME + b'{"a":%s}' % text.encode(), FRAME + b'{"a":1}']).faults) == [0]


def test_fields_that_the_schema_lacks_are_kept_as_json() -> None:
    decoder = values(of(id={"type": "integer"}, any={}), on_unknown="keep")
    assert decoder.decode([FRAME + b'{"id":1.0,"any":[],"more":1.50}']).to_pylist() == [
        {"id": 1, "any": "[]", "unknown": '{"more": 1.50}'}
    ]


def test_declared_columns_need_no_schema_of_the_registry() -> None:
    decoder = FramedValues(JsonValues(pa.schema({"id": LONG}), "drop"))
    assert decoder.decode([FRAME + b'{"id":1}', GUID + b'{"id":2}']).to_pylist() == [{"id": 1}, {"id": 2}]
