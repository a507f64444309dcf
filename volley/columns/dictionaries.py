"""Dictionary-encoded columns, kept encoded as Parquet stores them until a step needs their values."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, TypeVar

import pyarrow as pa

__all__ = [
    *("as_keys", "can_stay_encoded", "concatenated", "decode", "decode_rows", "encoded_schema"),
    *("is_encoded", "is_small", "make_batch"),
]

RowsType = TypeVar("RowsType", pa.RecordBatch, pa.Table)

_VALUES, _BYTES = 256, 4 << 10
_VALUES_OF_KEYS, _BYTES_OF_KEYS = 1 << 14, 1 << 20
_KEY = {b"volley": b"key"}


def is_encoded(data_type: pa.DataType, values: pa.DataType) -> bool:
    """Return True if the type is a dictionary of such values with int32 indices, as Arrow reads it from Parquet."""
    return bool(pa.types.is_dictionary(data_type) and data_type == pa.dictionary(pa.int32(), values))


def as_keys(schema: pa.Schema, names: Collection[str]) -> pa.Schema:
    """Return the schema with some columns marked as nothing but keys, by which rows are grouped."""
    return pa.schema([field.with_metadata(_KEY) if field.name in names else field for field in schema])


def is_small(values: pa.Array, field: pa.Field) -> bool:
    """Return True if a dictionary is small enough to stay.

    It is repeated in every batch and file: 256 values and 4 KiB; of keys, which are in no file, 16,384 and 1 MiB.
    """
    is_key = field.metadata is not None and _KEY.items() <= field.metadata.items()
    most, size = (_VALUES_OF_KEYS, _BYTES_OF_KEYS) if is_key else (_VALUES, _BYTES)
    return bool(len(values) <= most and values.nbytes <= size and not values.null_count)


def can_stay_encoded(column: pa.Array, field: pa.Field) -> bool:
    """Return True if a column is a small dictionary of a field's values."""
    return is_encoded(column.type, field.type) and is_small(column.dictionary, field)


def decode(column: Any) -> Any:
    """Decode a dictionary column; return any other column unchanged."""
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def decode_rows(rows: RowsType) -> RowsType:
    """Decode all dictionary columns of a batch or a table; return one without any unchanged.

    Example:
        >>> batch = pa.record_batch({"kind": pa.array(["view", "click", "view"]).dictionary_encode()})
        >>> decode_rows(batch).schema.field("kind").type
        DataType(string)
    """
    if not any(pa.types.is_dictionary(data_type) for data_type in rows.schema.types):
        return rows
    return type(rows).from_arrays([decode(column) for column in rows.columns], names=rows.schema.names)


def concatenated(tables: Sequence[pa.Table]) -> pa.Table:
    """Return the rows of tables as one; columns that are encoded in all tables stay so, each with one dictionary."""
    if any(table.schema != tables[0].schema for table in tables):
        tables = [decode_rows(table) for table in tables]
    return pa.concat_tables(tables).unify_dictionaries()


def encoded_schema(schema: pa.Schema, types: Iterable[pa.DataType]) -> pa.Schema:
    """Return the schema with dictionary types for the columns that have them."""
    pairs = zip(schema, types, strict=True)
    return pa.schema(
        [field.with_type(data_type) if is_encoded(data_type, field.type) else field for field, data_type in pairs]
    )


def make_batch(columns: Iterable[pa.Array], schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch of columns in the schema's order; columns may be dictionaries of the schema's types."""
    arrays = list(columns)
    return pa.RecordBatch.from_arrays(arrays, schema=encoded_schema(schema, (array.type for array in arrays)))
