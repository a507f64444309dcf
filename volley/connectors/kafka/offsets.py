"""Arithmetic of Kafka's offsets: fair shares of a limit, and what there is to read cut into splits. Needs no broker."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from volley.source import Offset

__all__ = ["Partition", "Range", "as_offset", "offsets_of", "ranges_between", "shared", "splits_of"]


class Partition(NamedTuple):
    """A partition of a topic."""

    topic: str
    number: int


class Range(NamedTuple):
    """The offsets of a partition from `begin` up to, not including, `end`; not each of them need hold a message."""

    topic: str
    partition: int
    begin: int
    end: int

    @property
    def size(self) -> int:
        """How many offsets it has."""
        return self.end - self.begin


def as_offset(offsets: Mapping[Partition, int], ids: Mapping[str, str]) -> Offset:
    """What the checkpoint keeps.

    Args:
        offsets: Of each partition the offset of the first message that was not read yet.
        ids: Of each topic its id, which another topic of the same name would not have.

    Example:
        >>> as_offset({Partition("events", 0): 7}, {"events": "Nl1"})
        {'offsets': {'events': {'0': 7}}, 'ids': {'events': 'Nl1'}}
    """
    topics: dict[str, dict[str, int]] = {}
    for (topic, number), offset in sorted(offsets.items()):
        topics.setdefault(topic, {})[str(number)] = offset
    return {"offsets": topics, "ids": dict(sorted(ids.items()))}


def offsets_of(offset: Offset) -> dict[Partition, int]:
    """The offset of each partition, out of what the checkpoint keeps."""
    topics: Mapping[str, Mapping[str, Any]] = offset["offsets"]
    return {
        Partition(topic, int(number)): int(at)
        for topic, partitions in topics.items()
        for number, at in partitions.items()
    }


def ranges_between(start: Offset, end: Offset) -> list[Range]:
    """What lies between two offsets; a partition that is new begins at 0."""
    begins = offsets_of(start)
    ranges = [Range(*partition, begins.get(partition, 0), at) for partition, at in sorted(offsets_of(end).items())]
    return [each for each in ranges if each.size > 0]


def shared(available: Mapping[Partition, int], limit: int | None) -> dict[Partition, int]:
    """How much each partition may give: those with little give all, the others the same.

    Args:
        available: How much each has.
        limit: The most in all; None = no limit.

    Example:
        >>> few, many, more = Partition("t", 0), Partition("t", 1), Partition("t", 2)
        >>> list(shared({few: 2, many: 50, more: 90}, 10).values())
        [2, 4, 4]
    """
    if limit is None:
        return dict(available)
    shares, left = {}, limit
    for number, (partition, most) in enumerate(sorted(available.items(), key=lambda item: item[1])):
        shares[partition] = min(most, left // (len(available) - number))
        left -= shares[partition]
    return shares


def splits_of(ranges: Iterable[Range], parallelism: int, least: int, most: int) -> list[list[Range]]:
    """Splits of equal size, as many for each core: large ranges are cut, small ones go together.

    Args:
        ranges: What to read.
        parallelism: How many splits are read at the same time.
        least: The offsets of a split below which it is not worth a task of its own.
        most: The most offsets of a split; at least twice `least`.

    Example:
        >>> ranges = [Range("t", 0, 0, 10), Range("t", 1, 0, 2), Range("t", 2, 0, 3)]
        >>> [[each.size for each in split] for split in splits_of(ranges, 2, 4, 8)]
        [[7], [3, 2, 3]]
    """
    ranges = list(ranges)
    total = sum(each.size for each in ranges)
    rounds = -(-total // (most * parallelism))
    count = max(1, min(rounds * parallelism, total // least))
    splits = (list(_between(ranges, total * number // count, total * (number + 1) // count)) for number in range(count))
    return [split for split in splits if split]


def _between(ranges: Iterable[Range], begin: int, end: int) -> Iterator[Range]:
    """What lies between two places, if the ranges are laid one behind the other."""
    for each in ranges:
        part = each._replace(begin=each.begin + max(0, begin), end=each.begin + min(each.size, end))
        if part.size > 0:
            yield part
        begin, end = begin - each.size, end - each.size
