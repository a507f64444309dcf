"""Computes the partition and the sort columns of rows, from a table's partition spec and sort order."""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.partitioning import PartitionKey, PartitionSpec
from pyiceberg.schema import Accessor, Schema
from pyiceberg.table import Table
from pyiceberg.table.sorting import NullOrder, SortDirection, SortOrder
from pyiceberg.typedef import Record

from volley.columns.keys.order import ordered
from volley.errors import ConfigError, LayoutChangedError
from volley.iceberg.layout.partitions import path_of
from volley.iceberg.layout.transforms import KNOWN, transformed
from volley.iceberg.schema.types import fingerprint

__all__ = ["Layout", "Partition", "check_layout", "order_of"]

_DIRECTIONS = {SortDirection.ASC: "ascending", SortDirection.DESC: "descending"}


class Partition(PartitionKey):
    """A partition by its record; pyiceberg's own class can't have two fields of one column.

    Args:
        record: Its values, in the form of manifests.
        spec: The partition spec.
        schema: The table's schema.
    """

    def __init__(self, record: Record, spec: PartitionSpec, schema: Schema) -> None:
        super().__init__([], spec, schema)
        self.__dict__["partition"] = record

    def to_path(self) -> str:
        return path_of(self.partition_spec, self.schema, self.partition)


@dataclass(frozen=True)
class Layout:
    """A table's partition spec and sort order, applied to rows in the schema of its files.

    Args:
        schema: The table's schema.
        spec: Its partition spec.
        order: Its sort order.
    """

    schema: Schema
    spec: PartitionSpec
    order: SortOrder

    @cached_property
    def fingerprint(self) -> str:
        """A text that must be equal for the written files and the table they are committed to."""
        return f"schema {self.schema.schema_id} ({fingerprint(self.schema)}), partition spec {self.spec.spec_id}"

    @property
    def is_plain(self) -> bool:
        """True if rows can be written in their order: there are no partitions and no sort order."""
        return self.spec.is_unpartitioned() and self.order.is_unsorted

    def partition_values(self, rows: pa.RecordBatch) -> list[pa.Array]:
        """Return one array per partition field, with its value for each row."""
        return [transformed(field.transform, self._column(rows, field.source_id)) for field in self.spec.fields]

    def partition(self, values: tuple[Any, ...]) -> Partition:
        """Return the partition of these values, one per field."""
        return Partition(Record(*values), self.spec, self.schema)

    def sort_columns(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the columns to sort the rows by, in the directions `sort_directions`."""
        columns: list[pa.Array] = []
        for field in self.order.fields:
            values = transformed(field.transform, self._column(rows, field.source_id))
            columns += [values.is_null().cast(pa.int8()), ordered(values)]
        return pa.record_batch(columns, names=[str(number) for number in range(len(columns))])

    @cached_property
    def sort_directions(self) -> list[tuple[str, str]]:
        """The name and direction (ascending or descending) of each of the `sort_columns`."""
        return [(str(number), direction) for number, direction in enumerate(self._directions())]

    def _directions(self) -> Iterator[str]:
        for field in self.order.fields:
            yield "descending" if field.null_order == NullOrder.NULLS_FIRST else "ascending"
            yield _DIRECTIONS[field.direction]

    def _column(self, rows: pa.RecordBatch, field_id: int) -> pa.Array:
        first, *inner = _path(self.schema.accessor_for_field(field_id))
        return pc.struct_field(rows.column(first), inner) if inner else rows.column(first)


def order_of(table: Table) -> SortOrder:
    """Return the table's sort order.

    Raises:
        ConfigError: If it has a column that was dropped, or a transform that is not known here: pyiceberg commits
            nothing to such a table.
    """
    order, columns = table.sort_order(), table.schema().field_ids
    for field in order.fields:
        if field.source_id not in columns or not isinstance(field.transform, tuple(KNOWN)):
            raise ConfigError(
                f"table {'.'.join(table.name())}: its sort order has field {field}, whose column was dropped or whose "
                "transform is not known here",
                hint="give the table another sort order, or none",
            )
    return order


def check_layout(table: Table, written: Set[str]) -> None:
    """Check that files were written for the table's current schema and partition spec: else reads would be wrong.

    Args:
        table: The table as it will be after the commit.
        written: The fingerprints of the layouts that the files were written for.

    Raises:
        LayoutChangedError: If the table has another layout.
    """
    current = Layout(table.schema(), table.spec(), table.sort_order()).fingerprint
    if other := written - {current}:
        raise LayoutChangedError(
            f"table {'.'.join(table.name())} changed between write and commit: files are written for "
            f"{' and '.join(sorted(other))}, and would now have to be for {current}",
            hint="start the job again when no other writer changes the table: it repeats the epoch",
        )


def _path(accessor: Accessor | None) -> Iterator[int]:
    """Yield the positions on the path to a column, which may be inside structs."""
    while accessor:
        yield accessor.position
        accessor = accessor.inner
