"""The files that tasks have written, and those that a snapshot adds to a table and removes from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyiceberg.manifest import DataFile

__all__ = ["SnapshotFiles", "WrittenFile"]


@dataclass(frozen=True)
class WrittenFile:
    """A data file, and the fingerprint of the layout it was written for, which the commit compares with the table's."""

    data_file: DataFile
    layout: str

    @property
    def path(self) -> str:
        """The file's path."""
        return self.data_file.file_path


@dataclass(frozen=True)
class SnapshotFiles:
    """The files that a snapshot adds and removes.

    Args:
        removed_deletes: The locations of delete files to remove from it.
        tombstones: Files of changes that are remembered, such as deletions, for the branch that has them.
        forgotten: Files of that branch to remove from it.
    """

    added: Sequence[WrittenFile] = ()
    deletes: Sequence[WrittenFile] = ()
    removed: Sequence[DataFile] = ()
    removed_deletes: Sequence[str] = ()
    tombstones: Sequence[WrittenFile] = ()
    forgotten: Sequence[DataFile] = ()

    def __bool__(self) -> bool:
        return self.changes_rows or bool(self.tombstones or self.forgotten)

    @property
    def changes_rows(self) -> bool:
        """True if the table's rows change."""
        return bool(self.added or self.deletes or self.removed)

    @property
    def written(self) -> tuple[WrittenFile, ...]:
        """The new files."""
        return (*self.added, *self.deletes, *self.tombstones)
