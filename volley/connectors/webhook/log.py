"""The log of requests: its folder, of which the receiver writes the last file and the job reads all, and its writer."""

from __future__ import annotations

import fcntl
import io
import os
import struct
import time
import uuid
import zlib
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import fsspec

from volley.connectors.webhook.frames import Entry, Frame, damaged_at, encode, frames, heads
from volley.errors import SourceError
from volley.storage.durable import write_durably
from volley.storage.remembered import FailureRecord, read_or_create
from volley.storage.state_formats import WEBHOOK_LOG
from volley.task.failpoints import reach

__all__ = ["Log", "LogFolder", "LogSegment", "Mark", "lock"]

_SUFFIX = ".log"
_MARK = struct.Struct("<QQ")
_CHECKSUM = struct.Struct("<I")
_SEGMENT_BYTES = 64 << 20


@dataclass(frozen=True, order=True)
class Mark:
    """A place between two requests of a log."""

    position: int = 0  # the bytes before it, counted from the log's beginning
    requests: int = 0  # the requests before it

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
class LogSegment:
    """A file of the log; its name says where it begins."""

    start: Mark
    path: str

    @classmethod
    def named(cls, folder: str, start: Mark) -> LogSegment:
        """Return the segment that begins at a place."""
        return cls(start, f"{folder}/{start.position:020}-{start.requests:020}{_SUFFIX}")


@dataclass(frozen=True)
class LogFolder:
    """The folder of a log, on a local disk. The receiver writes it, the job reads it."""

    path: str

    @cached_property
    def id(self) -> str:
        """The log's id, made when it is first asked for: another log in the same place has another."""
        return read_or_create(f"{self.path}/id", WEBHOOK_LOG, lambda: uuid.uuid4().hex.encode(), _id)

    def segments(self) -> list[LogSegment]:
        """Return the segments that exist, in order."""
        try:
            names = sorted(name for name in os.listdir(self.path) if name.endswith(_SUFFIX))
        except FileNotFoundError:
            return []
        starts = [Mark(*map(int, name.removesuffix(_SUFFIX).split("-"))) for name in names]
        return [LogSegment.named(self.path, start) for start in starts]

    def segment_of(self, position: int) -> LogSegment | None:
        """Return the segment that has a position; None if it no longer exists."""
        before = [segment for segment in self.segments() if segment.start.position <= position]
        return before[-1] if before else None

    @property
    def durable(self) -> Mark:
        """The end of what is on disk and may be read."""
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
        """The end of what every sink has committed."""
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
    def failure(self) -> FailureRecord:
        """Why there is no receiver, though the job has started one."""
        return FailureRecord(f"{self.path}/failure.json")

    def _read(self, name: str) -> bytes | None:
        try:
            return Path(self.path, name).read_bytes()
        except FileNotFoundError:
            return None

    def _write(self, name: str, data: bytes) -> None:
        write_durably(_files(), f"{self.path}/{name}", data)


def _id(data: bytes) -> str:
    return uuid.UUID(data.decode()).hex


def _files() -> Any:
    return fsspec.filesystem("file")


def lock(folder: LogFolder, seconds: float) -> int:
    """Lock a log for this process, and return the lock's file descriptor; the process' end releases it.

    Args:
        seconds: How long to wait for the receiver of a driver that has just died.

    Raises:
        SourceError: If another process keeps it; names the process.
    """
    descriptor = os.open(f"{folder.path}/lock", os.O_RDWR | os.O_CREAT, 0o600)
    deadline = time.monotonic() + seconds
    while True:
        with suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, str(os.getpid()).encode(), 0)
            return descriptor
        if time.monotonic() > deadline:
            owner = os.pread(descriptor, 20, 0).decode() or "unknown"
            os.close(descriptor)
            raise SourceError(
                f"another job receives requests into {folder.path} (process {owner})",
                hint="stop that job first, or give this one a name or a folder of its own",
            )
        time.sleep(0.05)


class Log:
    """Appends requests to a log's last segment. The process has the log's lock.

    Raises:
        SourceError: If requests that were acknowledged are damaged or missing.
    """

    def __init__(self, folder: LogFolder) -> None:
        self._folder = folder
        self._segment, self.end = _repair(folder)
        self._file = os.open(self._segment.path, os.O_RDWR)
        self._mark = os.open(f"{folder.path}/durable", os.O_RDWR | os.O_CREAT, 0o600)
        self._syncs = 0
        # A frame that was written, but not synced, before a crash may be intact.
        os.fdatasync(self._file)
        self._publish()

    @property
    def is_full(self) -> bool:
        """True if the segment is large enough: call `rotate`."""
        return self.end.position - self._segment.start.position >= _SEGMENT_BYTES

    def append(self, entries: Sequence[Entry]) -> None:
        """Write requests and force them to disk; then publish them to the job.

        Raises:
            OSError: If that fails; nothing is in the log then, and a later call may succeed.
            SourceError: If the segment was deleted or replaced: its requests are lost.
        """
        data = encode(entries, self.end.requests, time.time_ns() // 1000)
        at = self.end.position - self._segment.start.position
        try:
            _write(self._file, data, at)
            reach("before-sync", self._syncs)
            os.fdatasync(self._file)
        except OSError:
            # A part of a frame must not stand between two others.
            os.ftruncate(self._file, at)
            raise
        self._check_place()
        self.end = Mark(self.end.position + len(data), self.end.requests + len(entries))
        self._publish()
        reach("after-sync", self._syncs)
        self._syncs += 1

    @property
    def room(self) -> int:
        """The bytes that the disk has left."""
        disk = os.fstatvfs(self._file)
        return disk.f_bavail * disk.f_frsize

    def try_write(self, size: int) -> None:
        """Write so many bytes behind the log's end, force them to disk, and take them away again."""
        at = self.end.position - self._segment.start.position
        try:
            _write(self._file, bytes(size), at)
            os.fdatasync(self._file)
        finally:
            os.ftruncate(self._file, at)

    def rotate(self) -> None:
        """Go on in a new segment; the old one goes on if none can be made, else may be deleted once committed."""
        segment, file = _create(self._folder, self.end)
        os.close(self._file)
        self._segment, self._file = segment, file

    def frames_from(self, position: int) -> Iterator[Frame]:
        """Yield the frames from a position on, or from the oldest segment that is left."""
        for segment in self._folder.segments():
            begin = max(0, position - segment.start.position)
            with open(segment.path, "rb") as file:
                try:
                    yield from frames(file, begin, os.fstat(file.fileno()).st_size)
                except ValueError as error:
                    raise _damaged(segment, str(error)) from error

    def close(self) -> None:
        """Close the files."""
        os.close(self._file)
        os.close(self._mark)

    def _publish(self) -> None:
        os.pwrite(self._mark, self.end.to_bytes(), 0)

    def _check_place(self) -> None:
        """Raise SourceError if the segment's name no longer leads to the file."""
        with suppress(FileNotFoundError):
            if os.stat(self._segment.path).st_ino == os.fstat(self._file).st_ino:
                return
        raise SourceError(
            f"{self._segment.path} was deleted or replaced while requests were written to it",
            hint="restore it from a backup; the requests in it that no sink has are lost, their senders have an answer",
        )


def _repair(folder: LogFolder) -> tuple[LogSegment, Mark]:
    """Cut a torn end off the last segment, and return the segment with the end of the log; create the first one."""
    segments, durable = folder.segments(), folder.durable
    if not segments:
        if durable.position:
            raise _missing(folder, Mark(), durable)
        first, descriptor = _create(folder, durable)
        os.close(descriptor)
        return first, durable
    _check_sizes(folder, segments)
    last = segments[-1]
    with open(last.path, "r+b") as file:
        size = os.fstat(file.fileno()).st_size
        if damage := damaged_at(file, 0, size):
            at, is_followed = damage
            if is_followed or last.start.position + at < durable.position:
                raise _damaged(last, f"damaged at byte {at}")
            size = file.truncate(at)
            os.fsync(file.fileno())
        end = Mark(last.start.position + size, _requests(file, last, size))
    if end.position < durable.position:
        raise _missing(folder, end, durable)
    return last, end


def _check_sizes(folder: LogFolder, segments: Sequence[LogSegment]) -> None:
    """Raise SourceError if a segment does not end where the next one begins."""
    for segment, following in pairwise(segments):
        with suppress(FileNotFoundError):  # released meanwhile
            end = segment.start.position + os.stat(segment.path).st_size
            if end != following.start.position:
                raise _missing(folder, Mark(end), following.start)


def _requests(file: io.BufferedIOBase, segment: LogSegment, size: int) -> int:
    last = deque(heads(file, 0, size), maxlen=1)
    return last[0].first + last[0].requests if last else segment.start.requests


def _create(folder: LogFolder, start: Mark) -> tuple[LogSegment, int]:
    """Create a segment, and return it with its file's descriptor; or leave nothing behind."""
    segment = LogSegment.named(folder.path, start)
    descriptor = os.open(folder.path, os.O_RDONLY)
    try:
        file = os.open(segment.path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
        try:
            os.fsync(descriptor)
        except OSError:
            # An empty segment before the end of the last one would look like lost requests at the next start.
            os.close(file)
            os.unlink(segment.path)
            raise
    finally:
        os.close(descriptor)
    return segment, file


def _write(file: int, data: bytes, at: int) -> None:
    rest = memoryview(data)
    while rest:
        count = os.pwrite(file, rest, at)
        rest, at = rest[count:], at + count


def _missing(folder: LogFolder, end: Mark, expected: Mark) -> SourceError:
    return SourceError(
        f"the log in {folder.path} lacks bytes {end.position} to {expected.position}, which were acknowledged",
        hint="restore its segments from a backup; or start over with fresh=True if these requests may be lost",
    )


def _damaged(segment: LogSegment, fault: str) -> SourceError:
    return SourceError(
        f"{segment.path} is {fault}, in requests that were acknowledged",
        hint="restore the file from a backup; or start over with fresh=True if these requests may be lost",
    )
