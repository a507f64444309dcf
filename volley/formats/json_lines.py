"""Reads JSON lines, or a JSON array, as Arrow batches, in chunks of whole lines; errors name the bad line."""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property, partial
from itertools import accumulate, chain
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from volley.columns.bisect import first_failing, sort_failing
from volley.columns.letters import column_in, payload_of
from volley.contracts.rows import BadRow, PositionedBatch
from volley.errors import SourceError
from volley.formats.files import FormatReader
from volley.formats.input_file import InputFile
from volley.formats.json import check, fault, inferred
from volley.formats.json_chunks import chunks_of_objects, elements, elements_of, is_array, last_cut, part_of_objects
from volley.formats.json_contract import parser_of
from volley.formats.json_objects import spans_of_objects
from volley.formats.json_parser import JsonParser
from volley.formats.options import JsonOptions
from volley.formats.rows import Sorted

__all__ = ["FORMAT", "texts_of"]

_ERRORS = (pa.ArrowException, SourceError)
_OPENED = frozenset((b"{", b"["))
_BEGIN, _END = b"{}"
_PRETTY = "; the file looks pretty-printed: write one object a line, as `jq -c .` does"
# What may be looked at in vain for the ends of objects that span lines, per byte of text.
_LOOKS = 4


class _Line(NamedTuple):
    """One or more lines that are a unit, and the number of the first."""

    number: int
    text: bytes


class _Units(NamedTuple):
    """Lines, or what is a unit of several, and the number of the first of each."""

    numbers: Sequence[int]
    texts: Sequence[bytes]


def salvaged(file: InputFile, text: bytes, before: int, parser: JsonParser) -> Iterator[PositionedBatch | BadRow]:
    """Yield the rows of a text that can't be parsed as a whole, and its bad rows.

    Args:
        file: Its file, as errors name it.
    """
    if found := parser.sort_likely(text, file.name, _units_of):
        yield from _items(file, range(before + 1, before + 2 + len(text)), found.texts, found.rows)
        return
    lines = _lines(text, before)
    cuts = [0, *_cuts(lines.texts), len(lines.texts)]
    units = lines if len(cuts) == len(lines.texts) + 1 else _units_between(lines, cuts)
    if sorted_units := parser.sort_quickly(units.texts, file.name):
        yield from _items(file, *units, sorted_units)
        return

    def attempt(start: int, end: int) -> Iterator[PositionedBatch | BadRow]:
        part = _Units(lines.numbers[cuts[start] : cuts[end]], lines.texts[cuts[start] : cuts[end]])
        batches = parser.parse(b"\n".join(part.texts), file.name)
        if sum(batch.num_rows for batch in batches) != len(part.texts):
            raise SourceError("not one object a line")
        return _items(file, *part, Sorted(batches, range(len(part.texts)), {}))

    def few(start: int, end: int) -> tuple[Iterator[PositionedBatch | BadRow], bool]:
        units = _units_between(lines, cuts[start : end + 1])
        rows = parser.sort(units.texts, file.name)
        return _items(file, *units, rows), bool(rows.faults)

    yield from chain.from_iterable(sort_failing(len(cuts) - 1, attempt, few, _ERRORS))


def _units_of(first: int, text: bytes) -> Iterable[tuple[int, bytes]]:
    """Return the units of some lines, each with the number of its first line, given that of the first of all."""
    if b"\n" not in text:
        return [(first, text)] if text.strip() else ()
    lines = _lines(text, first - 1)
    if len(lines.texts) > text.count(b"\n"):
        return _units([*map(_Line, *lines)])
    # Without blank lines between them, others may stand right behind each other.
    return zip(*_units_between(lines, [0, *_cuts(lines.texts), len(lines.texts)]), strict=True) if lines.texts else ()


def _lines(text: bytes, before: int) -> _Units:
    """Return the lines that are not blank."""
    lines = text.removesuffix(b"\n").split(b"\n")
    numbers = range(before + 1, before + 1 + len(lines))
    if all(map(bytes.strip, lines)) and not text.startswith(BOM_UTF8):
        return _Units(numbers, lines)
    known = [pair for pair in zip(numbers, lines, strict=True) if pair[1].removeprefix(BOM_UTF8).strip()]
    return _Units([number for number, _ in known], [line for _, line in known])


def _cuts(lines: Sequence[bytes]) -> list[int]:
    """Return where one object has ended and another begins: no object goes on there."""
    text = np.frombuffer(b"\n".join(lines), np.uint8)
    starts = np.cumsum(np.fromiter(map(len, lines), np.int64, len(lines)) + 1)[:-1]
    begun = text[starts] == _BEGIN
    ended = text[starts - len(b"}\n")] == _END
    # Few lines have blanks behind their object.
    for number in np.flatnonzero(begun & ~ended).tolist():
        ended[number] = lines[number].rstrip().endswith(b"}")
    cuts: list[int] = (np.flatnonzero(begun & ended) + 1).tolist()
    return cuts


def _units_between(lines: _Units, cuts: Sequence[int]) -> _Units:
    """Return each line that is alone between two cuts, and the units of others."""
    numbers, texts, at = list[int](), list[bytes](), cuts[0]
    for last in np.flatnonzero(np.diff(cuts) > 1).tolist():
        start, end = cuts[last], cuts[last + 1]
        numbers += lines.numbers[at:start]
        texts += lines.texts[at:start]
        for number, text in _units([_Line(lines.numbers[at], lines.texts[at]) for at in range(start, end)]):
            numbers.append(number)
            texts.append(text)
        at = end
    return _Units([*numbers, *lines.numbers[at : cuts[-1]]], [*texts, *lines.texts[at : cuts[-1]]])


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


def _items(
    file: InputFile, lines: Sequence[int], texts: Sequence[bytes] | Mapping[int, bytes], rows: Sorted
) -> Iterator[PositionedBatch | BadRow]:
    """Yield rows and bad rows.

    Args:
        lines: The number of the first line of each unit.
        texts: The texts of all units, or of the bad ones.
    """

    def position(number: int) -> str:
        return file.position(lines[number])

    @cache
    def hint() -> str:
        return "" if _OPENED.isdisjoint(texts[number].strip() for number in rows.faults) else _PRETTY

    def bad_row(number: int, fault: str) -> BadRow:
        payload, format = payload_of(texts[number].rstrip(b"\r"), "json")
        reason = fault + hint() if fault.startswith("not ") else fault
        return BadRow(payload, reason, position(number), format, column_in(fault))

    return rows.items(position, bad_row)


_CHUNK = 4 << 20
_SAMPLE = 1 << 20
_PIECE = 128 << 10
_PEEK = 64 << 10
_DEEPEST = 100
_STRINGS = re.compile(rb'"(?:[^"\\]|\\.)*"')
_BRACKETS = re.compile(rb"[\[\]{}]")


def infer(file: InputFile, options: JsonOptions) -> pa.Schema | None:
    """Return the schema of the lines or elements in the file's first megabyte; None if there are none."""
    file, lines = _sample(file)
    if lines is None:
        return None
    if deep := _deep_line(lines):
        raise file.fault(f"nested more than {_DEEPEST} deep", *deep)
    try:
        return inferred(lines)
    except (pa.ArrowException, SourceError) as error:
        raise _bad_line(file, lines, error) from error


def _sample(file: InputFile) -> tuple[InputFile, bytes | None]:
    """Return the file as errors name it, and the lines or elements in its first megabyte; None = there are none."""
    with file.open() as stream:
        head = bytes(stream.read(_SAMPLE))
        if is_array(head):
            file = elements_of(file)
            return file, next((text for _, text in elements(file, head, stream, _SAMPLE)), None)
        if not head.removeprefix(BOM_UTF8).strip():
            return file, None
        if not stream.read(1):
            return file, head
        if b"\n" not in head:
            raise file.fault(f"the first line has more than {_SAMPLE:,} bytes", 1, hint="declare the columns: schema=…")
        return file, head[: last_cut(head) or head.rfind(b"\n") + 1]


def _deep_line(lines: bytes) -> tuple[int, str] | None:
    """Return the first line that is nested too deep to infer types, by its number and start; None without any."""
    depth, last = 0, b""
    for number, line in enumerate(lines.splitlines(), 1):
        # An object may go over several lines; behind the end of one, the next one begins.
        depth = 0 if line.startswith(b"{") and last.endswith(b"}") else depth
        brackets = _BRACKETS.findall(_STRINGS.sub(b"", line))
        depths = [*accumulate((1 if bracket in b"[{" else -1 for bracket in brackets), initial=depth)]
        if max(depths) > _DEEPEST:
            return number, line[:80].decode(errors="replace")
        depth, last = max(0, depths[-1]), line.rstrip() or last
    return None


def rows(
    file: InputFile, schema: pa.Schema, part: tuple[int, int], options: JsonOptions
) -> Iterator[PositionedBatch | BadRow]:
    """Yield lines or elements as rows, missing fields as nulls, and a `BadRow` for each that can't be read."""
    parser, has_bad = parser_of(file.columns_or(schema), schema, options.epoch), False
    for place, before, chunk in texts_of(file, part):
        items = None if has_bad else _whole(place, chunk, before, parser)
        if items is None:
            # Where rows are bad, more are expected: they are found in one pass, which a whole text would only delay.
            # All are read before the first one comes out: it comes with the columns that all have.
            items = [*_salvaged_at_last(place, chunk, before, parser)]
            has_bad = any(isinstance(item, BadRow) for item in items)
        yield from items


def _salvaged_at_last(
    file: InputFile, text: bytes, before: int, parser: JsonParser
) -> Iterator[PositionedBatch | BadRow]:
    """Yield the items of a text, first of a piece of it if nothing is known yet of what is bad."""
    if not parser.knows_faults and (cut := last_cut(text[:_PIECE])):
        yield from salvaged(file, text[:cut], before, parser)
        before, text = before + text.count(b"\n", 0, cut), text[cut:]
    if text:
        yield from salvaged(file, text, before, parser)


def _whole(file: InputFile, text: bytes, before: int, parser: JsonParser) -> list[PositionedBatch | BadRow] | None:
    """Return the rows of a text; None if one is bad."""
    try:
        return _located(file, text, before, parser.parse(text, file.name))
    except _ERRORS:
        return None


def texts_of(file: InputFile, part: tuple[int, int]) -> Iterator[tuple[InputFile, int, bytes]]:
    """Yield chunks of whole lines: the file, or its part, as errors name it; the number of lines before; the text.

    The elements of an array are lines, too. The first of its parts has all of them, as the middle of an array can't
    be read.
    """
    number, parts = part
    if parts > 1:
        with file.open() as stream:
            in_array = is_array(bytes(stream.read(_PEEK)))
        if in_array and number:
            return
        file = file if in_array else part_of_objects(file, part)
    with file.open() as stream:
        head = bytes(stream.read(_CHUNK))
        in_array = not file.first_byte and is_array(head)
        place = elements_of(file) if in_array else file
        chunks = (elements if in_array else chunks_of_objects)(place, head, stream, _CHUNK)
        for before, chunk in chunks:
            yield place, before, chunk


def _located(
    file: InputFile, text: bytes, before: int, batches: list[pa.RecordBatch]
) -> list[PositionedBatch | BadRow]:
    lines = _Lines(file, text, before, sum(batch.num_rows for batch in batches))
    starts = accumulate((batch.num_rows for batch in batches), initial=0)
    return [
        PositionedBatch(batch, partial(lines.position, start)) for batch, start in zip(batches, starts, strict=False)
    ]


class _Lines:
    """Maps the rows of a text to line numbers; computed when `position` is first called."""

    def __init__(self, file: InputFile, text: bytes, before: int, rows: int) -> None:
        self._file, self._text, self._before, self._rows = file, text, before, rows

    @cached_property
    def _numbers(self) -> list[int]:
        lines = enumerate(self._text.removeprefix(BOM_UTF8).split(b"\n"), self._before + 1)
        return [number for number, line in lines if line.strip()]

    def position(self, start: int, row: int) -> str:
        numbers = self._numbers
        if len(numbers) == self._rows:
            return self._file.position(numbers[start + row])
        # Arrow accepts objects that span lines, and two in one line: then the exact line is unknown.
        return f"{self._file.position(numbers[0])} to {self._file.place(numbers[-1])}, row {start + row + 1}"


def _bad_line(file: InputFile, chunk: bytes, error: Exception) -> SourceError:
    """Return the error for a text whose schema can't be inferred: a line can be bad only together with earlier ones."""
    lines = chunk.split(b"\n")
    bad = first_failing(len(lines), lambda start, end: fault(lines[:end], None) is not None)
    reason = fault(lines[: bad + 1], None)
    if reason is None:
        return file.fault(str(error))
    return file.fault(reason, bad + 1, lines[bad].decode(errors="replace"))


FORMAT = FormatReader(infer, rows, check)
"""The reader of JSON files."""
