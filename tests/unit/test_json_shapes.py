"""JSON into maps, uuids and strings of any value: whole batches, batches with bad rows, and as Python reads it."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest

from tests.unit.test_bad_rows_in_bulk import opened, read, strictly
from volley import SourceError
from volley.formats.decoders import decoder_of
from volley.formats.messages import JsonValues

UUID_TEXT = "00000000-0000-4000-8000-0000000000aB"


def decoded(schema: str, *texts: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = (
        decoder_of("json", schema, "drop", "unknown", {}).decode([text.encode() for text in texts]).to_pylist()
    )
    return rows


def faults(schema: str, *texts: str) -> dict[int, str]:
    return dict(decoder_of("json", schema, "drop", "unknown", {}).sort([text.encode() for text in texts]).faults)


def test_maps() -> None:
    schema = (
        "id long, m map<string, double>, n map<string, struct<at: timestamp, more: map<string, string>>>, "
        "l array<map<string, decimal(4,1)>>"
    )
    text = (
        '{"id": 1, "m": {"a": 1.5, "b": null, "": NaN}, '
        '"n": {"x": {"at": "2026-01-01T00:00:00Z", "more": {"y": [1.50]}}},'
        ' "l": [{"k": 1.5}, null, {}]}'
    )
    rows = decoded(schema, text, '{"id": 2}', '{"id": 3, "m": {}, "n": null, "l": []}')
    (_, one), (_, two), (name, number) = rows[0].pop("m")
    assert (one, two, name, number != number) == (1.5, None, "", True)
    ((key, inner),) = rows[0].pop("n")
    assert (key, inner["at"].isoformat(), inner["more"]) == ("x", "2026-01-01T00:00:00+00:00", [("y", "[1.50]")])
    assert [[(key, str(value)) for key, value in item or ()] for item in rows[0].pop("l")] == [[("k", "1.5")], [], []]
    assert rows == [{"id": 1}, {"id": 2, "m": None, "n": None, "l": None}, {"id": 3, "m": [], "n": None, "l": []}]


def test_other_values_for_strings() -> None:
    texts = [
        '{"s": "x"}',
        '{"s": {"a": 1.50, "b": [true, null], "ä": "\\n"}}',
        '{"s": [1e400, -0]}',
        '{"s": 0.10}',
        '{"s": false}',
        '{"s": null}',
    ]
    expected = ["x", '{"a": 1.50, "b": [true, null], "ä": "\\n"}', "[1e400, -0]", "0.10", "false", None]
    assert [row["s"] for row in decoded("s string", *texts)] == expected
    nested = [f'{{"p": {{"s": {text[6:-1]}}}, "l": [{text[6:-1]}]}}' for text in texts]
    rows = decoded("p struct<s: string>, l array<string>", *nested)
    assert [(row["p"]["s"], row["l"][0]) for row in rows] == [(text, text) for text in expected]


def test_uuids() -> None:
    rows = decoded("u uuid, l array<uuid>", f'{{"u": "{UUID_TEXT}", "l": ["{UUID_TEXT}", null]}}', "{}")
    assert rows == [{"u": UUID(UUID_TEXT), "l": [UUID(UUID_TEXT), None]}, {"u": None, "l": None}]


@pytest.mark.parametrize(
    ("schema", "bad", "why"),
    [
        ("m map<string, long>", '{"m": {"a": "x"}}', "changed from number to string"),
        ("m map<string, long>", '{"m": [{"key": "a", "value": 1}]}', "changed from object to array"),
        ("m map<string, long>", '{"m": 1}', "changed from object to number"),
        ("m map<string, long>", '{"m": {"a": 1, "b": 2, "a": 3}}', "the key 'a' is in a map twice"),
        ("m map<string, decimal(4,1)>", '{"m": {"a": 12345.5}}', "precision"),
        ("u uuid, s string, m map<string, long>", '{"u": "00000000"}', "no uuid"),
        ("u uuid, s string, m map<string, long>", '{"u": 1}', "changed from string to number"),
        ("s string, m map<string, string>", '{"s": 1, "m": {"a": 1}', "not JSON"),
    ],
)
def test_bad_rows_beside_good_ones(schema: str, bad: str, why: str) -> None:
    good = ['{"m": {"a": 1}, "s": {"x": 1}}', f'{{"u": "{UUID_TEXT}", "m": {{}}}}', "{}"]
    decoder = decoder_of("json", schema, "drop", "unknown", {})
    for place in range(4):
        texts = [*good[:place], bad, *good[place:]]
        values = [text.encode() for text in texts]
        with pytest.raises((SourceError, pa.ArrowInvalid)):
            decoder.decode(values)
        result = decoder.sort(values)
        assert [*result.faults] == [place]
        assert why in result.faults[place]
        assert result.batch.to_pylist() == decoded(schema, *good)
    assert faults(schema, *[bad] * 100).keys() == {*range(100)}


def test_random_objects_are_as_python_reads_them() -> None:
    dice = random.Random(7)

    def value(depth: int = 0) -> Any:
        kinds = [None, True, dice.randrange(-9, 10**15), 'ä"\\', "", *([value, dict, list] if depth < 3 else [])]
        match dice.choice(kinds):
            case kind if kind is dict:
                return {dice.choice("abcä"): value(depth + 1) for _ in range(dice.randrange(3))}
            case kind if kind is list:
                return [value(depth + 1) for _ in range(dice.randrange(3))]
            case kind if kind is value:
                return 1.5
            case plain:
                return plain

    schema = pa.schema({"s": pa.string(), "m": pa.map_(pa.string(), pa.string()), "l": pa.list_(pa.string())})
    objects = [
        {"s": value(), "m": {key: value() for key in "xyz"[: dice.randrange(4)]}, "l": [value()]} for _ in range(500)
    ]

    def text(item: Any) -> Any:
        return item if item is None or isinstance(item, str) else json.dumps(item, ensure_ascii=False)

    expected = [
        {
            "s": text(each["s"]),
            "m": [(key, text(item)) for key, item in each["m"].items()],
            "l": [*map(text, each["l"])],
        }
        for each in objects
    ]
    decoder = JsonValues(schema, "drop")
    values = [json.dumps(each, ensure_ascii=dice.random() < 0.5).encode() for each in objects]
    assert decoder.decode(values).to_pylist() == expected
    values[7] = b'{"s": 1, "m": []}'
    assert decoder.sort(values).batch.to_pylist() == expected[:7] + expected[8:]


def test_files_of_json_and_csv(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(
        '{"id": 1, "m": {"a": {"b": 1}}, "x": 1}\n{"id": "x", "m": {}}\n{"id": 3, "m": null}\n'
    )
    reader = opened(tmp_path / "a.json", schema="id long, m map<string, string>", on_unknown="keep")
    rows, bad = read(reader)
    assert rows == [
        {"id": 1, "m": [("a", '{"b": 1}')], "file_unknown": '{"x": 1}'},
        {"id": 3, "m": None, "file_unknown": None},
    ]
    assert [row.payload for row in bad] == ['{"id": "x", "m": {}}']
    (tmp_path / "b.csv").write_text(f"id,u\n1,{UUID_TEXT}\n2,\n")
    assert strictly(opened(tmp_path / "b.csv", schema="id long, u uuid")) == [
        {"id": 1, "u": UUID(UUID_TEXT)},
        {"id": 2, "u": None},
    ]
    (tmp_path / "c.csv").write_text(f"id,u\n1,{UUID_TEXT}\n2,zero\n3,\n")
    rows, bad = read(opened(tmp_path / "c.csv", schema="id long, u uuid"))
    assert ([row["id"] for row in rows], [row.payload for row in bad]) == ([1, 3], ["2,zero"])
