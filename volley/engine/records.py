"""Records in the checkpoint: the last epoch of each target, and with which epoch a bounded run began."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from volley.contracts.sink import Committer
from volley.errors import StorageError
from volley.spark.log import SparkLog, usable
from volley.storage.remembered import Record
from volley.storage.state_formats import LANDED, RUN

__all__ = ["Landed", "RunStart"]


class Landed:
    """The last known epoch of each target, by the target's identity.

    An epoch without rows leaves no mark in a target, so the checkpoint alone does not say which epochs a target must
    have. Written when a run ends without a failure, not in every epoch: it costs as much as a commit's own mark.

    Args:
        log: Spark's log of the query, whose checkpoint also holds this record.

    Raises:
        StorageError: If the record is damaged, a newer Volley wrote it, or the checkpoint can't be read.
    """

    def __init__(self, log: SparkLog) -> None:
        self._log = log
        self._record = Record(f"{log.checkpoint.rstrip('/')}/volley/landed.json", LANDED, _epochs)
        with usable(log.checkpoint):
            self._written = self._record.read() or {}
        self._seen = dict(self._written)

    def check(self, committer: Committer, last: int | None) -> None:
        """Check that a target still has its last known epoch.

        Args:
            last: Its last epoch of the query now; None = none.

        Raises:
            StorageError: If it has fewer epochs than before.
        """
        identity = committer.identity
        before = None if identity is None else self._seen.get(identity)
        if before is not None and (last is None or last < before):
            raise StorageError(
                f"{committer} had epoch {before} of this job and now has "
                f"{'none' if last is None else f'none after {last}'}: it is an old copy, or has lost its marks, and "
                "the rows of the epochs between may be missing",
                hint='restore its newest copy; or start over: fresh=True, into="replace"',
            )
        if identity is not None and last is not None:
            self._seen[identity] = last

    def remember(self, committers: Sequence[Committer], query_id: str) -> None:
        """Write down the last epoch of each target.

        Raises:
            VolleyError: If a target can't be read, or the checkpoint can't be written.
        """
        for committer in committers:
            if committer.identity is not None:
                self.check(committer, committer.last_epoch(query_id))
        if self._seen != self._written:
            with usable(self._log.checkpoint):
                self._record.write(self._seen)
            self._written = dict(self._seen)


def _epochs(record: dict[str, Any]) -> dict[str, int]:
    return {str(name): int(epoch) for name, epoch in record.items()}


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
