"""Tells OpenTelemetry of a job: its metrics, its log, and how long its epochs take. `Run` makes the spans of epochs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from volley.engine.listeners import Listener
from volley.metrics.figures import FinishedEpoch
from volley.metrics.metrics import Metrics
from volley.metrics.status import JobStatus
from volley.telemetry.logs import send_logs
from volley.telemetry.meters import METERS

if TYPE_CHECKING:
    from volley.spark.compile import CompiledPlan

__all__ = ["JobTelemetry"]


class JobTelemetry(Listener):
    """Tells of one job."""

    def __init__(self, job: str, metrics: Metrics) -> None:
        self._job = job
        self._metrics = metrics

    def opened(self, plan: CompiledPlan) -> None:
        send_logs()

    def begin(self, job: str) -> None:
        METERS.begin(job, self._metrics)

    def add(self, epoch: FinishedEpoch) -> None:
        METERS.add(self._job, epoch)

    def end(self, status: Callable[[], JobStatus]) -> None:
        METERS.end(self._job)
