"""The columns of a history's versions: from when on they hold, until when, and the sequence that this comes from."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from volley.columns.compiled import whole
from volley.columns.exact import exact_cast
from volley.columns.keys.normal import normal
from volley.iceberg.modes import History
from volley.iceberg.upsert.changes import UpsertWriter

__all__ = ["VersionColumns", "where"]


@dataclass(frozen=True)
class VersionColumns:
    """The columns of the table that a history fills itself."""

    writer: UpsertWriter

    @property
    def mode(self) -> History:
        """The commit mode."""
        assert isinstance(self.writer.mode, History)
        return self.writer.mode

    @cached_property
    def schema(self) -> pa.Schema:
        """The table's columns."""
        return self.writer.rows.rows_schema

    @property
    def tracked(self) -> list[str]:
        """The columns that make a new version when they change."""
        return self.mode.tracked(self.schema.names)

    def with_own_values(self, rows: pa.Table, *own: pa.Array) -> pa.Table:
        """Return rows of the table with these values in the columns that the history fills."""
        names = self.mode.own_columns
        columns = [own[names.index(name)] if name in names else rows[name] for name in self.schema.names]
        schema = pa.schema([field.with_nullable(True) for field in self.schema])
        return pa.Table.from_arrays(columns, schema=schema)

    def moments(self, rows: pa.Table) -> pa.Array:
        """Return the sequences of changes as values of `valid_from`: equal ones have equal bits."""
        target = self.schema.field(self.mode.valid_from).type
        columns = {name: _normal_floats(whole(rows[name])) for name in self.mode.sequence_fields}
        if not pa.types.is_struct(target):
            return exact_cast(next(iter(columns.values())), target)
        fields = [
            exact_cast(columns[field.name], field.type)
            if field.name in columns
            else pa.nulls(rows.num_rows, field.type)
            for field in target
        ]
        return pa.StructArray.from_arrays(fields, fields=list(target))

    def first_of(self, moments: pa.Array) -> pa.Array:
        """Return the first column of the sequence in values of `valid_from`."""
        return pc.struct_field(moments, self.mode.sequence_fields[0]) if pa.types.is_struct(moments.type) else moments

    def with_sequence(self, rows: pa.Table, moments: pa.Array) -> pa.Table:
        """Return changes whose sequences are those of some values of `valid_from`."""
        for name in self.mode.sequence_fields:
            field = rows.schema.field(name)
            values = pc.struct_field(moments, name) if pa.types.is_struct(moments.type) else moments
            rows = rows.set_column(rows.schema.get_field_index(name), field, exact_cast(values, field.type))
        return rows


def where(values: pa.Array, mask: pa.BooleanArray) -> pa.Array:
    """Return values, and null where a mask is not true."""
    places = pa.array(np.arange(len(values)), mask=~mask.fill_null(False).to_numpy(zero_copy_only=False))
    return values.take(places)


def _normal_floats(values: pa.Array) -> pa.Array:
    return normal(values) if pa.types.is_floating(values.type) else values
