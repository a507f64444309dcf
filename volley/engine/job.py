"""A running job: runs its epochs, reports progress, waits for its end, stops it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import AsyncIterator, Callable, Generator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from volley import checks
from volley.columns.rows import Rows
from volley.contracts.reports import MaintenanceReport
from volley.engine.history import History
from volley.engine.launch import launch
from volley.engine.listeners import Listener, Listeners
from volley.engine.options import JobContext
from volley.engine.progress import Progress, State, enter
from volley.engine.restart import Restart
from volley.engine.run import Run, through_outages
from volley.engine.runs import JobRun, RunRecorder, plan_hash, runs_of
from volley.engine.status import status_of
from volley.engine.telemetry import JobTelemetry
from volley.errors import PlanError, SchemaChangedError, VolleyError, brief_methods
from volley.html_table import html_table
from volley.lineage.emitter import configured_emitter
from volley.metrics.figures import FinishedEpoch
from volley.metrics.status import JobStatus, status_json
from volley.spark.errors import translate
from volley.spark.output import bound_log

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.figure import Figure

    from volley.metrics.endpoint import Endpoint

__all__ = ["Job"]

_log = logging.getLogger(__name__)
_beginning = threading.Lock()


@brief_methods
class Job(Rows):
    """A job that runs or has ended; created by `Environment.start` and `Environment.execute`.

    Attributes:
        name: Its name.
        metrics: Its counters.
        metrics_url: The URL of its metrics while it runs; None without `metrics_port`.
        ui: The URL of its page while it runs; None without `ui_port`. If it has a token, add ``?token=…``.
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
        context: JobContext,
        endpoints: Mapping[int, Endpoint] | None = None,
        on_end: Callable[[], object] = lambda: None,
    ) -> None:
        start = context.start
        self.name = start.name
        self.metrics = context.metrics
        self._endpoints = endpoints or {}
        of_metrics, of_page = (self._endpoint(port) for port in (start.metrics_port, start.ui_port))
        self.metrics_url = of_metrics.url if of_metrics else None
        self.ui = of_page.page if of_page else None
        self.orphans: list[str] = []
        self._context = context
        self._restart = start.restart or Restart("never")
        self._healthy_within = start.healthy_within
        self._history = History(start.name, start.on_epoch, start.on_error)
        self._on_end = on_end
        self._run: Run | None = None
        self._progress = Progress()
        self._began = time.monotonic()
        self._began_at = datetime.now(UTC)
        self._restart_due = 0.0
        recorder = RunRecorder(context.checkpoint.url, partial(plan_hash, context.graph), self.status)
        telemetry = JobTelemetry(start.name, context.metrics)
        listeners = [recorder, *_lineage(context, self._began_at), telemetry, self._history]
        self._listeners = Listeners(start.name, listeners)
        self._failure: VolleyError | None = None
        self._last_failure: VolleyError | None = None
        self._lock = threading.Lock()
        self._stop_requested = threading.Event()
        self._ended = threading.Event()
        self._watcher: threading.Thread | None = None
        for endpoint in self._endpoints.values():
            endpoint.probe(self._unhealthy, self._unready, self._notes)
        if of_page:
            of_page.show(lambda: status_json([self.status().to_dict()]))

    def _endpoint(self, port: int | None) -> Endpoint | None:
        return None if port is None else self._endpoints[port]

    @property
    def progress(self) -> Progress:
        """A frozen snapshot of the job's progress."""
        if self._ended.is_set():
            return self._progress
        return replace(
            self._progress,
            state=State.RESTARTING if self.metrics.state == "restarting" else State.RUNNING,
            seconds=time.monotonic() - self._began,
            running=self.metrics.running,
            restarts=self.metrics.restarts,
        )

    @property
    def maintenance(self) -> MaintenanceReport:
        """What the maintenance of its tables has done lately, and when more is due; prints as a list."""
        committers = self._run.epochs.committers if self._run else ()
        reports = (committer.maintenance for committer in committers)
        return MaintenanceReport.of(report for report in reports if report is not None)

    @property
    def exception(self) -> VolleyError | None:
        """The error that the job failed with; None while it runs, or if it did not fail."""
        return self._failure if self._ended.is_set() else None

    def status(self) -> JobStatus:
        """Return what is known of the job now, as one value: its state, rates, graph, sources, sinks and notes.

        The same value is ``/status.json`` of its page.

        Example:
            >>> from volley import Environment, MemorySink, MemorySource
            >>> stream = Environment().from_source(MemorySource([{"id": 1}])).to_sink(MemorySink())
            >>> stream.execute("example").status().rows  # doctest: +SKIP
            1
        """
        return self._status(self.progress)

    def _status(self, progress: Progress) -> JobStatus:
        state, error = progress.state.value, self._failure
        if progress.state is State.RESTARTING:
            error = self._last_failure
        elif progress.state is State.RUNNING and self._run is None:
            state = "starting"
        known = status_of(self._context, progress, self._history.latest())
        return replace(
            known,
            state=state,
            reason=None if error is None else error.message,
            hint=None if error is None else error.hint,
            next_restart=max(0.0, self._restart_due - time.monotonic()) if state == "restarting" else None,
            began=self._began_at,
            maintenance=self.maintenance,
            notes=tuple(self._notes()),
        )

    def history(self) -> list[JobRun]:
        """Return the runs of the job so far, oldest first, this one included; also those whose process was killed.

        Raises:
            StorageError: If the history can't be read.
        """
        return runs_of(self._context.checkpoint.url)

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
            raise self.exception
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
        return self._readable_sink().table()

    def to_arrow(self, limit: int | None = None) -> pa.Table:
        """Return the rows that the job's only sink with a table has now, as an Arrow table. Raises like `table`.

        Args:
            limit: The most rows, in any order; None = all.
        """
        rows: pa.Table = self._readable_sink().to_arrow(limit)
        return rows

    def _readable_sink(self) -> Any:
        sinks = (write.sink for write in self._context.graph.writes)
        tables: list[Any] = [sink for sink in sinks if sink.has_table]
        if len(tables) != 1:
            raise PlanError(f"job {self.name!r} has {len(tables)} sinks with a table", hint="ask one: sink.table()")
        return tables[0]

    def plot(self) -> Figure:
        """Return a figure of Matplotlib's with the rows and seconds of each epoch; a notebook shows it.

        Raises:
            MissingDependencyError: If Matplotlib is not installed.
        """
        return self._history.plot()

    def stop(self) -> None:
        """Stop the job after the running epoch, and wait for its end. The next start resumes it.

        In `on_epoch` or `on_error` it only asks for that: the job's end waits for the callback's.

        If a source does not answer for a minute, the job ends with a SourceError in `exception`; it can start again
        in this process once the source answers.
        """
        if self._history.is_telling:
            threading.Thread(target=self.stop, name=f"volley-{self.name}-stop", daemon=True).start()
            return
        with self._lock:
            self._stop_requested.set()
            run = self._run
        if run is not None:
            run.stop()
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
        """Return the job's state, its progress and its error as a table, and a plot of its epochs, for notebooks."""
        error = self.exception
        seen = {"job": self.name, "error": error and error.message, "page": self.ui, "metrics": self.metrics_url}
        return html_table(seen) + self.progress._repr_html_() + self._history.plot_html()

    def _start(self) -> None:
        """Begin the first run, then follow it in a thread, which also starts the job again after failures.

        Raises:
            VolleyError: If it can't begin, and the job does not start again after such a failure.
        """
        self.metrics.record_state("starting")
        failure = None
        try:
            self._run = self._begin()
            self.metrics.record_state("running")
        except (VolleyError, Py4JError, PySparkException, OSError) as error:
            failure = translate(error, self.name)
            if not self._restart.allows(failure, 1):
                self._listeners.refused(failure)
                raise failure from failure.__cause__
        self._listeners.begin(self.name)
        self._watcher = threading.Thread(target=self._watch, args=[failure], name=f"volley-{self.name}", daemon=True)
        self._watcher.start()

    def _begin(self) -> Run:
        """Begin a run: the first one, or one that goes on where the one before has stopped."""
        enter("checking")
        # Spark's session and Python's settings for it are one for all jobs.
        with _beginning, ExitStack() as undo:
            epochs = launch(self._context, undo)
            self._listeners.opened(epochs.plan)
            run = Run(epochs, self._count)
            run.start()
            undo.pop_all()
        self._context.checkpoint.forget()
        self._context = self._context.after_start()
        return run

    def _watch(self, failure: VolleyError | None) -> None:
        """Wait for the end of the first run, unless it could not begin, and of those that follow it.

        A run follows one that has met another schema, and one with a failure that may pass.
        """
        if self._run is not None:
            failure = self._failure_of(self._run.wait)
        failures, is_planned_anew, had_epochs = 0, False, False
        while failure is not None and not self._stop_requested.is_set():
            has_epochs = self._run is not None and self._run.has_epochs
            if isinstance(failure, SchemaChangedError) and (has_epochs or not is_planned_anew):
                _log.info("%s: %s: it is planned anew", self.name, failure.message)
                is_planned_anew = True
                failure = self._failure_of(self._run_again)
                continue
            failures = 1 if has_epochs else failures + 1
            had_epochs = had_epochs or has_epochs
            if not self._restart.allows(failure, failures, had_epochs):
                break
            seconds = self._restart.seconds(failures)
            text = "%s: failed, restart %d of %d in %.1f s: %s"
            _log.warning(text, self.name, failures, self._restart.limit, seconds, failure)
            self._last_failure, self._restart_due = failure, time.monotonic() + seconds
            self.metrics.record_state("restarting")
            self._listeners.restarting(failure)
            failure = None if self._stop_requested.wait(seconds) else self._failure_of(self._run_again)
        self._finish(failure)

    def _failure_of(self, run: Callable[[], VolleyError | None]) -> VolleyError | None:
        try:
            return run()
        except Exception as error:
            return translate(error, self.name)

    def _run_again(self) -> VolleyError | None:
        """Begin another run, wait for its end, and return the error that it failed with."""
        self._run = None
        run = through_outages(self._begin, self._context.outage, self._stop_requested, self.name)
        self.metrics.record_state("running")
        with self._lock:
            self._run = run
        if self._stop_requested.is_set():
            run.stop()
        return run.wait()

    def _finish(self, failure: VolleyError | None) -> None:
        """Note how the job has ended, and let go of its checkpoint and its endpoint."""
        bounded = self._run is not None and self._run.bounded
        state = State.FINISHED if bounded else State.STOPPED
        if failure is not None:
            self._failure, state = failure, State.FAILED
            self._listeners.failed(failure)
        elif self._stop_requested.is_set():
            state = State.STOPPED
        elif self._run is not None and not self._progress.epochs:
            self._log_nothing_new(self._run)
        self._progress = replace(self.progress, state=state, running=None)
        self._listeners.end(lambda: self._status(self._progress))
        for endpoint in self._endpoints.values():
            endpoint.close()
        self._on_end()
        self._ended.set()

    def _unhealthy(self) -> str | None:
        """Return why the job is not healthy; None if it is."""
        if self._watcher is not None and not self._watcher.is_alive():
            return f"job {self.name!r} has ended"
        since = self.metrics.snapshot().seconds_since_last_commit
        seconds = time.monotonic() - self._began if since is None else since
        assert self._healthy_within is None or isinstance(self._healthy_within, timedelta)
        if self._healthy_within is None or seconds <= self._healthy_within.total_seconds():
            return None
        return f"job {self.name!r} has committed nothing for {seconds:.0f} s"

    def _unready(self) -> str | None:
        """Return why the job is not ready; None once an epoch is done, unless it waits for a restart."""
        if self.metrics.state == "restarting":
            return f"job {self.name!r} starts again after a failure: {self._last_failure}"
        return None if self._progress.epochs else f"job {self.name!r} has not finished an epoch yet"

    def _notes(self) -> list[str]:
        """Return what an operator should look after, though the job goes on."""
        if not self._run:
            return []
        epochs = self._run.epochs
        return [*(note for committer in epochs.committers for note in committer.notes), *epochs.notes.lines]

    def _log_nothing_new(self, run: Run) -> None:
        log = run.epochs.log
        if log.last_finished is not None:
            text = "%s: nothing new since epoch %d (checkpoint %s); to start over: fresh=True"
            _log.warning(text, self.name, log.last_finished, log.checkpoint)

    def _count(self, epoch: FinishedEpoch, orphans: Sequence[str]) -> None:
        """Count an epoch that is visible in every sink, and tell of it."""
        bound_log()
        self.metrics.record_epoch(epoch.number)
        self.orphans += orphans
        if not self._progress.epochs:
            self._progress = replace(self._progress, startup=time.monotonic() - self._began - epoch.seconds)
        self._progress = self._progress.after(epoch)
        self._listeners.add(epoch)


def _lineage(context: JobContext, began: datetime) -> list[Listener]:
    """Return what tells OpenLineage of the job; nothing unless its client is configured."""
    emitter = configured_emitter()
    if emitter is None:
        return []
    from volley.engine.lineage import JobLineage

    return [JobLineage(context, began, emitter)]
