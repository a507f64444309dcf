"""Variants: each type by the bytes of Parquet's specification, texts of JSON there and back, damaged ones refused."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, date, datetime, time
from decimal import Decimal
from random import Random
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest

from volley import SourceError
from volley.columns.exact import array_of
from volley.formats.variant import Malformed, json_text, names_in
from volley.formats.variant_columns import STORED, texts_of, variants_of, whole

EMPTY = b"\x01\x00\x00"


def primitive(kind: int, data: bytes = b"") -> bytes:
    return bytes([kind << 2]) + data


def little(number: int, size: int) -> bytes:
    return number.to_bytes(size, "little", signed=True)


EACH_TYPE: dict[str, tuple[bytes, str]] = {
    "null": (primitive(0), "null"),
    "true": (primitive(1), "true"),
    "false": (primitive(2), "false"),
    "int8": (primitive(3, little(-128, 1)), "-128"),
    "int16": (primitive(4, little(-1234, 2)), "-1234"),
    "int32": (primitive(5, little(100_000, 4)), "100000"),
    "int64": (primitive(6, little(-(1 << 63), 8)), "-9223372036854775808"),
    "double": (primitive(7, struct.pack("<d", 14.3)), "14.3"),
    "double nan": (primitive(7, struct.pack("<d", float("nan"))), '"NaN"'),
    "double infinite": (primitive(7, struct.pack("<d", float("-inf"))), '"-Infinity"'),
    "decimal4": (primitive(8, b"\x02" + little(-5, 4)), "-0.05"),
    "decimal8": (primitive(9, b"\x00" + little(10**17, 8)), "100000000000000000"),
    "decimal16": (primitive(10, b"\x05" + little(10**37 + 1, 16)), f"1{'0' * 32}.00001"),
    "date": (primitive(11, little(-1, 4)), '"1969-12-31"'),
    "date beyond datetime": (primitive(11, little(4_000_000, 4)), '"12921-08-18"'),
    "timestamp": (primitive(12, little(1_500_000, 8)), '"1970-01-01 00:00:01.5+00:00"'),
    "timestamp_ntz": (primitive(13, little(-1, 8)), '"1969-12-31 23:59:59.999999"'),
    "float": (primitive(14, struct.pack("<f", 0.1)), "0.1"),
    "binary": (primitive(15, little(2, 4) + b"\x00\xff"), '"AP8="'),
    "string": (primitive(16, little(3, 4) + "é\n".encode()), '"é\\n"'),
    "time": (primitive(17, little(86_399_999_999, 8)), '"23:59:59.999999"'),
    "timestamp_ns": (primitive(18, little(123_456_789, 8)), '"1970-01-01 00:00:00.123456789+00:00"'),
    "timestamp_ntz_ns": (primitive(19, little(1_000_000_000, 8)), '"1970-01-01 00:00:01"'),
    "uuid": (primitive(20, UUID(int=7).bytes), '"00000000-0000-0000-0000-000000000007"'),
    "short string": (b"\x0dabc", '"abc"'),
    "array": (b"\x03\x02\x00\x01\x03" + primitive(0) + primitive(3, b"\x01"), "[null,1]"),
    "large array": (b"\x13\x01\x00\x00\x00\x00\x01" + primitive(1), "[true]"),
    "empty array": (b"\x03\x00\x00", "[]"),
    "empty object": (b"\x02\x00\x00", "{}"),
}


@pytest.mark.parametrize(("value", "text"), EACH_TYPE.values(), ids=EACH_TYPE)
def test_each_type_is_read(value: bytes, text: str) -> None:
    assert json_text(EMPTY, value) == text
    json.loads(text)


def test_values_of_an_object_may_stand_in_another_order_than_its_fields() -> None:
    metadata = b"\x01\x02\x00\x01\x02ba"
    value = b"\x02\x02\x01\x00\x02\x00\x04" + primitive(3, b"\x05") + primitive(3, b"\x06")
    assert names_in(metadata) == ("b", "a")
    assert json_text(metadata, value) == '{"a":6,"b":5}'


DAMAGED: dict[str, tuple[bytes, bytes]] = {
    "nothing": (EMPTY, b""),
    "unknown type": (EMPTY, primitive(21)),
    "unknown version": (b"\x02\x00\x00", b"\x00"),
    "short": (EMPTY, primitive(6, b"\x00")),
    "no name": (EMPTY, b"\x02\x01\x00\x00\x01\x00"),
    "no text": (EMPTY, b"\x05\xff"),
    "no number of names": (b"\x01", b"\x00"),
    "many items": (EMPTY, b"\x13\xff\xff\xff\xff"),
    "nested too deeply": (EMPTY, b"".join(b"\x0f\x01\x00\x00\x00" + little(8 * n + 1, 3) for n in range(9000, -1, -1))),
}


@pytest.mark.parametrize(("metadata", "value"), DAMAGED.values(), ids=DAMAGED)
def test_what_is_damaged_is_refused(metadata: bytes, value: bytes) -> None:
    with pytest.raises(Malformed):
        json_text(metadata, value)


def test_values_that_share_bytes_are_refused() -> None:
    """Thirty such arrays in each other would have a billion items."""
    value = primitive(1)
    for _ in range(30):
        value = b"\x03\x02\x00\x00" + bytes([len(value)]) + value if len(value) < 256 else value
    with pytest.raises(Malformed, match="overlap"):
        json_text(EMPTY, value)


def any_json(rng: Random, depth: int = 0) -> Any:
    plain = [
        None,
        True,
        rng.randrange(-(1 << 64), 1 << 64) >> rng.randrange(64),
        rng.uniform(-1, 1) * 10.0**30,
        "x" * 70,
    ]
    texts = [*plain, "", 'é🚋"\n', rng.randrange(300)]
    kind = rng.randrange(8) if depth < 4 else 7
    if kind == 0:
        return [any_json(rng, depth + 1) for _ in range(rng.choice([0, 1, 3, 300 if depth == 0 else 2]))]
    if kind == 1:
        return {
            f"{'n' * rng.randrange(90)}{number}": any_json(rng, depth + 1) for number in range(rng.choice([0, 1, 5]))
        }
    return rng.choice(texts)


def test_random_texts_of_json_come_back() -> None:
    rng = Random(7)
    values = [any_json(rng) for _ in range(300)] + [{f"n{number}": number for number in range(700)}]
    column = variants_of(pa.array([json.dumps(value) for value in values]), "v")
    assert column.type.equals(STORED)
    assert [json.loads(text) for text in texts_of(column).to_pylist()] == values
    # Cut or changed anywhere, a variant is another one or refused, and nothing else happens.
    for row in column.to_pylist()[:60]:
        for _ in range(20):
            data = bytearray(row["value"])
            data[rng.randrange(len(data))] = rng.randrange(256)
            for damaged in (bytes(data), row["value"][: rng.randrange(len(data))]):
                with suppress(Malformed):
                    json.loads(json_text(row["metadata"], damaged))


NUMBERS = ["1.50", "-0.00", "-0.0", "12345678901234567890123", "1e3", "0.1", f"0.{'1' * 38}", f"{'9' * 39}", "-5"]


def test_numbers_keep_their_value() -> None:
    read = texts_of(variants_of(pa.array(NUMBERS), "v")).to_pylist()
    assert read == ["1.50", "-0.0", "-0.0", "12345678901234567890123", "1000.0", "0.1", f"0.{'1' * 38}", "1e+39", "-5"]


@pytest.mark.parametrize("text", ["{", '{"a": 1, "a": 2}', "NaN", "1e999", "plain", "", "[" * 100_000])
def test_what_is_no_json_is_refused_by_column(text: str) -> None:
    with pytest.raises(SourceError, match=r"column 'v': .* is no JSON for a variant"):
        variants_of(pa.array(["1", text]), "v")


def test_values_of_arrow_keep_their_types() -> None:
    instant = datetime(2024, 2, 29, 1, 2, 3, 4, UTC)
    row = {
        **{"i": 5, "r": 0.5, "t": "x", "b": b"\x01", "n": None, "d": Decimal("-1.05"), "day": date(2024, 2, 29)},
        **{"at": instant, "local": instant.replace(tzinfo=None), "time": time(1, 2, 3), "yes": True},
        **{"list": [1, None, 3], "map": [("k", [1.5])], "inner": {"x": 1}},
    }
    of_map, inner = pa.map_(pa.string(), pa.list_(pa.float32())), pa.struct({"x": pa.int8()})
    types: Sequence[tuple[str, pa.DataType]] = [
        *(("i", pa.int64()), ("r", pa.float64()), ("t", pa.string()), ("b", pa.binary()), ("n", pa.int32())),
        *(("d", pa.decimal128(9, 2)), ("day", pa.date32()), ("at", pa.timestamp("us", "UTC"))),
        *(
            ("local", pa.timestamp("us")),
            ("time", pa.time64("us")),
            ("yes", pa.bool_()),
            ("list", pa.list_(pa.int32())),
        ),
        *(("map", of_map), ("inner", inner)),
    ]
    column = pa.array([None, row, {**row, "list": None}], pa.struct(types)).slice(1)
    first, second = (json.loads(text) for text in texts_of(variants_of(column, "v")).to_pylist())
    assert first == {
        **{"i": 5, "r": 0.5, "t": "x", "b": "AQ==", "n": None, "d": -1.05, "day": "2024-02-29", "yes": True},
        **{"at": "2024-02-29 01:02:03.000004+00:00", "local": "2024-02-29 01:02:03.000004", "time": "01:02:03"},
        **{"list": [1, None, 3], "map": {"k": [1.5]}, "inner": {"x": 1}},
    }
    assert second == {**first, "list": None}


def test_a_map_with_a_key_twice_is_refused() -> None:
    column = pa.array([[("k", 1), ("k", 2)]], pa.map_(pa.string(), pa.int32()))
    with pytest.raises(SourceError, match="column 'v': a map has a key twice"):
        variants_of(column, "v")


def shredded(rows: list[dict[str, Any] | None], data_type: pa.DataType) -> pa.StructArray:
    """Variants, of which some have their value, or fields of it, in a column of a type."""
    fields = [pa.field("metadata", pa.binary(), False), ("value", pa.binary()), ("typed_value", data_type)]
    return array_of(rows, pa.struct(fields))


def test_shredded_values_are_put_together() -> None:
    metadata = b"\x01\x03\x00\x01\x02\x03abc"
    pair = pa.struct([("value", pa.binary()), ("typed_value", pa.int8())])
    lists = pa.struct([("value", pa.binary()), ("typed_value", pa.list_(pair))])
    objects = pa.struct([("a", pair), ("b", lists)])
    nothing, one = {"value": None, "typed_value": None}, {"value": None, "typed_value": 1}
    some = {"value": None, "typed_value": [one, nothing, {"value": b"\x05x", "typed_value": None}]}
    beside = b"\x02\x01\x02\x00\x01" + primitive(1)
    column = shredded(
        [
            {"metadata": metadata, "value": None, "typed_value": {"a": one, "b": some}},
            {"metadata": metadata, "value": beside, "typed_value": {"a": nothing, "b": {**nothing, "value": b"\x04"}}},
            {"metadata": metadata, "value": b"\x05x", "typed_value": None},
            {"metadata": metadata, "value": None, "typed_value": None},
            None,
        ],
        objects,
    )
    texts = ['{"a":1,"b":[1,null,"x"]}', '{"b":true,"c":true}', '"x"', "null", None]
    assert texts_of(column).to_pylist() == texts
    assert whole(column).type.equals(STORED)
    assert texts_of(whole(column)).to_pylist() == texts
    assert texts_of(column.slice(1, 2)).to_pylist() == texts[1:3]


def test_a_shredded_value_without_its_name_is_refused() -> None:
    pair = pa.struct([("value", pa.binary()), ("typed_value", pa.int8())])
    row = {"metadata": EMPTY, "value": None, "typed_value": {"a": {"value": None, "typed_value": 1}}}
    with pytest.raises(Malformed, match="lack the name 'a'"):
        texts_of(shredded([row], pa.struct([("a", pair)])))


def test_shredded_values_of_each_type() -> None:
    instant = datetime(2024, 2, 29, tzinfo=UTC)
    values: list[tuple[pa.DataType, Any, str]] = [
        (pa.bool_(), True, "true"),
        (pa.int64(), 1 << 40, str(1 << 40)),
        (pa.float32(), 0.5, "0.5"),
        (pa.decimal128(38, 1), Decimal("0.1"), "0.1"),
        (pa.date32(), instant.date(), '"2024-02-29"'),
        (pa.timestamp("us", "UTC"), instant, '"2024-02-29 00:00:00+00:00"'),
        (pa.timestamp("ns"), instant.replace(tzinfo=None), '"2024-02-29 00:00:00"'),
        (pa.time64("us"), time(1), '"01:00:00"'),
        (pa.binary(), b"x", '"eA=="'),
        (pa.string(), "x", '"x"'),
        (pa.uuid(), UUID(int=1), '"00000000-0000-0000-0000-000000000001"'),
    ]
    for data_type, value, text in values:
        column = shredded([{"metadata": EMPTY, "value": None, "typed_value": value}], data_type)
        assert texts_of(column).to_pylist() == [text]
