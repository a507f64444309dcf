"""Rows that can't be processed, and the position of each row in its source."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["BadRow", "PositionedBatch", "numbered"]


@dataclass(frozen=True)
class BadRow:
    """A row that can't be processed, as a dead letter stores it.

    Args:
        payload: The row: raw text from the source, or JSON if it was parsed already.
        error: Why it can't be processed.
        position: Its place in the source: file and line, or topic, partition and offset.
    """

    payload: str
    error: str
    position: str


@dataclass(frozen=True)
class PositionedBatch:
    """A batch, and a function from row number to source position (file and line, topic and offset).

    Args:
        batch: The rows.
        position: Returns the position of the row with this number (from 0) in the batch. Called for bad rows only,
            once each, in ascending order.
    """

    batch: pa.RecordBatch
    position: Callable[[int], str]


def numbered(batches: Iterator[pa.RecordBatch], place: str, before: int = 0) -> Iterator[PositionedBatch]:
    """Yield each batch with positions that number its rows within one place, from 1.

    Args:
        batches: Consecutive batches of the place.
        place: The place as errors name it, such as a file or a split.
        before: How many rows of the place come before the first batch.
    """
    for batch in batches:
        yield PositionedBatch(batch, _Numbered(place, before + 1))
        before += batch.num_rows


@dataclass(frozen=True)
class _Numbered:
    place: str
    first: int

    def __call__(self, row: int) -> str:
        return f"{self.place}, row {self.first + row}"
