"""A running pipeline: one epoch after the other, its progress and metrics, waiting for its end, stopping it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import Enum
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError

from volley._checkpoint import unfinished_epoch
from volley._failpoints import reach
from volley._spark import Program, Task, run_task, translate
from volley.errors import CommitStateUnknownError, VolleyError
from volley.metrics import Metrics
from volley.sink import Committer, Epoch, WriteResult

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["Job", "Progress", "State"]

_log = logging.getLogger(__name__)


class State(Enum):
    """Where a job stands."""

    RUNNING = "running"
    FINISHED = "finished"
    STOPPED = "stopped"
    FAILED = "failed"


@dataclass(frozen=True)
class Progress:
    """How far a job has come since it was started in this process.

    Args:
        state: Where it stands.
        epoch: The number of the last epoch that is visible in every sink; None before the first.
        epochs: Epochs done in this run.
        skipped: How many of them were already there and were skipped (after a crash).
        rows: Rows written in this run.
        files: Files written in this run.
        bytes: Encoded bytes written in this run.
        seconds: Time since the start.
    """

    state: State = State.RUNNING
    epoch: int | None = None
    epochs: int = 0
    skipped: int = 0
    rows: int = 0
    files: int = 0
    bytes: int = 0
    seconds: float = 0.0

    @property
    def rows_per_second(self) -> float:
        """Rows written per second since the start."""
        return self.rows / self.seconds if self.seconds else 0.0


class _Stopping(Exception):
    """Raised into Spark in place of an epoch that would begin after a stop was asked for."""


class Job:
    """A pipeline that runs, or has run; made by `DataStream.start` and `DataStream.execute`.

    Attributes:
        name: Its name.
        metrics: Its counters.
        orphans: Files that killed tasks or a killed driver have left behind, as far as this run came upon them. They
            are part of no table; `volley.iceberg.remove_orphan_files` removes them.

    Example:
        >>> from volley import Environment, MemorySink, MemorySource
        >>> stream = Environment().from_source(MemorySource([{"id": 1}])).to_sink(MemorySink())
        >>> job = stream.start("example")  # doctest: +SKIP
        >>> job.wait(60), job.progress.rows  # doctest: +SKIP
        (True, 1)
    """

    def __init__(self, name: str, program: Program, committers: Sequence[Committer], metrics: Metrics) -> None:
        self.name = name
        self.metrics = metrics
        self.orphans: list[str] = []
        self._program = program
        self._committers = committers
        self._progress = Progress()
        self._began = time.monotonic()
        self._gate = threading.Condition()
        self._in_epoch = False
        self._stopping = False
        self._failure: VolleyError | None = None
        self._unfinished: int | None = None
        self._ended = threading.Event()
        self._query: StreamingQuery | None = None

    @property
    def progress(self) -> Progress:
        """A frozen view of how far the job has come."""
        if self._ended.is_set():
            return self._progress
        return replace(self._progress, seconds=time.monotonic() - self._began)

    @property
    def exception(self) -> VolleyError | None:
        """Why the job failed; None while it runs or if it ended well."""
        return self._failure if self._ended.is_set() else None

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the job's end; True if it has ended.

        Args:
            timeout: The longest to wait, in seconds; None = as long as it takes.
        """
        return self._ended.wait(timeout)

    def stop(self) -> None:
        """Finish the running epoch, begin no other, and wait until the job has ended. It can be started again."""
        with self._gate:
            self._stopping = True
            self._gate.wait_for(lambda: not self._in_epoch)
        assert self._query is not None
        # If the JVM is gone already, by a signal of its own, there is nothing left to stop.
        with suppress(Py4JError, OSError):
            # Give Spark the moment it needs to log the epoch as done; without it the epoch is only looked at again.
            deadline = time.monotonic() + 10
            while self._query.isActive and self._query.status["isTriggerActive"] and time.monotonic() < deadline:
                self._ended.wait(0.02)
            self._query.stop()
        self.wait()

    def __repr__(self) -> str:
        seen = self.progress
        return f"Job({self.name!r}, {seen.state.value}, epoch {seen.epoch}, {seen.rows:,} rows)"

    def _start(self, checkpoint: str, interval: timedelta, bounded: bool) -> None:
        self._unfinished = unfinished_epoch(checkpoint)
        writer = self._program.frame.writeStream.foreachBatch(self._epoch).queryName(self.name)
        writer = writer.option("checkpointLocation", checkpoint)
        trigger = (
            writer.trigger(availableNow=True)
            if bounded
            else writer.trigger(processingTime=f"{round(interval.total_seconds() * 1000)} milliseconds")
        )
        try:
            self._query = trigger.start()
        except Exception as error:
            raise translate(error, self.name) from error
        threading.Thread(target=self._watch, name=f"volley-{self.name}", daemon=True).start()

    def _watch(self) -> None:
        assert self._query is not None
        state = State.FINISHED
        try:
            self._query.awaitTermination()
        except Exception as error:
            if self._failure is None and not self._stopping:
                self._failure = translate(error, self.name)
                self._failure.__cause__ = error
        if self._failure is not None:
            state = State.FAILED
        elif self._stopping:
            state = State.STOPPED
        self._progress = replace(self.progress, state=state)
        self._ended.set()

    def _epoch(self, frame: DataFrame, number: int) -> None:
        """What Spark calls for each epoch."""
        with self._gate:
            if self._stopping:
                raise _Stopping
            self._in_epoch = True
        try:
            reach("before-planning", number)
            query_id = frame.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
            self._run(frame, Epoch(str(query_id), number))
        except VolleyError as error:
            self._failure = error
            raise
        except Exception as error:
            self._failure = translate(error, self.name)
            self._failure.__cause__ = error
            raise
        finally:
            with self._gate:
                self._in_epoch = False
                self._gate.notify_all()

    def _run(self, frame: DataFrame, epoch: Epoch) -> None:
        due = [not _is_done(committer, epoch) for committer in self._committers]
        results: list[tuple[WriteResult, ...]] = []
        if any(due):
            reach("before-files", epoch.number)
            results = self._write(frame, epoch, due)
            reach("after-files", epoch.number)
            for index, committer in enumerate(self._committers):
                if due[index]:
                    self._commit(committer, epoch, [task[index] for task in results])
            reach("before-checkpoint", epoch.number)
        else:
            reach("in-recovery", epoch.number)
        self._look_for_orphans(epoch, results)
        self._count(epoch, results, skipped=not any(due))

    def _write(self, frame: DataFrame, epoch: Epoch, due: Sequence[bool]) -> list[tuple[WriteResult, ...]]:
        writers = tuple(
            committer.writer(epoch) if is_due else None for committer, is_due in zip(self._committers, due, strict=True)
        )
        sizes = [segment.batch_size for segment in self._program.segments if segment.batch_size]
        if sizes:
            frame.sparkSession.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(max(sizes)))
        results = run_task(frame, Task(epoch.number, self._program.source, self._program.segments, writers))
        for task in results:
            for result in task:
                self.metrics.record_write(result)
        return results

    def _commit(self, committer: Committer, epoch: Epoch, results: Sequence[WriteResult]) -> None:
        began = time.monotonic()
        try:
            committer.commit(epoch, results)
        except Exception as error:
            self.metrics.record_commit(time.monotonic() - began, succeeded=False)
            self.metrics.record_failed(sum(result.rows for result in results))
            if isinstance(error, VolleyError) and not isinstance(error, CommitStateUnknownError):
                committer.abort(epoch, results)
            raise
        if any(result.rows for result in results):
            self.metrics.record_commit(time.monotonic() - began, succeeded=True)

    def _look_for_orphans(self, epoch: Epoch, results: Sequence[tuple[WriteResult, ...]]) -> None:
        """A look costs a listing: it is taken where a driver or a task is known to have died."""
        retried = any(result.attempt for task in results for result in task)
        if not retried and epoch.number != self._unfinished:
            return
        for committer in self._committers:
            found = committer.orphans(epoch)
            if found:
                _log.warning(
                    "epoch %d: killed attempts have left %d files, such as %s", epoch.number, len(found), found[0]
                )
            self.orphans += found

    def _count(self, epoch: Epoch, results: Sequence[tuple[WriteResult, ...]], *, skipped: bool) -> None:
        seen = self._progress
        # A row that goes to two sinks is one row of progress, but two files are two files.
        rows = [sum(task[sink].rows for task in results) for sink in range(len(self._committers))]
        written = [result for task in results for result in task]
        self._progress = replace(
            seen,
            epoch=epoch.number,
            epochs=seen.epochs + 1,
            skipped=seen.skipped + skipped,
            rows=seen.rows + max(rows),
            files=seen.files + sum(result.files for result in written),
            bytes=seen.bytes + sum(result.bytes for result in written),
        )


def _is_done(committer: Committer, epoch: Epoch) -> bool:
    last = committer.last_epoch(epoch.query_id)
    return last is not None and last >= epoch.number
