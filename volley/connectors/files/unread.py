"""How much of what a file log has is not read yet."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from volley.connectors.files.log import FileLog
from volley.contracts.reports import Lag
from volley.contracts.source import Offset

__all__ = ["Unread"]


@dataclass
class Unread:
    """The entries of a log behind an offset, which moves on: each entry is looked at twice, however many wait."""

    log: FileLog
    source: str  # the source's name in metrics
    _first: int = field(default=0, init=False)
    _end: int = field(default=0, init=False)
    _bytes: int = field(default=0, init=False)

    def lag(self, offset: Offset) -> Lag:
        """Return how many files, found so far, are behind an offset, their bytes, and the age of the oldest."""
        first = self.log.count(offset)
        self._move(first, len(self.log))
        return Lag(self.source, seconds=self._age(), files=self._end - first, bytes=self._bytes)

    def _move(self, first: int, end: int) -> None:
        if first < self._first or end < self._end:
            self._first = self._end = self._bytes = 0
        self._bytes += self.log.size(self._end, end) - self.log.size(self._first, first)
        self._first, self._end = first, end

    def _age(self) -> float | None:
        """Return the age of the first file, in seconds; None = its storage does not tell."""
        if self._first == self._end:
            return 0.0
        (oldest,) = self.log.files(self._first, self._first + 1)
        return None if oldest.modified is None else max(0.0, time.time() - oldest.modified)
