"""Blocks of whole rows of a CSV file as bytes, for what is read again behind a bad row."""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from volley.formats.input_file import InputFile
from volley.formats.lines import (
    OPEN_QUOTE,
    RawRow,
    count_of_lines,
    end_of_lines,
    is_too_long,
    records_behind,
    records_in,
)
from volley.formats.options import CsvOptions

__all__ = ["Block", "Positions", "blocks"]

Positions = npt.NDArray[np.int64]

_SIZE, _ROWS = 2 << 20, 10_000
_NEWLINE, _RETURN = ord("\n"), ord("\r")


class Block:
    """Rows of a file.

    Args:
        data: Their bytes.
        starts: Where each row starts in them.
        ends: Where each row ends.
        lines: The line that each row starts at.
        faults: What is wrong with rows that are surely bad.
    """

    def __init__(
        self, data: bytes, starts: Positions, ends: Positions, lines: Positions, faults: Mapping[int, str]
    ) -> None:
        self._data, self._starts, self._ends, self._lines = data, starts, ends, lines
        self.faults = faults

    @classmethod
    def of(cls, rows: Sequence[RawRow]) -> Block:
        """Return rows that are read one by one."""
        texts = [row.text.encode(errors="surrogateescape") for row in rows]
        sizes = np.array([len(text) for text in texts], np.int64)
        ends = sizes.cumsum()
        lines = np.array([row.line for row in rows], np.int64)
        faults = {number: row.fault for number, row in enumerate(rows) if row.fault}
        return cls(b"".join(texts), ends - sizes, ends, lines, faults)

    def __len__(self) -> int:
        return len(self._starts)

    def line(self, number: int) -> int:
        """Return the line that a row starts at."""
        return int(self._lines[number])

    def text(self, number: int) -> bytes:
        """Return a row without its end."""
        return self._data[self._starts[number] : self._ends[number]].rstrip(b"\r\n")

    def joined(self, numbers: Sequence[int] | Positions) -> bytes:
        """Return some rows, each with an end: without one, Arrow may read an empty last value as a text."""
        if not len(numbers):
            return b""
        starts, ends = self._starts, self._ends
        if len(numbers) < len(self):
            chosen = np.asarray(numbers)
            starts, ends = starts[chosen], ends[chosen]
        seams = np.flatnonzero(starts[1:] != ends[:-1])
        firsts, lasts = starts[[0, *(seams + 1)]].tolist(), ends[[*seams, -1]].tolist()
        data = b"".join(self._data[first:last] for first, last in zip(firsts, lasts, strict=True))
        return data if data.endswith((b"\r", b"\n")) else data + b"\n"

    def behind(self, count: int) -> Block:
        """Return the rows behind the first ones."""
        faults = {number - count: fault for number, fault in self.faults.items() if number >= count}
        return Block(self._data, self._starts[count:], self._ends[count:], self._lines[count:], faults)


def blocks(file: InputFile, options: CsvOptions, skip: int) -> Iterator[Block]:
    """Yield the rows behind the first ones."""
    for block in _all(file, options):
        if len(block) > skip:
            yield block.behind(skip) if skip else block
        skip = max(0, skip - len(block))


def _all(file: InputFile, options: CsvOptions) -> Iterator[Block]:
    line = 1
    with file.open() as stream:
        first, ended = _read(stream, _SIZE)
        data, behind = _with_lines(b"", first.removeprefix(BOM_UTF8), ended)
        while data or behind or not ended:
            block, taken, lines = _plain(data, line, ended, options) or _one_by_one(data, line, ended, options)
            if len(block):
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
    if quotes is None or (options.escape and options.escape.encode() in data) or _has_lone_return(data, codes):
        return None
    line_ends = np.flatnonzero(codes == _NEWLINE) + 1
    if is_last and not data.endswith(b"\n"):
        line_ends = np.append(line_ends, len(data))
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
    return Block(data, starts, ends, lines, {}), taken, int(last[-1]) + 1


def _has_lone_return(data: bytes, codes: npt.NDArray[np.uint8]) -> bool:
    if b"\r" not in data:
        return False
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
