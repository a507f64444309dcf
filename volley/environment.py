"""Environment: where pipelines begin, and what they run on."""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

from volley import _checks, _plan
from volley._prometheus import Endpoint
from volley._start import Start
from volley.errors import ConfigError, PlanError
from volley.metrics import Metrics
from volley.source import Source
from volley.stream import DataStream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from volley.job import Job

__all__ = ["Environment"]


@dataclass(frozen=True)
class Environment:
    """Where pipelines begin: it opens sources, and knows on which Spark they run and where they remember.

    Args:
        master: Spark's master URL, ``"local[4]"`` or ``"spark://host:7077"``; None = all local cores,
            or whatever the active session has.
        spark: A session to use instead of making one.
        checkpoint_dir: The folder (a path or URL that Spark can reach) below which each job keeps its checkpoint,
            under its name; None = ``.volley/checkpoints``.
        checkpoint_interval: The time from the start of one epoch to the start of the next, for unbounded sources:
            a timedelta, seconds or a text such as ``"5s"``; 0 = as fast as it can. A sink's `flush_interval`
            shortens it.
        arrow_native: False forces the general path, through Spark's own operators.

    Raises:
        ConfigError: If a setting is wrong.

    Example:
        >>> Environment(checkpoint_dir="/tmp/checkpoints", checkpoint_interval="10s").checkpoint_interval
        datetime.timedelta(seconds=10)
    """

    master: str | None = None
    spark: SparkSession | None = field(default=None, repr=False)
    checkpoint_dir: str | os.PathLike[str] | None = None
    checkpoint_interval: _checks.Duration = timedelta(seconds=60)
    arrow_native: bool = True

    def __post_init__(self) -> None:
        optional = _checks.optional
        _checks.keep(self, master=optional(_checks.text), checkpoint_dir=optional(_checks.path))
        _checks.keep(self, checkpoint_interval=_checks.duration_or_zero, arrow_native=_checks.flag)
        _check_session(self.spark)
        if self.master is not None and self.spark is not None:
            raise ConfigError("both master and spark are given", hint="a given session already has its master")

    def from_source(self, source: Source) -> DataStream:
        """A stream of the source's rows. Nothing is opened yet.

        Raises:
            ConfigError: If `source` is not a source.
        """
        if not isinstance(source, Source):
            raise ConfigError(
                f"from_source takes a Source, not {type(source).__name__}",
                hint="for example FileSource(path), MemorySource(rows), RateSource(rows_per_second)",
            )
        return DataStream(_plan.Read(source), self)

    def start(self, plan: _plan.Node, start: Start) -> Job:
        """Start a plan as a job: check it against checkpoint, sources and sinks, then hand it to Spark."""
        path = _plan.choose_path(plan, self.arrow_native)
        _check(plan, path)
        with ExitStack() as on_failure:
            job = self._start(plan, path, start, on_failure)
            on_failure.pop_all()
        return job

    def _start(self, plan: _plan.Node, path: _plan.Path, start: Start, on_failure: ExitStack) -> Job:
        from volley._checkpoint import Checkpoint, locate
        from volley._launch import launch
        from volley._running import release, reserve
        from volley._session import open_session
        from volley.job import Job

        parent = None if self.checkpoint_dir is None else os.fspath(self.checkpoint_dir)
        folder, metrics = locate(parent, start.name), Metrics({"job_name": start.name})
        reserve(folder, start.name)
        on_failure.callback(release, folder)
        endpoint = None if start.metrics_port is None else Endpoint(metrics, start.metrics_host, start.metrics_port)
        if endpoint:
            on_failure.callback(endpoint.close)
        checkpoint = Checkpoint(folder, start.name)
        epochs = launch(
            plan, path, start, checkpoint, lambda: self.spark or open_session(self.master), metrics, on_failure
        )
        job = Job(epochs, endpoint)
        job._start(self._interval(plan), all(source.bounded for source in _plan.sources(plan)))
        checkpoint.forget()
        return job

    def _interval(self, plan: _plan.Node) -> timedelta:
        assert isinstance(self.checkpoint_interval, timedelta)
        waits = (write.sink.flush_interval for write in _plan.writes(plan))
        return min([self.checkpoint_interval, *(wait for wait in waits if wait is not None)])


def _check_session(spark: object) -> None:
    if spark is not None:
        from pyspark.sql import SparkSession

        _checks.of_type(SparkSession, "SparkSession.builder.getOrCreate(), or leave it out")("spark", spark)


def _check(plan: _plan.Node, path: _plan.Path) -> None:
    if not isinstance(plan, _plan.Write):
        raise PlanError(f"the pipeline ends in {plan.label()}, not in a sink", hint="end it with .to_sink(...)")
    if not path.arrow_native and any(write.sink.dead_letter for write in _plan.writes(plan)):
        raise PlanError(
            f"a sink has a dead_letter, which needs the Arrow-native path; this pipeline takes the {path}",
            hint="leave dead_letter out, or sort bad rows out by filter_expr",
        )
