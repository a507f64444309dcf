"""Variants put into columns of types and together again, byte by byte; some are shredded by DuckDB before."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.duck import query
from tests.unit.test_variants import EACH_TYPE, EMPTY
from volley.formats.variant_columns import STORED, texts_of, variants_of, whole
from volley.formats.variant_inference import inferred
from volley.formats.variant_shredding import is_shredded, leaves_of, shredded, with_values
from volley.formats.variant_writer import array_of_values, metadata_of, object_of_values

BYTES = pa.binary()
TYPES = {
    **{"int8": pa.int8(), "int16": pa.int16(), "int32": pa.int32(), "int64": pa.int64(), "true": pa.bool_()},
    **{"false": pa.bool_(), "double": pa.float64(), "double infinite": pa.float64(), "float": pa.float32()},
    **{"decimal4": pa.decimal128(9, 2), "decimal8": pa.decimal128(18, 0), "decimal16": pa.decimal128(38, 5)},
    **{"date": pa.date32(), "timestamp": pa.timestamp("us", "UTC"), "timestamp_ntz": pa.timestamp("us")},
    **{"timestamp_ns": pa.timestamp("ns", "UTC"), "timestamp_ntz_ns": pa.timestamp("ns"), "time": pa.time64("us")},
    **{"binary": BYTES, "uuid": pa.uuid(), "short string": pa.string()},
}
JSON = [
    '{"a": -1, "b": "x", "l": [-1, "q", null, []]}',
    '{"a": -300, "b": 5, "o": {"p": 1.5, "q": {"r": true}}, "rest": {"deep": [1]}}',
    '{"a": null, "b": "", "o": {}, "l": []}',
    '{"o": [1], "l": {"a": 1}, "z": 0}',
    '{"o": {"p": "x", "s": 1}, "l": [[-1], 2]}',
    "{}",
    "[-1, 2]",
    '"text"',
    "-12345678901",
    None,
]
SHREDDINGS = [
    "STRUCT(a BIGINT, b VARCHAR)",
    "STRUCT(a BIGINT, l BIGINT[], o STRUCT(p DECIMAL(2, 1), q STRUCT(r BOOLEAN)))",
    "STRUCT(l VARCHAR[])",
    "BIGINT",
    "BIGINT[]",
    "STRUCT(l BIGINT[][])",
]


def pair(data_type: pa.DataType) -> pa.StructType:
    return pa.struct([("value", BYTES), ("typed_value", data_type)])


def of_type(data_type: pa.DataType) -> pa.StructType:
    return pa.struct([pa.field("metadata", BYTES, False), *pair(data_type)])


def of_values(*values: bytes | None, metadata: bytes = EMPTY) -> pa.StructArray:
    rows = [None if value is None else {"metadata": metadata, "value": value} for value in values]
    return pa.array(rows, STORED)


@pytest.mark.parametrize("name", TYPES)
def test_a_value_is_in_the_column_of_its_type_alone_and_has_it_afterwards(name: str) -> None:
    values, data_type = [value for value, _ in EACH_TYPE.values()], TYPES[name]
    column = shredded(of_values(*values, None), of_type(data_type))
    assert column.type == of_type(data_type)
    typed = {shown for shown, row in zip(EACH_TYPE, column, strict=False) if row["typed_value"].is_valid}
    assert name in typed
    assert {TYPES.get(shown.split(" beyond")[0], pa.string()) for shown in typed - {"double nan"}} == {data_type}
    together = whole(column).to_pylist()
    assert together[-1] is None
    for value, row in zip(values, together, strict=False):
        # A text is a short one again, if it is short.
        is_long = name == "short string" and value[0] == 16 << 2
        assert row["value"] == (bytes([len(value) - 5 << 2 | 1]) + value[5:] if is_long else value)


def test_decimals_of_more_digits_or_another_scale_stay_values() -> None:
    values = [
        bytes([8 << 2, scale]) + number.to_bytes(4, "little", signed=True)
        for scale, number in ((2, 9999), (1, 1), (2, -10000))
    ]
    column = shredded(of_values(*values), of_type(pa.decimal128(4, 2)))
    assert column.field("typed_value").to_pylist() == [Decimal("99.99"), None, None]
    assert whole(column).to_pylist() == of_values(*values).to_pylist()


@pytest.mark.parametrize("data_type", [pa.float16(), pa.timestamp("ms"), pa.large_string(), pa.uint8()])
def test_no_value_has_the_type_of_a_column_that_variants_lack(data_type: pa.DataType) -> None:
    values = of_values(*(value for value, _ in EACH_TYPE.values()))
    column = shredded(values, of_type(data_type))
    assert column.field("typed_value").null_count == len(values)
    assert whole(column).equals(values)


@pytest.mark.parametrize(
    "value", [b"", b"\x02\x05", b"\x03\xff", b"\x0c", b"\x41\x00", b"\x40\xff\xff\xff\xff", b"\x05\xff", b"\xfc"]
)
def test_a_damaged_value_stays_as_it_is(value: bytes) -> None:
    for data_type in (pa.string(), pa.int8(), pa.list_(pair(pa.int8())), pa.struct([("a", pair(pa.int8()))])):
        assert shredded(of_values(value), of_type(data_type)).field("value").to_pylist() == [value]


def shredded_by_duckdb(shredding: str, path: Path) -> pa.StructArray:
    rows = pa.table({"text": pa.array(JSON)})
    options = f"format parquet, shredding {{v: '{shredding}'}}"
    query(f"copy (select text::json::variant v from rows) to '{path}' ({options})", rows=rows)
    return pq.read_table(path)["v"].combine_chunks()


@pytest.mark.parametrize("shredding", SHREDDINGS)
def test_what_duckdb_has_shredded_is_the_same_when_it_is_shredded_again(shredding: str, tmp_path: Path) -> None:
    theirs = shredded_by_duckdb(shredding, tmp_path / "v")
    assert is_shredded(theirs.type)
    values = whole(theirs)
    # DuckDB has one null alone.
    assert [parsed(text) for text in texts_of(values).to_pylist()] == [parsed(text or "null") for text in JSON]
    ours = shredded(values, theirs.type)
    assert ours.field("typed_value").null_count < len(ours)
    assert whole(ours).equals(values)
    assert whole(ours.slice(2)).equals(values.slice(2))


def parsed(text: str | None) -> Any:
    return None if text is None else (json.loads(text),)


def random_value(random: Random, names: list[str], depth: int = 0) -> bytes:
    kind = random.randrange(6 if depth < 3 else 4)
    if kind == 5:
        chosen = random.sample(names, random.randrange(len(names)))
        ids = {name: number for number, name in enumerate(names)}
        return object_of_values({name: random_value(random, names, depth + 1) for name in chosen}, ids)
    if kind == 4:
        return array_of_values([random_value(random, names, depth + 1) for _ in range(random.randrange(4))])
    return random.choice([value for name, (value, _) in EACH_TYPE.items() if name in TYPES])


def random_type(random: Random, names: list[str], depth: int = 0) -> pa.DataType:
    kind = random.randrange(5 if depth < 3 else 1)
    if kind in (3, 4):
        chosen = random.sample(names, random.randrange(1, len(names)))
        return pa.struct([pa.field(name, pair(random_type(random, names, depth + 1)), kind == 3) for name in chosen])
    return pa.list_(pair(random_type(random, names, depth + 1))) if kind == 2 else random.choice([*TYPES.values()])


def test_random_values_are_the_same_after_shredding_as_random_types(tmp_path: Path) -> None:
    for seed in range(150):
        random, names = Random(seed), ["a", "bb", "c", "é"]
        values = [None if random.random() < 0.1 else random_value(random, names) for _ in range(random.randrange(30))]
        column, data_type = of_values(*values, metadata=metadata_of(names)), of_type(random_type(random, names))
        assert whole(shredded(column, data_type)).equals(column), seed
        pq.write_table(pa.table({"v": shredded(column, data_type)}), tmp_path / "v")
        stored = pq.ParquetFile(tmp_path / "v")
        leaves = [stored.schema.column(number).path for number in range(len(stored.schema))]
        assert leaves == leaves_of(data_type, "v")
        assert whole(stored.read()["v"].combine_chunks()).equals(column), seed


def test_any_variant_fits_a_type_with_columns_for_other_values() -> None:
    narrow = pa.struct(
        [
            pa.field("metadata", BYTES, False),
            (
                "typed_value",
                pa.struct([("a", pa.struct([("typed_value", pa.list_(pa.struct([("typed_value", pa.int8())])))]))]),
            ),
        ]
    )
    assert is_shredded(narrow)
    assert not is_shredded(STORED)
    values = variants_of(pa.array(['{"a": [1, "x"], "b": 2}', '{"a": 3}', "4"]), "v")
    assert whole(shredded(values, with_values(narrow))).equals(values)


def typed_of(*texts: str) -> Any:
    """The type that is inferred for JSON texts: of objects, the types of their fields by name."""

    def shown(kind: pa.DataType) -> Any:
        typed = kind.field("typed_value").type
        if pa.types.is_struct(typed):
            return {field.name: shown(field.type) for field in typed}
        return [shown(typed.value_type)] if pa.types.is_list(typed) else str(typed)

    kind = inferred(variants_of(pa.array(texts), "v"))
    return None if kind is None else shown(kind)


def test_types_are_those_of_most_values() -> None:
    assert typed_of('{"a": 1, "b": "x"}', '{"a": 2, "b": null}', '{"a": "3"}', "[1]") == {"a": "int8", "b": "string"}
    assert typed_of('{"o": {"p": 1.5, "q": true}, "l": [1000, 2000, "x"]}') == {
        "l": ["int16"],
        "o": {"p": "decimal128(9, 1)", "q": "bool"},
    }
    assert typed_of("1", "2", "{}") == "int8"
    for lacking in ("null", "{}", "[]", "[null]", '{"a": null}', '{"a.b": 1}', '{"": 1}', '{"a": 1, "A": 2}'):
        assert typed_of(lacking) is None, lacking
    assert inferred(of_values(None, None)) is None
    assert inferred(of_values()) is None
    rare = [f'{{"a": 1, "k{number}": 1}}' for number in range(20)]
    assert typed_of(*rare) == {"a": "int8"}
    many = "{" + ", ".join(f'"k{number}": 1' for number in range(1_000)) + "}"
    assert len(typed_of(many)) == 300
    assert typed_of('{"a":' * 100 + "1" + "}" * 100) is None


def test_values_of_each_type_have_an_inferred_type_that_they_fit() -> None:
    for name, (value, _) in EACH_TYPE.items():
        kind = inferred(of_values(value))
        if kind is not None:
            assert shredded(of_values(value), kind).field("value").null_count == 1, name
        assert kind is not None or name == "null" or value[0] & 3 >= 2, name


@pytest.mark.parametrize("value", [b"", b"\x02\x05", b"\x03\xff", b"\x20", b"\x20\xff", b"\xfc"])
def test_a_damaged_value_has_no_type_or_stays_as_it_is(value: bytes) -> None:
    kind = inferred(of_values(value))
    assert kind is None or shredded(of_values(value), kind).field("value").to_pylist() == [value]
