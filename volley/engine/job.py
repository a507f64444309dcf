"""A running pipeline: one epoch after the other, its progress and metrics, waiting for its end, stopping it."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from enum import Enum
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError

from volley.engine.acknowledge import Readers
from volley.engine.epochs import EpochResult, Epochs
from volley.engine.running import release
from volley.errors import JobError, VolleyError
from volley.exposition import Endpoint
from volley.metrics import EpochProgress
from volley.spark.errors import is_slow_start, translate
from volley.task.failpoints import reach

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["Job", "Progress", "State"]

_log = logging.getLogger(__name__)
_RESTARTS = 2


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
        rows: Rows written in this run; one that goes to several sinks on its way counts once.
        rejected: Rows that went to a dead letter in this run.
        files: Files written in this run.
        bytes: Encoded bytes written in this run.
        seconds: Time since the start.
        running: How far the running epoch has come, which is not in the figures above yet; None between epochs.

    Example:
        >>> Progress(rows=3).to_json()[:52]
        '{"state": "running", "epoch": null, "epochs": 0, "sk'
    """

    state: State = State.RUNNING
    epoch: int | None = None
    epochs: int = 0
    skipped: int = 0
    rows: int = 0
    rejected: int = 0
    files: int = 0
    bytes: int = 0
    seconds: float = 0.0
    running: EpochProgress | None = None

    def to_json(self) -> str:
        """One line of JSON, for logs."""
        return json.dumps({**asdict(self), "state": self.state.value})

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
        metrics_url: Where they are served over HTTP while it runs; None if they are not.
        orphans: Files that killed tasks or a killed driver have left behind, as far as this run came upon them. They
            are part of no table; `volley.iceberg.remove_orphan_files` removes them.

    Example:
        >>> from volley import Environment, MemorySink, MemorySource
        >>> stream = Environment().from_source(MemorySource([{"id": 1}])).to_sink(MemorySink())
        >>> job = stream.start("example")  # doctest: +SKIP
        >>> job.wait(60), job.progress.rows  # doctest: +SKIP
        (True, 1)
    """

    def __init__(self, epochs: Epochs, endpoint: Endpoint | None) -> None:
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

    @property
    def progress(self) -> Progress:
        """A frozen view of how far the job has come."""
        if self._ended.is_set():
            return self._progress
        return replace(self._progress, seconds=time.monotonic() - self._began, running=self.metrics.running)

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

    def _start(self, interval: timedelta, bounded: bool) -> None:
        every = f"{round(interval.total_seconds() * 1000)} milliseconds"
        try:
            self._readers.start()
            writer = self._epochs.plan.frame.writeStream.foreachBatch(self._epoch).queryName(self.name)
            writer = writer.option("checkpointLocation", self._epochs.log.checkpoint)
            writer = writer.trigger(availableNow=True) if bounded else writer.trigger(processingTime=every)
            self._query = writer.start()
        except BaseException as error:
            self._readers.stop()
            if not isinstance(error, Exception):
                raise
            made = self._explained(error)
            raise made from made.__cause__
        self._ends = State.FINISHED if bounded else State.STOPPED
        threading.Thread(target=self._watch, args=[writer.start], name=f"volley-{self.name}", daemon=True).start()

    def _watch(self, start: Callable[[], StreamingQuery]) -> None:
        state = self._ends
        try:
            self._await_end(start)
        except Exception as error:
            if self._failure is None and not self._stopping:
                self._failure = self._explained(error)
        if self._failure is not None:
            state = State.FAILED
        elif self._stopping:
            state = State.STOPPED
        if self._failure is None and self._query_id is not None:
            self._epochs.remember(self._query_id)
        self._progress = replace(self.progress, state=state, running=None)
        self._readers.stop()
        if self._endpoint:
            self._endpoint.close()
        release(self._epochs.log.checkpoint)
        self._ended.set()

    def _explained(self, error: Exception) -> VolleyError:
        """What Spark or a worker raised, as one of our errors."""
        found = translate(error, self.name)
        if type(found) is not JobError:
            return found
        fault = self._epochs.log.fault(str(error), found, self._in_epoch)
        if fault is None:
            return found
        fault.__cause__ = error
        return fault

    def _await_end(self, start: Callable[[], StreamingQuery]) -> None:
        """Wait for the query's end; start it again if Python was too slow to start, while no epoch has begun."""
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
        """What Spark calls for each epoch."""
        with self._gate:
            if self._stopping:
                raise _Stopping
            self._begun = self._in_epoch = True
        self._epochs.counters.begin(number)
        try:
            reach("before-planning", number)
            query_id = str(frame.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId"))
            self._count(self._epochs.run(frame, self._epochs.epoch(query_id, number)))
            self._query_id = query_id
            self._readers.committed(number)
        except VolleyError as error:
            self._failure = error
            raise
        except Exception as error:
            self._failure = self._explained(error)
            raise
        finally:
            self._epochs.counters.end()
            with self._gate:
                self._in_epoch = False
                self._gate.notify_all()

    def _count(self, done: EpochResult) -> None:
        seen = self._progress
        written = [result for sink in done.sinks for result in sink]
        self.orphans += done.orphans
        self._progress = replace(
            seen,
            epoch=done.epoch.number,
            epochs=seen.epochs + 1,
            skipped=seen.skipped + done.skipped,
            rows=seen.rows + self._epochs.counters.rows([sum(result.rows for result in sink) for sink in done.sinks]),
            rejected=seen.rejected + sum(result.rows for target in done.letters for result in target),
            files=seen.files + sum(result.files for result in written),
            bytes=seen.bytes + sum(result.bytes for result in written),
        )
