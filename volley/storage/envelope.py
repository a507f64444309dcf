"""Seals what Volley reads again: a line with format, version, checksum and length stands before the bytes of a file."""

from __future__ import annotations

import json
import re
import zlib
from dataclasses import dataclass
from typing import Any

from volley.errors import StorageError

__all__ = ["MAGIC", "StateFormat"]

MAGIC = b"volley "
_HEAD = re.compile(rb"volley ([a-z-]+) (\d{1,9}) ([0-9a-f]{8}) (\d{1,18})")


@dataclass(frozen=True)
class StateFormat:
    """What the bytes of a file mean.

    Version 1 is what Volley 0.2.0 wrote, without the line: it is read as it is.

    Args:
        name: Its name: small letters and hyphens.
        version: The version that is written, and the latest that can be read.

    Example:
        >>> example = StateFormat("example", 2)
        >>> example.seal(b"bytes")
        b'volley example 2 0e8bf4f5 5\\nbytes'
        >>> example.unseal(example.seal(b"bytes"), "file")
        b'bytes'
    """

    name: str
    version: int = 2

    def seal(self, body: bytes) -> bytes:
        """Return the bytes of a file."""
        return self._line(self.version, body) + body

    def unseal(self, data: bytes, path: str) -> bytes:
        """Return what was sealed.

        Raises:
            ValueError: If the file is damaged, or of another format.
            StorageError: If a newer Volley wrote it.
        """
        if not data.startswith(MAGIC):
            return data
        line, _, body = data.partition(b"\n")
        head = _HEAD.fullmatch(line)
        if head is None:
            raise ValueError("its first line is not one of Volley's")
        name, version, _, size = head.groups()
        if len(body) != int(size):
            raise ValueError(f"it has {len(body):,} bytes behind its first line and not {int(size):,}")
        if line + b"\n" != _line(name, int(version), body):
            raise ValueError("its bytes do not fit its checksum")
        self.check(name.decode(), int(version), path)
        return body

    def check(self, name: str, version: int, path: str) -> None:
        """Check the format that a file says it has.

        Raises:
            ValueError: If it is another format.
            StorageError: If a newer Volley wrote it.
        """
        if name != self.name:
            raise ValueError(f"it has the format {name!r} and not {self.name!r}")
        if version > self.version:
            raise StorageError(
                f"{path} was written by a newer Volley: format {name!r} version {version}, this one reads up to "
                f"{self.version}",
                hint="upgrade Volley to the version that wrote it, or restore the checkpoint from before the upgrade",
            )

    def dump(self, value: object) -> bytes:
        """Return the bytes of a file with a value as JSON."""
        return self.seal(json.dumps(value).encode())

    def load(self, data: bytes, path: str) -> Any:
        """Return the value that `dump` wrote.

        Raises:
            ValueError: If the file is damaged, or of another format.
            StorageError: If a newer Volley wrote it.
        """
        try:
            return json.loads(self.unseal(data, path))
        except RecursionError as error:
            raise ValueError("its JSON is nested too deep") from error

    def _line(self, version: int, body: bytes) -> bytes:
        return _line(self.name.encode(), version, body)


def _line(name: bytes, version: int, body: bytes) -> bytes:
    """Return the first line; its checksum is that of all else in the file."""
    rest = b"%s %d %d\n" % (name, version, len(body))
    return b"volley %s %d %08x %d\n" % (name, version, zlib.crc32(body, zlib.crc32(rest)), len(body))
