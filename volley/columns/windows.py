"""Windows over event time on Arrow tables: which are open, what they hold, which rows are late.

A table of states has columns for the time, a column for each key, and the columns of the aggregates' states. For
windows of a fixed length the time is ``pane``: a row is in one pane, and a window is some panes side by side. With a
size of 10 minutes and a distance of 4, a pane has 2 minutes, their greatest common divisor, and a window 5 panes. For
sessions the time is ``first`` and ``last``, the times of the first and last row. Groups without a window have none, or
``seen``, when their last row came. Times are microseconds since 1970.
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
from volley.columns.operators import AFTER_ALL, BEFORE_ALL, Times
from volley.plan.windows import Session, Window, microseconds

__all__ = [
    "END",
    "SEEN",
    "START",
    "Closing",
    "Gaps",
    "Grouping",
    "Windows",
    "groups_of",
    "seen_at",
    "seen_since",
    "windows_of",
]

START, END = "start", "end"
SEEN = "seen"
"""The time of a key's last row, by the computer's clock."""

# Rows that span this many panes keep their times: a dictionary of the panes could be as large as the rows.
_MOST_ENCODED = 1 << 10
_CHANGED, _SESSION, _PLACE, _ALL = "changed", "session", "place", "all"


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
        return Grouping(self.keys, (*self.states, (ArrowMerge(("max",)), (_CHANGED,))))

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


@dataclass(frozen=True)
class _Spans:
    """Tumbling and sliding windows: their length, and the time from one start to the next, in microseconds.

    Where gaps are filled, the last window of each key that came out is kept, and comes out again with the next one.
    """

    size: int
    every: int
    gaps: Gaps | None = None

    @property
    def times(self) -> tuple[str, ...]:
        return ("pane",)

    @property
    def held(self) -> int:
        return 0

    def columns(self, times: Times, encoded: bool) -> list[pa.Array]:
        pane = math.gcd(self.size, self.every)
        numbers = times // pane
        first, last = int(numbers.min()), int(numbers.max())
        if not encoded or last - first >= _MOST_ENCODED:
            return [pa.array(numbers * pane)]
        indices = pa.array((numbers - first).astype(np.int32))
        return [pa.DictionaryArray.from_arrays(indices, pa.array(np.arange(first, last + 1) * pane))]

    def kept(self, old: pa.Table, watermark: int) -> pa.Table:
        return old

    def ends(self, times: Times) -> Times:
        return times // self.every * self.every + self.size

    def merged(self, table: pa.Table, grouping: Grouping) -> pa.Table:
        return combine(table, [*self.times, *grouping.keys], grouping.states)

    def close(
        self, old: pa.Table, new: pa.Table, grouping: Grouping, before: int, watermark: int, updates: bool
    ) -> Closing:
        grouping, table = _with_changed(old, new, grouping, updates)
        panes = self.merged(table, grouping)
        pane_windows = self._windows_of(panes, BEFORE_ALL if self.gaps else before, None if updates else watermark)
        is_sliding = self.size != self.every
        windows = combine(pane_windows, [START, *grouping.keys], grouping.states) if is_sliding else pane_windows
        windows = windows.append_column(END, pa.array(windows[START].to_numpy() + self.size))
        is_needed = self.ends(panes["pane"].to_numpy()) > watermark
        if self.gaps:
            is_needed |= self._begins_gap(panes, grouping.keys, is_needed, watermark, self.gaps)
        return Closing(_only_changed(windows), None, _without_changed(panes.filter(pa.array(is_needed))))

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

    def _windows_of(self, panes: pa.Table, after: int, until: int | None) -> pa.Table:
        """Return a row for each pane and each of its windows that end after one time and not after another.

        Args:
            after: The windows end after this time.
            until: They end at this time or before; None = at any.
        """
        times = panes["pane"].to_numpy()
        last_starts = times // self.every * self.every
        rows, starts = [], []
        # A pane is in the last window that begins at it or before, and in those before that one which reach it.
        for back in range(-(-self.size // self.every)):
            start = last_starts - back * self.every
            end = start + self.size
            chosen = (end > times) & (end > after)
            if until is not None:
                chosen &= end <= until
            rows.append(np.flatnonzero(chosen))
            starts.append(start[rows[-1]])
        repeated = panes.drop_columns(["pane"]).take(pa.array(np.concatenate(rows)))
        return repeated.append_column(START, pa.array(np.concatenate(starts)))


@dataclass(frozen=True)
class _Sessions:
    """Session windows; the gap in microseconds."""

    gap: int

    @property
    def times(self) -> tuple[str, ...]:
        return ("first", "last")

    @property
    def held(self) -> int:
        # A row is late where a session of it alone has ended: one that begins a gap before the watermark or later is
        # not, and may be less than a gap behind the last row of a session that has ended since.
        return self.gap

    def columns(self, times: Times, encoded: bool) -> list[pa.Array]:
        return [pa.array(times), pa.array(times)]

    def kept(self, old: pa.Table, watermark: int) -> pa.Table:
        return old

    def ends(self, times: Times) -> Times:
        return times + self.gap

    def merged(self, table: pa.Table, grouping: Grouping) -> pa.Table:
        table = decode_rows(table)
        if not table.num_rows:
            return table
        arrived, key_numbers = by_key(table, grouping.keys)
        order = np.lexsort((arrived["first"].to_numpy(), key_numbers))
        timely, key_numbers = arrived.take(pa.array(order)), key_numbers[order]
        firsts, lasts = timely["first"].to_numpy(), timely["last"].to_numpy()
        latest = _running_maximum(key_numbers, lasts)
        begins = np.ones(len(timely), bool)
        begins[1:] = (key_numbers[1:] != key_numbers[:-1]) | (firsts[1:] >= latest[:-1] + self.gap)
        starts = np.flatnonzero(begins)
        # Merge the states of a session in the order in which they came, not in that of their times.
        sessions = np.empty(len(order), np.int64)
        sessions[order] = np.cumsum(begins)
        numbered = arrived.select(grouping.state_names).append_column(_SESSION, pa.array(sessions))
        merged = combine(numbered, [_SESSION], grouping.states).sort_by(_SESSION)
        columns = {name: timely[name].take(pa.array(starts)) for name in grouping.keys}
        columns |= {"first": pa.array(firsts[starts]), "last": pa.array(np.maximum.reduceat(lasts, starts))}
        columns |= {name: merged[name] for name in grouping.state_names}
        return pa.table({name: columns[name] for name in table.column_names})

    def close(
        self, old: pa.Table, new: pa.Table, grouping: Grouping, before: int, watermark: int, updates: bool
    ) -> Closing:
        grouping, table = _with_changed(old, new, grouping, updates)
        sessions = self.merged(table, grouping)
        is_closed = pa.array(self.ends(sessions["last"].to_numpy()) <= watermark)
        windows = self._with_ends(sessions if updates else sessions.filter(is_closed))
        absorbed = self._with_ends(self._absorbed(old, sessions, grouping.keys)) if updates else None
        return Closing(_only_changed(windows), absorbed, _without_changed(sessions.filter(pc.invert(is_closed))))

    def _with_ends(self, sessions: pa.Table) -> pa.Table:
        """Return sessions by START and END in place of the times of their first and last rows."""
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


@dataclass(frozen=True)
class _Groups:
    """One window for all rows, without an end; a key that has had no row for `ttl` microseconds begins anew."""

    ttl: int | None

    @property
    def times(self) -> tuple[str, ...]:
        return () if self.ttl is None else (SEEN,)

    @property
    def held(self) -> int:
        return 0

    def columns(self, times: Times, encoded: bool) -> list[pa.Array]:
        return [] if self.ttl is None else [pa.array(times)]

    def kept(self, old: pa.Table, watermark: int) -> pa.Table:
        return old if self.ttl is None else seen_since(old, watermark - self.ttl)

    def ends(self, times: Times) -> Times:
        return np.full(len(times), AFTER_ALL)

    def merged(self, table: pa.Table, grouping: Grouping) -> pa.Table:
        last = [] if self.ttl is None else [(ArrowMerge(("max",)), (SEEN,))]
        if grouping.keys:
            return combine(table, grouping.keys, [*grouping.states, *last])
        alike = table.append_column(_ALL, pa.array(np.zeros(len(table), np.int8)))
        return combine(alike, [_ALL], [*grouping.states, *last]).drop_columns([_ALL])

    def close(
        self, old: pa.Table, new: pa.Table, grouping: Grouping, before: int, watermark: int, updates: bool
    ) -> Closing:
        if self.ttl is not None:
            new = seen_at(new, watermark)
        grouping, table = _with_changed(old, new, grouping, updates)
        groups = self.merged(table, grouping)
        return Closing(_only_changed(groups), None, _without_changed(groups))


def seen_since(states: pa.Table, time: int) -> pa.Table:
    """Return the states whose key has had a row after a time."""
    return states.filter(pc.greater(states[SEEN], time))


def seen_at(states: pa.Table, time: int) -> pa.Table:
    """Return states whose key has had a row at a time."""
    return states.set_column(states.schema.get_field_index(SEEN), SEEN, pa.array(np.full(len(states), time)))


def groups_of(ttl: timedelta | None) -> Windows:
    """Return what computes groups without a window, which are kept so long after their last row; None = for ever."""
    return _Groups(None if ttl is None else microseconds(ttl))


def windows_of(window: Window, gaps: Gaps | None = None) -> Windows:
    """Return what computes windows; without `gaps`, none are filled."""
    if isinstance(window, Session):
        return _Sessions(microseconds(window.gap))
    return _Spans(microseconds(window.size), microseconds(window.every), gaps)


def _with_changed(old: pa.Table, new: pa.Table, grouping: Grouping, updates: bool) -> tuple[Grouping, pa.Table]:
    """Return both tables as one; for updates, with a column that tells which states are of the epoch."""
    both = pa.concat_tables([old, new])
    if not updates:
        return grouping, both
    changed = pa.array(np.repeat([False, True], [len(old), len(new)]))
    return grouping.with_changed(), both.append_column(_CHANGED, changed)


def _only_changed(windows: pa.Table) -> pa.Table:
    """Return the windows that have rows of the epoch; all, where no column tells."""
    return _without_changed(windows.filter(windows[_CHANGED])) if _CHANGED in windows.column_names else windows


def _without_changed(table: pa.Table) -> pa.Table:
    return table.drop_columns([_CHANGED]) if _CHANGED in table.column_names else table


def _running_maximum(groups: Times, values: Times) -> Times:
    """Return the largest value so far of each row's group; rows are ordered by group."""
    order = np.argsort(values, kind="stable")
    ranks = np.empty(len(values), np.int64)
    ranks[order] = np.arange(len(values))
    # A rank is below the number of rows, so a later group's number outweighs every rank before.
    largest = np.maximum.accumulate(groups * len(values) + ranks)
    return values[order][largest - groups * len(values)]
