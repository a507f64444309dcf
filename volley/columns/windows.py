"""Windows over event time on Arrow tables: which are open, what they hold, which rows are late.

A table of states has columns for the time, a column for each key, and the columns of the aggregates' states. For
windows whose bounds don't depend on the rows the time is ``pane``, see `panes`. For sessions it is ``first`` and
``last``, the times of the first and last row. Groups without a window have none, or ``seen``, when their last row came.
Times are microseconds since 1970.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from volley.columns.dictionaries import decode_rows
from volley.columns.groups import ArrowMerge, by_key, combine
from volley.columns.operators import AFTER_ALL, Times
from volley.columns.panes import panes_of
from volley.columns.window_states import (
    CHANGED,
    END,
    SEEN,
    START,
    Closing,
    Gaps,
    Grouping,
    Windows,
    only_changed,
    seen_at,
    seen_since,
    with_changed,
    without_changed,
)
from volley.plan.windows import Session, Window, microseconds

__all__ = ["groups_of", "windows_of"]

_SESSION, _ALL = "session", "all"


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
        grouping, table = with_changed(old, new, grouping, updates)
        sessions = self.merged(table, grouping)
        is_closed = pa.array(self.ends(sessions["last"].to_numpy()) <= watermark)
        windows = self._with_ends(sessions if updates else sessions.filter(is_closed))
        absorbed = self._with_ends(self._absorbed(old, sessions, grouping.keys)) if updates else None
        return Closing(only_changed(windows), absorbed, without_changed(sessions.filter(pc.invert(is_closed))))

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
        both = both.append_column(CHANGED, pa.array(np.repeat([False, True], [len(old), len(sessions)])))
        grouped = both.group_by(names, use_threads=False).aggregate([("last", "max"), (CHANGED, "max")])
        gone = grouped.filter(pc.invert(grouped[f"{CHANGED}_max"])).drop_columns([f"{CHANGED}_max"])
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
        grouping, table = with_changed(old, new, grouping, updates)
        groups = self.merged(table, grouping)
        return Closing(only_changed(groups), None, without_changed(groups))


def groups_of(ttl: timedelta | None) -> Windows:
    """Return what computes groups without a window, which are kept so long after their last row; None = for ever."""
    return _Groups(None if ttl is None else microseconds(ttl))


def windows_of(window: Window, gaps: Gaps | None = None) -> Windows:
    """Return what computes windows; without `gaps`, none are filled."""
    if isinstance(window, Session):
        return _Sessions(microseconds(window.gap))
    return panes_of(window, gaps)


def _running_maximum(groups: Times, values: Times) -> Times:
    """Return the largest value so far of each row's group; rows are ordered by group."""
    order = np.argsort(values, kind="stable")
    ranks = np.empty(len(values), np.int64)
    ranks[order] = np.arange(len(values))
    # A rank is below the number of rows, so a later group's number outweighs every rank before.
    largest = np.maximum.accumulate(groups * len(values) + ranks)
    return values[order][largest - groups * len(values)]
