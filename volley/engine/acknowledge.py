"""The readers of a running job: started before its first epoch, told what is committed, stopped when it has ended."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence

from volley.errors import SourceError, VolleyError
from volley.secrets import redact_uri, redacted
from volley.source import Reader
from volley.spark.log import NO_OFFSET, SparkLog

__all__ = ["Readers"]

_log = logging.getLogger(__name__)


class Readers:
    """Starts the readers of a job, tells them how far its epochs are committed, and stops them.

    Args:
        job: The job's name.
        readers: One for each line of an epoch's offsets in Spark's log, in their order; None = Spark reads that source.
        log: Spark's log of the query.
        stateful: True if Spark may read an epoch again that every sink has: it does so to rebuild the epoch's state,
            if the driver dies before the epoch is logged as done.
    """

    def __init__(self, job: str, readers: Sequence[Reader | None], log: SparkLog, stateful: bool) -> None:
        self._job = job
        self._readers = readers
        self._log = log
        self._stateful = stateful
        self._started: list[Reader] = []
        self._acknowledged = -1
        self._is_running = False

    def start(self) -> None:
        """Start every reader, then tell them again how far an earlier run has come.

        Raises:
            VolleyError: If one can't start; `stop` stops those before it.
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
        """Tell every reader where an epoch ends; a failure is logged, and the next epoch makes up for it.

        Args:
            epoch: The epoch that every sink has.
        """
        # When this epoch has begun, Spark has logged the one before it as done.
        self._acknowledge(epoch - 1 if self._stateful else epoch)

    def stop(self) -> None:
        """Tell the readers what they could not be told yet, then stop those that were started, the last one first."""
        if self._is_running:
            self._acknowledge_finished()
        while self._started:
            reader = self._started.pop()
            try:
                reader.stop()
            except Exception as error:
                _log.warning("%s: %s can't stop: %s", self._job, type(reader).__name__, redact_uri(str(error)))

    def _acknowledge_finished(self) -> None:
        """Tell where the last epoch ends that Spark has logged as done."""
        if not any(map(_listens, self._readers)):
            return
        try:
            finished = self._log.last_finished
        except VolleyError as error:
            _log.warning("%s: the last finished epoch is not known: %s", self._job, error.message)
            return
        if finished is not None:
            self._acknowledge(finished)

    def _acknowledge(self, epoch: int) -> None:
        if epoch <= self._acknowledged or not any(map(_listens, self._readers)):
            return
        try:
            lines = self._log.offsets(epoch)
        except VolleyError as error:
            _log.warning("%s: where epoch %d ends is not known: %s", self._job, epoch, error.message)
            return
        if len(lines) != len(self._readers):
            # Nobody may let go of rows by the offset of another source.
            _log.warning("%s: epoch %d has %d sources, not %d", self._job, epoch, len(lines), len(self._readers))
            return
        told = [self._tell(reader, line, epoch) for reader, line in zip(self._readers, lines, strict=True)]
        if all(told):
            self._acknowledged = epoch

    def _tell(self, reader: Reader | None, line: str, epoch: int) -> bool:
        if reader is None or line == NO_OFFSET:
            return True
        try:
            reader.committed(json.loads(line))
        except Exception as error:
            _log.warning(
                "%s: %s failed to take note that epoch %d is committed, the next epoch tells it again: %s",
                *(self._job, type(reader).__name__, epoch, redact_uri(str(error))),
            )
            return False
        return True


def _listens(reader: Reader | None) -> bool:
    """Whether a reader does anything about what is committed: if none does, Spark's log need not be read."""
    return reader is not None and type(reader).committed is not Reader.committed
