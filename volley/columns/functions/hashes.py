"""Hashes: of texts and binary values, ids made of them, and Spark's ``hash`` and ``xxhash64`` of several values.

Spark's are Murmur3 of 32 bits, by Austin Appleby, and xxHash, by Yann Collet, with the seed 42; its Murmur3 takes each
byte behind the last whole word as a word.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from volley.columns.compiled import CompiledExpression, Lowering, all_null, computed, of_distinct, to_type, wrong_types
from volley.columns.keys.murmur3 import Places, ended, mixed, of_longs, rotated, value_bytes, words_at
from volley.columns.keys.normal import normal
from volley.plan.expression_nodes import Call, parameter
from volley.types.arrow import Datum

__all__ = ["LOWERED"]

_Ints = npt.NDArray[Any]
_Bytes = tuple[npt.NDArray[np.uint8], Places, Places]
"""Bytes, where each value starts in them, and its length."""
_SEED = 42
# Spark hashes decimals of up to 18 digits as longs.
_LONG_DIGITS = 18
_INT_BITS = 32


def _hash(function: Callable[[bytes], Any]) -> Lowering:
    def lower(node: Call, args: list[CompiledExpression]) -> CompiledExpression:
        (value,) = args
        if not (pa.types.is_string(value.type) or pa.types.is_binary(value.type) or all_null(value)):
            raise wrong_types(node, [value.type], "a string or binary")

        def compute(values: Datum) -> Datum:
            return of_distinct(values, lambda data: function(data).hexdigest(), pa.string())

        return computed(pa.string(), compute, to_type(value, pa.binary()))

    return lower


def _uuid5(node: Call, args: list[CompiledExpression]) -> CompiledExpression:
    value, namespace = args[0], UUID(parameter(node))
    if not (pa.types.is_string(value.type) or all_null(value)):
        raise wrong_types(node, [value.type], "a string")
    operand = to_type(value, pa.binary())

    def evaluate(batch: pa.RecordBatch) -> pa.Array:
        ids = of_distinct(operand.column(batch), partial(_uuid5_bytes, namespace.bytes), pa.binary(16))
        return pa.ExtensionArray.from_storage(pa.uuid(), ids)

    return CompiledExpression(pa.uuid(), evaluate, value.can_fail)


def _uuid5_bytes(namespace: bytes, name: bytes) -> bytes:
    """Return the bytes of `uuid.uuid5`, which makes an object of each: this takes a third of the time."""
    data = bytearray(hashlib.sha1(namespace + name).digest()[:16])
    data[6] = data[6] & 0x0F | 0x50
    data[8] = data[8] & 0x3F | 0x80
    return bytes(data)


class _Hash(NamedTuple):
    """A hash function: how it takes ints, longs and bytes, each with a seed for each row."""

    out: pa.DataType
    of_ints: Callable[[_Ints, _Ints], _Ints]
    of_longs: Callable[[_Ints, _Ints], _Ints]
    of_bytes: Callable[[_Bytes, _Ints], _Ints]


def _lowering(function: _Hash) -> Lowering:
    def lower(node: Call, args: list[CompiledExpression]) -> CompiledExpression:
        for arg in args:
            if not (all_null(arg) or _is_hashable(arg.type)):
                raise wrong_types(node, [arg.type], "numbers, booleans, strings, binary, dates and timestamps")

        def evaluate(batch: pa.RecordBatch) -> pa.Array:
            width = np.uint32 if function.out == pa.int32() else np.uint64
            hashes = np.full(batch.num_rows, _SEED, width)
            for arg in args:
                if not all_null(arg):
                    hashes = _continued(function, arg.column(batch), hashes)
            return pa.array(hashes.view(np.int32 if width is np.uint32 else np.int64), function.out)

        return CompiledExpression(function.out, evaluate, any(arg.can_fail for arg in args))

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
    values = normal(values)
    data_type = values.type
    if pa.types.is_string(data_type) or pa.types.is_binary(data_type):
        return function.of_bytes(value_bytes(values), seeds)
    if pa.types.is_decimal(data_type):
        if data_type.precision <= _LONG_DIGITS:
            return function.of_longs(_unscaled(values), seeds)
        return function.of_bytes(value_bytes(values), seeds)
    if pa.types.is_boolean(data_type):
        values = values.cast(pa.int32())
    if values.type.bit_width == _INT_BITS:
        return function.of_ints(values.view(pa.int32()).to_numpy().view(np.uint32), seeds)
    return function.of_longs(values.view(pa.int64()).to_numpy().view(np.uint64), seeds)


def _unscaled(values: pa.Array) -> _Ints:
    words = np.frombuffer(values.buffers()[1], np.uint64).reshape(-1, 2)
    return words[values.offset : values.offset + len(values), 0]


def _xor_high(words: _Ints, shift: int) -> _Ints:
    mixed: _Ints = words ^ (words >> words.dtype.type(shift))
    return mixed


def _folded(words: _Ints, *steps: tuple[int, int]) -> _Ints:
    """Mix the high bits into the low ones: shift, exclusive or, multiply."""
    for shift, factor in steps:
        words = _xor_high(words, shift) * words.dtype.type(factor)
    return words


# Murmur3, 32 bits


def _murmur_of_ints(numbers: _Ints, seeds: _Ints) -> _Ints:
    return ended(mixed(seeds, numbers), np.uint32(4))


def _murmur_of_bytes(values: _Bytes, seeds: _Ints) -> _Ints:
    data, starts, lengths = values
    hashes, words = seeds.copy(), words_at(data, "<u4")
    blocks = lengths // 4
    for block in range(int(blocks.max(initial=0))):
        rows = np.flatnonzero(blocks > block)
        hashes[rows] = mixed(hashes[rows], words[starts[rows] + 4 * block])
    left, signed = lengths % 4, data.view(np.int8).astype(np.int32).view(np.uint32)
    for place in range(3):
        rows = np.flatnonzero(left > place)
        hashes[rows] = mixed(hashes[rows], signed[(starts + 4 * blocks)[rows] + place])
    return ended(hashes, lengths.astype(np.uint32))


# xxHash, 64 bits

_P1, _P2, _P3, _P4, _P5 = map(
    np.uint64,
    (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5),
)


def _xx_round(lane: _Ints, words: _Ints) -> _Ints:
    return rotated(lane + words * _P2, 31) * _P1


def _xx_long(hashes: _Ints, words: _Ints) -> _Ints:
    return rotated(hashes ^ (rotated(words * _P2, 31) * _P1), 27) * _P1 + _P4


def _xx_int(hashes: _Ints, words: _Ints) -> _Ints:
    return rotated(hashes ^ (words.astype(np.uint64) * _P1), 23) * _P2 + _P3


def _xx_end(hashes: _Ints) -> _Ints:
    return _xor_high(_folded(hashes, (33, int(_P2)), (29, int(_P3))), 32)


def _xx_of_ints(numbers: _Ints, seeds: _Ints) -> _Ints:
    return _xx_end(_xx_int(seeds + _P5 + np.uint64(4), numbers))


def _xx_of_longs(numbers: _Ints, seeds: _Ints) -> _Ints:
    return _xx_end(_xx_long(seeds + _P5 + np.uint64(8), numbers))


def _xx_of_bytes(values: _Bytes, seeds: _Ints) -> _Ints:
    data, starts, lengths = values
    longs, ints = words_at(data, "<u8"), words_at(data, "<u4")
    stripes = lengths // 32
    hashes = np.where(stripes > 0, _xx_stripes(starts, seeds, stripes, longs), seeds + _P5)
    hashes = hashes + lengths.astype(np.uint64)
    at, left = starts + 32 * stripes, lengths % 32
    for _ in range(3):
        rows = np.flatnonzero(left >= 8)
        hashes[rows] = _xx_long(hashes[rows], longs[at[rows]])
        at[rows], left[rows] = at[rows] + 8, left[rows] - 8
    rows = np.flatnonzero(left >= 4)
    hashes[rows] = _xx_int(hashes[rows], ints[at[rows]])
    at[rows], left[rows] = at[rows] + 4, left[rows] - 4
    for place in range(3):
        rows = np.flatnonzero(left > place)
        byte = data[at[rows] + place].astype(np.uint64)
        hashes[rows] = rotated(hashes[rows] ^ (byte * _P5), 11) * _P1
    return _xx_end(hashes)


def _xx_stripes(starts: Places, seeds: _Ints, stripes: _Ints, longs: _Ints) -> _Ints:
    """Return the hashes of the whole stripes of 32 bytes."""
    lanes = [seeds + _P1 + _P2, seeds + _P2, seeds.copy(), seeds - _P1]
    for stripe in range(int(stripes.max(initial=0))):
        rows = np.flatnonzero(stripes > stripe)
        for number, lane in enumerate(lanes):
            lane[rows] = _xx_round(lane[rows], longs[starts[rows] + 32 * stripe + 8 * number])
    hashes = np.zeros_like(seeds)
    for lane, by in zip(lanes, (1, 7, 12, 18), strict=True):
        hashes = hashes + rotated(lane, by)
    for lane in lanes:
        hashes = (hashes ^ _xx_round(np.zeros_like(lane), lane)) * _P1 + _P4
    return hashes


LOWERED: dict[str, Lowering] = {
    "md5": _hash(hashlib.md5),
    "sha256": _hash(hashlib.sha256),
    "uuid5": _uuid5,
    "murmur3": _lowering(_Hash(pa.int32(), _murmur_of_ints, of_longs, _murmur_of_bytes)),
    "xxhash64": _lowering(_Hash(pa.int64(), _xx_of_ints, _xx_of_longs, _xx_of_bytes)),
}
"""The lowering of each function."""
