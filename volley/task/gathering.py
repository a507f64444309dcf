"""Gathers small batches between bad rows: steps and writers cost as much for a batch of one row as for a large one."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate

import pyarrow as pa

from volley.contracts.rows import BadRow, PositionedBatch

__all__ = ["gathered"]

_SMALL_ROWS = 4_096
_MOST_BYTES = 4 << 20


def gathered(items: Iterable[PositionedBatch | BadRow]) -> Iterator[PositionedBatch | BadRow]:
    """Yield bad rows at once, and the batches in their order, small ones of equal columns joined.

    Args:
        items: The rows of a split.
    """
    held: list[PositionedBatch] = []
    rows = size = 0
    for item in items:
        if isinstance(item, BadRow):
            yield item
            continue
        count = item.batch.num_rows
        if held and (rows + count > _SMALL_ROWS or size > _MOST_BYTES or not _alike(held[0], item)):
            yield _joined(held)
            held, rows, size = [], 0, 0
        if count >= _SMALL_ROWS:
            yield item
            continue
        held.append(item)
        rows, size = rows + count, size + item.batch.nbytes
    if held:
        yield _joined(held)


def _alike(first: PositionedBatch, other: PositionedBatch) -> bool:
    return bool(first.batch.schema.equals(other.batch.schema))


def _joined(items: Sequence[PositionedBatch]) -> PositionedBatch:
    if len(items) == 1:
        return items[0]
    batch = pa.concat_batches([item.batch for item in items])
    return PositionedBatch(batch, _Places(items))


class _Places:
    """Tells the places of rows of joined batches."""

    def __init__(self, items: Sequence[PositionedBatch]) -> None:
        self._positions: list[Callable[[int], str]] = [item.position for item in items]
        self._starts = [*accumulate((item.batch.num_rows for item in items), initial=0)]

    def __call__(self, row: int) -> str:
        at = bisect_right(self._starts, row) - 1
        return self._positions[at](row - self._starts[at])
