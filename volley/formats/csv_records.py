"""Reads CSV row by row without Arrow: the text and the line of each row, for headers, errors and bad rows."""

from __future__ import annotations

import csv
import io
import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from volley.formats.input_file import LARGEST_VALUE, InputFile, megabytes
from volley.formats.options import CsvOptions

__all__ = ["OPEN_QUOTE", "OpenQuotes", "RawRow", "records"]

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
        lines: Any = csv.reader(
            io.StringIO(f"{self.payload}\n", newline=""),
            delimiter=options.delimiter,
            quotechar=options.quote,
            escapechar=options.escape,
            quoting=csv.QUOTE_NONE if options.quote is None else csv.QUOTE_MINIMAL,
        )
        return next(lines, [])


def records(file: InputFile, options: CsvOptions) -> Iterator[RawRow]:
    """Yield the rows that are not empty lines; an unclosed quote spoils only its own line."""
    with file.open() as stream:
        lines = _Lines(_limited(io.TextIOWrapper(stream, "utf-8-sig", errors="surrogateescape", newline="")))
        quotes = OpenQuotes(options)
        number = 1
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


def _limited(text: io.TextIOWrapper) -> Iterator[str]:
    """Yield the lines of a text; of one that is too long its beginning."""
    while line := text.readline(LARGEST_VALUE):
        yield line
        while _is_cut(line):
            line = text.readline(LARGEST_VALUE)


def _is_cut(line: str) -> bool:
    return len(line) >= LARGEST_VALUE and line[-1] not in "\r\n"


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
