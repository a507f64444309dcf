"""Plots rows of windows for notebooks: the last column of numbers by the window's start, a line for each key."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter

import pyarrow as pa
import pyarrow.compute as pc

from volley.html_table import html_plot
from volley.types.arrow import is_number

__all__ = ["window_plot"]

_START, _END = "window_start", "window_end"
_MOST_ROWS = 10_000
_MOST_LINES = 6


def window_plot(rows: pa.Table) -> str:
    """Return the plot, or an empty text if the rows are none of windows, or too few for a line.

    Example:
        >>> window_plot(pa.table({"id": [1, 2]}))
        ''
    """
    keys = _keys(rows)
    numbers = [field.name for field in rows.schema if is_number(field.type) and field.name not in (keys or ())]
    if keys is None or not numbers:
        return ""
    rows = rows.sort_by(_START).slice(max(0, rows.num_rows - _MOST_ROWS))
    lines = dict(_lines(rows, keys, numbers[-1]))
    if max((len(line) for line in lines.values()), default=0) < 2:
        return ""
    shown = dict(sorted(lines.items(), key=lambda line: -sum(abs(y) for _, y in line[1]))[:_MOST_LINES])
    of_keys = f" by {', '.join(keys)}" if keys else ""
    some = f" ({len(shown)} of {len(lines):,} lines)" if len(shown) < len(lines) else ""
    ends = pc.min_max(rows[_START]).as_py()
    return f"<div>{html_plot(numbers[-1] + of_keys + some, shown, (str(ends['min']), str(ends['max'])))}</div>"


def _keys(rows: pa.Table) -> tuple[str, ...] | None:
    """Return the fewest columns in front with which each window has one row; None = there are no windows."""
    names = rows.schema.names
    if len({*names}) != len(names) or not {_START, _END} <= {*names} or not pa.types.is_timestamp(rows[_START].type):
        return None
    others = [name for name in names if name not in (_START, _END) and not pa.types.is_nested(rows[name].type)]
    for count in range(len(others)):
        by = [_START, *others[:count]]
        if rows.select(by).group_by(by).aggregate([]).num_rows == rows.num_rows:
            return tuple(others[:count])
    return None


def _lines(rows: pa.Table, keys: tuple[str, ...], value: str) -> Iterator[tuple[str, list[tuple[float, float]]]]:
    """Yield the name and the points of each key."""
    names = [
        "" if not keys else ", ".join(map(str, key))
        for key in zip(*(rows[key].to_pylist() for key in keys), strict=True)
    ]
    starts = rows[_START].cast(pa.int64()).to_pylist()
    values = rows[value].cast(pa.float64(), safe=False).to_pylist()
    points = zip(names or [""] * rows.num_rows, starts, values, strict=True)
    for name, group in groupby(sorted(points, key=itemgetter(0)), itemgetter(0)):
        yield name, [(x, y) for _, x, y in group if x is not None and y is not None and math.isfinite(y)]
