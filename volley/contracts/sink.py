"""What to implement for a sink: a Writer, pickled to the executors, and a Committer, which stays on the driver."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from volley.contracts.capabilities import check_capabilities
from volley.contracts.datasets import Dataset
from volley.contracts.epoch import Epoch, WriteResult
from volley.contracts.reports import Probe, TableTotals
from volley.errors import ConfigError, StorageError

if TYPE_CHECKING:
    import pyarrow as pa

    from volley.contracts.reports import MaintenanceReport

__all__ = ["Committer", "ExecutorTask", "Sink", "SinkContext", "SinkMetrics", "TaskWriter", "Writer"]

ExecutorTask = Callable[[], WriteResult]
"""Picklable, idempotent work that runs on an executor between write and commit.

One with an attribute `suits_driver` that is True is so little work that on one machine the driver does it: this saves a
Spark job, if it can be said of all tasks that run together.
"""


def _run_on_driver(tasks: Sequence[ExecutorTask]) -> list[WriteResult]:
    return [task() for task in tasks]


class SinkMetrics(Protocol):
    """The counters of a sink that its committer moves; the job counts what is written and committed."""

    def record_retry(self) -> None:
        """Count one commit attempt after the first."""

    def record_maintenance(self, seconds: float, succeeded: bool) -> None:
        """Count one action of maintenance, and how long it took, in seconds."""

    def record_table(self, name: str, rows: int) -> None:
        """Count a commit of rows to one of the tables of a sink with many."""

    def record_parked(self, rows: Mapping[str, int]) -> None:
        """Keep how many rows wait for tables of a sink, by the tables' names; none wait for any other."""

    def record_totals(self, table: str, totals: TableTotals) -> None:
        """Keep what a table has, by its name."""


@dataclass(frozen=True)
class SinkContext:
    """What a job passes to a sink when it opens it.

    Args:
        job: The job's name.
        schema: The Arrow schema of the rows that the job will write.
        metrics: The sink's counters.
        run: Runs tasks on the executors, for a commit that is too much work for the driver, and returns their results
            in the same order. The default runs them on the driver.
        run_beside: The same for work beside the epochs, from any thread: one task at a time, so that epochs keep the
            other cores, and without a place in the job's progress. The default runs them on the driver.
        resumed: True if the job has written to the target before: if the target is gone, don't create it again.
        shared: True for a dead letter: other jobs' rows stay when `Committer.clear` empties the target.
        state: The fsspec URL of a folder that lives as long as the job's checkpoint, for what the sink must remember.
            It may not exist yet; executors reach it if they reach the checkpoint. Empty = there is none.

    Example:
        >>> import pyarrow as pa
        >>> from volley import Metrics
        >>> SinkContext("orders", pa.schema({"id": pa.int64()}), Metrics()).run([lambda: WriteResult(rows=2)])[0].rows
        2
    """

    job: str
    schema: pa.Schema
    metrics: SinkMetrics
    run: Callable[[Sequence[ExecutorTask]], list[WriteResult]] = _run_on_driver
    resumed: bool = False
    shared: bool = False
    run_beside: Callable[[Sequence[ExecutorTask]], list[WriteResult]] = _run_on_driver
    state: str = ""


class TaskWriter(ABC):
    """Writes the rows of one attempt of one task, on an executor.

    Example:
        >>> class Count(TaskWriter):
        ...     result = WriteResult()
        ...     def write(self, batch):
        ...         self.result = self.result.with_batch(batch.num_rows)
        ...     def close(self):
        ...         return self.result
        >>> import pyarrow as pa
        >>> writer = Count()
        >>> writer.write(pa.record_batch({"id": [1, 2, 3]}))
        >>> writer.close().rows
        3
    """

    def check(self, batch: pa.RecordBatch) -> None:
        """Raise if `write` would reject the batch, and write nothing. Called if the sink has a dead letter.

        The batch has the context's schema. The default accepts every row.

        Raises:
            SchemaMismatchError: If a row can't be written.
            SourceError: If a value can't be cast without loss.
        """
        return

    @property
    def is_full(self) -> bool:
        """True if it needs no further rows: reading may end. The default is False."""
        return False

    def rejected(self, error: Exception) -> None:
        """Take note of a row that goes to a dead letter. The default does nothing.

        `check` may refuse the row in several batches; this is called once, for the row alone.

        Args:
            error: Why the row is rejected: what `check` raised, or an error of the steps before it.
        """
        return

    @abstractmethod
    def write(self, batch: pa.RecordBatch) -> None:
        """Write one non-empty batch of the context's schema."""

    @abstractmethod
    def close(self) -> WriteResult:
        """Finish the open files and return what was written."""

    def abort(self) -> None:
        """Delete what this attempt has written. Called if the attempt fails; must not raise. Default: does nothing."""
        return


class Writer(ABC):
    """Opens the writers of an epoch's tasks; pickled to the executors: small, few imports, no catalog.

    Attributes:
        suits_driver: True if the driver may open it, too, to write a few rows: on one machine it saves a Spark job. The
            default is False.

    Example:
        >>> class Discard(TaskWriter):
        ...     def write(self, batch):
        ...         pass
        ...     def close(self):
        ...         return WriteResult()
        >>> class Discarding(Writer):
        ...     def open(self, task):
        ...         return Discard()
        >>> Discarding().open(task=0).close().files
        0
    """

    suits_driver: ClassVar[bool] = False

    @abstractmethod
    def open(self, task: int) -> TaskWriter:
        """Return the writer for one attempt of the task of this number, from 0. Two attempts must not share a file."""


class Committer(ABC):
    """Makes an epoch's files visible on the driver: all of them or none, and once.

    The defaults suit a sink that does not record epochs: it gets an epoch again that is repeated after a crash, so its
    rows can appear twice (at least once).

    Example:
        >>> class Printer(Committer):
        ...     def writer(self, epoch):
        ...         raise NotImplementedError
        ...     def commit(self, epoch, results):
        ...         print(f"epoch {epoch.number}: {sum(result.rows for result in results)} rows")
        >>> Printer().commit(Epoch("5f0c", 0), [WriteResult(rows=2), WriteResult(rows=3)])
        epoch 0: 5 rows
    """

    def __str__(self) -> str:
        """Return what log lines call its target, without secrets; by default its class' name."""
        return type(self).__name__

    @property
    def can_clear(self) -> bool:
        """True if `clear` deletes the target's rows; if False (default), ``into="replace"`` is refused."""
        return False

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        check_capabilities(cls, Committer, {"can_clear": "clear"})

    @property
    def identity(self) -> str | None:
        """A unique id of the target, which changes if it is dropped and created again; None (default) = it has none.

        A checkpoint is bound to the ids of its targets.
        """
        return None

    @property
    def maintenance(self) -> MaintenanceReport | None:
        """What it does beside the epochs to keep its target in shape; None (default) = nothing."""
        return None

    @property
    def notes(self) -> Sequence[str]:
        """What an operator should look after though the job goes on, for ``/readyz``; empty (default) = nothing."""
        return ()

    def start(self) -> None:
        """Start what runs beside the epochs. Called once the job runs; the default does nothing."""
        return

    def stop(self) -> None:
        """Stop what `start` has started. Called when the job has ended; must not raise. The default does nothing."""
        return

    def last_epoch(self, query_id: str) -> int | None:
        """Return the last epoch of this query that is visible; None (default) = none, or unknown."""
        return None

    def landed_offsets(self, epoch: Epoch) -> str | None:
        """Return the `Epoch.offsets` of an epoch that is visible already; None (default) = unknown."""
        return None

    def lacks(self, epoch: Epoch, last: int | None) -> bool:
        """Return True if the target lacks an epoch; `last` is what `last_epoch` has just returned.

        Raises:
            StorageError: If the target has the epoch, and not with the rows that the checkpoint has planned for it.
        """
        if last is None or last < epoch.number:
            return True
        landed = self.landed_offsets(epoch)
        if landed == epoch.offsets or (landed is None and last == epoch.number):
            return False
        raise StorageError(
            f"epoch {epoch.number} is in {self} already, but not known to have the rows that the checkpoint has "
            f"planned for it (the last epoch there is {last}): the checkpoint is an old copy, or has lost entries",
            hint='restore its newest copy; or start over: fresh=True, with into="replace" to empty the target and fill '
            'it from all that the source still has, or into="append" to read what the source has now behind the rows '
            "that are there",
        )

    def snapshot_id(self, epoch: Epoch) -> int | None:
        """Return the snapshot of the target with which an epoch became visible; None (default) = it has none."""
        return None

    def earlier_rows(self, query_id: str) -> str | None:
        """Describe the rows of earlier queries of this job that the target would have twice if this one started over.

        Returns:
            The first half of an error message; None (default) = there are none, or they are unknown.
        """
        return None

    def clear(self) -> None:
        """Delete all rows (in a shared target: those of the job), for a start over with ``into="replace"``.

        Called only if `can_clear`.
        """
        raise NotImplementedError

    @abstractmethod
    def writer(self, epoch: Epoch) -> Writer:
        """Return the writer for this epoch, with fresh credentials if they expire."""

    @abstractmethod
    def commit(self, epoch: Epoch, results: Sequence[WriteResult]) -> None:
        """Make the results of an epoch's tasks visible, unless they already are.

        Raises:
            CommitStateUnknownError: If the commit may have landed; the job leaves its files alone.
            LayoutChangedError: If the commit has not landed and these files no longer fit the target's layout. The job
                writes the epoch again with a new `writer`, up to three times.
            VolleyError: Any other: the commit is known not to have landed.
        """

    @property
    def group(self) -> object | None:
        """Committers of equal groups make an epoch visible together (`commit_together`); None (default) = it is alone.

        May ask the target.
        """
        return None

    def commit_together(self, epoch: Epoch, parts: Sequence[tuple[Committer, Sequence[WriteResult]]]) -> None:
        """Make the results of several committers of this one's group visible: all of them or none.

        Args:
            parts: Committers, this one among them, and the results of each one's tasks.

        Raises:
            VolleyError: As for `commit`; nothing of any of them has landed then, or nothing is known of any.
        """
        raise NotImplementedError

    def abort(self, epoch: Epoch, results: Sequence[WriteResult]) -> None:
        """Delete the files of an epoch that is known not to have landed. Must not raise. The default does nothing."""
        return

    def orphans(self, epoch: Epoch) -> Sequence[str]:
        """Return the files that killed tasks or a killed driver left behind in this epoch, once it is visible.

        No table or reader refers to them. Called only after a retried task, with speculation or after a crash.
        """
        return ()


class Sink(ABC):
    """Where rows go: a frozen, printable value that shows no secrets. `open` makes the committer that runs.

    Example:
        >>> from volley import MemorySink
        >>> sink = MemorySink("out")
        >>> sink.label, sink.flush_interval
        ("MemorySink('out')", None)
    """

    worker_modules: ClassVar[tuple[str, ...]] = ()
    """What tasks import to write to it: on one machine, Spark's workers import these before the first task."""

    @property
    def label(self) -> str:
        """The label of its metrics."""
        return repr(self)

    @property
    def target(self) -> str | None:
        """The name of what it writes to, without secrets; None = nothing that lasts. A checkpoint is bound to it."""
        return None

    @property
    def flush_interval(self) -> timedelta | None:
        """The longest time that rows may wait for a commit; None = the environment's checkpoint interval."""
        return None

    @property
    def batch_size(self) -> int | None:
        """The most rows of one Arrow batch passed to the writer; None = no limit."""
        return None

    @property
    def takes_dictionaries(self) -> bool:
        """True if its writers accept dictionary-encoded columns, as a source may store them; saves decoding them."""
        return False

    @property
    def has_table(self) -> bool:
        """True if it has ``table()`` and ``to_arrow(limit)``, which return its rows; `Job` has the same ones."""
        return False

    @property
    def overwrites(self) -> bool:
        """True if the first rows of a bounded run replace earlier ones: its epochs then name their run."""
        return False

    @property
    def replaces_rows(self) -> bool | None:
        """True if a row takes the place of an earlier one of its key, and one that is deleted too; False if both stay;
        None = what reads them decides."""
        return None

    def explain(self) -> str | None:
        """Return one line about what becomes of rows, such as which of several stays, for `DataStream.explain`.

        None (default) = nothing more than the sink's repr says.
        """
        return None

    def explain_together(self, sinks: Sequence[Sink]) -> str | None:
        """Return one line about how an epoch becomes visible in several targets of a job, for `DataStream.explain`.

        None (default) = in each by itself.

        Args:
            sinks: All sinks of the job, those of its dead letters too.
        """
        return None

    @property
    def dead_letter(self) -> Sink | None:
        """The sink for rows that can't be processed for this one or written by it; None = such a row fails the job."""
        return None

    def dead_letter_at(self, name: str) -> Sink:
        """Return the dead letter for a name, as in ``to_sink(sink, dead_letter="bad_events")``.

        Args:
            name: For a table: the name of a table in its catalog, or the path of a folder.

        Raises:
            ConfigError: If the sink takes no dead letter by name (default), or the name is not valid.
        """
        raise ConfigError(
            f"{self!r} has no dead letter by name, so dead_letter={name!r} is unknown",
            hint='give a sink: dead_letter=FileSink("bad", format="json")',
        )

    def check(self, schema: pa.Schema | None) -> None:
        """Check before Spark starts that rows can be written, and create nothing. The default checks nothing.

        The schema is None if it is not known yet.

        Raises:
            VolleyError: If `open` would fail.
        """
        return

    def check_columns(self, schema: pa.Schema) -> None:
        """Check that rows have the columns that the settings name, and reach nothing. The default checks nothing.

        Raises:
            VolleyError: If a column is missing, or has a type that does not do.
        """
        return

    def datasets(self, tables: Sequence[str] = ()) -> Sequence[Dataset]:
        """Return the names of what it writes, for lineage; called beside the job, so it may ask a catalog.

        The default is its `target`.

        Args:
            tables: Of a sink of many tables, the names of those that it has written to so far.

        Raises:
            VolleyError: If they can't be told: they are left out.
        """
        return [] if self.target is None else [Dataset("volley", self.target)]

    def probes(self, schema: pa.Schema | None) -> Sequence[Probe]:
        """Return what `volley check` does to see whether rows can be written; it must leave nothing behind.

        The schema is None if it is not known yet. The default calls `check`.
        """

        def run() -> str:
            self.check(schema)
            return self.target or "nothing to reach"

        return [Probe("sink", run)]

    @abstractmethod
    def open(self, context: SinkContext) -> Committer:
        """Open the target, create or check it, and return its committer. Called once on the driver at a job's start.

        Raises:
            VolleyError: If rows of this schema can't be written; nothing has been written then.
        """
