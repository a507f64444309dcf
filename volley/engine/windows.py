"""The state of a job's windows on the driver: what each epoch starts from, its watermarks, its files.

Below the checkpoint, ``volley/windows-<n>/<epoch>/`` has the state after an epoch: ``plan.json``, written before its
tasks start, ``partials/``, written by the tasks that read, a file ``state-<first bucket>.arrow`` of each task that
merged, and ``done.json``, written before the epoch's commits. The state after an epoch is a function of the one before,
of the plan and of the epoch's rows: an epoch that is run again writes the same files. The last epochs' are kept.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import reduce
from itertools import pairwise
from typing import Any

import numpy as np

from volley.arrow.aggregator import Aggregator
from volley.arrow.windows import microseconds
from volley.errors import PlanError, StorageError
from volley.storage.durable import write_durably
from volley.storage.paths import filesystem
from volley.storage.remembered import read_or_create
from volley.task.failpoints import reach
from volley.task.merging import MergeSplit
from volley.task.partials import Limits, Misfits, Partial, PartialWriter
from volley.task.state_files import StateFile

__all__ = ["Merge", "WindowState"]

_log = logging.getLogger(__name__)

_KEPT = 3
_BEFORE_ALL = -(2**62)


@dataclass(frozen=True)
class _Plan:
    """What an epoch's tasks need that may differ when it is run again; pinned in a file.

    Args:
        now: The time of the computer's clock, in microseconds since 1970.
        ends: True if the sources end with this epoch.
    """

    now: int
    ends: bool


@dataclass(frozen=True)
class _Clock:
    """How far the rows of one source have come.

    Args:
        latest: The latest event time; None = no row yet. In microseconds since 1970.
        moved: When that was last known to change, by the computer's clock.
    """

    latest: int | None
    moved: int


@dataclass(frozen=True)
class _Done:
    """The state after an epoch.

    Args:
        watermark: The watermark, in microseconds since 1970.
        clocks: The clock of each source.
        files: The files with the states.
        columns: The names and types of the states' columns.
    """

    watermark: int
    clocks: tuple[_Clock, ...]
    files: tuple[StateFile, ...]
    columns: tuple[str, ...]

    @classmethod
    def parse(cls, data: bytes, folder: str) -> _Done:
        """Parse the bytes of a ``done.json``.

        Raises:
            ValueError: If they are damaged.
        """
        values = json.loads(data)
        try:
            files = [StateFile(**{**file, "url": f"{folder}/{file['url']}"}) for file in values["files"]]
            clocks = [_Clock(**clock) for clock in values["clocks"]]
            return cls(values["watermark"], tuple(clocks), tuple(files), tuple(values["columns"]))
        except (KeyError, TypeError) as error:
            raise ValueError(f"it lacks an entry: {error}") from error

    def to_bytes(self) -> bytes:
        """Return the bytes of a ``done.json``; files are named relative to it, as checkpoints can be moved."""
        files = [{**asdict(file), "url": file.url.rpartition("/")[2]} for file in self.files]
        return json.dumps({**asdict(self), "files": files}).encode()


@dataclass(frozen=True)
class Merge:
    """The second stage of an epoch.

    Args:
        epoch: The epoch's number.
        splits: What its tasks merge.
        misfits: How many rows of the epoch are in no window.
        done: The state after the epoch; the files have no size yet.
    """

    epoch: int
    splits: tuple[MergeSplit, ...]
    misfits: Misfits
    done: _Done

    @property
    def watermark(self) -> datetime | None:
        """The watermark after the epoch; None before the first row."""
        if self.done.watermark == _BEFORE_ALL:
            return None
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=self.done.watermark)


@dataclass
class WindowState:
    """The state of one windowed aggregate.

    Args:
        aggregator: The compiled aggregate.
        url: The URL of the folder for its state.
        sources: The number of sources that have a clock each.
        tasks: The number of tasks of the second stage.
        ends: Returns True if the sources end with an epoch.
        now: Returns the time of the computer's clock, in seconds since 1970.
    """

    aggregator: Aggregator
    url: str
    sources: int
    tasks: int
    ends: Callable[[int], bool]
    now: Callable[[], float] = time.time
    _known: tuple[int, _Done] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._files, self._root = filesystem(self.url, {})

    def writer(self, epoch: int) -> PartialWriter:
        """Return what reduces an epoch's rows in the tasks that read them.

        Raises:
            StorageError: If the state before the epoch is missing or damaged.
            PlanError: If its columns have other types.
        """
        before, plan, windowing = self._before(epoch), self._plan(epoch), self.aggregator.windowing
        ahead = None if windowing.max_ahead is None else plan.now + microseconds(windowing.max_ahead)
        return PartialWriter(self.aggregator, f"{self._folder(epoch)}/partials", Limits(before.watermark, ahead))

    def merge(self, epoch: int, partials: Sequence[tuple[int, Partial]]) -> Merge:
        """Return the second stage of an epoch.

        Args:
            epoch: The epoch's number.
            partials: What the tasks of the first stage know, in the order of the splits, each with the number of its
                source.
        """
        before, plan, folder = self._before(epoch), self._plan(epoch), self._folder(epoch)
        clocks = tuple(self._moved(number, clock, partials, plan.now) for number, clock in enumerate(before.clocks))
        watermark = self._watermark(before.watermark, clocks, plan)
        files = tuple(file for _, partial in partials for file in partial.files)
        bounds = np.linspace(0, self.aggregator.windowing.buckets, self._merging_tasks + 1).astype(int).tolist()
        splits = tuple(
            MergeSplit(
                first, end - first, files, _of(before.files, first, end), f"{folder}/state-{first}.arrow",
                before.watermark, watermark,
            )
            for first, end in pairwise(bounds)
        )  # fmt: skip
        misfits = reduce(Misfits.__add__, (partial.misfits for _, partial in partials), Misfits())
        states = tuple(StateFile(split.target, split.first, split.buckets, 0) for split in splits)
        return Merge(epoch, splits, misfits, _Done(watermark, clocks, states, self._columns))

    def finish(self, merge: Merge) -> None:
        """Make the state after an epoch durable, and delete what no later epoch needs. Before the epoch's commits.

        Raises:
            StorageError: If it can't be written, or a file of the state is missing.
        """
        reach("after-merge", merge.epoch)
        try:
            sized = [replace(file, size=self._files.size(self._path(file.url))) for file in merge.done.files]
            done = replace(merge.done, files=tuple(sized))
            write_durably(self._files, self._path(f"{self._folder(merge.epoch)}/done.json"), done.to_bytes())
        except OSError as error:
            raise StorageError(
                f"window state {self.url} can't be written: {error}", hint="check that the checkpoint can be written"
            ) from error
        reach("after-state", merge.epoch)
        self._known = merge.epoch, done
        self._clean(merge.epoch)

    @property
    def _merging_tasks(self) -> int:
        return min(self.tasks, self.aggregator.windowing.buckets)

    @property
    def _columns(self) -> tuple[str, ...]:
        return tuple(f"{field.name} {field.type}" for field in self.aggregator.states)

    def _before(self, epoch: int) -> _Done:
        """Return the state before an epoch."""
        if epoch == 0:
            return _Done(_BEFORE_ALL, (_Clock(None, self._plan(0).now),) * self.sources, (), self._columns)
        if self._known is None or self._known[0] != epoch - 1:
            self._known = epoch - 1, self._read(epoch - 1)
        return self._known[1]

    def _read(self, epoch: int) -> _Done:
        folder = self._folder(epoch)
        path = self._path(f"{folder}/done.json")
        try:
            done = _Done.parse(self._files.cat_file(path), folder)
        except (FileNotFoundError, ValueError) as error:
            fault = "is missing" if isinstance(error, FileNotFoundError) else f"is damaged: {error}"
            raise StorageError(
                f"window state {path} {fault}",
                hint="restore the checkpoint from a backup, or start over: fresh=True reads the sources from the "
                "beginning",
            ) from error
        if done.columns != self._columns:
            raise PlanError(
                f"the types behind {self.aggregator.node.label()} have changed since epoch {epoch}: its state has "
                f"{', '.join(done.columns)}, now it would have {', '.join(self._columns)}",
                hint="cast the columns to the types they had, or start over with fresh=True",
            )
        return done

    def _plan(self, epoch: int) -> _Plan:
        def parse(data: bytes) -> _Plan:
            values: dict[str, Any] = json.loads(data)
            return _Plan(values["now"], values["ends"])

        def make() -> bytes:
            return json.dumps(asdict(_Plan(int(self.now() * 1e6), self.ends(epoch)))).encode()

        return read_or_create(f"{self._folder(epoch)}/plan.json", make, parse)

    @staticmethod
    def _moved(number: int, clock: _Clock, partials: Sequence[tuple[int, Partial]], now: int) -> _Clock:
        times = [partial.latest for source, partial in partials if source == number and partial.latest is not None]
        if not times:
            return clock
        return _Clock(max([*times, *([] if clock.latest is None else [clock.latest])]), now)

    def _watermark(self, before: int, clocks: Sequence[_Clock], plan: _Plan) -> int:
        """Return the watermark after an epoch: it never goes back."""
        windowing = self.aggregator.windowing
        times = [clock.latest for clock in clocks if clock.latest is not None]
        if plan.ends and windowing.emit == "final" and times:
            # The end of the last window that has a row.
            return max(before, int(self.aggregator.windows.ends(np.array([max(times)]))[0]))
        idle = plan.now - microseconds(windowing.idle_after) if windowing.idle_after else None
        active = [clock for clock in clocks if idle is None or clock.moved > idle]
        if not active or any(clock.latest is None for clock in active):
            return before
        slowest = min(clock.latest for clock in active if clock.latest is not None)
        return max(before, slowest - microseconds(windowing.lateness))

    def _clean(self, epoch: int) -> None:
        # What is left over does no harm.
        with suppress(OSError):
            self._files.rm(self._path(f"{self._folder(epoch)}/partials"), recursive=True)
        with suppress(OSError):
            for path in self._files.ls(self._root, detail=False):
                name = path.rstrip("/").rpartition("/")[2]
                if name.isdigit() and int(name) <= epoch - _KEPT:
                    self._files.rm(path, recursive=True)

    def _folder(self, epoch: int) -> str:
        return f"{self.url}/{epoch}"

    def _path(self, url: str) -> str:
        return f"{self._root}{url.removeprefix(self.url)}"


def _of(files: Sequence[StateFile], first: int, end: int) -> tuple[StateFile, ...]:
    """Return the files that have states of these buckets."""
    return tuple(file for file in files if file.first < end and first < file.first + file.buckets)
