"""Files with bad lines: the good rows are read in order, each bad line is told once, with its text and its place."""

from __future__ import annotations

import gzip
import math
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from volley import FileSource, MemorySource, Source, SourceContext, SourceError
from volley.contracts.rows import BadRow
from volley.formats import json_lines

Read = tuple[list[tuple[str, object]], list[tuple[str, str]]]
"""Good rows with their places, bad ones as place and payload."""


def read(source: Source, state: Path) -> Read:
    """All that a source holds; places without the folder."""
    opened = source.open(SourceContext(str(state / "state")))
    good, bad = [], []
    start = opened.initial_offset()
    for split in opened.splits(start, opened.latest_offset(start, None, None)):
        for found in opened.read_tolerant(split):
            if isinstance(found, BadRow):
                assert found.error
                bad.append((found.position.rpartition("/")[2], found.payload))
            else:
                rows = found.batch.column(0).to_pylist()
                good += [(found.position(row).rpartition("/")[2], value) for row, value in enumerate(rows)]
    return good, bad


def read_text(folder: Path, name: str, text: str, schema: str = "id long") -> Read:
    (folder / "in").mkdir(exist_ok=True)
    (folder / "in" / name).write_bytes(text.encode(errors="surrogateescape"))
    return read(FileSource(folder / "in" / name, schema=schema), folder)


def read_strictly(source: Source, state: Path) -> int:
    """The number of rows that a source holds."""
    opened = source.open(SourceContext(str(state / "state")))
    start = opened.initial_offset()
    splits = opened.splits(start, opened.latest_offset(start, None, None))
    return sum(batch.num_rows for split in splits for batch in opened.read(split))


def lines_of(good: list[tuple[str, object]]) -> list[int]:
    return [int(place.rpartition(" ")[2]) for place, _ in good]


JSON = {
    "the first line": ('{"id"\n{"id": 2}\n', [2], [1]),
    "the last line": ('{"id": 1}\n{"id": "x"}\n', [1], [2]),
    "the last line without its end": ('{"id": 1}\n{"id": ', [1], [2]),
    "a good last line without its end": ('broken\n{"id": 2}', [2], [1]),
    "two lines that follow each other": ('{"id": 1}\nno\nno\n{"id": 4}\n', [1, 4], [2, 3]),
    "all lines": ("no\n[1]\n5\n", [], [1, 2, 3]),
    "a line among blank ones": ('\n\n{"id": 3}\n\nno\n  \n{"id": 7}\n\n', [3, 7], [5]),
    "a line that ends in CRLF": ('{"id": 1}\r\nno\r\n{"id": 3}\r\n', [1, 3], [2]),
    "a null before the first object": ('null\n{"id": 2}\n', [2], [1]),
    "a null between objects": ('{"id": 1}\nnull\n{"id": 3}\n', [1, 3], [2]),
    "a null that is indented": ('{"id": 1}\n \tnull\r\n{"id": 3}\n', [1, 3], [2]),
    "a null at the end": ('{"id": 1}\nnull', [1], [2]),
    "nulls one after the other": ('{"id": 1}\nnull\nnull\n{"id": 4}\n', [1, 4], [2, 3]),
    "a null behind an object": ('{"id": 1}\n{"id": 2} null\n{"id": 3}\n', [1, 3], [2]),
    "a number too large for a long": ('{"id": 1}\n{"id": 9223372036854775808}\n', [1], [2]),
    "a line of another type": ('{"id": 1}\n{"id": {"a": 1}}\n{"id": 3}\n', [1, 3], [2]),
    "no line": ('{"id": 1}\n\n{"id": 3}\n', [1, 3], []),
}


@pytest.mark.parametrize(("text", "good", "bad"), JSON.values(), ids=JSON.keys())
def test_bad_in_json_is(text: str, good: list[int], bad: list[int], tmp_path: Path) -> None:
    rows, letters = read_text(tmp_path, "a.json", text)
    assert rows == [(f"a.json, line {number}", number) for number in good]
    payloads = text.replace("\r", "").split("\n")
    assert letters == [(f"a.json, line {number}", payloads[number - 1]) for number in bad]


@pytest.mark.parametrize("space", ["", " ", "\t "])
@pytest.mark.parametrize("chunk", [8 << 20, 40])
def test_objects_over_lines_that_begin_in_the_line_of_anothers_end_are_rows(
    space: str, chunk: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_lines, "_CHUNK", chunk)
    texts = ['"x"' if number == 3 else str(number) for number in range(8)]
    text = space.join(f'{{\n"id": {value}\n}}' for value in texts)
    rows, letters = read_text(tmp_path, "a.json", text + "\n")
    assert [value for _, value in rows] == [0, 1, 2, 4, 5, 6, 7]
    assert letters == [("a.json, line 7", '{\n"id": "x"\n}')]


def test_a_cut_object_over_lines_spoils_no_object_before_it(tmp_path: Path) -> None:
    rows, letters = read_text(tmp_path, "a.json", '{\n"é": -Inf, "id": 1\n}{"id": 2} {\n"id": 3\n}{\n"id": ')
    assert rows == [("a.json, line 1", 1), ("a.json, line 3", 2), ("a.json, line 3", 3)]
    assert letters == [("a.json, line 5", "{"), ("a.json, line 6", '"id": ')]


LARGE = ["1e400", "-1e400", "1.8e308", "9" * 400, "1e9999"]


@pytest.mark.parametrize("number", LARGE)
@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ("id double", "{}"),
        ("id array<double>", "[1, {}]"),
        ("id struct<a: array<struct<b: double>>>", '{{"a": [{{"b": {}}}]}}'),
        ("id float", "{}"),
    ],
)
def test_a_json_number_that_no_column_can_hold_is_a_bad_row(
    number: str, schema: str, value: str, tmp_path: Path
) -> None:
    large = '{"id": ' + value.format(number) + "}"
    good = '{"id": ' + value.format("1.5") + "}"
    rows, letters = read_text(tmp_path, "a.json", f"{good}\n{large}\n{good}\n", schema)
    assert [place for place, _ in rows] == ["a.json, line 1", "a.json, line 3"]
    assert letters == [("a.json, line 2", large)]


def test_a_json_number_larger_than_a_float_is_a_bad_row(tmp_path: Path) -> None:
    text = '{"id": 3.4028234e38}\n{"id": 1e39}\n{"id": -3.5e38}\n'
    rows, letters = read_text(tmp_path, "a.json", text, "id float")
    assert [place for place, _ in rows] == ["a.json, line 1"]
    assert letters == [("a.json, line 2", '{"id": 1e39}'), ("a.json, line 3", '{"id": -3.5e38}')]


def test_infinity_by_its_name_is_a_value_beside_numbers_that_are_too_large(tmp_path: Path) -> None:
    text = '{"id": Infinity, "s": "Infinity"}\n{"id": -Infinity}\n{"id": 1.8e308, "s": "Infinity"}\n{"id": Inf}\n'
    rows, letters = read_text(tmp_path, "a.json", text, "id double, s string")
    assert [value for _, value in rows] == [math.inf, -math.inf, math.inf]
    assert [place for place, _ in letters] == ["a.json, line 3"]


@pytest.mark.parametrize("kind", ["int", "long"])
def test_hexadecimal_csv_numbers_are_bad_rows(kind: str, tmp_path: Path) -> None:
    lines = ["1,0x1", "0x10,", "2,", '"0"x10,', "0X80000000,", '"0xffffffffffffffff",', "3,x", " 0x2 ,", "4,"]
    rows, letters = read_text(tmp_path, "a.csv", "\n".join(["id,s", *lines, ""]), f"id {kind}, s string")
    assert [value for _, value in rows] == [1, 2, 3, 4]
    assert letters == [(f"a.csv, line {line + 2}", lines[line]) for line in (1, 3, 4, 5, 7)]


def test_a_null_behind_a_byte_order_mark_is_a_bad_row(tmp_path: Path) -> None:
    rows, letters = read_text(tmp_path, "a.json", '\ufeffnull\n{"id": 2}\n')
    assert rows == [("a.json, line 2", 2)]
    assert [place for place, _ in letters] == ["a.json, line 1"]


def test_a_row_of_nulls_is_a_row_whatever_its_texts_say(tmp_path: Path) -> None:
    text = '{"id": null, "x": "} null"}\n{"id": null, "x": {"y": null}}\n{}\n{"id": null}\n'
    rows, letters = read_text(tmp_path, "a.json", text)
    assert [value for _, value in rows] == [None] * 4
    assert letters == []


CSV = {
    "the first row": ("id,name\nx,a\n3,b\n", [3], [2]),
    "the last row": ("id,name\n2,a\n3,b,c\n", [2], [3]),
    "the last row without its end": ("id,name\n2,a\nx,b", [2], [3]),
    "two rows that follow each other": ("id,name\n2,a\nx,a\n4\n5,b\n", [2, 5], [3, 4]),
    "all rows": ("id,name\nx,a\n1,2,3\n", [], [2, 3]),
    "a row among blank lines": ("id,name\n\n3,a\n\nx,a\n\n7,b\n\n", [3, 7], [5]),
    "a row that ends in CRLF": ("id,name\r\n2,a\r\nx,a\r\n4,b\r\n", [2, 4], [3]),
    "a row behind one of several lines": ('id,name\n2,"a\n\nb"\nx,a\n6,b\n', [2, 6], [5]),
    "a quote that is never closed": ('id,name\nx,a\n3,"a\n4,b\n5,c\n', [4, 5], [2, 3]),
    "a quote in the only bad row that is never closed": ('id,name\n2,a\n3,"a\n4,b\n5,c\n', [2, 4, 5], [3]),
    "a quote that is never closed, behind one in a value": ('id,name\n2,5" pipe\n3,"a, b\n4,c\n5,d\n', [2, 4, 5], [3]),
    "a quote at the very end": ('id,name\n2,a\n3,"', [2], [3]),
    "no row, though a value has a quote": ('id,name\n2,5" pipe\n3,b\n', [2, 3], []),
    "no row": ('id,name\n2,"a ""b"""\n\n4,b', [2, 4], []),
}


@pytest.mark.parametrize(("text", "good", "bad"), CSV.values(), ids=CSV.keys())
def test_bad_in_csv_is(text: str, good: list[int], bad: list[int], tmp_path: Path) -> None:
    rows, letters = read_text(tmp_path, "a.csv", text, "id long, name string")
    assert rows == [(f"a.csv, line {number}", number) for number in good]
    payloads = text.replace("\r", "").split("\n")
    assert letters == [(f"a.csv, line {number}", payloads[number - 1]) for number in bad]


def test_csv_numbers_too_large_for_their_column_are_bad_rows(tmp_path: Path) -> None:
    text = "id,name\ninf,a\n1e400,b\n2.5,c\n-1e999,d\n-inf,e\n"
    rows, letters = read_text(tmp_path, "a.csv", text, "id double, name string")
    assert rows == [("a.csv, line 2", math.inf), ("a.csv, line 4", 2.5), ("a.csv, line 6", -math.inf)]
    assert letters == [("a.csv, line 3", "1e400,b"), ("a.csv, line 5", "-1e999,d")]


def test_csv_times_that_are_none_are_bad_rows(tmp_path: Path) -> None:
    text = "at\n2024-01-01T00:00:00Z\nyesterday\n2024-01-02\n"
    rows, letters = read_text(tmp_path, "a.csv", text, "at timestamp")
    assert [value for _, value in rows] == [datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 1, 2, tzinfo=UTC)]
    assert letters == [("a.csv, line 3", "yesterday")]


def test_a_very_long_first_csv_row_is_a_bad_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("volley.formats.lines.LARGEST_VALUE", 50)
    row = f"x,{'n' * 100}"
    rows, letters = read_text(tmp_path, "a.csv", f"id,name\n{row}\n2,b\n", "id long, name string")
    assert rows == [("a.csv, line 3", 2)]
    assert letters == [("a.csv, line 2", row[:50])]


@pytest.mark.parametrize("value", ['"x"\\\ny', "x\\\ny", '"x\\"\ny"'])
def test_rows_behind_a_value_with_an_escaped_end_of_line_keep_their_lines(value: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(f"id,name\n1,{value}\n2,z\n3q,w\n")
    source = FileSource(tmp_path / "a.csv", schema="id long, name string", options={"escape": "\\"})
    rows, letters = read(source, tmp_path)
    assert rows == [("a.csv, line 2", 1), ("a.csv, line 4", 2)]
    assert letters == [("a.csv, line 5", "3q,w")]
    with pytest.raises(SourceError, match=r"a\.csv, line 5: .*: 3q,w"):
        read_strictly(source, tmp_path)


def test_csv_bytes_that_are_no_text_are_a_bad_row(tmp_path: Path) -> None:
    rows, letters = read_text(tmp_path, "a.csv", "name\nä\n\udcff\nb\n", "name string")
    assert rows == [("a.csv, line 2", "ä"), ("a.csv, line 4", "b")]
    assert letters == [("a.csv, line 3", "\ufffd")]


def test_compressed_files_are_read_tolerantly(tmp_path: Path) -> None:
    (tmp_path / "a.json.gz").write_bytes(gzip.compress(b'{"id": 1}\nno\n'))
    assert read(FileSource(tmp_path / "a.json.gz", schema="id long"), tmp_path)[1] == [("a.json.gz, line 2", "no")]


@pytest.mark.parametrize("behind", [b"rest", b"\0" * 512 + b"rest"])
def test_bytes_behind_what_is_compressed_are_told(behind: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.json.gz").write_bytes(gzip.compress(b'{"id": 1}\n') + behind)
    with pytest.raises(SourceError, match=r"a\.json\.gz can't be read: .*\n.*other bytes stand behind"):
        read_strictly(FileSource(tmp_path / "a.json.gz", schema="id long"), tmp_path)


@pytest.mark.parametrize("zeros", [1, 512, 1 << 20])
@pytest.mark.parametrize(("name", "line"), [("a.json.gz", '{"id": %d}\n'), ("a.csv.gz", "%d\n")])
def test_zeros_behind_a_gzip_file_are_no_rows(name: str, line: str, zeros: int, tmp_path: Path) -> None:
    # Two members, and more text than one read takes.
    lines = ["id\n" if "csv" in name else "", *(line % number for number in range(150_000))]
    members = ["".join(lines[:100_000]), "".join(lines[100_000:])]
    packed = b"".join(gzip.compress(member.encode(), 1) for member in members)
    (tmp_path / name).write_bytes(packed + bytes(zeros))
    good, bad = read(FileSource(tmp_path / name, schema="id long"), tmp_path)
    assert ([value for _, value in good], bad) == (list(range(150_000)), [])


@pytest.mark.parametrize("cut", [1, 8, 20])
def test_a_gzip_file_that_is_cut_is_told(cut: int, tmp_path: Path) -> None:
    (tmp_path / "a.json.gz").write_bytes(gzip.compress(b'{"id": 1}\n' * 1000)[:-cut])
    with pytest.raises(SourceError, match=r"a\.json\.gz can't be read: .*\n.*it is damaged or cut"):
        read_strictly(FileSource(tmp_path / "a.json.gz", schema="id long"), tmp_path)


def test_parquet_rows_that_do_not_fit_are_bad_rows(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": ["1", "two", "3", None]}), tmp_path / "a.parquet", row_group_size=2)
    rows, letters = read(FileSource(tmp_path / "a.parquet", schema="id long"), tmp_path)
    assert rows == [("a.parquet, row 1", 1), ("a.parquet, row 3", 3), ("a.parquet, row 4", None)]
    assert letters == [("a.parquet, row 2", '{"id": "two"}')]


def test_without_tolerance_the_parquet_row_at_fault_is_named(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": ["1", "two"]}), tmp_path / "a.parquet")
    source = FileSource(tmp_path / "a.parquet", schema="id long").open(SourceContext(str(tmp_path / "state")))
    (split,) = source.splits({"files": 0}, source.latest_offset({"files": 0}, None, None))
    with pytest.raises(SourceError, match=r"a.parquet, row 2: column 'id'.*two"):
        list(source.read(split))


@pytest.mark.parametrize("kind", ["cut short", "of a type that never fits"])
def test_a_parquet_file_as_a_whole_still_stops_the_job(kind: str, tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    pq.write_table(pa.table({"id": [[1], [2]]}), file)
    if kind == "cut short":
        file.write_bytes(file.read_bytes()[:-10])
    with pytest.raises(SourceError, match=r"a\.parquet"):
        read(FileSource(file, schema="id long"), tmp_path)


def test_rows_in_memory_are_counted_over_all_splits(tmp_path: Path) -> None:
    source = MemorySource([{"id": i} for i in range(10_002)], name="m")
    rows, _ = read(source, tmp_path)
    assert rows[-1] == ("memory:m, row 10002", 10_001)


def test_a_null_before_the_first_object_is_an_error_when_the_schema_is_inferred(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(' null\n{"id": 1}\n')
    with pytest.raises(SourceError, match=r"a\.json, line 1: not a JSON object"):
        FileSource(tmp_path / "a.json").open(SourceContext(str(tmp_path / "state")))


def test_a_null_among_objects_is_an_error_when_the_schema_is_inferred(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"id": null}\n{"id": 1}\nnull\n{"id": 3}\n')
    with pytest.raises(SourceError, match=r"a\.json, line 3: not a JSON object"):
        FileSource(tmp_path / "a.json").open(SourceContext(str(tmp_path / "state")))
