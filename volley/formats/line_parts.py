"""Cuts a large text file into parts at line ends: a line belongs to the part that has its first byte."""

from __future__ import annotations

import io
import re
import sys
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from typing import Any

from volley.formats.input_file import LARGEST_VALUE, InputFile, megabytes

__all__ = ["lines_between", "part_of_lines"]

_PIECE = 1 << 20
# Old ones of Macintosh have no newline.
_LINE_END = re.compile(b"\r\n?|\n")


GoesOn = Callable[[str], bool]
"""Takes the lines of a header, and returns True for one that is not its last."""


def part_of_lines(
    file: InputFile, part: tuple[int, int], header_goes_on: GoesOn | None = None, skip: int = 0
) -> InputFile:
    """Return a part of a file, as a file.

    Args:
        file: The whole file; uncompressed if there are several parts.
        part: The number of the part, from 0, and the number of parts.
        header_goes_on: Finds the end of the header, with which every part begins; None = there is no header.
        skip: The number of lines at the start of the file to leave out.

    Raises:
        SourceError: If the header has no end.
    """
    number, parts = part
    if parts == 1:
        return _without_lines(file, skip) if skip else file
    start, end = file.size * number // parts, file.size * (number + 1) // parts
    with file.open() as stream:
        begin, _ = _end_of_lines(stream, skip)
        stream.seek(begin)
        head = _header(file, stream, header_goes_on) if header_goes_on else b""
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


def _header(file: InputFile, stream: Any, goes_on: GoesOn) -> bytes:
    """Return the bytes up to the end of the header, which begins at the first line that is not blank."""
    head, line, is_blank = b"", 0, True
    while piece := _piece(stream):
        begun = len(head)
        head += piece
        for end in _LINE_END.finditer(head, begun):
            text = head[line : end.end()].removeprefix(BOM_UTF8)
            line = end.end()
            is_blank = is_blank and not text.strip(b"\r\n")
            if not is_blank and not goes_on(text.decode(errors="replace")):
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
