"""What to implement for a source: the settings that a user writes, and the reader that runs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from volley.contracts.capabilities import check_capabilities
from volley.contracts.datasets import Dataset
from volley.contracts.reports import Lag, Probe
from volley.contracts.rows import BadRow, PositionedBatch, SeenColumns, numbered
from volley.errors import PlanError, SourceError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


__all__ = ["ExprNode", "Offset", "Reader", "Source", "SourceContext", "SparkSource", "Split", "SplitReader"]

Offset = dict[str, Any]
"""A position in a source: a small dict of JSON values, which Spark stores in its checkpoint."""

Split = Any
"""What one task reads: any small picklable value, opaque to all but its reader."""


class ExprNode:
    """An expression as data: `volley.plan.expression_nodes` has its kinds, Column, Literal and Call."""


@dataclass(frozen=True)
class SourceContext:
    """What a job passes to a source when it opens it.

    Args:
        state: The fsspec URL of a folder that lives as long as the job's checkpoint. It may not exist yet.
        parallelism: How many splits are read at the same time; an epoch of fewer splits leaves cores idle.
        dictionaries: True if every sink accepts dictionary arrays: `Reader.read` may then yield a column as one, if it
            is stored so. The dictionary must not contain nulls.
        predicate: The job drops all rows for which this is not true: the reader may leave them out; None = unknown.
        columns: The only columns of which the job uses the values: the reader may leave out others from its schema.
            None = all. Some of these may be no columns of the source.
        keys: Columns whose values the job uses only to group rows by them: with `dictionaries`, their dictionaries may
            have any size.

    Example:
        >>> SourceContext("/tmp/checkpoints/example/volley/source-0").parallelism
        1
    """

    state: str
    parallelism: int = 1
    dictionaries: bool = False
    predicate: ExprNode | None = None
    columns: frozenset[str] | None = None
    keys: frozenset[str] = frozenset()


class PayloadDecoder(Protocol):
    """Decodes texts that a source could not read when they came; see `volley.formats.messages.Decoder`."""

    def sort(self, values: Sequence[bytes | None], place: str = "") -> Any:
        """Return the values as rows, and why those are bad that still can't be read."""


class Source(ABC):
    """Where rows come from: a frozen, printable value with settings only. `open` makes the reader that runs.

    Import Arrow, and whatever else the reader needs, in `open`, so that building a pipeline stays fast.

    Example:
        >>> from volley import MemorySource
        >>> source = MemorySource([{"id": 1}], name="events")
        >>> source.identity, source.open(SourceContext("/tmp/state")).schema.names
        ('memory:events', ['id'])
    """

    worker_modules: ClassVar[tuple[str, ...]] = ()
    """What tasks import to read it: on one machine, Spark's workers import these before the first task."""

    reads_letters: ClassVar[bool] = False
    """True if its rows are those of dead letters, which the job then marks as replayed."""

    @property
    @abstractmethod
    def bounded(self) -> bool:
        """True if the source has an end; a job whose sources are all bounded finishes there."""

    @property
    @abstractmethod
    def identity(self) -> str:
        """What its offsets refer to, e.g. ``files:/data/in``, without secrets. A checkpoint is bound to it."""

    @abstractmethod
    def open(self, context: SourceContext) -> Reader:
        """Return the reader that runs. Called once on the driver before a job starts.

        Raises:
            SourceError: If the source can't be read.
        """

    def preview(self, context: SourceContext) -> pa.Schema | None:
        """Check the settings and return the schema, if possible, before Spark starts, which takes seconds.

        Args:
            context: As for `open`, without the parallelism, which is not known yet. Write nothing to its folder.

        Returns:
            The Arrow schema that the reader will have; None (default) = not known yet.

        Raises:
            SourceError: If the source can't be read.
        """
        return None

    def declared(self) -> pa.Schema | None:
        """Return the Arrow schema that the settings alone tell, without a look at the source; None = not known."""
        return None

    def datasets(self) -> Sequence[Dataset]:
        """Return the names of what it reads, for lineage; called beside the job, so it may ask a catalog.

        The default is its `identity`.

        Raises:
            VolleyError: If they can't be told: they are left out.
        """
        return [Dataset("volley", self.identity)]

    def probes(self) -> Sequence[Probe]:
        """Return what `volley check` does to see whether the source can be read; it must change nothing.

        The default opens the source in a temporary folder and asks it for its first epoch, as a job does. Override it
        if opening changes something, or takes longer than a few seconds to fail.
        """
        return [Probe("source", self._reach)]

    def _reach(self) -> str:
        with TemporaryDirectory(prefix="volley-") as state:
            context = SourceContext(state)
            self.preview(context)
            reader = self.open(context)
            start = reader.initial_offset()
            return "no rows yet" if reader.latest_offset(start, reader.limit, None) == start else "has rows"

    def payload_decoder(self, format: str, schema: pa.Schema) -> PayloadDecoder | None:
        """Return what decodes the payloads of its bad rows, to read dead letters again; None (default) = nothing does.

        Args:
            format: As of `BadRow`; rows as JSON are decoded without the source.
            schema: The schema of its rows. Columns that payloads lack are null.
        """
        return None

    def is_small(self) -> bool:
        """Return True if it has no more than a few hundred kilobytes of rows, by a look that takes a millisecond.

        On one machine Spark then starts no Python workers before an epoch needs one. The default is False.
        """
        return False

    def explain(self, context: SourceContext) -> str | None:
        """Return one line about what a job would read, such as what is left out of it, for `DataStream.explain`.

        The context has no folder and no parallelism. None (default) = nothing more than the source's repr says.

        Raises:
            VolleyError: If the source can't be read; `explain` then prints the error in its place.
        """
        return None


class SplitReader(ABC):
    """Reads the splits of a source on executors; picklable."""

    @abstractmethod
    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one split in batches of this reader's schema; the same rows on every call.

        Runs on an executor.

        Raises:
            SourceError: If the split can't be read; names the file or position.
            SchemaChangedError: If its rows have columns or types that the reader's schema does not have, and a reader
                that is opened now has: the job opens the source anew, and reads the epoch again.
        """

    def read_tolerant(self, split: Split) -> Iterator[PositionedBatch | BadRow]:
        """Yield the same rows with their positions, and a BadRow for each that can't be read; for dead letters.

        By default every row counts as readable, and its position is its number in the split.

        Raises:
            SourceError: If the split can't be read at all.
        """
        yield from numbered(self.read(split), f"split {split!r:.200}")


class Reader(SplitReader):
    """Runs a source: the driver plans the splits between two offsets, the executors read them as Arrow batches.

    A split must always return the same rows, so that an epoch can be repeated after a crash. An offset tells which rows
    were read, not only how many: the mark of an epoch in a table has a hash of its offsets, which must be others if,
    after an old copy of a checkpoint was put back, other rows take the same places.

    A copy of the reader, made by pickling, gets the calls of `latest_offset` in the driver. The `split_reader` is
    pickled to the executors. Only the driver's own reader gets the calls of `start`, `committed` and `stop`: exclude
    what they create from pickling (``__getstate__``).

    Attributes:
        schema: The Arrow schema of every batch that `read` yields.
        limit: The most that one epoch reads, in the source's own unit (files, rows); None = no limit.

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

    @property
    def acknowledges(self) -> bool:
        """True if `committed` does something: it is called behind each epoch. The default is False."""
        return False

    @property
    def knows_lag(self) -> bool:
        """True if `lag` tells something: it is asked behind each epoch. The default is False."""
        return False

    @property
    def learns(self) -> bool:
        """True if its columns may grow by what its rows have: `learn` keeps it. The default is False."""
        return False

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        check_capabilities(cls, Reader, {"acknowledges": "committed", "knows_lag": "lag", "learns": "learn"})

    @abstractmethod
    def initial_offset(self) -> Offset:
        """Return the offset at which a new job starts; the same on every call."""

    @abstractmethod
    def latest_offset(self, start: Offset, limit: int | None, target: Offset | None) -> Offset:
        """Return the end offset of the epoch that begins at `start`; `start` itself if there are no new rows.

        Args:
            start: The end of the previous epoch.
            limit: The most to read, in the source's own unit; None = no limit.
            target: The last offset to read, which a bounded run sets when it starts; None = none.

        Raises:
            SourceError: If the source can't be reached, or no longer has the rows after `start`.
        """

    @abstractmethod
    def splits(self, start: Offset, end: Offset) -> list[Split]:
        """Return the splits of the rows after `start`, up to and including `end`; the same splits on every call.

        Also called for an epoch that a crashed driver had committed already; its splits are then not read.

        Raises:
            SourceError: If the source does not have these offsets.
        """

    def size(self, split: Split) -> int | None:
        """Return about how many bytes a split has in its source, by what the driver has in memory.

        On one machine the driver itself reads the splits of an epoch that has few: it saves a Spark job. None (default)
        = not known: executors read it.
        """
        return None

    def split_reader(self) -> SplitReader:
        """Return what the executors need to read splits; the default is the reader itself.

        Override it if the reader has more than the executors need, such as a catalog's credentials.
        """
        return self

    def committed(self, offset: Offset) -> None:
        """Release the rows up to `offset`: every sink has committed them. The default does nothing.

        Called on the driver after each epoch if the reader `acknowledges`, in order, at least once: a restart repeats
        the call for the last epoch.
        An offset includes all earlier ones, so the call for the next epoch makes up for one that failed.

        Raises:
            Exception: Any; the job logs it as a warning and goes on.
        """

    def lag(self, offset: Offset) -> Lag | None:
        """Return how far an offset is behind the end of the source, for the job's metrics.

        Called on the driver after each epoch if the reader `knows_lag`. It must be cheap: use what the reader has in
        memory.

        None (default) = not known.

        Raises:
            Exception: Any; the job logs it as a warning and goes on.
        """
        return None

    def learn(self, seen: Sequence[SeenColumns]) -> None:
        """Keep durably what tasks have seen (`note_seen`) of columns that its schema lacks.

        Called on the driver before anything of the epoch is committed, if the reader `learns`; the job then opens the
        source anew, whose reader has these columns, and reads the epoch again. The default does nothing.

        Args:
            seen: What the tasks have seen, of all sources, in the order of the splits.

        Raises:
            OSError: If it can't be kept.
        """

    def nothing(self) -> SourceError | None:
        """Return the error of a bounded run that finds no rows at all, not even ones that an earlier run has read.

        Asked if the end of the source is its initial offset: where the job begins, there is nothing to read. None
        (default) = a source without rows is fine.
        """
        return None

    def start(self) -> None:
        """Start what lives as long as the job, such as a receiver. Called once, before the first epoch.

        Raises:
            SourceError: If it can't start; the job then fails to start.
        """

    def stop(self) -> None:
        """Stop what `start` started. Called once, when the job has ended, also if it failed.

        Raises:
            Exception: Any; the job logs it as a warning.
        """


class SparkSource(Source):
    """A source that Spark reads itself; its rows enter the tasks as Arrow batches. Implement `load` instead of `open`.

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
        """Return a streaming DataFrame of the source's rows."""

    def probes(self) -> Sequence[Probe]:
        # Only Spark can look.
        return []

    def open(self, context: SourceContext) -> Reader:
        raise PlanError(f"{type(self).__name__} is read by Spark itself and has no reader", hint="load(spark)")
