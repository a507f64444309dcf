"""Rows of CSV behind a bad one are read in blocks: each with its line, wherever a block ends."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from volley import FileSource, SourceContext
from volley.contracts.rows import BadRow

BAD = {3: "x,a", 40: "1", 90: "0x1F,b", 120: ",,", 160: "5,\udcff", 199: "y,z"}
Rows = tuple[list[tuple[int, str, str]], list[tuple[str, str]]]


def read(path: Path, **options: Any) -> Rows:
    """Return the rows with their lines, and the bad ones: their texts and lines."""
    source = FileSource(path, format="csv", schema="id long, name string", options=options)
    reader = source.open(SourceContext(f"{path}-state"))
    start = reader.initial_offset()
    rows, bad = [], []
    for split in reader.splits(start, reader.latest_offset(start, None, None)):
        for item in reader.read_tolerant(split):
            if isinstance(item, BadRow):
                bad.append((item.payload, item.position.rpartition(" ")[2]))
            else:
                rows += [(*row.values(), item.position(at).rpartition(" ")[2])
                         for at, row in enumerate(item.batch.to_pylist())]  # fmt: skip
    return rows, bad


@pytest.mark.parametrize("block", [30, 1000])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"], ids=repr)
@pytest.mark.parametrize("name", ["n", '"n, n"', '"two\n\nlines"', '"a ""n"""', '5" nail', '"n"n"'])
@pytest.mark.parametrize("before", ["", "\ufeff\n"], ids=ascii)
def test_rows_behind_a_bad_one_keep_their_lines(
    block: int, end: str, name: str, before: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("volley.formats.csv_blocks._SIZE", block)
    blank = {50, 51, 190}
    lines = [BAD.get(number, f"{number},{name if number % 7 == 0 else 'é'}") for number in range(200)]
    text = "".join(
        ("\n" if number in blank else "") + f"{line}\n" for number, line in enumerate(["id,name", *lines], -1)
    )
    (tmp_path / "a.csv").write_bytes((before + text).replace("\n", end).encode(errors="surrogateescape"))
    starts, line = [], 2 + before.count("\n")
    for number in range(200):
        line += number in blank
        starts.append(str(line))
        line += 1 + lines[number].count("\n")
    rows, bad = read(tmp_path)
    assert [(number, place) for number, _, place in rows] == [
        (number, starts[number]) for number in range(200) if number not in BAD
    ]
    value = {'"n"n"': 'nn"', '"a ""n"""': 'a "n"', '5" nail': name}.get(name, name.strip('"')).replace("\n", end)
    assert {text for number, text, _ in rows if number % 7 == 0} == {value}
    assert bad == [(text.replace("\udcff", "\ufffd"), starts[number]) for number, text in BAD.items()]


@pytest.mark.parametrize("block", [10, 30, 1 << 20])
def test_a_quote_that_is_never_closed_spoils_its_own_row_alone(
    block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("volley.formats.csv_blocks._SIZE", block)
    lines = ["x,a", '1,"b"', '2,"open', *(f"{number},c" for number in range(3, 50)), "51,d"]
    (tmp_path / "a.csv").write_text("\n".join(["id,name", *lines]))
    rows, bad = read(tmp_path)
    assert rows == [(1, "b", "3"), *((number, "c", f"{number + 2}") for number in range(3, 50)), (51, "d", "52")]
    assert bad == [("x,a", "2"), ('2,"open', "4")]


@pytest.mark.parametrize("seed", range(15))
def test_blocks_are_the_rows_that_are_read_one_by_one(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pick = random.Random(seed)
    odd = ['"', "\n", "\r", '""', '"a', 'b"', '"a"b', "\\", '\\"', "\\\n", ",", "\udcff", "\U0010ff85", "", "é"]
    names = [pick.choice(odd if pick.random() < 0.1 else ['"n, n"', "n", '"n\nn"', '""']) for _ in range(200)]
    text = "x,y\n" + "".join(f"{number},{name}\n" for number, name in enumerate(names))
    (tmp_path / "a.csv").write_bytes(text[: pick.choice([-1, None])].encode(errors="surrogateescape"))
    options: dict[str, Any] = {"header": False, **pick.choice([{}, {"escape": "\\"}, {"quote": None}])}
    for way in ("_whole_lines", "_plain"):
        monkeypatch.setattr(f"volley.formats.csv_blocks.{way}", lambda *_: None)
    expected = read(tmp_path, **options)
    monkeypatch.undo()
    for size in (20, 200, 1 << 20):
        monkeypatch.setattr("volley.formats.csv_blocks._SIZE", size)
        assert read(tmp_path, **options) == expected
