"""What to implement for a source: the value that a user writes, and the reader that it opens to run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from volley.bad_rows import BadRow, PositionedBatch, numbered
from volley.errors import PlanError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Offset", "Reader", "Source", "SourceContext", "SparkSource", "Split"]

Offset = dict[str, Any]
"""A position in a source: a small JSON-able dict that Spark keeps in its checkpoint."""

Split = Any
"""What one task reads: any small picklable value; only the reader that made it looks inside."""


@dataclass(frozen=True)
class SourceContext:
    """What a source is told when it is opened for a job.

    Args:
        state: The fsspec URL of a folder that lives as long as the job's checkpoint. It may not exist yet.
        parallelism: How many splits are read at the same time: an epoch in fewer leaves cores without work.
        dictionaries: True: `Reader.read` may yield a column as dictionary and indices if it is stored so, as every
            sink takes them. A dictionary has no nulls.

    Example:
        >>> SourceContext("/tmp/checkpoints/example/volley/source-0").parallelism
        1
    """

    state: str
    parallelism: int = 1
    dictionaries: bool = False


class Source(ABC):
    """Where rows come from: a frozen, printable value. It holds settings only; `open` makes the reader that runs.

    Building a pipeline should stay quick: import Arrow, and whatever else the reader needs, in `open`.

    Example:
        >>> from volley import MemorySource
        >>> source = MemorySource([{"id": 1}], name="events")
        >>> source.identity, source.open(SourceContext("/tmp/state")).schema.names
        ('memory:events', ['id'])
    """

    @property
    @abstractmethod
    def bounded(self) -> bool:
        """True if the source ends by itself; a job over bounded sources only stops at their end."""

    @property
    @abstractmethod
    def identity(self) -> str:
        """What the offsets of this source mean, e.g. ``files:/data/in``; a checkpoint is bound to it. No secrets."""

    @abstractmethod
    def open(self, context: SourceContext) -> Reader:
        """Make the reader that runs; called once on the driver before a job starts.

        Args:
            context: What the job gives it.

        Raises:
            SourceError: If the source can't be read.
        """

    def preview(self, context: SourceContext) -> pa.Schema | None:
        """Find out before Spark starts, which takes seconds, what can be known by then: settings, columns.

        Args:
            context: As for `open`; nothing is written to its folder. The parallelism is not known yet.

        Returns:
            The schema that the reader will have; None (the default) if it is not known yet.

        Raises:
            SourceError: If the source can't be read.
        """
        return None


class Reader(ABC):
    """Runs a source: the driver plans splits between two offsets, executors read them as Arrow.

    The same split must always give the same rows: that is what makes an epoch repeatable after a crash.

    A reader is pickled: to Spark's planner process, which calls `latest_offset` (and `splits`, on the general path;
    else the driver does), and to the executors, which call `read`. `start`, `committed` and `stop` are called on the
    driver's own reader alone: leave out what they make when it is pickled (``__getstate__``).

    Attributes:
        schema: The Arrow schema of every batch that `read` yields.
        limit: The most that one epoch takes, in the source's own unit (files, rows); None = all there is.

    Example:
        >>> import pyarrow as pa
        >>> class Ten(Reader):
        ...     schema = pa.schema({"n": pa.int64()})
        ...     def initial_offset(self):
        ...         return {"n": 0}
        ...     def latest_offset(self, start, limit, target):
        ...         return {"n": 10}
        ...     def splits(self, start, end):
        ...         return [range(start["n"], end["n"])]
        ...     def read(self, split):
        ...         yield pa.record_batch({"n": list(split)}, self.schema)
        >>> [batch.num_rows for batch in Ten().read(range(3))]
        [3]
    """

    schema: pa.Schema
    limit: int | None = None

    @abstractmethod
    def initial_offset(self) -> Offset:
        """Where a new job starts; the same on every call."""

    @abstractmethod
    def latest_offset(self, start: Offset, limit: int | None, target: Offset | None) -> Offset:
        """How far the epoch that begins at `start` may reach; `start` itself if there is nothing new.

        Args:
            start: The end of the previous epoch.
            limit: The most to take, in the source's own unit; None = all there is.
            target: An offset not to pass (a bounded run fixes it when it starts); None = none.

        Raises:
            SourceError: If the source can't be asked, or no longer has what lies behind `start`.
        """

    @abstractmethod
    def splits(self, start: Offset, end: Offset) -> list[Split]:
        """The splits whose rows lie after `start` and up to `end`; the same ones on every call.

        Also asked for an epoch that was committed when a driver died; nothing is read by them then.

        Raises:
            SourceError: If the source does not have these offsets.
        """

    @abstractmethod
    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        """The rows of one split, in batches of this reader's schema; the same ones on every call. Runs on an executor.

        Raises:
            SourceError: If the split can't be read; names the file or position.
        """

    def read_tolerant(self, split: Split) -> Iterator[PositionedBatch | BadRow]:
        """The same rows, each with its place, and in between those that can't be read; for sinks with a dead letter.

        By default every row is taken as readable, and its place is its number in the split.

        Raises:
            SourceError: If the split can't be read at all.
        """
        yield from numbered(self.read(split), f"split {split!r:.200}")

    def committed(self, offset: Offset) -> None:
        """Let go of what lies up to `offset`: every sink has it, and it is not read again. By default nothing.

        Called on the driver behind each epoch, in order, at least once: after a restart the end of the last epoch is
        told again. An offset stands for all before it: the call behind the next epoch makes up for one that failed.

        Args:
            offset: Where an epoch ends.

        Raises:
            Exception: Any; it is logged as a warning and does not stop the job.
        """

    def start(self) -> None:
        """Begin what lives as long as the job, a receiver for example; called once, before the first epoch.

        Raises:
            SourceError: If it can't begin; the job does not start then.
        """

    def stop(self) -> None:
        """End what `start` began; called once, when the job has ended, failed jobs included.

        Raises:
            Exception: Any; it is logged as a warning.
        """


class SparkSource(Source):
    """A source that Spark itself reads best; it always takes the general path. `load` stands in for `open`.

    Example:
        >>> class Ticks(SparkSource):
        ...     bounded = False
        ...     identity = "ticks"
        ...     def load(self, spark):
        ...         return spark.readStream.format("rate").load()
        >>> Ticks().identity
        'ticks'
    """

    @abstractmethod
    def load(self, spark: SparkSession) -> DataFrame:
        """A streaming DataFrame of the source's rows.

        Args:
            spark: The job's session.
        """

    def open(self, context: SourceContext) -> Reader:
        raise PlanError(f"{type(self).__name__} is read by Spark itself and has no reader", hint="load(spark)")
