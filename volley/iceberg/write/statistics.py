"""Computes a data file's column statistics for manifests from its Parquet footer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import MetricModeTypes, StatisticsCollector
from pyiceberg.types import DecimalType, DoubleType, FloatType, GeographyType, GeometryType

from volley.formats.variant_columns import METADATA
from volley.iceberg.layout.partitions import Bounds, bounds
from volley.iceberg.schema.foreign_types import ShreddedType, VariantType
from volley.iceberg.write.variant_bounds import Chunks, variant_bounds

__all__ = ["statistics"]


# Their bounds are not the lowest and the highest bytes.
_UNORDERED = (VariantType, GeometryType, GeographyType)


@dataclass
class _Column:
    """The statistics of one column of a file.

    Args:
        nulls: Its number of nulls; None = unknown.
        bounded: False once a row group has values without a lowest and highest one.
    """

    plan: StatisticsCollector
    size: int = 0
    values: int = 0
    nulls: int | None = 0
    lows: list[Any] = field(default_factory=list)
    highs: list[Any] = field(default_factory=list)
    bounded: bool = True

    def add(self, chunk: pq.ColumnChunkMetaData) -> None:
        """Add the statistics of one row group."""
        self.size += chunk.total_compressed_size
        self.values += chunk.num_values
        known = chunk.statistics if chunk.is_stats_set else None
        nulls = known.null_count if known is not None and known.has_null_count else None
        self.nulls = None if self.nulls is None or nulls is None else self.nulls + nulls
        if known is not None and known.has_min_max:
            self.lows.append(self._value(known.min_raw))
            self.highs.append(self._value(known.max_raw))
        elif chunk.num_values != nulls and not isinstance(self.plan.iceberg_type, FloatType | DoubleType):
            # Parquet omits bounds above 4 KiB. For floats it also omits them if all values are NaN.
            self.bounded = False

    def _value(self, raw: Any) -> Any:
        of_bytes = isinstance(self.plan.iceberg_type, DecimalType) and isinstance(raw, bytes)
        return int.from_bytes(raw, "big", signed=True) if of_bytes else raw

    @property
    def counted(self) -> bool:
        return bool(self.plan.mode.type != MetricModeTypes.NONE)

    @property
    def bounds(self) -> tuple[bytes | None, bytes | None]:
        is_ordered = not isinstance(self.plan.iceberg_type, _UNORDERED)
        if not self.lows or not self.bounded or not is_ordered or self.plan.mode.type == MetricModeTypes.COUNTS:
            return None, None
        return bounds(self.plan.iceberg_type, min(self.lows), max(self.highs), self.plan.mode.length)


def statistics(
    metadata: pq.FileMetaData, plan: Mapping[int, StatisticsCollector], paths: Mapping[str, int]
) -> dict[str, Any]:
    """Return the statistics of a file, under the names of `DataFile`; none of columns that the plan lacks."""
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    columns: dict[int, _Column] = {}
    chunks: dict[str, list[pq.ColumnChunkMetaData]] = {}
    for chunk in chain.from_iterable(map(_chunks, groups)):
        field_id = paths[chunk.path_in_schema]
        chunks.setdefault(chunk.path_in_schema, []).append(chunk)
        if field_id in plan:
            columns.setdefault(field_id, _Column(plan[field_id])).add(chunk)
    counted = {field_id: column for field_id, column in columns.items() if column.counted}
    limits = {field_id: column.bounds for field_id, column in counted.items()} | _of_variants(plan, paths, chunks)
    return {
        "record_count": metadata.num_rows,
        "column_sizes": {field_id: column.size for field_id, column in columns.items()},
        "value_counts": {field_id: column.values for field_id, column in counted.items()},
        "null_value_counts": {key: column.nulls for key, column in counted.items() if column.nulls is not None},
        "nan_value_counts": {},
        "lower_bounds": {field_id: low for field_id, (low, _) in limits.items() if low is not None},
        "upper_bounds": {field_id: high for field_id, (_, high) in limits.items() if high is not None},
        "split_offsets": sorted(_start(group.column(0)) for group in groups),
    }


def _of_variants(
    plan: Mapping[int, StatisticsCollector], paths: Mapping[str, int], chunks: Chunks
) -> dict[int, Bounds]:
    """Return the bounds of shredded variants."""
    found = {}
    for path, field_id in paths.items():
        if field_id in plan and plan[field_id].mode.type == MetricModeTypes.FULL:
            data_type = plan[field_id].iceberg_type
            if isinstance(data_type, ShreddedType):
                found[field_id] = variant_bounds(chunks, path.removesuffix(f".{METADATA}"), data_type.stored)
    return found


def _chunks(group: pq.RowGroupMetaData) -> Iterator[pq.ColumnChunkMetaData]:
    for number in range(group.num_columns):
        yield group.column(number)


def _start(chunk: pq.ColumnChunkMetaData) -> int:
    """Return where a column chunk starts: at its dictionary, if it has one."""
    if chunk.has_dictionary_page:
        return min(int(chunk.dictionary_page_offset), int(chunk.data_page_offset))
    return int(chunk.data_page_offset)
