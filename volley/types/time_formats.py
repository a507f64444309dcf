"""The directives of formats of times, as of C's strptime and strftime."""

from __future__ import annotations

import re

__all__ = ["READ", "unknown_directives"]

READ = "aAbBdDeFhHIjmMpRSTyYz%"
"""Directives of formats by which texts are read: those that alone say the same in any locale."""


def unknown_directives(format: str, known: str) -> list[str]:
    """Return the directives of a format that are not among some letters.

    Example:
        >>> unknown_directives("%d.%m.%Y %Q", READ)
        ['%Q']
    """
    return sorted({each for each in re.findall("%.?", format, re.DOTALL) if each[1:] not in set(known)})
