"""Files with any mix of good, bad and blank lines: good rows in order, bad ones once each with text and place."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.test_tolerant_reading import lines_of, read_text
from volley.formats import csv as csv_format
from volley.formats import json_lines

# Each line is its number if it is good, None if it is blank, else the text of a bad one.
mixed = st.lists(st.sampled_from(["good", "good", "good", "", "bad", "wrong"]), min_size=1, max_size=60)


@given(kinds=mixed, end=st.sampled_from(["\n", "\r\n"]), final=st.booleans())
def test_any_mix_of_json_lines(
    kinds: list[str], end: str, final: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    made = {"bad": '{"id": ', "wrong": '{"id": "x"}', "": ""}
    lines = [made.get(kind, f'{{"id": {number}}}') for number, kind in enumerate(kinds, 1)]
    check_mix("json", kinds, lines, end.join(lines) + (end if final else ""), tmp_path_factory)


@given(kinds=mixed, end=st.sampled_from(["\n", "\r\n"]), final=st.booleans())
def test_any_mix_of_csv_lines(
    kinds: list[str], end: str, final: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    made = {"bad": "1,2,3", "wrong": "x,a", "": ""}
    lines = [made.get(kind, f'{number},"a"') for number, kind in enumerate(kinds, 1)]
    lines[0], kinds[0] = "id,name", ""
    check_mix("csv", kinds, lines, end.join(lines) + (end if final else ""), tmp_path_factory)


def check_mix(format: str, kinds: list[str], lines: list[str], text: str, factory: pytest.TempPathFactory) -> None:
    """Small chunks, so that bad lines stand at their ends too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_lines, "_CHUNK", 64)
        patch.setattr(csv_format, "_BLOCK", 64)
        rows, letters = read_text(factory.mktemp("mix"), f"a.{format}", text, "id long, name string")
    good = [number for number, kind in enumerate(kinds, 1) if kind == "good"]
    assert [value for _, value in rows] == lines_of(rows) == good
    bad = [number for number, kind in enumerate(kinds, 1) if kind in ("bad", "wrong")]
    assert letters == [(f"a.{format}, line {number}", lines[number - 1]) for number in bad]
