"""Computes the bounds of shredded variants: those of each field whose values are all in a column of one type.

Iceberg's specification ("Bounds for Variant"): a variant that is an object, with a bound for the path of each field.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.types import BinaryType, PrimitiveType, StringType

from volley.formats.variant_columns import METADATA, TYPED, VALUE
from volley.formats.variant_shredding import leaves_of
from volley.formats.variant_typed import decimal_of, values_of
from volley.formats.variant_writer import metadata_of, object_of_values
from volley.iceberg.layout.partitions import Bounds, bounds

__all__ = ["Chunks", "variant_bounds"]

Chunks = Mapping[str, Sequence[pq.ColumnChunkMetaData]]
"""The column chunks of all row groups, by path."""

_CUT: Mapping[pa.DataType, PrimitiveType] = {pa.string(): StringType(), pa.binary(): BinaryType()}
_INTEGERS = {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}
# Iceberg's default: pyiceberg takes the table's own number for texts and bytes alone.
_LENGTH = 16
# RFC 9535, 2.7: normalized paths.
_ESCAPES = {"\b": "b", "\t": "t", "\n": "n", "\f": "f", "\r": "r", "'": "'", "\\": "\\"}


def variant_bounds(chunks: Chunks, path: str, stored: pa.StructType) -> Bounds:
    """Return the bounds of a column; None if there are none.

    Args:
        path: The path of the column in the file.
        stored: Its type.
    """
    if any(len(chunks[leaf]) > len(chunks[f"{path}.{METADATA}"]) for leaf in leaves_of(stored, path)):
        # Columns with dots in their names have the same path.
        return None, None
    lows, highs = dict[str, bytes](), dict[str, bytes]()
    for place, leaf, data_type in _leaves(chunks, path, "$", stored):
        low, high = _bounds_of(chunks[leaf], data_type)
        lows |= {} if low is None else {place: low}
        highs |= {} if high is None else {place: high}
    return _variant(lows), _variant(highs)


def _leaves(chunks: Chunks, path: str, place: str, data_type: pa.StructType) -> Iterator[tuple[str, str, pa.DataType]]:
    """Yield the columns of types that have all values of their fields: the path of each field and of the column."""
    number = data_type.get_field_index(TYPED)
    if number < 0 or (data_type.get_field_index(VALUE) >= 0 and not _is_null(chunks[f"{path}.{VALUE}"])):
        return
    typed, column = data_type.field(number).type, f"{path}.{TYPED}"
    if pa.types.is_struct(typed):
        for field in typed:
            yield from _leaves(chunks, f"{column}.{field.name}", f"{place}['{_escaped(field.name)}']", field.type)
    elif not pa.types.is_nested(typed):
        yield place, column, typed


def _is_null(chunks: Sequence[pq.ColumnChunkMetaData]) -> bool:
    """Return True if a column has no value."""
    return all(chunk.is_stats_set and chunk.statistics.null_count == chunk.num_values for chunk in chunks)


def _escaped(name: str) -> str:
    return "".join(
        f"\\{_ESCAPES[letter]}" if letter in _ESCAPES else f"\\u{ord(letter):04x}" if letter < " " else letter
        for letter in name
    )


def _bounds_of(chunks: Sequence[pq.ColumnChunkMetaData], data_type: pa.DataType) -> Bounds:
    limits = [chunk.statistics for chunk in chunks if not _is_null([chunk])]
    if not limits or not all(known is not None and known.has_min_max for known in limits):
        return None, None
    low, high = min(known.min_raw for known in limits), max(known.max_raw for known in limits)
    if pa.types.is_decimal(data_type):
        low, high = (
            number if isinstance(number, int) else int.from_bytes(number, "big", signed=True) for number in (low, high)
        )
    elif data_type in _CUT:
        low, high = bounds(_CUT[data_type], low, high, _LENGTH)
    return _encoded(low, data_type), _encoded(high, data_type)


def _encoded(raw: Any, data_type: pa.DataType) -> bytes | None:
    """Return a value in Parquet's form as one of a variant; None for types whose values have no such order."""
    if raw is None:
        return None
    if data_type in _CUT:
        array = pa.array([raw], pa.binary()).cast(data_type)
    elif pa.types.is_decimal(data_type):
        array = pa.array([decimal_of(raw, data_type.scale)], data_type)
    elif pa.types.is_integer(data_type) or pa.types.is_temporal(data_type):
        array = pa.array([raw], _INTEGERS[data_type.bit_width]).view(data_type)
    else:
        # NaN is no bound, and Iceberg has no counts of it here; UUIDs are not in the order of their bytes everywhere.
        return None
    (value,) = values_of(array)
    return value


def _variant(values: Mapping[str, bytes]) -> bytes | None:
    names = sorted(values, key=str.encode)
    if not names:
        return None
    return metadata_of(names) + object_of_values(values, {name: number for number, name in enumerate(names)})
