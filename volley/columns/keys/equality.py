"""Equal rows: their hashes, and their matches on two sides, by hash, then value by value; any type, nested ones too.

Values are equal bitwise: null equals null, NaN equals NaN, 0.0 differs from -0.0; the entries of a map have an order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache, reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from volley.columns.compiled import whole
from volley.columns.exact import entry_lists
from volley.columns.keys.normal import Bools, plain

__all__ = [
    *("NUMBER", "Hashes", "Indices", "differing", "distinct", "hashes", "matches_among", "matching_rows"),
    *("row_hashes", "rows_among"),
]

Hashes = np.ndarray[Any, np.dtype[np.uint64]]
Indices = np.ndarray[Any, np.dtype[np.int64]]

_NULL = np.uint64(0x9E3779B97F4A7C15)
_BASE = np.uint64(0xD6E8FEB86659FD93)
_INVERSE = np.uint64(pow(int(_BASE), -1, 1 << 64))
# Bytes that are hashed at once: their terms, 8 bytes each, stay in the processor's cache.
_BYTES = 32 << 10
_BATCH_ROWS = 65_536
_ROW = "_volley_row"
NUMBER = "_volley_number"
"""The column with the numbers of keys, see `matches_among`."""


def matching_rows(left: pa.Table, right: pa.Table, hashed: Sequence[str]) -> tuple[Indices, Indices]:
    """Return the rows of two tables that are equal, as two arrays of row numbers; a row is matched at most once.

    Different rows are never matched. Equal ones may stay without a match where different rows have the same hash:
    if all columns are hashed, there is hardly ever such a pair.

    Args:
        right: A table with columns of the same types.
        hashed: The columns whose hashes find candidates for a match.

    Example:
        >>> left, right = pa.table({"id": [1, 2, 2, 3]}), pa.table({"id": [2, 4, 1]})
        >>> [rows.tolist() for rows in matching_rows(left, right, ["id"])]
        [[0, 1], [2, 0]]
    """
    columns = list(hashed)
    ours, theirs = _equal_hashes(row_hashes(left.select(columns)), row_hashes(right.select(columns)))
    same = np.zeros(len(ours), bool)
    for start in range(0, len(ours), _BATCH_ROWS):
        part = slice(start, start + _BATCH_ROWS)
        same[part] = ~differing(left.take(pa.array(ours[part])), right.take(pa.array(theirs[part])))
    return ours[same], theirs[same]


def rows_among(rows: pa.Table, keys: pa.Table) -> Indices:
    """Return the numbers of the rows that are equal to one of some keys, by Arrow's join: a null equals nothing.

    Args:
        rows: Columns in their normal form, not nested.
        keys: Columns of the same names and types.

    Example:
        >>> rows_among(pa.table({"id": [3, 1, 2, 1]}), pa.table({"id": [1, 2]})).tolist()
        [1, 2, 3]
    """
    return np.sort(_joined("left semi", rows, keys, keys.column_names, [])[_ROW].to_numpy())


def matches_among(rows: pa.Table, keys: pa.Table) -> tuple[Indices, Indices]:
    """Return what `rows_among` does, and for each of these rows the number of its key.

    Args:
        keys: Columns of the same names and types, each key once, and `NUMBER`.

    Example:
        >>> keys = pa.table({"id": [1, 2], NUMBER: [70, 80]})
        >>> [numbers.tolist() for numbers in matches_among(pa.table({"id": [3, 2, 1, 2]}), keys)]
        [[1, 2, 3], [80, 70, 80]]
    """
    found = _joined("inner", rows, keys, rows.column_names, [NUMBER])
    matches, numbers = found[_ROW].to_numpy(), found[NUMBER].to_numpy()
    order = np.argsort(matches)
    return matches[order], numbers[order]


def _joined(kind: str, rows: pa.Table, keys: pa.Table, by: Sequence[str], more: Sequence[str]) -> pa.Table:
    """Return the numbers of the rows that a join finds, with further columns of the keys; `Table.join` gives all."""
    # Imported here, as it imports pandas too, which takes half a second.
    from pyarrow import acero

    sides = rows.append_column(_ROW, pa.array(np.arange(rows.num_rows))), keys
    sources = [acero.Declaration("table_source", acero.TableSourceNodeOptions(side)) for side in sides]
    options = acero.HashJoinNodeOptions(kind, by, by, [_ROW], more)
    return acero.Declaration("hashjoin", options, inputs=sources).to_table(use_threads=False)


def distinct(rows: pa.Table) -> pa.Table:
    """Return rows of columns in their normal form, each once."""
    return rows.group_by(rows.column_names, use_threads=False).aggregate([])


def row_hashes(table: pa.Table) -> Hashes:
    """Return a hash of each row of a table; see `hashes`."""
    return np.concatenate([np.empty(0, np.uint64), *(hashes(batch) for batch in table.to_batches(_BATCH_ROWS))])


def _equal_hashes(left: Hashes, right: Hashes) -> tuple[Indices, Indices]:
    """Match each occurrence of a hash on one side with one on the other."""
    ours, theirs = np.argsort(left), np.argsort(right)
    left, right = left[ours], right[theirs]
    numbers = np.arange(len(left))
    is_first = np.ones(len(left), bool)
    is_first[1:] = left[1:] != left[:-1]
    nth = numbers - np.maximum.accumulate(np.where(is_first, numbers, 0))
    places = np.searchsorted(right, left) + nth
    is_matched = places < len(right)
    is_matched[is_matched] = right[places[is_matched]] == left[is_matched]
    # In the order of the left rows: taking rows in the order of their hashes is several times as slow.
    partners = np.full(len(left), -1)
    partners[ours[is_matched]] = theirs[places[is_matched]]
    matched = np.flatnonzero(partners >= 0)
    return matched, partners[matched]


def differing(left: pa.Table | pa.RecordBatch, right: pa.Table | pa.RecordBatch) -> Bools:
    """Return for each row whether it differs from the row at the same place on the other side, of the same types.

    Example:
        >>> nan, zero = float("nan"), 0.0
        >>> differing(pa.table({"x": [1.0, None, nan, zero]}), pa.table({"x": [2.0, None, nan, -zero]})).tolist()
        [True, False, False, True]
    """
    pairs = ((whole(ours), whole(theirs)) for ours, theirs in zip(left.columns, right.columns, strict=True))
    return _any_differs(pairs, left.num_rows)


def _any_differs(pairs: Iterable[tuple[pa.Array, pa.Array]], rows: int) -> Bools:
    differs = np.zeros(rows, bool)
    for ours, theirs in pairs:
        differs |= _differ(ours, theirs)
    return differs


def _differ(left: pa.Array, right: pa.Array) -> Bools:
    left, right = _flat(left), _flat(right)
    differs = _values_differ(left, right)
    if left.null_count or right.null_count:
        ours, theirs = _is_null(left), _is_null(right)
        differs = (differs & ~(ours | theirs)) | (ours != theirs)
    return differs


def _values_differ(left: pa.Array, right: pa.Array) -> Bools:
    """Return whether values differ; undefined where a side is null."""
    if pa.types.is_list(left.type):
        return _lists_differ(left, right)
    if pa.types.is_struct(left.type):
        return _any_differs(zip(left.flatten(), right.flatten(), strict=True), len(left))
    if pa.types.is_floating(left.type):
        differs: Bools = _bits(left) != _bits(right)
        return differs
    if pa.types.is_null(left.type):
        return np.zeros(len(left), bool)
    return _bools(pc.fill_null(pc.not_equal(left, right), False))


def _lists_differ(left: pa.ListArray, right: pa.ListArray) -> Bools:
    ours, theirs = _lengths(left), _lengths(right)
    differ: Bools = ours != theirs
    if differ.any():
        # Only lists of one length have their elements at the same places.
        same = pa.array(~differ)
        differ[~differ] = _lists_differ(left.filter(same), right.filter(same))
        return differ
    rows = np.repeat(np.arange(len(left)), ours)
    differ[rows[_differ(left.flatten(), right.flatten())]] = True
    return differ


def hashes(batch: pa.RecordBatch) -> Hashes:
    """Return a hash of each row: rows of equal values have the same one in every process."""
    return _hash_columns(batch.columns, batch.num_rows)


def _hash_columns(columns: Sequence[pa.Array], rows: int) -> Hashes:
    result = np.zeros(rows, np.uint64)
    for column in columns:
        result = _mix(result * _BASE + _hash(column))
    return result


def _hash(array: pa.Array) -> Hashes:
    array = _flat(array)
    if not len(array):
        return np.zeros(0, np.uint64)
    values = _hash_values(array)
    if array.null_count:
        values[_is_null(array)] = _NULL
    return values


def _hash_values(array: pa.Array) -> Hashes:
    t = pa.types
    if t.is_struct(array.type):
        return _hash_columns(array.flatten(), len(array))
    if t.is_list(array.type):
        return _hash_lists(array)
    if t.is_boolean(array.type) or t.is_null(array.type):
        return _mix(_bools(array.cast(pa.bool_()).fill_null(False)).astype(np.uint64))
    if t.is_string(array.type) or t.is_binary(array.type):
        return _hash_bytes(array)
    return _hash_words(array)


def _hash_words(array: pa.Array) -> Hashes:
    words = _bits(array)
    if words.ndim == 1:
        return _mix(words.astype(np.uint64))
    return reduce(lambda hashed, word: _mix(hashed * _BASE + word), words.astype(np.uint64).T)


def _hash_lists(array: pa.ListArray) -> Hashes:
    lengths = _lengths(array)
    ends = np.cumsum(lengths)
    places = (np.arange(ends[-1]) - np.repeat(ends - lengths, lengths)).astype(np.uint64)
    elements = _mix(_hash(array.flatten()) + places * _BASE)
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(elements, dtype=np.uint64)])
    return _mix(sums[ends] - sums[ends - lengths] + lengths.astype(np.uint64))


def _hash_bytes(array: pa.Array) -> Hashes:
    """Hash texts as polynomials: a prefix sum over all bytes gives the hash of every part."""
    offsets = np.frombuffer(array.buffers()[1], np.int32)[array.offset : array.offset + len(array) + 1]
    data = np.frombuffer(array.buffers()[2] or b"", np.uint8)
    result = np.empty(len(array), np.uint64)
    start = 0
    while start < len(array):
        # One value may have more bytes than are hashed at once otherwise.
        stop = max(int(np.searchsorted(offsets, offsets[start] + _BYTES, "right")) - 1, start + 1)
        part = data[offsets[start] : offsets[stop]]
        ends = (offsets[start : stop + 1] - offsets[start]).astype(np.int64)
        powers, inverses = _powers(max(len(part), _BYTES) + 1)
        sums = np.zeros(len(part) + 1, np.uint64)
        np.cumsum((part + np.uint64(1)) * powers[: len(part)], out=sums[1:])
        lengths = np.diff(ends).astype(np.uint64)
        result[start:stop] = (sums[ends[1:]] - sums[ends[:-1]]) * inverses[ends[:-1]] + lengths
        start = stop
    return _mix(result)


@lru_cache(maxsize=1)
def _powers(count: int) -> tuple[Hashes, Hashes]:
    """Return the powers of the base, and of its inverse, modulo 2^64."""
    powers = np.array([[_BASE], [_INVERSE]]).repeat(count, axis=1)
    powers[:, 0] = 1
    base, inverse = np.cumprod(powers, axis=1, dtype=np.uint64)
    return base, inverse


def _mix(values: Hashes) -> Hashes:
    """Spread each bit over all of them (splitmix64's finalizer)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def _flat(array: pa.Array) -> pa.Array:
    """Return the array without extension types and dictionaries; maps as lists of entries."""
    array = plain(array)
    return entry_lists(array) if pa.types.is_map(array.type) else array


def _bits(array: pa.Array) -> np.ndarray[Any, Any]:
    """Return values of a fixed width as unsigned integers, wide ones as rows of several; NaN always as the same."""
    if pa.types.is_fixed_size_binary(array.type) and array.type.byte_width % 8:
        width = array.type.byte_width
        data = np.frombuffer(array.buffers()[1], np.uint8, count=(array.offset + len(array)) * width)
        return data.reshape(-1, width)[array.offset :]
    width = array.type.bit_width // 8
    words, unit = (width // 8, 8) if width > 8 else (1, width)
    count = (array.offset + len(array)) * words
    bits = np.frombuffer(array.buffers()[1], f"u{unit}", count=count).reshape(-1, words)[array.offset :]
    bits = bits[:, 0] if words == 1 else bits
    if pa.types.is_floating(array.type):
        floats = bits.view(f"f{unit}")
        return np.where(np.isnan(floats), np.full(1, np.nan, floats.dtype).view(bits.dtype), bits)
    return bits


def _lengths(array: pa.ListArray) -> Indices:
    lengths: Indices = pc.fill_null(pc.list_value_length(array), 0).to_numpy().astype(np.int64)
    return lengths


def _is_null(array: pa.Array) -> Bools:
    return _bools(array.is_null())


def _bools(array: pa.Array) -> Bools:
    values: Bools = array.to_numpy(zero_copy_only=False)
    return values
