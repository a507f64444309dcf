"""The metrics of jobs as instruments of OpenTelemetry, which its SDK reads whenever it exports."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from volley.metrics.exposition import Description, versions
from volley.metrics.figures import FinishedEpoch
from volley.metrics.metrics import DESCRIPTIONS, Metrics

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Histogram, Meter, Observation
    from prometheus_client.core import Metric

__all__ = ["METERS", "Meters"]

_PREFIX = "volley_iceberg_"
# The instruments are read one after the other, and all have what one look at the jobs has told.
_SECONDS = 0.2
_NEVER = -1.0
_MOST_ENDED = 100


class Meters:
    """Reads the metrics of all jobs of the process; nothing happens in a program that does not use OpenTelemetry."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._jobs: dict[str, Metrics] = {}
        self._ended: dict[str, None] = {}
        self._provider: object = None
        self._seconds: Histogram | None = None
        self._phases: Histogram | None = None
        self._read: dict[str, list[tuple[bool, Metric]]] = {}
        self._read_at = _NEVER

    def begin(self, job: str, metrics: Metrics) -> None:
        """Read the metrics of a job from now on."""
        if "opentelemetry.metrics" not in sys.modules:
            return
        from opentelemetry import metrics as api

        provider = api.get_meter_provider()
        if type(provider).__module__.startswith(api.__name__):
            # The program has set none: this one reads nothing.
            return
        with self._lock:
            self._jobs[job] = metrics
            self._ended.pop(job, None)
            self._read_at = _NEVER
            if provider is not self._provider:
                self._provider = provider
                self._make(api.get_meter("volley", versions()["version"]))

    def add(self, job: str, epoch: FinishedEpoch) -> None:
        """Record how long an epoch took, and its phases."""
        if self._seconds is None or self._phases is None:
            return
        # The next look has this epoch.
        self._read_at = _NEVER
        labels = {"job_name": job}
        self._seconds.record(epoch.seconds, labels)
        for phase, seconds in epoch.phases.items():
            self._phases.record(seconds, {**labels, "phase": phase})

    def end(self, job: str) -> None:
        """Read no gauges of a job that has ended; its counters are still read, as the last export may be to come."""
        with self._lock:
            if job in self._jobs:
                self._ended[job] = None
            if len(self._ended) > _MOST_ENDED:
                forgotten = next(iter(self._ended))
                del self._ended[forgotten], self._jobs[forgotten]
            self._read_at = _NEVER

    def _make(self, meter: Meter) -> None:
        for description in DESCRIPTIONS:
            name = f"volley.iceberg.{description.name}"
            callbacks = [self._callback(description)]
            if description.type == "counter":
                meter.create_observable_counter(name, callbacks, description=description.text)
            elif description.type == "gauge":
                meter.create_observable_gauge(name, callbacks, description=description.text)
        self._seconds = meter.create_histogram("volley.epoch.duration", "s", "Time of an epoch")
        self._phases = meter.create_histogram("volley.epoch.phase.duration", "s", "Time of a phase of an epoch")

    def _callback(self, description: Description) -> Any:
        def read(options: CallbackOptions) -> Iterable[Observation]:
            return list(self._observed(description))

        return read

    def _observed(self, description: Description) -> Iterator[Observation]:
        from opentelemetry.metrics import Observation

        for has_ended, family in self._families().get(_PREFIX + description.name, ()):
            if has_ended and description.type == "gauge":
                continue
            for sample in family.samples:
                yield Observation(float(sample.value), sample.labels)

    def _families(self) -> dict[str, list[tuple[bool, Metric]]]:
        """Return the metrics of all jobs by name, each with whether its job has ended."""
        with self._lock:
            now = time.monotonic()
            if now - self._read_at > _SECONDS:
                self._read = {}
                for job, metrics in self._jobs.items():
                    for family in metrics.to_registry().collect():
                        self._read.setdefault(family.name, []).append((job in self._ended, family))
                self._read_at = now
            return self._read


METERS = Meters()
"""Those of the process."""
