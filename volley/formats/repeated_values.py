"""Collects the items of lists and maps that are read in turns: the first ones of all values, then the second ones."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import pyarrow as pa

from volley.columns.keys.search import distinct_numbers
from volley.formats.cursors import Integers

__all__ = ["Repeated", "placed", "placed_rows"]


class Repeated:
    """The items of many lists, or the keys and items of many maps.

    Args:
        count: The number of lists.
    """

    def __init__(self, count: int) -> None:
        self._counts = np.zeros(count, np.int64)
        self._rows: list[Integers] = []
        self._places: list[Integers] = []
        self._parts: list[Sequence[pa.Array]] = []

    def add(self, rows: Integers, parts: Sequence[pa.Array]) -> None:
        """Add an item to each of these lists.

        Args:
            parts: The items; of maps the keys, then the items.
        """
        self._rows.append(rows)
        self._places.append(self._counts[rows])
        self._parts.append(parts)
        self._counts[rows] += 1

    @property
    def offsets(self) -> pa.Array:
        """Where each list begins among the items, and where the last one ends."""
        return pa.array(self._ends.astype(np.int32))

    def values(self, part: int, data_type: pa.DataType) -> pa.Array:
        """Return the items in the order of the lists.

        Args:
            part: Which of the parts that were added.
        """
        if not self._parts:
            return pa.nulls(0, data_type)
        items = pa.concat_arrays([parts[part] for parts in self._parts])
        return items if len(self._parts) == 1 else items.take(self._order)

    def has_twice(self, keys: pa.Array) -> bool:
        """Return True if one of the maps has a key twice.

        Args:
            keys: The keys of all maps.
        """
        codes = keys.dictionary_encode().indices.to_numpy()
        maps = np.repeat(np.arange(len(self._counts)), self._counts)
        return len(self._parts) > 1 and len(distinct_numbers(maps * len(codes) + codes)) < len(codes)

    @cached_property
    def _ends(self) -> Integers:
        return np.concatenate(([0], np.cumsum(self._counts)))

    @cached_property
    def _order(self) -> pa.Array:
        rows, places = np.concatenate(self._rows), np.concatenate(self._places)
        order = np.empty(len(rows), np.int64)
        order[self._ends[rows] + places] = np.arange(len(rows))
        return pa.array(order)


def placed(parts: Sequence[tuple[Integers, pa.Array]], count: int, data_type: pa.DataType) -> pa.Array:
    """Return values in their rows; nulls in other rows.

    Args:
        parts: Rows, which no other part has, and their values.
        count: The number of rows.

    Example:
        >>> import numpy as np, pyarrow as pa
        >>> placed([(np.array([2]), pa.array([5])), (np.array([0]), pa.array([6]))], 3, pa.int64()).to_pylist()
        [6, None, 5]
    """
    if not parts:
        return pa.nulls(count, data_type)
    rows = np.concatenate([rows for rows, _ in parts])
    values = pa.concat_arrays([values for _, values in parts])
    places = np.full(count, -1)
    places[rows] = np.arange(len(rows))
    return values.take(pa.array(places, mask=places < 0))


def placed_rows(groups: Sequence[tuple[Integers, Sequence[pa.Array]]], count: int, schema: pa.Schema) -> pa.RecordBatch:
    """Return groups of rows in their places, and nulls in others; arguments as for `placed`."""
    if len(groups) == 1 and len(groups[0][0]) == count:
        return pa.RecordBatch.from_arrays(groups[0][1], schema=schema)
    columns = [
        placed([(rows, arrays[place]) for rows, arrays in groups], count, field.type)
        for place, field in enumerate(schema)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
