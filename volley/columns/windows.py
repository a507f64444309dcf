"""Windows over event time on Arrow tables: which are open, what they hold, which rows are late.

A table of states has columns for the window, a column for each key, and the columns of the aggregates' states. For
windows of a fixed length the window is ``pane``, a start: all windows are made of panes, which are as long as the
greatest common divisor of size and distance. For sessions it is ``first`` and ``last``, the times of the first and last
row. Times are microseconds since 1970.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from volley.columns.dictionaries import decode_rows
from volley.columns.groups import ArrowMerge, Merge, by_key, combine
from volley.columns.operators import BEFORE_ALL, Times
from volley.plan.windows import Session, Window

__all__ = ["END", "START", "Closing", "Gaps", "Grouping", "Windows", "microseconds", "windows_of"]

START, END = "start", "end"
# Rows that span this many panes keep their times: a dictionary of the panes could be as large as the rows.
_MOST_ENCODED = 1 << 10
_CHANGED, _GROUP, _PLACE = "changed", "group", "place"


@dataclass(frozen=True)
class Gaps:
    """Which gaps between windows are filled; all in microseconds.

    Args:
        size: The length of a window.
        longest: The longest time between two windows that is filled.
    """

    size: int
    longest: int


@dataclass(frozen=True)
class Grouping:
    """The columns of a table of states besides its window's.

    Args:
        keys: The names of the keys' columns.
        states: How to merge the state of each aggregate, with the names of its columns.
    """

    keys: tuple[str, ...]
    states: tuple[tuple[Merge, tuple[str, ...]], ...]

    def with_changes(self) -> Grouping:
        """Return the grouping of a table that also tells which states have rows of the epoch."""
        return Grouping(self.keys, (*self.states, (ArrowMerge(("max",)), (_CHANGED,))))

    @property
    def state_names(self) -> list[str]:
        """The names of all columns of states."""
        return [name for _, names in self.states for name in names]


@dataclass(frozen=True)
class Closing:
    """What comes out of the states of a bucket at the end of an epoch.

    Args:
        windows: The states of the windows that come out, with START and END.
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

    def columns(self, times: Times, encoded: bool) -> list[pa.Array]:
        """Return the window's columns for rows with these event times.

        Args:
            times: The event times; at least one.
            encoded: True if columns may be dictionaries.
        """

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
            watermark: The watermark at its end.
            updates: True if changed windows come out; False if closed ones do.
        """


@dataclass(frozen=True)
class _Spans:
    """Tumbling and sliding windows; lengths in microseconds.

    Args:
        size: The length of a window.
        every: The time from one start to the next.
        gaps: Which gaps between windows are filled: the last window of each key that came out is kept, and comes out
            again with the next one; None = none are.
    """

    size: int
    every: int
    gaps: Gaps | None = None

    @property
    def times(self) -> tuple[str, ...]:
        return ("pane",)

    def columns(self, times: Times, encoded: bool) -> list[pa.Array]:
        pane = math.gcd(self.size, self.every)
        numbers = times // pane
        first, last = int(numbers.min()), int(numbers.max())
        if not encoded or last - first >= _MOST_ENCODED:
            return [pa.array(numbers * pane)]
        indices = pa.array((numbers - first).astype(np.int32))
        return [pa.DictionaryArray.from_arrays(indices, pa.array(np.arange(first, last + 1) * pane))]

    def ends(self, times: Times) -> Times:
        return times // self.every * self.every + self.size

    def merged(self, table: pa.Table, grouping: Grouping) -> pa.Table:
        return combine(table, [*self.times, *grouping.keys], grouping.states)

    def close(
        self, old: pa.Table, new: pa.Table, grouping: Grouping, before: int, watermark: int, updates: bool
    ) -> Closing:
        grouping, table = _with_changes(old, new, grouping, updates)
        panes = self.merged(table, grouping)
        windows = self._windows(panes, BEFORE_ALL if self.gaps else before, None if updates else watermark)
        if self.size != self.every:
            windows = combine(windows, [START, *grouping.keys], grouping.states)
        windows = windows.append_column(END, pa.array(windows[START].to_numpy() + self.size))
        is_open = self.ends(panes["pane"].to_numpy()) > watermark
        if self.gaps:
            is_open |= self._begins_gap(panes, grouping.keys, is_open, watermark, self.gaps)
        return Closing(_changed(windows), None, _without_changes(panes.filter(pa.array(is_open))))

    def _begins_gap(
        self, panes: pa.Table, keys: Sequence[str], is_open: npt.NDArray[np.bool_], watermark: int, gaps: Gaps
    ) -> npt.NDArray[np.bool_]:
        """Return which panes are the last closed one of their key, as far as a gap behind them can be filled."""
        closed = np.flatnonzero(~is_open)
        table = panes.select(["pane", *keys]).take(pa.array(closed)).append_column(_PLACE, pa.array(closed))
        latest, groups = by_key(table.sort_by("pane"), keys)
        begins = np.zeros(len(panes), bool)
        begins[latest[_PLACE].to_numpy()[np.flatnonzero(np.diff(groups, append=-1))]] = True
        # The next window of a key ends behind the watermark.
        begins &= panes["pane"].to_numpy() + 2 * self.size + gaps.longest > watermark
        return begins

    def _windows(self, panes: pa.Table, before: int, watermark: int | None) -> pa.Table:
        """Return a row for each pane and each of its windows that end after one watermark and not after another."""
        starts = panes["pane"].to_numpy()
        last = starts // self.every * self.every
        rows, begins = [], []
        for number in range(-(-self.size // self.every)):
            begin = last - number * self.every
            end = begin + self.size
            chosen = (end > starts) & (end > before)
            if watermark is not None:
                chosen &= end <= watermark
            rows.append(np.flatnonzero(chosen))
            begins.append(begin[rows[-1]])
        spread = panes.drop_columns(["pane"]).take(pa.array(np.concatenate(rows)))
        return spread.append_column(START, pa.array(np.concatenate(begins)))


@dataclass(frozen=True)
class _Sessions:
    """Session windows; the gap in microseconds."""

    gap: int

    @property
    def times(self) -> tuple[str, ...]:
        return ("first", "last")

    def columns(self, times: Times, encoded: bool) -> list[pa.Array]:
        return [pa.array(times), pa.array(times)]

    def ends(self, times: Times) -> Times:
        return times + self.gap

    def merged(self, table: pa.Table, grouping: Grouping) -> pa.Table:
        table = decode_rows(table)
        if not table.num_rows:
            return table
        ordered, groups = by_key(table, grouping.keys)
        order = np.lexsort((ordered["first"].to_numpy(), groups))
        rows, groups = ordered.take(pa.array(order)), groups[order]
        firsts, lasts = rows["first"].to_numpy(), rows["last"].to_numpy()
        latest = _running_maximum(groups, lasts)
        begins = np.ones(len(groups), bool)
        begins[1:] = (groups[1:] != groups[:-1]) | (firsts[1:] >= latest[:-1] + self.gap)
        starts = np.flatnonzero(begins)
        # Merge the rows of a session in the order in which they came, not in that of their times.
        numbers = np.empty(len(order), np.int64)
        numbers[order] = np.cumsum(begins)
        numbered = ordered.select(grouping.state_names).append_column(_GROUP, pa.array(numbers))
        merged = combine(numbered, [_GROUP], grouping.states).sort_by(_GROUP)
        columns = {name: rows[name].take(pa.array(starts)) for name in grouping.keys}
        columns |= {"first": pa.array(firsts[starts]), "last": pa.array(np.maximum.reduceat(lasts, starts))}
        columns |= {name: merged[name] for name in grouping.state_names}
        return pa.table({name: columns[name] for name in table.column_names})

    def close(
        self, old: pa.Table, new: pa.Table, grouping: Grouping, before: int, watermark: int, updates: bool
    ) -> Closing:
        grouping, table = _with_changes(old, new, grouping, updates)
        sessions = self.merged(table, grouping)
        is_closed = pa.array(self.ends(sessions["last"].to_numpy()) <= watermark)
        windows = sessions if updates else sessions.filter(is_closed)
        absorbed = self._named(self._absorbed(old, sessions, grouping.keys)) if updates else None
        return Closing(
            _changed(self._named(windows)), absorbed, _without_changes(sessions.filter(pc.invert(is_closed)))
        )

    def _named(self, sessions: pa.Table) -> pa.Table:
        ends = pa.array(self.ends(sessions["last"].to_numpy()))
        named = sessions.drop_columns(list(self.times))
        return named.append_column(START, sessions["first"]).append_column(END, ends)

    @staticmethod
    def _absorbed(old: pa.Table, sessions: pa.Table, keys: Sequence[str]) -> pa.Table:
        """Return the sessions that no session of the same start and key follows."""
        names = ["first", *keys]
        both = pa.concat_tables([table.select([*names, "last"]) for table in (old, sessions)])
        both = both.append_column(_CHANGED, pa.array(np.repeat([False, True], [len(old), len(sessions)])))
        grouped = both.group_by(names, use_threads=False).aggregate([("last", "max"), (_CHANGED, "max")])
        gone = grouped.filter(pc.invert(grouped[f"{_CHANGED}_max"])).drop_columns([f"{_CHANGED}_max"])
        return gone.rename_columns({"last_max": "last"})


def windows_of(window: Window, gaps: Gaps | None = None) -> Windows:
    """Return what computes windows.

    Args:
        window: The window.
        gaps: Which gaps between windows are filled; None = none are.
    """
    if isinstance(window, Session):
        return _Sessions(microseconds(window.gap))
    return _Spans(microseconds(window.size), microseconds(window.every), gaps)


def microseconds(span: timedelta) -> int:
    """Return a time span as a whole number."""
    return span // timedelta(microseconds=1)


def _with_changes(old: pa.Table, new: pa.Table, grouping: Grouping, updates: bool) -> tuple[Grouping, pa.Table]:
    """Return both tables as one; for updates, with a column that tells the rows of the epoch."""
    both = pa.concat_tables([old, new])
    if not updates:
        return grouping, both
    changed = pa.array(np.repeat([False, True], [len(old), len(new)]))
    return grouping.with_changes(), both.append_column(_CHANGED, changed)


def _changed(windows: pa.Table) -> pa.Table:
    return _without_changes(windows.filter(windows[_CHANGED])) if _CHANGED in windows.column_names else windows


def _without_changes(table: pa.Table) -> pa.Table:
    return table.drop_columns([_CHANGED]) if _CHANGED in table.column_names else table


def _running_maximum(groups: Times, values: Times) -> Times:
    """Return the largest value so far of each row's group; rows are ordered by group."""
    order = np.argsort(values, kind="stable")
    ranks = np.empty(len(values), np.int64)
    ranks[order] = np.arange(len(values))
    # A rank is below the number of rows, so a later group's number outweighs every rank before.
    largest = np.maximum.accumulate(groups * len(values) + ranks)
    return values[order][largest - groups * len(values)]
