"""Where JSON rows were bad, rows that are bad likewise are looked for; Arrow reads the others."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from volley import FileSource, SourceContext
from volley.contracts.rows import BadRow, PositionedBatch
from volley.formats.json_columns import ObjectReader
from volley.formats.messages import JsonValues, MessageRows

COUNT, EVERY = 8_000, 50
SCHEMA = pa.schema(
    {"id": pa.int64(), "name": pa.string(), "at": pa.timestamp("us"), "who": pa.struct({"a": pa.int64()})}
)
BAD: dict[str, Callable[[int], str]] = {
    "text for a number": lambda number: f'{{"id": "x{number}"}}',
    "text for an object": lambda number: f'{{"id": 1, "who": "x{number}"}}',
    "no whole number": lambda number: f'{{"id": {number}.5}}',
    "too large": lambda number: f'{{"id": {number + 1}{"0" * 20}}}',
    "no time": lambda number: f'{{"id": 1, "at": "day {number}"}}',
    "no JSON": lambda number: f"line {number}",
    "cut off": lambda number: f'{{"id": {number}, "na',
}
OTHERS: list[Callable[[int], str]] = [
    *BAD.values(),
    lambda number: f'{{"who": {{"a": "x{number}"}}}}',
    lambda number: f'{{"id": {number}, "id": {number}}}',
]


def good(number: int) -> str:
    return f'{{"id": {number}, "name": "\\"id\\": {number}", "at": "2024-01-01T00:00:00", "who": {{"a": {number}}}}}'


def row(number: int) -> dict[str, Any]:
    return {"id": number, "name": f'"id": {number}', "who": {"a": number}}


@dataclass(frozen=True)
class Messages:
    values: Sequence[bytes | None]
    first: int = 0

    def part(self, start: int, end: int) -> Messages:
        return Messages(self.values[start:end], self.first + start)

    def position(self, row: int) -> str:
        return f"offset {self.first + row}"


def taken(items: Iterator[PositionedBatch | BadRow]) -> tuple[list[dict[str, Any]], list[tuple[str, str]]]:
    """The rows, without their times, and the payload and place of each bad one."""
    rows, bad = list[dict[str, Any]](), list[tuple[str, str]]()
    for item in items:
        if isinstance(item, BadRow):
            bad.append((item.payload, item.position.rpartition(", ")[2]))
        else:
            rows += item.batch.select(["id", "name", "who"]).to_pylist()
    return rows, bad


@pytest.fixture
def slowly(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many texts were read by themselves, call by call."""
    counts, sort = list[int](), ObjectReader.sort

    def counted(self: ObjectReader, texts: Sequence[bytes]) -> Any:
        counts.append(len(texts))
        return sort(self, texts)

    monkeypatch.setattr(ObjectReader, "sort", counted)
    return counts


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD.keys())
def test_lines_of_a_file_that_are_bad_alike_are_found(
    bad: Callable[[int], str], tmp_path: Path, slowly: list[int]
) -> None:
    lines = [bad(number) if number % EVERY == 0 else good(number) for number in range(COUNT)]
    (tmp_path / "a.json").write_text("\n".join(lines))
    reader = FileSource(tmp_path / "a.json", schema=SCHEMA).open(SourceContext(str(tmp_path / "state")))
    start = reader.initial_offset()
    (split,) = reader.splits(start, reader.latest_offset(start, None, None))
    rows, found = taken(reader.read_tolerant(split))
    assert rows == [row(number) for number in range(COUNT) if number % EVERY]
    assert found == [(lines[number], f"line {number + 1}") for number in range(0, COUNT, EVERY)]
    # The first piece shows what is bad.
    assert 0 < sum(slowly) < COUNT / 4


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD.keys())
def test_messages_that_are_bad_alike_are_found(bad: Callable[[int], str], slowly: list[int]) -> None:
    texts = [bad(number) if number % EVERY == 0 else good(number) for number in range(COUNT)]
    decoder = JsonValues(SCHEMA, "warn")
    rows = MessageRows(decoder, decoder.schema, lambda fields, chunk: [])
    values = [text.encode() for text in texts]
    chunks = [Messages(values[: COUNT // 2]), Messages(values[COUNT // 2 :], COUNT // 2)]
    read, found = taken(rows.read_tolerant(chunks))
    assert read == [row(number) for number in range(COUNT) if number % EVERY]
    assert found == [(texts[number], f"offset {number}") for number in range(0, COUNT, EVERY)]
    assert 0 < sum(slowly) < COUNT / 4


def test_rows_that_are_bad_each_in_another_way_are_found_too(tmp_path: Path) -> None:
    lines = [OTHERS[number // 1_000](number) if number % EVERY == 0 else good(number) for number in range(9_000)]
    (tmp_path / "a.json").write_text("\n".join(lines))
    reader = FileSource(tmp_path / "a.json", schema=SCHEMA).open(SourceContext(str(tmp_path / "state")))
    start = reader.initial_offset()
    (split,) = reader.splits(start, reader.latest_offset(start, None, None))
    rows, found = taken(reader.read_tolerant(split))
    assert rows == [row(number) for number in range(9_000) if number % EVERY]
    assert found == [(lines[number], f"line {number + 1}") for number in range(0, 9_000, EVERY)]


def test_messages_with_blanks_around_them_and_over_several_lines_are_rows() -> None:
    decoder = JsonValues(SCHEMA, "drop")
    rows = MessageRows(decoder, decoder.schema, lambda fields, chunk: [])
    values = [good(number).encode() for number in range(2_000)]
    values[10], values[1_500] = b'{"id": "x"}', b'{"id": "y"}'
    values[1_700], values[1_800] = b" " + values[1_700] + b"\n", json.dumps(row(1_800), indent=1).encode()
    read, found = taken(rows.read_tolerant([Messages(values), Messages([*values, None])]))
    one_pass = [row(number) for number in range(2_000) if number not in (10, 1_500)]
    assert read == [*one_pass, *one_pass, {"id": None, "name": None, "who": None}]
    assert [payload for payload, _ in found] == ['{"id": "x"}', '{"id": "y"}'] * 2


def test_an_object_over_several_lines_stays_one_where_bad_lines_are_found(tmp_path: Path) -> None:
    lines = ["no JSON" if number % EVERY == 0 else good(number) for number in range(COUNT)]
    # Its second line is an object by itself.
    lines[7_001] = '{"who":\n{"id": 4}\n}'
    (tmp_path / "a.json").write_text("\n".join(lines))
    reader = FileSource(tmp_path / "a.json", schema=SCHEMA).open(SourceContext(str(tmp_path / "state")))
    start = reader.initial_offset()
    (split,) = reader.splits(start, reader.latest_offset(start, None, None))
    rows, found = taken(reader.read_tolerant(split))
    expected = [row(number) for number in range(COUNT) if number % EVERY and number != 7_001]
    assert [each for each in rows if each["id"]] == expected
    assert [each for each in rows if not each["id"]] == [{"id": None, "name": None, "who": {"a": None}}]
    assert [payload for payload, _ in found] == ["no JSON"] * (COUNT // EVERY)
