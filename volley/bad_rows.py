"""A row that can't be used, and where it stands in its source."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["BadRow", "PositionedBatch", "numbered"]


@dataclass(frozen=True)
class BadRow:
    """A row that can't be used, as it goes to a dead letter.

    Args:
        payload: The row as it stands in the source; if it was read already, as JSON.
        error: What is wrong with it.
        position: Where it stands in the source.
    """

    payload: str
    error: str
    position: str


@dataclass(frozen=True)
class PositionedBatch:
    """Rows of a source that were read, and where each stands.

    Args:
        batch: The rows.
        position: From a row's number in the batch to its place in the source; asked for bad rows only, in ascending
            order and once each.
    """

    batch: pa.RecordBatch
    position: Callable[[int], str]


def numbered(batches: Iterator[pa.RecordBatch], place: str, before: int = 0) -> Iterator[PositionedBatch]:
    """Batches that follow each other in one place: their rows are counted from 1.

    Args:
        batches: The batches.
        place: What errors call the place.
        before: The rows in front of them.
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
