"""Files with the states of some buckets of a keyed step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from volley.errors import StorageError
from volley.storage.paths import filesystem
from volley.storage.state_formats import STATE
from volley.store.files import OpenFile, open_file

__all__ = ["StateFile", "of_buckets", "open_states", "settled"]

# A file is merged with smaller ones behind it that have together more than this share of its size: while it grows to
# 200 times its size, a key is written again some 13 times, and there are about 5 files.
_SHARE = 0.5


@dataclass(frozen=True)
class StateFile:
    """A file with the states of some buckets: a batch for each of them."""

    url: str
    first: int
    buckets: int
    size: int

    def batch_of(self, bucket: int) -> int | None:
        """Return the number of a bucket's batch; None if the bucket is in another file."""
        number = bucket - self.first
        return number if 0 <= number < self.buckets else None

    def open(self) -> OpenFile:
        """Open it. Raises StorageError if it is missing or damaged, or a newer Volley wrote it."""
        return open_states(self.url, self.size)


def of_buckets(files: Sequence[StateFile], first: int, end: int) -> tuple[StateFile, ...]:
    """Return the files that have states of the buckets from one to another."""
    return tuple(file for file in files if file.first < end and first < file.first + file.buckets)


def settled(files: Sequence[StateFile]) -> int:
    """Return how many of the first files of a step that appends are not to be merged with those behind them.

    Args:
        files: The files of all epochs, those of an epoch together, by bucket.
    """
    starts = [place for place, file in enumerate(files) if file.first == 0]
    count, behind = len(files), 0
    for start, end in reversed([*pairwise([*starts, len(files)])]):
        size = sum(file.size for file in files[start:end])
        if behind > _SHARE * size:
            count = start
        behind += size
    return count


def open_states(url: str, size: int | None = None) -> OpenFile:
    """Open a file of states, which must have so many bytes, if these are known.

    Raises:
        StorageError: If it is missing or damaged, or a newer Volley wrote it.
    """
    try:
        return open_file(url, STATE, _fault, size)
    except FileNotFoundError as error:
        raise _fault(filesystem(url, {})[1], "is missing") from error


def _fault(path: str, fault: str) -> StorageError:
    return StorageError(
        f"state {path} {fault}",
        hint="restore the checkpoint from a backup, or start over: fresh=True reads the sources from the beginning",
    )
