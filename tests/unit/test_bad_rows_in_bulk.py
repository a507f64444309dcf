"""Bad rows found many at a time; fields that no column needs decide nothing; files that are not one object a line."""

from __future__ import annotations

import io
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.csv as pcsv
import pyarrow.json as pj
import pyarrow.parquet as pq
import pytest

from volley import FileSource, Reader, SourceContext, SourceError
from volley.columns.exact import exact_cast
from volley.contracts.rows import BadRow, PositionedBatch
from volley.formats.avro import AvroValues
from volley.formats.messages import JsonValues
from volley.task.sorter import gathered

Rows = list[dict[str, Any]]
SCHEMA = "id long, name string, who struct<a: long>"


def opened(path: Path, **settings: Any) -> Reader:
    return FileSource(path, **settings).open(SourceContext(str(path.parent / f"{path.stem}-state")))


def read(reader: Reader) -> tuple[Rows, list[BadRow]]:
    start = reader.initial_offset()
    rows: Rows = []
    bad = []
    for split in reader.splits(start, reader.latest_offset(start, None, None)):
        for item in reader.read_tolerant(split):
            if isinstance(item, BadRow):
                bad.append(item)
            else:
                rows += item.batch.to_pylist()
    return rows, bad


def strictly(reader: Reader) -> Rows:
    start = reader.initial_offset()
    splits = reader.splits(start, reader.latest_offset(start, None, None))
    return [row for split in splits for batch in reader.read(split) for row in batch.to_pylist()]


IGNORED = {
    "a number too large": '"x": 1e400',
    "one within": '"x": {"y": [1, 1e400]}',
    "one within a column": '"who": {"a": 1, "z": 1e400}',
    "half a pair of surrogates": r'"x": "\ud800"',
    "half a pair in a name": r'"\udc00": 1',
    "a name twice": '"x": 1, "x": "a"',
    "a long number": f'"x": {"9" * 5_000}',
    "an array of mixed types": '"x": [1, "a", {}, null]',
}


@pytest.mark.parametrize("policy", ["drop", "warn"])
@pytest.mark.parametrize("field", IGNORED.values(), ids=IGNORED.keys())
def test_a_field_that_no_column_needs_makes_no_row_bad(field: str, policy: str, tmp_path: Path) -> None:
    lines = [f'{{"id": {number}, {field}}}' for number in range(3)] + ['{"id": 3, "x": true}', '{"id": "x"}']
    (tmp_path / "a.json").write_text("\n".join(lines))
    rows, bad = read(opened(tmp_path / "a.json", schema=SCHEMA, on_unknown=policy))
    assert [row["id"] for row in rows] == [0, 1, 2, 3]
    assert [row.payload for row in bad] == lines[4:]
    (tmp_path / "b.json").write_text("\n".join(lines[:4]))
    assert strictly(opened(tmp_path / "b.json", schema=SCHEMA, on_unknown=policy)) == rows
    who = pa.struct({"a": pa.int64()})
    decoder = JsonValues(pa.schema({"id": pa.int64(), "name": pa.string(), "who": who}), policy)
    values = [line.encode() for line in lines]
    sorted_values = decoder.sort(values)
    assert (sorted_values.batch.to_pylist(), [*sorted_values.faults]) == (rows, [4])


@pytest.mark.parametrize("field", ["a number too large", "half a pair of surrogates"])
@pytest.mark.parametrize("policy", ["keep", "fail"])
def test_a_field_that_is_kept_or_refused_decides(field: str, policy: str, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"id": 1}\n' + f'{{"id": 2, {IGNORED[field]}}}')
    rows, bad = read(opened(tmp_path / "a.json", schema="id long", on_unknown=policy))
    assert [row["id"] for row in rows] == [1]
    assert [row.position[-6:] for row in bad] == ["line 2"]


def test_columns_that_the_schema_of_csv_ignores_decide_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b'x,id,y\n1e400,1,"a\nb"\n\xff,2,\nmany,3,"\xe4"\n1,no,\xff\n')
    rows, bad = read(opened(tmp_path / "a.csv", schema="id long", on_unknown="warn"))
    assert [row["id"] for row in rows] == [1, 2, 3]
    assert [(row.payload, row.error) for row in bad] == [
        ("1,no,\ufffd", "column 'id': CSV conversion error to int64: invalid value 'no'")
    ]


BAD_JSON: dict[str, Callable[[int], str]] = {
    "no JSON": lambda number: "{",
    "of another type": lambda number: f'{{"id": "x{number}"}}',
    "too large": lambda number: f'{{"id": {number}.5}}',
    "no time": lambda number: f'{{"id": 1, "at": "day {number}"}}',
    "of no column": lambda number: f'{{"ID": {number}}}',
    "beyond a double": lambda number: f'{{"price": {number + 1}e310}}',
}
BAD_CSV: dict[str, Callable[[int], str]] = {
    "of another type": lambda number: f"x{number},,",
    "too wide": lambda number: f"{number},,,",
    "no time": lambda number: f"{number},day {number},",
    "no text": lambda number: f"\udcff{number},,",
    "beyond a double": lambda number: f"{number},,1e999",
}
COUNT = 3_000


@pytest.mark.parametrize("some", [1, 2, 100])
@pytest.mark.parametrize(
    ("ending", "bad"),
    [*(("json", line) for line in BAD_JSON.values()), *(("csv", line) for line in BAD_CSV.values())],
    ids=[*(f"JSON {name}" for name in BAD_JSON), *(f"CSV {name}" for name in BAD_CSV)],
)
def test_arrow_is_asked_once_in_many_rows(
    ending: str, bad: Callable[[int], str], some: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call costs what it takes to look at some thirty rows: where few rows are bad, it tells the next one."""
    calls: list[str] = []

    def counted(module: Any, name: str) -> None:
        real = getattr(module, name)

        def call(*args: Any, **settings: Any) -> Any:
            calls.append(name)
            return real(*args, **settings)

        monkeypatch.setattr(module, name, call)

    counted(pj, "read_json")
    counted(pcsv, "read_csv")
    good = '{{"id": {}}}' if ending == "json" else "{},,"
    lines = [bad(number) if number % some == 0 else good.format(number) for number in range(COUNT)]
    text = "\n".join([*(["id,at,price"] if ending == "csv" else []), *lines, ""])
    (tmp_path / f"a.{ending}").write_text(text, errors="surrogateescape")
    rows, found = read(opened(tmp_path / f"a.{ending}", schema="id long, at timestamp, price double"))
    assert [row["id"] for row in rows] == [number for number in range(COUNT) if number % some]
    first = 2 if ending == "csv" else 1
    places = [f"line {number + first}" for number in range(0, COUNT, some)]
    assert [row.position.rpartition(", ")[2] for row in found] == places
    assert len(calls) < COUNT / 32 + 10


@pytest.mark.parametrize(("end", "encoding"), [("\n", "utf-8"), ("", "utf-8"), ("\n", "utf-8-sig")])
def test_objects_over_several_lines_stand_beside_a_bad_one(end: str, encoding: str, tmp_path: Path) -> None:
    objects = [{"id": number, "name": "a"} for number in range(1_000)]
    objects[777]["id"] = "bad"
    (tmp_path / "a.json").write_text("\n".join(json.dumps(row, indent=2) for row in objects) + end, encoding)
    rows, bad = read(opened(tmp_path / "a.json", schema=SCHEMA))
    assert [row["id"] for row in rows] == [row["id"] for row in objects if row["id"] != "bad"]
    assert [(row.position[-9:], json.loads(row.payload)) for row in bad] == [("line 3109", objects[777])]


def test_a_file_that_looks_pretty_printed_is_told_so(tmp_path: Path) -> None:
    text = json.dumps({"events": [{"x": number} for number in range(1_000)]}, indent=2)
    (tmp_path / "a.json").write_text(text[:-1])
    rows, bad = read(opened(tmp_path / "a.json", schema=SCHEMA, on_unknown="drop"))
    assert rows == []
    assert [bad[0].payload, bad[1].payload] == ["{", '  "events": [']
    advice = "the file looks pretty-printed: write one object a line, as `jq -c .` does"
    assert all(advice in row.error for row in bad if row.error.startswith("not "))
    with pytest.raises(SourceError, match=r"a\.json, line 1: not JSON.*jq -c"):
        strictly(opened(tmp_path / "a.json", schema=SCHEMA))


def test_an_array_of_objects_in_a_line_or_message_is_told_so(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"id": 1}\n[{"id": 2}, {"id": 3}]\n')
    _, bad = read(opened(tmp_path / "a.json", schema="id long"))
    assert [row.error for row in bad] == ["not a JSON object, but an array of them: write each by itself"]
    faults = JsonValues(pa.schema({"id": pa.int64()}), "drop").sort([b'[{"id": 2}]']).faults
    assert faults == {0: bad[0].error}


def test_nested_lines_that_are_never_closed_cost_no_more_than_others(tmp_path: Path) -> None:
    """Each line might be the begin of an object over all lines behind it."""
    lines = ['{"id": [1,'] * 5_000
    (tmp_path / "a.json").write_text("\n".join(lines))
    rows, bad = read(opened(tmp_path / "a.json", schema="id long"))
    assert (rows, len(bad)) == ([], len(lines))


def test_avro_messages_are_sorted_as_if_each_is_decoded_alone() -> None:
    items = {"type": "array", "items": {"type": "array", "items": "string"}}
    fields = [{"name": "id", "type": "long"}, {"name": "tags", "type": items}]
    schema = {"type": "record", "name": "r", "fields": fields}
    decoder = AvroValues(json.dumps(schema), None)
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), {"id": 1, "tags": [["a" * 10_000], []]})
    good = stream.getvalue()
    values = [good, good[:-1], b"", None, b"\x02" + b"\xff" * 9 + b"\x01", good + b"x", good]
    found = decoder.sort(values)
    assert [row["id"] for row in found.batch.to_pylist()] == [1, None, 1]
    assert [*found.numbers] == [0, 3, 6]
    for number, fault in found.faults.items():
        with pytest.raises(SourceError) as caught:
            decoder.decode([values[number]])
        assert fault == caught.value.message


def test_small_batches_between_bad_rows_are_joined() -> None:
    letters = [BadRow(str(number), "bad", f"line {2 * number}") for number in range(5_000)]

    def rows(number: int) -> PositionedBatch:
        return PositionedBatch(pa.record_batch({"id": [number]}), lambda row: f"line {2 * number + 1 + row}")

    large = PositionedBatch(pa.record_batch({"id": range(10_000)}), lambda row: f"row {row}")
    items = [item for number, letter in enumerate(letters) for item in (letter, rows(number))]
    found = [*gathered([*items, large])]
    assert [item for item in found if isinstance(item, BadRow)] == letters
    batches = [item for item in found if not isinstance(item, BadRow)]
    assert [item.batch.num_rows for item in batches] == [4_096, 904, 10_000]
    assert [value for item in batches[:2] for value in item.batch.column("id").to_pylist()] == [*range(5_000)]
    assert [batches[1].position(row) for row in (0, 903)] == ["line 8193", "line 9999"]


@pytest.mark.parametrize("some", [1, 2])
@pytest.mark.parametrize(
    ("values", "schema"),
    [
        ([1 << 40, 1], "v int"),
        ([0.5, 1.0], "v long"),
        ([{"a": [1 << 40], "b": "x"}, {"a": [1], "b": "x"}], "v struct<b: string, a: array<int>>"),
    ],
    ids=["long", "double", "nested"],
)
def test_a_row_of_parquet_that_does_not_fit_costs_one_cast(
    values: list[Any], schema: str, some: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    casts = 0

    def counted(column: pa.Array, data_type: pa.DataType) -> pa.Array:
        nonlocal casts
        casts += 1
        return exact_cast(column, data_type)

    monkeypatch.setattr("volley.columns.batches.exact_cast", counted)
    monkeypatch.setattr("volley.columns.batches.exact_cast", counted)
    pq.write_table(pa.table({"v": [values[number % some] for number in range(COUNT)]}), tmp_path / "a.parquet")
    rows, bad = read(opened(tmp_path / "a.parquet", schema=schema))
    assert len(rows) == COUNT - len(bad) == COUNT - COUNT // some
    assert [letter.position[-7:] for letter in bad[:2]] == [", row 1", f", row {1 + some}"]
    assert json.loads(bad[0].payload) == {"v": values[0]}
    assert casts < len(bad) + 30


def test_chunks_behind_one_with_bad_rows_are_told_by_their_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("volley.formats.json_lines._CHUNK", 200)
    bad = {3: '{"id": 99999999999999999999}', 4: '{"id": 4, "id": 4}', 40: '{"id": 40, "name"', 41: '{"id": "41"}'}
    lines = [bad.get(number, f'{{"id": {number}, "name": "n\\"{number}"}}') for number in range(60)]
    (tmp_path / "a.json").write_text("\n".join(lines))
    rows, faults = read(opened(tmp_path / "a.json", schema="id long, name string"))
    assert rows == [{"id": number, "name": f'n"{number}'} for number in range(60) if number not in bad]
    assert [fault.position for fault in faults] == [f"{tmp_path / 'a.json'}, line {number + 1}" for number in bad]


def test_a_decoder_goes_to_executors_after_it_has_sorted() -> None:
    values = [b'{"id": 1, "x": -0}', b'{"id": "x"}', b'{"id": 3, "x": NaN}', b'{"id": 4}']
    decoder = JsonValues(pa.schema({"id": pa.int64(), "x": pa.float64()}), "warn")
    for rows in (decoder.sort(values), pickle.loads(pickle.dumps(decoder)).sort(values)):
        assert repr(rows.batch.to_pydict()) == "{'id': [1, 3, 4], 'x': [-0.0, nan, None]}"
        assert rows.faults == {1: "JSON parse error: Column(/id) changed from number to string"}
