"""Where a source stages the stream that it receives: in durable segments, cut where a transaction ends."""

from __future__ import annotations

import posixpath
import time
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import pyarrow as pa

from volley.capture.changes import Numbers
from volley.errors import SourceError
from volley.storage.durable import sync
from volley.storage.local import begin_file
from volley.storage.paths import filesystem
from volley.storage.state_formats import SEGMENT
from volley.store.files import COMPRESSED, NewFile, OpenFile, open_file
from volley.store.journal import NumberedFiles

__all__ = ["Segment", "SegmentChain", "SegmentTaken", "SegmentWriter", "Segments", "grouped"]

T = TypeVar("T")
SCHEMA = pa.schema([("message", pa.binary())])
_BATCH_MESSAGES = 20_000
_BATCH_BYTES = 8 << 20
_SEGMENT_MESSAGES = 100_000
_SEGMENT_BYTES = 64 << 20
_SEGMENT_SECONDS = 0.2
_UNFINISHED = ".tmp"


class SegmentTaken(Exception):
    """Another receiver has written this segment."""


@dataclass(frozen=True)
class Segment:
    """A segment that is on disk."""

    first: int  # the number of its first message; the messages of all segments are counted, from 1
    size: int  # its bytes


@dataclass(frozen=True)
class SegmentChain:
    """How far the segments reach."""

    next: int
    end: int  # the position in the server's log up to which they have every transaction
    told: int  # the latest position that may have been acknowledged to the server


@dataclass(frozen=True)
class Segments:
    """The segments in a source's state folder.

    A segment is named by the number of its first message, which follows from the segment before it, and is created
    exclusively: of two receivers that continue one chain, one fails. It tells its end.
    """

    folder: str  # the fsspec URL of the folder
    anew: str = 'load the table anew: start with fresh=True, into="replace"'  # the way out if one is lost

    @property
    def _files(self) -> NumberedFiles:
        return NumberedFiles(self.folder, "{:020}.arrow")

    @property
    def _told(self) -> NumberedFiles:
        """Empty files, whose numbers are positions that may have been acknowledged to the server."""
        return NumberedFiles(self.folder, "{:020}.told")

    def listed(self) -> list[Segment]:
        """Return all segments, in order."""
        return [Segment(first, size) for first, size in self._files.sizes().items()]

    def chain(self, origin: int) -> SegmentChain:
        """Return how far the segments reach."""
        listed, told = self.listed(), max([origin, *self._told.numbers()])
        if not listed:
            return SegmentChain(1, origin, told)
        end = self.opened(listed[-1].first).end
        return SegmentChain(listed[-1].first + end["messages"], end["position"], max(end["position"], told))

    def last_commit(self, first: int) -> float:
        """Return when a segment's last transaction was committed, in seconds since 1970."""
        return float(self.opened(first).end["committed"])

    def opened(self, first: int) -> OpenFile:
        """Open a segment.

        Raises:
            SourceError: If it is gone or damaged; also later, when it is read.
            StorageError: If a newer Volley wrote it.
        """
        try:
            return open_file(self._files.url_of(first), SEGMENT, self._lost)
        except FileNotFoundError as error:
            raise self._lost(self._files.file(first)[1], "is gone") from error

    def _lost(self, path: str, fault: str) -> SourceError:
        return SourceError(f"segment {path} {fault}: its changes are lost", hint=f"restore it, or {self.anew}")

    def writer(self, chain: SegmentChain, count: Callable[[Numbers], int] = len) -> SegmentWriter:
        """Return a writer of the segment that continues the chain.

        Args:
            count: Returns how many numbers messages of some lengths take.
        """
        return SegmentWriter(self._files.url_of(chain.next), count)

    def clear_unfinished(self) -> None:
        """Delete what dead receivers have not finished."""
        files, path = filesystem(self.folder, {})
        if files.exists(path):
            for name in files.glob(f"{path}/*{_UNFINISHED}"):
                with suppress(FileNotFoundError):
                    files.rm_file(name)

    def delete_before(self, first: int) -> None:
        """Delete the segments before this message, but for the last one, which says where the next one begins."""
        for number in self._files.numbers()[:-1]:
            if number < first:
                self._files.delete(number)

    def tell(self, position: int) -> None:
        """Record, before it happens, that the server is told up to this position that nothing is needed any more."""
        earlier = self._told.numbers()
        files, path = self._told.file(position)
        begin_file(files, path)
        files.pipe_file(path, b"")
        sync(files, posixpath.dirname(path))
        for number in earlier:
            if number < position:
                self._told.delete(number)


class SegmentWriter:
    """Fills one segment."""

    def __init__(self, url: str, count: Callable[[Numbers], int] = len) -> None:
        self._count = count
        self._file = NewFile(url, SEGMENT, COMPRESSED, exclusive=True)
        self._began = time.monotonic()
        # Bytes alone: objects that live as long as a batch would cost a page fault for each page of it.
        self._held, self._lengths = bytearray(), array("i")
        self._messages = self._bytes = 0

    def hold(self, payloads: Sequence[bytes]) -> None:
        """Add messages; they are written in batches."""
        lengths = array("i", map(len, payloads))
        if sum(lengths) > _BATCH_BYTES and len(payloads) > 1:
            # A batch has 2 GB at most, and a message may have one.
            for payload in payloads:
                self.hold([payload])
            return
        self._held += b"".join(payloads)
        self._lengths += lengths
        if len(self._lengths) >= _BATCH_MESSAGES or len(self._held) >= _BATCH_BYTES:
            self._flush()

    @property
    def is_due(self) -> bool:
        """True if it is large or old enough to end."""
        is_old = time.monotonic() - self._began >= _SEGMENT_SECONDS
        messages = self._messages + len(self._lengths)
        return is_old or messages >= _SEGMENT_MESSAGES or self._bytes + len(self._held) >= _SEGMENT_BYTES

    def _flush(self) -> None:
        if self._lengths:
            self.write(self._held, self._lengths)
            self._held, self._lengths = bytearray(), array("i")

    def write(self, messages: bytearray, lengths: array[int]) -> None:
        """Write a batch of messages, of less than 2 GB, given as their bytes and the length of each."""
        offsets = np.zeros(len(lengths) + 1, np.int32)
        np.cumsum(lengths, out=offsets[1:])
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(messages)]
        column = pa.Array.from_buffers(pa.binary(), len(lengths), buffers)
        self._file.write_batch(pa.record_batch([column], schema=SCHEMA))
        self._messages += self._count(np.frombuffer(lengths, np.int32))
        self._bytes += len(messages)

    def finish(self, position: int, committed: float, more: Mapping[str, object] | None = None) -> int:
        """Make the segment durable, and return the number of its messages.

        Args:
            committed: When its last transaction was committed, in seconds since 1970.
            more: What else its end tells.

        Raises:
            SegmentTaken: If another receiver has written it.
            OSError: If it can't be written.
        """
        self._flush()
        try:
            self._file.publish(
                {"messages": self._messages, "position": position, "committed": committed, **(more or {})}
            )
        except FileExistsError as error:
            raise SegmentTaken(self._file.path) from error
        return self._messages

    def abort(self) -> None:
        """Delete what was written."""
        self._file.discard()


def grouped(items: Iterable[T], size: Callable[[T], int], share: float) -> Iterator[tuple[T, ...]]:
    """Yield neighbouring items as groups of about equal size."""
    group: list[T] = []
    total = 0
    for item in items:
        group.append(item)
        total += size(item)
        if total >= share:
            yield tuple(group)
            group, total = [], 0
    if group:
        yield tuple(group)
