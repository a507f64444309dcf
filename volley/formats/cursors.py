"""Reads the bytes of many values at once: each step reads one part of all of them, as NumPy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = ["FEW", "PADDING", "Bytes", "Cursors", "Integers", "UnusualError", "from_zigzag", "spans"]

Integers = npt.NDArray[np.int64]
_Words = npt.NDArray[np.uint64]

FEW = 16
"""Below are too few values: each by itself is read faster."""

PADDING = bytes(16)
"""What stands before the first value and behind the last one: a word can be read there."""

_LONGEST_NUMBER = 10
_MOST_TURNS = 2_000
_STOPS, _DIGITS = np.uint64(0x8080808080808080), np.uint64(0x7F7F7F7F7F7F7F7F)
# Digits of seven bits are joined in pairs, then fours, then eights: the lower ones, the upper ones, how far these move,
# and the bit that ends the longest number without upper ones.
_JOINS = [
    (np.uint64(0x007F007F007F007F), np.uint64(0x7F007F007F007F00), np.uint64(1), np.uint64(0x80)),
    (np.uint64(0x00003FFF00003FFF), np.uint64(0x3FFF00003FFF0000), np.uint64(2), np.uint64(0x8000)),
    (np.uint64(0x000000000FFFFFFF), np.uint64(0x0FFFFFFF00000000), np.uint64(4), np.uint64(0x80000000)),
]
_ONE = np.uint64(1)
_BINARY = pa.binary()


class UnusualError(Exception):
    """A value is damaged, or has what only a look at each value by itself can judge."""


class Cursors:
    """A place in each of many values, which moves on as they are read.

    Args:
        data: The bytes of all values.
        at: Where the next byte of each value is.
        ends: Where each value ends.
    """

    def __init__(self, data: Bytes, at: Integers, ends: Integers) -> None:
        self._data = data
        self.at = at
        self.ends = ends

    def __len__(self) -> int:
        return len(self.at)

    def part(self, rows: Integers) -> Cursors:
        """Return cursors over some of the values; `moved` then takes over where they are."""
        return Cursors(self._data, self.at[rows], self.ends[rows])

    def moved(self, rows: Integers, part: Cursors) -> None:
        self.at[rows] = part.at

    def pass_over(self, lengths: Integers | int) -> Integers:
        """Move on by lengths that are not negative; return where the cursors were."""
        begin = self.at
        self.at = begin + lengths
        if (self.at > self.ends).any():
            raise UnusualError
        return begin

    def count_turn(self) -> None:
        """Count a step that is done for each item of lists; what has very many is faster value by value.

        Raises:
            UnusualError: If there were too many.
        """
        self._data.turns += 1
        if self._data.turns > _MOST_TURNS:
            raise UnusualError

    def starts_with(self, head: bytes) -> npt.NDArray[np.bool_]:
        """Tell of each value whether its next bytes are these."""
        found: npt.NDArray[np.bool_] = self.at + len(head) <= self.ends
        if len(head) == 1:
            found &= self._data.bytes[self.at] == head[0]
            return found
        for place in range(0, len(head), 8):
            word = head[place : place + 8]
            mask = np.uint64((1 << 8 * len(word)) - 1)
            # A short value may end before the word begins.
            at = np.minimum(self.at + place, self._data.last) if place else self.at
            found &= self._data.words(at, 8) & mask == np.uint64(int.from_bytes(word, "little"))
        return found

    def inner(self, lengths: Integers) -> Cursors:
        """Pass over as many bytes, which is not negative; return cursors over them."""
        begin = self.pass_over(lengths)
        return Cursors(self._data, begin.copy(), self.at.copy())

    def over(self, begin: Integers, end: Integers) -> Cursors:
        """Return cursors over bytes between places that ascend."""
        return Cursors(self._data, begin, end)

    def items(self, lengths: Integers, width: int | None) -> tuple[Cursors, Integers]:
        """Pass over bytes that are items, one after the other; return cursors over those, and how many each value has.

        Args:
            lengths: The number of bytes, which is not negative.
            width: The bytes of an item; None = they are numbers of seven bits a byte.
        """
        begin = self.pass_over(lengths)
        counts, rest = np.divmod(lengths, width or 1)
        # The place of each item among those of its value, in bytes.
        inside = (np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)) * (width or 1)
        places = np.repeat(begin, counts) + inside
        if width is not None:
            if rest.any():
                raise UnusualError
            return Cursors(self._data, places, places + width), counts
        rows = np.flatnonzero(lengths)
        if (self._data.bytes[self.at[rows] - 1] >= 0x80).any():
            raise UnusualError
        is_last = self._data.bytes[places] < 0x80
        is_first = np.concatenate(([True], is_last[:-1])) if len(places) else is_last
        counts = np.bincount(np.repeat(np.arange(len(self)), lengths)[is_last], minlength=len(self))
        return Cursors(self._data, places[is_first], places[is_last] + 1), counts

    def skip(self, width: int) -> None:
        """Pass over as many bytes of each value."""
        self.pass_over(width)

    def bytes(self) -> npt.NDArray[np.uint8]:
        """Read a byte of each value."""
        return self._data.bytes[self.pass_over(1)]

    def words(self, width: int) -> Any:
        """Read four or eight bytes of each value, the lowest first."""
        return self._data.words(self.pass_over(width), width)

    def numbers(self) -> _Words:
        """Read numbers of seven bits a byte, the lowest ones first."""
        first = self._data.bytes[self.at]
        if (first < 0x80).all():
            self.pass_over(1)
            return first.astype(np.uint64)
        words: _Words = self._data.words(self.at, 8)
        # The bit that ends each number: the lowest one. Arrays are changed in place, which costs half.
        stops = ~words
        stops &= _STOPS
        scratch = ~stops
        scratch += _ONE
        stops &= scratch
        has_long, longest = stops.min() == 0, stops.max()
        # The exponent of a double tells which bit is set.
        lengths = stops.astype(np.float64).view(np.int64)
        lengths >>= 52
        lengths -= 1_016
        lengths >>= 3
        stops -= _ONE
        stops &= _DIGITS
        words &= stops
        for low, high, shift, end in _JOINS:
            if longest <= end and not has_long:
                break
            np.bitwise_and(words, high, out=scratch)
            scratch >>= shift
            words &= low
            words |= scratch
        if has_long:
            self._long(np.flatnonzero(lengths < 0), words, lengths)
        self.pass_over(lengths)
        return words

    def _long(self, rows: Integers, words: _Words, lengths: Integers) -> None:
        """Read the numbers of nine and ten bytes."""
        ninth, tenth = (self._data.bytes[self.at[rows] + place].astype(np.uint64) for place in (8, 9))
        is_longest = ninth >= 0x80
        if (is_longest & (tenth > 1)).any():
            raise UnusualError
        words[rows] |= (ninth & np.uint64(0x7F)) << np.uint64(56)
        words[rows] |= np.where(is_longest, tenth << np.uint64(63), np.uint64(0))
        lengths[rows] = np.where(is_longest, _LONGEST_NUMBER, _LONGEST_NUMBER - 1)

    def texts(self, lengths: Integers) -> pa.Array:
        """Read as many bytes of each value as is told, which is not negative."""
        begin = self.pass_over(lengths)
        return spans(self._data.bytes, begin, self.at)

    def integers(self, lengths: Integers, longest: int) -> pa.Array:
        """Read signed integers, the highest byte first, as decimals without a scale.

        Args:
            lengths: The number of bytes of each.
            longest: The most bytes of one, not above 16.
        """
        if ((lengths < 1) | (lengths > longest)).any():
            raise UnusualError
        self.pass_over(lengths)
        halves = np.empty((len(self), 2), np.int64)
        halves[:, 0] = _signed(self._data.words(self.at - 8, 8), np.minimum(lengths, 8))
        halves[:, 1] = halves[:, 0] >> 63
        if len(rows := np.flatnonzero(lengths > 8)):
            halves[rows, 1] = _signed(self._data.words(self.at[rows] - 16, 8), lengths[rows] - 8)
        return pa.Array.from_buffers(pa.decimal128(38), len(self), [None, pa.py_buffer(halves)])


def from_zigzag(numbers: _Words) -> Integers:
    """Return signed numbers, whose sign is the lowest bit."""
    return (numbers >> _ONE).view(np.int64) ^ -(numbers & _ONE).view(np.int64)


def spans(
    data: npt.NDArray[np.uint8], begin: Integers, end: Integers, missing: Any = None, kind: pa.DataType = _BINARY
) -> pa.Array:
    """Return the bytes between places that ascend, as binary values or texts, without a copy of what lies between.

    Args:
        missing: For each value, whether it is null; None = none is.
    """
    # Every second value of an array over all bytes is one of them.
    places = np.empty(2 * len(begin) + 1, np.int32)
    places[:-1:2], places[1::2] = begin, end
    places[-1] = end.max(initial=0)
    values = pa.Array.from_buffers(kind, 2 * len(begin), [None, pa.py_buffer(places), pa.py_buffer(data)])
    return values.take(pa.array(np.arange(0, 2 * len(begin), 2), mask=missing))


def _signed(words: _Words, lengths: Integers) -> Integers:
    """Return the last bytes of words, the highest first, as signed numbers."""
    unused = 64 - 8 * lengths
    return (words.byteswap().view(np.int64) << unused) >> unused


class Bytes:
    """Bytes that are read in any place."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.turns = 0
        self.bytes = np.frombuffer(data, np.uint8)

    @property
    def last(self) -> int:
        """The last place of a word."""
        return len(self._data) - 8

    def words(self, at: Integers, width: int) -> Any:
        """Return four or eight bytes from each place, the lowest first."""
        words = np.ndarray((len(self._data) - width + 1,), f"<u{width}", self._data, strides=(1,))
        return words[at]
