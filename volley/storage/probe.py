"""Writes, reads and deletes a file, to see whether a folder can be used."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from volley.errors import StorageError
from volley.secrets import redact_uri, redacted
from volley.storage.paths import filesystem

__all__ = ["write_and_delete"]


def write_and_delete(folder: str, options: Mapping[str, Any]) -> str:
    """Write a small file in a folder, read it and delete it; return what was done, in words.

    Folders that had to be made for it are deleted too.

    Args:
        folder: A path or URL; it may not exist yet.
        options: Options of the fsspec file system.

    Raises:
        StorageError: If one of the three fails.
    """
    files, root = filesystem(folder, options)
    made = [parent for parent in _parents(root) if not files.exists(parent)]
    path, action = f"{root}/.volley-check-{uuid.uuid4().hex}", "written"
    try:
        files.makedirs(root, exist_ok=True)
        files.pipe_file(path, b"volley")
        action = "read"
        files.cat_file(path)
        action = "deleted"
        files.rm_file(path)
        for parent in made:
            files.rmdir(parent)
    except Exception as error:
        raise StorageError(
            f"a file in {redact_uri(folder)} can't be {action}: {redact_uri(str(error))}",
            hint="check that the folder exists and who may write there",
        ) from redacted(error)
    return f"{redact_uri(folder)}: written, read and deleted"


def _parents(path: str) -> list[str]:
    """Return a folder and those that it is in, the innermost first."""
    parts = path.split("/")
    return ["/".join(parts[:length]) for length in range(len(parts), 1, -1)]
