"""Fills the gaps between the windows of a key: rows for windows that have none of their own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from volley.columns.operators import Times
from volley.plan.aggregates import Aggregation
from volley.plan.keyed_nodes import WINDOW_COLUMNS

__all__ = ["Gaps", "fill_gaps"]

_COUNTS = ("count", "count_distinct", "approx_distinct")


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
class _Places:
    """The windows that come out, in their order.

    Args:
        starts: Their starts.
        befores: The place of the window with rows before each that has none; of the others, their own.
        nexts: The place of the window with rows behind each that has none; of the others, their own.
        shares: How far each is from the window before to the next one, from 0 to 1.
    """

    starts: Times
    befores: Times
    nexts: Times
    shares: npt.NDArray[np.float64]

    @classmethod
    def of(cls, starts: Times, groups: Times, gaps: Gaps) -> _Places:
        """Find the gaps; windows are ordered by group, then by start."""
        apart = np.diff(starts, prepend=starts[:1]) - gaps.size
        fillable = (np.diff(groups, prepend=-1) == 0) & (apart <= gaps.longest)
        sizes = np.where(fillable, apart // gaps.size, 0) + 1
        nexts = np.repeat(np.arange(len(starts)), sizes)
        steps = np.arange(len(nexts)) - np.repeat(np.cumsum(sizes) - sizes, sizes) + 1
        is_gap = steps < sizes[nexts]
        befores = nexts - is_gap
        begins = np.where(is_gap, starts[befores] + steps * gaps.size, starts[nexts])
        return cls(begins, befores, nexts, np.where(is_gap, steps / sizes[nexts], 0.0))

    @property
    def are_gaps(self) -> npt.NDArray[np.bool_]:
        """Which windows have no rows."""
        return np.not_equal(self.befores, self.nexts)

    def column(self, aggregation: Aggregation, results: pa.Array) -> pa.Array:
        """Return the results of all windows."""
        if aggregation.gap == "previous":
            return results.take(pa.array(self.befores))
        if aggregation.gap == "linear":
            before, behind = (results.take(pa.array(places)) for places in (self.befores, self.nexts))
            return pc.add(before, pc.multiply(pc.subtract(behind, before), pa.array(self.shares)))
        values = results.take(pa.array(self.nexts, mask=self.are_gaps))
        if aggregation.function in _COUNTS:
            return pc.if_else(pa.array(self.are_gaps), pa.scalar(0, results.type), values)
        return values


def fill_gaps(
    rows: pa.RecordBatch, groups: Times, aggregates: Sequence[tuple[str, Aggregation]], gaps: Gaps, before: int
) -> pa.RecordBatch:
    """Return the rows of windows, with those of windows between them.

    Args:
        rows: The windows of keys: those of a key together, in the order of their times; the first of a key may have
            come out before.
        groups: The number of each row's key.
        aggregates: The aggregates among the columns.
        gaps: Which gaps are filled.
        before: Windows with rows that end at this time or earlier have come out.
    """
    starts = rows.column(WINDOW_COLUMNS[0])
    places = _Places.of(starts.cast(pa.int64()).to_numpy(), groups, gaps)
    ends = places.starts + gaps.size
    columns = {name: rows.column(name).take(pa.array(places.nexts)) for name in rows.schema.names}
    times = zip(WINDOW_COLUMNS, (places.starts, ends), strict=True)
    columns |= {name: pa.array(values).cast(starts.type) for name, values in times}
    columns |= {name: places.column(aggregation, rows.column(name)) for name, aggregation in aggregates}
    filled = pa.RecordBatch.from_arrays([columns[name] for name in rows.schema.names], schema=rows.schema)
    return filled.filter(pa.array(places.are_gaps | (ends > before)))
