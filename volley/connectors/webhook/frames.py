"""Frames: the requests that one write put on disk, with a checksum; a log is a row of them."""

from __future__ import annotations

import io
import json
import struct
import zlib
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

__all__ = [
    "MOST_HEADER_BYTES",
    "Entry",
    "Frame",
    "FrameHead",
    "damaged_at",
    "encode",
    "frames",
    "heads",
    "packed",
    "unpacked",
]

_MAGIC = b"VWL1"
# Magic, checksum of all that follows, bytes behind the head, requests, number of the first request, time.
_HEAD = struct.Struct("<4sIIIQQ")
_UNCHECKED = 8
_LENGTHS = struct.Struct("<HHI")
MOST_HEADER_BYTES = 0xFFFF
"""The most bytes of a request's kept headers: their length has two bytes."""


class Entry(NamedTuple):
    """A request in the log."""

    key: bytes  # its idempotency key; empty = none
    headers: bytes  # the kept headers as a JSON list; empty = none
    body: bytes


class FrameHead(NamedTuple):
    """The head of a frame."""

    position: int  # where the frame begins in its file
    end: int
    first: int  # the number of its first request, counted from the log's beginning
    requests: int
    time: int  # when it was written, in microseconds since 1970
    checksum: int  # the CRC-32 of the rest of its bytes


class Frame(NamedTuple):
    """A frame whose checksum is right."""

    head: FrameHead
    entries: list[Entry]


def encode(entries: Sequence[Entry], first: int, time: int) -> bytes:
    """Return requests as one frame.

    Example:
        >>> data = encode([Entry(b"key", b"", b"{}")], first=7, time=0)
        >>> [frame.entries for frame in frames(io.BytesIO(data), 0, len(data))]
        [[Entry(key=b'key', headers=b'', body=b'{}')]]
    """
    lengths = [_LENGTHS.pack(len(key), len(headers), len(body)) for key, headers, body in entries]
    payload = b"".join([*lengths, *(part for entry in entries for part in entry)])
    head = _HEAD.pack(_MAGIC, 0, len(payload), len(entries), first, time)[_UNCHECKED:]
    checksum = zlib.crc32(payload, zlib.crc32(head))
    return b"".join([_MAGIC, checksum.to_bytes(4, "little"), head, payload])


def heads(file: io.BufferedIOBase, begin: int, end: int) -> Iterator[FrameHead]:
    """Yield the heads of the frames between two borders of frames, without reading the rest.

    Raises:
        ValueError: If there is no frame at a border; the message has the position.
    """
    while begin < end:
        file.seek(begin)
        head = _head(file.read(_HEAD.size), begin)
        yield head
        begin = head.end


def frames(file: io.BufferedIOBase, begin: int, end: int) -> Iterator[Frame]:
    """Yield the frames between two borders of frames.

    Raises:
        ValueError: If a frame is damaged; `damaged_at` tells where.
    """
    last = min(end, file.seek(0, io.SEEK_END))
    file.seek(begin)
    while begin < end:
        data = file.read(_HEAD.size)
        head = _head(data, begin)
        # Compare first: a damaged length may be more than memory holds.
        if head.end > last:
            raise _Damaged(begin)
        payload = file.read(head.end - begin - _HEAD.size)
        if zlib.crc32(payload, zlib.crc32(data[_UNCHECKED:])) != head.checksum:
            raise _Damaged(begin)
        yield Frame(head, _entries(payload, head.requests))
        begin = head.end


def damaged_at(file: io.BufferedIOBase, begin: int, end: int) -> tuple[int, bool] | None:
    """Return where the first damaged frame begins, and whether an intact one follows it; None = all are intact.

    One write is one frame, and each is forced to disk before the next one: a crash can damage the last frame only.
    """
    try:
        for frame in frames(file, begin, end):
            begin = frame.head.end
    except _Damaged as error:
        return error.position, _is_followed(file, error.position + 1, end)
    return None


class _Damaged(ValueError):
    """A frame's head or checksum is wrong."""

    def __init__(self, position: int) -> None:
        super().__init__(f"damaged at byte {position}")
        self.position = position


def _head(data: bytes, position: int) -> FrameHead:
    if len(data) < _HEAD.size or not data.startswith(_MAGIC):
        raise _Damaged(position)
    _, checksum, size, count, first, time = _HEAD.unpack(data)
    return FrameHead(position, position + _HEAD.size + size, first, count, time, checksum)


def _entries(payload: bytes, count: int) -> list[Entry]:
    lengths = [length for entry in _LENGTHS.iter_unpack(payload[: count * _LENGTHS.size]) for length in entry]
    ends = list(accumulate(lengths, initial=count * _LENGTHS.size))
    parts = iter([payload[begin:end] for begin, end in pairwise(ends)])
    return list(map(Entry, parts, parts, parts))


def _is_followed(file: io.BufferedIOBase, begin: int, end: int) -> bool:
    """Return True if an intact frame begins anywhere behind a position."""
    file.seek(begin)
    rest = file.read(end - begin)
    at = rest.find(_MAGIC)
    while at >= 0:
        try:
            next(frames(file, begin + at, end))
            return True
        except _Damaged:
            at = rest.find(_MAGIC, at + 1)
    return False


def packed(values: Sequence[str | None]) -> bytes:
    """Return headers as they stand in the log; bytes that are not UTF-8 become U+FFFD.

    Args:
        values: The headers as aiohttp gives them, such bytes as surrogates; None = the request has no such header.

    Example:
        >>> unpacked(packed(["push", None, "\\udcff"]))
        ['push', None, '\ufffd']
    """
    return json.dumps([_text(value) for value in values], ensure_ascii=False).encode()


def unpacked(kept: bytes) -> list[str | None]:
    """Return headers from the log, also from one whose writer left surrogates in."""
    return [_text(value) for value in json.loads(kept)]


def _text(value: str | None) -> str | None:
    return None if value is None else value.encode(errors="surrogateescape").decode(errors="replace")
