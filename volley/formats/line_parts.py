"""Parts of a large text file, cut at line ends: each line is in the part in which its first byte lies."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from volley.formats.input_file import LARGEST_VALUE, InputFile

__all__ = ["part_of_lines"]

_PIECE = 1 << 20


def part_of_lines(file: InputFile, part: tuple[int, int], has_header: bool) -> InputFile:
    """Part `i` of `n` as a file of its own.

    Args:
        file: The whole file; if there are several parts, it is not compressed.
        part: The numbers of the part and of all parts.
        has_header: True: the first line that is not blank stands at the beginning of every part.

    Raises:
        SourceError: If the header does not end.
    """
    number, parts = part
    if parts == 1:
        return file
    start, end = file.size * number // parts, file.size * (number + 1) // parts
    if start == 0:
        return replace(file, open=_opened(file, b"", 0, end))
    with file.open() as stream:
        head = _header(file, stream) if has_header else b""
        first = max(len(head), _first_line(stream, start, end))
    lines_of_head = head.count(b"\n")
    return replace(file, open=_opened(file, head, first, end), first_byte=first, lines_before=lines_of_head)


def _opened(file: InputFile, head: bytes, first: int, end: int) -> Any:
    @contextmanager
    def opened() -> Iterator[Any]:
        with file.open() as stream, io.BufferedReader(_Lines(stream, head, first, end), _PIECE) as lines:
            yield lines

    return opened


def _header(file: InputFile, stream: Any) -> bytes:
    """The file up to the end of the first line that is not blank."""
    head = b""
    while True:
        begun, piece = len(head), bytes(stream.read(_PIECE))
        head += piece
        text = head.lstrip(b"\xef\xbb\xbf\r\n")
        if (at := head.find(b"\n", max(begun, len(head) - len(text)))) >= 0 and text:
            return head[: at + 1]
        if not piece:
            return head
        if len(head) > LARGEST_VALUE:
            raise file.fault(f"no header in its first {LARGEST_VALUE >> 20} MB", 1)


def _first_line(stream: Any, start: int, end: int) -> int:
    """Where the first line begins at or after `start`; `end` if none does before it."""
    # The line begins at `start` itself if the byte before it ends a line.
    at = start - 1
    stream.seek(at)
    while at < end and (piece := bytes(stream.read(_PIECE))):
        if (found := piece.find(b"\n")) >= 0:
            return min(end, at + found + 1)
        at += len(piece)
    return end


class _Lines(io.RawIOBase):
    """The bytes of a header, then the lines of a stream that begin in a range."""

    def __init__(self, stream: Any, head: bytes, first: int, end: int) -> None:
        self._stream, self._head, self._at, self._end = stream, head, first, end
        self._ended = first >= end
        stream.seek(first)

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
        # The last line is the one with the last byte of the range, even if that is its end.
        last = piece.find(b"\n", max(0, self._end - 1 - self._at)) + 1
        self._at += len(piece)
        if last and self._at >= self._end:
            self._ended = True
            return piece[:last]
        return piece
