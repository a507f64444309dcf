"""The local disk of a task, for rows that do not fit in memory."""

from __future__ import annotations

import os
import tempfile

__all__ = ["local_folder"]


def local_folder() -> str:
    """Return the first of Spark's local folders; without Spark, the one for temporary files."""
    return os.environ.get("SPARK_LOCAL_DIRS", tempfile.gettempdir()).split(",")[0]
