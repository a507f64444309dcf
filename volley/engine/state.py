"""The state of a job's keyed steps on the driver: what each epoch starts from, its watermarks, its files.

Below the checkpoint, ``volley/windows-<n>/<epoch>/`` has the state after an epoch: ``plan.json``, written before its
tasks start, ``partials/``, written by the tasks that read, a file ``state-<first bucket>.arrow`` of each task that
merged (and ``state-<first bucket>-1.arrow`` for a second input), and ``done.json``, written before the epoch's commits.
The state after an epoch is a function of the one before, of the plan and of the epoch's rows: an epoch that is run
again writes the same files. With another number of buckets, ``of-<buckets>-<input>.arrow`` has the state of the epoch
before once more. The last epochs' are kept, and older files that these still use: a step whose states only
become more writes the new ones to files of their own, and merges files now and then.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import reduce
from itertools import pairwise

import numpy as np

from volley.columns.operators import AFTER_ALL, BEFORE_ALL, Operator
from volley.engine.records import Clock, EpochPlan, StateAfter, StateFiles
from volley.engine.rescaling import bucket_count, rescaled
from volley.errors import PlanError, StorageError
from volley.plan.windows import microseconds
from volley.storage.durable import write_durably
from volley.storage.paths import filesystem
from volley.storage.remembered import read_or_create
from volley.storage.state_formats import STATE_PLAN
from volley.task.failpoints import reach
from volley.task.merging import MergeInput, MergeSplit
from volley.task.partials import Limits, Partial, PartialWriter, RejectedRows
from volley.task.state_files import StateFile, of_buckets, settled

__all__ = ["Clocked", "EpochMerge", "KeyedState", "Outputs"]

_log = logging.getLogger(__name__)

_KEPT = 3
_NO_OUTPUTS: Mapping[tuple[int, int], int | None] = {}
# A task costs about as much CPU as it takes to merge so much, or to look for keys in four times as much.
_BYTES_A_TASK = 8 << 20


@dataclass(frozen=True)
class EpochMerge:
    """The merge of an epoch's partials into the state.

    Args:
        splits: What its tasks merge.
        rejected: How many rows of the epoch are rejected.
        done: The state after the epoch; the files have no size yet.
        is_small: True if the states are too small to be worth a task of Spark.
        lateness: How far the watermark of a source is behind its latest row, in microseconds.
        ends: True if the sources end with the epoch.
    """

    epoch: int
    splits: tuple[MergeSplit, ...]
    rejected: RejectedRows
    done: StateAfter
    is_small: bool
    lateness: int
    ends: bool

    def raised(self, watermark: int) -> EpochMerge:
        """Return the merge with a watermark that is this one, or later."""
        return replace(self, done=replace(self.done, watermark=max(self.done.watermark, watermark)))

    @property
    def watermark(self) -> datetime | None:
        """The watermark after the epoch, at most the year 9999; None before the first row."""
        return None if self.done.watermark == BEFORE_ALL else _time(self.done.watermark)

    @property
    def source_watermarks(self) -> dict[int, datetime]:
        """The watermark of each source's rows alone, by the source's number; none before its first row."""
        latest: dict[int, int] = {}
        for clock in self.done.clocks:
            if clock.latest is not None:
                latest[clock.source] = min(clock.latest, latest.get(clock.source, clock.latest))
        return {source: _time(at - self.lateness) for source, at in latest.items()}


Clocked = Sequence[tuple[int, int]]
"""The inputs of a step and their sources that have a clock each, as pairs of numbers."""
Outputs = Mapping[tuple[int, int], int | None]
"""The output watermarks of keyed steps that are sources of a step, by its input and their number; None = no row yet."""


@dataclass
class KeyedState:
    """The state of one keyed step.

    Args:
        operator: The compiled step.
        url: The URL of the folder for its state.
        clocked: Its inputs and their sources.
        tasks: The most tasks that merge.
        ends: Returns True if the sources end with an epoch.
        now: Returns the time of the computer's clock, in seconds since 1970.
        bytes_a_task: How much each of several tasks merges at least.
    """

    operator: Operator
    url: str
    clocked: Clocked
    tasks: int
    ends: Callable[[int], bool]
    now: Callable[[], float] = time.time
    bytes_a_task: int = _BYTES_A_TASK
    _recent: dict[int, StateAfter] = field(default_factory=dict, init=False)
    _rescaled: dict[int, StateAfter] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._began = self._clock()
        self._files, self._root = filesystem(self.url, {})

    def writers(self, epoch: int) -> list[PartialWriter]:
        """Return for each input what takes an epoch's rows in the tasks that read them.

        Raises:
            StorageError: If the state before the epoch is missing or damaged.
            PlanError: If its columns have other types.
        """
        before, plan, max_ahead = self._before(epoch), self._plan(epoch), self.operator.timing.max_ahead
        latest = AFTER_ALL if max_ahead is None else min(AFTER_ALL, plan.now + microseconds(max_ahead))
        limits = Limits(before.watermark, latest)
        folder = f"{self._folder(epoch)}/partials"
        return [PartialWriter(self.operator, number, folder, limits) for number in range(self.inputs)]

    def check(self, epoch: int) -> None:
        """Check that there is the state after an epoch that the sinks behind the step have.

        Raises:
            StorageError: If it is missing, as in an old copy of the checkpoint: no later epoch could begin.
        """
        path = self._path(f"{self._folder(epoch)}/done.json")
        if not self._files.exists(path):
            raise StorageError(
                f"the sinks have epoch {epoch}, and the checkpoint lacks the state after it ({path}): it is an old "
                "copy, or has lost files",
                hint='restore its newest copy; or start over: fresh=True, into="replace"',
            )

    @property
    def inputs(self) -> int:
        """The number of the step's inputs."""
        return len(self.operator.states)

    def merge(
        self, epoch: int, partials: Sequence[tuple[int, Sequence[Partial]]], outputs: Outputs = _NO_OUTPUTS
    ) -> EpochMerge:
        """Return what tasks merge in an epoch.

        Args:
            partials: What the tasks that read rows know of each input, in the order of the splits, each with the
                number of its source.
            outputs: The output watermarks, after the epoch, of the keyed steps before.
        """
        before, plan = self._before(epoch), self._plan(epoch)
        clocks = tuple(clock.after(partials, plan.now) for clock in self._clocks(before, plan))
        closing = self._closing(clocks) if plan.ends else None
        watermark = self._watermark(before.watermark, clocks, outputs, plan) if closing is None else closing
        watermark = max(before.watermark, watermark)
        passed = watermark - self.operator.held if closing is None else watermark
        appends = self.operator.appends
        has_work = self._has_work(partials, moved=watermark > before.watermark)
        kept = tuple(files[: settled(files) if appends else 0] for files in before.files) if has_work else before.files
        size = _bytes(before.files, partials) - 3 * _bytes(kept, ()) // 4
        tasks = min(self.tasks, self.operator.timing.buckets, 1 + size // self.bytes_a_task)
        bounds = np.linspace(0, self.operator.timing.buckets, tasks + 1).astype(int).tolist()
        splits = tuple(
            MergeSplit(
                *(first, end - first, self._merged(epoch, partials, before.files, kept, first, end)),
                *(before.watermark, passed),
            )
            for first, end in (pairwise(bounds) if has_work else ())
        )
        rejected = (partial.rejected for _, of_inputs in partials for partial in of_inputs)
        new = (
            tuple(StateFile(split.inputs[number].target, split.first, split.buckets, 0) for split in splits)
            for number in range(self.inputs)
        )
        files = tuple(older + newer for older, newer in zip(kept, new, strict=True))
        done = StateAfter(watermark, clocks, files, self._columns)
        all_rejected, is_small = reduce(RejectedRows.__add__, rejected, RejectedRows()), size < self.bytes_a_task
        lateness = microseconds(self.operator.timing.lateness)
        return EpochMerge(epoch, splits, all_rejected, done, is_small, lateness, plan.ends)

    def _has_work(self, partials: Sequence[tuple[int, Sequence[Partial]]], moved: bool) -> bool:
        """Return False if the state stays as it is.

        Args:
            moved: True if the watermark has moved.
        """
        if self.operator.waits_for_rows:
            return any(partial.files for _, inputs in partials for partial in inputs)
        return moved or self.operator.is_timed

    def _merged(
        self,
        epoch: int,
        partials: Sequence[tuple[int, Sequence[Partial]]],
        before: StateFiles,
        kept: StateFiles,
        first: int,
        end: int,
    ) -> tuple[MergeInput, ...]:
        """Return what is merged of each input in the buckets from one to another."""
        return tuple(
            MergeInput(
                tuple(file for _, of_inputs in partials for file in of_inputs[number].files),
                of_buckets(kept[number], first, end),
                of_buckets(before[number][len(kept[number]) :], first, end),
                f"{self._folder(epoch)}/state-{first}{f'-{number}' if number else ''}.arrow",
            )
            for number in range(self.inputs)
        )

    @property
    def name(self) -> str:
        """The name of its folder, such as ``"windows-0"``."""
        return self.url.rstrip("/").rpartition("/")[2]

    def finish(self, merge: EpochMerge) -> int:
        """Make the state after an epoch durable, and delete what no later epoch needs. Before the epoch's commits.

        Returns:
            The bytes of its files.

        Raises:
            StorageError: If it can't be written, or a file of the state is missing.
        """
        reach("after-merge", merge.epoch)
        with self._writable():
            done = replace(merge.done, files=tuple(tuple(map(self._sized, files)) for files in merge.done.files))
            path = self._path(f"{self._folder(merge.epoch)}/done.json")
            write_durably(self._files, path, done.to_bytes(self.url))
        reach("after-state", merge.epoch)
        self._recent[merge.epoch] = done
        self._clean(merge.epoch)
        return _bytes(done.files, ())

    def _sized(self, file: StateFile) -> StateFile:
        return file if file.size else replace(file, size=self._files.size(self._path(file.url)))

    @property
    def _columns(self) -> tuple[tuple[str, ...], ...]:
        return tuple(tuple(f"{field.name} {field.type}" for field in schema) for schema in self.operator.states)

    def _before(self, epoch: int) -> StateAfter:
        """Return the state before an epoch."""
        if epoch == 0:
            return StateAfter(BEFORE_ALL, (), ((),) * self.inputs, self._columns)
        return self._by_bucket(epoch - 1, self._after(epoch - 1))

    def _after(self, epoch: int) -> StateAfter:
        """Return the state after an epoch, as it is in the checkpoint."""
        if epoch not in self._recent:
            self._recent[epoch] = self._read(epoch)
        return self._recent[epoch]

    def _by_bucket(self, epoch: int, done: StateAfter) -> StateAfter:
        """Return the state after an epoch by the buckets of now; its own files stay, for the epoch may begin again."""
        buckets = self.operator.timing.buckets
        if all(bucket_count(files) in (None, buckets) for files in done.files):
            return done
        if epoch not in self._rescaled:
            with self._writable():
                files = tuple(
                    (rescaled(self.operator, input, files, f"{self._folder(epoch)}/of-{buckets}-{input}.arrow"),)
                    for input, files in enumerate(done.files)
                )
                sized = tuple(tuple(map(self._sized, of_input)) for of_input in files)
            self._rescaled = {epoch: replace(done, files=sized)}
            reach("after-rescaling", epoch)
        return self._rescaled[epoch]

    @contextmanager
    def _writable(self) -> Iterator[None]:
        """Raise StorageError in the place of OSError."""
        try:
            yield
        except OSError as error:
            raise StorageError(
                f"state {self.url} can't be written: {error}", hint="check that the checkpoint can be written"
            ) from error

    def _read(self, epoch: int) -> StateAfter:
        path = self._path(f"{self._folder(epoch)}/done.json")
        try:
            done = StateAfter.parse(self._files.cat_file(path), self.url, epoch, path)
        except (FileNotFoundError, ValueError) as error:
            fault = "is missing" if isinstance(error, FileNotFoundError) else f"is damaged: {error}"
            raise StorageError(
                f"state {path} {fault}",
                hint="restore the checkpoint from a backup, or start over: fresh=True reads the sources from the "
                "beginning",
            ) from error
        for kept, needed in zip(done.columns, self._columns, strict=True):
            names = {column.partition(" ")[0] for column in kept}
            fills = self.operator.fills_states
            missing = [column for column in needed if column not in kept]
            if missing := [column for column in missing if not (fills and column.partition(" ")[0] not in names)]:
                raise PlanError(
                    f"the types behind {self.operator.node.label()} have changed since epoch {epoch}: its state has "
                    f"{', '.join(kept)}, and not {', '.join(missing)}",
                    hint="give the step the columns that it had, of the types they had, or start over with fresh=True",
                )
        return done

    def _plan(self, epoch: int) -> EpochPlan:
        def make() -> bytes:
            return json.dumps(asdict(EpochPlan(self._clock(), self.ends(epoch), self._began))).encode()

        return read_or_create(f"{self._folder(epoch)}/plan.json", STATE_PLAN, make, EpochPlan.parse)

    def _clock(self) -> int:
        """Return the time of the computer's clock, in microseconds since 1970."""
        return int(self.now() * 1e6)

    def _clocks(self, before: StateAfter, plan: EpochPlan) -> list[Clock]:
        """Return the clocks at an epoch's start; a source that is new to an input has one without a row."""
        known = {(clock.input, clock.source): clock for clock in before.clocks}
        return [known.get(pair) or Clock(*pair, None, plan.now) for pair in self.clocked]

    def _closing(self, clocks: Sequence[Clock]) -> int | None:
        """Return the watermark at the end of all sources; None if nothing waits for it."""
        times = [clock.latest for clock in clocks if clock.latest is not None]
        return self.operator.closing(max(times)) if times else None

    def _watermark(self, before: int, clocks: Sequence[Clock], outputs: Outputs, plan: EpochPlan) -> int:
        """Return the watermark after an epoch that is not the end."""
        if self.operator.follows_clock:
            return plan.now
        timing = self.operator.timing
        idle = plan.now - microseconds(timing.idle_after) if timing.idle_after else None
        reached: list[int | None] = []
        for clock in clocks:
            if (source := (clock.input, clock.source)) in outputs:
                reached.append(outputs[source])
            # No source was asked for rows before the run began.
            elif idle is None or max(clock.moved, plan.began) > idle:
                reached.append(None if clock.latest is None else clock.latest - microseconds(timing.lateness))
        known = [at for at in reached if at is not None]
        return min(known) if known and len(known) == len(reached) else before

    def _clean(self, epoch: int) -> None:
        # What is left over does no harm.
        with suppress(OSError):
            self._files.rm(self._path(f"{self._folder(epoch)}/partials"), recursive=True)
        needed = self._needed(epoch)
        with suppress(OSError):
            for path in self._files.ls(self._root, detail=False):
                name = path.rstrip("/").rpartition("/")[2]
                if name.isdigit() and int(name) <= epoch - _KEPT and name not in needed:
                    self._files.rm(path, recursive=True)

    def _needed(self, epoch: int) -> set[str]:
        """Return the names of the folders with files that one of the last epochs uses; forget all other epochs."""
        self._recent = {number: done for number, done in self._recent.items() if epoch - _KEPT < number <= epoch}
        if self.operator.appends:
            for number in range(max(epoch - _KEPT + 1, 0), epoch):
                # Nothing can go on from an epoch whose state is gone.
                with suppress(StorageError, PlanError):
                    self._after(number)
        files = (file for done in self._recent.values() for of_input in done.files for file in of_input)
        return {file.url.split("/")[-2] for file in files}

    def _folder(self, epoch: int) -> str:
        return f"{self.url}/{epoch}"

    def _path(self, url: str) -> str:
        return f"{self._root}{url.removeprefix(self.url)}"


def _bytes(files: StateFiles, partials: Sequence[tuple[int, Sequence[Partial]]]) -> int:
    """Return the bytes of the states in files, and of those of an epoch's rows."""
    kept = sum(file.size for of_input in files for file in of_input)
    return kept + sum(file.size for _, of_inputs in partials for partial in of_inputs for file in partial.files)


def _time(at: int) -> datetime:
    """Return microseconds since 1970 as a datetime; a time that Python has none for as the first or last one."""
    try:
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=at)
    except OverflowError:
        return (datetime.max if at > 0 else datetime.min).replace(tzinfo=UTC)
