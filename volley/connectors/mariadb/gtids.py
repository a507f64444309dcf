"""The global ids of transactions: MariaDB's, of which the last of each domain is known, and MySQL's, which are sets."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from uuid import UUID

from volley.connectors.mariadb.settings import ANEW, GtidEvent, Gtids
from volley.errors import SourceError

__all__ = ["DomainGtids", "SetGtids"]

_STANDALONE = 1
_TAGGED, _ANONYMOUS = 42, 34
_UUID_FIELD, _NUMBER_FIELD, _TAG_FIELD = 1, 2, 3


class DomainGtids(Gtids):
    """By domain, the id of the last transaction: ``domain-server-sequence``."""

    def __init__(self, text: str = "") -> None:
        gtids = (gtid for gtid in text.replace(" ", "").split(",") if gtid)
        self._last = {int(gtid.split("-")[0]): gtid for gtid in gtids}

    def begin(self, event: GtidEvent) -> bool:
        sequence, domain = int.from_bytes(event.body[:8], "little"), int.from_bytes(event.body[8:12], "little")
        self._last[domain] = f"{domain}-{event.server}-{sequence}"
        return bool(event.body[12] & _STANDALONE)

    @property
    def text(self) -> str:
        return ",".join(self._last[domain] for domain in sorted(self._last))


class SetGtids(Gtids):
    """By the server that wrote them, and the tag if they have one, the intervals of the transactions' numbers.

    Example:
        >>> SetGtids("3e11fa47-71ca-11e1-9e33-c80aa9429562:1-3:5:deploy:7").text
        '3e11fa47-71ca-11e1-9e33-c80aa9429562:1-3:5,3e11fa47-71ca-11e1-9e33-c80aa9429562:deploy:7'
    """

    def __init__(self, text: str = "") -> None:
        # In order, without neighbours: the first and the last number of each interval.
        self._intervals: dict[str, list[tuple[int, int]]] = {}
        for part in re.sub(r"\s", "", text).split(","):
            server, *intervals = part.split(":")
            source = server
            for interval in intervals:
                if not interval[0].isdigit():
                    source = f"{server}:{interval}"
                    continue
                first, _, last = interval.partition("-")
                self._intervals.setdefault(source, []).append((int(first), int(last or first)))

    def begin(self, event: GtidEvent) -> bool:
        if event.type == _ANONYMOUS:
            raise SourceError("a transaction of the log has no global id", hint="set global gtid_mode = ON for good")
        source, number = _tagged(event.body) if event.type == _TAGGED else _untagged(event.body)
        intervals = self._intervals.setdefault(source, [])
        at = bisect_right(intervals, (number, number))
        for first, last in intervals[max(at - 1, 0) : at + 1]:
            if first <= number <= last:
                raise SourceError(
                    f"transaction {source}:{number} was read before, and comes again: the server was restored from a "
                    "backup, or its log began anew",
                    hint=ANEW,
                )
        _insert(intervals, at, number)
        # The statement that follows says if more come.
        return True

    @property
    def text(self) -> str:
        parts = (":".join([source, *map(_interval, self._intervals[source])]) for source in sorted(self._intervals))
        return ",".join(parts)


def _insert(intervals: list[tuple[int, int]], at: int, number: int) -> None:
    """Insert a number that no interval has, before the interval at a place."""
    first = last = number
    begin = end = at
    if at > 0 and intervals[at - 1][1] == number - 1:
        first, begin = intervals[at - 1][0], at - 1
    if at < len(intervals) and intervals[at][0] == number + 1:
        last, end = intervals[at][1], at + 1
    intervals[begin:end] = [(first, last)]


def _interval(interval: tuple[int, int]) -> str:
    first, last = interval
    return str(first) if first == last else f"{first}-{last}"


def _untagged(body: bytes) -> tuple[str, int]:
    return str(UUID(bytes=body[1:17])), int.from_bytes(body[17:25], "little")


@dataclass
class _Fields:
    """Reads a message of MySQL's serialization library: numbers of one to nine bytes, fields behind their ids."""

    data: bytes
    at: int = 0

    def number(self) -> int:
        """Read a number: as many ones as end its first byte, so many bytes follow that."""
        first = self.data[self.at]
        size = 9 if first == 0xFF else (~first & first + 1).bit_length()
        value = int.from_bytes(self.data[self.at : self.at + size], "little")
        self.at += size
        return value >> min(size, 8)

    def ids(self) -> Iterator[int]:
        """Yield the ids of the fields, behind each of which its value is to be read."""
        while self.at < len(self.data):
            yield self.number()


def _tagged(body: bytes) -> tuple[str, int]:
    fields = _Fields(body)
    # The format's version, the size of the message, the last field that must be understood.
    _ = fields.number(), fields.number(), fields.number()
    server, number, tag = UUID(int=0), 0, ""
    for field in fields.ids():
        if field == _UUID_FIELD:
            server = UUID(bytes=bytes(fields.number() for _ in range(16)))
        elif field == _NUMBER_FIELD:
            # A number with a sign has it in its last bit.
            number = fields.number() >> 1
        elif field == _TAG_FIELD:
            size = fields.number()
            tag = fields.data[fields.at : fields.at + size].decode()
            break
        else:
            fields.number()
    return f"{server}:{tag}" if tag else str(server), number
