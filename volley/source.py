"""What a source must promise: splits that executors read as Arrow, or a DataFrame that Spark reads itself."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["BadRow", "Located", "Offset", "Source", "SparkSource", "Split", "SplitSource", "counted"]

Offset = dict[str, Any]
"""A position in a source: a small JSON-able dict that Spark keeps in its checkpoint."""

Split = Any
"""What one task reads: any small picklable value; only the source that made it looks inside."""


@dataclass(frozen=True)
class BadRow:
    """A row that can't be used, as it goes to a dead letter.

    Args:
        payload: The row as it stands in the source; if it was read already, as JSON.
        error: What is wrong with it.
        position: Where it stands in the source.
    """

    payload: str
    error: str
    position: str

    @classmethod
    def of(cls, batch: pa.RecordBatch, row: int, error: str, position: str) -> BadRow:
        """A row of a batch."""
        return cls(_as_json(batch.slice(row, 1)), error, position)


@dataclass(frozen=True)
class Located:
    """Rows of a source that were read, and where each stands.

    Args:
        batch: The rows.
        position: From a row's number in the batch to its place in the source; asked for bad rows only, in ascending
            order and once each.
    """

    batch: pa.RecordBatch
    position: Callable[[int], str]


def counted(batches: Iterator[pa.RecordBatch], place: str, before: int = 0) -> Iterator[Located]:
    """Batches that follow each other in one place: their rows are counted from 1.

    Args:
        batches: The batches.
        place: What errors call the place.
        before: The rows in front of them.
    """
    for batch in batches:
        yield Located(batch, _Counted(place, before + 1))
        before += batch.num_rows


@dataclass(frozen=True)
class _Counted:
    place: str
    first: int

    def __call__(self, row: int) -> str:
        return f"{self.place}, row {self.first + row}"


def _as_json(row: pa.RecordBatch) -> str:
    from volley._readable import readable_rows

    (values,) = readable_rows(row)
    return json.dumps(values, default=_text, ensure_ascii=False)


def _text(value: object) -> str:
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else str(value)


class Source(ABC):
    """Where rows come from: a frozen, printable value; nothing is opened while a pipeline is built."""

    @property
    @abstractmethod
    def bounded(self) -> bool:
        """True if the source ends by itself; a job over bounded sources only stops at their end."""

    @property
    @abstractmethod
    def identity(self) -> str:
        """What the offsets of this source mean, e.g. ``files:/data/in``; a checkpoint is bound to it. No secrets."""


class SplitSource(Source):
    """A source that reads Arrow: the driver plans splits between two offsets, executors read them.

    The same split must always give the same rows: that is what makes an epoch repeatable after a crash.
    Instances are pickled: to Spark's planner process, which calls `latest_offset` (and `splits`, on the general path;
    else the driver does), and to the executors, which call `read`.
    """

    def preview(self, state: str) -> pa.Schema | None:
        """What is known before Spark starts, which takes seconds: wrong settings and columns are found by it.

        Args:
            state: As for `open`; nothing is written there.

        Returns:
            The schema that `open` will find; None (the default) if it is not known yet.

        Raises:
            SourceError: If the source can't be read.
        """
        return None

    def open(self, state: str, parallelism: int = 1) -> SplitSource:
        """Called once on the driver before a job starts; returns the source to run (by default itself).

        Args:
            state: An fsspec URL of a folder that lives as long as the job's checkpoint. It may not exist yet.
            parallelism: How many splits are read at the same time: an epoch in fewer leaves cores without work.

        Raises:
            SourceError: If the source can't be read.
        """
        return self

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """The Arrow schema of every batch `read` yields; asked only after `open`."""

    @property
    def limit(self) -> int | None:
        """The most that one epoch takes, in the source's own unit (files, rows); None = all there is."""
        return None

    @abstractmethod
    def initial_offset(self) -> Offset:
        """Where a new job starts; the same on every call after `open`."""

    @abstractmethod
    def latest_offset(self, start: Offset, limit: int | None, target: Offset | None) -> Offset:
        """How far the epoch that begins at `start` may reach; `start` itself if there is nothing new.

        Args:
            start: The end of the previous epoch.
            limit: The most to take, in the source's own unit; None = all there is.
            target: An offset not to pass (a bounded run fixes it when it starts); None = none.
        """

    def with_dictionaries(self) -> SplitSource:
        """The same source, of which `read` may yield a column as dictionary and indices if it is stored so.

        Asked behind `open`, where every sink takes them; by default there are none. A dictionary has no nulls.
        """
        return self

    @abstractmethod
    def splits(self, start: Offset, end: Offset) -> list[Split]:
        """The splits whose rows lie after `start` and up to `end`; the same ones on every call."""

    @abstractmethod
    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        """The rows of one split, in batches of this source's schema. Runs on an executor.

        Raises:
            SourceError: If the split can't be read; names the file or position.
        """

    def read_tolerant(self, split: Split) -> Iterator[Located | BadRow]:
        """The same rows, each with its place, and in between those that can't be read; for sinks with a dead letter.

        By default every row is taken as readable, and its place is its number in the split.

        Raises:
            SourceError: If the split can't be read at all.
        """
        yield from counted(self.read(split), f"{self.identity}, split {split!r:.200}")


class SparkSource(Source):
    """A source that Spark itself reads best; it always takes the general path."""

    @abstractmethod
    def load(self, spark: SparkSession) -> DataFrame:
        """A streaming DataFrame of the source's rows."""
