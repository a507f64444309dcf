"""What a table's partition spec and sort order say of rows: which partition each belongs to, and what comes first."""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.partitioning import PartitionKey, PartitionSpec
from pyiceberg.schema import Accessor, Schema
from pyiceberg.table import Table
from pyiceberg.table.sorting import NullOrder, SortDirection, SortOrder
from pyiceberg.typedef import Record

from volley.errors import LayoutChangedError
from volley.iceberg.layout.partitions import path_of
from volley.iceberg.layout.transforms import physical, transformed
from volley.iceberg.schema.types import fingerprint

__all__ = ["Layout", "Partition", "check_layout"]

_WAYS = {SortDirection.ASC: "ascending", SortDirection.DESC: "descending"}


class Partition(PartitionKey):
    """A partition by its record; pyiceberg's own class knows none in which two fields are of one column.

    Args:
        record: Its values, in the form that manifests keep.
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
    """A table's partition spec and sort order, for rows in the schema of its files.

    Args:
        schema: The table's schema.
        spec: Its partition spec.
        order: Its sort order.
    """

    schema: Schema
    spec: PartitionSpec
    order: SortOrder

    @cached_property
    def mark(self) -> str:
        """A text that files and the table must have in common."""
        return f"schema {self.schema.schema_id} ({fingerprint(self.schema)}), partition spec {self.spec.spec_id}"

    @property
    def plain(self) -> bool:
        """Whether rows may be written as they come."""
        return self.spec.is_unpartitioned() and self.order.is_unsorted

    def partition_values(self, rows: pa.RecordBatch) -> list[pa.Array]:
        """The value of each partition field for each row."""
        return [transformed(field.transform, self._column(rows, field.source_id)) for field in self.spec.fields]

    def partition(self, values: tuple[Any, ...]) -> Partition:
        """The partition of these values, one of each field."""
        return Partition(Record(*values), self.spec, self.schema)

    def ranks(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Columns by which to sort the rows; `ways` says how."""
        columns: list[pa.Array] = []
        for field in self.order.fields:
            values = transformed(field.transform, self._column(rows, field.source_id))
            columns += [values.is_null().cast(pa.int8()), _comparable(values)]
        return pa.record_batch(columns, names=[str(number) for number in range(len(columns))])

    @cached_property
    def ways(self) -> list[tuple[str, str]]:
        """For each column of `ranks`, its name and whether it is sorted up or down."""
        return [(str(number), way) for number, way in enumerate(self._ways())]

    def _ways(self) -> Iterator[str]:
        for field in self.order.fields:
            yield "descending" if field.null_order == NullOrder.NULLS_FIRST else "ascending"
            yield _WAYS[field.direction]

    def _column(self, rows: pa.RecordBatch, field_id: int) -> pa.Array:
        first, *inner = _path(self.schema.accessor_for_field(field_id))
        return pc.struct_field(rows.column(first), inner) if inner else rows.column(first)


def check_layout(table: Table, written: Set[str]) -> None:
    """Files written under another partition spec or schema must not be filed under this one: reads would be wrong.

    Args:
        table: The table as the commit will make it.
        written: The marks of the layouts that the files were written for.

    Raises:
        LayoutChangedError: If the table has another.
    """
    mark = Layout(table.schema(), table.spec(), table.sort_order()).mark
    if other := written - {mark}:
        raise LayoutChangedError(
            f"table {'.'.join(table.name())} changed between write and commit: files are written for "
            f"{' and '.join(sorted(other))}, and would now have to be for {mark}",
            hint="start the job again when nobody changes the table: it writes the epoch anew",
        )


def _path(accessor: Accessor | None) -> Iterator[int]:
    """The positions on the way to a column that may be in a struct."""
    while accessor:
        yield accessor.position
        accessor = accessor.inner


def _comparable(values: pa.Array) -> pa.Array:
    """Values that Arrow sorts as Iceberg's specification has it: of floats, -0 before 0, NaN above all others."""
    plain = physical(values)
    if pa.types.is_boolean(plain.type):
        return plain.cast(pa.int8())
    if not pa.types.is_floating(plain.type):
        return plain
    bits = plain.cast(pa.float64()).view(pa.int64())
    numbers = bits.fill_null(0).to_numpy()
    return pa.array(numbers ^ ((numbers >> 63) & np.int64(0x7FFFFFFFFFFFFFFF)))
