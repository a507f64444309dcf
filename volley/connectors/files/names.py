"""The names of all files that were ever listed, by their hashes: sixteen bytes of memory for each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import compress

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from volley.connectors.files.logged import LoggedFile
from volley.connectors.files.parts import name_of

__all__ = ["Names"]

_HASH = "S16"
_FEW = 4096


class Names:
    """A set of names that grows: a sorted array, and the latest names beside it until they are many."""

    def __init__(self) -> None:
        self._sorted: npt.NDArray[np.bytes_] = np.empty(0, _HASH)
        self._latest: set[bytes] = set()

    def __contains__(self, path: str) -> bool:
        return not self.unknown([LoggedFile(path, 0)])

    def unknown(self, listed: Sequence[LoggedFile]) -> list[LoggedFile]:
        """Return the files that are not among the names, in their order."""
        names = [name_of(file.path) for file in listed]
        is_new = np.array([name not in self._latest for name in names], bool)
        if len(self._sorted):
            asked = np.array(names, _HASH)
            is_new &= self._sorted[np.searchsorted(self._sorted, asked).clip(max=len(self._sorted) - 1)] != asked
        return [*compress(listed, is_new.tolist())]

    def load(self, columns: Iterable[pa.Array]) -> None:
        """Take all names of a log, given as the columns of their hashes."""
        parts = [np.frombuffer(column.buffers()[1], _HASH)[column.offset :][: len(column)].copy() for column in columns]
        self._sorted = np.concatenate([self._sorted, *parts])
        self._sorted.sort()

    def add(self, column: pa.Array) -> None:
        """Add the names of new files, given as the column of their hashes."""
        self._latest.update(column.to_pylist())
        # Sort again when a share of all names is new, so that a name costs the same whatever their number.
        if len(self._latest) > _FEW + len(self._sorted) // 8:
            self._sorted = np.sort(np.concatenate([self._sorted, np.array([*self._latest], _HASH)]))
            self._latest.clear()
