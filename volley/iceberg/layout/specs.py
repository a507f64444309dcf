"""Converts between `Partitioning` settings and partition specs of tables, and compares them."""

from __future__ import annotations

import re
from typing import Any

from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import (
    BucketTransform,
    TruncateTransform,
    UnknownTransform,
    VoidTransform,
    parse_transform,
)
from pyiceberg.transforms import Transform as IcebergTransform
from pyiceberg.types import FixedType

from volley.errors import ConfigError, near
from volley.iceberg.layout.partitioning import Partitioning, Transform

__all__ = ["check_spec", "fault_of", "partitioning_of", "schema_with_sources", "spec_of"]

_SUFFIXES = {"identity": "", "truncate": "_trunc"}


def spec_of(partitioning: Partitioning, schema: Schema) -> PartitionSpec:
    """Return the partition spec of a new table; its fields get the names that other Iceberg clients use."""
    numbered = enumerate(partitioning.transforms or (), PARTITION_FIELD_ID_START)
    fields = [_field(transform, schema, number) for number, transform in numbered]
    names = [field.name for field in fields]
    columns = {transform.field for transform in partitioning.transforms or () if transform.kind == "identity"}
    for name in names:
        if names.count(name) > 1 or (name in schema.column_names and name not in columns):
            raise ConfigError(
                f"{partitioning!r} needs a partition field named {name!r}, and that is the name of another column",
                hint="rename the column",
            )
    return PartitionSpec(*fields)


def _field(transform: Transform, schema: Schema, number: int) -> PartitionField:
    try:
        source = schema.find_field(transform.field)
    except ValueError as error:
        raise ConfigError(
            f"partition field {transform}: the stream has no column {transform.field!r}",
            hint=near(transform.field, schema.column_names),
        ) from error
    iceberg_transform = _iceberg_transform(transform)
    if not source.field_type.is_primitive or not iceberg_transform.can_transform(source.field_type):
        raise ConfigError(
            f"partition field {transform}: {transform.kind} does not take {source.field_type}",
            hint="bucket or identity take most types; time granularities take dates and timestamps, hour no dates",
        )
    try:
        schema.accessor_for_field(source.field_id)
    except ValueError as error:
        raise ConfigError(
            f"partition field {transform}: {transform.field!r} is in a list or map, a row may have many of it",
            hint="partition by a column, or a field of a struct",
        ) from error
    if transform.kind == "identity" and isinstance(source.field_type, FixedType):
        raise ConfigError(
            f"partition field {transform}: Iceberg's Java library can't read the manifests of a table that is "
            f"partitioned by {source.field_type} (apache/iceberg#17501)",
            hint=f"Partitioning.bucket({transform.field!r}, n=…), or make the column binary",
        )
    suffix = _SUFFIXES.get(transform.kind, f"_{transform.kind}")
    width = "" if transform.width is None else f"_{transform.width}"
    return PartitionField(source.field_id, number, iceberg_transform, f"{transform.field}{suffix}{width}")


def _iceberg_transform(transform: Transform) -> IcebergTransform[Any, Any]:
    width = "" if transform.width is None else f"[{transform.width}]"
    parsed: IcebergTransform[Any, Any] = parse_transform(f"{transform.kind}{width}")
    return parsed


def partitioning_of(table: Table) -> Partitioning:
    """Return the current partitioning of a table; void fields of older specs are skipped."""
    fields = [field for field in table.spec().fields if not isinstance(field.transform, VoidTransform)]
    return Partitioning(tuple(_transform(field, table) for field in fields))


def _transform(field: PartitionField, table: Table) -> Transform:
    column = table.schema().find_column_name(field.source_id)
    fault = _unknown(field) if column is not None else f"partition field {field.name!r} is of a column that was dropped"
    if column is None or fault is not None:
        raise ConfigError(
            f"table {'.'.join(table.name())}: {fault}",
            hint="remove the field from the table's partition spec",
        )
    has_width = isinstance(field.transform, BucketTransform | TruncateTransform)
    kind, width = re.findall(r"\w+", str(field.transform)) if has_width else (str(field.transform), None)
    return Transform(kind, column, width and int(width))


def check_spec(table: Table, partitioning: Partitioning) -> None:
    """Raise ConfigError if the configured partitioning is not the table's; the error has both."""
    current = partitioning_of(table)
    if partitioning.transforms is None or set(partitioning.transforms) == set(current.transforms or ()):
        return
    raise ConfigError(
        f"table {'.'.join(table.name())} is partitioned by {current!r}, the config asks for {partitioning!r}",
        hint='leave the partitioning at "table_default", or change the table\'s spec',
    )


def schema_with_sources(metadata: TableMetadata, spec: PartitionSpec) -> Schema | None:
    """Return the newest schema with the columns of a spec, which may have been dropped; it has their types."""
    sources = {field.source_id for field in spec.fields}
    schemas = (metadata.schema(), *reversed(metadata.schemas))
    return next((schema for schema in schemas if sources <= schema.field_ids), None)


def fault_of(metadata: TableMetadata, spec: PartitionSpec) -> str | None:
    """Return why no manifest can be written with files of a partition spec; None if one can."""
    if fault := next(filter(None, map(_unknown, spec.fields)), None):
        return fault
    if schema_with_sources(metadata, spec) is None:
        return f"no schema of the table has all columns of partition spec {spec.spec_id}"
    return None


def _unknown(field: PartitionField) -> str | None:
    """Return what is not known of a partition field; None if all is."""
    if not isinstance(field.transform, UnknownTransform):
        return None
    return f"partition field {field.name!r} has the transform {field.transform}, which is not known here"
