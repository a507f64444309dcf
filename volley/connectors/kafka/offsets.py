"""Computes with Kafka offsets: divides a limit fairly among partitions, and cuts offset ranges into splits."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from volley.contracts.source import Offset

__all__ = [
    "OffsetRange",
    "SeenEnds",
    "TopicPartition",
    "as_offset",
    "fair_shares",
    "offsets_of",
    "parse_offset",
    "ranges_between",
    "same_topics",
    "splits_of",
]


class TopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    number: int


class OffsetRange(NamedTuple):
    """The offsets of a partition from `begin` (inclusive) to `end` (exclusive); not every offset has a message."""

    topic: str
    partition: int
    begin: int
    end: int

    @property
    def size(self) -> int:
        """The number of its offsets."""
        return self.end - self.begin


def as_offset(offsets: Mapping[TopicPartition, int], ids: Mapping[str, str]) -> Offset:
    """Return the offset that the checkpoint stores.

    Args:
        offsets: For each partition, the offset of the first unread message.

    Example:
        >>> as_offset({TopicPartition("events", 0): 7}, {"events": "Nl1"})
        {'offsets': {'events': {'0': 7}}, 'ids': {'events': 'Nl1'}}
    """
    topics: dict[str, dict[str, int]] = {}
    for (topic, number), offset in sorted(offsets.items()):
        topics.setdefault(topic, {})[str(number)] = offset
    return {"offsets": topics, "ids": dict(sorted(ids.items()))}


def offsets_of(offset: Offset) -> dict[TopicPartition, int]:
    """Return the offset of each partition, from an offset of the checkpoint."""
    topics: Mapping[str, Mapping[str, Any]] = offset["offsets"]
    return {
        TopicPartition(topic, int(number)): int(position)
        for topic, partitions in topics.items()
        for number, position in partitions.items()
    }


def parse_offset(data: bytes) -> Offset:
    """Return an offset from its JSON.

    Raises:
        ValueError: If it is damaged; also TypeError, LookupError and AttributeError.
    """
    offset: Offset = json.loads(data)
    return as_offset(offsets_of(offset), offset["ids"])


def ranges_between(start: Offset, end: Offset) -> list[OffsetRange]:
    """Return the ranges between two offsets; a new partition, or that of a topic made again, starts at 0."""
    begins = offsets_of(same_topics(start, end["ids"]))
    ranges = [
        OffsetRange(*partition, begins.get(partition, 0), last) for partition, last in sorted(offsets_of(end).items())
    ]
    return [offset_range for offset_range in ranges if offset_range.size > 0]


def same_topics(offset: Offset, ids: Mapping[str, str]) -> Offset:
    """Return the part of an offset whose topics have the same id, or are not among those of `ids`.

    Example:
        >>> known = as_offset({TopicPartition("a", 0): 7, TopicPartition("b", 0): 9}, {"a": "A1", "b": "B1"})
        >>> same_topics(known, {"a": "A2", "c": "C1"})
        {'offsets': {'b': {'0': 9}}, 'ids': {'b': 'B1'}}
    """
    known = offset["ids"]
    made_again = {topic for topic in known if ids.get(topic, known[topic]) != known[topic]}
    return {
        part: {topic: value for topic, value in offset[part].items() if topic not in made_again}
        for part in ("offsets", "ids")
    }


def fair_shares(available: Mapping[TopicPartition, int], limit: int | None) -> dict[TopicPartition, int]:
    """Divide a limit among partitions: those with few offsets give all, the others give equal numbers.

    Example:
        >>> few, many, more = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("t", 2)
        >>> list(fair_shares({few: 2, many: 50, more: 90}, 10).values())
        [2, 4, 4]
    """
    if limit is None:
        return dict(available)
    shares, remaining = {}, limit
    for number, (partition, size) in enumerate(sorted(available.items(), key=lambda item: item[1])):
        shares[partition] = min(size, remaining // (len(available) - number))
        remaining -= shares[partition]
    return shares


def splits_of(ranges: Iterable[OffsetRange], parallelism: int, least: int, most: int) -> list[list[OffsetRange]]:
    """Cut ranges into splits of equal size: large ranges are cut, small ones are combined.

    Args:
        least: The minimum offsets of a split: fewer are not worth a task.
        most: The maximum offsets of a split; at least twice `least`.

    Example:
        >>> ranges = [OffsetRange("t", 0, 0, 10), OffsetRange("t", 1, 0, 2), OffsetRange("t", 2, 0, 3)]
        >>> [[part.size for part in split] for split in splits_of(ranges, 2, 4, 8)]
        [[7], [3, 2, 3]]
    """
    ranges = list(ranges)
    total = sum(offset_range.size for offset_range in ranges)
    rounds = -(-total // (most * parallelism))
    count = max(1, min(rounds * parallelism, total // least))
    splits = (list(_between(ranges, total * number // count, total * (number + 1) // count)) for number in range(count))
    return [split for split in splits if split]


def _between(ranges: Iterable[OffsetRange], begin: int, end: int) -> Iterator[OffsetRange]:
    """Yield the parts between two positions, which count the offsets of all ranges one after the other."""
    for whole in ranges:
        part = whole._replace(begin=whole.begin + max(0, begin), end=whole.begin + min(whole.size, end))
        if part.size > 0:
            yield part
        begin, end = begin - whole.size, end - whole.size


@dataclass
class SeenEnds:
    """The ends of partitions when they were looked at, to tell since when an offset is behind them.

    Example:
        >>> part, ends = TopicPartition("t", 0), SeenEnds()
        >>> ends.see({part: 10}, at=100.0), ends.see({part: 20}, at=105.0)
        (None, None)
        >>> [ends.since({part: reached}, now=110.0) for reached in (9, 10, 20)]
        [100.0, 105.0, 110.0]
    """

    most: int = 100  # how many looks are kept
    _looks: list[tuple[float, Mapping[TopicPartition, int]]] = field(default_factory=list, init=False)

    def see(self, ends: Mapping[TopicPartition, int], at: float) -> None:
        """Keep the ends at a time; of many looks every second one."""
        self._looks.append((at, ends))
        if len(self._looks) > self.most:
            del self._looks[1::2]

    def since(self, reached: Mapping[TopicPartition, int], now: float) -> float:
        """Return since when there have been messages behind an offset, as far as known; `now` if there are none.

        Earlier looks are forgotten: offsets move on.
        """
        while self._looks and not any(end > reached.get(part, 0) for part, end in self._looks[0][1].items()):
            del self._looks[0]
        return self._looks[0][0] if self._looks else now
