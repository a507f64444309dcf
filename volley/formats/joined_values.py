"""Joins the bytes of many values, so that steps read one part of all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import cast, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from volley.formats.cursors import PADDING, Bytes, Cursors, Integers, UnusualError, spans

__all__ = ["Joined", "Pieces"]

Flags = npt.NDArray[np.bool_]

# Values that are read at once: each step then costs little more than its rows.
_MOST_ROWS, _MOST_BYTES = 8_192, 1 << 20
_TOMBSTONE = -1
_NONE = np.empty(0, np.int64)
_MOST_PLACES = np.iinfo(np.int32).max - len(PADDING)


class Joined(Sequence[bytes | None]):
    """Values whose bytes are in one piece; a value by itself is cut out of it when it is asked for.

    Args:
        data: The bytes of all of them, and maybe of others: one after the other, with a newline in between.
        begins: Where each value begins.
        ends: Where each value ends.
        present: For each value, whether it is there; those that are not are tombstones.
    """

    def __init__(self, data: bytes, begins: Integers, ends: Integers, present: Flags) -> None:
        self.data = data
        self.begins = begins
        self.ends = ends
        self._present = present

    @classmethod
    def of(cls, values: Sequence[bytes | None]) -> Joined:
        """Join values, or return those that are joined already.

        Example:
            >>> joined = Joined.of([b"ab", None, b"cde"])
            >>> joined.rows, joined.lengths
            (array([0, 2]), array([2, 0, 3]))
            >>> [*joined]
            [b'ab', None, b'cde']
        """
        if isinstance(values, Joined):
            return values
        pieces = Pieces()
        pieces.add(values)
        return pieces.joined()

    def __len__(self) -> int:
        return len(self.begins)

    @overload
    def __getitem__(self, place: int) -> bytes | None: ...

    @overload
    def __getitem__(self, place: slice) -> Joined: ...

    def __getitem__(self, place: int | slice) -> bytes | Joined | None:
        begins, ends, present = self.begins[place], self.ends[place], self._present[place]
        if isinstance(place, slice):
            return Joined(self.data, begins, ends, present)
        return self.data[begins:ends] if present else None

    def __iter__(self) -> Iterator[bytes | None]:
        data, places = self.data, zip(self.begins.tolist(), self.ends.tolist(), strict=True)
        if not self.has_tombstones:
            return (data[begin:end] for begin, end in places)
        told = zip(places, self._present.tolist(), strict=True)
        return (data[begin:end] if is_there else None for (begin, end), is_there in told)

    @property
    def has_tombstones(self) -> bool:
        return not self._present.all()

    @property
    def lines(self) -> bytes:
        """The values with a newline between one and the next; a tombstone is an empty line.

        Example:
            >>> Joined.of([b"ab", None, b"cde"]).lines
            b'ab\\n\\ncde'
        """
        return self.data[self.begins[0] : self.ends[-1]] if len(self) else b""

    @property
    def column(self) -> pa.Array:
        """The values as a binary array; a tombstone is null."""
        if self.ends.max(initial=0) > _MOST_PLACES:
            return pa.array([*self], pa.binary())
        return spans(np.frombuffer(self.data, np.uint8), self.begins, self.ends, ~self._present)

    @cached_property
    def rows(self) -> Integers:
        """The numbers of those that are no tombstones."""
        return np.flatnonzero(self._present)

    @property
    def lengths(self) -> Integers:
        """The number of bytes of each value."""
        return self.ends - self.begins

    def parts(self) -> Iterator[slice]:
        """Yield which values are read at once."""
        length = int(self.ends[-1] - self.begins[0]) if len(self) else 0
        step = max(1, min(_MOST_ROWS, _MOST_BYTES * len(self) // max(1, length)))
        for start in range(0, len(self), step):
            yield slice(start, start + step)

    def cursors(self, rows: Integers, starts: Integers | int) -> Cursors:
        """Return cursors over some of the values.

        Args:
            rows: Their numbers.
            starts: The number of bytes at the beginning of each value, or of each of those, that are passed over.

        Raises:
            UnusualError: If a value is shorter than that, or they have too many bytes together.
        """
        begins, ends = self.begins[rows] + starts, self.ends[rows]
        if (begins > ends).any() or ends.max(initial=0) > _MOST_PLACES:
            raise UnusualError
        return Cursors(Bytes(self.data), begins, ends)

    def by_head(self, head: Callable[[bytes], bytes]) -> Mapping[bytes, Integers]:
        """Return the numbers of values by what they begin with; without those that are tombstones.

        Args:
            head: Returns what a value begins with; all that begin so have the same one.

        Raises:
            Exception: What `head` raises.

        Example:
            >>> Joined.of([b"ab", None, b"cd", b"ae"]).by_head(lambda value: value[:1])
            {b'a': array([0, 3]), b'c': array([2])}
        """
        numbers = {}
        rest = self.rows
        while len(rest):
            name = head(self[int(rest[0])] or b"")
            has_name = self._starts_with(rest, name)
            numbers[name], rest = (rest, _NONE) if has_name.all() else (rest[has_name], rest[~has_name])
        return numbers

    def enclosed_in(self, first: bytes, last: bytes) -> bool:
        """Return True if each value begins with the one byte and ends with the other."""
        data = np.frombuffer(self.data, np.uint8)
        is_enclosed = (data[self.begins] == first[0]) & (data[self.ends - 1] == last[0])
        return bool((is_enclosed & (self.lengths > 1)).all())

    def others(self, rows: Integers, head: bytes) -> Integers:
        """Return those of the numbers whose values do not begin with this."""
        return rows[~self._starts_with(rows, head)]

    def _starts_with(self, rows: Integers, head: bytes) -> Flags:
        return Cursors(Bytes(self.data), self.begins[rows], self.ends[rows]).starts_with(head)


class Pieces:
    """Joins the bytes of values as they arrive, while a processor has them in its cache."""

    def __init__(self) -> None:
        self._lengths: list[Integers] = []
        self._texts: list[bytes] = []

    def add(self, values: Sequence[bytes | None]) -> int:
        """Add values; return the number of their bytes."""
        count, texts = len(values), cast(Sequence[bytes], values)
        try:
            lengths = np.fromiter(map(len, texts), np.int64, count)
        except TypeError:
            lengths = np.fromiter((_TOMBSTONE if value is None else len(value) for value in values), np.int64, count)
            texts = [value or b"" for value in values]
        if count:
            self._lengths.append(lengths)
            self._texts.append(b"\n".join(texts))
        return len(self._texts[-1]) - count + 1 if count else 0

    def joined(self) -> Joined:
        """Return the values that were added."""
        told = np.concatenate([_NONE, *self._lengths])
        lengths = np.maximum(told, 0)
        ends = np.cumsum(lengths + 1) + len(PADDING)
        return Joined(b"\n".join([PADDING, *self._texts, PADDING]), ends - lengths, ends, told != _TOMBSTONE)
