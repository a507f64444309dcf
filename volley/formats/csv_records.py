"""Reads CSV row by row with Python's reader: the text and the line of each row, for headers, errors and bad rows."""

from __future__ import annotations

import csv
import io
import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from volley.formats.input_file import LARGEST_VALUE, InputFile, megabytes
from volley.formats.options import CsvOptions

__all__ = ["OpenQuotes", "Record", "ends_in_a_quote", "place", "raw_records", "records"]

# Python's own limit is 128 kB: a quote that swallows more would be taken for one that is closed.
csv.field_size_limit(max(csv.field_size_limit(), LARGEST_VALUE))


def records(file: InputFile, options: CsvOptions) -> Iterator[tuple[int, list[str]]]:
    """Yield each row that is not an empty line, with the number of the line it starts at."""
    with file.open() as stream:
        text = io.TextIOWrapper(stream, "utf-8-sig", errors="replace", newline="")
        reader = _reader(_limited(file, text), options)
        line = 1
        for row in reader:
            if row:
                yield line, row
            line = reader.line_num + 1


def place(file: InputFile, record: int, options: CsvOptions) -> tuple[int | None, str]:
    """Return the line and text of a row. Arrow counts rows; a quoted value can span lines."""
    # A field that is too long for Python's reader ends the search: Arrow's message alone describes the row.
    with suppress(csv.Error):
        for number, (line, row) in enumerate(records(file, options), 1):
            if number == record:
                return line, options.delimiter.join(row)
    return None, ""


def ends_in_a_quote(file: InputFile, options: CsvOptions) -> bool:
    """Return True if the last row is still open at the end of the file; a quote inside a value opens nothing."""
    quotes = OpenQuotes(options)
    with file.open() as stream:
        text = io.TextIOWrapper(stream, "utf-8-sig", errors="replace", newline="")
        for line in _limited(file, text):
            quotes.take(line)
    return quotes.quoted


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


@dataclass(frozen=True)
class Record:
    """The raw text of a row; `whole` is False if it has an unclosed quote."""

    line: int
    text: str
    whole: bool

    @property
    def payload(self) -> str:
        """The text of the row as a dead letter keeps it."""
        return self.text.rstrip("\r\n").encode(errors="surrogateescape").decode(errors="replace")


def raw_records(file: InputFile, options: CsvOptions) -> Iterator[Record]:
    """Yield the records that are not empty lines; an unclosed quote spoils only its own line."""
    with file.open() as stream:
        lines = _Lines(io.TextIOWrapper(stream, "utf-8-sig", errors="surrogateescape", newline=""))
        quotes = OpenQuotes(options)
        number = 1
        while taken := lines.row(quotes):
            if quotes.quoted:
                lines.give_back(taken[1:])
                del taken[1:]
            if taken[0].strip("\r\n"):
                yield Record(number, "".join(taken), not quotes.quoted)
            number += len(taken)


def _reader(lines: Iterable[str], options: CsvOptions) -> Any:
    return csv.reader(
        lines,
        delimiter=options.delimiter,
        quotechar=options.quote,
        escapechar=options.escape,
        quoting=csv.QUOTE_NONE if options.quote is None else csv.QUOTE_MINIMAL,
    )


def _limited(file: InputFile, text: io.TextIOWrapper) -> Iterator[str]:
    number = 0
    while line := text.readline(LARGEST_VALUE):
        number += 1
        if len(line) == LARGEST_VALUE:
            raise file.fault(f"longer than {megabytes(LARGEST_VALUE)}", number, line[:80])
        yield line


class _Lines:
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
