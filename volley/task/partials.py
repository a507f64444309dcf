"""Makes the partials of a keyed step: tasks turn the rows that they read into states, in files divided by key."""

from __future__ import annotations

import uuid
from bisect import bisect_left
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from volley.columns.batches import no_table
from volley.columns.calendar import micros
from volley.columns.dictionaries import concatenated, decode_rows
from volley.columns.keys.buckets import divided, kept_buckets
from volley.columns.operators import AFTER_ALL, BEFORE_ALL, Operator, time_text
from volley.contracts.epoch import WriteResult
from volley.contracts.sink import TaskWriter, Writer
from volley.errors import SourceError
from volley.storage.state_formats import STATE
from volley.store.files import OpenFile, new_file
from volley.task.state_files import open_states

__all__ = ["NO_ROWS", "Limits", "Partial", "PartialFile", "PartialWriter", "RejectedRows"]

_ROWS_AT_ONCE = 1 << 20
_STATES_AT_ONCE = 1 << 20
_BYTES_AT_ONCE = 128 << 20
_HINT = "a longer lateness= waits for such rows"
# A chunk with more states than this share of its rows is not worth reducing: the merge does it once.
_WORTHWHILE = 0.5
# A whole chunk is not worth reducing if a sample of its rows has more states than this share of its rows.
_SAMPLE, _WORTHWHILE_OF_SAMPLE = 1 << 15, 0.975


@dataclass(frozen=True)
class Limits:
    """Which rows are rejected.

    Args:
        watermark: Rows are late whose end, as the operator says, is here or before.
        latest: Rows after this time are early. Both in microseconds since 1970.
    """

    watermark: int
    latest: int


@dataclass(frozen=True)
class RejectedRows:
    """How many rows were rejected: late ones, early ones (too far ahead of the clock), and ones without a time."""

    late: int = 0
    early: int = 0
    untimed: int = 0

    def __add__(self, other: RejectedRows) -> RejectedRows:
        return RejectedRows(self.late + other.late, self.early + other.early, self.untimed + other.untimed)


@dataclass(frozen=True)
class PartialFile:
    """A task's states.

    Args:
        buckets: The bucket of each of its batches, in ascending order.
        size: The bytes of its states in memory.
    """

    url: str
    buckets: tuple[int, ...]
    size: int

    def batch_of(self, bucket: int) -> int | None:
        """Return the number of a bucket's batch; None if it has none."""
        number = bisect_left(self.buckets, bucket)
        return number if bucket in self.buckets[number : number + 1] else None

    def open(self) -> OpenFile:
        """Open it. Raises StorageError if it is missing or damaged."""
        return open_states(self.url)


@dataclass(frozen=True)
class Partial:
    """What a task knows of an input after its rows.

    Args:
        latest: The latest event time of rows that are not rejected; None without any.
        rejected: How many rows are rejected.
    """

    files: tuple[PartialFile, ...]
    latest: int | None
    rejected: RejectedRows


NO_ROWS = Partial((), None, RejectedRows())
"""What a task knows of an input whose rows it does not read."""


@dataclass(frozen=True)
class PartialWriter(Writer):
    """Opens what turns rows into states in an epoch's tasks; pickled to the executors.

    Args:
        operator: The compiled step.
        input: The number of the input whose rows it gets.
        folder: The URL of the folder for the files.
        limits: Which rows are rejected.
    """

    operator: Operator
    input: int
    folder: str
    limits: Limits

    suits_driver: ClassVar[bool] = True

    @property
    def states(self) -> pa.Schema:
        """The schema of the states."""
        return self.operator.partials[self.input]

    @property
    def without_bound(self) -> PartialWriter:
        """The writer of rows that may be any time ahead of the clock, as the end of a window is."""
        return replace(self, limits=replace(self.limits, latest=AFTER_ALL))

    def times_of(self, batch: pa.RecordBatch) -> pa.Array | None:
        """Return the event times of rows in microseconds, with nulls; None if the step follows none."""
        name = self.operator.time_column(self.input)
        return None if name is None else _numbers(batch.column(name))

    def open(self, task: int) -> TaskWriter:
        return _Partials(self)


@dataclass
class _Partials(TaskWriter):
    writer: PartialWriter
    _chunk: list[pa.Table] = field(default_factory=list)
    _states: list[pa.Table] = field(default_factory=list)
    _files: list[PartialFile] = field(default_factory=list)
    _rows: int = 0
    _bytes: int = 0
    _is_sampled: bool = False
    _reduces: bool = True
    _taken: int = 0
    _latest: int | None = None
    _rejected: RejectedRows = RejectedRows()

    def check(self, batch: pa.RecordBatch) -> None:
        self.writer.operator.check(self.writer.input, batch)
        if self.writer.operator.timing.late != "dead_letter":
            return
        times = self.writer.times_of(batch)
        if times is None or (rejected := self._rejections_of(times)) is None:
            return
        error = _RejectedRow(self._reason(batch, rejected), hint=_HINT)
        error.counts = rejected.counts
        raise error

    def rejected(self, error: Exception) -> None:
        if isinstance(error, _RejectedRow):
            self._rejected += error.counts
        self._latest = self.writer.operator.after_rejection(self._latest, error)

    def write(self, batch: pa.RecordBatch) -> None:
        if (most := self.writer.operator.most) is not None:
            batch = batch.slice(0, most - self._taken)
        times = self.writer.times_of(batch)
        if times is not None and (rejected := self._rejections_of(times)) is not None:
            self._rejected += rejected.counts
            batch, times = batch.filter(rejected.others), times.filter(rejected.others)
        if not batch.num_rows:
            return
        self.writer.operator.check(self.writer.input, batch)
        if times is not None:
            latest = pc.max(times).as_py()
            self._latest = latest if self._latest is None else max(self._latest, latest)
        self._taken += batch.num_rows
        self._chunk.append(self.writer.operator.lifted(self.writer.input, batch, times))
        if not self._is_sampled and batch.num_rows >= _SAMPLE:
            self._is_sampled = True
            sample = self._chunk[-1].slice(0, _SAMPLE)
            self._reduces = self._reduced(sample).num_rows <= _WORTHWHILE_OF_SAMPLE * _SAMPLE
        self._rows += batch.num_rows
        self._bytes += self._chunk[-1].nbytes
        if self._rows >= _ROWS_AT_ONCE or self._bytes >= _BYTES_AT_ONCE:
            self._reduce()

    @property
    def is_full(self) -> bool:
        return self._taken == self.writer.operator.most

    def close(self) -> WriteResult:
        self._reduce()
        if self._reduces and len(self._states) > 1:
            self._states = [self._reduced(pa.concat_tables(self._states))]
        self._write_states()
        return WriteResult(committables=(Partial(tuple(self._files), self._latest, self._rejected),))

    def _reduce(self) -> None:
        """Reduce the rows of a chunk to states."""
        if not self._chunk:
            return
        states = concatenated(self._chunk)
        if self._reduces:
            states = self._reduced(states)
            self._reduces = states.num_rows <= _WORTHWHILE * self._rows
        else:
            states = decode_rows(states)
        self._states.append(states)
        self._chunk, self._rows, self._bytes = [], 0, 0
        rows, size = (sum(getattr(table, part) for table in self._states) for part in ("num_rows", "nbytes"))
        if rows >= _STATES_AT_ONCE or size >= _BYTES_AT_ONCE:
            self._write_states()

    def _reduced(self, states: pa.Table) -> pa.Table:
        return self.writer.operator.reduced(self.writer.input, states)

    def _write_states(self) -> None:
        """Write the states so far to a file of their own, divided by bucket."""
        states, self._states = pa.concat_tables(self._states or [no_table(self.writer.states)]), []
        if not states.num_rows:
            return
        states = states.combine_chunks()
        operator = self.writer.operator
        keys = operator.keys(self.writer.input, states)
        buckets = kept_buckets(keys, operator.timing.buckets, states.num_rows)
        (batch,) = states.to_batches()
        by_bucket = divided(batch, buckets)
        url = f"{self.writer.folder}/{uuid.uuid4().hex}.arrow"
        with new_file(url, STATE, durable=False) as file:
            for _, rows in by_bucket.parts():
                file.write_batch(rows)
        self._files.append(PartialFile(url, tuple(by_bucket.buckets), states.nbytes))

    def _rejections_of(self, times: pa.Array) -> _Rejections | None:
        """Return which rows are rejected; None if none is."""
        limits, ends = self.writer.limits, self.writer.operator.ends
        earliest, latest = (pc.min_max(times)[name].as_py() for name in ("min", "max"))
        if earliest is None:
            return _Rejections.of(times, np.zeros(len(times), bool), np.zeros(len(times), bool))
        is_late = earliest < BEFORE_ALL or bool(ends(np.array([earliest]))[0] <= limits.watermark)
        if not (is_late or latest > limits.latest or times.null_count):
            return None
        # A null counts as the earliest time that is neither late nor early.
        known = pc.fill_null(times, latest).to_numpy(zero_copy_only=False)
        late = (known < BEFORE_ALL) | (ends(np.clip(known, BEFORE_ALL, AFTER_ALL)) <= limits.watermark)
        return _Rejections.of(times, late, known > limits.latest)

    def _reason(self, batch: pa.RecordBatch, rejected: _Rejections) -> str:
        operator, name = self.writer.operator, self.writer.operator.time_column(self.writer.input)
        untimed, late = operator.faults
        if rejected.counts.untimed:
            return f"it has no time in {name!r}, so {untimed}"
        (time,) = _numbers(batch.column(name).slice(0, 1)).to_pylist()
        if rejected.counts.late:
            watermark = time_text(self.writer.limits.watermark)
            return f"it is late: {late} ({name} is {time_text(time)}, the watermark was {watermark})"
        limit = f"more than {operator.timing.max_ahead}" if operator.timing.max_ahead else "146,000 years"
        return f"its time is {limit} ahead of the clock ({name} is {time_text(time)})"


class _RejectedRow(SourceError):
    """A row that is rejected, and why it counts."""

    counts = RejectedRows()


@dataclass(frozen=True)
class _Rejections:
    """How many rows of a batch are rejected, and a mask of the others."""

    counts: RejectedRows
    others: pa.Array

    @classmethod
    def of(cls, times: pa.Array, late: npt.NDArray[np.bool_], early: npt.NDArray[np.bool_]) -> _Rejections:
        """Sort rows by reason."""
        untimed = ~times.is_valid().to_numpy(zero_copy_only=False)
        late, early = late & ~untimed, early & ~late & ~untimed
        return cls(
            RejectedRows(int(late.sum()), int(early.sum()), int(untimed.sum())), pa.array(~(untimed | late | early))
        )


def _numbers(times: pa.Array) -> pa.Array:
    """Return times as whole numbers: timestamps in microseconds; versions of extracts are numbers already."""
    return micros(times) if pa.types.is_timestamp(times.type) else times.cast(pa.int64())
