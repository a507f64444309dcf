"""Options of CSV and JSON files: what each one means, by every way to read."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from volley import Environment, FileSource, Reader, SourceContext, SourceError, col
from volley.contracts.rows import BadRow
from volley.formats import csv as csv_format
from volley.formats import json_lines

Rows = list[tuple[Any, ...]]
SCHEMA = "id long, name string, price double, exact decimal(9,2), day date"
NAMES = ["id", "name", "price", "exact", "day"]


def reader(path: Path, state: Path, schema: Any = SCHEMA, **arguments: Any) -> Reader:
    return FileSource(path, schema=schema, **arguments).open(SourceContext(str(state)))


def splits(opened: Reader) -> list[Any]:
    start = opened.initial_offset()
    return opened.splits(start, opened.latest_offset(start, None, None))


def in_parts(opened: Reader, parts: int) -> list[Any]:
    """One split for each part of the only file."""
    ((file, _),) = splits(opened)[0]
    return [[(file, (part, parts))] for part in range(parts)]


def strict(opened: Reader, given: list[Any]) -> Rows:
    return [tuple(row.values()) for split in given for batch in opened.read(split) for row in batch.to_pylist()]


def tolerant(opened: Reader, given: list[Any]) -> tuple[Rows, list[BadRow]]:
    rows: Rows = []
    bad: list[BadRow] = []
    for split in given:
        for item in opened.read_tolerant(split):
            if isinstance(item, BadRow):
                bad.append(item)
            else:
                rows += [tuple(row.values()) for row in item.batch.to_pylist()]
    return rows, bad


@pytest.fixture
def small_pieces() -> Iterator[None]:
    """Blocks and chunks of some rows, so that little data has many of them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv_format, "_BLOCK", 64)
        patch.setattr(json_lines, "_CHUNK", 64)
        patch.setattr("volley.formats.lines._PIECE", 7)
        yield


@pytest.mark.parametrize("end", ["\r", "\n", "\r\n"])
@pytest.mark.parametrize("skip", [0, 1, 2])
def test_lines_of_csv_end_as_in_any_system(end: str, skip: int, tmp_path: Path, small_pieces: None) -> None:
    lines = [*["a title, of the file", "and one more"][:skip], "a,b", "x,1", "yyyyyyyyyyy,2", "z,3"]
    (tmp_path / "a.csv").write_bytes((end.join(lines) + end).encode())
    options = {"newlines_in_values": False, "skip_rows": skip}
    opened = reader(tmp_path / "a.csv", tmp_path / "state", schema="a string, b long", options=options)
    for parts in (1, 2, 3, 7, 20):
        rows = strict(opened, in_parts(opened, parts))
        assert rows == [("x", 1), ("yyyyyyyyyyy", 2), ("z", 3)], parts


@pytest.mark.parametrize("length", range(50, 80))
def test_a_last_row_of_csv_without_an_end_may_be_in_two_blocks(length: int, tmp_path: Path, small_pieces: None) -> None:
    line = "1," + "x" * 40
    (tmp_path / "a.csv").write_text(f"a,b\n0,y\n{line}".ljust(length, "x"))
    opened = reader(tmp_path / "a.csv", tmp_path / "state", schema="a long, b string")
    rows = strict(opened, splits(opened))
    assert rows == [(0, "y"), (1, "x" * (length - len("a,b\n0,y\n1,")))]


def test_a_name_that_takes_all_rows_of_a_csv_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('a,"b\n1,x\n2,y\n')
    opened = reader(tmp_path / "a.csv", tmp_path / "state", schema="a long, b string")
    for read in (strict, tolerant):
        with pytest.raises(SourceError, match=r"a\.csv, line 1: a quote is opened and never closed"):
            read(opened, splits(opened))


def test_csv_without_quotes_keeps_them_as_text(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('id,name\n1,"a\n2,\'b"c\n')
    opened = reader(path, tmp_path / "state", "id long, name string", options={"quote": None})
    assert strict(opened, splits(opened)) == [(1, '"a'), (2, "'b\"c")]
    assert [len(strict(opened, [part])) for part in in_parts(opened, 2)] == [1, 1]


@pytest.mark.parametrize("block", [16, 1 << 20])
def test_rows_with_too_few_or_too_many_fields_are_bad_rows(
    block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(csv_format, "_BLOCK", block)
    path = tmp_path / "a.csv"
    path.write_text("about this file\nid;name;x\n1;'a;\nb';\n2;b\n\n3;c;;\n4;d;0\n5\n")
    options = {"delimiter": ";", "quote": "'", "skip_rows": 1}
    opened = reader(path, tmp_path / "state", "id long, name string", options=options, include=["row"])
    rows, bad = tolerant(opened, splits(opened))
    assert rows == [(1, "a;\nb", 1), (4, "d", 4)]
    assert [(row.payload, row.position.rpartition("/")[2]) for row in bad] == [
        ("2;b", "a.csv, line 5"),
        ("3;c;;", "a.csv, line 7"),
        ("5", "a.csv, line 9"),
    ]
    assert [row.error for row in bad] == [
        "CSV parse error: Expected 3 columns, got 2: 2;b",
        "CSV parse error: Expected 3 columns, got 4: 3;c;;",
        "CSV parse error: Expected 3 columns, got 1: 5",
    ]
    with pytest.raises(SourceError, match=r"a\.csv, line 5: CSV parse error: Expected 3 columns, got 2"):
        strict(opened, splits(opened))


def test_an_escaped_quote_closes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    for text, bad in (('1,"a\\"b\n2,c\n', 1), ('1,"a\\\\"\n2,c\n', 0), ('1,a\\"b\n2,c\n', 0)):
        path.write_text(text)
        options = {"escape": "\\", "header": False}
        opened = reader(path, tmp_path / f"state{bad}{len(text)}", "id long, name string", options=options)
        rows, letters = tolerant(opened, splits(opened))
        assert (len(rows), [letter.error for letter in letters]) == (
            2 - bad,
            ["a quote is opened and never closed"] * bad,
        )


@pytest.mark.parametrize("block", [1 << 20, 64])
def test_a_day_that_does_not_exist_is_a_bad_row(block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_format, "_BLOCK", block)
    days = ["29.02.2024", "01.03.2024", "30.02.2024", "29.02.2023", "31.04.2023", "02.05.2023", "soon", "2024-03-01"]
    (tmp_path / "a.csv").write_text("at,day\n" + "".join(f"{day} 10:00,{day}\n" for day in days))
    options = {"date_formats": ["%d.%m.%Y", "%d.%m.%Y %H:%M"]}
    opened = reader(tmp_path / "a.csv", tmp_path / "state", "day date, at timestamp", options=options)
    rows, bad = tolerant(opened, splits(opened))
    dates = [date(2024, 2, 29), date(2024, 3, 1), date(2023, 5, 2), date(2024, 3, 1)]
    assert rows == [(day, datetime(day.year, day.month, day.day, 10, tzinfo=UTC)) for day in dates]
    assert [row.position.rpartition(" ")[2] for row in bad] == ["4", "5", "6", "8"]
    assert bad[0].error == "column 'day': '30.02.2024' is no date"


def test_moments_with_a_zone_are_in_utc(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("at,local\n1.2.2024 10:00 +0200,1.2.2024 10:00\n")
    opened = reader(
        tmp_path / "a.csv",
        tmp_path / "state",
        "at timestamp, local timestamp_ntz",
        options={"date_formats": ["%d.%m.%Y %H:%M %z", "%d.%m.%Y %H:%M"]},
    )
    assert strict(opened, splits(opened)) == [(datetime(2024, 2, 1, 8, tzinfo=UTC), datetime(2024, 2, 1, 10))]


def test_a_year_of_two_digits_is_read_by_the_format_that_has_it(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("day\n05/01/2026\n05/01/26\n")
    options = {"date_formats": ["%d/%m/%Y", "%d/%m/%y"]}
    opened = reader(tmp_path / "a.csv", tmp_path / "state", "day date", options=options)
    assert strict(opened, splits(opened)) == [(date(2026, 1, 5),), (date(2026, 1, 5),)]


def test_a_schema_is_inferred_by_the_options(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a note\n1;1,5;1.2.2024 10:00;\n")
    opened = reader(
        tmp_path / "a.csv",
        tmp_path / "state",
        None,
        options={
            **{"delimiter": ";", "decimal_point": ",", "date_formats": "%d.%m.%Y %H:%M", "skip_rows": 1},
            "column_names": ["id", "price", "at", "none"],
        },
    )
    assert opened.schema == pa.schema(
        {"id": pa.int64(), "price": pa.float64(), "at": pa.timestamp("us"), "none": pa.string()}
    )
    assert strict(opened, splits(opened)) == [(1, 1.5, datetime(2024, 2, 1, 10), None)]


def test_column_names_that_the_schema_does_not_have(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1,a\n")
    opened = reader(tmp_path / "a.csv", tmp_path / "state", options={"column_names": ["nr", "text"]})
    with pytest.raises(SourceError, match=r"has none of the columns .* its column_names are"):
        strict(opened, splits(opened))


def test_a_bad_element_of_an_array_is_a_bad_row(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b'[{"id": 1},\n{"id": "x",\n "y": 1}, 17, null, {"id": "\xff"}, {"id": 6}]')
    opened = reader(path, tmp_path / "state", "id long", include=["row"])
    rows, bad = tolerant(opened, splits(opened))
    assert rows == [(1, 1), (6, 6)]
    assert [row.position.rpartition("/")[2] for row in bad] == [f"a.json, element {number}" for number in (2, 3, 4, 5)]
    assert bad[0].payload == '{"id": "x",  "y": 1}'
    assert bad[1].error == bad[2].error == "not a JSON object"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('[{"id": 1}, {"id" 2}]', "element 2: not JSON"),
        ('[{"id": 1}, {"id": 2}', "element 2: the array is not closed"),
        ('[{"id": 1} {"id": 2}]', "element 1: no ']' here"),
        ('[{"id": 1}]\n{"id": 2}', "element 1: '{' behind the end of the array"),
        ('[{"id": 1},]', "element 2: not JSON"),
        ("[" * 1_100, "element 1: nested too deep"),
    ],
)
def test_an_array_that_ends_in_the_middle_is_an_error(text: str, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(text)
    opened = reader(path, tmp_path / "state", "id long")
    for read in (strict, tolerant):
        with pytest.raises(SourceError) as caught:
            read(opened, splits(opened))
        assert "can't be told apart" in str(caught.value.hint)
        assert f"a.json, {reason}" in caught.value.message


def test_the_schema_of_an_array_is_inferred(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('[\n  {"id": 1,\n "name": "x"}\n]\n')
    (tmp_path / "b.json").write_text("[]")
    rows = Environment().from_source(FileSource(tmp_path, format="json")).to_arrow().to_pylist()
    assert rows == [{"id": 1, "name": "x"}]


def put(folder: Path, format: str, ids: range) -> Path:
    """A file of several row groups, stripes or lines."""
    path = folder / f"a.{format}"
    to = {"csv": "format csv", "json": "format json", "array.json": "format json, array true"}
    written = to.get(format, "format parquet, row_group_size 2048")
    duckdb.sql(f"copy (select range as id from range({ids.start}, {ids.stop})) to '{path}' ({written})")
    return path


@pytest.mark.parametrize("format", ["parquet", "csv", "json", "array.json"])
def test_each_row_has_its_file_and_its_number_in_it(format: str, tmp_path: Path) -> None:
    path = put(tmp_path, format, range(10_000))
    options = {"newlines_in_values": False} if format == "csv" else {}
    source = FileSource(path, schema="id long", options=options, include=["row", "file"])
    expected = [(number, str(path), number + 1) for number in range(10_000)]
    for number, dictionaries in enumerate((False, True)):
        opened = source.open(SourceContext(str(tmp_path / f"state-{number}"), dictionaries=dictionaries))
        assert opened.schema.names == ["id", "file_path", "file_row"]
        # Only Parquet knows the number of its rows before a part.
        given = in_parts(opened, 3) if format == "parquet" else splits(opened)
        assert strict(opened, given) == tolerant(opened, given)[0] == expected


PARTS = "several tasks read a large file in parts"


@pytest.mark.parametrize(
    ("path", "settings", "told"),
    [
        ("in/*.csv.gz", {}, "one task reads a file, however large it is: compressed by gzip"),
        ("in/a.json.zst", {}, "one task reads a file, however large it is: compressed by zstd"),
        ("a.csv", {}, "fields may have newlines; newlines_in_values=False says that none has"),
        ("a.csv", {"options": {"newlines_in_values": False}}, f"{PARTS}; one task each: compressed files"),
        ("a.csv", {"options": {"newlines_in_values": False}, "include": ["row"]}, "numbered from its start"),
        ("in", {"format": "json"}, f"{PARTS}; one task each: JSON arrays and compressed files"),
        ("a.json", {"options": {"encoding": "utf-16"}}, "not in UTF-8"),
        ("a.orc", {"include": ["row"]}, "numbered from its start"),
        ("a.parquet", {"include": ["row", "file"]}, PARTS),
        ("a.avro", {}, "Avro has no index of its blocks"),
    ],
)
def test_explain_tells_which_files_one_task_reads(
    path: str, settings: dict[str, Any], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Environment().from_source(FileSource(path, **settings)).explain()
    assert capsys.readouterr().out.rstrip().endswith(told)


def test_included_columns_that_the_files_have_already(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("file_path\nx\n")
    with pytest.raises(Exception, match="have a column 'file_path', and include='file' adds one"):
        reader(tmp_path / "a.csv", tmp_path / "state", "file_path string", include="file")


def test_included_columns_are_those_of_the_stream(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id\n1\n2\n")
    stream = Environment().from_source(FileSource(tmp_path / "a.csv", include=["row"]))
    assert stream.columns == ["id", "file_row"]
    assert stream.filter_expr(col("file_row") > 1).to_arrow().to_pylist() == [{"id": 2, "file_row": 2}]


@pytest.mark.parametrize("parts", [2, 3, 40])
@pytest.mark.parametrize("skip", [0, 1])
@pytest.mark.parametrize("header", ['id,"na\nme"', '\ufeff\n\n"id","a\r\n\r\nid"', '"id",a\\\nb'])
def test_a_header_of_several_lines_stands_before_each_part(
    header: str, skip: int, parts: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("volley.formats.lines._PIECE", 16)
    rows = [(number, f"n{number}") for number in range(50)]
    text = "title\n" * skip + header + "\n" + "".join(f'{number},"{name}"\n' for number, name in rows)
    (tmp_path / "a.csv").write_text(text, newline="")
    options = {"newlines_in_values": False, "skip_rows": skip, "escape": "\\"}
    opened = reader(tmp_path / "a.csv", tmp_path / "state", "id long", options=options)
    assert strict(opened, in_parts(opened, parts)) == [(number,) for number, _ in rows]


def test_an_inferred_header_of_many_names_takes_time_in_proportion(tmp_path: Path) -> None:
    # Half a second of CPU; each name compared with all others took half a minute.
    count = 15_000
    (tmp_path / "a.csv").write_text(
        ",".join(f"k{number}" for number in range(count)) + "\n1" + ",1" * (count - 1) + "\n"
    )
    began = time.process_time()
    opened = reader(tmp_path / "a.csv", tmp_path / "state", None)
    assert strict(opened, splits(opened)) == [(1,) * count]
    assert time.process_time() - began < 8
