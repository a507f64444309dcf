"""Decides which columns get a Parquet dictionary: the source's own, or by estimate from a sample."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from random import Random

import pyarrow as pa
import pyarrow.compute as pc

from volley.columns.dictionaries import decode, encoded_schema, is_encoded

__all__ = ["DICTIONARY_BYTES", "row_group", "without_dictionary"]

DICTIONARY_BYTES = 1 << 20
"""The size at which Parquet's writer gives up a dictionary."""

_SLICES = 32
_SLICE_ROWS = 256
_LENGTH_BYTES = 4
# With fewer rows per value, a column is smaller without a dictionary.
_ROWS_FOR_A_VALUE = 4


def row_group(
    batches: Sequence[pa.RecordBatch],
    schema: pa.Schema,
    first: pa.Schema | None = None,
    plain_columns: Collection[str] = (),
) -> pa.Table:
    """Return batches as one row group.

    If all batches have a dictionary for a column, they get a common one: Parquet's writer uses it without looking up
    values. With different dictionaries, it would write the values one by one.

    Args:
        first: The schema of the file's first row group, which the others must have too; None = this is the first.
        plain_columns: The columns to decode.

    Example:
        >>> batches = [pa.record_batch({"kind": pa.array([letter] * 4).dictionary_encode()}) for letter in "ab"]
        >>> row_group(batches, pa.schema({"kind": pa.string()}))["kind"].chunk(1).dictionary.to_pylist()
        ['a', 'b']
    """
    if first in (None, schema) and all(batch.schema.equals(schema) for batch in batches):
        return pa.Table.from_batches(batches, schema)
    columns = []
    for index, field in enumerate(schema):
        chunks = [batch.column(index) for batch in batches]
        if first is not None:
            column = _encoded(chunks) if first.field(index).type != field.type else _plain(chunks, field)
        elif field.name not in plain_columns and all(is_encoded(chunk.type, field.type) for chunk in chunks):
            column = _encoded(chunks)
            values = len(column.chunk(0).dictionary)
            column = column if values * _ROWS_FOR_A_VALUE <= len(column) else _plain(chunks, field)
        else:
            column = _plain(chunks, field)
        columns.append(column)
    return pa.table(columns, encoded_schema(schema, (column.type for column in columns)))


def _plain(chunks: Sequence[pa.Array], field: pa.Field) -> pa.ChunkedArray:
    return pa.chunked_array([decode(chunk) for chunk in chunks], field.type)


def _encoded(chunks: Sequence[pa.Array]) -> pa.ChunkedArray:
    encoded = [chunk if pa.types.is_dictionary(chunk.type) else chunk.dictionary_encode() for chunk in chunks]
    return pa.chunked_array(encoded).unify_dictionaries()


def without_dictionary(rows: pa.Table, limit: int = DICTIONARY_BYTES) -> set[str]:
    """Return the paths of columns, also nested ones, whose dictionary would grow too large or make them no smaller.

    The writer would find out by itself, but only after hashing a megabyte of distinct values, in every row group.
    parquet-java decides after the first page (`DictionaryValuesWriter`, ``isCompressionSatisfying``); a sample from
    the whole row group also shows values that recur far apart.

    Example:
        >>> ids = pa.chunked_array([range(20_000)])
        >>> without_dictionary(pa.table({"id": ids, "kind": pc.bit_wise_and(ids, 7)}))
        {'id'}
    """
    count = rows.num_rows
    if count <= _SLICES * _SLICE_ROWS:
        return set()
    names = [field.name for field in rows.schema if not pa.types.is_dictionary(field.type)]
    slices = [rows.select(names).slice(start, _SLICE_ROWS) for start in _starts(count)]
    sample = pa.concat_tables(slices).combine_chunks()
    leaves = [leaf for name in names for leaf in _leaves(name, sample[name].combine_chunks())]
    return {path for path, values in leaves if not _pays(values.drop_null(), count * len(values) // len(sample), limit)}


def _starts(count: int) -> Iterator[int]:
    """Yield where the slices of a sample begin: each in its part of the rows, in a place that looks random.

    At equal distances they would meet the same values again where rows recur, as those of two partitions do.
    """
    random = Random(count)
    step = count // _SLICES
    for number in range(_SLICES):
        yield number * step + random.randrange(step - _SLICE_ROWS + 1)


def _leaves(path: str, values: pa.Array) -> Iterator[tuple[str, pa.Array]]:
    """Yield the path of each leaf column in a Parquet file, with its values."""
    if pa.types.is_struct(values.type):
        for field, child in zip(values.type, values.flatten(), strict=True):
            yield from _leaves(f"{path}.{field.name}", child)
    elif pa.types.is_map(values.type):
        yield from _leaves(f"{path}.key_value.key", values.keys)
        yield from _leaves(f"{path}.key_value.value", values.items)
    elif pa.types.is_nested(values.type):
        yield from _leaves(f"{path}.list.element", values.flatten())
    else:
        yield path, values


def _pays(sample: pa.Array, rows: int, limit: int) -> bool:
    """Return True if a column of this many rows is smaller with a dictionary, and the dictionary stays in the limit."""
    count, width = len(sample), _width(sample)
    values = _distinct(count, len(pc.unique(sample)))
    indices = rows * math.log2(max(2, values)) / 8
    return values * width <= limit and values * width + indices < rows * width


def _width(sample: pa.Array) -> float:
    """Return the bytes of a value in a page."""
    try:
        return float(sample.type.bit_width / 8)
    except ValueError:
        return float(_LENGTH_BYTES + (pc.mean(pc.binary_length(sample)).as_py() or 0))


def _distinct(count: int, seen: int) -> float:
    """Estimate the number of distinct values, given `seen` distinct ones among `count` random draws.

    With D values, `count` draws are expected to show D (1 - exp(-count / D)) of them: solved for D by bisection.
    """
    if seen == count:
        return math.inf if count else 0.0
    low, high = float(seen), float(count * count)
    for _ in range(40):
        middle = math.sqrt(low * high)
        shown = -middle * math.expm1(-count / middle)
        low, high = (middle, high) if shown < seen else (low, middle)
    return low
