"""Reads CSV row by row with Python's reader: the text and the line of each row, for headers, errors and bad rows."""

from __future__ import annotations

import csv
import io
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from volley.formats.input_file import LARGEST_VALUE, InputFile, megabytes
from volley.formats.options import CsvOptions

__all__ = ["Record", "ends_in_a_quote", "place", "raw_records", "records"]

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
    with file.open() as stream:
        text = io.TextIOWrapper(stream, "utf-8-sig", errors="replace", newline="")
        lines = _Lines(_limited(file, text))
        with suppress(csv.Error):
            for _ in _reader(lines, options):
                if lines.ended:
                    return True
                lines.taken.clear()
    return False


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
        number = 1
        while True:
            lines.taken = []
            try:
                row = next(_reader(lines, options), None)
                whole = not lines.ended
            except csv.Error:
                row, whole = None, False
            if not lines.taken:
                return
            if not whole:
                lines.give_back()
            if row or not whole:
                yield Record(number, "".join(lines.taken), whole)
            number += len(lines.taken)


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
    """Feeds lines to a `csv.reader` and keeps them, so that the raw text of each record is known."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._lines = iter(lines)
        self._again: deque[str] = deque()
        self.taken: list[str] = []
        self.ended = False

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = self._again.popleft() if self._again else next(self._lines, None)
        if line is None:
            self.ended = True
            raise StopIteration
        self.taken.append(line)
        return line

    def give_back(self) -> None:
        """Return all taken lines but the first, to be read again."""
        self._again.extendleft(reversed(self.taken[1:]))
        del self.taken[1:]
        self.ended = False
