"""The most extreme values of groups: several of each, so that a group that loses its extreme has the next one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from volley.columns.keys.normal import normal
from volley.columns.keys.order import ordered

__all__ = ["KEPT", "Extreme", "Values", "changed", "extremes"]

KEPT = 4
"""How many of the least or greatest values a view keeps of each group."""

Extreme = Literal["min", "max"]

_Numbers = np.ndarray[Any, np.dtype[np.int64]]
# Differences of values up to this are compared as they are, together with the number of a group in 64 bits.
_WIDEST = 1 << 31
_WIDTHS = {32: pa.int32(), 64: pa.int64()}


@dataclass(frozen=True)
class Values:
    """Values of groups."""

    groups: _Numbers
    values: pa.Array

    @classmethod
    def of(cls, groups: _Numbers, columns: Sequence[pa.Array]) -> Values:
        """Return the values that are not null.

        Args:
            groups: The number of each row's group.
            columns: Columns of one type; each row has a value in each, or null.
        """
        known = [column.is_valid().to_numpy(zero_copy_only=False) for column in columns]
        kept = [column.drop_null() for column in columns]
        return cls(np.concatenate([groups[mask] for mask in known]), normal(pa.concat_arrays(kept)))


def extremes(kind: Extreme, given: Values, count: int) -> list[pa.Array]:
    """Return the most extreme values of groups, as many columns as are kept; null where a group has fewer.

    Args:
        kind: Which end of the order counts.
        given: Values of the groups, in any order.
        count: The number of groups.
    """
    order = np.argsort(_words(given.groups, _codes(kind, given.values)))
    return _columns(given, order, count)


def changed(
    kind: Extreme, known: Sequence[pa.Array], counts: _Numbers, added: Values, removed: Values
) -> list[pa.Array]:
    """Return the most extreme values of groups after changes; null where no more are known.

    A group may have more values than are known; those are no more extreme than the last known one. So values up to
    that one can be removed and added, and the others are left out.

    Args:
        kind: Which end of the order counts.
        known: The most extreme values before, as many columns as are kept, with a row for each group.
        counts: How many values each group had before.
        added: Values that have been added.
        removed: Values that have been removed.
    """
    count = len(counts)
    before = Values.of(np.arange(count), known)
    groups = np.concatenate([before.groups, added.groups, removed.groups])
    values = pa.concat_arrays([before.values, added.values, removed.values])
    codes = _codes(kind, values)
    is_complete = np.bincount(before.groups, minlength=count) == counts
    last = np.where(is_complete, np.iinfo(np.int64).max, -1)
    partly = ~is_complete[before.groups]
    np.maximum.at(last, before.groups[partly], codes[: len(before.groups)][partly])
    within = np.flatnonzero(codes <= last[groups])
    signs = np.where(np.arange(len(groups)) < len(before.groups) + len(added.groups), 1, -1)[within]
    _, first, value = np.unique(_words(groups, codes)[within], return_index=True, return_inverse=True)
    copies = np.bincount(value, weights=signs, minlength=len(first)).astype(np.int64).clip(0, KEPT)
    return _columns(Values(groups, values), np.repeat(within[first], copies), count)


def _columns(given: Values, order: _Numbers, count: int) -> list[pa.Array]:
    """Return the first values of each group, as columns.

    Args:
        given: The values.
        order: Their numbers by group, those of a group in order.
        count: The number of groups.
    """
    sizes = np.bincount(given.groups[order], minlength=count)
    starts = np.cumsum(sizes) - sizes
    columns = []
    for rank in range(KEPT):
        has_rank = sizes > rank
        chosen = np.zeros(count, np.int64)
        chosen[has_rank] = order[starts[has_rank] + rank]
        columns.append(given.values.take(pa.array(chosen, mask=~has_rank)))
    return columns


def _words(groups: _Numbers, codes: _Numbers) -> _Numbers:
    """Return numbers in the order of groups, and of codes within a group."""
    bits = int(codes.max(initial=0)).bit_length()
    return (groups << bits) | codes


def _codes(kind: Extreme, values: pa.Array) -> _Numbers:
    """Return numbers from 0 in the order of values, the most extreme value first."""
    if not len(values):
        return np.empty(0, np.int64)
    if pa.types.is_floating(values.type):
        values = ordered(values)
    if (pa.types.is_integer(values.type) or pa.types.is_temporal(values.type)) and values.type.bit_width in _WIDTHS:
        numbers = values.view(_WIDTHS[values.type.bit_width]).to_numpy().astype(np.int64)
        low, high = int(numbers.min()), int(numbers.max())
        if high - low < _WIDEST:
            codes: _Numbers = numbers - low if kind == "min" else high - numbers
            return codes
    order = "ascending" if kind == "min" else "descending"
    ranks: _Numbers = pc.rank(values, sort_keys=order, tiebreaker="dense").to_numpy().astype(np.int64)
    return ranks
