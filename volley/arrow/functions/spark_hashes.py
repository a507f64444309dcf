"""Hashes of several values as Spark computes them: ``hash`` (Murmur3 of 32 bits) and ``xxhash64``, with the seed 42.

Murmur3 is Austin Appleby's, xxHash Yann Collet's; Spark's Murmur3 takes each byte behind the last whole word as a word.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from volley.arrow.compiled import CompiledExpression, Lowering, all_null, any_fails, as_array, misfit
from volley.plan.expression_nodes import Call

__all__ = ["LOWERED"]

_Ints = npt.NDArray[Any]
_SEED = 42
# Spark hashes decimals of up to 18 digits as longs.
_LONG_DIGITS = 18


class _Slices(NamedTuple):
    """Byte strings: where each starts in the data, and its length."""

    data: npt.NDArray[np.uint8]
    starts: npt.NDArray[np.int64]
    lengths: npt.NDArray[np.int64]

    def words(self, data_type: str) -> _Ints:
        """Return the little-endian words that start at each byte."""
        width = np.dtype(data_type).itemsize
        padded = np.concatenate([self.data, np.zeros(width, np.uint8)])
        return np.ndarray((len(self.data) + 1,), np.dtype(data_type), padded, strides=(1,))


class _Hash(NamedTuple):
    """A hash function: how it takes ints, longs and bytes, each with a seed for each row."""

    out: pa.DataType
    of_ints: Callable[[_Ints, _Ints], _Ints]
    of_longs: Callable[[_Ints, _Ints], _Ints]
    of_bytes: Callable[[_Slices, _Ints], _Ints]


def _lowering(function: _Hash) -> Lowering:
    def lower(node: Call, args: list[CompiledExpression]) -> CompiledExpression:
        for arg in args:
            if not (all_null(arg) or _is_hashable(arg.type)):
                raise misfit(node, [arg.type], "numbers, booleans, strings, binary, dates and timestamps")

        def evaluate(batch: pa.RecordBatch) -> pa.Array:
            width = np.uint32 if function.out == pa.int32() else np.uint64
            hashes = np.full(batch.num_rows, _SEED, width)
            for arg in args:
                if not all_null(arg):
                    hashes = _continued(function, as_array(arg.evaluate(batch), batch.num_rows), hashes)
            return pa.array(hashes.view(np.int32 if width is np.uint32 else np.int64), function.out)

        return CompiledExpression(function.out, evaluate, any_fails(args))

    return lower


def _is_hashable(data_type: pa.DataType) -> bool:
    tests = ("boolean", "int32", "int64", "floating", "decimal", "string", "binary", "date32", "timestamp")
    return any(getattr(pa.types, f"is_{test}")(data_type) for test in tests)


def _continued(function: _Hash, values: pa.Array, seeds: _Ints) -> _Ints:
    """Return the hashes of values whose seeds are the hashes so far; those of nulls stay."""
    present = np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False))
    hashes = seeds.copy()
    if not len(present):
        return hashes
    hashes[present] = _hashed(function, values.take(present), seeds[present])
    return hashes


def _hashed(function: _Hash, values: pa.Array, seeds: _Ints) -> _Ints:
    data_type = values.type
    if pa.types.is_string(data_type) or pa.types.is_binary(data_type):
        return function.of_bytes(_slices(values), seeds)
    if pa.types.is_decimal(data_type):
        if data_type.precision <= _LONG_DIGITS:
            return function.of_longs(_unscaled(values), seeds)
        return function.of_bytes(_slices(pa.array(map(_big_endian, values.to_pylist()), pa.binary())), seeds)
    if pa.types.is_floating(data_type):
        numbers = values.to_numpy(zero_copy_only=False) + data_type.to_pandas_dtype()(0)  # -0.0 becomes 0.0
        numbers[np.isnan(numbers)] = np.nan
        values = pa.array(numbers.view(np.int32 if pa.types.is_float32(data_type) else np.int64))
    elif pa.types.is_date32(data_type) or pa.types.is_boolean(data_type):
        values = values.cast(pa.int32())
    elif pa.types.is_timestamp(data_type):
        values = values.cast(pa.int64())
    numbers = values.to_numpy(zero_copy_only=False)
    if numbers.itemsize == np.int32().itemsize:
        return function.of_ints(numbers.view(np.uint32), seeds)
    return function.of_longs(numbers.view(np.uint64), seeds)


def _slices(values: pa.Array) -> _Slices:
    _, offsets, data = values.buffers()
    places = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1].astype(np.int64)
    found = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    return _Slices(found, places[:-1], np.diff(places))


def _unscaled(values: pa.Array) -> _Ints:
    words = np.frombuffer(values.buffers()[1], np.uint64).reshape(-1, 2)
    return words[values.offset : values.offset + len(values), 0]


def _big_endian(value: Any) -> bytes:
    """Return a decimal without its point as Java's BigInteger writes it: the fewest bytes, the highest first."""
    sign, digits, _ = value.as_tuple()
    number = int("".join(map(str, digits))) * (-1 if sign else 1)
    return number.to_bytes((number if number >= 0 else ~number).bit_length() // 8 + 1, "big", signed=True)


def _rotated(words: _Ints, by: int) -> _Ints:
    width = words.dtype.type
    rotated: _Ints = (words << width(by)) | (words >> width(words.dtype.itemsize * 8 - by))
    return rotated


def _xor_high(words: _Ints, shift: int) -> _Ints:
    mixed: _Ints = words ^ (words >> words.dtype.type(shift))
    return mixed


def _folded(words: _Ints, *steps: tuple[int, int]) -> _Ints:
    """Mix the high bits into the low ones: shift, exclusive or, multiply."""
    for shift, factor in steps:
        words = _xor_high(words, shift) * words.dtype.type(factor)
    return words


# Murmur3, 32 bits


def _murmur_mixed(hashes: _Ints, words: _Ints) -> _Ints:
    words = _rotated(words * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)
    return _rotated(hashes ^ words, 13) * np.uint32(5) + np.uint32(0xE6546B64)


def _murmur_end(hashes: _Ints, length: Any) -> _Ints:
    return _xor_high(_folded(hashes ^ length, (16, 0x85EBCA6B), (13, 0xC2B2AE35)), 16)


def _murmur_of_ints(numbers: _Ints, seeds: _Ints) -> _Ints:
    return _murmur_end(_murmur_mixed(seeds, numbers), np.uint32(4))


def _murmur_of_longs(numbers: _Ints, seeds: _Ints) -> _Ints:
    low, high = numbers.astype(np.uint32), (numbers >> np.uint64(32)).astype(np.uint32)
    return _murmur_end(_murmur_mixed(_murmur_mixed(seeds, low), high), np.uint32(8))


def _murmur_of_bytes(slices: _Slices, seeds: _Ints) -> _Ints:
    hashes, words = seeds.copy(), slices.words("<u4")
    blocks = slices.lengths // 4
    for block in range(int(blocks.max(initial=0))):
        rows = np.flatnonzero(blocks > block)
        hashes[rows] = _murmur_mixed(hashes[rows], words[slices.starts[rows] + 4 * block])
    left, signed = slices.lengths % 4, slices.data.view(np.int8).astype(np.int32).view(np.uint32)
    for place in range(3):
        rows = np.flatnonzero(left > place)
        hashes[rows] = _murmur_mixed(hashes[rows], signed[(slices.starts + 4 * blocks)[rows] + place])
    return _murmur_end(hashes, slices.lengths.astype(np.uint32))


# xxHash, 64 bits

_P1, _P2, _P3, _P4, _P5 = map(
    np.uint64,
    (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5),
)


def _xx_round(lane: _Ints, words: _Ints) -> _Ints:
    return _rotated(lane + words * _P2, 31) * _P1


def _xx_long(hashes: _Ints, words: _Ints) -> _Ints:
    return _rotated(hashes ^ (_rotated(words * _P2, 31) * _P1), 27) * _P1 + _P4


def _xx_int(hashes: _Ints, words: _Ints) -> _Ints:
    return _rotated(hashes ^ (words.astype(np.uint64) * _P1), 23) * _P2 + _P3


def _xx_end(hashes: _Ints) -> _Ints:
    return _xor_high(_folded(hashes, (33, int(_P2)), (29, int(_P3))), 32)


def _xx_of_ints(numbers: _Ints, seeds: _Ints) -> _Ints:
    return _xx_end(_xx_int(seeds + _P5 + np.uint64(4), numbers))


def _xx_of_longs(numbers: _Ints, seeds: _Ints) -> _Ints:
    return _xx_end(_xx_long(seeds + _P5 + np.uint64(8), numbers))


def _xx_of_bytes(slices: _Slices, seeds: _Ints) -> _Ints:
    longs, ints = slices.words("<u8"), slices.words("<u4")
    stripes = slices.lengths // 32
    hashes = np.where(stripes > 0, _xx_stripes(slices, seeds, stripes, longs), seeds + _P5)
    hashes = hashes + slices.lengths.astype(np.uint64)
    at, left = slices.starts + 32 * stripes, slices.lengths % 32
    for _ in range(3):
        rows = np.flatnonzero(left >= 8)
        hashes[rows] = _xx_long(hashes[rows], longs[at[rows]])
        at[rows], left[rows] = at[rows] + 8, left[rows] - 8
    rows = np.flatnonzero(left >= 4)
    hashes[rows] = _xx_int(hashes[rows], ints[at[rows]])
    at[rows], left[rows] = at[rows] + 4, left[rows] - 4
    for place in range(3):
        rows = np.flatnonzero(left > place)
        byte = slices.data[at[rows] + place].astype(np.uint64)
        hashes[rows] = _rotated(hashes[rows] ^ (byte * _P5), 11) * _P1
    return _xx_end(hashes)


def _xx_stripes(slices: _Slices, seeds: _Ints, stripes: _Ints, longs: _Ints) -> _Ints:
    """Return the hashes of the whole stripes of 32 bytes."""
    lanes = [seeds + _P1 + _P2, seeds + _P2, seeds.copy(), seeds - _P1]
    for stripe in range(int(stripes.max(initial=0))):
        rows = np.flatnonzero(stripes > stripe)
        for number, lane in enumerate(lanes):
            lane[rows] = _xx_round(lane[rows], longs[slices.starts[rows] + 32 * stripe + 8 * number])
    hashes = np.zeros_like(seeds)
    for lane, by in zip(lanes, (1, 7, 12, 18), strict=True):
        hashes = hashes + _rotated(lane, by)
    for lane in lanes:
        hashes = (hashes ^ _xx_round(np.zeros_like(lane), lane)) * _P1 + _P4
    return hashes


LOWERED: dict[str, Lowering] = {
    "murmur3": _lowering(_Hash(pa.int32(), _murmur_of_ints, _murmur_of_longs, _murmur_of_bytes)),
    "xxhash64": _lowering(_Hash(pa.int64(), _xx_of_ints, _xx_of_longs, _xx_of_bytes)),
}
"""The lowering of each function."""
