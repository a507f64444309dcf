"""The loads of a source, in their order: which table is read, and what the snapshot of each has seen."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from volley.errors import StorageError
from volley.storage.state_formats import FENCE, LOAD, MERGED_LOADS
from volley.store.journal import Journal

__all__ = ["Fence", "Load", "Loads"]

_HALF, _ALL = 1 << 31, 1 << 32
_FEW = 10


@dataclass(frozen=True)
class Fence:
    """The transactions that a snapshot sees. Two are equal if their snapshots see the same.

    A position in the log is no fence: transactions become visible in another order than they are logged.

    Example:
        >>> Fence.of("730:735:731,733", 5_000)
        Fence(xmax=735, running=(731, 733), position=5000)
    """

    xmax: int  # the first id that was not given yet
    running: tuple[int, ...]  # the ids below it of transactions that were running
    position: int = field(compare=False)  # a position in the log after the commits of all that it sees

    @classmethod
    def of(cls, snapshot: str, position: int) -> Fence:
        """Return the fence of PostgreSQL's text of a snapshot: ``xmin:xmax:running,…``."""
        _, xmax, running = snapshot.split(":")
        return cls(int(xmax), tuple(map(int, filter(None, running.split(",")))), position)

    def has(self, positions: np.ndarray[Any, Any], xids: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Return which transactions the snapshot sees."""
        # The stream has 32 bits of an id: compare within half of their range; later transactions reuse them.
        is_older = (xids - self.xmax) % _ALL >= _HALF
        running = np.array([xid % _ALL for xid in self.running], np.int64)
        return np.asarray((positions < self.position) & is_older & ~np.isin(xids, running))

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Fence:
        """Return the fence of the values that ``asdict`` returns, read from JSON."""
        return cls(values["xmax"], tuple(values["running"]), values["position"])


_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Load:
    """A table that is to be read."""

    number: int  # the load's number; the loads of a source are counted, from 1
    oid: int
    anew: bool = False  # True if rows that sinks have of the table are deleted first
    replaced: int | None = None  # the oid of the table that had its name before; None = it is the first, or the same
    repeats: int | None = None  # the number of the load that it makes up for; None = it is no repetition


class Loads:
    """The loads in a source's state folder, and the fences of those that have begun; neither ever changes.

    Loads that have begun are merged into one file, with their fences, once there are some: a start reads a few files.
    """

    def __init__(self, state: str) -> None:
        # A merged load has its fence.
        self._loads = Journal(f"{state}/loads", LOAD, _load, merged=MERGED_LOADS)
        self._fences = Journal(f"{state}/fences", FENCE, lambda number, values: Fence.from_json(values))

    def listed(self) -> list[Load]:
        """Return all loads, in order."""
        return [load for load, _ in self._loads.entries().values()]

    def add(self, *loads: Load) -> None:
        """Add loads durably, with numbers of their own. One may be there twice if two receivers add it: that changes no
        row.
        """
        self._loads.append(
            *({name: value for name, value in asdict(load).items() if name != "number"} for load in loads)
        )

    def begin(self, loads: Sequence[Load], fence: Fence) -> list[Load]:
        """Record durably what the snapshot that reads loads has seen. If another one read one before, add it again.

        Some sinks may have the rows of the earlier snapshot, as a driver died between two commits, others would get
        those of this one: no fence suits both.

        Returns:
            The loads that the snapshot is to read; an added one makes up for each of the others.
        """
        self._fences.publish({load.number: asdict(fence) for load in loads if load.number > self._loads.end})
        repeated = {load.repeats for load in self.listed()}
        loads = [load for load in loads if load.number not in repeated]
        others = [load for load in loads if self._fence(load.number) != fence]
        for load in others:
            text = "load %d is not repeated, as rows have changed: the next epoch loads the table anew"
            _log.warning(text, load.number)
        self.add(*(Load(0, load.oid, True, load.replaced, load.number) for load in others))
        return [load for load in loads if load not in others]

    def merge(self) -> None:
        """Merge the loads that have begun into one file, if there are some that are not; a start does so."""
        loads, begun = self.listed(), {*self._fences.numbers()}
        end = self._loads.end
        while end < len(loads) and end + 1 in begun:
            end += 1
        if end - self._loads.end >= _FEW:
            self._loads.merge([{**asdict(load), "fence": asdict(self._fence(load.number))} for load in loads[:end]])
        self._delete_merged()

    def _delete_merged(self) -> None:
        self._loads.delete_merged()
        self._fences.delete_before(self._loads.end + 1)

    def with_repetitions(self, count: int) -> int:
        """Return how many loads there are up to the last one that makes up for one of the first `count`."""
        for load in self.listed():
            if load.repeats is not None and load.repeats <= count:
                count = max(count, load.number)
        return count

    def fences(self, count: int) -> Mapping[int, Fence]:
        """Return by the oid of each table what the last one of the first `count` loads has seen of it.

        A load of a table that was made anew has seen all changes of the one that had its name before.
        """
        loads = self.listed()[:count]
        last = {oid: load.number for load in loads for oid in (load.replaced, load.oid) if oid is not None}
        return {oid: self._fence(number) for oid, number in last.items()}

    def _fence(self, number: int) -> Fence:
        if (fence := self._loads[number][1]) is not None:
            return fence
        try:
            return self._fences[number]
        except StorageError:
            # A start has merged it meanwhile.
            self._loads.numbers()
            if (fence := self._loads[number][1]) is None:
                raise
            return fence


def _load(number: int, record: dict[str, Any]) -> tuple[Load, Fence | None]:
    fence = record.get("fence")
    values = {name: value for name, value in record.items() if name not in ("number", "token", "fence")}
    return Load(number, **values), None if fence is None else Fence.from_json(fence)
