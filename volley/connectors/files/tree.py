"""The local files below a folder: what can't be looked into is an error, where fsspec says nothing."""

from __future__ import annotations

import os
import posixpath
from typing import Any

from fsspec.implementations.local import LocalFileSystem

from volley.errors import SourceError

__all__ = ["LocalTree", "searched"]

# ext4 has a folder for its own repairs at its top, for root alone.
_NEVER_READ = (".", "_", "lost+found")


class LocalTree(LocalFileSystem):  # type: ignore[misc]
    """Local files below a folder.

    Args:
        root: The folder, or a glob.
    """

    cachable = False

    def __init__(self, root: str) -> None:
        super().__init__()
        self._root = root

    def ls(self, path: str, detail: bool = False, **options: Any) -> list[Any]:
        try:
            listed: list[Any] = super().ls(path, detail, **options)
        except (FileNotFoundError, NotADirectoryError):
            raise
        except OSError as error:
            if path.rstrip("/") != self._root and posixpath.basename(path).startswith(_NEVER_READ):
                return []
            # fsspec's walk leaves out what raises an OSError.
            raise SourceError(
                f"folder {path} can't be listed: {error}",
                hint="let this user read it, or leave it out: give it a name that begins with _ or .",
            ) from error
        return listed

    def exists(self, path: str, **options: Any) -> bool:
        # That of fsspec takes what it may not see for missing.
        try:
            os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True


def searched(files: Any, root: str) -> Any:
    """Return the file system in which to look for the files of a path: for local ones a `LocalTree`."""
    return LocalTree(root) if type(files) is LocalFileSystem else files
