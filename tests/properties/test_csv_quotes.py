"""Quotes of CSV anywhere in a text: a quote that is never closed is an error, and no other text is taken for one."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from tests.unit.test_file_options import reader, splits, strict, tolerant
from volley import Reader, SourceError
from volley.formats import csv as csv_format

values = st.lists(st.sampled_from(['"', '""', "a", "bc", "\\"]), max_size=4).map("".join)
rows = st.lists(st.tuples(values, values), min_size=1, max_size=6)


def is_open(text: str, escape: str | None) -> bool:
    """True if a value is still in quotes at the end, character by character."""
    begins, quoted, characters = True, False, iter(f"{text}.")
    for character in characters:
        if character == escape:
            next(characters, None)
            begins = False
        elif quoted:
            quoted = character != '"'
            # A second quote behind it is a part of the value, which goes on.
            begins = not quoted
        elif character == '"' and begins:
            quoted, begins = True, False
        else:
            begins = character in ",\r\n"
    return quoted


def failure(opened: Reader) -> str | None:
    """Why the file can't be read; None if it can."""
    try:
        strict(opened, splits(opened))
    except SourceError as error:
        return error.message
    return None


@pytest.mark.parametrize("escape", [None, "\\"])
@example(rows=[('"a"\\\\', '"b')], columns=2, end="\n", block=99)
@given(
    rows=rows, columns=st.integers(1, 2), end=st.sampled_from(["", "\n", "\r\n"]), block=st.sampled_from([16, 23, 99])
)
def test_a_quote_that_is_never_closed_is_found(
    rows: list[tuple[str, str]],
    columns: int,
    end: str,
    block: int,
    escape: str | None,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("csv")
    text = (end or "\n").join(",".join(row[:columns]) for row in rows) + end
    # A last escape has nothing to stand before.
    assume(escape is None or not text.rstrip().endswith(escape))
    (folder / "a.csv").write_text(text, newline="")
    options = {"header": False, "escape": escape}
    opened = reader(
        folder / "a.csv", folder / "state", "a string, b string" if columns == 2 else "a string", options=options
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv_format, "_BLOCK", block)
        patch.setattr("volley.formats.csv_quotes._TAIL", 8)
        problem = failure(opened)
    if problem is None:
        assert not is_open(text, escape)
    # Another mistake may come first; an escape at the end of a line is one, after which the next line may be told.
    elif not is_open(text, escape) and not any(f"{escape}{end}" in text for end in "\r\n"):
        assert "never closed" not in problem


@pytest.mark.parametrize("block", range(12, 40))
def test_a_line_end_in_quotes_is_whole_where_a_block_ends_in_it(
    block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.csv").write_bytes(b'1,"a\r\nb\r\n"\r\n2,"\r\n\r\n"\r\n3,c\r\n')
    monkeypatch.setattr(csv_format, "_BLOCK", block)
    opened = reader(tmp_path / "a.csv", tmp_path / "state", "a long, b string", options={"header": False})
    assert strict(opened, splits(opened)) == [(1, "a\r\nb\r\n"), (2, "\r\n\r\n"), (3, "c")]


@pytest.mark.parametrize("escape", [None, "\\"])
@given(rows=rows, end=st.sampled_from(["", "\n", "\r\n"]), block=st.sampled_from([23, 99]))
def test_rows_stay_the_same_beside_a_bad_row(
    rows: list[tuple[str, str]], end: str, block: int, escape: str | None, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("csv")
    text = (end or "\n").join(f"{number},{row[0]}" for number, row in enumerate(rows)) + end
    assume(escape is None or not text.rstrip().endswith(escape))
    options = {"header": False, "escape": escape}
    (folder / "a.csv").write_text(text, newline="")
    (folder / "b.csv").write_text(f"bad,\n{text}", newline="")
    schema = "a long, b string"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv_format, "_BLOCK", block)
        whole = reader(folder / "a.csv", folder / "whole", schema, options=options)
        try:
            expected = strict(whole, splits(whole))
        except SourceError:
            return
        opened = reader(folder / "b.csv", folder / "state", schema, options=options)
        found, bad = tolerant(opened, splits(opened))
    assert found == expected
    assert [row.payload for row in bad] == ["bad,"]
