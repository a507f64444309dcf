"""A data file that a task has written."""

from __future__ import annotations

from dataclasses import dataclass

from pyiceberg.manifest import DataFile

__all__ = ["WrittenFile"]


@dataclass(frozen=True)
class WrittenFile:
    """A data file, and the layout it was written for: the committer compares that with the table's by then."""

    data_file: DataFile
    layout: str

    @property
    def path(self) -> str:
        """Where it is."""
        return self.data_file.file_path
