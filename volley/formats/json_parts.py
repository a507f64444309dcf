"""Cuts a text of JSON objects between two of them, so that objects over several lines stay whole."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain
from typing import Any

from volley.formats.input_file import LARGEST_VALUE, InputFile, megabytes
from volley.formats.line_parts import lines_between

__all__ = ["chunks_of_objects", "last_cut", "part_of_objects"]

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
        stream: The rest of it.
        size: How many bytes to read at a time.

    Raises:
        SourceError: If a line is larger than the largest value.
    """
    before, held, piece = 0, b"", head
    while piece:
        searched, held = max(0, len(held) - _LONGEST), held + piece
        piece = bytes(stream.read(size))
        cut = last_cut(held, searched) if piece else len(held)
        if not cut and len(held) > LARGEST_VALUE:
            cut = _last_line(file, held, before)
        if cut:
            yield before, held[:cut]
            before += held.count(b"\n", 0, cut)
            held = held[cut:]


def _last_line(file: InputFile, text: bytes, before: int) -> int:
    cut = text.rfind(b"\n") + 1
    if not cut:
        excerpt = text[:80].decode(errors="replace")
        size = megabytes(LARGEST_VALUE)
        raise file.fault(f"longer than {size}; JSON files hold one object a line", before + 1, excerpt)
    return cut
