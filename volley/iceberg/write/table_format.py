"""The format of a table's data files: schema, layout, Parquet options, statistics."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import FileIO, load_file_io
from pyiceberg.io.pyarrow import StatisticsCollector, compute_statistics_plan, parquet_path_to_id_mapping
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionKey, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table, TableProperties
from pyiceberg.table.locations import LocationProvider, load_location_provider
from pyiceberg.table.sorting import SortOrder
from pyiceberg.typedef import Record
from pyiceberg.types import GeographyType, GeometryType, IcebergType, NestedField, UUIDType

from volley.columns.batches import conform
from volley.columns.dictionaries import encoded_schema
from volley.contracts.epoch import Epoch
from volley.errors import ConfigError, SchemaMismatchError, near
from volley.formats.parquet_annotations import VARIANT, Annotation, geography, geometry
from volley.formats.variant_columns import METADATA
from volley.formats.variant_inference import inferred
from volley.formats.variant_shredding import leaves_of
from volley.iceberg.config import IcebergSinkConfig
from volley.iceberg.layout.layout import Layout, order_of
from volley.iceberg.pyiceberg_private.lineage import ROW_IDS_SINCE
from volley.iceberg.schema.foreign_types import ShreddedType, VariantType
from volley.iceberg.schema.mapping import number_in
from volley.iceberg.schema.types import (
    arrow_schema,
    arrow_type_of,
    check_row_ids,
    file_schema,
    per_schema,
    schema_of_files,
    with_row_ids,
    with_shredding,
)
from volley.iceberg.write.defaults import with_defaults
from volley.iceberg.write.row_groups import DICTIONARY_BYTES, without_dictionary
from volley.iceberg.write.statistics import statistics
from volley.iceberg.write.variants import with_variants
from volley.iceberg.write.written import WrittenFile

__all__ = ["TableFormat", "file_prefix"]

_MIB = 1 << 20
_ROW_GROUP_ROWS = 1_048_576
_ROW_GROUP_BYTES = 64 * _MIB
_BLOOM = f"{TableProperties.PARQUET_BLOOM_FILTER_COLUMN_ENABLED_PREFIX}."
_BLOOM_BYTES = TableProperties.PARQUET_BLOOM_FILTER_MAX_BYTES_DEFAULT
# With Iceberg's default of one false positive in a hundred, a Bloom filter has about ten bits per value.
_BLOOM_MISSES = 0.01
_BLOOM_BITS = 10
_PARQUET_OPTIONS = {
    TableProperties.PARQUET_PAGE_SIZE_BYTES: "data_page_size",
    TableProperties.PARQUET_DICT_SIZE_BYTES: "dictionary_pagesize_limit",
    TableProperties.PARQUET_PAGE_ROW_LIMIT: "max_rows_per_page",
}
# A codec's default level. pyarrow's default for gzip is 9: eight times the CPU of zlib's 6, which Java uses, for
# files 1 % smaller.
_LEVELS = {"gzip": 6}
# Pages of 20,000 rows, pyarrow's and Iceberg's default, make writing 10 % slower. They are worth it if the rows are
# sorted: a reader with a filter on the sort columns then needs few pages. Older versions of pyarrow lack the option.
_SORTED_PAGE_ROWS = 20_000
_LIMITS_PAGES = "max_rows_per_page" in inspect.signature(pq.ParquetWriter).parameters


_SHREDS = "write.parquet.shred-variants"
# Of the first batch; Iceberg's Java library looks at 100.
_SAMPLE_ROWS = 1_000
_UNORDERED = (UUIDType, GeometryType, GeographyType)
_NO_FIELD = -1


@dataclass(frozen=True)
class TableFormat:
    """The format of the data files that executors write in one epoch. Picklable; contains no catalog.

    Args:
        io_properties: The FileIO's properties, credentials included; never shown.
        file_prefix: The prefix of the files' names: query and epoch.
        target_bytes: The encoded size of a file, ±10 %.
        row_group_bytes: The maximum size of a row group in Arrow bytes, which an open file holds in memory.
        bloom_filters: The number of distinct values that a Bloom filter is sized for, by column path in the files.
        keeps_row_ids: True: the rows come from other files of format version 3, with their ids as the last columns.
        compresses_numbers: False: numbers and times that have no dictionary are not compressed. Reading them takes a
            fifth of the time, and they are twice as large.
    """

    location: str
    table_properties: dict[str, str]
    io_properties: dict[str, Any] = field(repr=False)
    schema: Schema
    spec: PartitionSpec
    order: SortOrder
    file_prefix: str
    target_bytes: int
    max_records: int | None
    compression: str
    compression_level: int | None
    row_group_rows: int = _ROW_GROUP_ROWS
    row_group_bytes: int = _ROW_GROUP_BYTES
    bloom_filters: dict[str, int] = field(default_factory=dict)
    parquet_options: dict[str, int] = field(default_factory=dict)
    compresses_numbers: bool = True
    format_version: int = 2
    keeps_row_ids: bool = False

    @classmethod
    def for_table(cls, table: Table, config: IcebergSinkConfig, epoch: Epoch) -> Self:
        """Return the format of a freshly loaded table.

        Raises:
            ConfigError: If a ``write.…`` property of the table has a value that can't be used, or a column the name of
                one that format version 3 has for itself; names it.
        """
        options = {option: number_in(table.properties, name) for name, option in _PARQUET_OPTIONS.items()}
        rows = number_in(table.properties, TableProperties.PARQUET_ROW_GROUP_LIMIT)
        size = number_in(table.properties, TableProperties.PARQUET_ROW_GROUP_SIZE_BYTES)
        _check_metrics(table.schema(), table.properties)
        if table.format_version >= ROW_IDS_SINCE:
            check_row_ids(table.schema())
        return cls(
            location=table.location(),
            table_properties=dict(table.properties),
            io_properties=dict(table.io.properties),
            schema=table.schema(),
            spec=table.spec(),
            order=order_of(table),
            file_prefix=file_prefix(epoch),
            target_bytes=round(config.target_file_size_mb * _MIB),
            max_records=config.max_records,
            compression=config.compression,
            compression_level=config.compression_level,
            row_group_rows=rows or _ROW_GROUP_ROWS,
            row_group_bytes=size or _ROW_GROUP_BYTES,
            bloom_filters=_bloom_filters(table),
            parquet_options={option: value for option, value in options.items() if value is not None},
            format_version=table.format_version,
        )

    @cached_property
    def layout(self) -> Layout:
        """The partition spec and sort order."""
        return Layout(self.schema, self.spec, self.order)

    @cached_property
    def rows_schema(self) -> pa.Schema:
        """The Arrow schema of the written rows, with the table's column names."""
        return arrow_schema(self.written_schema)

    @cached_property
    def file_schema(self) -> pa.Schema:
        """The Arrow schema of the files, with Iceberg's field ids."""
        return file_schema(self.written_schema)

    @property
    def has_row_ids(self) -> bool:
        """True if rows have ids, and deletes are deletion vectors: from format version 3 on."""
        return self.format_version >= ROW_IDS_SINCE

    @property
    def written_schema(self) -> Schema:
        """The schema of the files: that of the table, and the ids of rows if they are kept."""
        return with_row_ids(self.schema) if self.keeps_row_ids else self.schema

    @cached_property
    def io(self) -> FileIO:
        """pyiceberg's FileIO of the table."""
        return load_file_io(self.io_properties, self.location)

    def new_path(self, name: str, partition: PartitionKey | None = None) -> str:
        """Return a path for a file of this epoch among the table's data files, where orphan files are searched."""
        return self._locations.new_data_location(f"{self.file_prefix}{name}", partition)

    @cached_property
    def _locations(self) -> LocationProvider:
        return load_location_provider(self.location, self.table_properties)

    @cached_property
    def statistics_plan(self) -> dict[int, StatisticsCollector]:
        """The statistics to collect for each leaf column, by field id."""
        return compute_statistics_plan(schema_of_files(self.schema), self.table_properties)

    @cached_property
    def paths(self) -> dict[str, int]:
        """The field ids of leaf columns, by their paths in the files; of a variant, that of its metadata."""
        return _paths(self.written_schema)

    @cached_property
    def annotations(self) -> dict[str, Annotation]:
        """The logical types of columns that pyarrow can't write, by their paths in the files."""
        return _annotations(self.written_schema)

    @property
    def infers_shredding(self) -> bool:
        """True if the table asks for columns for the values of its variants, which the first rows tell."""
        return self.table_properties.get(_SHREDS, "").lower() == "true" and any(map(_is_whole, self.schema.fields))

    def with_inferred_shredding(self, rows: pa.RecordBatch) -> Self:
        """Return the format of files with columns for values that the variants of these rows have."""
        columns = zip(self.schema.fields, rows.columns, strict=False)
        samples = {field.field_id: column[:_SAMPLE_ROWS] for field, column in columns if _is_whole(field)}
        types = ((field_id, inferred(sample)) for field_id, sample in samples.items())
        shredding = {field_id: data_type for field_id, data_type in types if data_type is not None}
        return replace(self, schema=with_shredding(self.schema, shredding))

    def parquet(self, file: Any, first: pa.Table) -> pq.ParquetWriter:
        """Return a Parquet writer for an open file.

        Args:
            first: The rows of its first row group, as a sample of the file.
        """
        plain = without_dictionary(first, self.parquet_options.get("dictionary_pagesize_limit", DICTIONARY_BYTES))
        return pq.ParquetWriter(
            file,
            first.schema,
            # The stored Arrow schema would only add dictionary types; Parquet's own schema has the rest.
            store_schema=False,
            use_dictionary=[path for path in self.paths if path not in plain] if plain else True,
            store_decimal_as_integer=True,  # required by Iceberg's specification
            write_statistics=self._paths_with_statistics,
            write_page_index=True,
            **self._compression(first.schema, plain),
            **self._bloom_options,
            **self._page_options,
        )

    def _compression(self, schema: pa.Schema, plain: Collection[str]) -> dict[str, Any]:
        """Return the codec and its level, of all columns or of each one."""
        level = _LEVELS.get(self.compression) if self.compression_level is None else self.compression_level
        numbers = {field.name for field in schema if field.name in plain and pa.types.is_primitive(field.type)}
        if self.compresses_numbers or not numbers:
            return {"compression": self.compression, "compression_level": level}
        others = [path for path in self.paths if path not in numbers]
        codecs = {**dict.fromkeys(numbers, "none"), **dict.fromkeys(others, self.compression)}
        return {"compression": codecs, "compression_level": level and dict.fromkeys(others, level)}

    @property
    def _paths_with_statistics(self) -> list[str] | bool:
        """All paths except UUIDs, geometries and geographies.

        Iceberg's Java library orders UUIDs differently and would skip matching rows; shapes have no order.
        """
        types = {field_id: collector.iceberg_type for field_id, collector in self.statistics_plan.items()}
        known = [path for path, field_id in self.paths.items() if not isinstance(types.get(field_id), _UNORDERED)]
        return len(known) == len(self.paths) or known

    @property
    def _page_options(self) -> dict[str, int]:
        rows = _ROW_GROUP_ROWS if self.order.is_unsorted else _SORTED_PAGE_ROWS
        known = {"max_rows_per_page": rows} | self.parquet_options
        return {name: value for name, value in known.items() if _LIMITS_PAGES or name != "max_rows_per_page"}

    @property
    def _bloom_options(self) -> dict[str, Any]:
        # Left out if there are none: older versions of pyarrow lack the option.
        filters = {path: {"ndv": values, "fpp": _BLOOM_MISSES} for path, values in self.bloom_filters.items()}
        return {"bloom_filter_options": filters} if filters else {}

    def fitted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the batch in the files' schema, with the table's columns in its order; copies only to cast.

        Dictionary arrays stay dictionary arrays.

        Raises:
            SchemaMismatchError: If a column that the table requires has nulls.
            SourceError: If a value can't be cast without loss, or a text for a variant is not JSON.
        """
        rows = with_variants(with_defaults(batch, self.schema), self.schema)
        rows = conform(rows, self.rows_schema, dictionaries=True)
        for column, values in zip(self.rows_schema, rows.columns, strict=True):
            if not column.nullable and values.null_count:
                raise SchemaMismatchError(
                    f"column {column.name!r} has {values.null_count} nulls, the table requires values",
                    hint="filter those rows out before the sink, or make the table's column optional",
                )
        return pa.record_batch(_Renamed(rows, encoded_schema(self.file_schema, rows.schema.types)))

    def data_file(self, path: str, size: int, metadata: pq.FileMetaData, partition: PartitionKey | None) -> WrittenFile:
        """Return the entry of a closed file for the committer; its statistics come from the Parquet footer."""
        data_file = DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=path,
            file_format=FileFormat.PARQUET,
            partition=partition.partition if partition else Record(),
            file_size_in_bytes=size,
            sort_order_id=self.order.order_id or None,
            equality_ids=None,
            key_metadata=None,
            **statistics(metadata, self.statistics_plan, self.paths),
        )
        data_file.spec_id = self.spec.spec_id
        return WrittenFile(data_file, self.layout.fingerprint)

    def __getstate__(self) -> dict[str, Any]:
        # Without the cached properties: they are large, and the FileIO may hold connections.
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


def file_prefix(epoch: Epoch) -> str:
    """Return the prefix of the names of an epoch's data files.

    Example:
        >>> file_prefix(Epoch("2b6f8a5e-0000-0000-0000-000000000000", 7))
        '2b6f8a5e-00007-'
    """
    return f"{epoch.query_id[:8]}-{epoch.number:05}-"


def _is_whole(field: NestedField) -> bool:
    """Return True for a column of variants that nothing shreds yet."""
    return isinstance(field.field_type, VariantType) and not isinstance(field.field_type, ShreddedType)


@per_schema
def _paths(schema: Schema) -> dict[str, int]:
    paths = parquet_path_to_id_mapping(schema_of_files(schema))
    # The metadata of a variant is null where all of it is.
    parts = {
        part: field_id if part == f"{path}.{METADATA}" else _NO_FIELD
        for path, field_id in paths.items()
        if isinstance(data_type := schema.find_type(field_id), VariantType)
        for part in leaves_of(arrow_type_of(data_type), path)
    }
    return {path: field_id for path, field_id in paths.items() if f"{path}.{METADATA}" not in parts} | parts


@per_schema
def _annotations(schema: Schema) -> dict[str, Annotation]:
    paths = parquet_path_to_id_mapping(schema_of_files(schema))
    types = ((path, schema.find_type(field_id)) for path, field_id in paths.items())
    return {path: annotation for path, data_type in types if (annotation := _annotation(data_type)) is not None}


def _annotation(data_type: IcebergType) -> Annotation | None:
    if isinstance(data_type, GeometryType):
        return geometry(data_type.crs)
    if isinstance(data_type, GeographyType):
        return geography(data_type.crs, data_type.algorithm)
    return VARIANT if isinstance(data_type, VariantType) else None


def _bloom_filters(table: Table) -> dict[str, int]:
    """Return the number of distinct values that a row group's Bloom filter is sized for, by column path in the files.

    Iceberg configures a filter's size, pyarrow takes a number of values: as many as fit into that size.
    """
    properties, names = table.properties, _paths(table.schema())
    size = number_in(properties, TableProperties.PARQUET_BLOOM_FILTER_MAX_BYTES) or _BLOOM_BYTES
    rows = number_in(properties, TableProperties.PARQUET_ROW_GROUP_LIMIT) or _ROW_GROUP_ROWS
    paths = {field_id: path for path, field_id in names.items()}
    columns = [name.removeprefix(_BLOOM) for name, on in properties.items() if name.startswith(_BLOOM) and on == "true"]
    return {_path_of(column, table.schema(), paths): min(rows, size * 8 // _BLOOM_BITS) for column in columns}


def _path_of(column: str, schema: Schema, paths: Mapping[int, str]) -> str:
    try:
        return paths[schema.find_field(column).field_id]
    except (KeyError, ValueError) as error:
        raise ConfigError(
            f"table property {_BLOOM}{column} is of a column that the table has not",
            hint=near(column, schema.column_names),
        ) from error


def _check_metrics(schema: Schema, properties: dict[str, str]) -> None:
    """Raise ConfigError on the driver for properties that would fail on an executor when it closes a file."""
    try:
        compute_statistics_plan(schema, properties)
    except ValueError as error:
        raise ConfigError(
            f"a table property write.metadata.metrics.… is wrong: {error}", hint="none, counts, full, truncate(length)"
        ) from error


@dataclass(frozen=True)
class _Renamed:
    """A batch with another schema of the same layout: only names and metadata change, no value is copied."""

    batch: pa.RecordBatch
    schema: pa.Schema

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        _, array = self.batch.__arrow_c_array__()
        return self.schema.__arrow_c_schema__(), array
