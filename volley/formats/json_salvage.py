"""Sorts lines of JSON, of which some are bad, into rows and bad rows: each line is decoded a few times at most."""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, pairwise
from typing import NamedTuple

import pyarrow as pa

from volley.columns.bisect import sort_failing
from volley.contracts.bad_rows import BadRow, PositionedBatch
from volley.errors import SourceError
from volley.formats.input_file import InputFile, fault_at
from volley.formats.json_objects import lines_of_object
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
    """Yield each line, or several that are one object."""
    index, looks = 0, _LOOKS * sum(len(line.text) for line in lines)
    while index < len(lines):
        count = 1
        if index + 1 < len(lines) and looks > 0 and _begins_an_object(lines[index].text):
            count, looked = _span(lines, index)
            looks -= looked
        yield _Line(lines[index].number, b"\n".join(line.text for line in lines[index : index + count]))
        index += count


def _begins_an_object(line: bytes) -> bool:
    return line.removeprefix(BOM_UTF8).lstrip().startswith(b"{")


def _span(lines: Sequence[_Line], first: int) -> tuple[int, int]:
    """Return over how many lines an object goes, 1 if it has no end; and how many bytes were looked at in vain."""
    count, looked = 1, 0
    while True:
        text = b"\n".join(line.text for line in lines[first : first + count])
        span = lines_of_object(text)
        looked += len(text)
        if span is not None:
            return (span, 0) if span else (1, looked)
        if first + count >= len(lines):
            return 1, looked
        count *= 2


def _items(file: InputFile, lines: Sequence[_Line], rows: Sorted) -> Iterator[PositionedBatch | BadRow]:
    hint = _PRETTY if any(line.text.strip() in _OPENED for line in lines) else ""

    def position(number: int) -> str:
        return file.position(lines[number].number)

    def bad_row(number: int, fault: str) -> BadRow:
        payload = lines[number].text.decode(errors="replace").rstrip("\r")
        return BadRow(payload, fault + hint if fault.startswith("not ") else fault, position(number))

    return rows.items(position, bad_row)
