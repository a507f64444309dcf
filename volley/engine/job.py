"""A running job: runs its epochs, reports progress, waits for its end, stops it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import AsyncIterator, Callable, Generator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError

from volley import checks
from volley.endpoint import Endpoint
from volley.engine.acknowledge import Readers
from volley.engine.epochs import EpochResult, Epochs
from volley.engine.history import History
from volley.engine.outages import through_outages
from volley.engine.progress import Progress, State
from volley.engine.running import release
from volley.errors import JobError, PlanError, VolleyError
from volley.figures import FinishedEpoch
from volley.html_table import html_table
from volley.maintenance import MaintenanceReport
from volley.sink import Sink
from volley.spark.errors import is_slow_start, translate
from volley.spark.session import start_in_pool
from volley.task.failpoints import reach

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["Job"]

_log = logging.getLogger(__name__)
_RESTARTS = 2


class _Stopping(Exception):
    """Raised in Spark's callback to prevent a new epoch after `Job.stop`."""


class Job:
    """A job that runs or has ended; created by `Environment.start` and `Environment.execute`.

    Attributes:
        name: Its name.
        metrics: Its counters.
        metrics_url: The URL of its metrics while it runs; None without `metrics_port`.
        orphans: Files of killed tasks or a killed driver that this run has found. They belong to no table;
            `volley.iceberg.remove_orphan_files` deletes them.

    Example:
        >>> from volley import Environment, MemorySink, MemorySource
        >>> stream = Environment().from_source(MemorySource([{"id": 1}])).to_sink(MemorySink())
        >>> job = stream.start("example")  # doctest: +SKIP
        >>> job.wait(60), job.progress.rows  # doctest: +SKIP
        (True, 1)
    """

    def __init__(
        self,
        epochs: Epochs,
        endpoint: Endpoint | None = None,
        healthy_within: timedelta | None = None,
        history: History | None = None,
        sinks: Sequence[Sink] = (),
        outage: timedelta | None = None,
    ) -> None:
        self.name = epochs.job
        self.metrics = epochs.metrics
        self.metrics_url = endpoint.url if endpoint else None
        self._endpoint = endpoint
        self.orphans: list[str] = []
        self._epochs = epochs
        self._readers = Readers(epochs.job, epochs.plan.readers, epochs.log, epochs.plan.stateful)
        self._progress = Progress()
        self._began = time.monotonic()
        self._gate = threading.Condition()
        self._begun = False
        self._in_epoch = False
        self._stopping = False
        self._failure: VolleyError | None = None
        self._ended = threading.Event()
        self._query: StreamingQuery | None = None
        self._query_id: str | None = None
        self._ends = State.FINISHED
        self._healthy_within = healthy_within
        self._outage = None if outage is None else outage.total_seconds()
        self._halt = threading.Event()
        self._sinks = sinks
        self._history = history or History(self.name)
        self._watcher: threading.Thread | None = None
        if endpoint:
            endpoint.probe(self._unhealthy, self._unready, self._notes)

    @property
    def progress(self) -> Progress:
        """A frozen snapshot of the job's progress."""
        if self._ended.is_set():
            return self._progress
        return replace(self._progress, seconds=time.monotonic() - self._began, running=self.metrics.running)

    @property
    def maintenance(self) -> MaintenanceReport:
        """What the maintenance of its tables has done lately, and when more is due; prints as a list."""
        reports = (committer.maintenance for committer in self._epochs.committers)
        return MaintenanceReport.of(report for report in reports if report is not None)

    @property
    def exception(self) -> VolleyError | None:
        """The error that the job failed with; None while it runs, or if it did not fail."""
        return self._failure if self._ended.is_set() else None

    def wait(self, timeout: checks.Duration | None = None) -> bool:
        """Wait for the job's end; return True if it has ended.

        Args:
            timeout: The longest time to wait: seconds, a timedelta or a text such as ``"5s"``; None = no limit.

        Raises:
            ConfigError: If `timeout` is not a duration.
        """
        longest = None if timeout is None else checks.duration_or_zero("timeout", timeout).total_seconds()
        return self._ended.wait(longest)

    def __await__(self) -> Generator[Any, None, Job]:
        """Wait for the job's end without blocking the event loop; return the job.

        Raises:
            VolleyError: If the job fails.

        Example:
            >>> from volley import Environment, MemorySink, MemorySource
            >>> stream = Environment().from_source(MemorySource([{"id": 1}])).to_sink(MemorySink())
            >>> async def run():
            ...     return (await stream.start("example")).progress.rows
        """
        return self._finished().__await__()

    async def _finished(self) -> Job:
        async for _ in self.epochs():
            pass
        if self.exception is not None:
            raise self.exception.with_traceback(None)
        return self

    def epochs(self) -> AsyncIterator[FinishedEpoch]:
        """Yield each epoch once it is visible in every sink, those so far first; end with the job.

        Example:
            >>> from volley import Environment, MemorySink, MemorySource
            >>> stream = Environment().from_source(MemorySource([{"id": 1}])).to_sink(MemorySink())
            >>> async def watch():
            ...     async for epoch in stream.start("example").epochs():
            ...         print(epoch.number, epoch.rows, epoch.seconds)
        """
        return self._history.follow(self._ended.is_set)

    def table(self) -> Any:
        """Return what the job's only sink with a table has now: pyiceberg's ``Table``, or the rows of a `MemorySink`.

        Raises:
            PlanError: If no sink has a table, or several have one.
            VolleyError: If it can't be loaded.
        """
        tables = [sink for sink in self._sinks if hasattr(sink, "table")]
        if len(tables) != 1:
            raise PlanError(f"job {self.name!r} has {len(tables)} sinks with a table", hint="ask one: sink.table()")
        return tables[0].table()

    def plot(self) -> Figure:
        """Return a figure of Matplotlib's with the rows and seconds of each epoch; a notebook shows it.

        Raises:
            MissingDependencyError: If Matplotlib is not installed.
        """
        return self._history.plot()

    def stop(self) -> None:
        """Stop the job after the running epoch, and wait for its end. The next start resumes it."""
        self._halt.set()
        with self._gate:
            self._stopping = True
            self._gate.wait_for(lambda: not self._in_epoch)
        assert self._query is not None
        # If a signal has killed the JVM already, there is nothing to stop.
        with suppress(Py4JError, OSError):
            # Wait up to 10 s for Spark to log the commit; otherwise the next start re-checks this epoch.
            deadline = time.monotonic() + 10
            while self._query.isActive and self._query.status["isTriggerActive"] and time.monotonic() < deadline:
                self._ended.wait(0.02)
            self._query.stop()
        self.wait()

    def __enter__(self) -> Job:
        """Return the job; the end of the ``with`` block stops it."""
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        seen = self.progress
        return f"Job({self.name!r}, {seen.state.value}, epoch {seen.epoch}, {seen.rows:,} rows)"

    def _repr_html_(self) -> str:
        """Return the job's state, its progress and its error as a table, for notebooks."""
        error = self.exception
        seen = {"job": self.name, "error": error and error.message, "metrics": self.metrics_url}
        return html_table(seen) + self.progress._repr_html_()

    def _start(self, interval: timedelta, bounded: bool) -> None:
        every = f"{round(interval.total_seconds() * 1000)} milliseconds"
        try:
            self._readers.start()
            writer = self._epochs.plan.frame.writeStream.foreachBatch(self._epoch).queryName(self.name)
            writer = writer.option("checkpointLocation", self._epochs.log.checkpoint)
            writer = writer.trigger(availableNow=True) if bounded else writer.trigger(processingTime=every)
            start = partial(start_in_pool, self._epochs.plan.frame.sparkSession, self.name, writer.start)
            self._query = start()
        except BaseException as error:
            self._readers.stop()
            if not isinstance(error, Exception):
                raise
            translated = self._translate(error)
            raise translated from translated.__cause__
        self._ends = State.FINISHED if bounded else State.STOPPED
        for committer in self._epochs.committers:
            committer.start()
        self._watcher = threading.Thread(target=self._watch, args=[start], name=f"volley-{self.name}", daemon=True)
        self._watcher.start()

    def _watch(self, start: Callable[[], StreamingQuery]) -> None:
        state = self._ends
        try:
            self._await_end(start)
        except Exception as error:
            if self._failure is None and not self._stopping:
                self._failure = self._translate(error)
        if self._failure is not None:
            state = State.FAILED
            self._history.failed(self._failure)
        elif self._stopping:
            state = State.STOPPED
        elif not self._progress.epochs:
            self._log_nothing_new()
        if self._failure is None and self._query_id is not None:
            self._epochs.remember(self._query_id)
        self._progress = replace(self.progress, state=state, running=None)
        self._readers.stop()
        for committer in self._epochs.committers:
            committer.stop()
        if self._endpoint:
            self._endpoint.close()
        release(self._epochs.log.checkpoint)
        self._ended.set()

    def _unhealthy(self) -> str | None:
        """Return why the job is not healthy; None if it is."""
        if self._watcher is not None and not self._watcher.is_alive():
            return f"job {self.name!r} has ended"
        since = self.metrics.snapshot().seconds_since_last_commit
        seconds = time.monotonic() - self._began if since is None else since
        if self._healthy_within is None or seconds <= self._healthy_within.total_seconds():
            return None
        return f"job {self.name!r} has committed nothing for {seconds:.0f} s"

    def _unready(self) -> str | None:
        """Return why the job is not ready; None once an epoch is done."""
        return None if self._progress.epochs else f"job {self.name!r} has not finished an epoch yet"

    def _notes(self) -> list[str]:
        """Return what an operator should look after, though the job goes on."""
        return [note for committer in self._epochs.committers for note in committer.notes]

    def _log_nothing_new(self) -> None:
        log = self._epochs.log
        if log.last_finished is not None:
            text = "%s: nothing new since epoch %d (checkpoint %s); to start over: fresh=True"
            _log.warning(text, self.name, log.last_finished, log.checkpoint)

    def _translate(self, error: Exception) -> VolleyError:
        """Translate what Spark or a worker raised into a VolleyError."""
        translated = translate(error, self.name)
        if type(translated) is not JobError:
            return translated
        fault = self._epochs.log.fault(str(error), translated, self._in_epoch)
        if fault is None:
            return translated
        fault.__cause__ = error
        return fault

    def _await_end(self, start: Callable[[], StreamingQuery]) -> None:
        """Wait for the query's end; restart it if Python did not start in time and no epoch has begun."""
        assert self._query is not None
        for _ in range(_RESTARTS):
            try:
                self._query.awaitTermination()
                return
            except Exception as error:
                with self._gate:
                    if self._begun or self._stopping or not is_slow_start(error):
                        raise
                    _log.warning("%s: Python did not start in time, starting the query again", self.name)
                    self._query = start()
        self._query.awaitTermination()

    def _epoch(self, frame: DataFrame, number: int) -> None:
        """Run one epoch; Spark calls this for each micro-batch."""
        with self._gate:
            if self._stopping:
                raise _Stopping
            self._begun = self._in_epoch = True
        self._epochs.counters.begin(number)
        began = time.monotonic()
        try:
            reach("before-planning", number)
            query_id = str(frame.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId"))
            run = partial(self._epochs.run, frame, self._epochs.epoch(query_id, number))
            epoch = self._count(through_outages(run, self._outage, self._halt, self.name), began)
            self._query_id = query_id
            self._readers.committed(number)
            for lag in self._readers.lags(number):
                self.metrics.record_lag(lag)
            self._history.add(epoch)
        except VolleyError as error:
            self._failure = error
            raise
        except Exception as error:
            self._failure = self._translate(error)
            raise
        finally:
            self._epochs.counters.end()
            with self._gate:
                self._in_epoch = False
                self._gate.notify_all()

    def _count(self, result: EpochResult, began: float) -> FinishedEpoch:
        before = self._progress
        written = [task for sink in result.sinks for task in sink]
        self.metrics.record_epoch(result.epoch.number)
        self.orphans += result.orphans
        epoch = FinishedEpoch(
            result.epoch.number,
            rows=self._epochs.counters.rows([sum(task.rows for task in sink) for sink in result.sinks]),
            rejected=sum(task.rows for sink in result.letters for task in sink),
            files=sum(task.files for task in written),
            bytes=sum(task.bytes for task in written),
            seconds=time.monotonic() - began,
            skipped=result.skipped,
        )
        self._progress = replace(
            before,
            epoch=epoch.number,
            epochs=before.epochs + 1,
            skipped=before.skipped + epoch.skipped,
            rows=before.rows + epoch.rows,
            rejected=before.rejected + epoch.rejected,
            files=before.files + epoch.files,
            bytes=before.bytes + epoch.bytes,
        )
        return epoch
