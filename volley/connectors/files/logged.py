"""A file that a FileSource has listed."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["LoggedFile"]


@dataclass(frozen=True)
class LoggedFile:
    """A file as it was when it was first listed.

    Args:
        path: Its path in the file system.
        size: Its size in bytes.
        modified: When it was last written, in seconds since 1970; None = unknown, as in logs of Volley 0.2.
    """

    path: str
    size: int
    modified: float | None = None
