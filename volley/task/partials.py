"""The first stage of a keyed step: tasks turn the rows that they read into states, in files divided by key."""

from __future__ import annotations

import uuid
from bisect import bisect_left
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from volley.columns.dictionaries import concatenated, decode_rows
from volley.columns.keys.buckets import divided, kept_buckets
from volley.columns.operators import AFTER_ALL, BEFORE_ALL, Operator, time_text
from volley.contracts.epoch import WriteResult
from volley.contracts.sink import TaskWriter, Writer
from volley.errors import SourceError
from volley.storage.state_formats import STATE
from volley.store.files import OpenFile, new_file
from volley.task.state_files import open_states

__all__ = ["NO_ROWS", "Limits", "Misfits", "Partial", "PartialFile", "PartialWriter"]

_ROWS_AT_ONCE = 1 << 20
_STATES_AT_ONCE = 1 << 20
_BYTES_AT_ONCE = 128 << 20
_HINT = "a longer lateness= waits for such rows"
# A chunk with more states than this share of its rows is not worth reducing: the second stage does it once.
_WORTHWHILE = 0.5
# A whole chunk is not worth reducing if a sample of its rows has more states than this share of its rows.
_SAMPLE, _WORTHWHILE_OF_SAMPLE = 1 << 15, 0.975


@dataclass(frozen=True)
class Limits:
    """Which rows are left out.

    Args:
        watermark: Rows are late whose end, as the operator says, is here or before.
        ahead: Rows after this time are too far ahead. Both in microseconds since 1970.
    """

    watermark: int
    ahead: int


@dataclass(frozen=True)
class Misfits:
    """How many rows were left out: late ones, ones too far ahead of the clock, and ones without a time."""

    late: int = 0
    ahead: int = 0
    untimed: int = 0

    def __add__(self, other: Misfits) -> Misfits:
        return Misfits(self.late + other.late, self.ahead + other.ahead, self.untimed + other.untimed)


@dataclass(frozen=True)
class PartialFile:
    """A task's states.

    Args:
        url: The file's URL.
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
        files: Its states.
        latest: The latest event time of rows that are not left out; None without any.
        misfits: How many rows are left out.
    """

    files: tuple[PartialFile, ...]
    latest: int | None
    misfits: Misfits


NO_ROWS = Partial((), None, Misfits())
"""What a task knows of an input whose rows it does not read."""


@dataclass(frozen=True)
class PartialWriter(Writer):
    """Opens what turns rows into states in an epoch's tasks; pickled to the executors.

    Args:
        operator: The compiled step.
        input: The number of the input whose rows it gets.
        folder: The URL of the folder for the files.
        limits: Which rows are left out.
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

    def times_of(self, batch: pa.RecordBatch) -> pa.Array | None:
        """Return the event times of rows in microseconds, with nulls; None if the step follows none."""
        name = self.operator.time_column(self.input)
        return None if name is None else batch.column(name).cast(pa.int64())

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
    _misfits: Misfits = Misfits()

    def check(self, batch: pa.RecordBatch) -> None:
        if self.writer.operator.timing.late != "dead_letter":
            return
        times = self.writer.times_of(batch)
        if times is None or (misfits := self._misfits_of(times)) is None:
            return
        error = _LeftOut(self._reason(batch, misfits), hint=_HINT)
        error.counts = misfits.counts
        raise error

    def rejected(self, error: Exception) -> None:
        if isinstance(error, _LeftOut):
            self._misfits += error.counts

    def write(self, batch: pa.RecordBatch) -> None:
        if (most := self.writer.operator.most) is not None:
            batch = batch.slice(0, most - self._taken)
        times = self.writer.times_of(batch)
        if times is not None and (misfits := self._misfits_of(times)) is not None:
            self._misfits += misfits.counts
            batch, times = batch.filter(misfits.others), times.filter(misfits.others)
        if not batch.num_rows:
            return
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
        return WriteResult(committables=(Partial(tuple(self._files), self._latest, self._misfits),))

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
        states, self._states = pa.concat_tables(self._states or [self.writer.states.empty_table()]), []
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

    def _misfits_of(self, times: pa.Array) -> _MisfitRows | None:
        """Return which rows are left out; None if none is."""
        limits, ends = self.writer.limits, self.writer.operator.ends
        earliest, latest = (pc.min_max(times)[name].as_py() for name in ("min", "max"))
        if earliest is None:
            return _MisfitRows.of(times, np.zeros(len(times), bool), np.zeros(len(times), bool))
        is_late = earliest < BEFORE_ALL or bool(ends(np.array([earliest]))[0] <= limits.watermark)
        if not (is_late or latest > limits.ahead or times.null_count):
            return None
        # A null counts as the earliest time that is not late, and not ahead.
        known = pc.fill_null(times, latest).to_numpy(zero_copy_only=False)
        late = (known < BEFORE_ALL) | (ends(np.clip(known, BEFORE_ALL, AFTER_ALL)) <= limits.watermark)
        return _MisfitRows.of(times, late, known > limits.ahead)

    def _reason(self, batch: pa.RecordBatch, misfits: _MisfitRows) -> str:
        operator, name = self.writer.operator, self.writer.operator.time_column(self.writer.input)
        untimed, late = operator.faults
        if misfits.counts.untimed:
            return f"it has no time in {name!r}, so {untimed}"
        (time,) = batch.column(name).cast(pa.int64()).slice(0, 1).to_pylist()
        if misfits.counts.late:
            watermark = time_text(self.writer.limits.watermark)
            return f"it is late: {late} ({name} is {time_text(time)}, the watermark was {watermark})"
        limit = f"more than {operator.timing.max_ahead}" if operator.timing.max_ahead else "146,000 years"
        return f"its time is {limit} ahead of the clock ({name} is {time_text(time)})"


class _LeftOut(SourceError):
    """Rows that are left out, and how many."""

    counts = Misfits()


@dataclass(frozen=True)
class _MisfitRows:
    """Which rows of a batch are left out.

    Args:
        counts: How many, by reason.
        others: A mask of the other rows.
    """

    counts: Misfits
    others: pa.Array

    @classmethod
    def of(cls, times: pa.Array, late: npt.NDArray[np.bool_], ahead: npt.NDArray[np.bool_]) -> _MisfitRows:
        """Sort rows by reason."""
        untimed = ~times.is_valid().to_numpy(zero_copy_only=False)
        late, ahead = late & ~untimed, ahead & ~late & ~untimed
        return cls(Misfits(int(late.sum()), int(ahead.sum()), int(untimed.sum())), pa.array(~(untimed | late | ahead)))
