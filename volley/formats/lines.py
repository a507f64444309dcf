"""Lines of text files: cuts files into parts at line ends, and puts lines together to rows of CSV."""

from __future__ import annotations

import csv
import io
import re
import sys
from codecs import BOM_UTF8
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np

from volley.formats.input_file import LARGEST_VALUE, InputFile, megabytes
from volley.formats.options import CsvOptions

__all__ = [
    *("OPEN_QUOTE", "RawRow", "count_of_lines", "end_of_lines", "is_too_long", "lines_between", "newlines_in"),
    *("part_of_rows", "records", "records_behind", "records_in"),
]

_PIECE, _COUNTED = 1 << 20, 256 << 10
_NEWLINE = ord("\n")
# Old ones of Macintosh have no newline.
_LINE_END = re.compile(b"\r\n?|\n")


def part_of_rows(file: InputFile, part: tuple[int, int], options: CsvOptions) -> InputFile:
    """Return a part of a CSV file, as a file: without the lines to skip, with the header in front.

    Args:
        file: The whole file; uncompressed if there are several parts.
        part: The number of the part, from 0, and the number of parts.

    Raises:
        SourceError: If the header has no end.
    """
    skip = options.skip_rows
    number, parts = part
    if parts == 1:
        return _without_lines(file, skip) if skip else file
    start, end = file.size * number // parts, file.size * (number + 1) // parts
    with file.open() as stream:
        begin, _ = _end_of_lines(stream, skip)
        stream.seek(begin)
        head = _header(file, stream, OpenQuotes(options)) if options.has_header else b""
        if start <= begin:
            end = max(end, begin + len(head)) if end > begin else end
            return replace(file, open=_opened(file, b"", begin, end), lines_skipped=skip)
        first = max(begin + len(head), _first_line(stream, start, end))
    lines_of_head = len(_LINE_END.findall(head))
    return replace(file, open=_opened(file, head, first, end), first_byte=first, lines_before=lines_of_head)


def lines_between(file: InputFile, first: int, end: int) -> InputFile:
    """Return the lines of a file that start within a range of bytes, as a file; `first` is the start of a line."""
    return replace(file, open=_opened(file, b"", first, end), first_byte=first)


def _without_lines(file: InputFile, count: int) -> InputFile:
    """Return a file, which may be compressed, without its first lines."""

    @contextmanager
    def opened() -> Iterator[Any]:
        with file.open() as stream:
            _, rest = _end_of_lines(stream, count)
            with io.BufferedReader(_Lines(stream, rest, 0, sys.maxsize), _PIECE) as lines:
                yield lines

    return replace(file, open=opened, lines_skipped=count)


def _end_of_lines(stream: Any, count: int) -> tuple[int, bytes]:
    """Return where the first lines of a stream end, and what was read behind them."""
    position = 0
    while count and (piece := _piece(stream)):
        ends = [match.end() for match in islice(_LINE_END.finditer(piece), count)]
        count -= len(ends)
        if not count:
            return position + ends[-1], piece[ends[-1] :]
        position += len(piece)
    return position, b""


def _piece(stream: Any) -> bytes:
    """Return the next bytes of a stream, which don't end within a line end."""
    piece = bytes(stream.read(_PIECE))
    while piece.endswith(b"\r") and (more := bytes(stream.read(1))):
        piece += more
    return piece


def _opened(file: InputFile, head: bytes, first: int, end: int) -> Any:
    @contextmanager
    def opened() -> Iterator[Any]:
        with file.open() as stream:
            stream.seek(first)
            with io.BufferedReader(_Lines(stream, head, first, end), _PIECE) as lines:
                yield lines

    return opened


def _header(file: InputFile, stream: Any, quotes: OpenQuotes) -> bytes:
    """Return the bytes up to the end of the header, which begins at the first line that is not blank."""
    head, line, is_blank = b"", 0, True
    while piece := _piece(stream):
        begun = len(head)
        head += piece
        for end in _LINE_END.finditer(head, begun):
            text = head[line : end.end()].removeprefix(BOM_UTF8)
            line = end.end()
            is_blank = is_blank and not text.strip(b"\r\n")
            if not is_blank and not quotes.take(text.decode(errors="replace")):
                return head[:line]
        if len(head) > LARGEST_VALUE:
            raise file.fault(f"no header in its first {megabytes(LARGEST_VALUE)}", 1)
    return head


def _first_line(stream: Any, start: int, end: int) -> int:
    """Return where the first line starts at or after `start`; `end` if no line starts before it."""
    # A line starts at `start` itself if the byte before it is a line end.
    position = start - 1
    stream.seek(position)
    while position < end and (piece := bytes(stream.read(_PIECE))):
        if (line_end := piece.find(b"\n")) >= 0:
            return min(end, position + line_end + 1)
        position += len(piece)
    return end


class _Lines(io.RawIOBase):
    """A stream of a header, then the lines of a stream, from where it is, that start within a range of bytes."""

    def __init__(self, stream: Any, head: bytes, first: int, end: int) -> None:
        self._stream, self._head, self._at, self._end = stream, head, first, end
        self._ended = first >= end

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        piece = self._next(len(buffer))
        buffer[: len(piece)] = piece
        return len(piece)

    def _next(self, size: int) -> bytes:
        if self._head:
            piece, self._head = self._head[:size], self._head[size:]
            return piece
        if self._ended:
            return b""
        piece = bytes(self._stream.read(size))
        # The last line has the last byte of the range, even if that byte is the line's end.
        last = piece.find(b"\n", max(0, self._end - 1 - self._at)) + 1
        self._at += len(piece)
        if last and self._at >= self._end:
            self._ended = True
            return piece[:last]
        return piece


# Python's own limit is 128 kB: a quote that swallows more would be taken for one that is closed.
csv.field_size_limit(max(csv.field_size_limit(), LARGEST_VALUE))


OPEN_QUOTE = "a quote is opened and never closed"


@dataclass(frozen=True)
class RawRow:
    """The raw text of a row, and what is wrong with it: of a line that is too long it has the beginning."""

    line: int
    text: str
    fault: str | None = None

    @property
    def payload(self) -> str:
        """The text of the row as a dead letter keeps it."""
        return self.text.rstrip("\r\n").encode(errors="surrogateescape").decode(errors="replace")

    def fields(self, options: CsvOptions) -> list[str]:
        """Return its fields by Python's reader, which is good enough for names.

        Raises:
            csv.Error: If a field is too long.
        """
        return next(_reader(io.StringIO(f"{self.payload}\n", newline=""), options), [])


def records(file: InputFile, options: CsvOptions, skip: int = 0) -> Iterator[RawRow]:
    """Yield the rows that are not empty lines; an unclosed quote spoils only its own line.

    Args:
        skip: The number of rows at the start that are known to be good, and are passed over.
    """
    with file.open() as stream:
        text = _text(stream, "utf-8-sig")
        # Python's reader is ten times as fast, and takes some escapes for others.
        number, skip = (1, skip) if options.escape else (1 + _pass_over(text, skip, options), 0)
        yield from islice(_records(text, number, options), skip, None)


def records_behind(file: InputFile, lines: int, options: CsvOptions) -> Iterator[RawRow]:
    """Yield the rows behind the first lines, likewise."""
    with file.open() as stream:
        yield from _records(islice(_text(stream, "utf-8-sig"), lines, None), 1 + lines, options)


def records_in(data: bytes, line: int, options: CsvOptions) -> Iterator[RawRow]:
    """Yield the rows of a part of a file, likewise; `line` is the number of its first line."""
    yield from _records(_text(io.BytesIO(data), "utf-8"), line, options)


def end_of_lines(data: bytes, count: int) -> int:
    """Return where the first lines of a text end."""
    ends = islice(_LINE_END.finditer(data), count)
    return deque((match.end() for match in ends), 1).pop() if count else 0


def count_of_lines(data: bytes) -> int:
    """Return the number of lines that have an end."""
    return len(_LINE_END.findall(data))


def newlines_in(text: bytes) -> int:
    """Return the number of newlines: where lines are short, in a fourth of the time of `bytes.count`."""
    codes = np.frombuffer(text, np.uint8)
    # Larger pieces are new pages of memory each time.
    pieces = (codes[at : at + _COUNTED] for at in range(0, len(codes), _COUNTED))
    return sum(int(np.count_nonzero(piece == _NEWLINE)) for piece in pieces)


def is_too_long(size: int) -> bool:
    """Return True if a row or line of so many bytes may be longer than a row can be."""
    return size >= LARGEST_VALUE


def _reader(lines: Iterable[str], options: CsvOptions) -> Any:
    return csv.reader(
        lines,
        delimiter=options.delimiter,
        quotechar=options.quote,
        escapechar=options.escape,
        quoting=csv.QUOTE_NONE if options.quote is None else csv.QUOTE_MINIMAL,
    )


def _pass_over(lines: Iterator[str], rows: int, options: CsvOptions) -> int:
    """Take rows from lines; return the number of their lines."""
    reader = _reader(lines, options)
    while rows and (row := next(reader, None)) is not None:
        rows -= bool(row)
    return int(reader.line_num)


def _records(text: Iterator[str], number: int, options: CsvOptions) -> Iterator[RawRow]:
    lines = _Rows(text)
    quotes = OpenQuotes(options)
    while taken := lines.row(quotes):
        fault = OPEN_QUOTE if quotes.quoted else None
        if fault:
            lines.give_back(taken[1:])
            del taken[1:]
        if _is_cut(taken[-1]):
            fault = f"longer than {megabytes(LARGEST_VALUE)}"
        if taken[0].strip("\r\n"):
            yield RawRow(number, "".join(taken), fault)
        number += len(taken)


class OpenQuotes:
    """Tells whether a row goes on in the next line, as Arrow does.

    Python's reader takes an escape directly behind a closing quote for a character of the value.
    """

    def __init__(self, options: CsvOptions) -> None:
        self._special = [text for text in (options.quote, options.escape) if text]
        quote, escape, delimiter = (
            re.escape(text or "") for text in (options.quote, options.escape, options.delimiter)
        )
        escaped = f"|{escape}." if escape else ""
        self._quoted = re.compile(f"(?:[^{quote}{escape}]+|{quote}{quote}{escaped})*", re.S) if quote else None
        self._unquoted = re.compile(rf"(?:[^{escape}{delimiter}\r\n]+{escaped})*", re.S)
        self._quote, self._ends = options.quote, f"{options.delimiter}\r\n"
        self.reset()

    def reset(self) -> None:
        """Be at the beginning of a row."""
        self.quoted = False
        # False within a value that has no quotes, or behind those.
        self._begins = True

    def take(self, line: str) -> bool:
        """Read the next line, with its end; return True if its row goes on in the line behind it."""
        if self._begins and not self.quoted and not any(text in line for text in self._special):
            return False
        at = 0
        while at < len(line):
            if self.quoted and self._quoted:
                at = _end(self._quoted, line, at)
                self.quoted = not line.startswith(str(self._quote), at)
                self._begins = False
            elif self._begins and line[at] == self._quote:
                self.quoted = True
            else:
                at = _end(self._unquoted, line, at)
                self._begins = line[at : at + 1] != "" and line[at] in self._ends
            at += 1
        # An escape before a line end makes it a part of the value.
        return self.quoted or (not self._begins and line[-1] in "\r\n")


def _end(pattern: re.Pattern[str], line: str, at: int) -> int:
    match = pattern.match(line, at)
    return match.end() if match else at


def _text(stream: Any, encoding: str) -> Iterator[str]:
    """Yield the lines of a text; of one that is too long its beginning."""
    text = io.TextIOWrapper(stream, encoding, errors="surrogateescape", newline="")
    while line := text.readline(LARGEST_VALUE):
        yield line
        while _is_cut(line):
            line = text.readline(LARGEST_VALUE)


def _is_cut(line: str) -> bool:
    return len(line) >= LARGEST_VALUE and line[-1] not in "\r\n"


class _Rows:
    """Lines that are taken row by row; some can be given back, to be read again."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._lines = iter(lines)
        self._again: deque[str] = deque()

    def row(self, quotes: OpenQuotes) -> list[str]:
        """Return the lines of the next row, up to the largest value if a quote is not closed; none at the end."""
        quotes.reset()
        taken: list[str] = []
        size = 0
        while size < LARGEST_VALUE and (line := self._next()):
            taken.append(line)
            size += len(line)
            if not quotes.take(line):
                break
        return taken

    def give_back(self, lines: Sequence[str]) -> None:
        """Return lines, to be read again."""
        self._again.extendleft(reversed(lines))

    def _next(self) -> str | None:
        return self._again.popleft() if self._again else next(self._lines, None)
