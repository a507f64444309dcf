"""What plans the epochs of a run, one after the other: this process, or a query of Spark's if Spark reads a source."""

from __future__ import annotations

import json
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import InheritableThread

from volley.contracts.rows import taken_notes
from volley.errors import JobError
from volley.spark import session
from volley.spark.compile import CompiledPlan
from volley.spark.gateway import serve_callbacks
from volley.spark.log import PlannedEpochs
from volley.spark.offsets import Offsets
from volley.spark.session import start_in_pool

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["OnEpoch", "OwnQuery", "Query", "SparkQuery"]

OnEpoch = Callable[["DataFrame | None", int], None]
"""Runs the epoch of a number; gets the rows of the sources that Spark reads, if there are any."""

_COMMIT_SECONDS = 10
_POLL_SECONDS = 0.01


class Query(ABC):
    """Plans the epochs of a run, and writes Spark's two logs: of offsets before an epoch, of commits after it."""

    @abstractmethod
    def start(self) -> None:
        """Start it; a thread of its own runs the epochs."""

    @abstractmethod
    def wait(self, seconds: float) -> bool:
        """Return True once it has ended, or was told to in vain.

        Raises:
            Exception: What it has ended with.
        """

    @abstractmethod
    def stop(self) -> str | None:
        """Stop it behind the running epoch; return what it does if it has not ended a minute later, else None."""

    @abstractmethod
    def await_end(self) -> None:
        """Wait until its thread has ended."""


class OwnQuery(Query):
    """Plans the epochs of readers in a thread of this process, as Spark plans those of a streaming query.

    Spark's query takes more CPU for an epoch without rows than a small epoch for its rows and its commit, and a second
    to start. The entries of both logs are Spark's: either goes on where the other has stopped.

    Args:
        every: The time from the start of an epoch to the start of the next; None = a bounded run, which ends with the
            rows that are there at its start.
    """

    def __init__(
        self, plan: CompiledPlan, planned: PlannedEpochs, job: str, every: timedelta | None, on_epoch: OnEpoch
    ) -> None:
        self._context = plan.context
        self._planned = planned
        self._log = planned.log
        self._job = job
        self._every = every
        self._on_epoch = on_epoch
        self._notes = plan.notes
        targets = zip(filter(None, plan.readers), plan.targets, strict=True)
        self._offsets = [Offsets.of_copy(reader, target, every is None) for reader, target in targets]
        self._stopping = threading.Event()
        self._hangs = False
        self._error: Exception | None = JobError(f"the epochs of job {job!r} did not begin", "start it again")
        self._thread = InheritableThread(self._run, name=f"volley-{job}-epochs", daemon=True)

    def start(self) -> None:
        start_in_pool(self._context, self._job, self._thread.start)

    def wait(self, seconds: float) -> bool:
        self._thread.join(seconds)
        if self._thread.is_alive():
            return self._hangs
        if self._error is not None:
            raise self._error
        return True

    def stop(self) -> str | None:
        self._stopping.set()
        self._thread.join(session.STOP_SECONDS)
        self._hangs = self._thread.is_alive()
        return "it asks for offsets" if self._hangs else None

    def await_end(self) -> None:
        self._thread.join()

    def _run(self) -> None:
        try:
            self._context.setJobDescription(self._job)
            self._run_epochs()
            self._error = None
        except Exception as error:
            self._error = error
        except BaseException as error:
            # A library in Rust that panics raises one, and sys.exit(): the thread that waits must not end with it.
            self._error = JobError(f"job {self._job!r} failed: {error!r}", "the whole trace is in this error's cause")
            self._error.__cause__ = error

    def _run_epochs(self) -> None:
        number, ends = self._resumed()
        while not self._stopping.is_set():
            began, before = time.time(), ends
            ends = self._latest(before)
            if self._stopping.is_set():
                # Meanwhile another process may run the job: it plans the next epoch.
                return
            # As with Spark's query, there is a first epoch, if without rows.
            if is_new := ends != before or number == 0:
                self._log.plan(number, ends)
                self._finish(number)
                number += 1
            elif self._every is None:
                return
            self._pause(began, is_new)

    def _resumed(self) -> tuple[int, list[str]]:
        """Repeat the epoch in which the last run has ended, if any; return the next one, and where it begins."""
        last = self._log.last_planned
        if last is not None and last == self._log.unfinished:
            self._finish(last)
        number = 0 if last is None else last + 1
        return number, [json.dumps(offset) for offset in self._planned.starts(number)]

    def _latest(self, starts: list[str]) -> list[str]:
        try:
            pairs = zip(self._offsets, starts, strict=True)
            return [json.dumps(offsets.latest(json.loads(start))) for offsets, start in pairs]
        finally:
            self._notes.leave(taken_notes())

    def _finish(self, number: int) -> None:
        self._on_epoch(None, number)
        self._log.finish(number)

    def _pause(self, began: float, is_new: bool) -> None:
        """Wait until the next epoch is due: at a multiple of the interval, at once if this one took longer."""
        if self._every is not None:
            every = self._every.total_seconds()
            due = (began // every + 1) * every if every else began
            # No longer than the interval, if the clock was set back meanwhile.
            self._stopping.wait(max(min(due - time.time(), every), 0 if is_new else _POLL_SECONDS))


class SparkQuery(Query):
    """A streaming query of Spark's, for a job with sources that Spark reads itself.

    Args:
        every: As for `OwnQuery`.
    """

    def __init__(self, frame: DataFrame, checkpoint: str, job: str, every: timedelta | None, on_epoch: OnEpoch) -> None:
        self._context = frame.sparkSession.sparkContext
        self._job = job
        serve_callbacks(self._context._gateway)
        writer = frame.writeStream.foreachBatch(on_epoch).queryName(job).option("checkpointLocation", checkpoint)
        if every is None:
            self._writer = writer.trigger(availableNow=True)
        else:
            self._writer = writer.trigger(processingTime=f"{round(every.total_seconds() * 1000)} milliseconds")
        self._query: StreamingQuery | None = None

    def start(self) -> None:
        self._query = start_in_pool(self._context, self._job, self._writer.start)

    def wait(self, seconds: float) -> bool:
        assert self._query is not None
        # Spark takes whole seconds.
        return bool(self._query.awaitTermination(round(seconds)))

    def stop(self) -> str | None:
        query = self._query
        assert query is not None
        # If a signal has killed the JVM already, there is nothing to stop.
        with suppress(Py4JError, OSError):
            # Wait for Spark to log the commit; otherwise the next start re-checks this epoch.
            deadline = time.monotonic() + _COMMIT_SECONDS
            while query.isActive and query.status["isTriggerActive"] and time.monotonic() < deadline:
                time.sleep(0.02)
            try:
                query.stop()
            except Py4JJavaError as error:
                if error.java_exception.getClass().getSimpleName() == "TimeoutException":
                    return str(query.status["message"])
        return None

    def await_end(self) -> None:
        assert self._query is not None
        # The stop has reported the query's error; or the JVM has ended.
        with suppress(Exception):
            self._query.awaitTermination()
