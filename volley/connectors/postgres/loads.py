"""The loads of a source, in their order: which table is read, and what the snapshot of each has seen."""

from __future__ import annotations

import logging
import posixpath
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from volley.connectors.postgres.fence import Fence
from volley.storage.durable import create_durably
from volley.storage.paths import filesystem
from volley.storage.remembered import MALFORMED, damaged, malformed
from volley.storage.state_formats import FENCE, LOAD

__all__ = ["Load", "Loads"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Load:
    """A table that is to be read.

    Args:
        number: The load's number; the loads of a source are counted, from 1.
        oid: The table's oid.
        anew: True if rows that sinks have of the table are deleted first.
        replaced: The oid of the table that had its name before; None = it is the first, or the same.
        repeats: The number of the load that it makes up for; None = it is no repetition.
    """

    number: int
    oid: int
    anew: bool = False
    replaced: int | None = None
    repeats: int | None = None


@dataclass
class Loads:
    """The loads in a source's state folder. Each is a file that is created exclusively and never changes.

    Args:
        state: The fsspec URL of the source's state folder.
    """

    state: str
    _known: dict[int, Load] = field(default_factory=dict)
    _fences: dict[int, Fence] = field(default_factory=dict)

    def listed(self) -> list[Load]:
        """Return all loads, in order."""
        files, folder = filesystem(self._folder, {})
        if not files.exists(folder):
            return []
        files.invalidate_cache(folder)
        names = (posixpath.basename(path) for path in files.ls(folder, detail=False))
        for number in (int(name[:-5]) for name in names if name.endswith(".json")):
            if number not in self._known:
                self._known[number] = self._read(number)[0]
        return [self._known[number] for number in sorted(self._known)]

    def add(self, oid: int, anew: bool = False, replaced: int | None = None, repeats: int | None = None) -> None:
        """Add a load durably. It may be there twice if two receivers add it: that changes no row."""
        token = uuid.uuid4().hex
        while True:
            number = len(self.listed()) + 1
            record = {"oid": oid, "anew": anew, "replaced": replaced, "repeats": repeats, "token": token}
            create_durably(*self._file(number), LOAD.dump(record))
            if self._read(number)[1] == token:
                return

    def begin(self, load: Load, fence: Fence) -> bool:
        """Record durably what the snapshot that reads a load has seen. If another one did before, add a load instead.

        Some sinks may have the rows of the earlier snapshot, as a driver died between two commits, others would get
        those of this one: no fence suits both.

        Returns:
            True if the snapshot is to read the load; False if the added load makes up for it.
        """
        create_durably(*self._fence_file(load.number), FENCE.seal(fence.to_json()))
        if any(later.repeats == load.number for later in self.listed()):
            return False
        if self._fence(load.number) == fence:
            return True
        _log.warning("load %d is not repeated, as rows have changed: the next epoch loads the table anew", load.number)
        self.add(load.oid, anew=True, replaced=load.replaced, repeats=load.number)
        return False

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
        # An epoch needs those of all tables, and files of a fence never change.
        if number not in self._fences:
            self._fences[number] = self._read_fence(number)
        return self._fences[number]

    def _read_fence(self, number: int) -> Fence:
        files, path = self._fence_file(number)
        try:
            return Fence.from_json(FENCE.unseal(files.cat_file(path), path))
        except (FileNotFoundError, *MALFORMED) as error:
            raise damaged(path, "is missing or damaged") from error

    def _read(self, number: int) -> tuple[Load, str]:
        """Return a load with the token of who has added it."""
        files, path = self._file(number)
        try:
            record: dict[str, Any] = LOAD.load(files.cat_file(path), path)
            token = str(record.pop("token"))
            return Load(number, **record), token
        except MALFORMED as error:
            raise malformed(path, error) from error

    def _file(self, number: int) -> tuple[Any, str]:
        return filesystem(f"{self._folder}/{number:06}.json", {})

    def _fence_file(self, number: int) -> tuple[Any, str]:
        return filesystem(f"{self.state}/fences/{number:06}.json", {})

    @property
    def _folder(self) -> str:
        return f"{self.state}/loads"
