"""Columns from the names of folders, as in ``day=2026-01-01/1.csv``: equal to DuckDB's, for all formats."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from tests.unit.test_unknown_fields import FORMATS, Rows, bad_rows_of, kind, rows_of
from volley import FileSource, Reader, SourceContext, SourceError
from volley.contracts.rows import PositionedBatch, taken_notes

__all__ = ["kind"]

DAY = dt.date(2026, 1, 1)


def put(folder: Path, kind: str, rows: Rows, name: str = "1") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    FORMATS[kind](folder / f"{name}.{kind}", rows)
    return folder


def opened(path: Path | str, state: Path | str, kind: str = "csv", **settings: Any) -> Reader:
    columns = settings.pop("columns", None)
    context = SourceContext(str(state), columns=columns, dictionaries=True)
    return FileSource(path, format=kind, **settings).open(context)  # type: ignore[arg-type]


def tolerant_rows_of(reader: Reader) -> Rows:
    start = reader.initial_offset()
    splits = reader.splits(start, reader.latest_offset(start, None, None))
    items = [item for split in splits for item in reader.read_tolerant(split)]
    return [row for item in items if isinstance(item, PositionedBatch) for row in item.batch.to_pylist()]


@pytest.mark.parametrize("read", [rows_of, tolerant_rows_of])
def test_all_formats_take_columns_from_folders(kind: str, read: Any, tmp_path: Path) -> None:
    put(tmp_path / "in/day=2026-01-01/city=S%C3%A8te", kind, [{"id": 1}, {"id": 2}])
    put(tmp_path / "in/day=__HIVE_DEFAULT_PARTITION__/city=a=b", kind, [{"id": 3}], "2")
    schema = "day date, id long, city string"
    rows = read(opened(tmp_path / "in", tmp_path / "state", kind, schema=schema, include=["row"]))
    assert sorted(rows, key=lambda row: row["id"]) == [
        {"day": DAY, "id": 1, "city": "Sète", "file_row": 1},
        {"day": DAY, "id": 2, "city": "Sète", "file_row": 2},
        {"day": None, "id": 3, "city": "a=b", "file_row": 1},
    ]
    assert taken_notes() == ()


@pytest.mark.parametrize("used", ["day", "id", "city"])
def test_only_a_column_that_is_used_is_read(kind: str, used: str, tmp_path: Path) -> None:
    put(tmp_path / "in/day=2026-01-01", kind, [{"id": 1}, {"id": 2}])
    schema = "day date, id long, city string"
    reader = opened(tmp_path / "in", tmp_path / "state", kind, schema=schema, columns=frozenset({used}))
    wanted = {"day": [DAY, DAY], "id": [1, 2], "city": [None, None]}
    assert [row[used] for row in rows_of(reader)] == wanted[used]


@pytest.mark.parametrize("policy", ["warn", "drop", "fail"])
def test_the_folder_s_value_stands_above_the_file_s(kind: str, policy: str, tmp_path: Path) -> None:
    put(tmp_path / "in/day=2026-01-01", kind, [{"id": 1, "day": "2020-02-02"}])
    reader = opened(tmp_path / "in", tmp_path / "state", kind, schema="id long, day date", on_unknown=policy)
    assert rows_of(reader) == [{"id": 1, "day": DAY}]
    assert tolerant_rows_of(reader) == [{"id": 1, "day": DAY}]
    assert taken_notes() == ()


def test_a_value_in_the_file_that_the_folder_replaces_is_not_looked_at(kind: str, tmp_path: Path) -> None:
    put(tmp_path / "in/day=2026-01-01", kind, [{"id": 1, "day": "New Year"}])
    reader = opened(tmp_path / "in", tmp_path / "state", kind, schema="id long, day date")
    assert (rows_of(reader), bad_rows_of(reader)) == ([{"id": 1, "day": DAY}], [])


def test_unknown_fields_are_kept_beside_a_folder_s_column(tmp_path: Path) -> None:
    put(tmp_path / "in/day=2026-01-01", "json", [{"id": 1, "day": "2020-02-02", "x": 2}])
    reader = opened(tmp_path / "in", tmp_path / "state", "json", schema="id long, day date", on_unknown="keep")
    assert rows_of(reader) == [{"id": 1, "day": DAY, "file_unknown": '{"x": 2}'}]


VALUES = {
    "long": ("-7", -7),
    "int": ("07", 7),
    "double": ("1.5", 1.5),
    "boolean": ("true", True),
    "decimal(9,2)": ("4.50", Decimal("4.50")),
    "string": ("__x__", "__x__"),
    "binary": ("a", b"a"),
    "date": ("2026-01-01", DAY),
    "timestamp": ("2026-01-01 10%3A00%3A00", dt.datetime(2026, 1, 1, 10, tzinfo=dt.UTC)),
    "timestamp_ntz": ("2026-01-01T10%3A00%3A00", dt.datetime(2026, 1, 1, 10)),
}


@pytest.mark.parametrize("data_type", VALUES)
def test_values_have_the_declared_type(data_type: str, tmp_path: Path) -> None:
    text, value = VALUES[data_type]
    put(tmp_path / f"in/key={text}", "csv", [{"id": 1}])
    assert rows_of(opened(tmp_path / "in", tmp_path / "state", schema=f"id long, key {data_type}"))[0]["key"] == value


@pytest.mark.parametrize(
    ("text", "data_type"),
    [
        ("soon", "date"),
        ("2026-02-30", "date"),
        ("1.5", "long"),
        ("", "int"),
        ("300", "struct<a: long>"),
    ],
)
def test_a_text_that_is_no_value_is_an_error_that_names_the_folder(text: str, data_type: str, tmp_path: Path) -> None:
    put(tmp_path / f"in/key={text}", "json", [{"id": 1}])
    reader = opened(tmp_path / "in", tmp_path / "state", "json", schema=f"id long, key {data_type}")
    for read in (rows_of, tolerant_rows_of):
        with pytest.raises(SourceError, match=rf"in/key={text}/1.json: the folder 'key={text}' has no {data_type[:4]}"):
            read(reader)


@pytest.mark.parametrize(
    ("folder", "fault"), [("a=1/a=2", "two folders name the column 'a'"), ("a=%FF", "is no UTF-8")]
)
def test_folders_that_name_no_one_value_are_an_error(folder: str, fault: str, tmp_path: Path) -> None:
    put(tmp_path / "in" / folder, "csv", [{"id": 1}])
    with pytest.raises(SourceError, match=fault):
        rows_of(opened(tmp_path / "in", tmp_path / "state", schema="id long, a string"))


@pytest.mark.parametrize(
    "folders",
    [
        ["day=2026-01-01/hour=1", "day=2026-01-02/hour=23"],
        ["hour=07", "hour=8"],
        ["hour=1", "hour=x", "hour=__HIVE_DEFAULT_PARTITION__"],
        ["a=caf%C3%A9%2Fx%3D1", "a=100%", "a=a+b"],
        ["_a=1", "_a=2"],
        ["a=", "a=1"],
        ["a=0", "a=-5"],
        ["id=5", "id=6"],
    ],
)
def test_inferred_columns_are_those_of_duckdb(folders: list[str], kind: str, tmp_path: Path) -> None:
    read_by_duckdb = "csv" if kind in ("orc", "avro") else kind
    for number, folder in enumerate(folders):
        put(tmp_path / "in" / folder, kind, [{"id": number}])
        put(tmp_path / "duck" / folder, read_by_duckdb, [{"id": number}])
    wanted = duckdb.sql(f"select * from read_{read_by_duckdb}('{tmp_path}/duck/*/**', hive_partitioning=true)")
    got = rows_of(opened(tmp_path / "in", tmp_path / "state", kind))
    assert set(got[0]) == set(wanted.columns)
    assert sorted(repr(tuple(row.values())) for row in got) == sorted(map(repr, wanted.select(*got[0]).fetchall()))


def test_files_outside_of_such_folders_have_null(tmp_path: Path) -> None:
    put(tmp_path / "in/a=1", "csv", [{"id": 1}])
    put(tmp_path / "in/a", "csv", [{"id": 2}])
    rows = rows_of(opened(tmp_path / "in", tmp_path / "state"))
    assert sorted(rows, key=repr) == [{"id": 1, "a": 1}, {"id": 2, "a": None}]


def test_a_csv_file_without_a_header_lacks_the_folder_s_columns(tmp_path: Path) -> None:
    put(tmp_path / "in/day=2026-01-01", "csv", [{"id": 1, "name": "ada"}])
    options = {"header": False, "skip_rows": 1}
    schema = "day date, id long, name string"
    reader = opened(tmp_path / "in", tmp_path / "state", schema=schema, options=options, columns=frozenset({"day"}))
    assert rows_of(reader) == [{"day": DAY, "id": 1, "name": "ada"}]


@pytest.mark.parametrize("schema", ["id long", "id long, x string"])
def test_a_folder_s_column_that_the_schema_lacks_is_an_unknown_field(schema: str, tmp_path: Path) -> None:
    file = put(tmp_path / "in/day=2026-01-01", "csv", [{"id": 1}]) / "1.csv"
    assert rows_of(opened(tmp_path / "in", tmp_path / "state", schema=schema))[0]["id"] == 1
    assert [str(field) for field in taken_notes()] == [
        f"field 'day' of {file} is in no column; its values are left out"
    ]
    with pytest.raises(SourceError, match="column 'day' is not in the schema"):
        rows_of(opened(tmp_path / "in", tmp_path / "state", schema=schema, on_unknown="fail"))


@pytest.mark.parametrize(
    ("path", "values"),
    [
        ("in", (1, 2)),
        ("in/*/*/*.csv", (1, 2)),
        ("in/a=1/b=*/*.csv", (None, 2)),
        ("in/a=1", (None, 2)),
        ("in/a=1/b=2/1.csv", (None, None)),
        ("in/a=[1]/**", (1, 2)),
    ],
)
@pytest.mark.parametrize("scheme", ["", "memory:/"])
def test_folders_count_below_the_path_or_where_its_glob_starts(
    scheme: str, path: str, values: tuple[Any, Any], tmp_path: Path
) -> None:
    root = tmp_path / "a=9"
    file = put(root / "in/a=1/b=2", "csv", [{"id": 1}]) / "1.csv"
    if scheme:
        fsspec.filesystem("memory").pipe_file(str(file), file.read_bytes())
    reader = opened(f"{scheme}{root}/{path}", tmp_path / "state", schema="id long, a long, b long")
    assert rows_of(reader) == [{"id": 1, "a": values[0], "b": values[1]}]


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    taken_notes()
    yield
    taken_notes()
    MemoryFileSystem.store.clear()
