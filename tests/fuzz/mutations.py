"""Changes of a file's bytes as damage, other writers and strangers make them."""

from __future__ import annotations

import random
from collections.abc import Callable

__all__ = ["mutated"]

Mutation = Callable[[bytearray, random.Random], None]


def _flip(data: bytearray, choose: random.Random) -> None:
    data[choose.randrange(len(data))] ^= 1 << choose.randrange(8)


def _replace(data: bytearray, choose: random.Random) -> None:
    data[choose.randrange(len(data))] = choose.choice([0, 1, 0x7F, 0x80, 0xFF, choose.randrange(256)])


def _delete(data: bytearray, choose: random.Random) -> None:
    begin = choose.randrange(len(data))
    del data[begin : begin + choose.randrange(1, 9)]


def _insert(data: bytearray, choose: random.Random) -> None:
    begin = choose.randrange(len(data) + 1)
    data[begin:begin] = choose.randbytes(choose.randrange(1, 9))


def _repeat(data: bytearray, choose: random.Random) -> None:
    begin, length = choose.randrange(len(data)), choose.randrange(1, 65)
    data[begin:begin] = data[begin : begin + length]


def _swap(data: bytearray, choose: random.Random) -> None:
    length = choose.randrange(1, 17)
    one, other = choose.randrange(len(data)), choose.randrange(len(data))
    data[one : one + length], data[other : other + length] = data[other : other + length], data[one : one + length]


def _cut(data: bytearray, choose: random.Random) -> None:
    del data[choose.randrange(len(data)) :]


_MUTATIONS: list[Mutation] = [_flip, _flip, _replace, _delete, _insert, _repeat, _swap, _cut]


def mutated(data: bytes, choose: random.Random) -> bytes:
    """Return data with one to four changes.

    Args:
        data: The bytes of a valid file.
        choose: Makes the choices.
    """
    result = bytearray(data)
    for _ in range(choose.choice([1, 1, 1, 2, 4])):
        if result:
            choose.choice(_MUTATIONS)(result, choose)
    return bytes(result)
