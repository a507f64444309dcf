"""JSON lines → Arrow batches, one chunk of whole lines after the other; the line at fault is found and shown."""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property, partial
from itertools import accumulate
from typing import Any

import pyarrow as pa

from volley.arrow.bisect import first_failing, process_or_bisect
from volley.bad_rows import BadRow, PositionedBatch
from volley.errors import SourceError
from volley.formats.files import FormatReader
from volley.formats.input_file import LARGEST_VALUE, InputFile
from volley.formats.json import check, fault, inferred, parsed
from volley.formats.line_parts import part_of_lines

__all__ = ["FORMAT"]

_CHUNK = 8 << 20
_SAMPLE = 1 << 20
_DEEPEST = 100
_STRINGS = re.compile(rb'"(?:[^"\\]|\\.)*"')
_BRACKETS = re.compile(rb"[\[\]{}]")


def infer(file: InputFile, options: Mapping[str, Any]) -> pa.Schema | None:
    """The schema of the lines in the file's first megabyte; None if they are empty."""
    with file.open() as stream:
        sample = stream.read(_SAMPLE)
        whole = sample[: sample.rfind(b"\n") + 1] if stream.read(1) else sample
    if not sample.removeprefix(BOM_UTF8).strip():
        return None
    for number, line in enumerate(whole.splitlines(), 1):
        if _depth(line) > _DEEPEST:
            raise file.fault(f"nested more than {_DEEPEST} deep", number, line[:80].decode(errors="replace"))
    try:
        return inferred(whole)
    except (pa.ArrowException, SourceError) as error:
        raise _bad_line(file, whole, 0, None, error) from error


def _depth(line: bytes) -> int:
    """How deep a line is nested. Arrow makes types as deep as that, and crashes where they are too deep."""
    brackets = _BRACKETS.findall(_STRINGS.sub(b"", line))
    return max(accumulate(1 if each in b"[{" else -1 for each in brackets), default=0)


def read(
    file: InputFile, schema: pa.Schema, part: tuple[int, int], options: Mapping[str, Any]
) -> Iterator[pa.RecordBatch]:
    """The file's lines; missing fields are null, others are ignored."""
    file = part_of_lines(file, part, has_header=False)
    with file.open() as stream:
        for before, chunk in _chunks(file, stream):
            try:
                batches = parsed(chunk, schema)
            except (pa.ArrowException, SourceError) as error:
                raise _bad_line(file, chunk, before, schema, error) from error
            yield from batches


def read_tolerant(
    file: InputFile, schema: pa.Schema, part: tuple[int, int], options: Mapping[str, Any]
) -> Iterator[PositionedBatch | BadRow]:
    """The same rows, with the lines they stand in, and each line that is none."""
    file = part_of_lines(file, part, has_header=False)
    with file.open() as stream:
        for before, chunk in _chunks(file, stream):
            try:
                found: Iterable[PositionedBatch | BadRow] = _located(file, chunk, before, parsed(chunk, schema))
            except (pa.ArrowException, SourceError):
                found = _salvaged(file, chunk, before, schema)
            yield from found


def _salvaged(file: InputFile, chunk: bytes, before: int, schema: pa.Schema) -> Iterator[PositionedBatch | BadRow]:
    lines = chunk.split(b"\n")

    def attempt(start: int, end: int) -> list[PositionedBatch | BadRow]:
        text = b"\n".join(lines[start:end])
        return _located(file, text, before + start, parsed(text, schema)) if text.strip() else []

    def single(index: int, error: Exception) -> list[PositionedBatch | BadRow]:
        reason = fault([lines[index]], schema) or str(error)
        payload = lines[index].decode(errors="replace").rstrip("\r")
        return [BadRow(payload, reason, file.position(before + index + 1))]

    for found in process_or_bisect(len(lines), attempt, single, (pa.ArrowException, SourceError)):
        yield from found


def _located(
    file: InputFile, text: bytes, before: int, batches: list[pa.RecordBatch]
) -> list[PositionedBatch | BadRow]:
    lines = _Lines(file, text, before, sum(batch.num_rows for batch in batches))
    starts = accumulate((batch.num_rows for batch in batches), initial=0)
    return [
        PositionedBatch(batch, partial(lines.position, start)) for batch, start in zip(batches, starts, strict=False)
    ]


class _Lines:
    """Which line of a text each of its rows stands in; looked up only if somebody asks."""

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
        # Arrow takes objects that span lines, and two in one line: then no line is known.
        return f"{self._file.position(numbers[0])} to {self._file.place(numbers[-1])}, row {start + row + 1}"


def _chunks(file: InputFile, stream: Any) -> Iterator[tuple[int, bytes]]:
    """Whole lines, with the number of lines before them."""
    before, rest = 0, b""
    while more := stream.read(_CHUNK):
        cut = more.rfind(b"\n") + 1
        if not cut:
            rest += more
            if len(rest) > LARGEST_VALUE:
                excerpt = rest[:80].decode(errors="replace")
                raise file.fault("longer than 64 MB; JSON files hold one object a line", before + 1, excerpt)
            continue
        chunk, rest = rest + more[:cut], more[cut:]
        yield before, chunk
        before += chunk.count(b"\n")
    if rest:
        yield before, rest


def _bad_line(file: InputFile, chunk: bytes, before: int, schema: pa.Schema | None, error: Exception) -> SourceError:
    lines = chunk.split(b"\n")

    def asked(start: int, end: int) -> list[bytes]:
        # Where a schema is inferred, a line can be at fault only because of those before it.
        return lines[0 if schema is None else start : end]

    at = first_failing(len(lines), lambda start, end: fault(asked(start, end), schema) is not None)
    reason = fault(asked(at, at + 1), schema)
    if reason is None:
        return file.fault(str(error))
    return file.fault(reason, before + at + 1, lines[at].decode(errors="replace"))


FORMAT = FormatReader(check, infer, read, read_tolerant)
"""JSON lines, as a FileSource reads them."""
