"""Records in the checkpoint: of targets, of the run, and of the state of keyed steps before and after an epoch."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from volley.contracts.sink import Committer
from volley.errors import StorageError
from volley.spark.log import SparkLog, usable
from volley.storage.remembered import Record
from volley.storage.state_formats import LANDED, RUN, STATE_OF_EPOCH
from volley.task.partials import Partial
from volley.task.state_files import StateFile

__all__ = ["Clock", "EpochPlan", "Landed", "RunStart", "StateAfter", "StateFiles"]

StateFiles = tuple[tuple[StateFile, ...], ...]
"""For each input of a keyed step, the files with its states."""


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


@dataclass(frozen=True)
class EpochPlan:
    """What an epoch's tasks need that may differ when it is run again; pinned in a file.

    Args:
        now: The time of the computer's clock, in microseconds since 1970.
        ends: True if the sources end with this epoch.
        began: When the run of the job began, in microseconds since 1970.
    """

    now: int
    ends: bool
    began: int

    @classmethod
    def parse(cls, data: bytes) -> EpochPlan:
        """Parse the bytes of a ``plan.json``.

        Raises:
            ValueError: If they are damaged.
        """
        try:
            return cls(**json.loads(data))
        except TypeError as error:
            raise ValueError(f"it has other entries: {error}") from error


@dataclass(frozen=True)
class Clock:
    """How far the rows that an input gets of one source have come.

    Args:
        latest: The latest event time; None = no row yet. In microseconds since 1970.
        moved: When that was last known to change, by the computer's clock.
    """

    input: int
    source: int
    latest: int | None
    moved: int

    def after(self, partials: Sequence[tuple[int, Sequence[Partial]]], now: int) -> Clock:
        """Return the clock after the rows of an epoch; see `KeyedState.merge`."""
        latest = [of_inputs[self.input].latest for source, of_inputs in partials if source == self.source]
        times = [time for time in latest if time is not None]
        if not times:
            return self
        return replace(self, latest=max(times if self.latest is None else [*times, self.latest]), moved=now)


@dataclass(frozen=True)
class StateAfter:
    """The state after an epoch.

    Args:
        watermark: The watermark, in microseconds since 1970.
        columns: For each input, the names and types of its states' columns.
    """

    watermark: int
    clocks: tuple[Clock, ...]
    files: StateFiles
    columns: tuple[tuple[str, ...], ...]

    @classmethod
    def parse(cls, data: bytes, root: str, epoch: int, path: str) -> StateAfter:
        """Parse the bytes of a ``done.json``. Up to version 2 all files were in its own folder.

        Raises:
            ValueError: If they are damaged.
            StorageError: If a newer Volley wrote them.
        """
        values = STATE_OF_EPOCH.load(data, path)
        try:
            files = (
                tuple(StateFile(**{**file, "url": _url(root, epoch, file["url"])}) for file in of_input)
                for of_input in values["files"]
            )
            clocks = (Clock(**clock) for clock in values["clocks"])
            return cls(values["watermark"], tuple(clocks), tuple(files), tuple(map(tuple, values["columns"])))
        except (KeyError, TypeError) as error:
            raise ValueError(f"it lacks an entry: {error}") from error

    def to_bytes(self, root: str) -> bytes:
        """Return the bytes of a ``done.json``; files are named relative to the root, as checkpoints can be moved."""
        files = [
            [{**asdict(file), "url": file.url.removeprefix(f"{root}/")} for file in of_input] for of_input in self.files
        ]
        return STATE_OF_EPOCH.dump({**asdict(self), "files": files})


def _url(root: str, epoch: int, name: str) -> str:
    return f"{root}/{name}" if "/" in name else f"{root}/{epoch}/{name}"
