"""Sorts lines of JSON, of which some are bad, into rows and bad rows: each line is decoded a few times at most."""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, pairwise
from typing import NamedTuple

import pyarrow as pa

from volley.columns.bisect import sort_failing
from volley.contracts.rows import BadRow, PositionedBatch
from volley.errors import SourceError
from volley.formats.input_file import InputFile, fault_at
from volley.formats.json_objects import spans_of_objects
from volley.formats.json_parser import JsonParser
from volley.formats.sorted_rows import Sorted

__all__ = ["good_only", "salvaged"]

_ERRORS = (pa.ArrowException, SourceError)
_OPENED = (b"{", b"[")
_PRETTY = "; the file looks pretty-printed: write one object a line, as `jq -c .` does"
# What may be looked at in vain for the ends of objects that span lines, per byte of text.
_LOOKS = 4


class _Line(NamedTuple):
    """One or more lines that are a unit, and the number of the first."""

    number: int
    text: bytes


def salvaged(file: InputFile, text: bytes, before: int, parser: JsonParser) -> Iterator[PositionedBatch | BadRow]:
    """Yield the rows of a text that can't be parsed as a whole, and its bad rows.

    Args:
        file: Its file, as errors name it.
        text: Whole lines.
        before: The number of lines before it.
        parser: Parses objects.
    """
    numbered = enumerate(text.split(b"\n"), before + 1)
    groups = _groups([_Line(number, line) for number, line in numbered if line.removeprefix(BOM_UTF8).strip()])

    def attempt(start: int, end: int) -> Iterator[PositionedBatch | BadRow]:
        lines = [line for group in groups[start:end] for line in group]
        batches = parser.parse(b"\n".join(line.text for line in lines), file.name)
        if sum(batch.num_rows for batch in batches) != len(lines):
            raise SourceError("not one object a line")
        return _items(file, lines, Sorted(batches, range(len(lines)), {}))

    def few(start: int, end: int) -> tuple[Iterator[PositionedBatch | BadRow], bool]:
        units = [unit for group in groups[start:end] for unit in _units(group)]
        rows = parser.sort([unit.text for unit in units], file.name)
        return _items(file, units, rows), bool(rows.faults)

    yield from chain.from_iterable(sort_failing(len(groups), attempt, few, _ERRORS))


def good_only(rows: Iterable[PositionedBatch | BadRow]) -> Iterator[pa.RecordBatch]:
    """Yield the batches; raise SourceError at the first bad row."""
    for item in rows:
        if isinstance(item, BadRow):
            raise fault_at(item.position, item.error, item.payload)
        yield item.batch


def _groups(lines: Sequence[_Line]) -> list[Sequence[_Line]]:
    """Cut lines where one object has ended and another begins: no object goes on there."""
    cuts = [
        index
        for index, (last, line) in enumerate(pairwise(lines), 1)
        if line.text.startswith(b"{") and last.text.rstrip().endswith(b"}")
    ]
    return [lines[start:end] for start, end in pairwise([0, *cuts, len(lines)])]


def _units(lines: Sequence[_Line]) -> Iterator[_Line]:
    """Yield each line, or each object of those that go over several lines."""
    rest, index, looks = [*lines], 0, _LOOKS * sum(len(line.text) for line in lines)
    while index < len(rest):
        line, index = rest[index], index + 1
        if index == len(rest) or looks < 0 or not _begins_an_object(line.text):
            yield line
            continue
        text, spans, looked = _objects(rest, index - 1)
        looks -= looked
        last = text.count("\n", 0, spans[-1][1]) if spans else 0
        if not last:
            yield line
            continue
        number = 0
        for before, (begin, end) in zip([0, *(begin for begin, _ in spans)], spans, strict=False):
            number += text.count("\n", before, begin)
            yield _Line(rest[index - 1 + number].number, text[begin:end].encode(errors="surrogateescape"))
        index += last
        if behind := text[spans[-1][1] :].partition("\n")[0].strip():
            index -= 1
            rest[index] = _Line(rest[index].number, behind.encode(errors="surrogateescape"))


def _begins_an_object(line: bytes) -> bool:
    return line.removeprefix(BOM_UTF8).lstrip().startswith(b"{")


def _objects(lines: Sequence[_Line], first: int) -> tuple[str, list[tuple[int, int]], int]:
    """Return the text from a line on, the places of the objects that begin there, and what was looked at in vain."""
    count, looked = 1, 0
    while True:
        text = b"\n".join(line.text for line in lines[first : first + count]).decode(errors="surrogateescape")
        spans, is_cut = spans_of_objects(text)
        looked += len(text)
        if not is_cut or first + count >= len(lines):
            return text, spans, 0 if spans else looked
        count *= 2


def _items(file: InputFile, lines: Sequence[_Line], rows: Sorted) -> Iterator[PositionedBatch | BadRow]:
    hint = _PRETTY if any(line.text.strip() in _OPENED for line in lines) else ""

    def position(number: int) -> str:
        return file.position(lines[number].number)

    def bad_row(number: int, fault: str) -> BadRow:
        payload = lines[number].text.decode(errors="replace").rstrip("\r")
        return BadRow(payload, fault + hint if fault.startswith("not ") else fault, position(number))

    return rows.items(position, bad_row)
