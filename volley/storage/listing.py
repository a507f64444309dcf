"""Reads the details of files that fsspec file systems list."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

__all__ = ["modified_time"]

_KEYS = ("mtime", "LastModified", "last_modified", "updated", "created")


def modified_time(info: Mapping[str, Any]) -> float | None:
    """Return when a file was last written, in seconds since 1970; None if its file system does not report it.

    Args:
        info: The file's details as fsspec returns them; each file system has its own key for the time.

    Example:
        >>> modified_time({"name": "a.json", "LastModified": "1970-01-01T00:01:00Z"})
        60.0
    """
    time = next((info[key] for key in _KEYS if info.get(key)), None)
    if isinstance(time, str):
        time = datetime.fromisoformat(time)
    return time.timestamp() if isinstance(time, datetime) else time
