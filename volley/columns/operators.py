"""What a step that keeps state by key has to say, once it is compiled: the tasks, the driver and the state are shared.

A row of an input becomes a state, which has the row's event time or window, the key, and what is kept of the row. The
tasks that read divide states by key into buckets; those that merge take the buckets' states before an epoch and those
of its rows, and return what comes out and what is kept.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from volley.columns.compiled import whole
from volley.plan.keyed_nodes import Keyed
from volley.plan.windows import Timing

__all__ = ["AFTER_ALL", "BEFORE_ALL", "Merged", "Operator", "Times", "time_text"]

Times = npt.NDArray[np.int64]
"""Event times in microseconds since 1970."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

BEFORE_ALL, AFTER_ALL = -(2**62), 2**62
"""The first and last event time that steps take: 146,000 years from 1970, so that windows around it fit 64 bits."""


@dataclass(frozen=True)
class Merged:
    """What becomes of the states of a bucket at the end of an epoch.

    Args:
        rows: The rows that come out; may be read once, after the states are written.
        states: For each input, the states to keep; of a step that appends, those to add.
    """

    rows: Iterable[pa.RecordBatch]
    states: tuple[pa.Table, ...]


@dataclass(frozen=True)
class Operator(ABC):
    """A step that keeps state by key, compiled for the rows of its inputs; picklable. Inputs are numbered from 0."""

    folder: ClassVar[str]
    """The beginning of the name of the folder for its state."""
    fills_states: ClassVar[bool] = False
    """True if states that were kept may lack columns, which are null then."""
    faults: ClassVar[tuple[str, str]] = ("", "")
    """Why a row is rejected, as dead letters say it: what follows from having no time, and from being late."""

    node: Keyed

    @property
    def timing(self) -> Timing:
        """How it follows event time."""
        return self.node.timing

    @property
    @abstractmethod
    def output(self) -> pa.Schema:
        """The schema of the rows that come out.

        Raises:
            ExpressionError: If a column of the inputs is unknown, or a type does not fit.
        """

    @property
    @abstractmethod
    def states(self) -> tuple[pa.Schema, ...]:
        """For each input, the schema of the states that are kept."""

    @property
    def partials(self) -> tuple[pa.Schema, ...]:
        """For each input, the schema of the states of an epoch's rows: by default that of the states that are kept."""
        return self.states

    @property
    def is_timed(self) -> bool:
        """False if what it follows is no event time: its watermark is no figure for users."""
        return True

    @property
    def follows_clock(self) -> bool:
        """True if its watermark is the time of the computer's clock, as the plan of the epoch has it."""
        return False

    @property
    def appends(self) -> bool:
        """True if states only become more: `merge` then returns those to add, and sees none before without new ones."""
        return False

    @property
    def waits_for_rows(self) -> bool:
        """True if nothing comes out in an epoch without rows, and no state changes: by default that of a step that
        appends."""
        return self.appends

    @property
    def most(self) -> int | None:
        """How many rows a task needs at most; None = all."""
        return None

    @abstractmethod
    def time_column(self, input: int) -> str | None:
        """Return the name of an input's event time; None = the step follows none."""

    @abstractmethod
    def ends(self, times: Times) -> Times:
        """Return for rows with these event times the watermark with which each becomes late."""

    def check(self, input: int, batch: pa.RecordBatch) -> None:
        """Raise SourceError if the step can't take rows; the default takes all."""

    def after_rejection(self, latest: int | None, error: Exception) -> int | None:
        """Return the latest event time of a task's rows once a row was rejected; the default leaves it as it is."""
        return latest

    @abstractmethod
    def lifted(self, input: int, batch: pa.RecordBatch, times: pa.Array) -> pa.Table:
        """Return the states of rows; those of a step that follows event time all have one."""

    def reduced(self, input: int, states: pa.Table) -> pa.Table:
        """Return fewer states that mean the same, or the same ones, the default."""
        return states

    def keys(self, input: int, states: pa.Table) -> list[pa.Array]:
        """Return the keys of states, by default the columns ``key_0``, ``key_1``, …: equal ones have equal bytes."""
        return [whole(states[name]) for name in states.column_names if name.startswith("key_")]

    @abstractmethod
    def merge(self, old: Sequence[pa.Table], new: Sequence[pa.Table], before: int, watermark: int) -> Merged:
        """Merge the states of an epoch's rows into those before; all are of one bucket.

        Args:
            old: For each input, the states that were kept.
            new: For each input, the states of the epoch's rows, in the order of the rows.
            before: The watermark at the epoch's start.
            watermark: The watermark at its end, less `held`: what has ended by then comes out.
        """

    @property
    def held(self) -> int:
        """For how many microseconds what has ended is held, but for the end of all sources; by default 0."""
        return 0

    def closing(self, latest: int) -> int | None:
        """Return the watermark at the end of all sources, after their latest row; None = nothing waits, the default."""
        return None

    def __getstate__(self) -> dict[str, Any]:
        # What is derived may have closures, which don't pickle; each executor compiles its own.
        return {field.name: getattr(self, field.name) for field in fields(self)} | {"node": self.node.alone()}


def time_text(microseconds: int) -> str:
    """Return a time as text, for an error: its distance from 1970 if Python's calendar does not have it.

    Example:
        >>> time_text(0), time_text(BEFORE_ALL)
        ('1970-01-01 00:00:00+00:00', '-4,611,686,018,427,387,904 microseconds from 1970')
    """
    try:
        return str(_EPOCH + timedelta(microseconds=microseconds))
    except OverflowError:
        return f"{microseconds:,} microseconds from 1970"
