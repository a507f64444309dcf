"""Finds the delete files that apply to each data file, by Iceberg's rules of sequence numbers, partitions and paths."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Hashable, Iterable

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestContent, ManifestFile
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import VoidTransform

from volley.iceberg.layout.partitions import exact
from volley.iceberg.read.entries import Content, FileEntry, entries_of
from volley.iceberg.schema.types import PATH_ID

__all__ = ["DeleteIndex", "concerns", "only_file", "unpartitioned_specs"]


def unpartitioned_specs(table: TableMetadata) -> set[int]:
    """Return the ids of the partition specs without partitions, also of those whose fields were all dropped."""
    return {
        spec_id
        for spec_id, spec in table.specs().items()
        if all(isinstance(part.transform, VoidTransform) for part in spec.fields)
    }


class DeleteIndex:
    """The live delete files of a snapshot.

    Args:
        deletes: The delete files, those of positions with the bounds of `PATH_ID`.
        unpartitioned: The ids of the specs whose equality deletes apply to all partitions of all specs.
    """

    def __init__(self, deletes: Iterable[FileEntry], unpartitioned: set[int]) -> None:
        self._everywhere = _Deletes()
        self._by_keys: dict[Hashable, _Deletes] = {}
        self._by_positions: dict[Hashable, _Deletes] = {}
        self._by_path: dict[str, _Deletes] = {}
        self._vectors: dict[str, _Deletes] = {}
        for delete in deletes:
            self._add(delete, unpartitioned)

    def _add(self, delete: FileEntry, unpartitioned: set[int]) -> None:
        if delete.content == Content.EQUALITY_DELETES:
            everywhere = delete.spec_id in unpartitioned
            same = self._everywhere if everywhere else self._by_keys.setdefault(_partition(delete), _Deletes())
            same.add(delete.without_statistics())
        elif (path := only_file(delete)) is not None:
            by_path = self._by_path if delete.blob_offset is None else self._vectors
            by_path.setdefault(path, _Deletes()).add(delete.naming_only(path))
        else:
            self._by_positions.setdefault(_partition(delete), _Deletes()).add(delete)

    def of(self, file: FileEntry) -> tuple[FileEntry, ...]:
        """Return the delete files that apply to a data file; those that are known to have none of its rows are not."""
        number = file.sequence_number
        partition = _partition(file) if self._by_keys or self._by_positions else None
        positions: tuple[FileEntry, ...] = ()
        if file.path in self._vectors:
            positions = self._vectors[file.path].since(number)
        if not positions:
            # A deletion vector has the positions of all delete files that it follows.
            by_partition = self._by_positions.get(partition, _NO_DELETES).since(number)
            positions = (
                *self._by_path.get(file.path, _NO_DELETES).since(number),
                *(delete for delete in by_partition if _may_name(delete, file.path)),
            )
        # Equality deletes don't apply to rows that were added together with them.
        by_keys = self._by_keys.get(partition, _NO_DELETES).since(number + 1)
        return *positions, *by_keys, *self._everywhere.since(number + 1)


class _Deletes:
    """Delete files in the order of their sequence numbers."""

    def __init__(self) -> None:
        self._files: list[FileEntry] = []
        self._suffixes: dict[int, tuple[FileEntry, ...]] = {}
        self._is_sorted = True

    def add(self, delete: FileEntry) -> None:
        self._files.append(delete)
        self._is_sorted = False

    def since(self, number: int) -> tuple[FileEntry, ...]:
        """Return the files with this sequence number or a greater one."""
        if not self._files:
            return ()
        if not self._is_sorted:
            self._files.sort(key=_sequence_number)
            self._is_sorted = True
        start = bisect_left(self._files, number, key=_sequence_number)
        if start not in self._suffixes:
            self._suffixes[start] = tuple(self._files[start:])
        return self._suffixes[start]


_NO_DELETES = _Deletes()


def _sequence_number(file: FileEntry) -> int:
    return file.sequence_number


def _partition(file: FileEntry) -> Hashable:
    return file.spec_id, tuple(map(exact, file.partition))


def only_file(delete: FileEntry) -> str | None:
    """Return the only data file that a position-delete file or a deletion vector names, if it is known."""
    if delete.referenced_file is not None:
        return delete.referenced_file
    low, high = delete.lower.get(PATH_ID), delete.upper.get(PATH_ID)
    return low.decode() if low is not None and low == high else None


def concerns(io: FileIO, manifest: ManifestFile, paths: Collection[str]) -> bool:
    """Return True if a manifest has one of some files, or a delete file that names no other data file than one of them.

    Raises:
        StorageError: If the manifest can't be read, or is damaged.
    """
    is_data = manifest.content == ManifestContent.DATA
    entries = entries_of(io, manifest, () if is_data else {PATH_ID})
    return any(entry.is_live and (entry.path in paths or only_file(entry) in paths) for entry in entries)


def _may_name(delete: FileEntry, path: str) -> bool:
    """Return True if the bounds of the paths in a position-delete file, which may be truncated, include a path."""
    low, high = delete.lower.get(PATH_ID), delete.upper.get(PATH_ID)
    name = path.encode()
    return (low is None or low <= name) and (high is None or name <= high or name.startswith(high))
