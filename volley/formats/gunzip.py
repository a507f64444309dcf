"""Decompresses gzip files as gzip(1) does: zeros behind the end, with which tapes and devices fill up, are ignored."""

from __future__ import annotations

import gzip
import io
import zlib
from typing import Any

import pyarrow as pa

__all__ = ["Gunzip"]

_PIECE_BYTES = 1 << 20
_DAMAGE = (OSError, EOFError, zlib.error)


class Gunzip(io.RawIOBase):
    """A stream of what a gzip file holds; `read` raises OSError where it is damaged or cut.

    pyarrow is faster than Python, and takes zeros behind the end for damage: Python's gzip goes on where pyarrow fails.

    Args:
        file: The compressed file, open for reading bytes, at its start.

    Example:
        >>> Gunzip(io.BytesIO(gzip.compress(b"one ") + gzip.compress(b"two") + bytes(512))).read()
        b'one two'
    """

    def __init__(self, file: Any) -> None:
        self._file = file
        # Kept: it closes the file when it goes.
        self._by_arrow = pa.input_stream(file, compression="gzip")
        self._stream: Any = self._by_arrow
        self._position = 0

    def readable(self) -> bool:
        return True

    def read(self, size: int | None = -1) -> bytes:
        most = None if size is None or size < 0 else size
        try:
            data: bytes = self._stream.read(most)
        except _DAMAGE as damage:
            data = self._read_by_python(most, damage)
        self._position += len(data)
        return data

    def _read_by_python(self, most: int | None, damage: Exception) -> bytes:
        """Go on by Python behind what has been read; raise the first error if Python can't either."""
        try:
            self._file.seek(0)
            self._stream = gzip.GzipFile(fileobj=self._file)
            for position in range(0, self._position, _PIECE_BYTES):
                self._stream.read(min(_PIECE_BYTES, self._position - position))
            return bytes(self._stream.read(most))
        except _DAMAGE:
            raise OSError(str(damage)) from damage
