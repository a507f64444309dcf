"""Avro values that are read at once have the same rows, and the same bad ones, as values that are read one by one."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from tests.avro import long, record, text
from tests.properties.test_avro_sizes import Schemas
from tests.tiers import nightly
from volley.errors import ConfigError, SourceError
from volley.formats.avro import AvroValues, Resolution, avro_columns, resolution_of
from volley.formats.avro_defaults import in_nanoseconds
from volley.formats.joined_values import Joined
from volley.formats.messages import TooManyError

_COUNT = 40
_LOGICAL = [
    *(
        ("long", f"{kind}-{unit}")
        for kind in ("timestamp", "local-timestamp")
        for unit in ("millis", "micros", "nanos")
    ),
    *(("int", "date"), ("int", "time-millis"), ("long", "time-micros"), ("string", "uuid")),
]
_NUMBERS = [0, 1, -1, 63, 64, -64, -65, 8191, 8192, 2**31 - 1, -(2**31), 2**31, 2**55, -(2**62), 2**63 - 1, -(2**63)]


class Types(Schemas):
    """Makes types with logical ones among them, and values over their whole range."""

    def type(self, depth: int) -> Any:
        choose = self._choose
        match choose.randrange(8):
            case 0:
                plain, name = choose.choice(_LOGICAL)
                return {"type": plain, "logicalType": name}
            case 1:
                digits = choose.randint(1, 38)
                return {
                    "type": "bytes",
                    "logicalType": "decimal",
                    "precision": digits,
                    "scale": choose.randint(0, digits),
                }
            case 2 if depth < 3:
                others = [self.type(depth + 1), self.record(depth + 1), "null"]
                choose.shuffle(others)
                is_plain = isinstance(others[0], str | dict) and not isinstance(others[0], list)
                return others if is_plain and all(map(_is_single, others)) and _differ(others) else "string"
        return super().type(depth)

    def value(self, schema: Any) -> Any:
        choose = self._choose
        logical = schema.get("logicalType") if isinstance(schema, dict) else None
        if logical == "decimal":
            number = choose.choice([0, 1, -1, 10 ** schema["precision"] - 1]) // choose.choice([1, 10, 10**9])
            return number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)
        if logical in ("time-millis", "time-micros"):
            return choose.choice([0, 1, 86_399_999])
        if logical == "date":
            return choose.choice([0, -1, 2**31 - 1, -(2**31)])
        if logical is not None and logical.endswith("-millis"):
            return choose.choice([0, -1, 9_223_372_036_854_775])
        match schema["type"] if isinstance(schema, dict) else schema:
            case "long":
                return choose.choice(_NUMBERS)
            case "double":
                return choose.choice([0.5, -1e300, float("inf"), 1e-320])
            case "fixed":
                return choose.randbytes(schema["size"])
            case "array":
                return [self.value(schema["items"]) for _ in range(choose.choice([0, 0, 1, 3]))]
            case "string":
                return choose.choice(["", "é" * 9, "text", "x" * 200])
        return super().value(schema)


def _is_single(schema: Any) -> bool:
    return not isinstance(schema, list)


def _differ(schemas: Sequence[Any]) -> bool:
    kinds = [schema if isinstance(schema, str) else schema["type"] for schema in schemas]
    return len({*kinds}) == len(kinds)


def _plain(schema: Any) -> Any:
    """Return a schema without its logical types."""
    if isinstance(schema, list):
        return [*map(_plain, schema)]
    if not isinstance(schema, dict):
        return schema
    inner = {key: _plain(schema[key]) for key in ("items", "values", "type") if key in schema}
    fields = [{**field, "type": _plain(field["type"])} for field in schema.get("fields", ())]
    kept = {key: value for key, value in schema.items() if key not in ("logicalType", "precision", "scale")}
    return {**kept, **inner, **({"fields": fields} if "fields" in schema else {})}


def _written(schema: Any, value: Any) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(_plain(schema)), value)
    return stream.getvalue()


def _decoded(values: AvroValues, data: Sequence[bytes]) -> pa.RecordBatch | None:
    """Return values as rows; None if one is bad."""
    try:
        return values.decode(data)
    except (SourceError, pa.ArrowInvalid):
        return None


def _alone(values: AvroValues, data: Sequence[bytes]) -> pa.RecordBatch | None:
    """Return values as rows, each read by itself; None if one is bad."""
    batches = [_decoded(values, [value]) for value in data]
    return None if None in batches else pa.concat_batches(batches)


def _assert_same(values: AvroValues, data: Sequence[bytes]) -> None:
    batch, expected = _decoded(values, data), _alone(values, data)
    assert (batch is None) == (expected is None), values.text
    if batch is not None and expected is not None:
        batch.validate(full=True)
        for column, alone in zip(batch, expected, strict=True):
            # NaN is not equal to itself.
            assert column.equals(alone) or repr(column.to_pylist()) == repr(alone.to_pylist()), values.text


def _cases(seed: int, count: int) -> Iterator[tuple[Random, Types, dict[str, Any], list[bytes]]]:
    """Yield schemas that have columns, with values."""
    for case in range(count):
        choose = Random(f"{seed} {case}")
        types = Types(choose)
        schema = types.record()
        try:
            avro_columns(json.dumps(schema))
        except ConfigError:
            continue
        yield choose, types, schema, [_written(schema, types.value(schema)) for _ in range(_COUNT)]


_SEEDS = [0, *map(nightly, range(1, 20))]


def _at_once(resolution: Resolution, data: list[bytes], schema: pa.Schema) -> list[pa.Array] | None:
    joined = Joined.of(data)
    return resolution.columns(joined, joined.rows, 0, schema)


@pytest.mark.parametrize("seed", _SEEDS)
def test_values_have_the_rows_that_each_has_by_itself(seed: int) -> None:
    at_once = 0
    cases = [*_cases(seed, 25)]
    for _, _, schema, data in cases:
        values = AvroValues(json.dumps(schema), None)
        _assert_same(values, data)
        at_once += _at_once(resolution_of(values.text, values.text), data, values.schema) is not None
    # Lists of nulls, and types of no bytes, are read one by one: one schema in ten has them.
    assert at_once > len(cases) * 0.8


@pytest.mark.parametrize("seed", _SEEDS)
def test_values_of_an_earlier_schema_have_the_rows_that_each_has_by_itself(seed: int) -> None:
    at_once = 0
    cases = [*_cases(seed, 25)]
    for choose, types, schema, data in cases:
        reader = _evolved(choose, types, schema)
        try:
            resolution = resolution_of(json.dumps(schema), json.dumps(reader))
        except SourceError:
            continue
        values = _of_two(json.dumps(schema), json.dumps(reader))
        _assert_same(values, data)
        at_once += _at_once(resolution, data, values.schema) is not None
    assert at_once > len(cases) * 0.8


@pytest.mark.parametrize("seed", _SEEDS)
def test_damaged_values_are_bad_wherever_they_stand(seed: int) -> None:
    for choose, _, schema, data in _cases(seed, 15):
        values = AvroValues(json.dumps(schema), None)
        for _ in range(8):
            place = choose.randrange(len(data))
            damaged = _damaged(choose, data[place])
            _assert_same(values, [*data[:place], damaged, *data[place + 1 :]])


def _damaged(choose: Random, value: bytes) -> bytes:
    at = choose.randint(0, len(value))
    match choose.randrange(4):
        case 0:
            return value[:at]
        case 1:
            return value + choose.randbytes(choose.randint(1, 9))
        case 2:
            return value[:at] + choose.randbytes(1) + value[at + 1 :]
    return value[:at] + choose.choice([b"\x80", b"\xff" * 10, b"\x01", b"\x03", b"\xc3"]) + value[at:]


def _evolved(choose: Random, types: Types, schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema that lacks some fields, has new ones, and others in another order or of a wider type."""
    wider = {"int": ["long", "float", "double"], "long": ["float", "double"], "float": ["double"]}
    wider |= {"string": ["bytes"], "bytes": ["string"]}
    fields = []
    for field in schema["fields"]:
        kind = field["type"]
        if choose.random() < 0.2:
            continue
        if isinstance(kind, str) and kind in wider and choose.random() < 0.5:
            field = {**field, "type": choose.choice(wider[kind])}
        elif not isinstance(kind, list) and kind != "null" and choose.random() < 0.3:
            field = {**field, "type": ["null", kind]}
        fields.append(field)
    added = {"name": "added", "type": ["null", "string"], "default": None}
    counted = {
        "name": "counted",
        "type": {"type": "long", "logicalType": "timestamp-millis"},
        "default": 1_700_000_000_123,
    }
    fields += [added, counted]
    choose.shuffle(fields)
    return {**schema, "fields": fields}


def _of_two(writer: str, reader: str) -> AvroValues:
    registry: Any = _Registry(writer)
    return _Unframed(reader, registry)


@dataclass(frozen=True)
class _Registry:
    text: str

    def avro(self, head: bytes) -> str:
        return self.text


class _Unframed(AvroValues):
    """Values of a registry without anything in front."""

    def _head(self, value: bytes) -> bytes:
        return b""


@pytest.mark.parametrize("written", ["millis", "micros", "nanos"])
def test_instants_keep_nanoseconds_where_they_are_wanted(written: str) -> None:
    def instants(unit: str) -> str:
        return json.dumps(record(("at", {"type": "long", "logicalType": f"timestamp-{unit}"})))

    resolution = resolution_of(instants(written), reader := in_nanoseconds(instants("nanos")))
    values = _of_two(instants(written), reader)
    data = [*map(long, [0, -1, 1_700_000_000_123])] * 10
    assert _at_once(resolution, data, values.schema) is not None
    _assert_same(values, data)
    _assert_same(values, [*data, long(2**62)])


def test_values_of_several_schemas_and_tombstones_stand_in_their_places() -> None:
    first = record(("id", "long"), ("name", "string"))
    second = record(("id", "int"), ("name", "string"), ("more", ["null", "string"], None))
    texts = {1: json.dumps(first), 2: json.dumps(second), 3: json.dumps(first)}

    class Registry:
        def schema(self, number: int) -> str:
            return texts[number]

    registry: Any = Registry()
    values = AvroValues(
        json.dumps({**second, "fields": [{"name": "id", "type": "long"}, *second["fields"][1:]]}), registry
    )
    data: list[bytes | None] = []
    expected: list[dict[str, Any]] = []
    for number in range(500):
        if number % 7 == 3:
            data.append(None)
            expected.append({"id": None, "name": None, "more": None})
            continue
        version = number % 3 + 1
        more = {2: long(1) + text("m")}.get(version, b"")
        data.append(bytes([0, 0, 0, 0, version]) + long(number) + text(f"n{number}") + more)
        expected.append({"id": number, "name": f"n{number}", "more": "m" if more else None})
    assert values.decode(data).to_pylist() == expected


def test_lists_of_blocks_that_tell_their_bytes_are_read() -> None:
    schema = record(("ids", {"type": "array", "items": "long"}))
    items = long(3) + long(4)
    block = long(-2) + long(len(items)) + items
    data = [block + long(1) + long(9) + long(0), long(0)] * 20
    resolution = resolution_of(json.dumps(schema), json.dumps(schema))
    columns = _at_once(resolution, data, avro_columns(json.dumps(schema)))
    assert columns is not None
    assert columns[0].to_pylist() == [[3, 4, 9], []] * 20


_NUMBERS_AND_MORE = record(("ids", {"type": "array", "items": "long"}), ("id", "long"))
_TEXTS_AND_MORE = record(("ids", {"type": "map", "values": "long"}), ("id", "long"))


@pytest.mark.parametrize(
    ("schema", "ids", "expected"),
    [
        (_NUMBERS_AND_MORE, long(-2) + long(2) + long(3) + long(4), 9),
        (_TEXTS_AND_MORE, long(-1) + long(3) + text("k") + long(4), 9),
        # The bytes of a block are passed over, whatever is in them.
        (_NUMBERS_AND_MORE, long(-7) + long(1) + long(3) + long(1) + long(4), 9),
        (_NUMBERS_AND_MORE, long(-2) + long(77) + long(3) + long(4), None),
        (_NUMBERS_AND_MORE, long(-2) + long(-2) + long(3) + long(4), None),
        (_NUMBERS_AND_MORE, long(-1) + long(2**62) + long(3), None),
        (_TEXTS_AND_MORE, long(-1) + long(4) + text("k") + long(4), None),
    ],
    ids=["items", "entries", "fewer bytes", "more bytes", "negative", "huge", "entries of more bytes"],
)
def test_blocks_of_a_field_that_nobody_reads_are_passed_over_by_their_bytes(
    schema: dict[str, Any], ids: bytes, expected: int | None
) -> None:
    values = _of_two(json.dumps(schema), json.dumps(record(("id", "long"))))
    data = [ids + long(0) + long(9)] * 20
    _assert_same(values, data)
    rows = _decoded(values, data)
    assert expected is None or rows is not None
    assert rows is None or rows["id"].to_pylist() == [expected] * 20


def test_a_value_of_very_many_items_is_read_beside_others() -> None:
    schema = record(("ids", {"type": "array", "items": {"type": "array", "items": "int"}}))
    many = long(3_000) + (long(1) + long(5) + long(0)) * 3_000 + long(0)
    values = AvroValues(json.dumps(schema), None)
    assert [len(ids) for ids in values.decode([many, long(0)] * 20)["ids"].to_pylist()] == [3_000, 0] * 20


def test_values_that_take_too_much_together_are_refused() -> None:
    values = AvroValues(json.dumps(record(("text", "string"))), None)
    with pytest.raises(TooManyError, match="70 messages take more than 64 MB in memory"):
        values.decode([text("x" * (1 << 20))] * 70)
