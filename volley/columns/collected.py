"""Merges states that are lists of values: the different values of a group, or its values in order."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from volley.columns.groups import Offsets, Rows

__all__ = ["as_lists", "items_of", "list_items", "merge_distinct", "merge_lists", "merge_top"]


def list_items(values: pa.Array) -> pa.Array:
    """Return a list for each value: of the value, or empty for null."""
    offsets = np.concatenate([[0], np.cumsum(values.is_valid().to_numpy(zero_copy_only=False))])
    return as_lists(offsets.astype(np.int64), values.drop_null())


def as_lists(offsets: Offsets, values: pa.Array) -> pa.Array:
    """Return the lists with these offsets."""
    return pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), values)


def items_of(lists: pa.Array, offsets: Offsets) -> tuple[pa.Array, Offsets]:
    """Return the items of all lists of a group, one group after the other, and the offsets of the groups in them."""
    starts = lists.offsets.to_numpy().astype(np.int64)
    return lists.flatten(), (starts - starts[0])[offsets]


def merge_distinct(state: Rows, offsets: Offsets) -> Rows:
    """Return the different values of each group."""
    values, ends = items_of(state[0], offsets)
    groups = np.repeat(np.arange(len(ends) - 1), np.diff(ends))
    unique = pa.table({"group": groups, "value": values}).group_by(["group", "value"], use_threads=False).aggregate([])
    # Arrow returns the groups in any order.
    order = np.argsort(unique["group"].to_numpy(), kind="stable")
    sizes = np.bincount(unique["group"].to_numpy(), minlength=len(ends) - 1)
    merged = unique["value"].combine_chunks().take(pa.array(order))
    return [as_lists(np.concatenate([[0], np.cumsum(sizes)]), merged)]


def merge_lists(limit: int, state: Rows, offsets: Offsets) -> Rows:
    """Return the earliest values of each group in the order of their times, and the times.

    Args:
        limit: The most values of a group.
        state: The lists of values and of times.
        offsets: The offsets of the groups.
    """
    return _merge_ordered(limit, state, offsets, lambda items: [_numbers(items[1])])


def merge_top(limit: int, state: Rows, offsets: Offsets) -> Rows:
    """Return the values of each group with the largest ranks, the largest first; of equal ranks, the earliest.

    Args:
        limit: The most values of a group.
        state: The lists of values, of times and of ranks.
        offsets: The offsets of the groups.
    """
    return _merge_ordered(limit, state, offsets, lambda items: [_numbers(items[1]), _from_largest(items[2])])


def _merge_ordered(limit: int, state: Rows, offsets: Offsets, order_by: Callable[[Rows], list[Offsets]]) -> Rows:
    """Return the first items of each group.

    Args:
        limit: The most items of a group.
        state: The lists, of the same lengths.
        offsets: The offsets of the groups.
        order_by: Returns what the items are ordered by, the first order last.
    """
    items = [items_of(column, offsets)[0] for column in state]
    ends = items_of(state[0], offsets)[1]
    sizes = np.diff(ends)
    order = np.lexsort((*order_by(items), np.repeat(np.arange(len(sizes)), sizes)))
    kept = order[np.arange(len(order)) - np.repeat(ends[:-1], sizes) < limit]
    new = np.concatenate([[0], np.cumsum(np.minimum(sizes, limit))])
    return [as_lists(new, column.take(pa.array(kept))) for column in items]


def _numbers(values: pa.Array) -> Offsets:
    return np.asarray(values.to_numpy(zero_copy_only=False))


def _from_largest(ranks: pa.Array) -> Offsets:
    """Return numbers in the opposite order of ranks. Arrow puts NaN behind all other numbers."""
    return -_numbers(pc.rank(ranks, "ascending", tiebreaker="dense")).astype(np.int64)
