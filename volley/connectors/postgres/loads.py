"""The loads of a source, in their order: which table is read, and what the snapshot of each has seen."""

from __future__ import annotations

import logging
import posixpath
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from volley.connectors.postgres.fence import Fence
from volley.errors import StorageError
from volley.storage.durable import create_all_durably, write_durably
from volley.storage.paths import filesystem
from volley.storage.remembered import MALFORMED, damaged, malformed
from volley.storage.state_formats import FENCE, LOAD, MERGED_LOADS

__all__ = ["Load", "Loads"]

_log = logging.getLogger(__name__)
# A load or a fence; with the prefix the loads up to one.
_NAMED = re.compile(r"(to-)?(\d{6,})\.json")
_FEW = 10


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

    Loads that have begun are merged into one file, with their fences, once there are some: a start reads a few files.

    Args:
        state: The fsspec URL of the source's state folder.
    """

    state: str
    _known: dict[int, Load] = field(default_factory=dict)
    _fences: dict[int, Fence] = field(default_factory=dict)
    # The number of loads that are known from a merged file.
    _merged: int = 0

    def listed(self) -> list[Load]:
        """Return all loads, in order."""
        try:
            return self._list()
        except FileNotFoundError:
            # Merged between the listing and the reading.
            return self._list()

    def _list(self) -> list[Load]:
        files, folder = filesystem(self._folder, {})
        if not files.exists(folder):
            return []
        files.invalidate_cache(folder)
        names = [_NAMED.fullmatch(posixpath.basename(path)) for path in files.ls(folder, detail=False)]
        merged = max((int(name[2]) for name in names if name and name[1]), default=0)
        if merged > self._merged:
            self._read_merged(merged)
        for number in (int(name[2]) for name in names if name and not name[1]):
            if number not in self._known:
                self._known[number] = self._read(number)[0]
        return [self._known[number] for number in sorted(self._known)]

    def add(self, *loads: Load) -> None:
        """Add loads durably, with numbers of their own. One may be there twice if two receivers add it: that changes no
        row.
        """
        records = [{name: value for name, value in asdict(load).items() if name != "number"} for load in loads]
        while records:
            first = len(self.listed()) + 1
            tokens = {number: uuid.uuid4().hex for number in range(first, first + len(records))}
            self._create({number: {**records[number - first], "token": token} for number, token in tokens.items()})
            # Of those that another receiver has not added meanwhile.
            added = [self._read(number)[1] == token for number, token in tokens.items()]
            records = [record for record, is_added in zip(records, added, strict=True) if not is_added]

    def _create(self, records: Mapping[int, Mapping[str, Any]]) -> None:
        files, folder = filesystem(self._folder, {})
        create_all_durably(
            files, {f"{folder}/{number:06}.json": LOAD.dump(record) for number, record in records.items()}
        )

    def begin(self, loads: Sequence[Load], fence: Fence) -> list[Load]:
        """Record durably what the snapshot that reads loads has seen. If another one read one before, add it again.

        Some sinks may have the rows of the earlier snapshot, as a driver died between two commits, others would get
        those of this one: no fence suits both.

        Returns:
            The loads that the snapshot is to read; an added one makes up for each of the others.
        """
        files, folder = filesystem(f"{self.state}/fences", {})
        paths = [f"{folder}/{load.number:06}.json" for load in loads if load.number not in self._fences]
        create_all_durably(files, dict.fromkeys(paths, FENCE.seal(fence.to_json())))
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
        loads = self.listed()
        fences, folder = filesystem(f"{self.state}/fences", {})
        begun = {posixpath.basename(path) for path in fences.ls(folder, detail=False)} if fences.exists(folder) else ()
        end = self._merged
        while end < len(loads) and f"{end + 1:06}.json" in begun:
            end += 1
        if end - self._merged >= _FEW:
            records = [{**asdict(load), "fence": asdict(self._fence(load.number))} for load in loads[:end]]
            write_durably(*self._merged_file(end), MERGED_LOADS.dump(records))
            self._merged = end
        self._delete_merged()

    def _delete_merged(self) -> None:
        """Delete the files of loads that are in the last merged file, also those that a process left which died."""
        for folder in ("loads", "fences"):
            files, root = filesystem(f"{self.state}/{folder}", {})
            files.invalidate_cache(root)
            for path in files.ls(root, detail=False) if files.exists(root) else ():
                match = _NAMED.fullmatch(posixpath.basename(path))
                if match and int(match[2]) <= self._merged - (match[1] is not None):
                    files.rm_file(path)

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
            try:
                self._fences[number] = self._read_fence(number)
            except StorageError:
                # Merged by a start.
                self.listed()
                if number not in self._fences:
                    raise
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

    def _read_merged(self, end: int) -> None:
        files, path = self._merged_file(end)
        try:
            for record in MERGED_LOADS.load(files.cat_file(path), path):
                fence = record.pop("fence")
                load = Load(**record)
                self._known[load.number] = load
                self._fences[load.number] = Fence(fence["xmax"], tuple(fence["running"]), fence["position"])
            self._merged = end
        except MALFORMED as error:
            raise malformed(path, error) from error

    def _merged_file(self, end: int) -> tuple[Any, str]:
        return filesystem(f"{self._folder}/to-{end:06}.json", {})

    def _file(self, number: int) -> tuple[Any, str]:
        return filesystem(f"{self._folder}/{number:06}.json", {})

    def _fence_file(self, number: int) -> tuple[Any, str]:
        return filesystem(f"{self.state}/fences/{number:06}.json", {})

    @property
    def _folder(self) -> str:
        return f"{self.state}/loads"
