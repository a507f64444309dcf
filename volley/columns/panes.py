"""Windows whose bounds don't depend on the rows: a row is in one pane, and a window is some panes side by side.

With a size of 10 minutes and a distance of 4, a pane has 2 minutes, their greatest common divisor, and a window 5
panes. A state is that of a key and a pane, by the pane's start, so that a row counts once, in however many windows.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from volley.columns.calendar import are_near
from volley.columns.expressions import compile_expression
from volley.columns.groups import by_key, combine
from volley.columns.operators import BEFORE_ALL, Times
from volley.columns.window_states import (
    END,
    START,
    Closing,
    Gaps,
    Grouping,
    Windows,
    only_changed,
    with_changed,
    without_changed,
)
from volley.plan.expressions import Expr, col
from volley.plan.windows import Calendar, CalendarUnit, Cumulative, Spans, microseconds

__all__ = ["panes_of"]

_PANE, _PLACE = "pane", "place"
# Rows that span this many panes keep their times: a dictionary of the panes could be as large as the rows.
_MOST_ENCODED = 1 << 10
_DAY = 24 * 3600 * 1_000_000
_MONDAY = 4  # 1970-01-05
_MONTHS = {"month": 1, "quarter": 3, "year": 12}


def panes_of(window: Spans | Cumulative | Calendar, gaps: Gaps | None) -> Windows:
    """Return what computes windows; without `gaps`, none are filled."""
    match window:
        case Spans():
            return _Spans(gaps, microseconds(window.size), microseconds(window.every), microseconds(window.offset))
        case Cumulative():
            return _Cumulative(gaps, microseconds(window.size), microseconds(window.step))
    return _Calendar(gaps, window.unit, window.zone)


@dataclass(frozen=True)
class _Panes(ABC):
    """Windows that consist of panes.

    Where gaps are filled, the last window of each key that came out is kept, and comes out again with the next one.
    """

    gaps: Gaps | None

    @abstractmethod
    def columns(self, times: Times, encoded: bool) -> list[pa.Array]:
        """Return the start of each time's pane; see `Windows.columns`."""

    @abstractmethod
    def ends(self, times: Times) -> Times:
        """Return the end of the last window of each time."""

    @abstractmethod
    def windows(self, panes: Times) -> Sequence[tuple[Times, Times]]:
        """Return the starts and ends of some windows of each pane, so often that each has all of its own.

        One that does not have the pane stands for none.
        """

    @property
    @abstractmethod
    def has_several_panes(self) -> bool:
        """True if a window can consist of several panes."""

    @property
    def times(self) -> tuple[str, ...]:
        return (_PANE,)

    @property
    def held(self) -> int:
        return 0

    def kept(self, old: pa.Table, watermark: int) -> pa.Table:
        return old

    def merged(self, table: pa.Table, grouping: Grouping) -> pa.Table:
        return combine(table, [*self.times, *grouping.keys], grouping.states)

    def close(
        self, old: pa.Table, new: pa.Table, grouping: Grouping, before: int, watermark: int, updates: bool
    ) -> Closing:
        grouping, table = with_changed(old, new, grouping, updates)
        panes = self.merged(table, grouping)
        windows = self._windows_of(panes, BEFORE_ALL if self.gaps else before, None if updates else watermark)
        if self.has_several_panes:
            windows = combine(windows, [START, END, *grouping.keys], grouping.states)
        is_needed = self.ends(panes[_PANE].to_numpy()) > watermark
        if self.gaps:
            is_needed |= self._begins_gap(panes, grouping.keys, is_needed, watermark, self.gaps)
        return Closing(only_changed(windows), None, without_changed(panes.filter(pa.array(is_needed))))

    def _begins_gap(
        self, panes: pa.Table, keys: Sequence[str], is_open: npt.NDArray[np.bool_], watermark: int, gaps: Gaps
    ) -> npt.NDArray[np.bool_]:
        """Return which panes are the last closed one of their key, as far as a gap behind them can be filled."""
        closed = np.flatnonzero(~is_open)
        table = panes.select([_PANE, *keys]).take(pa.array(closed)).append_column(_PLACE, pa.array(closed))
        latest, groups = by_key(table.sort_by(_PANE), keys)
        begins = np.zeros(len(panes), bool)
        begins[latest[_PLACE].to_numpy()[np.flatnonzero(np.diff(groups, append=-1))]] = True
        # The next window of a key ends behind the watermark.
        begins &= panes[_PANE].to_numpy() + 2 * gaps.size + gaps.longest > watermark
        return begins

    def _windows_of(self, panes: pa.Table, after: int, until: int | None) -> pa.Table:
        """Return a row for each pane and each of its windows that end after one time and not after another.

        Args:
            after: The windows end after this time.
            until: They end at this time or before; None = at any.
        """
        times = panes[_PANE].to_numpy()
        rows, starts, ends = [], [], []
        for start, end in self.windows(times):
            chosen = (end > times) & (end > after)
            if until is not None:
                chosen &= end <= until
            rows.append(np.flatnonzero(chosen))
            starts.append(start[rows[-1]])
            ends.append(end[rows[-1]])
        repeated = panes.drop_columns([_PANE]).take(pa.array(np.concatenate(rows)))
        bounds = ((START, starts), (END, ends))
        for name, parts in bounds:
            repeated = repeated.append_column(name, pa.array(np.concatenate(parts)))
        return repeated


@dataclass(frozen=True)
class _Even(_Panes):
    """Windows of panes of one length.

    Args:
        size: The length of the longest window, in microseconds.
    """

    size: int

    @property
    @abstractmethod
    def pane(self) -> int:
        """The length of a pane."""

    @property
    def origin(self) -> int:
        """The start of a pane and a window."""
        return 0

    @property
    def has_several_panes(self) -> bool:
        return self.pane < self.size

    def columns(self, times: Times, encoded: bool) -> list[pa.Array]:
        numbers = (times - self.origin) // self.pane
        first, last = int(numbers.min()), int(numbers.max())
        if not encoded or last - first >= _MOST_ENCODED:
            return [pa.array(numbers * self.pane + self.origin)]
        indices = pa.array((numbers - first).astype(np.int32))
        panes = np.arange(first, last + 1) * self.pane + self.origin
        return [pa.DictionaryArray.from_arrays(indices, pa.array(panes))]

    def _last_starts(self, times: Times, every: int) -> Times:
        """Return the start of the last window of each time."""
        starts: Times = (times - self.origin) // every * every + self.origin
        return starts


@dataclass(frozen=True)
class _Spans(_Even):
    """Tumbling and sliding windows: their length, the time from one start to the next, and the start of one of them."""

    every: int
    offset: int

    @property
    def pane(self) -> int:
        return math.gcd(self.size, self.every)

    @property
    def origin(self) -> int:
        return self.offset

    def ends(self, times: Times) -> Times:
        return self._last_starts(times, self.every) + self.size

    def windows(self, panes: Times) -> Sequence[tuple[Times, Times]]:
        last = self._last_starts(panes, self.every)
        # A pane is in the last window that begins at it or before, and in those before that one which reach it.
        starts = [last - back * self.every for back in range(-(-self.size // self.every))]
        return [(start, start + self.size) for start in starts]


@dataclass(frozen=True)
class _Cumulative(_Even):
    """Windows that begin together and end one step after the other, until the longest one ends."""

    step: int

    @property
    def pane(self) -> int:
        return self.step

    def ends(self, times: Times) -> Times:
        return self._last_starts(times, self.size) + self.size

    def windows(self, panes: Times) -> Sequence[tuple[Times, Times]]:
        start = self._last_starts(panes, self.size)
        return [(start, start + size) for size in range(self.step, self.size + 1, self.step)]


@dataclass(frozen=True)
class _Calendar(_Panes):
    """Windows of the calendar; each is a pane."""

    unit: CalendarUnit
    zone: str | None

    @property
    def has_several_panes(self) -> bool:
        return False

    def columns(self, times: Times, encoded: bool) -> list[pa.Array]:
        starts = pa.array(self._bounds(times)[0])
        return [starts.dictionary_encode() if encoded else starts]

    def ends(self, times: Times) -> Times:
        return self._bounds(times)[1]

    def windows(self, panes: Times) -> Sequence[tuple[Times, Times]]:
        return [self._bounds(panes)]

    def _bounds(self, times: Times) -> tuple[Times, Times]:
        """Return the start and the end of the window of each time.

        Where clocks are put back over midnight, a day's date comes again after the next day has begun: what tells is
        which of the starts is the last one before a time.
        """
        days, places = np.unique(times // _DAY, return_inverse=True)
        shown = self._shown(days * _DAY) // _DAY
        starts = [self._instants(self._later(shown, number) * _DAY) for number in range(5)]
        numbers = sum((start[places] <= times).astype(np.int64) for start in starts[1:4])
        known = np.stack(starts)
        return known[numbers, places], known[numbers + 1, places]

    def _later(self, days: Times, number: int) -> Times:
        """Return the first day of the window that is so many behind that of each day."""
        if self.unit == "day":
            return days + number
        if self.unit == "week":
            return (days - _MONDAY) // 7 * 7 + _MONDAY + 7 * number
        months = _MONTHS[self.unit]
        first = days.view("datetime64[D]").astype("datetime64[M]").view(np.int64) // months + number
        later: Times = (first * months).view("datetime64[M]").astype("datetime64[D]").view(np.int64)
        return later

    def _shown(self, instants: Times) -> Times:
        """Return what clocks of the zone show at instants; both in microseconds since 1970."""
        return instants if self.zone is None else _moved(instants, col("at").dt.in_zone(self.zone), "UTC")

    def _instants(self, clocks: Times) -> Times:
        """Return when clocks of the zone show a time first; of one that they leave out, the end of the gap."""
        return clocks if self.zone is None else _moved(clocks, col("at").dt.from_zone(self.zone), None)


def _moved(times: Times, expression: Expr, zone: str | None) -> Times:
    """Return times, of a zone or of none, as an expression moves them; those that no zone has rules for as they are."""
    values = pa.array(times).cast(pa.timestamp("us", zone))
    is_near = are_near(values)
    batch = pa.record_batch({"at": pc.if_else(is_near, values, pa.scalar(0, values.type))})
    moved = compile_expression(expression.node, batch.schema).column(batch)
    return np.where(is_near.to_numpy(zero_copy_only=False), moved.cast(pa.int64()).to_numpy(), times)
