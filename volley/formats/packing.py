"""Packs files into splits of similar cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

__all__ = ["Part", "pack"]

T = TypeVar("T")
Part = tuple[int, int]
"""The number of a part of a file, and the number of its parts."""

_SMALLEST_SPLIT = 4 << 20
_LARGEST_SPLIT = 128 << 20
# The cost of opening a file, as bytes to read: 1 ms of CPU on a local disk, some 20 ms of waiting for an object store.
_OPENING = 1 << 20


def pack(files: Sequence[tuple[T, int, bool]], parallelism: int) -> list[list[tuple[T, Part]]]:
    """Pack files into splits of similar cost, in the files' order: small files together, a large file in parts.

    Args:
        files: Each file with its size in bytes and whether it can be read in parts.
        parallelism: The number of splits that are read at the same time.

    Example:
        >>> pack([("large", 400 << 20, True), ("small", 1 << 20, True)], parallelism=2)
        [[('large', (0, 3))], [('large', (1, 3))], [('large', (2, 3)), ('small', (0, 1))]]
    """
    total = sum(size for _, size, _ in files)
    target = min(_LARGEST_SPLIT, max(_SMALLEST_SPLIT, total / parallelism))
    pieces = [
        ((file, (part, parts)), size / parts + _OPENING)
        for file, size, divides in files
        for parts in [max(1, round(size / target)) if divides else 1]
        for part in range(parts)
    ]
    # Spread many small files over all cores, but not into more splits: each split writes its own data file.
    whole = sum(weight for _, weight in pieces)
    count = max(1, round(total / target), min(parallelism, round(whole / _SMALLEST_SPLIT)))
    splits: list[list[tuple[T, Part]]] = [[] for _ in range(count)]
    before = 0.0
    for piece, weight in pieces:
        middle = before + weight / 2
        splits[min(int(middle / whole * count), count - 1)].append(piece)
        before += weight
    return [split for split in splits if split]
