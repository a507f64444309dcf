"""Searches many rows for a few keys: whole numbers by a small table of bits, what that leaves by Arrow's join."""

from __future__ import annotations

from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from volley.columns.keys.equality import NUMBER, Indices, distinct, matches_among, rows_among

__all__ = ["KeySearch", "Numbers", "distinct_numbers", "whole_numbers"]

Numbers = np.ndarray[Any, np.dtype[np.int64]]
T = TypeVar("T", np.int64, np.uint64)

_NOTHING: Indices = np.empty(0, np.int64)
# Comparing with so many numbers one by one takes no longer than a look into the table of bits.
_FEW = 8
# Of more keys, Arrow's join is as fast.
_MANY = 1 << 16
# A bit is set by one in so many other numbers.
_BITS_FOR_A_KEY = 64
_LEAST_BITS, _MOST_BITS = 16, 22
_FACTOR = np.uint64(0x9E3779B97F4A7C15)
# Rows that are looked up at a time, in the processor's cache.
_ROWS = 1 << 16


class KeySearch:
    """Finds the rows with one of some keys.

    Args:
        keys: Columns in their normal form, not nested, without nulls; a key may be there several times.

    Example:
        >>> KeySearch(pa.table({"id": [1, 2]})).rows(pa.table({"id": [3, 1, 2, 1, None]})).tolist()
        [1, 2, 3]
    """

    def __init__(self, keys: pa.Table) -> None:
        self._given = keys
        columns = {name: whole_numbers(keys[name]) for name in keys.column_names}
        self._numbers = {name: distinct_numbers(numbers) for name, numbers in columns.items() if numbers is not None}

    def rows(self, rows: pa.Table) -> Indices:
        """Return the numbers of the rows that are equal to one of the keys, ascending: a null equals nothing.

        Args:
            rows: Columns of the names and types of the keys, in their normal form.
        """
        candidates, is_exact = self._candidates(rows)
        if candidates is None:
            return rows_among(rows, self._keys)
        if is_exact:
            return candidates
        matches: Indices = candidates[rows_among(rows.take(pa.array(candidates)), self._keys)]
        return matches

    def matches(self, rows: pa.Table) -> tuple[Indices, Indices]:
        """Return what `rows` does, and for each of these rows the number of a key that it is equal to.

        Example:
            >>> rows, keys = KeySearch(pa.table({"id": [7, 9]})).matches(pa.table({"id": [9, 8, 7]}))
            >>> rows.tolist(), keys.tolist()
            ([0, 2], [1, 0])
        """
        candidates, is_exact = self._candidates(rows)
        if candidates is None:
            return matches_among(rows, self._numbered)
        if len(candidates) == 0:
            return candidates, candidates
        some = rows.take(pa.array(candidates))
        if is_exact:
            order, ascending = self._ordered
            return candidates, order[np.searchsorted(ascending, _numbers(some[0]))]
        places, keys = matches_among(some, self._numbered)
        return candidates[places], keys

    def _candidates(self, rows: pa.Table) -> tuple[Indices | None, bool]:
        """Return the rows that may be equal to one of the keys, None = all, and whether they all are."""
        candidates: Indices | None = None
        searched = 0
        for name, numbers in self._numbers.items():
            values = whole_numbers(rows[name])
            if values is not None and len(in_range := _between(numbers, values)) <= _MANY:
                searched += 1
                places = _among(values if candidates is None else values[candidates], in_range)
                candidates = places if candidates is None else candidates[places]
        return candidates, candidates is not None and (len(candidates) == 0 or searched == rows.num_columns == 1)

    @cached_property
    def _keys(self) -> pa.Table:
        return distinct(self._given)

    @cached_property
    def _ordered(self) -> tuple[Indices, Numbers]:
        """The order of keys of one column of whole numbers, and the keys in this order."""
        numbers = _numbers(self._given[0])
        order = np.argsort(numbers)
        return order, numbers[order]

    @cached_property
    def _numbered(self) -> pa.Table:
        """The keys, each once, with the number of one that is equal."""
        names = self._given.column_names
        numbers = pa.array(np.arange(self._given.num_rows))
        groups = self._given.append_column(NUMBER, numbers).group_by(names, use_threads=False)
        return groups.aggregate([(NUMBER, "max")]).rename_columns([*names, NUMBER])


def whole_numbers(column: pa.Array | pa.ChunkedArray) -> Numbers | None:
    """Return whole numbers, dates and times as Iceberg's integers; None for other types, and if one is null.

    Example:
        >>> whole_numbers(pa.array([1, 2], pa.date32())).tolist()
        [1, 2]
    """
    data_type = column.type
    if column.null_count:
        return None
    if pa.types.is_date32(data_type):
        column = column.cast(pa.int32())
    elif not (pa.types.is_integer(data_type) or pa.types.is_timestamp(data_type) or pa.types.is_time64(data_type)):
        return None
    return np.asarray(column.cast(pa.int64()).to_numpy())


def _numbers(column: pa.ChunkedArray) -> Numbers:
    """Return the whole numbers of a column that has no others, as `whole_numbers` does."""
    numbers = whole_numbers(column)
    assert numbers is not None
    return numbers


def distinct_numbers(numbers: np.ndarray[Any, np.dtype[T]]) -> np.ndarray[Any, np.dtype[T]]:
    """Return whole numbers in ascending order, each once.

    NumPy's `unique` takes 60 times as long for 200,000 of them: since 2.3 it fills a hash table before it sorts.

    Example:
        >>> distinct_numbers(np.array([3, 1, 3])).tolist()
        [1, 3]
    """
    ascending = np.sort(numbers)
    is_first = np.ones(len(ascending), np.bool_)
    is_first[1:] = ascending[1:] != ascending[:-1]
    return ascending[is_first]


def _between(numbers: Numbers, values: Numbers) -> Numbers:
    """Return the sorted numbers that are neither below nor above all values."""
    if len(values) == 0:
        return _NOTHING
    return numbers[np.searchsorted(numbers, values.min()) : np.searchsorted(numbers, values.max(), "right")]


def _among(values: Numbers, numbers: Numbers) -> Indices:
    """Return the places of the values that are one of some sorted numbers."""
    if len(numbers) == 0:
        return _NOTHING
    if len(numbers) <= _FEW:
        return np.flatnonzero(np.logical_or.reduce([values == number for number in numbers]))
    bits = _bits(len(numbers))
    table = np.zeros(1 << bits, np.bool_)
    table[_hashes(numbers, bits)] = True
    parts = (
        start + np.flatnonzero(table.take(_hashes(values[start : start + _ROWS], bits)))
        for start in range(0, len(values), _ROWS)
    )
    candidates = np.concatenate([_NOTHING, *parts])
    places = np.searchsorted(numbers, values[candidates])
    is_equal = numbers[np.minimum(places, len(numbers) - 1)] == values[candidates]
    matches: Indices = candidates[is_equal]
    return matches


def _bits(count: int) -> int:
    return min(max((count * _BITS_FOR_A_KEY).bit_length(), _LEAST_BITS), _MOST_BITS)


def _hashes(numbers: Numbers, bits: int) -> Numbers:
    """Return the upper bits of each number times a large odd one."""
    return ((numbers.view(np.uint64) * _FACTOR) >> np.uint64(64 - bits)).view(np.int64)
