"""Sets of key values, which restrict what is read of a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial, reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from volley.columns.compiled import whole
from volley.columns.keys.equality import hashes, row_hashes
from volley.columns.keys.normal import comparable, normal
from volley.columns.keys.search import distinct_numbers
from volley.plan.expression_nodes import ExprNode, joined
from volley.plan.expressions import Expr, col

__all__ = ["Keys"]

_RANGES = 16
# Ranges that leave out less than this part of the values between the least and the greatest are not worth a look.
_LEFT_OUT = 0.2
_SLOT_BITS = 20
_SPREAD = np.uint64(0x9E3779B97F4A7C15)
_Mask = np.ndarray[Any, np.dtype[np.bool_]]
_Words = np.ndarray[Any, np.dtype[np.uint64]]


@dataclass(frozen=True)
class Keys:
    """Values of some columns: rows with other values are not needed. A reader may return more rows than these.

    Args:
        values: The columns, by name; rows may repeat.
    """

    values: pa.Table

    @classmethod
    def of(cls, rows: pa.Table, columns: Sequence[str]) -> Keys:
        """Return the values of some columns of rows."""
        return cls(pa.table([normal(rows[name]) for name in columns], names=list(columns)))

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return list(self.values.column_names)

    @cached_property
    def _hashes(self) -> _Words:
        return distinct_numbers(row_hashes(pa.Table.from_batches([comparable(self._arrays)])))

    @property
    def _arrays(self) -> list[pa.Array]:
        return [whole(column) for column in self.values.columns]

    def __len__(self) -> int:
        return len(self._hashes)

    def renamed(self, names: Mapping[str, str | None]) -> Keys | None:
        """Return the keys under the names that their columns have in a step's input; None if none is there.

        Args:
            names: The input's column for each column; None if it is computed.
        """
        # Of two columns that are one in the input, one is enough.
        known = {source: name for name in self.columns if (source := names.get(name)) is not None}
        return Keys(self.values.select(list(known.values())).rename_columns(list(known))) if known else None

    def select(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows of a batch that have one of the keys, and hardly ever another one."""
        mask = self.mask(batch)
        return batch if mask.all() else batch.filter(pa.array(mask))

    def mask(self, batch: pa.RecordBatch) -> _Mask:
        """Return which rows of a batch have one of the keys; those with the same hash are taken for one."""
        rows = comparable([batch.column(name) for name in self.columns])
        # A hash of each row takes three times as long as a look at the filter, and a binary search ten times.
        if (numbers := _numbers(rows)) is not None:
            mask = self._number_filter[_slots(numbers)]
            candidates = np.flatnonzero(mask)
            hashed = hashes(rows.take(pa.array(candidates)))
        else:
            hashed = hashes(rows)
            mask = self._filter[_slots(hashed)]
            candidates = np.flatnonzero(mask)
            hashed = hashed[candidates]
        places = np.searchsorted(self._hashes, hashed)
        places[places == len(self._hashes)] = 0
        mask[candidates] = self._hashes[places] == hashed
        return mask

    @cached_property
    def _filter(self) -> _Mask:
        """The slots of the keys' hashes."""
        return _with_slots(self._hashes)

    @cached_property
    def _number_filter(self) -> _Mask:
        """The slots of the keys themselves, if they are one column of numbers."""
        (column,) = self._arrays
        known = _numbers(comparable([column.drop_null()]))
        assert known is not None
        return _with_slots(known)

    def predicate(self) -> ExprNode | None:
        """Return a predicate that is true for all rows with one of the keys, to leave out files and pages by it."""
        parts = [part for name in self.columns if (part := _within(name, self.values[name])) is not None]
        return reduce(partial(joined, "and_"), (part.node for part in parts)) if parts else None


def _numbers(rows: pa.RecordBatch) -> _Words | None:
    """Return the values of a single column of numbers or times of 64 bits without nulls; None of other columns."""
    if rows.num_columns != 1 or rows.column(0).null_count:
        return None
    (values,) = rows.columns
    if not (pa.types.is_int64(values.type) or pa.types.is_timestamp(values.type)):
        return None
    numbers: _Words = values.view(pa.int64()).to_numpy().view(np.uint64)
    return numbers


def _slots(words: _Words) -> _Words:
    """Return a number of few bits for each word."""
    slots: _Words = (words * _SPREAD) >> np.uint64(64 - _SLOT_BITS)
    return slots


def _with_slots(words: _Words) -> _Mask:
    """Return for each slot whether a word has it."""
    known = np.zeros(1 << _SLOT_BITS, bool)
    known[_slots(words)] = True
    return known


def _within(name: str, values: pa.ChunkedArray) -> Expr | None:
    """Return the condition that a column is in the ranges that have all its values; None if there is none."""
    known, null = values.drop_null().combine_chunks(), col(name).is_null()
    if not len(known):
        return null
    if pa.types.is_nested(known.type) or isinstance(known.type, pa.BaseExtensionType):
        return None  # Arrow can't sort them.
    try:
        condition = _in_ranges(col(name), known.unique())
    except (ValueError, OverflowError):
        return None  # Arrow supports times that Python has no object for.
    return condition | null if condition is not None and values.null_count else condition


def _in_ranges(column: Expr, values: pa.Array) -> Expr | None:
    t = pa.types
    ordered = values.take(pc.sort_indices(values)) if not t.is_floating(values.type) else values
    if t.is_integer(values.type) or t.is_date(values.type) or t.is_timestamp(values.type):
        starts = _after_gaps(ordered)
        ends = [*(start - 1 for start in starts[1:]), len(ordered) - 1]
    elif t.is_string(values.type) or t.is_decimal(values.type):
        if len(values) <= _RANGES:
            return column.is_in(ordered.to_pylist())
        starts, ends = [0], [len(ordered) - 1]
    else:
        return None
    ranges: list[Expr] = [
        (column >= ordered[low].as_py()) & (column <= ordered[high].as_py())
        for low, high in zip(starts, ends, strict=True)
    ]
    first, *others = ranges
    for other in others:
        first = first | other
    return first


def _after_gaps(ordered: pa.Array) -> list[int]:
    """Return where ranges start that leave out the widest gaps between values."""
    numbers = ordered.cast(pa.int32()) if pa.types.is_date32(ordered.type) else ordered
    values = numbers.cast(pa.int64()).to_numpy().astype(np.float64)
    gaps = np.diff(values)
    widest = np.argsort(gaps, kind="stable")[::-1][: _RANGES - 1]
    if gaps[widest].sum() < _LEFT_OUT * (values[-1] - values[0]):
        return [0]
    return [0, *sorted(int(place) + 1 for place in widest if gaps[place] > 1)]
