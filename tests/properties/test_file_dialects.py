"""CSV of any dialect and arrays of JSON: the rows that were written, and that DuckDB reads."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.test_file_options import NAMES, Rows, in_parts, reader, small_pieces, splits, strict, tolerant

__all__ = ["small_pieces"]

texts = st.text(st.sampled_from("ab ,;|\"'\\^.é😀NA\n"), max_size=8)
csv_rows = st.lists(
    st.tuples(
        st.integers(-(2**40), 2**40),
        st.none() | texts,
        st.none() | st.integers(-(10**6), 10**6).map(lambda number: number / 8),
        st.none() | st.decimals(-(10**6), 10**6, places=2),
        st.none() | st.dates(date(1970, 1, 1), date(2200, 1, 1)),
    ),
    min_size=1,
    max_size=20,
)
dialects = st.fixed_dictionaries(
    {
        "delimiter": st.sampled_from(",;|\t"),
        "quote": st.sampled_from("\"'"),
        "escape": st.sampled_from([None, "\\", "^"]),
        "decimal_point": st.sampled_from(".,"),
        "date_formats": st.sampled_from([(), ("%d.%m.%Y",), ("%Y/%m/%d", "%m-%d-%Y")]),
        "null_values": st.sampled_from([(), ("NA",), ("-", "NA")]),
        "skip_rows": st.integers(0, 3),
    }
)


def quoted(text: str, options: dict[str, Any]) -> str:
    quote, escape = options["quote"], options["escape"]
    inner = text.replace(quote, quote * 2) if escape is None else text.replace(escape, escape * 2)
    return f"{quote}{inner if escape is None else inner.replace(quote, escape + quote)}{quote}"


def field(value: Any, number: int, options: dict[str, Any]) -> str:
    """A value as it stands in row `number`: nulls, numbers and dates without quotes where that is possible."""
    formats = options["date_formats"] or ("%Y-%m-%d",)
    match value:
        case None:
            return next(iter(options["null_values"]), "")
        case str():
            return quoted(value, options)
        case date():
            return value.strftime(formats[number % len(formats)])
    text = str(value).replace(".", options["decimal_point"])
    return quoted(text, options) if options["delimiter"] in text else text


def csv_text(rows: Rows, options: dict[str, Any], header: bool) -> str:
    lines = [[field(value, number, options) for value in row] for number, row in enumerate(rows)]
    head = ["something else"] * options["skip_rows"]
    return "".join(
        f"{line}\n" for line in [*head, *map(options["delimiter"].join, [NAMES, *lines] if header else lines)]
    )


def by_duckdb(path: Path, options: dict[str, Any], header: bool) -> Rows:
    read = duckdb.read_csv(
        str(path),
        **{"sep": options["delimiter"], "quotechar": options["quote"], "skiprows": options["skip_rows"]},
        escapechar=options["escape"] or options["quote"],
        header=header,
        na_values=["", *options["null_values"]],
        allow_quoted_nulls=False,
        decimal=options["decimal_point"],
        columns=dict(zip(NAMES, ["bigint", "varchar", "double", "decimal(9,2)", "varchar"], strict=True)),
        auto_detect=False,
        parallel=False,
    )
    formats = list(options["date_formats"] or ["%Y-%m-%d"])
    return read.project(f"id, name, price, exact, strptime(day, {formats})::date").fetchall()


@pytest.mark.usefixtures("small_pieces")
@given(rows=csv_rows, options=dialects, header=st.booleans(), parts=st.integers(1, 5))
def test_csv_of_any_dialect(
    rows: Rows, options: dict[str, Any], header: bool, parts: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("csv")
    path = folder / "a.csv"
    path.write_text(csv_text(rows, options, header))
    assert by_duckdb(path, options, header) == rows
    names = {} if header else {"column_names": NAMES}
    opened = reader(path, folder / "state", options={**options, **names})
    assert strict(opened, splits(opened)) == rows
    assert tolerant(opened, splits(opened)) == (rows, [])
    if not any("\n" in (name or "") for _, name, *_ in rows):
        opened = reader(path, folder / "parts", options={**options, **names, "newlines_in_values": False})
        assert strict(opened, in_parts(opened, parts)) == rows
    # Columns are taken by their names.
    opened = reader(path, folder / "one", "day date, id long", options={**options, **names})
    assert strict(opened, splits(opened)) == [(row[4], row[0]) for row in rows]


json_rows = st.lists(
    st.tuples(
        st.none() | st.integers(-(2**40), 2**40),
        st.none() | texts,
        st.lists(st.none() | st.dictionaries(st.just("x"), texts), max_size=3),
    ),
    max_size=20,
)


@pytest.mark.usefixtures("small_pieces")
@given(
    rows=json_rows,
    indent=st.sampled_from([None, 0, 2]),
    parts=st.integers(1, 4),
    pad=st.sampled_from(["", "\ufeff\n "]),
)
def test_json_arrays(
    rows: Rows, indent: int | None, parts: int, pad: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("json")
    path = folder / "a.json"
    objects = [dict(zip(["id", "name", "tags"], row, strict=True)) for row in rows]
    path.write_text(pad + json.dumps(objects, indent=indent, ensure_ascii=indent is None) + "\n")
    opened = reader(path, folder / "state", "id long, name string, tags array<struct<x: string>>")
    expected = [
        (number, name, [None if tag is None else {"x": tag.get("x")} for tag in tags]) for number, name, tags in rows
    ]
    assert strict(opened, splits(opened)) == strict(opened, in_parts(opened, parts)) == expected
    assert tolerant(opened, splits(opened)) == (expected, [])
    if rows and not pad:
        columns = {"id": "bigint", "name": "varchar", "tags": "struct(x varchar)[]"}
        assert duckdb.read_json(str(path), format="array", columns=columns).fetchall() == expected
