"""Dictionary-encoded columns, kept encoded as Parquet stores them until a step needs their values."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

__all__ = ["can_stay_encoded", "decode", "decode_batch", "encoded_schema", "is_encoded", "is_small", "make_batch"]

_VALUES = 256
_BYTES = 4 << 10


def is_encoded(data_type: pa.DataType, values: pa.DataType) -> bool:
    """Return True if the type is a dictionary of such values with int32 indices, as Arrow reads it from Parquet."""
    return bool(pa.types.is_dictionary(data_type) and data_type == pa.dictionary(pa.int32(), values))


def is_small(values: pa.Array) -> bool:
    """Return True if a dictionary is small enough (256 values, 4 KiB, no nulls) to repeat in every batch and file."""
    return bool(len(values) <= _VALUES and values.nbytes <= _BYTES and not values.null_count)


def can_stay_encoded(column: pa.Array, values: pa.DataType) -> bool:
    """Return True if a column is a small dictionary of such values."""
    return is_encoded(column.type, values) and is_small(column.dictionary)


def decode(column: Any) -> Any:
    """Decode a dictionary column; return any other column unchanged.

    Args:
        column: An Arrow array, or a chunked one.
    """
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def decode_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Decode all dictionary columns of a batch; return a batch without any unchanged.

    Example:
        >>> batch = pa.record_batch({"kind": pa.array(["view", "click", "view"]).dictionary_encode()})
        >>> decode_batch(batch).schema.field("kind").type
        DataType(string)
    """
    if not any(pa.types.is_dictionary(data_type) for data_type in batch.schema.types):
        return batch
    return pa.record_batch([decode(column) for column in batch.columns], names=batch.schema.names)


def encoded_schema(schema: pa.Schema, types: Iterable[pa.DataType]) -> pa.Schema:
    """Return the schema with dictionary types for the columns that have them.

    Args:
        schema: The schema of the values.
        types: The type of each column, in the schema's order.
    """
    pairs = zip(schema, types, strict=True)
    return pa.schema(
        [field.with_type(data_type) if is_encoded(data_type, field.type) else field for field, data_type in pairs]
    )


def make_batch(columns: Iterable[pa.Array], schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch of columns in the schema's order; columns may be dictionaries of the schema's types."""
    arrays = list(columns)
    return pa.RecordBatch.from_arrays(arrays, schema=encoded_schema(schema, (array.type for array in arrays)))
