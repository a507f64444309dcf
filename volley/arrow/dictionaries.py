"""Columns that stay dictionaries and indices, as Parquet has them, until somebody asks for their values."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

__all__ = ["can_stay_encoded", "decode", "decode_batch", "encoded_schema", "is_encoded", "is_small", "make_batch"]

_VALUES = 256
_BYTES = 4 << 10


def is_encoded(kind: pa.DataType, values: pa.DataType) -> bool:
    """True if the type is that of a dictionary of such values, as Arrow reads it from Parquet."""
    return bool(pa.types.is_dictionary(kind) and kind == pa.dictionary(pa.int32(), values))


def is_small(values: pa.Array) -> bool:
    """True if a dictionary of these values costs next to nothing, however many batches and files its rows go to."""
    return bool(len(values) <= _VALUES and values.nbytes <= _BYTES and not values.null_count)


def can_stay_encoded(column: pa.Array, values: pa.DataType) -> bool:
    """True if a column of such values may stay the dictionary that it is."""
    return is_encoded(column.type, values) and is_small(column.dictionary)


def decode(column: Any) -> Any:
    """The column with its values one by one; itself if it is no dictionary.

    Args:
        column: An Arrow array, or a chunked one.
    """
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def decode_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch without dictionaries; itself if it has none.

    Example:
        >>> batch = pa.record_batch({"kind": pa.array(["view", "click", "view"]).dictionary_encode()})
        >>> decode_batch(batch).schema.field("kind").type
        DataType(string)
    """
    if not any(pa.types.is_dictionary(kind) for kind in batch.schema.types):
        return batch
    return pa.record_batch([decode(column) for column in batch.columns], names=batch.schema.names)


def encoded_schema(schema: pa.Schema, types: Iterable[pa.DataType]) -> pa.Schema:
    """The schema with dictionaries where columns of these types, in its order, have them."""
    pairs = zip(schema, types, strict=True)
    return pa.schema([field.with_type(kind) if is_encoded(kind, field.type) else field for field, kind in pairs])


def make_batch(columns: Iterable[pa.Array], schema: pa.Schema) -> pa.RecordBatch:
    """A batch of columns in the schema's order, of which some may be dictionaries of the values it names."""
    arrays = list(columns)
    return pa.RecordBatch.from_arrays(arrays, schema=encoded_schema(schema, (array.type for array in arrays)))
