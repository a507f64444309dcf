"""Which columns of a data file are worth a dictionary: told by a sample, before Parquet tries and fails at it."""

from __future__ import annotations

import math

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["DICTIONARY_BYTES", "without_dictionary"]

DICTIONARY_BYTES = 1 << 20
"""What Parquet's writer lets a dictionary grow to before it gives it up."""

_SLICES = 32
_SLICE_ROWS = 256
_LENGTH_BYTES = 4


def without_dictionary(rows: pa.Table, limit: int = DICTIONARY_BYTES) -> set[str]:
    """The columns that would outgrow their dictionary, or be no smaller with one.

    The writer would find that out by itself, but only when it has hashed a megabyte of different values, in each row
    group again. parquet-java asks the same question behind the first page (`DictionaryValuesWriter`,
    ``isCompressionSatisfying``); rows from all over also tell of values that recur far apart.

    Args:
        rows: The rows of the first row group.
        limit: The most bytes of a dictionary.

    Example:
        >>> ids = pa.chunked_array([range(20_000)])
        >>> without_dictionary(pa.table({"id": ids, "kind": pc.bit_wise_and(ids, 7)}))
        {'id'}
    """
    count = rows.num_rows
    if count <= _SLICES * _SLICE_ROWS:
        return set()
    plain = rows.select([field.name for field in rows.schema if not pa.types.is_nested(field.type)])
    slices = [plain.slice(number * count // _SLICES, _SLICE_ROWS) for number in range(_SLICES)]
    sample = pa.concat_tables(slices).combine_chunks()
    return {name for name in sample.schema.names if not _pays(sample[name].drop_null(), count, limit)}


def _pays(sample: pa.ChunkedArray, rows: int, limit: int) -> bool:
    """True if a column of so many rows is smaller with a dictionary, which has room for it."""
    count, width = len(sample), _width(sample)
    values = _distinct(count, len(pc.unique(sample)))
    indices = rows * math.log2(max(2, values)) / 8
    return values * width <= limit and values * width + indices < rows * width


def _width(sample: pa.ChunkedArray) -> float:
    """The bytes of a value in a page."""
    try:
        return float(sample.type.bit_width / 8)
    except ValueError:
        return float(_LENGTH_BYTES + (pc.mean(pc.binary_length(sample)).as_py() or 0))


def _distinct(count: int, seen: int) -> float:
    """How many different values there are, if `count` values drawn at random have shown `seen` of them.

    Of D values, `count` draws are expected to show D (1 - exp(-count / D)): solved for D by halving.
    """
    if seen == count:
        return math.inf if count else 0.0
    low, high = float(seen), float(count * count)
    for _ in range(40):
        middle = math.sqrt(low * high)
        shown = -middle * math.expm1(-count / middle)
        low, high = (middle, high) if shown < seen else (low, middle)
    return low
