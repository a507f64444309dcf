"""What a source must promise: splits that executors read as Arrow, or a DataFrame that Spark reads itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Offset", "Source", "SparkSource", "Split", "SplitSource"]

Offset = dict[str, Any]
"""A position in a source: a small JSON-able dict that Spark keeps in its checkpoint."""

Split = Any
"""What one task reads: any small picklable value; only the source that made it looks inside."""


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
    Instances are pickled: to Spark's planner process, which calls `latest_offset` and `splits`,
    and to the executors, which call `read`.
    """

    def open(self, state: str) -> SplitSource:
        """Called once on the driver before a job starts; returns the source to run (by default itself).

        Args:
            state: An fsspec URL of a folder that lives as long as the job's checkpoint. It may not exist yet.

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
        """Where a new job starts."""

    @abstractmethod
    def latest_offset(self, start: Offset, limit: int | None, target: Offset | None) -> Offset:
        """How far the epoch that begins at `start` may reach; `start` itself if there is nothing new.

        Args:
            start: The end of the previous epoch.
            limit: The most to take, in the source's own unit; None = all there is.
            target: An offset not to pass (a bounded run fixes it when it starts); None = none.
        """

    @abstractmethod
    def splits(self, start: Offset, end: Offset) -> list[Split]:
        """The splits whose rows lie after `start` and up to `end`; the same ones on every call."""

    @abstractmethod
    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        """The rows of one split, in batches of this source's schema. Runs on an executor.

        Raises:
            SourceError: If the split can't be read; names the file or position.
        """


class SparkSource(Source):
    """A source that Spark itself reads best; it always takes the general path."""

    @abstractmethod
    def load(self, spark: SparkSession) -> DataFrame:
        """A streaming DataFrame of the source's rows."""
