"""One run of a job: a query from its start to its end, with the readers and committers that it needs."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception_type,
    sleep_using_event,
    stop_after_delay,
    stop_when_event_set,
    wait_exponential,
)

from volley.columns.expectations import Outcome
from volley.columns.letters import REPLAYED
from volley.contracts.epoch import Epoch
from volley.engine.acknowledge import Readers
from volley.engine.checkpoint import note_hanging
from volley.engine.epochs import EpochResult, Epochs
from volley.engine.query import OwnQuery, Query, SparkQuery
from volley.errors import CatalogUnreachableError, CommitStateUnknownError, JobError, SourceError, VolleyError
from volley.formats.contract import DROPPED, RESCUED_VALUES
from volley.metrics.figures import FinishedEpoch
from volley.spark.errors import translate
from volley.spark.session import STOP_SECONDS
from volley.task.failpoints import reach
from volley.telemetry.traces import Span, current_link

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["OnEpochEnd", "Run", "through_outages"]

OnEpochEnd = Callable[[FinishedEpoch, Sequence[str]], None]
"""Called with each epoch that is visible in every sink, and the orphaned files found in it."""

_log = logging.getLogger(__name__)
_WARNING_SECONDS = 60
_POLL_SECONDS = 1
_LONGEST_SILENCE = 3600
_T = TypeVar("_T")
_LONGEST_WAIT = 15.0
# What the span of an epoch has of it.
_TRACED = ("rows", "rejected", "files", "bytes", "skipped")
# An attempt begins by asking whether the one before has landed.
_OUTAGES = (CatalogUnreachableError, CommitStateUnknownError)


class _Stopping(Exception):
    """Raised in the query's thread to prevent a new epoch after `Run.stop`."""


class Run:
    """One run of a job; the job's next run, after a failure, is another one.

    Attributes:
        epochs: Runs its epochs.
        bounded: True if it reads what the sources have when it starts, then ends.
        failure: The error that it failed with; None while it runs, or if it did not fail.
        has_epochs: True once an epoch is visible in every sink that some of them lacked.
    """

    def __init__(self, epochs: Epochs, on_epoch_end: OnEpochEnd) -> None:
        self.epochs = epochs
        self.job = epochs.job
        self.bounded = epochs.job.bounded
        self.failure: VolleyError | None = None
        self.has_epochs = False
        self._on_epoch_end = on_epoch_end
        self._readers = Readers(self.job.name, epochs.plan.readers, epochs.log)
        self._caller = current_link()
        self._halt = threading.Event()
        self._gate = threading.Condition()
        self._has_rows = False
        self._in_epoch = False
        self._stopping = False
        self._stopped = threading.Event()
        self._ended = threading.Event()
        self._query: Query | None = None
        self._has_run = False

    def start(self) -> None:
        """Start the query.

        Raises:
            VolleyError: If it can't start.
        """
        try:
            self._readers.start()
            self._query = self._new_query()
            self._query.start()
        except BaseException as error:
            self._readers.stop()
            if not isinstance(error, Exception):
                raise
            translated = self._translate(error)
            raise translated from translated.__cause__
        try:
            for committer in self.epochs.committers:
                committer.start()
        except BaseException:
            # The query would go on without a job.
            self.stop()
            self.wait()
            raise

    def _new_query(self) -> Query:
        plan, every = self.epochs.plan, None if self.bounded else self.job.interval
        if plan.frame is None:
            return OwnQuery(plan, self.epochs.planned, self.job.name, every, self._epoch)
        return SparkQuery(plan.frame, self.epochs.log.checkpoint, self.job.name, every, self._epoch)

    def wait(self) -> VolleyError | None:
        """Wait for the end, let go of readers and committers, and return the error that the run failed with."""
        try:
            assert self._query is not None
            self._await_query(self._query)
        except Exception as error:
            if self.failure is None and not self._stopping:
                self.failure = self._translate(error)
        with self._gate:
            # The next run must not begin beside an epoch of this one.
            self._gate.wait_for(lambda: not self._in_epoch)
        if self._stopping:
            # A query counts as ended as soon as it is told to stop, before its thread has ended.
            self._stopped.wait()
        if self.bounded and self.failure is None and not self._stopping:
            self.failure = self._unfinished() or self._end()
        if self.failure is None and self._has_run:
            self.epochs.remember()
        self._readers.stop()
        for committer in self.epochs.committers:
            committer.stop()
        self._ended.set()
        return self.failure

    def stop(self) -> None:
        """Stop after the running epoch; `wait` returns then, also if a source hangs: that is the run's failure."""
        if self._ended.is_set():
            return
        self._halt.set()
        with self._gate:
            self._stopping = True
            self._gate.wait_for(lambda: not self._in_epoch)
        assert self._query is not None
        try:
            if (doing := self._query.stop()) is not None:
                self._abandon(self._query, doing)
        finally:
            self._stopped.set()

    def _abandon(self, query: Query, doing: str) -> None:
        """Let the run end without its query, whose thread is in a source that does not answer."""
        note_hanging(self.epochs.log.checkpoint, query.await_end)
        self.failure = SourceError(
            f"{self.job.name}: its query has not ended {STOP_SECONDS} s after it was stopped, as a source does not "
            f"answer: {self.job.sources} ({doing})",
            hint="no epoch comes any more, and the sinks are whole; the job can start again once the source answers",
        )
        _log.warning("%s", self.failure)

    def _await_query(self, query: Query) -> None:
        """Wait for a query's end; warn while there was no row yet, after a minute, two, four, …."""
        began, due = time.monotonic(), _WARNING_SECONDS
        while not query.wait(_POLL_SECONDS):
            if time.monotonic() - began < due:
                continue
            if not self._has_rows:
                _log.warning("%s: no rows after %d s: %s", self.job.name, due, self.job.sources)
            due += min(due, _LONGEST_SILENCE)

    def _unfinished(self) -> JobError | None:
        """Return the error of a query that has ended within an epoch and raised nothing: its thread has died."""
        epoch = self.epochs.log.unfinished
        if epoch is None:
            return None
        return JobError(
            f"{self.job.name}: Spark's query ended within epoch {epoch} without an error",
            hint="Spark's log tells why; start the job again: it repeats the epoch",
        )

    def _end(self) -> VolleyError | None:
        """Record the end of the run; return the error if that fails: the next run would go on with this one."""
        try:
            self.epochs.end_run()
        except VolleyError as error:
            return error
        return None

    def _translate(self, error: Exception) -> VolleyError:
        """Translate what Spark or a worker raised into a VolleyError."""
        translated = translate(error, self.job.name)
        if type(translated) is not JobError:
            return translated
        fault = self.epochs.log.fault(str(error), translated, self._in_epoch)
        if fault is None:
            return translated
        fault.__cause__ = error
        return fault

    def _epoch(self, frame: DataFrame | None, number: int) -> None:
        """Run one epoch; the query calls this for each that is planned."""
        with self._gate:
            if self._stopping:
                raise _Stopping
            self._in_epoch = True
        try:
            with Span("volley.epoch", {"volley.job": self.job.name, "volley.epoch": number}, self._caller) as span:
                self._run_epoch(frame, number, span)
        except VolleyError as error:
            self.failure = error
            raise
        except Exception as error:
            self.failure = self._translate(error)
            raise
        finally:
            self.epochs.counters.end()
            with self._gate:
                self._in_epoch = False
                self._gate.notify_all()

    def _run_epoch(self, frame: DataFrame | None, number: int, span: Span) -> None:
        began = time.monotonic()
        reach("before-planning", number)
        self.epochs.phases.begin()
        attempt = partial(self._attempt, frame, self.epochs.epoch(number))
        result = through_outages(attempt, self.job.outage, self._halt, self.job.name)
        finished = self._finished(result, time.monotonic() - began)
        self._has_run = True
        self.has_epochs |= not finished.skipped
        self._has_rows |= finished.rows + finished.rejected > 0 or finished.skipped
        self._count_rows(finished.seconds)
        self._record_rows(result)
        with self.epochs.phases("acknowledge"):
            self._readers.committed(number)
            self._record_lags(number)
        span.set({f"volley.{name}": getattr(finished, name) for name in _TRACED})
        finished = replace(finished, ended=datetime.now(UTC), phases=self.epochs.phases.seconds)
        self._on_epoch_end(finished, result.orphans)

    def _record_lags(self, number: int) -> None:
        for reader, lag in zip(self.epochs.plan.readers, self._readers.lags(number), strict=True):
            if lag is not None:
                self.job.metrics.record_lag(lag, self.epochs.plan.names[id(reader)])

    def _count_rows(self, seconds: float) -> None:
        self.job.metrics.record_nodes(*self.epochs.counters.of_nodes, seconds)
        for source, rows in zip(self.epochs.plan.sources, self.epochs.counters.rows_read, strict=True):
            self.job.metrics.record_read(source.identity, rows)

    def _record_rows(self, result: EpochResult) -> None:
        """Record what became of expectations, and the last dead letters, of an epoch that is in every sink."""
        metrics = self.job.metrics
        for name in self.job.graph.expectations:
            outcome = Outcome.of(name, result.tallies)
            metrics.record_expectation(name, outcome.rows, outcome.failed, outcome.unknown)
        metrics.record_letters(result.last_letters)
        metrics.record_unfit(result.tallies.get(RESCUED_VALUES, 0), result.tallies.get(DROPPED, 0))

    def _attempt(self, frame: DataFrame | None, epoch: Epoch) -> EpochResult:
        """Run an epoch once; what an attempt before has counted does not count."""
        self.epochs.counters.begin(epoch.number)
        return self.epochs.run(frame, epoch)

    def _finished(self, result: EpochResult, seconds: float) -> FinishedEpoch:
        written, replayed = [task for sink in result.sinks for task in sink], result.tallies.get(REPLAYED, 0)
        return FinishedEpoch(
            result.epoch.number,
            rows=self.epochs.counters.rows([sum(task.rows for task in sink) for sink in result.sinks]),
            # A dead letter that had the epoch already was not written again.
            rejected=max(0, sum(task.rows for sink in result.letters for task in sink) - replayed),
            replayed=replayed,
            files=sum(task.files for task in written),
            bytes=sum(task.bytes for task in written),
            seconds=seconds,
            skipped=result.skipped,
        )


def through_outages(attempt: Callable[[], _T], longest: float | None, stopping: threading.Event, job: str) -> _T:
    """Return what an attempt returns; make another one while a catalog can't be reached.

    Args:
        attempt: Writes and commits an epoch, if the sinks lack it; or begins a run.
        longest: For how many seconds to try; None = once.
        stopping: Set when the job is to stop: no further attempt is made.

    Raises:
        VolleyError: What the last attempt raised.
    """
    if longest is None:
        return attempt()

    def warn(state: RetryCallState) -> None:
        assert state.outcome is not None
        _log.warning("%s: waiting for the catalog: %s", job, state.outcome.exception())

    return Retrying(
        retry=retry_if_exception_type(_OUTAGES),
        wait=wait_exponential(max=_LONGEST_WAIT),
        stop=stop_after_delay(longest) | stop_when_event_set(stopping),
        sleep=sleep_using_event(stopping),
        before_sleep=warn,
        reraise=True,
    )(attempt)
