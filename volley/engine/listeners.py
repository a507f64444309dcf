"""Who is told what a job does: one place tells all of them, and none of them can fail it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from volley.errors import VolleyError
from volley.metrics.figures import FinishedEpoch
from volley.metrics.status import JobStatus

if TYPE_CHECKING:
    from volley.spark.compile import CompiledPlan

__all__ = ["Listener", "Listeners"]

_log = logging.getLogger(__name__)


class Listener:
    """Is told what a job does; what it does not override is nothing to it. It must not wait."""

    def opened(self, plan: CompiledPlan) -> None:
        """Take note that sources and sinks are open: the epochs begin, in the first run or after a restart."""

    def begin(self, job: str) -> None:
        """Take note that the job runs, or waits for a restart."""

    def refused(self, error: VolleyError) -> None:
        """Take note that the job can't start; nothing else is told of it."""

    def add(self, epoch: FinishedEpoch) -> None:
        """Take note of an epoch that is in every sink."""

    def restarting(self, error: VolleyError) -> None:
        """Take note of a failure after which the job starts again."""

    def failed(self, error: VolleyError) -> None:
        """Take note of the failure that the job ends with; `end` follows."""

    def end(self, status: Callable[[], JobStatus]) -> None:
        """Take note that the job has ended.

        Args:
            status: Returns its last status.
        """


class Listeners(Listener):
    """Tells others, in this order; what one raises is logged."""

    def __init__(self, job: str, listeners: Sequence[Listener]) -> None:
        self._job = job
        self._listeners = listeners

    def opened(self, plan: CompiledPlan) -> None:
        self._tell(lambda listener: listener.opened(plan))

    def begin(self, job: str) -> None:
        self._tell(lambda listener: listener.begin(job))

    def refused(self, error: VolleyError) -> None:
        self._tell(lambda listener: listener.refused(error))

    def add(self, epoch: FinishedEpoch) -> None:
        self._tell(lambda listener: listener.add(epoch))

    def restarting(self, error: VolleyError) -> None:
        self._tell(lambda listener: listener.restarting(error))

    def failed(self, error: VolleyError) -> None:
        self._tell(lambda listener: listener.failed(error))

    def end(self, status: Callable[[], JobStatus]) -> None:
        self._tell(lambda listener: listener.end(status))

    def _tell(self, moment: Callable[[Listener], object]) -> None:
        for listener in self._listeners:
            try:
                moment(listener)
            except Exception:
                _log.exception("%s: %s failed", self._job, type(listener).__name__)
