"""The folder of a log: its segments, how far it is on disk, how far its requests are committed."""

from __future__ import annotations

import os
import struct
import uuid
import zlib
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import fsspec

from volley.errors import SourceError, VolleyError
from volley.storage.durable import write_durably
from volley.storage.remembered import MALFORMED, read_or_create
from volley.storage.state_formats import FAILURE, WEBHOOK_LOG

__all__ = ["LogFolder", "Mark", "Segment"]

_SUFFIX = ".log"
_MARK = struct.Struct("<QQ")
_CHECKSUM = struct.Struct("<I")


@dataclass(frozen=True, order=True)
class Mark:
    """A place between two requests of a log.

    Args:
        position: The bytes before it, counted from the log's beginning.
        requests: The requests before it.
    """

    position: int = 0
    requests: int = 0

    def to_bytes(self) -> bytes:
        """Return the mark with a checksum: a reader may meet a write that is not complete."""
        data = _MARK.pack(self.position, self.requests)
        return data + _CHECKSUM.pack(zlib.crc32(data))

    @staticmethod
    def from_bytes(data: bytes) -> Mark | None:
        """Return the mark that `to_bytes` wrote; None if the data are not complete."""
        mark = data[: _MARK.size]
        complete = data[_MARK.size :] == _CHECKSUM.pack(zlib.crc32(mark)) and len(mark) == _MARK.size
        return Mark(*_MARK.unpack(mark)) if complete else None


@dataclass(frozen=True, order=True)
class Segment:
    """A file of the log; its name says where it begins.

    Args:
        start: Where it begins.
        path: Its path.
    """

    start: Mark
    path: str

    @classmethod
    def named(cls, folder: str, start: Mark) -> Segment:
        """Return the segment that begins at a place."""
        return cls(start, f"{folder}/{start.position:020}-{start.requests:020}{_SUFFIX}")


@dataclass(frozen=True)
class LogFolder:
    """The folder of a log, on a local disk. The receiver writes it, the job reads it.

    Args:
        path: Its path.
    """

    path: str

    @cached_property
    def id(self) -> str:
        """The log's id, made when it is first asked for: another log in the same place has another."""
        return read_or_create(f"{self.path}/id", WEBHOOK_LOG, lambda: uuid.uuid4().hex.encode(), _id)

    def segments(self) -> list[Segment]:
        """Return the segments that exist, in order."""
        try:
            names = sorted(name for name in os.listdir(self.path) if name.endswith(_SUFFIX))
        except FileNotFoundError:
            return []
        starts = [Mark(*map(int, name.removesuffix(_SUFFIX).split("-"))) for name in names]
        return [Segment.named(self.path, start) for start in starts]

    def segment_of(self, position: int) -> Segment | None:
        """Return the segment that has a position; None if it no longer exists."""
        before = [segment for segment in self.segments() if segment.start.position <= position]
        return before[-1] if before else None

    @property
    def durable(self) -> Mark:
        """The end of what is on disk and may be read.

        Raises:
            SourceError: If the file that says so is damaged.
        """
        # A second look: the first may have met a write.
        for _ in range(2):
            data = self._read("durable")
            if data is None:
                return Mark()
            if mark := Mark.from_bytes(data):
                return mark
        raise SourceError(f"{self.path}/durable is damaged", hint="start the job again: the receiver writes it anew")

    @property
    def released(self) -> Mark:
        """The end of what every sink has committed.

        Raises:
            SourceError: If the file that says so is damaged.
        """
        data = self._read("released")
        mark = Mark() if data is None else Mark.from_bytes(data)
        if mark is None:
            raise SourceError(
                f"{self.path}/released is damaged",
                hint="restore it from a backup; or delete it: a job that starts over reads again what is still there",
            )
        return mark

    def release(self, mark: Mark) -> None:
        """Record that all requests before a mark are committed, and delete the segments that have no other.

        The last segment stays: it is the receiver's.

        Raises:
            OSError: If the folder can't be written.
        """
        try:
            self._record_release(mark)
        except OSError:
            # A disk that is full of them has room for the record afterwards.
            self._delete_before(mark)
            self._record_release(mark)
        self._delete_before(mark)

    def _record_release(self, mark: Mark) -> None:
        if mark > self.released:
            self._write("released", mark.to_bytes())

    def _delete_before(self, mark: Mark) -> None:
        for segment, following in pairwise(self.segments()):
            if following.start.position <= mark.position:
                os.unlink(segment.path)

    @property
    def failure(self) -> VolleyError | None:
        """Why there is no receiver, though the job has started one; None = there is one.

        Raises:
            SourceError: If the file that says so is damaged.
            StorageError: If a newer Volley wrote it.
        """
        data = self._read("failure.json")
        return None if data is None else _parsed(f"{self.path}/failure.json", data)

    def fail(self, error: VolleyError | None) -> None:
        """Record why there is no receiver; None = there is one."""
        if error is not None:
            self._write("failure.json", FAILURE.seal(error.to_json().encode()))
        else:
            Path(self.path, "failure.json").unlink(missing_ok=True)

    def _read(self, name: str) -> bytes | None:
        try:
            return Path(self.path, name).read_bytes()
        except FileNotFoundError:
            return None

    def _write(self, name: str, data: bytes) -> None:
        write_durably(_files(), f"{self.path}/{name}", data)


def _id(data: bytes) -> str:
    return uuid.UUID(data.decode()).hex


def _parsed(path: str, data: bytes) -> VolleyError:
    try:
        return VolleyError.from_json(FAILURE.unseal(data, path).decode())
    except MALFORMED as error:
        raise SourceError(f"{path} is damaged: {error}", hint="start the job again: it is written anew") from error


def _files() -> Any:
    return fsspec.filesystem("file")
