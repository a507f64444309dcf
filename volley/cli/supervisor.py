"""Runs pipelines in one Spark session, and follows views: starts again what fails, stops all on a signal."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from types import FrameType
from typing import Any

from tenacity import RetryCallState, Retrying, retry_if_exception, sleep_using_event

from volley.config.values import ConfiguredPipeline, ConfiguredView
from volley.engine.job import Job
from volley.engine.terminal import progress_line
from volley.errors import (
    ConfigError,
    ExpressionError,
    JobError,
    MissingDependencyError,
    PlanError,
    SchemaMismatchError,
    VolleyError,
)
from volley.iceberg.views.values import ViewRefresh

__all__ = ["Supervisor"]

_log = logging.getLogger("volley")
# The next attempt would fail in the same way.
_LASTING = (ConfigError, ExpressionError, MissingDependencyError, PlanError, SchemaMismatchError)
_LONGEST_WAIT = 300.0
_EVERY_SECONDS = 30.0


class Supervisor:
    """Runs pipelines until they end or a signal comes.

    SIGINT and SIGTERM stop all of them after their running epochs; a second one ends the process at once.

    Args:
        pipelines: The pipelines.
        options: Options of their starts, beside their own.
        views: Views to keep up to date; with the option `once`, to refresh when the pipelines have ended.
    """

    def __init__(
        self,
        pipelines: Sequence[ConfiguredPipeline],
        options: Mapping[str, Any],
        views: Sequence[ConfiguredView] = (),
    ) -> None:
        self._views = views
        self._once = bool(options.get("once"))
        self._refreshes: dict[str, ViewRefresh] = {}
        self.failures: dict[str, VolleyError] = {}
        self._runs = [_Run(pipeline, options) for pipeline in pipelines]
        self._stopping = threading.Event()
        # Spark's session and Python's settings for it are one for all: one pipeline starts after the other.
        self._starting = threading.Lock()

    def run(self) -> list[str]:
        """Run the pipelines and views; return a line about each, when all have ended."""
        tasks = {run.pipeline.name: partial(self._keep, run) for run in self._runs}
        if not self._once:
            tasks |= {view.name: partial(self._follow, view) for view in self._views}
        threads = [
            threading.Thread(target=self._record, args=[name, task], name=f"volley-{name}", daemon=True)
            for name, task in tasks.items()
        ]
        with self._signals():
            for thread in threads:
                thread.start()
            self._wait(threads)
            if self._once:
                for view in self._views:
                    self._record(view.name, partial(self._refresh, view))
        return [*self._lines(), *map(str, self._refreshes.values())]

    def _wait(self, threads: Sequence[threading.Thread]) -> None:
        """Wait until all threads have ended, and log how far their jobs are now and then."""
        shown = time.monotonic()
        while any(thread.is_alive() for thread in threads):
            # Short waits: a signal is handled between two of them.
            for thread in threads:
                thread.join(0.1)
            if time.monotonic() - shown >= _EVERY_SECONDS:
                shown = time.monotonic()
                for line in self._lines():
                    _log.info(line)

    def _lines(self) -> list[str]:
        return [progress_line(run.pipeline.name, run.job.progress) for run in self._runs if run.job is not None]

    def _record(self, name: str, task: Callable[[], None]) -> None:
        """Do the work of a pipeline or a view, and keep its error."""
        try:
            task()
        except VolleyError as error:
            self.failures[name] = error
        except Exception as error:
            _log.exception("%s: unexpected error", name)
            self.failures[name] = JobError(f"unexpected {type(error).__name__}: {error}")

    def _keep(self, run: _Run) -> None:
        """Run a pipeline until it ends, or has failed as often as its policy allows."""
        retrying = Retrying(
            retry=retry_if_exception(run.may_restart),
            stop=lambda state: run.failures > run.pipeline.restart.limit or self._stopping.is_set(),
            wait=run.wait,
            sleep=sleep_using_event(self._stopping),
            before_sleep=run.announce,
            reraise=True,
        )
        retrying(self._run_once, run)

    def _follow(self, view: ConfiguredView) -> None:
        """Keep a view up to date until a signal comes."""
        with view.view.follow(view.interval) as follower:
            while follower.is_running and not self._stopping.wait(0.1):
                pass
        if follower.last is not None:
            self._refreshes[view.name] = follower.last

    def _refresh(self, view: ConfiguredView) -> None:
        if not self._stopping.is_set():
            self._refreshes[view.name] = view.view.refresh()

    def _run_once(self, run: _Run) -> None:
        with self._starting:
            if self._stopping.is_set():
                return
            run.start()
        assert run.job is not None
        if self._stopping.is_set():
            run.job.stop()
        run.job.wait()
        run.count()

    @contextmanager
    def _signals(self) -> Iterator[None]:
        numbers = (signal.SIGINT, signal.SIGTERM)
        previous = {number: signal.getsignal(number) for number in numbers}

        def stop(number: int, frame: FrameType | None) -> None:
            if self._stopping.is_set():
                os._exit(128 + number)
            _log.info("stopping after the running epochs; a second signal ends the process at once")
            self._stopping.set()
            for run in self._runs:
                threading.Thread(target=run.stop, daemon=True).start()

        for number in numbers:
            signal.signal(number, stop)
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)


class _Run:
    """A pipeline, its job, and how often it failed in a row.

    Args:
        pipeline: The pipeline.
        options: Options of its start, beside its own.
    """

    def __init__(self, pipeline: ConfiguredPipeline, options: Mapping[str, Any]) -> None:
        self.pipeline = pipeline
        self.job: Job | None = None
        self.failures = 0
        self._options: dict[str, Any] = {**pipeline.options, **options}

    def start(self) -> None:
        try:
            self.job = self.pipeline.pipeline.start(self.pipeline.name, **self._options)
        except VolleyError:
            self.failures += 1
            raise
        # Another start must go on where this one stopped.
        self._options |= {"fresh": False, "into": None}
        _log.info("%s: started", self.pipeline.name)

    def count(self) -> None:
        """Count the failure of a job that has ended, and raise it."""
        assert self.job is not None
        if self.job.exception is None:
            return
        self.failures = 1 if self.job.progress.epochs else self.failures + 1
        raise self.job.exception

    def stop(self) -> None:
        if self.job is not None:
            self.job.stop()

    def may_restart(self, error: BaseException) -> bool:
        restarts = self.pipeline.restart.policy == "on_failure"
        return restarts and isinstance(error, VolleyError) and not isinstance(error, _LASTING)

    def wait(self, state: RetryCallState) -> float:
        """Return the wait before the next start in seconds."""
        backoff = self.pipeline.restart.backoff
        assert isinstance(backoff, timedelta)
        return float(min(backoff.total_seconds() * 2 ** (self.failures - 1), _LONGEST_WAIT))

    def announce(self, state: RetryCallState) -> None:
        assert state.outcome is not None
        assert state.next_action is not None
        text = "%s: failed, restart %d of %d in %.1f s: %s"
        limit, wait = self.pipeline.restart.limit, state.next_action.sleep
        _log.warning(text, self.pipeline.name, self.failures, limit, wait, state.outcome.exception())
