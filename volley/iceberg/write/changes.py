"""What a snapshot adds to a table and removes from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyiceberg.manifest import DataFile

from volley.iceberg.write.written import WrittenFile

__all__ = ["Changes"]


@dataclass(frozen=True)
class Changes:
    """What a snapshot adds and removes.

    Args:
        added: New data files.
        deletes: New files with positions of rows that are no more.
        removed: Data files of the table that are no more.
    """

    added: Sequence[WrittenFile] = ()
    deletes: Sequence[WrittenFile] = ()
    removed: Sequence[DataFile] = ()

    def __bool__(self) -> bool:
        return bool(self.added or self.deletes or self.removed)

    @property
    def written(self) -> tuple[WrittenFile, ...]:
        """The new files of both kinds."""
        return (*self.added, *self.deletes)
