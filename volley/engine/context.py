"""What a job's start has found out once: all that comes after it gets this one value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING

from volley.engine.checkpoint import Checkpoint
from volley.engine.options import Start
from volley.metrics.metrics import Metrics
from volley.plan.graph import JobGraph

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["JobContext"]


@dataclass(frozen=True)
class JobContext:
    """A job, and where it runs.

    Args:
        start: Its checked start options.
        graph: Its graph.
        checkpoint: Its checkpoint.
        metrics: Its counters.
        session: Returns the Spark session, or starts one.
        interval: The time from the start of one epoch to the start of the next.
    """

    start: Start
    graph: JobGraph
    checkpoint: Checkpoint
    metrics: Metrics
    session: Callable[[], SparkSession]
    interval: timedelta

    @property
    def name(self) -> str:
        """The job's name."""
        return self.start.name

    @property
    def folder(self) -> str:
        """The fsspec URL of the folder for its state, which lives as long as its checkpoint."""
        return f"{self.checkpoint.url}/volley"

    @property
    def bounded(self) -> bool:
        """True if a run reads what the sources have when it starts, then ends."""
        return self.start.once or self.graph.is_bounded

    @property
    def outage(self) -> float | None:
        """How long an epoch is tried again while a catalog is out of reach, in seconds; None = it fails."""
        assert self.start.outage is None or isinstance(self.start.outage, timedelta)
        return None if self.start.outage is None else self.start.outage.total_seconds()

    @property
    def sources(self) -> str:
        """Its sources, for messages."""
        return ", ".join(repr(read.source) for read in self.graph.reads)

    def after_start(self) -> JobContext:
        """Return the context of the next run, which goes on where this one stops."""
        return replace(self, start=replace(self.start, fresh=False, into=None))
