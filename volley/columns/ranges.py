"""Aggregates of ranges of rows: those around each row of an order, or of its last span of time."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from volley.columns.accumulators import Accumulator
from volley.columns.groups import StateColumns, combine
from volley.columns.operators import Times

__all__ = ["aggregated_ranges"]

_PAIRS_AT_ONCE = 1 << 20
_BLOCK = 32
_GROUP = "group"


def aggregated_ranges(part: Accumulator, states: StateColumns, origins: Times, begins: Times, ends: Times) -> pa.Array:
    """Return an aggregate's result for each range of rows; no range is empty.

    It follows from the rows of the same origin alone, to the last digit of a floating-point sum.

    Args:
        part: The compiled aggregate.
        states: The states of all rows.
        origins: The place of the first row of each range's key.
        begins: The place of the first row of each range.
        ends: The place behind its last row.
    """
    if not len(begins):
        return pa.nulls(0, part.result)
    merged = _of_ranges(part, pa.table(dict(zip(_names(part), states, strict=True))), origins, begins, ends)
    return part.finish([merged[name].combine_chunks() for name in _names(part)])


def _of_ranges(part: Accumulator, table: pa.Table, origins: Times, begins: Times, ends: Times) -> pa.Table:
    """Return the merged state of each range: of long ones, of whole blocks and of the rows at both ends.

    A block's state is computed once for all ranges, and those of blocks of blocks too, in a tree of segments (Leis et
    al., Efficient Processing of Window Functions in Analytical SQL Queries, VLDB 2015); each key has blocks of its own.
    """
    first, last = -(-(begins - origins) // _BLOCK), (ends - origins) // _BLOCK
    is_long = last - first > 1
    if not is_long.any():
        return _merged(part, table, _Members(begins, ends))
    keys, numbers = np.unique(origins, return_inverse=True)
    key_ends = np.append(keys[1:], len(table))
    counts = np.where(np.isin(keys, origins[is_long]), -(-(key_ends - keys) // _BLOCK), 0)
    before = np.cumsum(counts) - counts
    starts = np.repeat(keys - before * _BLOCK, counts) + np.arange(counts.sum()) * _BLOCK
    blocks = _merged(part, table, _Members(starts, np.minimum(starts + _BLOCK, np.repeat(key_ends, counts))))
    of_key = before[numbers][is_long]
    middles = _of_ranges(part, blocks, of_key, of_key + first[is_long], of_key + last[is_long])
    places = np.zeros(len(begins), np.int64)
    places[is_long] = len(table) + np.arange(is_long.sum())
    heads = _Members(begins, np.where(is_long, origins + first * _BLOCK, ends))
    tails = _Members(np.where(is_long, origins + last * _BLOCK, ends), ends)
    return _merged(part, pa.concat_tables([table, middles]), heads, _Members(places, places + is_long), tails)


def _names(part: Accumulator) -> list[str]:
    return [f"state_{number}" for number in range(len(part.types))]


@dataclass(frozen=True)
class _Members:
    """States next to each other that belong to ranges: where those of each range begin and end."""

    begins: Times
    ends: Times

    def of(self, cut: slice) -> tuple[Times, Times]:
        """Return the number of the range and the place of each state, of some ranges."""
        sizes = self.ends[cut] - self.begins[cut]
        places = np.arange(sizes.sum()) + np.repeat(self.begins[cut] - (np.cumsum(sizes) - sizes), sizes)
        return np.repeat(np.arange(len(sizes)), sizes), places


def _cuts(sizes: Times) -> list[slice]:
    """Divide ranges into parts with a limited number of members."""
    parts = np.cumsum(sizes) // _PAIRS_AT_ONCE
    bounds = [0, *(np.flatnonzero(np.diff(parts)) + 1).tolist(), len(sizes)]
    return [slice(begin, end) for begin, end in pairwise(bounds)]


def _merged(part: Accumulator, states: pa.Table, *parts: _Members) -> pa.Table:
    """Return the merged state of each range, whose members are those of the parts, one part after the other."""
    sizes = sum(members.ends - members.begins for members in parts)
    chunks = []
    for cut in _cuts(np.asarray(sizes)):
        groups, places = (np.concatenate(each) for each in zip(*(members.of(cut) for members in parts), strict=True))
        order = np.argsort(groups, kind="stable")
        members = states.take(pa.array(places[order])).append_column(_GROUP, pa.array(groups[order]))
        chunks.append(combine(members, [_GROUP], [(part.merge, _names(part))]).sort_by(_GROUP))
    return pa.concat_tables(chunks).select(_names(part))
