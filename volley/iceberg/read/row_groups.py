"""Leaves out row groups without rows that match a filter, by the statistics in a data file's footer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DateType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    PrimitiveType,
    StringType,
    TimestampType,
    TimestamptzType,
)

from volley.formats.parquet import OpenParquet
from volley.iceberg.layout.bounds import bounds
from volley.iceberg.read.entries import Content, FileEntry, Status
from volley.iceberg.read.projection import FileField
from volley.iceberg.read.pruning import Predicate

__all__ = ["columns_with_statistics", "matching_groups", "without_values"]

# The types of a file whose lowest and highest values have one meaning in all writers' footers.
_TYPES: Mapping[type, tuple[pa.DataType, ...]] = {
    IntegerType: (pa.int32(),),
    LongType: (pa.int32(), pa.int64()),
    DateType: (pa.date32(),),
    FloatType: (pa.float32(),),
    DoubleType: (pa.float32(), pa.float64()),
    StringType: (pa.string(), pa.large_string()),
    TimestampType: (pa.timestamp("us"),),
    TimestamptzType: (pa.timestamp("us", "UTC"),),
}


def matching_groups(
    parquet: OpenParquet,
    fields: Sequence[FileField],
    groups: Iterable[int],
    schema: Schema,
    may_match: Predicate[FileEntry],
) -> list[int]:
    """Return the row groups that may have rows that match a filter.

    Args:
        parquet: The open file.
        fields: Its columns.
        groups: The numbers of the row groups to choose from.
        schema: The table's schema.
        may_match: Whether a file with some statistics may have matching rows.
    """
    columns = columns_with_statistics(parquet, fields, schema)
    return [group for group in groups if may_match(_as_file(parquet, group, columns))]


def columns_with_statistics(
    parquet: OpenParquet, fields: Sequence[FileField], schema: Schema
) -> dict[str, tuple[int, Any]]:
    """Return the field ids and types of the columns of a file whose statistics have one meaning in all writers' files.

    Args:
        parquet: The open file.
        fields: Its columns.
        schema: The table's schema.
    """
    types = {field.field_id: field.field_type for field in schema.fields}
    return {
        field.name: (field.field_id, types[field.field_id])
        for field in fields
        if field.field_id in types and _is_known(types[field.field_id], parquet.schema.field(field.name).type)
    }


def _is_known(data_type: IcebergType, in_file: pa.DataType) -> bool:
    return in_file in _TYPES.get(type(data_type), ())


def _as_file(parquet: OpenParquet, group: int, columns: Mapping[str, tuple[Any, Any]]) -> FileEntry:
    """Return a row group with its statistics as if it were a data file."""
    lower: dict[int, bytes] = {}
    upper: dict[int, bytes] = {}
    values: dict[int, int] = {}
    nulls: dict[int, int] = {}
    for field_id, data_type, chunk in _chunks(parquet, group, columns):
        known = chunk.statistics if chunk.is_stats_set else None
        if known is None:
            continue
        if known.has_null_count:
            values[field_id], nulls[field_id] = chunk.num_values, known.null_count
        if known.has_min_max:
            low, high = bounds(data_type, known.min_raw, known.max_raw)
            lower |= {} if low is None else {field_id: low}
            upper |= {} if high is None else {field_id: high}
    rows = parquet.groups[group].rows
    return without_values(rows)._replace(lower=lower, upper=upper, values=values, nulls=nulls)


def without_values(rows: int) -> FileEntry:
    """Return a data file of which only the number of its rows is known."""
    return FileEntry(Status.EXISTING, 0, 0, 0, Content.DATA, "", "PARQUET", 0, (), rows, 0)


def _chunks(
    parquet: OpenParquet, group: int, columns: Mapping[str, tuple[Any, Any]]
) -> Iterator[tuple[int, PrimitiveType, pq.ColumnChunkMetaData]]:
    chunks = parquet.groups[group].chunks
    # The metadata of such columns is not asked for.
    if any(chunk.is_encrypted for chunk in chunks):
        return
    metadata = parquet.metadata.row_group(group)
    for number, chunk in enumerate(chunks):
        if chunk.leaf.path in columns:
            yield *columns[chunk.leaf.path], metadata.column(number)
