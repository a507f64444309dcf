"""Places in the binary log as one number."""

from __future__ import annotations

import re

from volley.errors import SourceError

__all__ = ["FILE_BITS", "log_file", "position_of"]

FILE_BITS = 40
_NUMBER = re.compile(r"(.*)\.(\d+)")


def position_of(file: str, offset: int) -> int:
    """Return the number of a place, which is larger for later ones.

    Example:
        >>> position_of("binlog.000002", 4) - position_of("binlog.000001", 4) == 1 << 40
        True
    """
    if (match := _NUMBER.fullmatch(file)) is None:
        raise SourceError(f"the binary log's file {file!r} has no number", hint="name it by log_bin, without a dot")
    return int(match[2]) << FILE_BITS | offset


def log_file(position: int, example: str) -> tuple[str, int]:
    """Return the file of a place and the offset there, given the name of another file of that log.

    Example:
        >>> log_file(position_of("binlog.000002", 4), "binlog.000017")
        ('binlog.000002', 4)
    """
    return f"{example.rpartition('.')[0]}.{position >> FILE_BITS:06}", position & ((1 << FILE_BITS) - 1)
