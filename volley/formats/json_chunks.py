"""Cuts the text of JSON files into chunks of whole objects, and arrays into lines of one element each."""

from __future__ import annotations

import codecs
import json
import re
from codecs import BOM_UTF8
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from typing import Any

from volley.errors import SourceError
from volley.formats.input_file import LARGEST_VALUE, InputFile, megabytes
from volley.formats.json_objects import with_names
from volley.formats.lines import lines_between, newlines_in

__all__ = ["chunks_of_objects", "elements", "elements_of", "is_array", "last_cut", "part_of_objects"]

_PIECE = 1 << 20
# Objects within others have a comma between them, and texts have no newline: this is between two rows.
_BETWEEN = re.compile(rb"\}[ \t\r]{0,64}\n(?=[ \t\r\n]{0,64}\{)")
# A line of nothing but these is no text either: objects over several lines, one right behind the other.
_BETWEEN_IN_A_LINE = re.compile(rb"\n[ \t]{0,64}\}[ \t]{0,64}(?=\{[ \t\r]{0,64}\n)")
_LONGEST = 131
_SPACE = b" \t\r\n"


def part_of_objects(file: InputFile, part: tuple[int, int]) -> InputFile:
    """Return a part of a file, as a file: a part begins with the first object that begins on a line behind another.

    Args:
        file: The whole file, uncompressed.
        part: The number of the part, from 0, and the number of parts.
    """
    number, parts = part
    start, end = file.size * number // parts, file.size * (number + 1) // parts
    with file.open() as stream:
        first = _first_cut(stream, start, end) if start else 0
        last = _first_cut(stream, end, file.size) if first < end else end
    return lines_between(file, first, last)


def _first_cut(stream: Any, start: int, limit: int) -> int:
    """Return the first cut at or after `start`; `limit` if there is none before it."""
    at = max(0, start - _LONGEST)
    stream.seek(at)
    text = b""
    while at < limit and (piece := bytes(stream.read(_PIECE))):
        text += piece
        for match in _BETWEEN.finditer(text):
            if at + match.end() >= start:
                return min(limit, at + match.end())
        at += max(0, len(text) - _LONGEST)
        text = text[-_LONGEST:]
    return limit


def last_cut(text: bytes, start: int = 0) -> int:
    """Return where a text can be cut last, behind `start`; 0 if nowhere."""
    at = text.rfind(b"\n{", start)
    while at > 0:
        if text[max(0, at - _LONGEST) : at].rstrip(_SPACE).endswith(b"}"):
            return at + 1
        at = text.rfind(b"\n{", start, at)
    matches = chain(_BETWEEN.finditer(text, start), _BETWEEN_IN_A_LINE.finditer(text, start))
    return max((match.end() for match in matches), default=0)


def chunks_of_objects(file: InputFile, head: bytes, stream: Any, size: int) -> Iterator[tuple[int, bytes]]:
    """Yield chunks of whole objects, each with the number of lines before it.

    Where no object ends within the largest value, a chunk ends with a line.

    Args:
        file: The file, for its name in errors.
        head: Its first bytes.
        size: How many bytes to read at a time.

    Raises:
        SourceError: If a line is larger than the largest value.
    """
    before, held, piece = 0, b"", head
    while piece:
        more = bytes(stream.read(size))
        # Mostly there is a cut in what was read last: then it is copied once.
        if cut := last_cut(piece) if more else len(piece):
            chunk, held = b"".join((held, memoryview(piece)[:cut])), piece[cut:]
        else:
            searched, held = max(0, len(held) - _LONGEST), held + piece
            cut = last_cut(held, searched)
            if not cut and len(held) > LARGEST_VALUE:
                cut = _last_line(file, held, before)
            chunk, held = held[:cut], held[cut:]
        if chunk:
            yield before, chunk
            before += newlines_in(chunk)
        piece = more


def _last_line(file: InputFile, text: bytes, before: int) -> int:
    cut = text.rfind(b"\n") + 1
    if not cut:
        excerpt = text[:80].decode(errors="replace")
        size = megabytes(LARGEST_VALUE)
        raise file.fault(f"longer than {size}; JSON files hold one object a line", before + 1, excerpt)
    return cut


_SPACES = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder()
_HINT = "elements behind this place can't be told apart; mend the file, or write one object a line"


def is_array(head: bytes) -> bool:
    """Return True if a file that begins with these bytes is a JSON array."""
    return head.removeprefix(BOM_UTF8).lstrip(b" \t\r\n").startswith(b"[")


def elements_of(file: InputFile) -> InputFile:
    """Return the file whose places in errors are elements of the array, from 1."""
    return replace(file, unit="element")


def elements(file: InputFile, head: bytes, stream: Any, size: int) -> Iterator[tuple[int, bytes]]:
    """Yield chunks of elements, one a line, each with the number of elements before it.

    Args:
        file: The file, for its name in errors.
        head: Its first bytes, with the start of the array.
        size: The bytes to read at a time; a chunk has as many, or more if an element is larger.

    Raises:
        SourceError: If the text is no array: the elements behind the fault can't be told apart.
    """
    before, lines, length = 0, list[str](), 0
    for text in _Array(file, head, stream, size):
        lines.append(text)
        length += len(text)
        if length >= size:
            yield before, _joined(lines)
            before, lines, length = before + len(lines), [], 0
    if lines:
        yield before, _joined(lines)


def _joined(lines: list[str]) -> bytes:
    return "\n".join(lines).encode(errors="surrogateescape")


class _Array:
    """The text of each element of an array, without newlines; memory holds a piece of the file and one element."""

    def __init__(self, file: InputFile, head: bytes, stream: Any, size: int) -> None:
        self._file, self._stream, self._size = file, stream, size
        # A byte that is no UTF-8 makes its element a bad row, not the file.
        self._decode = codecs.getincrementaldecoder("utf-8")(errors="surrogateescape").decode
        self._text = self._decode(head.removeprefix(BOM_UTF8))
        self._at = self._number = 0
        self._ended = False

    def __iter__(self) -> Iterator[str]:
        self._skip("[")
        if self._next() == "]":
            self._skip("]")
        else:
            yield self._element()
            while self._next() == ",":
                self._skip(",")
                yield self._element()
            self._skip("]")
        if extra := self._next():
            raise self._fault(f"{extra!r} behind the end of the array")

    def _next(self) -> str:
        """Return the next character that is no space; the empty text at the end of the file."""
        while (at := self._after_space()) == len(self._text) and self._read():
            pass
        self._at = at
        return self._text[at : at + 1]

    def _after_space(self) -> int:
        match = _SPACES.match(self._text, self._at)
        assert match is not None
        return match.end()

    def _skip(self, character: str) -> None:
        if self._next() != character:
            missing = "the array is not closed" if not self._text[self._at :] else f"no {character!r} here"
            raise self._fault(missing)
        self._at += 1

    def _element(self) -> str:
        self._next()
        self._number += 1
        while True:
            try:
                _, end = _DECODER.raw_decode(self._text, self._at)
            except RecursionError as error:
                raise self._fault("nested too deep") from error
            except ValueError as error:
                # An infinity by another name, cut at the end of the piece, or wrong.
                if not (self._rename() or self._read()):
                    raise self._fault(f"not JSON ({error})") from error
                continue
            # A number at the end of the piece may go on.
            if end < len(self._text) or not self._read():
                break
        element = self._text[self._at : end]
        self._at = end
        return element.replace("\n", " ").replace("\r", " ")

    def _rename(self) -> bool:
        """Give infinities and NaNs the names that the decoder knows; False if all have them."""
        text = self._text[self._at :]
        named = with_names(text)
        if named != text:
            self._text, self._at = named, 0
        return named != text

    def _read(self) -> bool:
        """Read on; False at the end of the file. As much again as is in memory: a large element is parsed few times."""
        rest = len(self._text) - self._at
        if self._ended or rest > LARGEST_VALUE:
            return False
        data = self._stream.read(max(self._size, rest))
        self._ended = not data
        self._text, self._at = self._text[self._at :] + self._decode(data, final=not data), 0
        return True

    def _fault(self, reason: str) -> SourceError:
        excerpt = self._text[self._at : self._at + 80].encode(errors="surrogateescape").decode(errors="replace")
        return self._file.fault(reason, self._number, excerpt, _HINT)
