"""What a snapshot of the database has seen, by which the stream continues exactly where the initial load ends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

__all__ = ["Fence"]

_HALF, _ALL = 1 << 31, 1 << 32


@dataclass(frozen=True)
class Fence:
    """The transactions that a snapshot sees. Two are equal if their snapshots see the same.

    A position in the log is no fence: transactions become visible in another order than they are logged.

    Args:
        xmax: The first id that was not given yet.
        running: The ids below it of transactions that were running.
        position: A position in the log after the commits of all that it sees.

    Example:
        >>> Fence.of("730:735:731,733", 5_000)
        Fence(xmax=735, running=(731, 733), position=5000)
    """

    xmax: int
    running: tuple[int, ...]
    position: int = field(compare=False)

    @classmethod
    def of(cls, snapshot: str, position: int) -> Fence:
        """Return the fence of PostgreSQL's text of a snapshot: ``xmin:xmax:running,…``."""
        _, xmax, running = snapshot.split(":")
        return cls(int(xmax), tuple(map(int, filter(None, running.split(",")))), position)

    def has(self, positions: np.ndarray[Any, Any], xids: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Return which transactions the snapshot sees.

        Args:
            positions: The positions of their commits.
            xids: The lower 32 bits of their ids.
        """
        # The stream has 32 bits of an id: compare within half of their range; later transactions reuse them.
        is_older = (xids - self.xmax) % _ALL >= _HALF
        running = np.array([xid % _ALL for xid in self.running], np.int64)
        return np.asarray((positions < self.position) & is_older & ~np.isin(xids, running))

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Fence:
        """Return the fence of the values that ``asdict`` returns, read from JSON."""
        return cls(values["xmax"], tuple(values["running"]), values["position"])
