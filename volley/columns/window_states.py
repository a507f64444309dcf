"""What all kinds of windows share: the columns of their states, and what comes out of these at the end of an epoch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from volley.columns.groups import ArrowMerge, Merge
from volley.columns.operators import Times

__all__ = [
    *("CHANGED", "END", "SEEN", "START", "Closing", "Gaps", "Grouping", "Windows"),
    *("only_changed", "seen_at", "seen_since", "with_changed", "without_changed"),
]

START, END = "start", "end"
SEEN = "seen"
"""The time of a key's last row, by the computer's clock."""
CHANGED = "changed"
"""True for states of the epoch's rows."""


@dataclass(frozen=True)
class Gaps:
    """Gaps between windows of a size are filled, if there are at most so many microseconds between the two windows."""

    size: int
    longest: int


@dataclass(frozen=True)
class Grouping:
    """The columns of a table of states besides its window's: the keys, and each aggregate's with how they merge."""

    keys: tuple[str, ...]
    states: tuple[tuple[Merge, tuple[str, ...]], ...]

    def with_changed(self) -> Grouping:
        """Return the grouping of a table that also tells which states have rows of the epoch."""
        return Grouping(self.keys, (*self.states, (ArrowMerge(("max",)), (CHANGED,))))

    @property
    def state_names(self) -> list[str]:
        """The names of all columns of states."""
        return [name for _, names in self.states for name in names]


@dataclass(frozen=True)
class Closing:
    """What comes out of the states of a bucket at the end of an epoch.

    Args:
        windows: The states of the windows that come out, with START and END; of groups without a window, without both.
        absorbed: START, END and keys of sessions that came out before and are parts of longer ones now.
        open: The states to keep.
    """

    windows: pa.Table
    absorbed: pa.Table | None
    open: pa.Table


class Windows(Protocol):
    """A kind of windows."""

    @property
    def times(self) -> tuple[str, ...]:
        """The names of the window's columns in a table of states."""

    @property
    def held(self) -> int:
        """For how long a window is held behind its end, in microseconds: rows that are not late can still be its."""

    def columns(self, times: Times, encoded: bool) -> list[pa.Array]:
        """Return the window's columns for at least one row with these event times; `encoded` allows dictionaries."""

    def kept(self, old: pa.Table, watermark: int) -> pa.Table:
        """Return those of the states that were kept which an epoch with this watermark at its end still has."""

    def ends(self, times: Times) -> Times:
        """Return the end of the last window of each time; of a session, if it has no other row."""

    def merged(self, table: pa.Table, grouping: Grouping) -> pa.Table:
        """Return one row for each key and pane, or for each key and session."""

    def close(
        self, old: pa.Table, new: pa.Table, grouping: Grouping, before: int, watermark: int, updates: bool
    ) -> Closing:
        """Merge the states of an epoch into those before, and return what comes out.

        Args:
            old: The states that were kept.
            new: The states of the epoch's rows, in their order.
            grouping: Their columns.
            before: The watermark at the epoch's start: windows that end there have come out.
            watermark: The watermark at its end, less `held`: windows that end there or before are closed.
            updates: True if changed windows come out; False if closed ones do.
        """


def seen_since(states: pa.Table, time: int) -> pa.Table:
    """Return the states whose key has had a row after a time."""
    return states.filter(pc.greater(states[SEEN], time))


def seen_at(states: pa.Table, time: int) -> pa.Table:
    """Return states whose key has had a row at a time."""
    return states.set_column(states.schema.get_field_index(SEEN), SEEN, pa.array(np.full(len(states), time)))


def with_changed(old: pa.Table, new: pa.Table, grouping: Grouping, updates: bool) -> tuple[Grouping, pa.Table]:
    """Return both tables as one; for updates, with a column that tells which states are of the epoch."""
    both = pa.concat_tables([old, new])
    if not updates:
        return grouping, both
    changed = pa.array(np.repeat([False, True], [len(old), len(new)]))
    return grouping.with_changed(), both.append_column(CHANGED, changed)


def only_changed(windows: pa.Table) -> pa.Table:
    """Return the windows that have rows of the epoch; all, where no column tells."""
    return without_changed(windows.filter(windows[CHANGED])) if CHANGED in windows.column_names else windows


def without_changed(table: pa.Table) -> pa.Table:
    return table.drop_columns([CHANGED]) if CHANGED in table.column_names else table
