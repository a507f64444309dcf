"""Conforms batches to a schema: matches columns by name, casts without loss, fills missing ones with nulls."""

from __future__ import annotations

import pyarrow as pa

from volley.columns.dictionaries import can_stay_encoded, make_batch
from volley.columns.uuids import recast
from volley.errors import SourceError
from volley.types.arrow import type_name

__all__ = ["conform", "misfit", "one_batch"]


def conform(batch: pa.RecordBatch, schema: pa.Schema, dictionaries: bool = False) -> pa.RecordBatch:
    """Return the batch with exactly the columns of a schema: by name, cast if types differ, nulls if missing.

    Args:
        batch: The batch; returned unchanged if it has the schema already.
        schema: The schema of the result.
        dictionaries: True keeps a small dictionary of values of the right type encoded.

    Raises:
        SourceError: If a value can't be cast without loss, or a column exists twice; names the column.
    """
    if batch.schema.equals(schema):
        return batch
    return make_batch([_column(batch, field, dictionaries) for field in schema], schema)


def one_batch(table: pa.Table) -> pa.RecordBatch:
    """Return the rows of a table as one batch."""
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], table.schema)


def _column(batch: pa.RecordBatch, field: pa.Field, dictionaries: bool) -> pa.Array:
    indices = batch.schema.get_all_field_indices(field.name)
    if not indices:
        return pa.nulls(batch.num_rows, field.type)
    if len(indices) > 1:
        raise SourceError(f"column {field.name!r} is there {len(indices)} times", hint="rename all but one of them")
    column = batch.column(indices[0])
    if column.type == field.type or (dictionaries and can_stay_encoded(column, field)):
        return column
    try:
        return recast(column, field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise SourceError(
            misfit(column.type, field) + str(error), hint="declare a wider type for the column, or cast it before"
        ) from error


def misfit(data_type: pa.DataType, field: pa.Field) -> str:
    """Return the start of the message that a value does not fit a column."""
    return f"column {field.name!r} of type {data_type} does not fit {type_name(field.type)}: "
