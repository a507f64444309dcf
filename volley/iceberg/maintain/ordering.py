"""The order of the rows in compacted files: a sort order, or a z-order over several columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortDirection, SortField, SortOrder
from pyiceberg.transforms import IdentityTransform

from volley.errors import ConfigError, near
from volley.iceberg.layout.layout import Layout
from volley.iceberg.maintain.options import CompactionOptions

__all__ = ["Ordering", "ZOrderLayout", "ordering_of", "z_values"]

_DIRECTIONS = {"asc": SortDirection.ASC, "desc": SortDirection.DESC}
_BITS = 62


@dataclass(frozen=True)
class Ordering:
    """How the rows of a group of files are ordered; picklable.

    Args:
        order: The columns; unsorted = rows keep their order.
        is_z_order: True = the rows follow the z-order curve over the columns.
    """

    order: SortOrder = UNSORTED_SORT_ORDER
    is_z_order: bool = False

    @property
    def of_files(self) -> SortOrder:
        """The sort order that the new files have by their manifest: Iceberg's specification has no z-order."""
        return UNSORTED_SORT_ORDER if self.is_z_order else self.order


def ordering_of(table: Table, options: CompactionOptions) -> Ordering:
    """Return the order that the options ask for.

    Raises:
        ConfigError: If the table has no sort order or no such column, or rows can't be sorted by it.
    """
    if options.z_order:
        fields = [_field(table, column, SortDirection.ASC) for column in options.z_order]
        return Ordering(SortOrder(*fields, order_id=0), is_z_order=True)
    if options.sort_by is True:
        if table.sort_order().is_unsorted:
            raise ConfigError(
                f"table {'.'.join(table.name())} has no sort order",
                hint='name the columns: sort_by=["country", "at desc"]',
            )
        return Ordering(table.sort_order())
    if not options.sort_by:
        return Ordering()
    assert not isinstance(options.sort_by, bool | str)
    fields = [_field(table, *_column_and_direction(table.schema(), text)) for text in options.sort_by]
    known = (order for order in table.sort_orders().values() if order.fields == fields)
    # Files in an order that the table does not have count as unsorted.
    return Ordering(next(known, SortOrder(*fields, order_id=0)))


def _column_and_direction(schema: Schema, text: str) -> tuple[str, SortDirection]:
    column, _, direction = text.rpartition(" ")
    if column and direction.lower() in _DIRECTIONS and text not in schema.column_names:
        return column.strip(), _DIRECTIONS[direction.lower()]
    return text, SortDirection.ASC


def _field(table: Table, column: str, direction: SortDirection) -> SortField:
    schema = table.schema()
    try:
        field = schema.find_field(column)
    except ValueError as error:
        raise ConfigError(
            f"table {'.'.join(table.name())} has no column {column!r} to sort by",
            hint=near(column, schema.column_names),
        ) from error
    sort_field = SortField(field.field_id, IdentityTransform(), direction)
    try:
        SortOrder(sort_field).check_compatible(schema)
        schema.accessor_for_field(field.field_id)
    except ValueError as error:
        raise ConfigError(
            f"rows of table {'.'.join(table.name())} can't be sorted by {column!r}: it is {field.field_type}, or in a "
            "list or map",
            hint="name a column of numbers, texts, dates or times, or a field of a struct",
        ) from error
    return sort_field


class ZOrderLayout(Layout):
    """A layout whose rows are sorted by their z-value, which is the last but one column of the rows."""

    def sort_columns(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        return pa.record_batch([rows.column(rows.num_columns - 2)], names=["0"])

    @cached_property
    def sort_directions(self) -> list[tuple[str, str]]:
        return [("0", "ascending")]


def z_values(columns: Sequence[pa.ChunkedArray]) -> pa.Array:
    """Return the place of each row on the z-order curve over some columns.

    The bits of the columns' values are interleaved: G. M. Morton, "A computer oriented geodetic data base and a new
    technique in file sequencing", 1966. As in Delta Lake's ``OPTIMIZE ZORDER BY``, these are not the bits of the values
    but of their ranks, so that a column counts as much as another whatever its type and the distribution of its values.

    Args:
        columns: The columns; nulls come first.

    Example:
        >>> y, x = pa.chunked_array([["a", "a", "b", "b"]]), pa.chunked_array([[5, 9, 5, 9]])
        >>> np.argsort(z_values([y, x])).tolist()
        [0, 1, 2, 3]
    """
    bits = min(_BITS // len(columns), 20)
    codes = [_ranks(column) * (1 << bits) // (len(column) + 1) for column in columns]
    places = np.zeros(len(columns[0]), np.int64)
    for bit in reversed(range(bits)):
        for code in codes:
            places = places << 1 | (code >> bit) & 1
    return pa.array(places)


def _ranks(column: pa.ChunkedArray) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return the rank of each value, from 1; of nulls 0. Equal values have the lowest rank of them."""
    ranks: np.ndarray[tuple[int], np.dtype[np.int64]]
    ranks = pc.rank(column, sort_keys="ascending", tiebreaker="min").to_numpy().astype(np.int64)
    return np.where(column.is_null().to_numpy(), 0, ranks)
