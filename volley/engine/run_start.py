"""Records in the checkpoint with which epoch a bounded run began, so that a run that died goes on as the same run."""

from __future__ import annotations

from typing import Any

from volley.spark.log import SparkLog, usable
from volley.storage.remembered import Record
from volley.storage.state_formats import RUN

__all__ = ["RunStart"]


class RunStart:
    """The first epoch of a bounded run. A run ends when it has read what its sources had, without a failure.

    Args:
        log: Spark's log of the query, whose checkpoint also holds this record.
    """

    def __init__(self, log: SparkLog) -> None:
        self._log = log
        self._record = Record(f"{log.checkpoint.rstrip('/')}/volley/run.json", RUN, _first_of_unended)

    def begin(self) -> int:
        """Return the first epoch of the run that did not end, or of a new one.

        Raises:
            StorageError: If the checkpoint can't be read or written, or the record is damaged.
        """
        with usable(self._log.checkpoint):
            first = self._record.read()
        if first is None:
            last = self._log.last_finished
            first = 0 if last is None else last + 1
            self._write({"first": first, "ended": False})
        return first

    def end(self, first: int) -> None:
        """Record that the run has ended: the next one is another run.

        Raises:
            StorageError: If the checkpoint can't be written.
        """
        self._write({"first": first, "ended": True})

    def _write(self, record: dict[str, object]) -> None:
        with usable(self._log.checkpoint):
            self._record.write(record)


def _first_of_unended(record: dict[str, Any]) -> int | None:
    return None if record["ended"] else int(record["first"])
