"""Runs a WebhookSource: plans what the log has on disk as splits, decodes them, and lets committed files go."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import pyarrow as pa

from volley.columns.bisect import sort_failing
from volley.connectors.webhook.batches import Faults
from volley.connectors.webhook.frames import Entry, Frame, FrameHead, frames, heads, unpacked
from volley.connectors.webhook.log import LogFolder, LogSegment, Mark
from volley.connectors.webhook.process import ReceiverProcess
from volley.contracts.reports import Lag
from volley.contracts.rows import BadRow, PositionedBatch, SeenColumns
from volley.contracts.source import Offset, Reader
from volley.errors import SourceError
from volley.formats.messages import Decoder, MessageRows, decode_errors

__all__ = ["Requests", "WebhookReader", "faults_of", "rows_of"]

_SMALLEST_SPLIT = 4 << 20
_CHUNK_BYTES = 4 << 20


class Piece(NamedTuple):
    """Frames of one segment."""

    segment: LogSegment
    begin: int
    end: int


@dataclass(frozen=True)
class WebhookReader(Reader):
    """Reads a log of requests."""

    acknowledges = True
    knows_lag = True
    learns = True

    folder: LogFolder
    rows: MessageRows
    schema: pa.Schema
    initial: Offset
    parallelism: int  # the number of splits that are read at the same time
    name: str
    receiver: ReceiverProcess | None  # keeps the receiver running; None on executors, and for a source that only reads
    limit: int | None  # the most requests of an epoch; None = all

    def initial_offset(self) -> Offset:
        return self.initial

    def latest_offset(self, start: Offset, limit: int | None, target: Offset | None) -> Offset:
        if failure := self.folder.failure.read():
            raise failure
        begin = self._mark(start)
        end = self.folder.durable if target is None else self._mark(target)
        self._check_frame(start)
        if end < begin:
            raise SourceError(
                f"the log in {self.folder.path} ends at request {end.requests}, the checkpoint at {begin.requests}",
                hint="restore the log from a backup; or start over with fresh=True",
            )
        last = self._last_frame(begin, end, limit)
        return start if last is None else self._offset(*last)

    def splits(self, start: Offset, end: Offset) -> list[list[Piece]]:
        begin, last = self._mark(start).position, self._mark(end).position
        size = max(_SMALLEST_SPLIT, (last - begin) / self.parallelism)
        splits: list[list[Piece]] = []
        room = 0.0
        for piece in self._pieces(begin, last, size):
            if room <= 0:
                splits.append([])
                room = size
            splits[-1].append(piece)
            room -= piece.end - piece.begin
        return splits

    def read(self, split: Sequence[Piece]) -> Iterator[pa.RecordBatch]:
        return self.rows.read(self._requests(split))

    def read_tolerant(self, split: Sequence[Piece]) -> Iterator[PositionedBatch | BadRow]:
        return self.rows.read_tolerant(self._requests(split))

    def committed(self, offset: Offset) -> None:
        self.folder.release(self._mark(offset))

    def lag(self, offset: Offset) -> Lag | None:
        begin, end = self._mark(offset), self.folder.durable
        segment = self.folder.segment_of(begin.position)
        if begin >= end or segment is None:
            return Lag(self.name, rows=0, seconds=0.0)
        first = next(_heads(segment, begin.position, end.position))
        return Lag(self.name, rows=end.requests - begin.requests, seconds=max(0.0, time.time() - first.time / 1e6))

    def learn(self, seen: Sequence[SeenColumns]) -> None:
        if self.rows.inferred is not None:
            self.rows.inferred.learn(seen)

    def start(self) -> None:
        if self.receiver is None:
            self.folder.failure.clear()
        else:
            self.receiver.start()

    def stop(self) -> None:
        if self.receiver is not None:
            self.receiver.stop()

    def __reduce__(self) -> tuple[object, ...]:
        # The receiver is the driver's, and its settings have secrets.
        values = {**vars(self), "receiver": None}
        return WebhookReader, tuple(values[name] for name in self.__dataclass_fields__)

    def _offset(self, segment: LogSegment, head: FrameHead) -> Offset:
        """Return the offset behind a frame.

        An old copy of the log that is put back gives the same positions to other requests: the frame's time and
        checksum tell them apart.
        """
        begin, end = (segment.start.position + place for place in (head.position, head.end))
        frame = {"begin": begin, "time": head.time, "checksum": head.checksum}
        return {"log": self.folder.id, "position": end, "requests": head.first + head.requests, "frame": frame}

    def _check_frame(self, offset: Offset) -> None:
        """Raise SourceError if the frame before an offset is another one; those of Volley 0.2 don't tell."""
        if (frame := offset.get("frame")) is None:
            return
        segment = self.folder.segment_of(frame["begin"])
        # The driver deletes segments of which every sink has all requests, maybe just now.
        with suppress(FileNotFoundError):
            heads = [] if segment is None else _heads(segment, frame["begin"], offset["position"])
            if any((head.time, head.checksum) != (frame["time"], frame["checksum"]) for head in heads):
                raise SourceError(
                    f"the log in {self.folder.path} has other requests than the {offset['requests']} that the "
                    "checkpoint has read: the log or the checkpoint is an old copy",
                    hint="restore both from one backup; or start over with fresh=True",
                )

    def _mark(self, offset: Offset) -> Mark:
        if offset["log"] != self.folder.id:
            raise SourceError(
                f"the log in {self.folder.path} is another one than the checkpoint's",
                hint="restore the log from a backup; or start over with fresh=True",
            )
        return Mark(offset["position"], offset["requests"])

    def _last_frame(self, begin: Mark, end: Mark, limit: int | None) -> tuple[LogSegment, FrameHead] | None:
        """Return the last frame within the limit, or the first frame; None if there is none."""
        last = None
        for segment, first, stop in self._ranges(begin.position, end.position):
            try:
                for head in _heads(segment, first, stop):
                    if last and limit is not None and head.first + head.requests - begin.requests > limit:
                        return last
                    last = segment, head
            except FileNotFoundError as error:
                raise _unreadable(segment, "gone") from error
        return last

    def _pieces(self, begin: int, end: int, size: float) -> Iterator[Piece]:
        """Yield the frames between two positions in pieces of about this size."""
        for segment, first, last in self._ranges(begin, end):
            start = first - segment.start.position
            stop = last - segment.start.position
            if os.path.exists(segment.path) and stop - start > size:
                for head in _heads(segment, first, last):
                    if head.end - start >= size:
                        yield Piece(segment, start, head.end)
                        start = head.end
            if start < stop:
                yield Piece(segment, start, stop)

    def _ranges(self, begin: int, end: int) -> Iterator[tuple[LogSegment, int, int]]:
        """Yield each segment between two positions, and the positions in it."""
        segments = self.folder.segments()
        if begin < end and (not segments or segments[0].start.position > begin):
            # Released: an epoch that all sinks have is planned again, but not read.
            first = min(end, segments[0].start.position) if segments else end
            yield LogSegment.named(self.folder.path, Mark(begin)), begin, first
            begin = first
        starts = [segment.start.position for segment in segments]
        for segment, following in zip(segments, [*starts, end][1:], strict=True):
            first, last = max(begin, segment.start.position), min(end, following)
            if first < last:
                yield segment, first, last

    def _requests(self, split: Sequence[Piece]) -> Iterator[Requests]:
        chunk: list[Frame] = []
        size = 0
        for frame in _frames(split):
            chunk.append(frame)
            size += frame.head.end - frame.head.position
            if size >= _CHUNK_BYTES:
                yield Requests.of(chunk)
                chunk, size = [], 0
        if chunk:
            yield Requests.of(chunk)


def parse_offset(data: bytes) -> Offset:
    """Return an offset from its JSON.

    Raises:
        ValueError: If it is damaged; also TypeError and LookupError.
    """
    values = json.loads(data)
    return {"log": str(values["log"]), "position": int(values["position"]), "requests": int(values["requests"])}


def _heads(segment: LogSegment, begin: int, end: int) -> Iterator[FrameHead]:
    start = segment.start.position
    try:
        with open(segment.path, "rb") as file:
            yield from heads(file, begin - start, end - start)
    except ValueError as error:
        raise _unreadable(segment, str(error)) from error


def _frames(split: Sequence[Piece]) -> Iterator[Frame]:
    for segment, begin, end in split:
        try:
            with open(segment.path, "rb") as file:
                yield from frames(file, begin, end)
        except ValueError as error:
            raise _unreadable(segment, str(error)) from error
        except FileNotFoundError as error:
            raise _unreadable(segment, "gone") from error


def _unreadable(segment: LogSegment, fault: str) -> SourceError:
    return SourceError(
        f"{segment.path} is {fault}",
        hint="executors need the log's folder on a disk that they share with the driver; restore a file that was "
        "damaged or deleted from a backup; segments of epochs that every sink has are deleted",
    )


@dataclass
class Requests:
    """Consecutive requests of a log."""

    entries: list[Entry]
    times: list[int]  # when each was written, in microseconds since 1970
    first: int  # the number of the first one

    @classmethod
    def of(cls, frames: Sequence[Frame]) -> Requests:
        """Return the requests of consecutive frames."""
        entries = [entry for frame in frames for entry in frame.entries]
        times = [frame.head.time for frame in frames for _ in frame.entries]
        return cls(entries, times, frames[0].head.first)

    @property
    def values(self) -> Sequence[bytes]:
        """Their bodies."""
        return [entry.body for entry in self.entries]

    def part(self, start: int, end: int) -> Requests:
        """Return the requests from `start` (inclusive) to `end` (exclusive)."""
        return replace(self, entries=self.entries[start:end], times=self.times[start:end], first=self.first + start)

    def position(self, row: int) -> str:
        """Return the number of a request."""
        return f"request {self.first + row}"


def rows_of(decoder: Decoder, include: Sequence[str], headers: Sequence[str]) -> MessageRows:
    """Return what decodes requests into the columns of bodies, of parts of requests, and of headers."""
    fields = [pa.field(f"http_{part}", _PARTS[part]) for part in include]
    fields += [pa.field(column, pa.string()) for column in headers]
    return MessageRows(decoder, pa.schema([*decoder.schema, *fields]), partial(_metadata, include, len(headers)))


def faults_of(decoder: Decoder) -> Faults:
    """Return what says which bodies a decoder can't decode."""

    def faults(bodies: Sequence[bytes]) -> Mapping[int, str]:
        def attempt(start: int, end: int) -> Mapping[int, str]:
            decoder.decode(bodies[start:end])
            return {}

        def few(start: int, end: int) -> tuple[Mapping[int, str], bool]:
            faults = decoder.sort(bodies[start:end]).faults
            return {start + number: fault for number, fault in faults.items()}, bool(faults)

        try:
            return attempt(0, len(bodies))
        except decode_errors:
            pieces = sort_failing(len(bodies), attempt, few, decode_errors)
            return {number: fault for piece in pieces for number, fault in piece.items()}

    return faults


def _metadata(include: Sequence[str], headers: int, fields: Sequence[pa.Field], requests: Requests) -> list[pa.Array]:
    needs_kept = headers or "client" in include
    kept = [unpacked(entry.headers) if entry.headers else [] for entry in requests.entries] if needs_kept else []
    columns: dict[str, Callable[[], pa.Array]] = {
        "key": lambda: _keys(requests),
        "received_at": lambda: _times(requests),
        # The receiver keeps it behind the headers.
        "client": lambda: _kept(kept, headers),
    }
    return [*(columns[part]() for part in include), *(_kept(kept, number) for number in range(headers))]


def _kept(kept: Sequence[Sequence[str | None]], number: int) -> pa.Array:
    """Return what was kept of each request; null where a receiver with other settings has not kept it."""
    return pa.array([values[number] if number < len(values) else None for values in kept], pa.string())


def _keys(requests: Requests) -> pa.Array:
    keys = [entry.key.decode(errors="replace") if entry.key else None for entry in requests.entries]
    return pa.array(keys, pa.string())


def _times(requests: Requests) -> pa.Array:
    return pa.array(requests.times, pa.timestamp("us", "UTC"))


_PARTS = {"key": pa.string(), "received_at": pa.timestamp("us", "UTC"), "client": pa.string()}
