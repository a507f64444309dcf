"""Numbers of JSON: kept digit by digit, and infinities and NaN by every name, in lines, arrays and messages alike."""

from __future__ import annotations

import json
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from volley import FileSource, Reader, SourceContext
from volley.contracts.rows import BadRow
from volley.formats.encoders import json_texts
from volley.formats.messages import JsonValues

NUMBERS = [
    *("1.10", "1.0", "1", "-0", "-0.0", "1E5", "1e-400", "0.12345678901234567890123", "9" * 40, "-1.5E+007"),
]
WAYS = ["lines", "array", "lines over several lines", "message", "a message beside a bad one"]


def reader(path: Path, schema: str | None = "id long", **settings: Any) -> Reader:
    return FileSource(path, format="json", schema=schema, **settings).open(SourceContext(f"{path}-state"))


def items_of(path: Path, **settings: Any) -> list[Any]:
    """Rows, and errors of bad ones."""
    opened = reader(path, **settings)
    start = opened.initial_offset()
    splits = opened.splits(start, opened.latest_offset(start, None, None))
    items = [item for split in splits for item in opened.read_tolerant(split)]
    return [each for item in items for each in ([item.error] if isinstance(item, BadRow) else item.batch.to_pylist())]


def kept(texts: list[str], way: str, folder: Path) -> list[Any]:
    """The kept fields of objects."""
    if "message" in way:
        decoder = JsonValues(pa.schema([pa.field("id", pa.int64())]), "keep")
        values = [text.encode() for text in texts]
        batch = decoder.decode(values) if way == "message" else decoder.sort([b"{", *values]).batch
        return [row["unknown"] for row in batch.to_pylist()]
    path = folder / "a.json"
    between = ",\n".join(texts)
    path.write_text(
        f"[{between}]"
        if way == "array"
        else "\n".join(texts if way == "lines" else (t.replace(",", ",\n") for t in texts))
    )
    return [row["file_unknown"] for row in items_of(path, on_unknown="keep")]


@pytest.mark.parametrize("way", WAYS)
def test_numbers_that_are_kept_have_the_digits_that_were_written(way: str, tmp_path: Path) -> None:
    texts = [f'{{"id": 1, "x": {number}, "y": [{number}, {{"z": {number}}}]}}' for number in NUMBERS]
    rows = [json.loads(str(text), parse_float=str, parse_int=str) for text in kept(texts, way, tmp_path)]
    assert rows == [{"x": number, "y": [number, {"z": number}]} for number in NUMBERS]


@pytest.mark.parametrize("way", WAYS)
def test_a_name_that_a_kept_object_has_twice_is_kept_twice(way: str, tmp_path: Path) -> None:
    texts = ['{"id": 1, "x": {"a": 1, "a": 2}, "x": 3}']
    pairs = json.loads(str(kept(texts, way, tmp_path)[0]), object_pairs_hook=tuple)
    assert pairs == (("x", (("a", 1), ("a", 2))), ("x", 3))


@pytest.mark.parametrize("name", ["NaN", "-NaN", "Inf", "-Inf", "Infinity", "-Infinity"])
@pytest.mark.parametrize("way", ["lines", "array"])
def test_what_is_no_json_is_not_kept(name: str, way: str, tmp_path: Path) -> None:
    """In a column it has a place; left out, it decides nothing."""
    objects = [
        f'{{"id": 1, "a": {{"x": [{name}]}}}}',
        f'{{"id": 2, "d": {name}, "a": "Inf, NaN"}}',
        '{"id": 3, "d": 1}',
    ]
    text = f"[{','.join(objects)}]" if way == "array" else "\n".join(objects)
    (tmp_path / "a.json").write_text(text)
    fault, *rows = items_of(tmp_path / "a.json", schema="id long, d double", on_unknown="keep")
    assert fault.endswith("in a field that is in no column can't be kept: it is no JSON")
    assert [row["id"] for row in rows] == [2, 3]
    assert repr(rows[0]["d"]) == repr(float(name.removeprefix("-") if "NaN" in name else name))
    assert json.loads(rows[0]["file_unknown"]) == {"a": "Inf, NaN"}
    left_out = items_of(tmp_path / "a.json", schema="id long, d double", on_unknown="drop")
    assert [row["id"] for row in left_out] == [1, 2, 3]


@pytest.mark.parametrize("size", [16, 40, 1 << 20])
def test_arrays_take_the_infinities_that_lines_take(size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("volley.formats.json_lines._CHUNK", size)
    names = ["Inf", "-Inf", "Infinity", "-Infinity", "NaN", "-NaN", "1e5"]
    objects = [f'{{"x": {name}, "s": "Inf -NaN \\" Inf"}}' for name in names]
    (tmp_path / "lines.json").write_text("\n".join(objects))
    (tmp_path / "array.json").write_text("[" + ", ".join(objects) + "]")
    lines = items_of(tmp_path / "lines.json", schema="x double, s string")
    assert {row["s"] for row in lines} == {'Inf -NaN " Inf'}
    assert [row["x"] for row in lines[:4]] == [math.inf, -math.inf] * 2
    assert repr(items_of(tmp_path / "array.json", schema="x double, s string")) == repr(lines)
    assert repr(items_of(tmp_path / "array.json", schema=None)) == repr(lines)
    assert repr(items_of(tmp_path / "lines.json", schema=None)) == repr(lines)


@pytest.mark.parametrize("way", ["lines", "array"])
def test_infinities_beside_long_numbers_and_exponents(way: str, tmp_path: Path) -> None:
    """They are looked at one by one, to be sure that no digit is lost."""
    objects = ['{"a": 1234567890123456789, "b": Inf, "c": 1e50}', '{"a": 1, "b": -Infinity, "c": 0.5}']
    text = f"[{','.join(objects)}]" if way == "array" else "\n".join(objects)
    (tmp_path / "a.json").write_text(text)
    expected = [(1234567890123456789, math.inf, 1e50), (1, -math.inf, 0.5)]
    rows = items_of(tmp_path / "a.json", schema=None)
    assert [tuple(row.values()) for row in rows] == expected
    rows = items_of(tmp_path / "a.json", schema="a decimal(20,0), b double, c double")
    assert [tuple(row.values()) for row in rows] == [(Decimal(a), b, c) for a, b, c in expected]
    read = duckdb.sql(f"select a, b, c from read_json('{tmp_path}/a.json') order by a desc").fetchall()
    assert read == expected


SPECIAL: list[dict[str, Any]] = [
    {"x": math.nan, "f": math.inf, "n": {"l": [1.5, -math.inf]}},
    {"x": 0.1, "f": None, "n": {"l": [math.nan]}},
]


def test_json_that_is_written_has_texts_for_what_json_lacks(tmp_path: Path) -> None:
    """They are read as doubles again: by Volley, and by DuckDB if it knows the types."""
    types = pa.schema({"x": pa.float64(), "f": pa.float32(), "n": pa.struct({"l": pa.list_(pa.float64())})})
    text = "".join(f"{row}\n" for row in json_texts(pa.RecordBatch.from_pylist(SPECIAL, types)))
    rows = [json.loads(line, parse_constant=pytest.fail) for line in text.splitlines()]
    assert rows[0] == {"x": "NaN", "f": "Infinity", "n": {"l": [1.5, "-Infinity"]}}
    (tmp_path / "a.json").write_text(text)
    schema = "x double, f float, n struct<l: array<double>>"
    assert repr(items_of(tmp_path / "a.json", schema=schema)) == repr(SPECIAL)
    columns = "{x: 'double', f: 'float', n: 'struct(l double[])'}"
    read = duckdb.sql(f"from read_json('{tmp_path}/a.json', columns={columns})").fetchall()
    assert repr(read) == repr([tuple(row.values()) for row in SPECIAL])


@pytest.mark.parametrize("way", ["lines", "array", "message", "a message beside a bad one"])
def test_texts_are_numbers_in_columns_of_doubles_alone(way: str, tmp_path: Path) -> None:
    texts = ['{"x": "NaN", "s": "NaN", "u": "Infinity"}', '{"x": "-Infinity", "s": "\\ud83d\\ude00"}', '{"x": "x"}']
    if "message" in way:
        decoder = JsonValues(pa.schema({"x": pa.float64(), "s": pa.string()}), "keep", "file_unknown")
        values = [text.encode() for text in texts]
        rows = decoder.decode(values[:2]).to_pylist() if way == "message" else decoder.sort(values).batch.to_pylist()
    else:
        (tmp_path / "a.json").write_text(f"[{','.join(texts)}]" if way == "array" else "\n".join(texts))
        *rows, fault = items_of(tmp_path / "a.json", schema="x double, s string", on_unknown="keep")
        assert "changed from number to string" in fault
    assert [repr(row["x"]) for row in rows] == ["nan", "-inf"]
    assert [row["s"] for row in rows] == ["NaN", "😀"]
    assert [row["file_unknown"] for row in rows] == ['{"u": "Infinity"}', None]


def test_a_payload_is_json(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": [math.nan, 1.0], "id": [1 << 40, 1]}), tmp_path / "a.parquet")
    source = FileSource(tmp_path / "a.parquet", schema="x double, id int").open(SourceContext(f"{tmp_path}/state"))
    start = source.initial_offset()
    (split,) = source.splits(start, source.latest_offset(start, None, None))
    (letter,) = (item for item in source.read_tolerant(split) if isinstance(item, BadRow))
    assert json.loads(letter.payload, parse_constant=pytest.fail) == {"x": "NaN", "id": 1 << 40}
