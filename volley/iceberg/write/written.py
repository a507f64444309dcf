"""A data file that a task has written."""

from __future__ import annotations

from dataclasses import dataclass

from pyiceberg.manifest import DataFile

__all__ = ["WrittenFile"]


@dataclass(frozen=True)
class WrittenFile:
    """A data file, and the fingerprint of the layout it was written for, which the commit compares with the table's."""

    data_file: DataFile
    layout: str

    @property
    def path(self) -> str:
        """The file's path."""
        return self.data_file.file_path
