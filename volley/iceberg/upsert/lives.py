"""The lives of rows: the changes of a key between two deletions, each of which ends what was before it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from volley.columns.keys.normal import Bools

__all__ = ["Lives", "last_of", "nullable", "taken", "with_column"]

_Numbers = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Lives:
    """The lives of rows, in the order of changes by key, then by what orders them.

    Args:
        starts: For each place in that order, where its life begins.
        ends: Where each key ends.
        rows: Those of the ends that are no deletions: the rows that stay.
    """

    starts: _Numbers
    ends: _Numbers
    rows: _Numbers

    @classmethod
    def of(cls, same_key: Bools, deleted: Bools) -> Lives:
        """Find them.

        Args:
            same_key: For each place, whether the key is the one before.
            deleted: For each place, whether it is a deletion.
        """
        begins = ~same_key
        begins[1:] |= deleted[:-1]
        ends = np.flatnonzero(np.append(~same_key[1:], True))
        return cls(last_of(begins), ends, ends[~deleted[ends]])

    def sources(self, has_value: Bools) -> _Numbers:
        """Return for each row the place of the last change of its life that has a value; -1 = there is none."""
        last = last_of(has_value)[self.rows]
        return np.where(last < self.starts[self.rows], -1, last)


def last_of(flags: Bools) -> _Numbers:
    """Return for each place the last one up to it whose flag is set; -1 = there is none."""
    return np.maximum.accumulate(np.where(flags, np.arange(len(flags)), -1))


def taken(values: pa.ChunkedArray, numbers: _Numbers) -> pa.ChunkedArray:
    """Return the values of these numbers; -1 = null."""
    return values.take(nullable(numbers, numbers < 0))


def nullable(numbers: _Numbers, none: Bools) -> pa.Array:
    """Return numbers of rows to take, some of which are null; Arrow checks these, too."""
    return pa.array(np.where(none, 0, numbers), mask=none)


def with_column(rows: pa.Table, name: str, values: pa.ChunkedArray | pa.Array) -> pa.Table:
    """Return rows with other values in one of their columns."""
    return rows.set_column(rows.column_names.index(name), rows.schema.field(name), values)
