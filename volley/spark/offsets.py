"""Asks a reader for the offsets of one run, for Spark's query."""

from __future__ import annotations

from dataclasses import dataclass

from volley.contracts.source import Offset, Reader

__all__ = ["Offsets"]


@dataclass
class Offsets:
    """The offsets of one run.

    Args:
        reader: The run's own copy of the reader.
        target: The last offset that a bounded run reads; None = the reader says at the run's start.
        is_bounded: True if the run ends with the rows that are there at its start.
    """

    reader: Reader
    target: Offset | None
    is_bounded: bool = False

    def latest(self, start: Offset) -> Offset:
        """Return the end of the epoch that begins at `start`.

        Spark's own limit of an epoch is not used: the unit of a reader's limit, rows or files, is up to the source.

        Raises:
            SourceError: If a bounded run finds nothing at all, and the source calls that an error.
        """
        if self.is_bounded and self.target is None:
            self.target = self.reader.latest_offset(start, None, None)
            if self.target == self.reader.initial_offset() and (error := self.reader.nothing()):
                raise error
        return self.reader.latest_offset(start, self.reader.limit, self.target)
