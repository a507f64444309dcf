"""What sources that capture a database share: what they capture, how epochs are planned, and how changes are read."""

from __future__ import annotations

import sys
import time
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, ClassVar, Generic, Literal, Protocol, TypeVar

import pyarrow as pa

from volley.capture.changes import TableChanges, Truncation
from volley.capture.receiver import Receiver
from volley.capture.rows import Form, Output
from volley.capture.segments import Segment, Segments, grouped
from volley.capture.selection import Selection
from volley.contracts.reports import Lag
from volley.contracts.source import Offset, Reader, SplitReader
from volley.errors import SourceError
from volley.storage.remembered import FailureRecord

__all__ = ["Capture", "CaptureReader", "StagedChanges", "StagedReader"]

_SPLIT_BYTES = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Capture:
    """What to capture, and where it is staged; picklable."""

    anew: ClassVar[str]
    """How a source is read anew, for hints."""

    selection: Selection
    packed: bool  # True if rows of tables are packed
    loads: bool  # True if the tables' rows come first
    nulls: bool  # True: values that Arrow does not have are null; False: they are errors
    on_rewrite: Literal["stop", "reload", "ignore"]  # what to do about changes that the server does not tell
    changelog: bool  # True: one row an event, with the row before and after it; False: rows for an upsert
    sequence: bool  # True: rows have their place in the server's log
    bounded: bool  # True: a run ends where the server's log ended when it began
    max_staged: int  # the most bytes of staged segments
    state: str  # the fsspec URL of the source's state folder

    @property
    def segments(self) -> Segments:
        """Where the stream is staged."""
        return Segments(f"{self.state}/segments", self.anew)

    @property
    def name(self) -> str:
        """The source's name in metrics."""
        return str(self.selection.only or self.selection)


C = TypeVar("C", bound=Capture)


@dataclass(frozen=True)
class StagedChanges:
    """A split: staged segments."""

    firsts: tuple[int, ...]  # the numbers of their first messages
    fences: Mapping[Any, Any]  # by table, what its loads have seen


class Decoder(Protocol):
    """Finds the changes of tables in the batches of a segment, in turn."""

    def changes(self, batch: pa.RecordBatch) -> Iterator[TableChanges | Truncation]:
        """Yield the changes in a batch of messages."""


@dataclass(frozen=True)
class StagedReader(SplitReader, Generic[C]):
    """Reads splits on executors: rows of tables, or staged segments."""

    capture: C
    output: Output

    def read(self, split: Any) -> Iterator[pa.RecordBatch]:
        rows = self._changed(split) if isinstance(split, StagedChanges) else self._loaded(split)
        return (self.output.of(form, batch) for form, batch in rows)

    @abstractmethod
    def _loaded(self, split: Any) -> Iterator[tuple[Form, pa.RecordBatch]]:
        """Yield the rows of a split that is not of staged changes."""

    @abstractmethod
    def _decoder(self, fences: Mapping[Any, Any]) -> Decoder:
        """Return what decodes a segment."""

    def _numbers(self, batch: pa.RecordBatch) -> int:
        """Return how many numbers the messages of a batch take up."""
        return int(batch.num_rows)

    def _changed(self, split: StagedChanges) -> Iterator[tuple[Form, pa.RecordBatch]]:
        for first in split.firsts:
            decoder = self._decoder(split.fences)
            segment = self.capture.segments.opened(first)
            for number in range(len(segment)):
                batch = segment.batch(number)
                for changes in decoder.changes(batch):
                    if not self.capture.selection.excludes(changes.table.name):
                        yield self._rows(changes, first)
                first += self._numbers(batch)

    def _rows(self, changes: TableChanges | Truncation, first: int) -> tuple[Form, pa.RecordBatch]:
        form = self.output.form(changes.table)
        try:
            rows = form.truncated(changes, first) if isinstance(changes, Truncation) else form.changed(changes, first)
        except SourceError as error:
            raise error.within(f"table {changes.table.name}") from error
        return form, rows


class LoadList(Protocol):
    """The loads of a source, in order."""

    def listed(self) -> Sequence[Any]:
        """Return all loads."""

    def fences(self, count: int) -> Mapping[Any, Any]:
        """Return by table what the last one of the first `count` loads has seen."""


class CaptureReader(Reader, Generic[C]):
    """Plans loads and segments; the driver's own also receives the stream.

    Args:
        rows: Reads the splits.
        loads: The loads in the source's state folder.
        parallelism: How many splits are read at once.
        limit: The most segments of an epoch; None = all.
    """

    acknowledges = True
    knows_lag = True

    def __init__(self, rows: StagedReader[C], loads: LoadList, parallelism: int, limit: int | None) -> None:
        self.rows = rows
        self.schema = rows.output.schema
        self.parallelism = parallelism
        # Never None: that asks for all there is, where a run has a limit and an epoch reads loads or changes.
        self.limit = limit or sys.maxsize
        self._loads = loads
        self._receiver: Receiver | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_receiver": None}

    def split_reader(self) -> SplitReader:
        return self.rows

    @property
    def capture(self) -> C:
        """What it captures."""
        return self.rows.capture

    def read(self, split: Any) -> Iterator[pa.RecordBatch]:
        return self.rows.read(split)

    def initial_offset(self) -> Offset:
        return {"loads": 0, "next": 1}

    def latest_offset(self, start: Offset, limit: int | None, target: Offset | None) -> Offset:
        if failure := self._failure.read():
            raise failure
        nexts = self._nexts(start["next"])
        # After the segments are listed: a table's load is recorded before a segment with its changes is there.
        loads = len(self._loads.listed())
        if target is not None:
            nexts = [number for number in nexts if number <= target["next"]]
            loads = self._with_repetitions(min(loads, target["loads"]))
        if limit is not None:
            # Loads have an epoch of their own: what comes instead of one that is repeated, comes before all changes.
            nexts = nexts[:limit] if start["loads"] >= loads else []
        return {"loads": loads, "next": nexts[-1] if nexts else start["next"]}

    def _with_repetitions(self, loads: int) -> int:
        """Return how many loads there are up to the last one that makes up for one of the first ones."""
        return loads

    def splits(self, start: Offset, end: Offset) -> list[Any]:
        loads = self._load_splits(start, end)
        segments = [
            segment for segment in self.capture.segments.listed() if start["next"] <= segment.first < end["next"]
        ]
        if start["next"] < end["next"] and (not segments or segments[0].first != start["next"]):
            # Reading it says that it is gone.
            segments.insert(0, Segment(start["next"], 0))
        if not segments:
            return loads
        # By sequence, what a load has seen may come again: it settles whatever the load has.
        fences = {} if self.capture.sequence else self._loads.fences(end["loads"])
        # Not more splits than are read at once; nor more of changes, if they are small.
        share = max(_SPLIT_BYTES, sum(segment.size for segment in segments) / self.parallelism)
        groups = grouped(segments, attrgetter("size"), share)
        return [*loads, *(StagedChanges(tuple(segment.first for segment in group), fences) for group in groups)]

    @abstractmethod
    def _load_splits(self, start: Offset, end: Offset) -> list[Any]:
        """Return the splits of the loads of an epoch."""

    def committed(self, offset: Offset) -> None:
        self.capture.segments.delete_before(offset["next"])

    def lag(self, offset: Offset) -> Lag:
        segments = self.capture.segments
        unread = [segment for segment in segments.listed() if segment.first >= offset["next"]]
        rows, seconds = 0, 0.0
        if unread:
            rows = segments.chain(0).next - offset["next"]
            seconds = max(0.0, time.time() - segments.last_commit(unread[0].first))
        staged = sum(segment.size for segment in unread)
        return Lag(self.capture.name, rows=rows, seconds=seconds, staged_bytes=staged)

    def _receive(self, receiver: Receiver, end: int) -> None:
        """Start the receiver; a bounded run waits until all before a position in the server's log is staged."""
        self._receiver = receiver
        try:
            receiver.start()
            if self.capture.bounded:
                receiver.wait_for(end)
        except BaseException:
            # Also if the user interrupts the wait: it would take the stream from the next run.
            receiver.stop()
            raise

    def stop(self) -> None:
        if self._receiver:
            self._receiver.stop()

    def _nexts(self, start: int) -> list[int]:
        """Return where the segments from a message on end: the number of the message after each."""
        listed = self.capture.segments.listed()
        if not listed or listed[-1].first < start:
            return []
        firsts = [segment.first for segment in listed if segment.first > start]
        return [*firsts, self.capture.segments.chain(0).next]

    @property
    def _failure(self) -> FailureRecord:
        """The receiver's error, for the copy of the reader that is asked for offsets, maybe in another process."""
        return FailureRecord(f"{self.capture.state}/failure.json")
