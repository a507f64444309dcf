"""Functions that read or skip one value of Avro each, within the bounds of its block."""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Mapping
from typing import Any

from pyiceberg.avro.decoder import BinaryDecoder
from pyiceberg.utils.decimal import bytes_to_decimal

__all__ = [
    *("READS", "SKIPS", "Capitals", "Read", "bounds_of", "counts_of", "decimal", "read_fixed", "read_numbers"),
    *("skip_all", "skip_bounds", "skip_branch", "skip_bytes", "skip_items", "too_long"),
]

Read = Callable[[BinaryDecoder, int], Any]
"""Reads a value, or skips it: its decoder, and the size of the block, which no length may exceed."""


def too_long() -> EOFError:
    """Return the error for a length, or a number of items, that the block can't have."""
    return EOFError("it has a value that is longer than its block")


def _size(decoder: BinaryDecoder, end: int) -> int:
    """Read a length; pyiceberg's compiled decoder would read on behind the end of its memory."""
    size = decoder.read_int()
    if not 0 <= size <= end:
        raise too_long()
    return size


def _unusual(count: int, decoder: BinaryDecoder, end: int) -> int:
    """Return the number of items of a block of an array or a map from one that is negative, as a length follows."""
    if count < 0:
        decoder.read_int()
    if abs(count) > end:
        raise too_long()
    return abs(count)


def _read_bytes(decoder: BinaryDecoder, end: int) -> bytes:
    return decoder.read(_size(decoder, end))


def _read_text(decoder: BinaryDecoder, end: int) -> str:
    # Like `_size`: each entry has two texts, and a call costs as much as reading one.
    size = decoder.read_int()
    if not 0 <= size <= end:
        raise too_long()
    return decoder.read(size).decode()


def read_fixed(size: int) -> Read:
    """Return what reads so many bytes."""
    return lambda decoder, end: decoder.read(size)


def read_numbers(width: int) -> Callable[[BinaryDecoder, int], tuple[int, ...]]:
    """Return what reads an array whose items are so many numbers."""

    def read(decoder: BinaryDecoder, end: int) -> tuple[int, ...]:
        numbers: tuple[int, ...] = ()
        while count := decoder.read_int():
            if not 0 < count <= end:
                count = _unusual(count, decoder, end)
            part = decoder.read_ints(width * count)
            numbers = (*numbers, *part) if numbers else tuple(part)
        return numbers

    return read


def decimal(read: Read, scale: int) -> Read:
    """Return what makes a decimal of the bytes that are read."""
    return lambda decoder, end: bytes_to_decimal(read(decoder, end), scale)


class Capitals(dict[str, str]):
    """Texts in capital letters: one for all entries."""

    def __missing__(self, text: str) -> str:
        self[text] = text.upper()
        return self[text]


def bounds_of(wanted: Collection[int] | None) -> Read:
    """Return what reads a map from fields to bytes, an array of records: those of the wanted fields; None = all."""

    def bounds(decoder: BinaryDecoder, end: int) -> Mapping[int, bytes]:
        read_int, read, skip = decoder.read_int, decoder.read, decoder.skip
        values = {}
        while count := decoder.read_int():
            if not 0 < count <= end:
                count = _unusual(count, decoder, end)
            for _ in range(count):
                key, size = read_int(), read_int()
                if not 0 <= size <= end:
                    raise too_long()
                if wanted is None or key in wanted:
                    values[key] = read(size)
                else:
                    skip(size)
        return values

    return bounds


def counts_of(wanted: Collection[int] | None) -> Read:
    """Return what reads a map from fields to numbers, an array of records, as `bounds_of` does."""
    read = read_numbers(2)

    def counts(decoder: BinaryDecoder, end: int) -> Mapping[int, int]:
        numbers = read(decoder, end)
        values = dict(zip(numbers[::2], numbers[1::2], strict=True))
        return values if wanted is None else {key: values[key] for key in wanted if key in values}

    return counts


def skip_bytes(size: int) -> Read:
    """Return what skips so many bytes."""
    return lambda decoder, end: decoder.skip(size)


def skip_all(skips: list[Read]) -> Read:
    """Return what skips one value after the other, as those of a record."""

    def skip(decoder: BinaryDecoder, end: int) -> None:
        for part in skips:
            part(decoder, end)

    return skip


def skip_branch(skips: list[Read]) -> Read:
    """Return what skips a value of a union."""
    if len(skips) == 2 and skips[0] is SKIPS["null"]:
        second = skips[1]
        return lambda decoder, end: decoder.read_int() and second(decoder, end)

    def skip(decoder: BinaryDecoder, end: int) -> None:
        branch = decoder.read_int()
        if 0 <= branch < len(skips):
            skips[branch](decoder, end)

    return skip


def skip_items(skip: Read) -> Read:
    """Return what skips an array or a map."""

    def skip_items(decoder: BinaryDecoder, end: int) -> None:
        while count := decoder.read_int():
            if not 0 < count <= end:
                count = _unusual(count, decoder, end)
            for _ in range(count):
                skip(decoder, end)

    return skip_items


def skip_bounds(decoder: BinaryDecoder, end: int) -> None:
    """Skip a map from fields to bytes, an array of records."""
    read_int, skip = decoder.read_int, decoder.skip
    while count := decoder.read_int():
        if not 0 < count <= end:
            count = _unusual(count, decoder, end)
        for _ in range(count):
            read_int()
            size = read_int()
            if not 0 <= size <= end:
                raise too_long()
            skip(size)


def _read_int(decoder: BinaryDecoder, end: int) -> int:
    return decoder.read_int()


_double = struct.Struct("<d").unpack
READS: dict[str, Read] = {
    **{"int": _read_int, "long": _read_int, "string": _read_text, "bytes": _read_bytes},
    **{"boolean": lambda decoder, end: decoder.read_boolean(), "float": lambda decoder, end: decoder.read_float()},
    # pyiceberg's compiled decoder reads a double as a float of 4 bytes.
    **{"double": lambda decoder, end: _double(decoder.read(8))[0], "null": lambda decoder, end: None},
}
# It checks the end before it reads a number, but not before it skips one.
SKIPS: dict[str, Read] = {
    **{"int": _read_int, "long": _read_int, "enum": _read_int, "null": READS["null"]},
    **dict.fromkeys(("string", "bytes"), lambda decoder, end: decoder.skip(_size(decoder, end))),
    **{"boolean": skip_bytes(1), "float": skip_bytes(4), "double": skip_bytes(8)},
}
