"""Blocks of whole rows of a CSV file as bytes, for what is read again behind a bad row."""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from io import BytesIO
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from volley.formats.csv_quotes import Quotes
from volley.formats.input_file import InputFile
from volley.formats.lines import (
    OPEN_QUOTE,
    RawRow,
    count_of_lines,
    end_of_lines,
    is_too_long,
    newlines_in,
    records_behind,
    records_in,
)
from volley.formats.options import CsvOptions

__all__ = ["Block", "Positions", "blocks"]

Positions = npt.NDArray[np.int64]

_SIZE, _ROWS = 2 << 20, 10_000
_NEWLINE, _RETURN = ord("\n"), ord("\r")


class _Places(NamedTuple):
    """The bytes of rows, where each starts in them and ends, and the line that it starts at."""

    data: bytes
    starts: Positions
    ends: Positions
    lines: Positions


class Block:
    """Rows of a file.

    Args:
        find: Returns where they are; called once, if that is asked.
        faults: What is wrong with rows that are surely bad.
    """

    def __init__(self, find: Callable[[], _Places], faults: Mapping[int, str]) -> None:
        self._find = find
        self.faults = faults

    @classmethod
    def of(cls, rows: Sequence[RawRow]) -> Block:
        """Return rows that are read one by one."""
        faults = {number: row.fault for number, row in enumerate(rows) if row.fault}
        return cls(partial(_places_of, rows), faults)

    def __len__(self) -> int:
        return len(self._places.starts)

    @cached_property
    def _places(self) -> _Places:
        return self._find()

    @property
    def data(self) -> bytes:
        """All rows, each with an end."""
        return self.joined(range(len(self)))

    def has(self, count: int) -> bool:
        """Return True if these are so many rows, as Arrow reads `data`."""
        return len(self) == count

    def line(self, number: int) -> int:
        """Return the line that a row starts at."""
        return int(self._places.lines[number])

    def text(self, number: int) -> bytes:
        """Return a row without its end."""
        data, starts, ends, _ = self._places
        return data[starts[number] : ends[number]].rstrip(b"\r\n")

    def joined(self, numbers: Sequence[int] | Positions) -> bytes:
        """Return some rows, each with an end: without one, Arrow may read an empty last value as a text."""
        if not len(numbers):
            return b""
        data, starts, ends, _ = self._places
        if len(numbers) < len(self):
            chosen = np.asarray(numbers)
            starts, ends = starts[chosen], ends[chosen]
        seams = np.flatnonzero(starts[1:] != ends[:-1])
        firsts, lasts = starts[[0, *(seams + 1)]].tolist(), ends[[*seams, -1]].tolist()
        return _ended(b"".join(data[first:last] for first, last in zip(firsts, lasts, strict=True)))

    def behind(self, count: int) -> Block:
        """Return the rows behind the first ones."""
        data, *columns = self._places
        faults = {number - count: fault for number, fault in self.faults.items() if number >= count}
        return Block(lambda: _Places(data, *(column[count:] for column in columns)), faults)


class _Lines(Block):
    """Whole lines, of which the last one ends a row: where rows end is found if it is asked.

    Args:
        line: The number of the first one.
        count: How many have an end.
    """

    def __init__(self, data: bytes, line: int, count: int, options: CsvOptions) -> None:
        super().__init__(lambda: _split(data, line, options), {})
        self._data, self._line, self._count = data, line, count + (not data.endswith(b"\n"))

    @property
    def data(self) -> bytes:
        """The lines."""
        return _ended(self._data)

    def has(self, count: int) -> bool:
        """Return True if these are so many rows: if they are as many as the lines, each line is one."""
        if count == self._count:
            self._find = self._by_lines
            return True
        return len(self) == count

    def _by_lines(self) -> _Places:
        ends = _line_ends(self._data)
        return _Places(self._data, np.append(0, ends[:-1]), ends, np.arange(self._line, self._line + len(ends)))


def _places_of(rows: Iterable[RawRow]) -> _Places:
    pairs = [(row.text.encode(errors="surrogateescape"), row.line) for row in rows]
    ends = np.array([len(text) for text, _ in pairs], np.int64).cumsum()
    lines = np.array([line for _, line in pairs], np.int64)
    return _Places(b"".join(text for text, _ in pairs), np.append(0, ends[:-1])[: len(ends)], ends, lines)


def _split(data: bytes, line: int, options: CsvOptions) -> _Places:
    plain = _plain(data, line, True, options)
    return plain[0]._places if plain and plain[1] == len(data) else _places_of(records_in(data, line, options))


def _ended(data: bytes) -> bytes:
    return data if data.endswith((b"\r", b"\n")) else data + b"\n"


def _line_ends(data: bytes) -> Positions:
    ends = np.flatnonzero(np.frombuffer(data, np.uint8) == _NEWLINE) + 1
    return np.append(ends, len(data)) if data and not data.endswith(b"\n") else ends


def blocks(file: InputFile, options: CsvOptions, skip: int) -> Iterator[Block]:
    """Yield the rows behind the first ones."""
    for block in _all(file, options):
        if not skip:
            yield block
            continue
        if len(block) > skip:
            yield block.behind(skip)
        skip = max(0, skip - len(block))


def _all(file: InputFile, options: CsvOptions) -> Iterator[Block]:
    line = 1
    with file.open() as stream:
        first, ended = _read(stream, _SIZE)
        data, behind = _with_lines(b"", first.removeprefix(BOM_UTF8), ended)
        while data or behind or not ended:
            block, taken, lines = (
                _whole_lines(data, line, ended, options)
                or _plain(data, line, ended, options)
                or _one_by_one(data, line, ended, options)
            )
            yield block
            line, data, behind = line + lines, data[taken:] + behind, b""
            if not taken and is_too_long(len(data)):
                break
            if not ended:
                # A row that is longer than what was read needs more.
                more, ended = _read(stream, max(_SIZE, 0 if taken else 2 * len(data)) - len(data))
                data, behind = _with_lines(data, more, ended)
        else:
            return
    rest = records_behind(file, line - 1, options)
    while group := list(islice(rest, _ROWS)):
        yield Block.of(group)


def _read(stream: Any, size: int) -> tuple[bytes, bool]:
    """Return the next bytes of a stream, and True if it ends behind them."""
    pieces: list[bytes] = []
    while size > 0 and (piece := bytes(stream.read(size))):
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces), size > 0


def _with_lines(data: bytes, more: bytes, ended: bool) -> tuple[bytes, bytes]:
    """Return a text with the whole lines of what comes next, and the rest: to cut it off later would be a copy."""
    whole = len(more) if ended else more.rfind(b"\n") + 1
    return b"".join((data, memoryview(more)[:whole])), more[whole:]


def _whole_lines(data: bytes, line: int, is_last: bool, options: CsvOptions) -> tuple[Block, int, int] | None:
    """Return the lines of a text, their bytes and number; None if a row may go on behind them.

    Args:
        line: The line that the text starts at.
        is_last: True if the file ends behind the text.
    """
    if not is_last:
        data = data[: data.rfind(b"\n") + 1]
    if not data or is_too_long(len(data)) or _has_escape(data, options) or _has_lone_return(data):
        return None
    quotes = Quotes(BytesIO(data), options)
    quotes.read()
    if quotes.may_be_open:
        return None
    lines = newlines_in(data)
    return _Lines(data, line, lines, options), len(data), lines


def _has_escape(data: bytes, options: CsvOptions) -> bool:
    return bool(options.escape) and str(options.escape).encode() in data


def _plain(data: bytes, line: int, is_last: bool, options: CsvOptions) -> tuple[Block, int, int] | None:
    """Return the whole rows at the beginning of a text, their bytes and lines; None if it is in doubt where rows end.

    Args:
        line: The line that the text starts at.
        is_last: True if the file ends behind the text.
    """
    if not is_last:
        data = data[: data.rfind(b"\n") + 1]
    codes = np.frombuffer(data, np.uint8)
    quotes = _quotes(data, codes, options)
    if quotes is None or _has_escape(data, options) or _has_lone_return(data):
        return None
    line_ends = _line_ends(data)
    last = np.flatnonzero(np.searchsorted(quotes, line_ends) % 2 == 0) if len(quotes) else np.arange(len(line_ends))
    if not len(last):
        return None
    ends = line_ends[last] if len(last) < len(line_ends) else line_ends
    starts, lines = np.append(0, ends[:-1]), line + np.append(0, last[:-1] + 1)
    taken, sizes = int(ends[-1]), ends - starts
    if is_too_long(int(sizes.max())):
        return None
    if sizes.min() <= len(b"\r\n"):
        is_row = ~_are_blank(codes, starts, ends)
        starts, ends, lines = starts[is_row], ends[is_row], lines[is_row]
    places = _Places(data, starts, ends, lines)
    return Block(lambda: places, {}), taken, int(last[-1]) + 1


def _has_lone_return(data: bytes) -> bool:
    if b"\r" not in data:
        return False
    codes = np.frombuffer(data, np.uint8)
    returns = np.flatnonzero(codes == _RETURN)
    return data.endswith(b"\r") or bool((codes[returns + 1] != _NEWLINE).any())


def _are_blank(codes: npt.NDArray[np.uint8], starts: Positions, ends: Positions) -> npt.NDArray[np.bool_]:
    first = codes[starts]
    blank: npt.NDArray[np.bool_] = (first == _NEWLINE) | ((first == _RETURN) & (ends - starts == len(b"\r\n")))
    return blank


def _quotes(data: bytes, codes: npt.NDArray[np.uint8], options: CsvOptions) -> Positions | None:
    """Return where quotes stand, in turn opening and closing values; None if that is in doubt.

    It is so if quotes stand at the beginning and the end of values only, or are doubled.
    """
    quote = (options.quote or "").encode()
    if not quote or quote not in data:
        return np.empty(0, np.int64)
    quotes = np.flatnonzero(codes == quote[0])
    around = np.frombuffer(b"\n%b\n" % data, np.uint8)
    is_edge = np.isin(np.arange(256), [*quote, *options.delimiter.encode(), _NEWLINE, _RETURN])
    return quotes if is_edge[around[quotes[::2]]].all() and is_edge[around[quotes[1::2] + 2]].all() else None


def _one_by_one(data: bytes, line: int, ended: bool, options: CsvOptions) -> tuple[Block, int, int]:
    """Return the first rows of a text, their bytes and lines; none if more of the file decides where they end.

    Args:
        line: The line that the text starts at.
        ended: True if the file ends behind the text.
    """
    # The last row of these may go on behind them.
    whole = data if ended else data[: data.rfind(b"\n") + 1]
    rows: list[RawRow] = []
    for row in records_in(whole, line, options):
        if len(rows) == _ROWS or (row.fault and not (ended and row.fault == OPEN_QUOTE)):
            break
        rows.append(row)
    else:
        if ended or not rows:
            return Block.of(rows), len(whole), count_of_lines(whole)
        row = rows.pop()
    lines = row.line - line
    return Block.of(rows), end_of_lines(whole, lines), lines
