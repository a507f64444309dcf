"""The loads of a source, in their order: which table is read, and what the snapshot of each has seen."""

from __future__ import annotations

import json
import posixpath
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from volley.connectors.postgres.fence import Fence
from volley.storage.durable import create_durably
from volley.storage.paths import filesystem
from volley.storage.remembered import damaged, read_or_create

__all__ = ["Load", "Loads"]


@dataclass(frozen=True)
class Load:
    """A table that is to be read.

    Args:
        number: The load's number; the loads of a source are counted, from 1.
        oid: The table's oid.
        anew: True if rows that sinks have of the table are deleted first.
        replaced: The oid of the table that had its name before; None = it is the first, or the same.
    """

    number: int
    oid: int
    anew: bool = False
    replaced: int | None = None


@dataclass
class Loads:
    """The loads in a source's state folder. Each is a file that is created exclusively and never changes.

    Args:
        state: The fsspec URL of the source's state folder.
    """

    state: str
    _known: dict[int, Load] = field(default_factory=dict)

    def listed(self) -> list[Load]:
        """Return all loads, in order."""
        files, folder = filesystem(self._folder, {})
        if not files.exists(folder):
            return []
        files.invalidate_cache(folder)
        names = (posixpath.basename(path) for path in files.ls(folder, detail=False))
        for number in (int(name[:-5]) for name in names if name.endswith(".json")):
            if number not in self._known:
                record = self._read(number)
                self._known[number] = Load(number, record["oid"], record["anew"], record["replaced"])
        return [self._known[number] for number in sorted(self._known)]

    def add(self, oid: int, anew: bool = False, replaced: int | None = None) -> None:
        """Add a load durably. It may be there twice if two receivers add it: that changes no row."""
        token = uuid.uuid4().hex
        while True:
            number = len(self.listed()) + 1
            record = {"oid": oid, "anew": anew, "replaced": replaced, "token": token}
            create_durably(*self._file(number), json.dumps(record).encode())
            if self._read(number)["token"] == token:
                return

    def keep_fence(self, load: Load, fence: Fence) -> None:
        """Keep what the snapshot of a load has seen; the oldest one, if the load is repeated.

        A sink may have rows of an earlier snapshot, if a driver died between two commits.
        """
        read_or_create(f"{self.state}/fences/{load.number:06}.json", fence.to_json, Fence.from_json)

    def fences(self, count: int) -> Mapping[int, Fence]:
        """Return by the oid of each table what the last one of the first `count` loads has seen of it.

        A load of a table that was made anew has seen all changes of the one that had its name before.
        """
        loads = self.listed()[:count]
        last = {oid: load.number for load in loads for oid in (load.replaced, load.oid) if oid is not None}
        return {oid: self._fence(number) for oid, number in last.items()}

    def _fence(self, number: int) -> Fence:
        files, path = filesystem(f"{self.state}/fences/{number:06}.json", {})
        try:
            return Fence.from_json(files.cat_file(path))
        except (FileNotFoundError, ValueError) as error:
            raise damaged(path, "is missing or damaged") from error

    def _read(self, number: int) -> dict[str, Any]:
        files, path = self._file(number)
        try:
            record: dict[str, Any] = json.loads(files.cat_file(path))
        except ValueError as error:
            raise damaged(path, "is damaged") from error
        return record

    def _file(self, number: int) -> tuple[Any, str]:
        return filesystem(f"{self._folder}/{number:06}.json", {})

    @property
    def _folder(self) -> str:
        return f"{self.state}/loads"
