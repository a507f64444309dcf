"""Opens compressed files: streams of what a file holds, and the members of a zip."""

from __future__ import annotations

import io
import lzma
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import pyarrow as pa

from volley.formats.gunzip import Gunzip

__all__ = ["decompressed", "members", "opened_member"]

_PIECE_BYTES = 256 << 10
# A file says how much memory its decompression needs: level 9 needs 65 MB.
_MOST_MEMORY = 256 << 20
_MOST_MEMBERS = 10_000
_DAMAGE = (lzma.LZMAError, zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError)


def decompressed(file: Any, codec: str | None) -> Any:
    """Return a stream of what a file holds; its reads raise OSError, without a number, where it is damaged.

    Args:
        file: The file, open for reading bytes.
        codec: Its compression; None = none.
    """
    if codec is None:
        return file
    if codec == "xz":
        return _Unxz(file)
    return Gunzip(file) if codec == "gzip" else pa.input_stream(file, compression=codec)


def members(file: Any) -> Sequence[tuple[str, int]]:
    """Return the names of the files in a zip that are read, and their sizes; not those that begin with ``.`` or ``_``.

    Raises:
        OSError: If it is no zip, or has too many.
    """
    with _damage():
        found = [(info.filename, info.file_size) for info in zipfile.ZipFile(file).infolist() if not info.is_dir()]
    if len(found) > _MOST_MEMBERS:
        raise OSError(f"the zip has {len(found)} files, at most {_MOST_MEMBERS} are read")
    return [(name, size) for name, size in found if not any(part.startswith((".", "_")) for part in name.split("/"))]


@contextmanager
def opened_member(file: Any, name: str) -> Iterator[Any]:
    """Open a file of a zip.

    Raises:
        OSError: If it can't be read: it is encrypted, say.
    """
    with ExitStack() as stack:
        with _damage():
            whole = stack.enter_context(zipfile.ZipFile(file))
            stream = stack.enter_context(whole.open(name))
        yield _Readable(stream)


@contextmanager
def _damage() -> Iterator[None]:
    try:
        yield
    except _DAMAGE as error:
        raise OSError(str(error)) from error


class _Readable(io.RawIOBase):
    """A stream whose reads raise OSError where it is damaged."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def readable(self) -> bool:
        return True

    def read(self, size: int | None = -1) -> bytes:
        with _damage():
            return bytes(self._stream.read(-1 if size is None else size))


class _Unxz(io.RawIOBase):
    """A stream of what an xz file holds: all of its streams, with zeros between them, as xz(1) reads it.

    Python's own file of xz stops at such zeros without an error.
    """

    def __init__(self, file: Any) -> None:
        self._file = file
        self._stream: lzma.LZMADecompressor | None = None
        self._rest = b""

    def readable(self) -> bool:
        return True

    def read(self, size: int | None = -1) -> bytes:
        if size is None or size < 0:
            return b"".join(iter(lambda: self.read(_PIECE_BYTES), b""))
        with _damage():
            while size and (data := self._next(size)) is not None:
                if data:
                    return data
        return b""

    def _next(self, size: int) -> bytes | None:
        """Return up to so many bytes, maybe none; None = the file has ended."""
        if self._stream is None:
            if not (begin := self._beginning()):
                return None
            self._stream, self._rest = lzma.LZMADecompressor(lzma.FORMAT_XZ, _MOST_MEMORY), begin
        data = b""
        if self._stream.needs_input:
            data, self._rest = self._rest or self._file.read(_PIECE_BYTES), b""
            if not data:
                raise EOFError("it is cut off")
        text = self._stream.decompress(data, size)
        if self._stream.eof:
            self._rest, self._stream = self._stream.unused_data, None
        return text

    def _beginning(self) -> bytes:
        """Return the first bytes of the next stream; none at the end."""
        rest = self._rest.lstrip(b"\0")
        while not rest and (data := self._file.read(_PIECE_BYTES)):
            rest = data.lstrip(b"\0")
        return rest
