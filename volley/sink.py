"""What a sink must promise: a Writer that travels to the executors, a Committer that stays on the driver."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from volley.epoch import Epoch, WriteResult
from volley.errors import ConfigError, PlanError

if TYPE_CHECKING:
    import pyarrow as pa

    from volley.metrics import Metrics

__all__ = ["Committer", "ExecutorTask", "Sink", "SinkContext", "TaskWriter", "Writer"]
ExecutorTask = Callable[[], WriteResult]
"""Work for an executor between write and commit: it pickles, and may be done twice."""


def _do_here(tasks: Sequence[ExecutorTask]) -> list[WriteResult]:
    return [task() for task in tasks]


@dataclass(frozen=True)
class SinkContext:
    """What a sink is told when its job starts.

    Args:
        job: The job's name.
        schema: The Arrow schema of the rows to come.
        metrics: Where to count.
        run: Has chores done by the executors, for a committer with more to do than the driver should; the results come
            in the chores' order. Without a job they are done on the spot.
        resumed: True if the job has written to the target before: one that is gone must not be made again.
        shared: True if the rows of other jobs stay when the target is emptied: it takes dead letters.
    """

    job: str
    schema: pa.Schema
    metrics: Metrics
    run: Callable[[Sequence[ExecutorTask]], list[WriteResult]] = _do_here
    resumed: bool = False
    shared: bool = False


class TaskWriter(ABC):
    """The writer of one attempt of one task, on an executor."""

    def check(self, batch: pa.RecordBatch) -> None:
        """Find out whether `write` would take the batch, and write nothing; asked where bad rows are sorted out.

        By default every row of the stream's schema is taken.

        Raises:
            SchemaMismatchError: If a row can't be written.
            SourceError: If a value can't be cast without loss.
        """
        return

    @abstractmethod
    def write(self, batch: pa.RecordBatch) -> None:
        """Take one non-empty batch of the context's schema."""

    @abstractmethod
    def close(self) -> WriteResult:
        """Finish what is open and say what was written."""

    def abort(self) -> None:
        """Delete what this attempt has written; called when the attempt fails, never raises. By default nothing."""
        return


class Writer(ABC):
    """What travels to the executors: small, picklable, imports little, holds no catalog."""

    @abstractmethod
    def open(self, task: int) -> TaskWriter:
        """A writer for one attempt of one task; two attempts of the same task never share a file.

        Args:
            task: The number of the Spark partition, for file names.
        """


class Committer(ABC):
    """What stays on the driver: it makes an epoch's files visible, whole and once.

    The defaults are those of a sink that keeps no epochs: it is given a repeated epoch again, so its rows can come
    twice after a crash (at least once).
    """

    @property
    def identity(self) -> str | None:
        """An id that another target of the same name would not have: a checkpoint is bound to it. None = no id."""
        return None

    def last_epoch(self, query_id: str) -> int | None:
        """The last epoch of this query that is already visible; None (the default) = none, or it is not known."""
        return None

    def landed_offsets(self, epoch: Epoch) -> str | None:
        """The `Epoch.offsets` with which an epoch was committed that is visible already; None = not known (default)."""
        return None

    def earlier_rows(self, query_id: str) -> str | None:
        """What other queries of this job have written that would be there twice if the job began anew, in words.

        By default None: nothing is known of it, or nothing would be doubled.

        Args:
            query_id: The query that is about to start.
        """
        return None

    def clear(self) -> None:
        """Remove all rows, for a job that begins anew with ``into="replace"``; of a shared target those of the job.

        Raises:
            PlanError: If rows can't be removed from this target; the default.
        """
        raise PlanError(f"{self} can't be emptied", hint='use into="append", or another target')

    @abstractmethod
    def writer(self, epoch: Epoch) -> Writer:
        """The writer for this epoch, with fresh credentials where they expire."""

    @abstractmethod
    def commit(self, epoch: Epoch, results: Sequence[WriteResult]) -> None:
        """Make the results visible, or find that they already are.

        Raises:
            CommitStateUnknownError: It may have landed; its files are left alone.
            LayoutChangedError: It has not landed, and with these files it never will: the target's layout is another
                by now. The job has the epoch written anew by a fresh `writer`, a few times.
            VolleyError: Any other of ours: it is known not to have landed.
        """

    def abort(self, epoch: Epoch, results: Sequence[WriteResult]) -> None:
        """Delete the files of an epoch that is known not to have landed; never raises. By default nothing."""
        return

    def orphans(self, epoch: Epoch) -> Sequence[str]:
        """The files that attempts of this epoch have left behind, now that it is visible: of tasks that were killed,
        of a driver that was. Nobody reads them; asked only when there is a reason to look."""
        return ()


class Sink(ABC):
    """Where rows go: a frozen, printable value that shows no secret; nothing is opened while a pipeline is built."""

    @property
    def label(self) -> str:
        """What its metrics are shown under."""
        return repr(self)

    @property
    def target(self) -> str | None:
        """The name of what it writes to, without secrets: a checkpoint is bound to it. None = nothing that lasts."""
        return None

    @property
    def flush_interval(self) -> timedelta | None:
        """The longest time rows may wait before a commit; None = the environment's checkpoint interval."""
        return None

    @property
    def batch_size(self) -> int | None:
        """The most rows of one Arrow batch handed to the writer; None = as they come."""
        return None

    @property
    def takes_dictionaries(self) -> bool:
        """True if its writers take batches in which a column is a dictionary and indices, where that is how the source
        has it; they then need not be computed on."""
        return False

    @property
    def dead_letter(self) -> Sink | None:
        """The sink where rows go that can't be processed for this one, or written by it; None = the job stops."""
        return None

    def dead_letter_at(self, name: str) -> Sink:
        """The dead letter that is named beside this sink, as ``to_sink(sink, dead_letter="bad_events")`` does it.

        Raises:
            ConfigError: If the sink has no place for names, as by default, or the name is none.
        """
        raise ConfigError(
            f"{self!r} has no dead letter by name, so dead_letter={name!r} is unknown",
            hint='give a sink: dead_letter=FileSink("bad", format="json")',
        )

    def check(self, schema: pa.Schema | None) -> None:
        """Find out, before Spark starts, whether rows can be written; nothing is made. By default nothing is checked.

        Args:
            schema: The Arrow schema of the rows to come; None if it is not known yet.

        Raises:
            VolleyError: If `open` would fail.
        """
        return

    @abstractmethod
    def open(self, context: SinkContext) -> Committer:
        """Called once on the driver before a job starts: reach the target, make or check it.

        Raises:
            VolleyError: If rows of this schema can't be written; nothing has been written then.
        """
