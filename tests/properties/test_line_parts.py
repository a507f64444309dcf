"""Large text files are read in parts: every row once, whatever the cut, and bad ones told by where they stand."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from volley import FileSource, SourceContext, SourceError
from volley.connectors.files.listing import LoggedFile
from volley.contracts.rows import BadRow
from volley.formats import csv as csv_format
from volley.formats import json_chunks, json_lines

OPTIONS: dict[str, dict[str, Any]] = {"a.json": {}, "a.csv": {"newlines_in_values": False}}

# A row is a number, and a text that makes it long; a blank line is None, a bad one a text.
rows = st.lists(
    st.none() | st.tuples(st.integers(0, 10**9), st.text("aä✓😀 ", max_size=40)) | st.just("bad"), max_size=40
)


def parts(folder: Path, name: str, data: bytes, count: int, **options: Any) -> list[list[tuple[str, Any]]]:
    """What each part of a file holds: places and values of rows, places and payloads of bad ones."""
    path = folder / name
    path.write_bytes(data)
    source = FileSource(path, schema="n long, s string", options=options).open(SourceContext(f"{folder}/state"))
    file, found = LoggedFile(str(path), len(data)), []
    for part in range(count):
        here: list[tuple[str, Any]] = []
        for each in source.read_tolerant([(file, (part, count))]):
            if isinstance(each, BadRow):
                here.append((each.position, each.payload.removeprefix("\ufeff")))
            else:
                here += [(each.position(at), tuple(row.values())) for at, row in enumerate(each.batch.to_pylist())]
        found.append(here)
        if not any(isinstance(value, str) for _, value in here):
            strict = [
                tuple(row.values()) for batch in source.read([(file, (part, count))]) for row in batch.to_pylist()
            ]
            assert strict == [value for _, value in here]
    return found


def line_at(data: bytes, position: str) -> str:
    """The line that a position tells of."""
    told = re.fullmatch(r".*, line (\d+)(?: from byte (\d+) on)?", position)
    assert told, position
    return data[int(told[2] or 0) :].split(b"\n")[int(told[1]) - 1].rstrip(b"\r").decode("utf-8-sig")


def check(folder: Path, name: str, text: str, lines: list[str], values: list[Any], count: int, **options: Any) -> None:
    data = text.encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_lines, "_CHUNK", 64)
        patch.setattr(csv_format, "_BLOCK", 64)
        patch.setattr("volley.formats.lines._PIECE", 7)
        found = [each for part in parts(folder, name, data, count, **options) for each in part]
    assert [value for _, value in found] == [value for value in values if value is not None]
    wanted = [line for line, value in zip(lines, values, strict=True) if value is not None]
    assert [line_at(data, position) for position, _ in found] == wanted


@given(
    lines=rows,
    end=st.sampled_from(["\n", "\r\n"]),
    final=st.booleans(),
    count=st.integers(1, 40),
    bom=st.booleans(),
)
def test_any_cut_of_json_lines(
    lines: list[Any], end: str, final: bool, count: int, bom: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    texts = ["" if row is None else row if row == "bad" else f'{{"n": {row[0]}, "s": "{row[1]}"}}' for row in lines]
    text = ("\ufeff" if bom else "") + end.join(texts) + (end if final else "")
    check(tmp_path_factory.mktemp("cut"), "a.json", text, texts, lines, count)


@given(
    lines=rows,
    end=st.sampled_from(["\n", "\r\n"]),
    final=st.booleans(),
    count=st.integers(1, 40),
    header=st.booleans(),
)
def test_any_cut_of_csv_lines(
    lines: list[Any], end: str, final: bool, count: int, header: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    texts = ["" if row is None else row if row == "bad" else f'{row[0]},"{row[1]}"' for row in lines]
    if header:
        texts, lines = ["", "n,s", *texts], [None, None, *lines]
    text = ("\ufeff" if header else "") + end.join(texts) + (end if final else "")
    check(tmp_path_factory.mktemp("cut"), "a.csv", text, texts, lines, count, newlines_in_values=False, header=header)


def written(row: tuple[int, str], form: str) -> str:
    """An object as some program writes it."""
    value = {"n": row[0], "more": [{"n": 1}, {}], "s": row[1], "x": {"y": {"z": "}{"}}}
    if form == "a line":
        return json.dumps(value)
    text = json.dumps(value, indent=form.count(" "), ensure_ascii=False)
    return "  " + text.replace("\n", "\n  ") if form == "all  indented" else text


@given(
    rows=st.lists(st.tuples(st.integers(0, 10**9), st.text('aä"✓😀 ', max_size=40)), max_size=30),
    forms=st.lists(st.sampled_from(["a line", "flat", "two  spaces", "all  indented"]), min_size=1, max_size=4),
    between=st.sampled_from(["\n", "\r\n", "\n\n", " \n", "\n \r\n\t", "", " "]),
    count=st.integers(1, 40),
    chunk=st.integers(30, 300),
)
def test_any_cut_of_objects_over_several_lines(
    rows: list[tuple[int, str]],
    forms: list[str],
    between: str,
    count: int,
    chunk: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    text = between.join(written(row, forms[at % len(forms)]) for at, row in enumerate(rows))
    text = text.replace("\n", "\r\n") if between == "\r\n" else text
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_lines, "_CHUNK", chunk)
        patch.setattr(json_chunks, "_PIECE", 7)
        found = parts(tmp_path_factory.mktemp("cut"), "a.json", text.encode(), count)
    assert [value for part in found for _, value in part] == rows


def test_parts_of_a_pretty_printed_file_share_its_objects(tmp_path: Path) -> None:
    text = "\n".join(json.dumps({"n": number, "s": "x", "more": [1, 2, {}]}, indent=2) for number in range(90))
    found = parts(tmp_path, "a.json", text.encode(), 9)
    assert [value[0] for part in found for _, value in part] == [*range(90)]
    assert all(8 <= len(part) <= 12 for part in found)


def test_a_line_longer_than_many_parts_is_in_the_first_of_them(tmp_path: Path) -> None:
    text = "x" * 5_000_000
    data = f'{{"n": 1, "s": "a"}}\n{{"n": 2, "s": "{text}"}}\n{{"n": 3, "s": "b"}}\n'.encode()
    found = parts(tmp_path, "a.json", data, 10)
    assert [[value[0] for _, value in part] for part in found] == [[1, 2], *[[]] * 8, [3]]


@pytest.mark.parametrize("name", ["a.json", "a.csv"])
def test_an_error_in_a_later_part_says_where(name: str, tmp_path: Path) -> None:
    lines = ["n,s", *(f'{number},"x"' for number in range(100))]
    if name == "a.json":
        lines = [f'{{"n": {number}, "s": "x"}}' for number in range(100)]
    lines[70] = "broken"
    data = "\n".join(lines).encode()
    (tmp_path / name).write_bytes(data)
    source = FileSource(tmp_path / name, schema="n long, s string", options=OPTIONS[name])
    reader = source.open(SourceContext(f"{tmp_path}/state"))
    with pytest.raises(SourceError) as caught:
        list(reader.read([(LoggedFile(str(tmp_path / name), len(data)), (1, 2))]))
    assert line_at(data, caught.value.message.partition(": ")[0]) == "broken"


@given(texts=st.lists(st.text('ab",\n', max_size=12), min_size=1, max_size=20), count=st.integers(2, 20))
def test_a_cut_within_a_value_that_has_a_newline_is_never_taken_for_rows(
    texts: list[str], count: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("cut") / "a.csv"
    data = "n,s\n" + "".join(f'{number},"{text.replace(chr(34), chr(34) * 2)}"\n' for number, text in enumerate(texts))
    path.write_bytes(data.encode())
    source = FileSource(path, schema="n long, s string", options=OPTIONS["a.csv"]).open(SourceContext(f"{path}-state"))
    split = [(LoggedFile(str(path), len(data)), (part, count)) for part in range(count)]
    with suppress(SourceError):
        found = [tuple(row.values()) for batch in source.read(split) for row in batch.to_pylist()]
        assert found == list(enumerate(texts))
