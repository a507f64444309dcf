"""Reads CSV files that have bad rows: batches of good rows, and each bad row; slow only after the first bad block."""

from __future__ import annotations

import csv
import io
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.csv as pcsv

from volley.arrow.bisect import process_or_bisect
from volley.bad_rows import BadRow, PositionedBatch
from volley.formats.csv import (
    BadValue,
    batches,
    check,
    decoded,
    delimiter,
    header,
    infer,
    part_of_rows,
    read,
    reason,
    records,
    rules,
)
from volley.formats.csv_floats import texts_of
from volley.formats.files import FormatReader
from volley.formats.input_file import InputFile

__all__ = ["FORMAT"]

_GROUP = 10_000


def read_tolerant(
    file: InputFile, schema: pa.Schema, part: tuple[int, int], options: Mapping[str, Any]
) -> Iterator[PositionedBatch | BadRow]:
    """Yield the file's rows with their line numbers, and a `BadRow` for each row that can't be read."""
    file = part_of_rows(file, part, options)
    names = header(file, schema, options)
    if names is None:
        return
    done = 1 if options.get("header", True) else 0
    places = _Places(file, options)
    try:
        for batch in batches(file, schema, options):
            yield PositionedBatch(batch, partial(places.position, done + 1))
            done += batch.num_rows
    except (BadValue, pa.ArrowInvalid):
        # Arrow drops the whole block: read everything after the last good batch again, as raw rows.
        yield from _salvaged(file, islice(_raw_records(file, options), done, None), names, schema, options)


class _Places:
    """The line each row starts at; reads the file a second time, only if a row is bad."""

    def __init__(self, file: InputFile, options: Mapping[str, Any]) -> None:
        self._file = file
        self._records = enumerate(records(file, options), 1)

    def position(self, first: int, row: int) -> str:
        # A field too long for Python's reader ends the search.
        with suppress(csv.Error):
            for number, (line, _) in self._records:
                if number == first + row:
                    return self._file.position(line)
        return self._file.position(first + row, "row")


@dataclass(frozen=True)
class _Record:
    """The raw text of a row; `whole` is False if it has an unclosed quote."""

    line: int
    text: str
    whole: bool

    @property
    def payload(self) -> str:
        return self.text.rstrip("\r\n").encode(errors="surrogateescape").decode(errors="replace")


def _salvaged(
    file: InputFile, raw_records: Iterator[_Record], names: list[str], schema: pa.Schema, options: Mapping[str, Any]
) -> Iterator[PositionedBatch | BadRow]:
    while group := list(islice(raw_records, _GROUP)):

        def attempt(start: int, end: int, group: list[_Record] = group) -> PositionedBatch | BadRow:
            return PositionedBatch(
                _parsed(group[start:end], names, schema, options),
                lambda row: file.position(group[start + row].line),
            )

        def single(index: int, error: Exception, group: list[_Record] = group) -> BadRow:
            record = group[index]
            reason_text = error.reason if isinstance(error, BadValue) else reason(error, names)
            return BadRow(record.payload, reason_text, file.position(record.line))

        yield from process_or_bisect(len(group), attempt, single, (BadValue, pa.ArrowInvalid))


def _parsed(group: list[_Record], names: list[str], schema: pa.Schema, options: Mapping[str, Any]) -> pa.RecordBatch:
    if not all(record.whole for record in group):
        raise BadValue(0, "a quote is opened and never closed")
    data = "".join(record.text for record in group).encode(errors="surrogateescape")
    read_options = pcsv.ReadOptions(use_threads=False, block_size=len(data) + 1, column_names=names)

    def parse(columns: pa.Schema) -> pa.RecordBatch:
        table = pcsv.read_csv(pa.py_buffer(data), read_options=read_options, **rules(columns, options))
        if table.num_rows != len(group):
            raise BadValue(0, f"{table.num_rows} rows where one should be")
        return table.combine_chunks().to_batches()[0]

    return decoded(parse(schema), schema, lambda: parse(texts_of(schema)))


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


def _raw_records(file: InputFile, options: Mapping[str, Any]) -> Iterator[_Record]:
    """Yield the records that are not empty lines; an unclosed quote spoils only its own line."""
    with file.open() as stream:
        lines = _Lines(io.TextIOWrapper(stream, "utf-8-sig", errors="surrogateescape", newline=""))
        number = 1
        while True:
            lines.taken = []
            try:
                row = next(csv.reader(lines, delimiter=delimiter(options)), None)
                whole = not lines.ended
            except csv.Error:
                row, whole = None, False
            if not lines.taken:
                return
            if not whole:
                lines.give_back()
            if row or not whole:
                yield _Record(number, "".join(lines.taken), whole)
            number += len(lines.taken)


FORMAT = FormatReader(check, infer, read, read_tolerant)
"""The reader of CSV files."""
