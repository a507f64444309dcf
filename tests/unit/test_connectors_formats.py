"""What is read from JSON, CSV and Parquet files, and what is said of those that can't be read."""

from __future__ import annotations

import bz2
import gzip
import json
import math
import re
from collections.abc import Callable
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from volley import ConfigError, FileSource, Reader, SourceContext, SourceError
from volley.formats import csv as csv_format
from volley.formats import json_chunks, json_lines


class Files:
    """A folder of files and what a FileSource reads from it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()

    def put(self, name: str, data: bytes | str) -> Files:
        (self.folder / name).write_bytes(data if isinstance(data, bytes) else data.encode())
        return self

    def open(self, dictionaries: bool = False, **settings: Any) -> Reader:
        (file,) = self.folder.iterdir()
        return FileSource(file, **settings).open(SourceContext(f"{self.folder}-state", dictionaries=dictionaries))

    def read(self, reader: Reader) -> list[pa.RecordBatch]:
        start = reader.initial_offset()
        splits = reader.splits(start, reader.latest_offset(start, None, None))
        return [batch for split in splits for batch in reader.read(split)]

    def batches(self, **settings: Any) -> list[pa.RecordBatch]:
        return self.read(self.open(**settings))

    def rows(self, **settings: Any) -> list[dict[str, Any]]:
        return [row for batch in self.batches(**settings) for row in batch.to_pylist()]

    def error(self, **settings: Any) -> SourceError:
        with pytest.raises(SourceError) as caught:
            self.batches(**settings)
        assert caught.value.hint
        assert str(self.folder) in caught.value.message
        return caught.value


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path / "in")


TYPES = (
    "i int, l long, d double, f float, b boolean, s string, m decimal(10,2), day date, at timestamp, "
    "local timestamp_ntz, clock time"
)
TEXTS = {
    "i": 1,
    "l": 2**60,
    "d": 1.5,
    "f": 0.25,
    "b": True,
    "s": "ä, ✓",
    "m": "1.25",
    "day": "2024-02-29",
    "at": "2024-02-29T12:00:00.000001+02:00",
    "local": "2024-02-29 12:00:00.5",
    "clock": "12:30:00.25",
}
VALUES = {
    **TEXTS,
    "m": Decimal("1.25"),
    "day": date(2024, 2, 29),
    "at": datetime(2024, 2, 29, 10, 0, 0, 1, UTC),
    "local": datetime(2024, 2, 29, 12, 0, 0, 500_000),
    "clock": time(12, 30, 0, 250_000),
}
NULLS = dict.fromkeys(TEXTS)


def test_json_types(files: Files) -> None:
    lines = [TEXTS, NULLS, {}, {"unknown": {"x": [1]}, "i": None}]
    files.put("a.json", "\n\n".join(map(json.dumps, lines)))
    assert files.rows(schema=TYPES) == [VALUES, NULLS, NULLS, NULLS]


def test_nested_json(files: Files) -> None:
    files.put(
        "a.json", '{"p": {"day": "2024-01-01", "x": 1, "more": 2}, "at": ["2024-01-01T00:00:00Z", null]}\n{"p": {}}\n'
    )
    assert files.rows(schema="p struct<day: date, x: int, y: string>, at array<timestamp>") == [
        {"p": {"day": date(2024, 1, 1), "x": 1, "y": None}, "at": [datetime(2024, 1, 1, tzinfo=UTC), None]},
        {"p": {"day": None, "x": None, "y": None}, "at": None},
    ]


@pytest.mark.parametrize("schema", ["m map<long, long>", "p struct<m: map<string, time>>", "t array<time>"])
def test_types_that_json_is_not_read_into(files: Files, schema: str) -> None:
    files.put("a.json", "{}")
    with pytest.raises(ConfigError, match="JSON can't be read into"):
        files.open(schema=schema)


@pytest.mark.parametrize("text", ["", "\n", " \n\n"])
@pytest.mark.parametrize("name", ["a.json", "a.csv"])
def test_a_file_without_rows(files: Files, name: str, text: str) -> None:
    assert files.put(name, text if name == "a.json" else text.strip(" ")).rows(schema="id long") == []


COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".zst": lambda data: bytes(pa.compress(data, "zstd", asbytes=True)),
    "": bytes,
}


@pytest.mark.parametrize("ending", COMPRESS)
def test_compressed_files(files: Files, ending: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_lines, "_CHUNK", 100)
    files.put(f"a.json{ending}", COMPRESS[ending]("".join(f'{{"id": {i}}}\n' for i in range(100)).encode()))
    assert files.rows(schema="id long") == [{"id": i} for i in range(100)]


@pytest.mark.parametrize("ending", COMPRESS)
def test_compressed_csv_files(files: Files, ending: str) -> None:
    files.put(f"a.csv{ending}", COMPRESS[ending](b"id\n1\n2\n"))
    assert files.rows() == [{"id": 1}, {"id": 2}]


@pytest.mark.parametrize("name", ["a.json.gz", "a.csv.gz"])
def test_a_compressed_file_cut_short(files: Files, name: str) -> None:
    whole = gzip.compress("".join(f'"{hash(i)}"\n' for i in range(1000)).encode())
    error = files.put(name, whole[: len(whole) // 2]).error(schema="id long")
    assert name in error.message


@given(
    lengths=st.lists(st.integers(0, 60), min_size=1, max_size=40),
    chunk=st.integers(1, 64),
    newline=st.sampled_from(["", "\n"]),
)
def test_chunks_are_whole_lines(lengths: list[int], chunk: int, newline: str) -> None:
    lines = [json.dumps({"s": "x" * length}) for length in lengths]
    data = ("\n".join(lines) + newline).encode()
    stream = pa.BufferReader(data[chunk:])
    chunks = list(json_chunks.chunks_of_objects(None, data[:chunk], stream, chunk))  # type: ignore[arg-type]
    assert b"".join(text for _, text in chunks) == data
    assert [before for before, _ in chunks] == [
        data[: sum(len(text) for _, text in chunks[:index])].count(b"\n") for index in range(len(chunks))
    ]
    assert all(text.endswith(b"\n") for _, text in chunks[:-1])


@pytest.mark.parametrize("chunk", [1 << 20, 300])
@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"id": 7', "not JSON"),
        ("garbage", "not JSON"),
        ("[1, 2]", "not a JSON object"),
        ("17", "not a JSON object"),
        ('{"id": "seven"}', "number to string"),
        ('{"id": 1.5}', "1.5"),
        ('{"id": 7, "day": "2024-02-30"}', "2024-02-30"),
        ('{"id": 7, "at": "noon"}', "noon"),
        ('{"id": 7, "id": 8}', "twice"),
    ],
)
def test_the_json_line_at_fault_is_named(
    files: Files, line: str, reason: str, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_lines, "_CHUNK", chunk)
    good = [json.dumps({"id": i, "day": "2024-02-29"}) for i in range(100)]
    text = "\n".join([*good[:76], "", line, *good[76:], "also garbage"])
    error = files.put("a.json", text).error(schema="id long, day date, at timestamp")
    assert "a.json, line 78: " in error.message
    assert reason in error.message
    assert line in error.message


def test_a_long_line_is_shown_in_part(files: Files) -> None:
    error = files.put("a.json", '{"id": "' + "x" * 5000).error(schema="id long")
    assert "line 1" in error.message
    assert len(error.message) < 500


def test_a_file_that_is_one_line_is_not_taken_into_memory(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_lines, "_CHUNK", 10)
    monkeypatch.setattr(json_chunks, "LARGEST_VALUE", 50)
    error = files.put("a.json", '{"id": 1}\n' + '[{"id": 1}, ' * 100).error(schema="id long")
    assert "line 2: longer than" in error.message


def test_json_inference(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_lines, "_SAMPLE", 100)
    line = '{"id": 1, "at": "2024-01-01T00:00:00Z", "x": null, "tags": ["a"], "p": {"y": 1.5}}\n'
    source = files.put("a.json", line + '{"id": "beyond the sample"}\n' * 5).open()
    assert source.schema == pa.schema(
        {
            "id": pa.int64(),
            "at": pa.timestamp("us"),
            "x": pa.string(),
            "tags": pa.list_(pa.string()),
            "p": pa.struct({"y": pa.float64()}),
        }
    )


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("garbage\n", "line 1: not JSON"),
        ('{"id": 1}\n{"id": \n{"id": 2}', "line 2: not JSON"),
        ('{"id": 1}\n{"id": 2}\n{"id": "x"}\n{"id": 3}\n', "line 3: JSON parse error: Column(/id) changed"),
    ],
)
def test_json_that_no_schema_can_be_inferred_from(files: Files, text: str, place: str) -> None:
    assert f"a.json, {place}" in files.put("a.json", text).error().message


@pytest.mark.parametrize(
    ("text", "column", "line"),
    [
        ('{"id": 1}\n{"id": 12345678901234567890}\n', "id", 2),
        ('{"id": 9007199254740993}\n{"id": 0.5}\n', "id", 2),
        ('{"a": [{"id": 1.5}], "s": "x"}\n{"a": [{"id": 9007199254740993}]}\n', "a", 2),
    ],
)
def test_json_does_not_infer_doubles_that_round_whole_numbers(files: Files, text: str, column: str, line: int) -> None:
    error = files.put("a.json", text).error()
    assert f"a.json, line {line}: column '{column}': a double would round" in error.message


def test_doubles_are_inferred_beside_long_numbers(files: Files) -> None:
    row = {"id": 9007199254740993, "x": 1.5, "s": "9007199254740993", "y": 2.0**60}
    files.put("a.json", f"{json.dumps(row)}\n")
    assert files.rows() == [row]


def test_csv_does_not_infer_doubles_that_round_whole_numbers(files: Files, tmp_path: Path) -> None:
    files.put("a.csv", "id,x,y\n9007199254740993,1.5,9007199254740992\n-1,,0.5\n")
    assert files.rows()[0] == {"id": 9007199254740993, "x": 1.5, "y": 2.0**53}
    error = Files(tmp_path / "bad").put("a.csv", "x,id\n1.5,1\n2.5,12345678901234567890\n").error()
    assert "a.csv: column 'id': a double would round 12345678901234567890" in error.message


def test_csv_types(files: Files) -> None:
    row = ";".join(str(value).lower() if value is True else str(value) for value in TEXTS.values())
    header = ";".join(TEXTS)
    files.put("a.csv", f"{header}\n{row}\n{';' * (len(TEXTS) - 1)}\n")
    assert files.rows(schema=TYPES, options={"delimiter": ";"}) == [VALUES, NULLS]


TEXTS_OF_NULL = ["NA", "N/A", "#N/A", "n/a", "NULL", "null", "nan", "NaN", "-NaN", "None"]


@pytest.mark.parametrize("schema", ["code string", None])
def test_only_an_empty_csv_field_is_null(files: Files, schema: str | None) -> None:
    files.put("a.csv", "code,n\n" + "".join(f"{text},1\n" for text in TEXTS_OF_NULL) + '"",2\n,3\n"NA",4\n')
    codes = [row["code"] for row in files.rows(schema=schema)]
    assert codes == [*TEXTS_OF_NULL, "", None, "NA"]


@pytest.mark.parametrize("end", ["\n", "\r\n", ""])
@pytest.mark.parametrize(("line", "row"), [('"x",', ("x", None)), ('"x",""', ("x", "")), (',"x"', (None, "x"))])
def test_an_empty_last_csv_field_is_null_whatever_ends_its_line(
    files: Files, line: str, row: tuple[str | None, ...], end: str
) -> None:
    files.put("1.csv", f"a,b\n1,2\n{line}{end}")
    found = files.rows(format="csv", schema="a string, b string")
    assert [tuple(each.values()) for each in found] == [("1", "2"), row]


def test_csv_texts_that_are_given_are_null_in_every_column(files: Files) -> None:
    files.put("a.csv", 'code,n,d\nNA,-,NA\n"NA",1,-\nNaN,2,NaN\n,,\n')
    options = {"null_values": ["NA", "-"]}
    for schema in ("code string, n long, d double", None):
        rows = files.rows(schema=schema, options=options)
        assert [row["code"] for row in rows] == [None, "NA", "NaN", None]
        assert [row["n"] for row in rows] == [None, 1, 2, None]
        assert rows[0]["d"] is rows[1]["d"] is rows[3]["d"] is None
        assert math.isnan(rows[2]["d"])


@pytest.mark.parametrize("kind", ["long", "boolean", "date", "timestamp", "decimal(9,2)"])
@pytest.mark.parametrize("text", ["NA", "NULL", "nan", '""'])
def test_a_csv_text_that_is_no_value_of_its_column_is_an_error(files: Files, kind: str, text: str) -> None:
    error = files.put("a.csv", f"v,n\n,1\n{text},2\n").error(schema=f"v {kind}")
    assert "a.csv, line 3: column 'v'" in error.message
    assert "null_values" in str(error.hint)


@pytest.mark.parametrize("kind", ["double", "float"])
def test_csv_texts_of_infinity_and_of_no_number(files: Files, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_format, "_BLOCK", 64)
    files.put("a.csv", "v\n" + "inf\n-Infinity\nNaN\n1.5\n" * 50)
    values = [row["v"] for row in files.rows(schema=f"v {kind}")]
    assert values[:2] == [math.inf, -math.inf]
    assert math.isnan(values[2])
    assert len(values) == 200


@pytest.mark.parametrize("block", [1 << 20, 64])
@pytest.mark.parametrize(("kind", "text"), [("double", "1e400"), ("double", "-1.8e308"), ("float", "1e39")])
def test_a_csv_number_too_large_for_its_column_is_an_error(
    files: Files, kind: str, text: str, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(csv_format, "_BLOCK", block)
    files.put("a.csv", "v,w\n" + "1.5,a\ninf,b\n,c\n" * 30 + f"{text},d\n2.5,e\n")
    message = files.error(schema=f"v {kind}, w string").message
    assert "a.csv, line 92: column 'v'" in message
    assert text in message


def test_csv_columns_with_infinity_in_the_same_rows(files: Files) -> None:
    rows = files.put("a.csv", "v,w\ninf,-inf\n1.5,inf\n").rows(schema="v double, w float")
    assert [tuple(row.values()) for row in rows] == [(math.inf, -math.inf), (1.5, math.inf)]


@pytest.mark.parametrize("block", [1 << 20, 64, 16])
@pytest.mark.parametrize("kind", ["int", "long"])
@pytest.mark.parametrize(
    "text",
    ["0x10", "0X1f", '"0x10"', "0x80000000", "0xffffffffffffffff", " 0x1", r"0\x1\0", '"0"x1F', r'"0"\x1F', '"0x"1F'],
)
def test_a_hexadecimal_csv_number_is_an_error(
    files: Files, kind: str, text: str, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(csv_format, "_BLOCK", block)
    files.put("a.csv", "n,v,w\n" + "1,5,x\n2,,10x20\n" * 30 + f"3,{text},d\n4,6,e\n")
    message = files.error(schema=f"n long, v {kind}, w string", options={"escape": "\\"}).message
    assert "a.csv, line 62: column 'v'" in message
    assert re.sub(r'[ \\"]', "", text) in message


@pytest.mark.parametrize("block", [1 << 20, 200, 130])
def test_hexadecimal_texts_beside_ints_stay(files: Files, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_format, "_BLOCK", block)
    texts = ["0x1F", "0x" + "ab" * 20, "10x20", "0x", "x"] * 10
    files.put("a.csv", "n,w,b\n" + "".join(f"{n},{text},{text}\n" for n, text in enumerate(texts)))
    rows = files.rows(schema="n int, w string, b binary")
    assert [(row["n"], row["w"], row["b"].decode()) for row in rows] == [
        (n, text, text) for n, text in enumerate(texts)
    ]


def test_a_column_of_hexadecimal_texts_is_inferred_as_a_string(files: Files) -> None:
    files.put("a.csv", "n,w,v\n1,0x1F,1.5\n2,7,\n3,0xffffffffffffffff,2\n")
    assert [tuple(row.values()) for row in files.rows()] == [
        (1, "0x1F", 1.5),
        (2, "7", None),
        (3, "0xffffffffffffffff", 2.0),
    ]


@pytest.mark.parametrize("text", ["", "\n", "id", "id\n", "\ufeffid", "id,name\r\n\r\n"])
def test_a_csv_file_without_rows(files: Files, text: str) -> None:
    assert files.put("a.csv", text).rows(schema="id long") == []


def test_csv_columns_are_taken_by_name(files: Files) -> None:
    files.put("a.csv", 'other,name,id\nx,"a, ""b""\nc",1\n' + "y,,2\n" * 3 + 'z,"",3\n')
    rows = files.rows(schema="id long, name string, missing double")
    assert rows[0] == {"id": 1, "name": 'a, "b"\nc', "missing": None}
    assert [row["name"] for row in rows[1:]] == [None, None, None, ""]


def test_columns_that_are_not_wanted_may_hold_anything(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_format, "_BLOCK", 64)
    files.put("a.csv", "id,x\n" + "1,1\n" * 100 + "1,text\n")
    assert len(files.rows(schema="id long")) == 101


@pytest.mark.parametrize(
    "text", ["2024-01-01T00:00:00Z", "2024-01-01 00:00:00", "2024-01-01", "2024-01-01T02:00:00+02:00"]
)
def test_csv_timestamps_with_and_without_zone(files: Files, text: str) -> None:
    assert files.put("a.csv", f"at\n{text}\n").rows(schema="at timestamp") == [{"at": datetime(2024, 1, 1, tzinfo=UTC)}]


def test_csv_without_a_header(files: Files) -> None:
    files.put("a.csv", "1,a\n2,b\n")
    assert files.rows(schema="id long, name string", options={"header": False}) == [
        {"id": 1, "name": "a"},
        {"id": 2, "name": "b"},
    ]


def test_a_header_that_is_none(files: Files) -> None:
    error = files.put("a.csv", "1,a\n2,b\n").error(schema="id long, name string")
    assert "none of the columns" in error.message
    assert "header" in str(error.hint)


def test_a_column_twice_in_the_header(files: Files) -> None:
    assert "'id' stands twice" in files.put("a.csv", "id,id\n1,2\n").error(schema="id long").message


@pytest.mark.parametrize("block", [1 << 20, 64])
@pytest.mark.parametrize("header", [True, False])
@pytest.mark.parametrize(
    ("row", "reason"),
    [("x,1,", "column 'id'"), ("1,2,3,4", "Expected 3 columns, got 4"), ("1,a,noon", "column 'at': 'noon'")],
)
def test_the_csv_row_at_fault_is_named_with_its_line(
    files: Files, row: str, reason: str, header: bool, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(csv_format, "_BLOCK", block)
    good = ['1,"two\n\nlines",', "", *["1,a,2024-01-01"] * 50]
    text = "\n".join([*(["id,name,at"] if header else []), *good, row, *good, row])
    error = files.put("a.csv", text).error(schema="id long, name string, at timestamp", options={"header": header})
    line = text.split(row)[0].count("\n") + 1
    assert f"a.csv, line {line}: " in error.message
    assert reason in error.message
    assert row in error.message


def test_csv_inference_and_its_errors(files: Files, tmp_path: Path) -> None:
    schema = pa.schema({"id": pa.int64(), "day": pa.date32(), "s": pa.string()})
    assert files.put("a.csv", "id,day,s\n1,2024-01-01,x\n").open().schema == schema
    assert "line 2" in Files(tmp_path / "bad").put("a.csv", "a,b\n1,2,3\n").error().message


@pytest.mark.parametrize("block", [64, 1 << 20])
@pytest.mark.parametrize("other", ["ok", '5" pipe', '"a ""quoted"" pipe"', '"a pipe,"', '""'])
def test_a_quote_that_is_never_closed_is_an_error(
    files: Files, other: str, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(csv_format, "_BLOCK", block)
    text = f"id,name\n1,{other}\n" + "1,ok\n" * 29 + '3,"lost\n4,b\n5,""\n'
    error = files.put("a.csv", text).error(schema="id long, name string")
    assert "a.csv, line 32: " in error.message
    assert "never closed" in error.message


def test_a_quote_that_is_never_closed_may_swallow_a_value_larger_than_pythons_limit(files: Files) -> None:
    text = 'id,name\n1,5" pipe\n3,"lost\n' + "4,b and the rest\n" * 20_000
    assert "a.csv, line 3: a quote is opened" in files.put("a.csv", text).error(schema="id long, name string").message


def test_types_that_csv_can_not_hold(files: Files) -> None:
    with pytest.raises(ConfigError, match="'tags'"):
        files.put("a.csv", "tags\n").open(schema="tags array<int>")


def parquet(files: Files, table: pa.Table, **options: Any) -> Files:
    pq.write_table(table, files.folder / "a.parquet", **options)
    return files


def test_parquet_columns_are_taken_by_name_and_type(files: Files) -> None:
    table = pa.table(
        {"b": pa.array([1, None], pa.int32()), "at": pa.array([0, 1], pa.timestamp("ms")), "other": [1, 2]}
    )
    parquet(files, table)
    assert files.rows(schema="missing string, at timestamp, b long") == [
        {"missing": None, "at": datetime(1970, 1, 1, tzinfo=UTC), "b": 1},
        {"missing": None, "at": datetime(1970, 1, 1, 0, 0, 0, 1000, UTC), "b": None},
    ]
    assert files.error(schema="missing string").message.endswith(
        "has none of the columns ['missing']: it has ['b', 'at', 'other']"
    )


def test_parquet_types_become_those_of_all_engines(files: Files) -> None:
    table = pa.table(
        {
            "kind": pa.array(["a", "b", "a"]).dictionary_encode(),
            "tiny": pa.array([1, 2, 3], pa.int8()),
            "at": pa.array([1000, 2000, 3000], pa.timestamp("ns", "Europe/Berlin")),
            "a.b": [1, 2, 3],
        }
    )
    parquet(files, table)
    assert files.open().schema == pa.schema(
        {"kind": pa.string(), "tiny": pa.int32(), "at": pa.timestamp("us", "UTC"), "a.b": pa.int64()}
    )


def test_parquet_that_does_not_fit_names_file_row_and_column(files: Files) -> None:
    parquet(files, pa.table({"id": ["1", "two"]}))
    assert "a.parquet, row 2: column 'id'" in files.error(schema="id long").message


def test_a_large_parquet_file_is_read_batch_by_batch(files: Files) -> None:
    parquet(files, pa.table({"id": range(200_000)}))
    batches = files.batches()
    assert [batch.num_rows for batch in batches] == [65_536, 65_536, 65_536, 3_392]


def test_parquet_keeps_dictionaries_of_few_values_for_sinks_that_take_them(files: Files) -> None:
    kinds = pa.array([None, "view", "click"]).take(pa.array([number % 3 for number in range(1000)]))
    table = pa.table(
        {
            "kind": kinds,
            "raw": kinds.cast(pa.binary()),
            "large": kinds.cast(pa.large_string()),
            "own": kinds.dictionary_encode(),
            "many": [f"{number:03}" for number in range(1000)],
            "its own many": pa.array([f"{number:03}" for number in range(1000)]).dictionary_encode(),
            "long": ["x" * 5_000] * 1000,
            "a.b": kinds,
            "in": pa.StructArray.from_arrays([kinds], ["kind"]),
        }
    )
    parquet(files, table, row_group_size=500)
    kept = files.read(files.open(dictionaries=True))
    for batch in kept:
        encoded = {field.name for field in batch.schema if pa.types.is_dictionary(field.type)}
        assert encoded == {"kind", "raw", "large", "own"}
        batch.validate(full=True)
    assert [row for batch in kept for row in batch.to_pylist()] == files.rows() == table.to_pylist()
    assert {batch.schema for batch in files.batches()} == {files.open().schema}


@pytest.mark.parametrize("keep", [0, 3, 100, -1, -9])
@pytest.mark.parametrize("schema", [None, "id long"])
def test_parquet_cut_short(files: Files, keep: int, schema: str | None) -> None:
    parquet(files, pa.table({"id": range(1000)}))
    whole = (files.folder / "a.parquet").read_bytes()
    error = files.put("a.parquet", whole[:keep]).error(schema=schema)
    assert "a.parquet" in error.message


def test_parquet_with_damaged_pages(files: Files) -> None:
    parquet(files, pa.table({"id": range(1000)}), compression="none", use_dictionary=False)
    whole = bytearray((files.folder / "a.parquet").read_bytes())
    whole[4:40] = b"\xff" * 36
    assert "not a whole Parquet file" in files.put("a.parquet", bytes(whole)).error(schema="id long").message
