"""Starts a job's readers, acknowledges committed offsets to them, and stops them when the job ends."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence

from volley.contracts.reports import Lag
from volley.contracts.source import Reader
from volley.errors import SourceError, VolleyError
from volley.secrets import redact_uri, redacted
from volley.spark.log import NO_OFFSET, SparkLog

__all__ = ["Readers"]

_log = logging.getLogger(__name__)


class Readers:
    """The readers of a job: starts them, acknowledges committed offsets, stops them.

    Args:
        readers: One per line of an epoch's entry in Spark's offset log, in its order; None = Spark reads that source.
        log: Spark's log of the query.
    """

    def __init__(self, job: str, readers: Sequence[Reader | None], log: SparkLog) -> None:
        self._job = job
        self._readers = readers
        self._log = log
        self._started: list[Reader] = []
        self._acknowledged = -1
        # If none does, Spark's log need not be read.
        self._acknowledges = any(reader.acknowledges for reader in filter(None, readers))
        self._is_running = False

    def start(self) -> None:
        """Start every reader, then acknowledge again the last epoch of an earlier run.

        Raises:
            VolleyError: If one can't start; `stop` stops those that have started.
        """
        for reader in filter(None, self._readers):
            try:
                reader.start()
            except VolleyError:
                raise
            except Exception as error:
                raise SourceError(
                    f"{type(reader).__name__} can't start: {redact_uri(str(error))}", hint="the cause says more"
                ) from redacted(error)
            self._started.append(reader)
        self._is_running = True
        self._acknowledge_finished()

    def committed(self, epoch: int) -> None:
        """Acknowledge the end offset of an epoch to every reader; log failures, which the next epoch makes up for.

        Args:
            epoch: An epoch that every sink has.
        """
        self._acknowledge(epoch)

    def lags(self, epoch: int) -> list[Lag | None]:
        """Return how far the end of an epoch is behind each reader's source; None = it can't tell."""
        unknown: list[Lag | None] = [None] * len(self._readers)
        if not any(reader.knows_lag for reader in filter(None, self._readers)):
            return unknown
        try:
            lines = self._log.offsets(epoch)
            return [_lag(reader, line) for reader, line in zip(self._readers, lines, strict=True)]
        except Exception as error:
            _log.warning("%s: the lag of epoch %d is not known: %s", self._job, epoch, redact_uri(str(error)))
            return unknown

    def stop(self) -> None:
        """Acknowledge what could not be acknowledged yet, then stop the started readers, the last one first."""
        if self._is_running:
            self._acknowledge_finished()
        while self._started:
            reader = self._started.pop()
            try:
                reader.stop()
            except Exception as error:
                _log.warning("%s: %s can't stop: %s", self._job, type(reader).__name__, redact_uri(str(error)))

    def _acknowledge_finished(self) -> None:
        """Acknowledge the last epoch in Spark's commit log."""
        if not self._acknowledges:
            return
        try:
            finished = self._log.last_finished
        except VolleyError as error:
            _log.warning("%s: the last finished epoch is not known: %s", self._job, error.message)
            return
        if finished is not None:
            self._acknowledge(finished)

    def _acknowledge(self, epoch: int) -> None:
        if epoch <= self._acknowledged or not self._acknowledges:
            return
        try:
            lines = self._log.offsets(epoch)
        except VolleyError as error:
            _log.warning("%s: where epoch %d ends is not known: %s", self._job, epoch, error.message)
            return
        if len(lines) != len(self._readers):
            # Never acknowledge the offset of another source.
            _log.warning("%s: epoch %d has %d sources, not %d", self._job, epoch, len(lines), len(self._readers))
            return
        results = [self._acknowledge_to(reader, line, epoch) for reader, line in zip(self._readers, lines, strict=True)]
        if all(results):
            self._acknowledged = epoch

    def _acknowledge_to(self, reader: Reader | None, line: str, epoch: int) -> bool:
        if reader is None or not reader.acknowledges or line == NO_OFFSET:
            return True
        try:
            reader.committed(json.loads(line))
        except Exception as error:
            _log.warning(
                "%s: %s failed to acknowledge epoch %d; the next epoch makes up for it: %s",
                *(self._job, type(reader).__name__, epoch, redact_uri(str(error))),
            )
            return False
        return True


def _lag(reader: Reader | None, line: str) -> Lag | None:
    if reader is None or not reader.knows_lag or line == NO_OFFSET:
        return None
    return reader.lag(json.loads(line))
