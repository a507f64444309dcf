"""Computes partitions and sort columns of rows: Iceberg's transforms on Arrow arrays, by a spec and an order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.partitioning import PartitionKey, PartitionSpec
from pyiceberg.schema import Accessor, Schema
from pyiceberg.table import Table
from pyiceberg.table.sorting import NullOrder, SortDirection, SortOrder
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.typedef import Record
from pyiceberg.utils.decimal import bytes_required, decimal_required_bytes

from volley.columns.calendar import micros
from volley.columns.keys.murmur3 import of_bytes, of_longs, value_bytes
from volley.columns.keys.normal import plain
from volley.columns.keys.order import ordered
from volley.errors import ConfigError, LayoutChangedError, SchemaMismatchError
from volley.iceberg.layout.partitions import path_of
from volley.iceberg.pyiceberg_private.access import truncate_width
from volley.iceberg.schema.types import fingerprint

__all__ = ["Layout", "Partition", "check_layout", "order_of", "transformed"]

_POSITIVE = np.uint32(0x7FFFFFFF)

_DIRECTIONS = {SortDirection.ASC: "ascending", SortDirection.DESC: "descending"}


def transformed(transform: Transform[Any, Any], values: pa.Array) -> pa.Array:
    """Return the transform of each value; null stays null.

    Times become Iceberg's ints: years, months, days or hours since 1970.
    """
    compute = next(compute for transform_type, compute in KNOWN.items() if isinstance(transform, transform_type))
    return compute(transform, plain(values))


def _bucket(transform: BucketTransform[Any], values: pa.Array) -> pa.Array:
    buckets = (_hashes(values) & _POSITIVE) % np.uint32(transform.num_buckets)
    return _masked(buckets.astype(np.int32), values)


def _hashes(values: pa.Array) -> npt.NDArray[np.uint32]:
    """Return 32 bits of Murmur3 with seed 0, by Iceberg's specification (appendix B)."""
    data_type = values.type
    if pa.types.is_decimal(data_type) or not (pa.types.is_integer(data_type) or pa.types.is_temporal(data_type)):
        return of_bytes(*value_bytes(values))
    if pa.types.is_timestamp(data_type):
        # By the specification, nanoseconds too.
        return of_longs(micros(values.fill_null(0)).to_numpy(), np.zeros(len(values), np.uint32))
    # All integers, dates and times are hashed as 64 bits.
    return of_longs(_integers(values), np.zeros(len(values), np.uint32))


def _truncate(transform: TruncateTransform[Any], values: pa.Array) -> pa.Array:
    width, data_type = truncate_width(transform), values.type
    if pa.types.is_string(data_type):
        return pc.utf8_slice_codeunits(values, 0, width)
    if pa.types.is_binary(data_type):
        return pc.binary_slice(values, 0, width)
    if pa.types.is_decimal(data_type):
        return _decimals_down(values, width)
    numbers = _integers(values).astype(np.int64)
    down = (numbers - numbers % width).astype(data_type.to_pandas_dtype())
    # Iceberg's Java library overflows below the lowest multiple, and then range filters don't find the row.
    if (down > numbers).any():
        raise _beyond(data_type, width)
    return _masked(down, values)


def _decimals_down(values: pa.Array, width: int) -> pa.Array:
    """Return unscaled values rounded down to multiples of `width`; computed with one digit more, with 38 digits."""
    data_type = values.type
    # Arrow's rounding returns 0 for a value that needs more digits than its type has.
    wide = pa.decimal256(39, data_type.scale)
    multiple = pa.scalar(Decimal(width).scaleb(-data_type.scale), wide)
    try:
        down = pc.round_to_multiple(values.cast(wide), multiple, round_mode="down")
        lowest = pc.min(down).as_py()
        # The result may have one more digit than its type, as long as it fits into the type's bytes in manifests.
        if lowest is not None and bytes_required(lowest) > decimal_required_bytes(data_type.precision):
            raise _beyond(data_type, width)
        return down.cast(pa.decimal128(38, data_type.scale))
    except pa.ArrowInvalid as error:
        raise _beyond(data_type, width) from error


def _beyond(data_type: pa.DataType, width: int) -> SchemaMismatchError:
    return SchemaMismatchError(
        f"a value of {data_type}, truncated down to a multiple of {width}, is beyond its type",
        hint="partition by a bucket of the column, or filter such rows out",
    )


def _since_1970(unit: str) -> Callable[[Any, pa.Array], pa.Array]:
    span = 3_600_000_000 if unit == "h" else 86_400_000_000

    def count(transform: Any, values: pa.Array) -> pa.Array:
        numbers = _integers(values).astype(np.int64)
        if pa.types.is_timestamp(values.type):
            # Not with NumPy's times: they read the lowest microsecond as not-a-time.
            numbers //= span * (1_000 if values.type.unit == "ns" else 1)
        if unit == "h" and (numbers != numbers.astype(np.int32)).any():
            raise SchemaMismatchError(
                f"a value of {values.type} is more hours from 1970 than a partition by hour can tell",
                hint="partition by day, or filter such rows out",
            )
        if unit in ("Y", "M"):
            numbers = numbers.view("datetime64[D]").astype(f"datetime64[{unit}]").view(np.int64)
        return _masked(numbers.astype(np.int32), values)

    return count


KNOWN: dict[type, Callable[[Any, pa.Array], pa.Array]] = {
    IdentityTransform: lambda transform, values: values,
    VoidTransform: lambda transform, values: pa.nulls(len(values), values.type),
    BucketTransform: _bucket,
    TruncateTransform: _truncate,
    YearTransform: _since_1970("Y"),
    MonthTransform: _since_1970("M"),
    DayTransform: _since_1970("D"),
    HourTransform: _since_1970("h"),
}
"""The supported transforms: all that Iceberg defines."""


def _masked(numbers: npt.NDArray[Any], values: pa.Array) -> pa.Array:
    """Return the numbers, with nulls where the values are null."""
    if not values.null_count:
        return pa.array(numbers)
    return pa.array(numbers, mask=values.is_null().to_numpy(zero_copy_only=False))


def _integers(values: pa.Array) -> npt.NDArray[Any]:
    """Return the integers with which Arrow stores numbers, dates and times; 0 for null."""
    stored = pa.int32() if values.type.bit_width == 32 else pa.int64()
    numbers: npt.NDArray[Any] = values.view(stored).fill_null(0).to_numpy()
    return numbers


class Partition(PartitionKey):
    """A partition by its record; pyiceberg's own class can't have two fields of one column.

    Args:
        record: Its values, in the form of manifests.
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
    """Return the table's sort order."""
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
