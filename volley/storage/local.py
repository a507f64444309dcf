"""The local disk of a task, for rows that do not fit in memory."""

from __future__ import annotations

import os
import tempfile

from volley.errors import StorageError

__all__ = ["local_folder", "no_room"]


def local_folder() -> str:
    """Return the first of Spark's local folders; without Spark, the one for temporary files."""
    return os.environ.get("SPARK_LOCAL_DIRS", tempfile.gettempdir()).split(",")[0]


def no_room(folder: str, size: int, cause: OSError) -> StorageError:
    """Return the error for rows that can't be written to the local disk.

    Args:
        folder: The folder on it.
        size: The bytes of the rows.
        cause: What the disk says.
    """
    return StorageError(
        f"{size:,} bytes of rows can't be kept on the local disk, in {folder}: {cause}",
        hint="make room there, or let spark.local.dir, without Spark TMPDIR, name a folder with more; then start the "
        "job again: nothing is lost",
    )
