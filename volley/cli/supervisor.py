"""Runs pipelines in one Spark session, and follows views; stops all of them on a signal."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import Any

from volley.config.values import ConfiguredPipeline, ConfiguredView
from volley.engine.display import progress_line
from volley.engine.job import Job
from volley.errors import JobError, VolleyError
from volley.iceberg.views.following import ViewFollower
from volley.iceberg.views.values import ViewRefresh
from volley.metrics.status import FollowedView, JobStatus, status_json

__all__ = ["Supervisor"]

_log = logging.getLogger("volley")
_EVERY_SECONDS = 30.0


class Supervisor:
    """Runs pipelines until they end or a signal comes.

    SIGINT and SIGTERM stop all of them after their running epochs; a second one ends the process at once.

    Args:
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
        self._followers: dict[str, ViewFollower] = {}
        self.failures: dict[str, VolleyError] = {}
        self._runs = [_Run(pipeline, options) for pipeline in pipelines]
        self._stopping = threading.Event()

    def run(self) -> list[str]:
        """Run the pipelines and views; return a line about each, when all have ended."""
        tasks = {run.pipeline.name: partial(run.keep, self._stopping) for run in self._runs}
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

    def status(self) -> str:
        """Return the status of each pipeline and view as JSON, for a page; one that is not there yet is starting."""
        jobs = (run.job.status() if run.job else JobStatus(run.pipeline.name, "starting") for run in self._runs)
        return status_json(
            [job.to_dict() for job in jobs], views=[self._seen(view.name).to_dict() for view in self._views]
        )

    def _seen(self, view: str) -> FollowedView:
        follower, failure = self._followers.get(view), self.failures.get(view)
        if follower is not None:
            return follower.status()
        if failure is not None:
            return FollowedView(view, "failed", failure.message, failure.hint)
        return FollowedView(view, "starting")

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

    def _follow(self, view: ConfiguredView) -> None:
        """Keep a view up to date until a signal comes."""
        with view.view.follow(view.interval) as follower:
            self._followers[view.name] = follower
            while follower.is_running and not self._stopping.wait(0.1):
                pass
        if follower.last is not None:
            self._refreshes[view.name] = follower.last

    def _refresh(self, view: ConfiguredView) -> None:
        if not self._stopping.is_set():
            self._refreshes[view.name] = view.view.refresh()

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
    """A pipeline and its job, which starts itself again after failures, as the pipeline's settings say.

    Args:
        options: Options of its start, beside its own.
    """

    def __init__(self, pipeline: ConfiguredPipeline, options: Mapping[str, Any]) -> None:
        self.pipeline = pipeline
        self.job: Job | None = None
        self._options: dict[str, Any] = {**pipeline.options, "restart": pipeline.restart, **options}

    def keep(self, stopping: threading.Event) -> None:
        """Start the job, wait for its end, and raise the error that it failed with."""
        if stopping.is_set():
            return
        self.job = self.pipeline.pipeline.start(self.pipeline.name, **self._options)
        _log.info("%s: started", self.pipeline.name)
        if stopping.is_set():
            self.job.stop()
        self.job.wait()
        if self.job.exception is not None:
            raise self.job.exception

    def stop(self) -> None:
        if self.job is not None:
            self.job.stop()
