"""Targets of the fuzzer: files that are written well, and the code that reads them again."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

__all__ = ["Target"]


class Target(ABC):
    """Files of one kind, which are read through what a user or a contract sees.

    Attributes:
        name: Its name.
        sealed: True if the file has a checksum: another value than the original's is wrong.
    """

    name: str
    sealed: bool = False

    @abstractmethod
    def make(self, folder: Path) -> list[Path]:
        """Write valid files into an empty folder, and return those that may be mutated."""

    @abstractmethod
    def read(self, folder: Path) -> Any:
        """Read the files of the folder, and return a value that compares.

        Raises:
            VolleyError: If they can't be read.
        """

    def is_right(self, value: Any, original: Any, file: Path) -> bool:
        """Return True if a value may come from a mutated file. Without a checksum, one that another judge reads.

        Args:
            value: What was read.
            original: What was read before the mutation.
            file: The mutated file.
        """
        return not self.sealed or value == original
