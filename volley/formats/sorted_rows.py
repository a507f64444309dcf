"""Units of a text or messages, sorted into rows and faults."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from volley.contracts.rows import BadRow, PositionedBatch

__all__ = ["Sorted", "joined"]


@dataclass(frozen=True)
class Sorted:
    """What has become of numbered units, such as lines or messages.

    Args:
        batches: The rows of the good ones.
        numbers: For each row, the number of its unit; ascending.
        faults: Why the other units are bad, by their numbers; ascending.
    """

    batches: Sequence[pa.RecordBatch]
    numbers: Sequence[int]
    faults: Mapping[int, str]

    @cached_property
    def batch(self) -> pa.RecordBatch:
        """The rows as one batch; there must be a batch."""
        return self.batches[0] if len(self.batches) == 1 else pa.concat_batches(self.batches)

    def items(
        self, position: Callable[[int], str], bad_row: Callable[[int, str], BadRow]
    ) -> Iterator[PositionedBatch | BadRow]:
        """Yield rows and bad rows in the order of the units.

        Args:
            position: Returns the place of a unit.
            bad_row: Returns a unit with a fault as a bad row.
        """
        start = 0
        for number, fault in self.faults.items():
            end = bisect_left(self.numbers, number, start)
            yield from self._rows(start, end, position)
            yield bad_row(number, fault)
            start = end
        yield from self._rows(start, len(self.numbers), position)

    def _rows(self, start: int, end: int, position: Callable[[int], str]) -> Iterator[PositionedBatch]:
        if end > start:
            rows = self.batch.slice(start, end - start)
            yield PositionedBatch(rows, lambda row: position(self.numbers[start + row]))


def joined(pieces: Sequence[Sorted]) -> Sorted:
    """Return several as one; their rows are in order."""
    faults = {number: fault for piece in pieces for number, fault in piece.faults.items()}
    return Sorted(
        [batch for piece in pieces for batch in piece.batches],
        [number for piece in pieces for number in piece.numbers],
        dict(sorted(faults.items())),
    )
