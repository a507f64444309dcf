"""The local disk of a task, for rows that do not fit in memory."""

from __future__ import annotations

import os
import tempfile

from volley.errors import StorageError

__all__ = ["local_folder", "no_room"]


def local_folder() -> str:
    """Return the first of Spark's local folders; without Spark, the one for temporary files."""
    return os.environ.get("SPARK_LOCAL_DIRS", tempfile.gettempdir()).split(",")[0]


def no_room(place: str, size: int, cause: OSError) -> StorageError:
    """Return the error for rows that can't be kept on a disk.

    Args:
        place: The folder or file.
        size: The bytes that were written there, or are to be.
        cause: What the disk says.
    """
    instead = ", or let spark.local.dir, without Spark TMPDIR, name another folder" if place == local_folder() else ""
    return StorageError(
        f"{size:,} bytes of rows can't be kept in {place}: {cause}",
        hint=f"make room there, or check that it can be written{instead}; then start the job again: nothing is lost",
    )
