"""Hashes the slices of a byte array together: 128-bit Murmur3 for 64-bit machines, by Austin Appleby."""

from __future__ import annotations

import mmh3
import numpy as np
import numpy.typing as npt

from volley.arrow.value_bytes import Places

__all__ = ["first_halves"]

_Words = npt.NDArray[np.uint64]

_LONG = 128
_C1, _C2 = np.uint64(0x87C37B91114253D5), np.uint64(0x4CF5AD432745937F)


def first_halves(data: npt.NDArray[np.uint8], starts: Places, lengths: Places, seed: int) -> _Words:
    """Return the first 64 bits of each slice's hash.

    Args:
        data: The bytes.
        starts: Where each slice starts.
        lengths: How many bytes it has.
        seed: The seed.
    """
    short = lengths <= _LONG
    hashes = np.empty(len(starts), np.uint64)
    hashes[short] = _of_short(data, starts[short], lengths[short], np.uint64(seed))
    for row in np.flatnonzero(~short):
        hashes[row] = mmh3.hash64(data[starts[row] :][: lengths[row]].tobytes(), seed, signed=False)[0]
    return hashes


def _of_short(data: npt.NDArray[np.uint8], starts: Places, lengths: Places, seed: np.uint64) -> _Words:
    padded = np.concatenate([data, np.zeros(16, np.uint8)])
    # The eight bytes that start at each byte.
    words = np.ndarray((len(data) + 9,), np.dtype("<u8"), padded, strides=(1,))
    first, second = np.full(len(starts), seed), np.full(len(starts), seed)
    blocks = lengths // 16
    for block in range(int(blocks.max(initial=0))):
        rows = np.flatnonzero(blocks > block)
        at = starts[rows] + 16 * block
        first[rows], second[rows] = _mix(first[rows], second[rows], words[at], words[at + 8])
    at, left = starts + 16 * blocks, lengths % 16
    first ^= _scrambled_first(words[at] & _mask(left))
    second ^= _scrambled_second(words[at + 8] & _mask(left - 8))
    return _end(first, second, lengths.astype(np.uint64))


def _mask(count: Places) -> _Words:
    """Return words of which the first bytes are ones."""
    bits = 8 * np.clip(count, 0, 8).astype(np.uint64)
    # NumPy does not define a shift by all 64 bits.
    ones = (np.uint64(1) << np.minimum(bits, np.uint64(63))) - np.uint64(1)
    return np.where(bits == 64, ~np.uint64(0), ones)


def _rotated(words: _Words, by: int) -> _Words:
    return (words << np.uint64(by)) | (words >> np.uint64(64 - by))


def _scrambled_first(words: _Words) -> _Words:
    return _rotated(words * _C1, 31) * _C2


def _scrambled_second(words: _Words) -> _Words:
    return _rotated(words * _C2, 33) * _C1


def _mix(first: _Words, second: _Words, low: _Words, high: _Words) -> tuple[_Words, _Words]:
    first = _rotated(first ^ _scrambled_first(low), 27) + second
    first = first * np.uint64(5) + np.uint64(0x52DCE729)
    second = _rotated(second ^ _scrambled_second(high), 31) + first
    return first, second * np.uint64(5) + np.uint64(0x38495AB5)


def _end(first: _Words, second: _Words, lengths: _Words) -> _Words:
    first, second = first ^ lengths, second ^ lengths
    first += second
    second += first
    return _final(first) + _final(second)


def _final(words: _Words) -> _Words:
    words = (words ^ (words >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    words = (words ^ (words >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
    return words ^ (words >> np.uint64(33))
