"""The dictionaries of data files: taken over from the rows, or, before Parquet tries and fails, told by a sample."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from volley.arrow.dictionaries import decode, encoded_schema, is_encoded

__all__ = ["DICTIONARY_BYTES", "row_group", "without_dictionary"]

DICTIONARY_BYTES = 1 << 20
"""What Parquet's writer lets a dictionary grow to before it gives it up."""

_SLICES = 32
_SLICE_ROWS = 256
_LENGTH_BYTES = 4
# Fewer rows for each value of a dictionary are smaller without one.
_ROWS_FOR_A_VALUE = 4


def row_group(
    batches: Sequence[pa.RecordBatch],
    schema: pa.Schema,
    first: pa.Schema | None = None,
    plain_columns: Collection[str] = (),
) -> pa.Table:
    """The rows of a row group.

    A column of which all batches have a dictionary gets one for all of them: Parquet's writer takes that over and has
    nothing to look up; given two, it writes the values one by one.

    Args:
        batches: The rows, with the schema's columns.
        schema: The schema of the files.
        first: The schema of the file's first row group, which the others have to have; None = this is the first.
        plain_columns: The columns that need their values.

    Example:
        >>> kinds = [pa.record_batch({"kind": pa.array([each] * 4).dictionary_encode()}) for each in "ab"]
        >>> row_group(kinds, pa.schema({"kind": pa.string()}))["kind"].chunk(1).dictionary.to_pylist()
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
    each = (chunk if pa.types.is_dictionary(chunk.type) else chunk.dictionary_encode() for chunk in chunks)
    return pa.chunked_array(list(each)).unify_dictionaries()


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
    asked = [
        field.name
        for field in rows.schema
        if not (pa.types.is_nested(field.type) or pa.types.is_dictionary(field.type))
    ]
    slices = [rows.select(asked).slice(number * count // _SLICES, _SLICE_ROWS) for number in range(_SLICES)]
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
