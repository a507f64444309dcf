"""Converts Python rows and Arrow data to one Arrow table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from volley.columns.batches import conform
from volley.columns.uuids import array_of
from volley.errors import ConfigError, SourceError, near
from volley.types.arrow import arrow_schema, canonical_schema

__all__ = ["conformed", "table_from_frame", "table_of"]


def table_from_frame(frame: Any) -> pa.Table:
    """Return the table of any object with Arrow's C stream interface; a pandas frame's named index is a column."""
    try:
        if hasattr(frame, "index") and hasattr(frame, "columns"):
            has_name = any(name is not None for name in frame.index.names)
            return pa.Table.from_pandas(frame, preserve_index=has_name).replace_schema_metadata()
        return pa.table(frame)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise ConfigError(
            f"a {type(frame).__name__} can't be read as columns: {error}",
            hint="give each column one type that Arrow has, or give a list of dicts",
        ) from error


def table_of(rows: Sequence[Any], declared: Any) -> pa.Table:
    """Return dicts as a table of the declared or inferred schema; concatenate tables and batches.

    Raises:
        SourceError: If a value doesn't fit; names the column.
    """
    if not rows and declared is None:
        raise SourceError("there are no rows to infer a schema from", hint="declare it: schema=…")
    if rows and isinstance(rows[0], pa.Table | pa.RecordBatch):
        return pa.concat_tables([_table(part) for part in rows], promote_options="permissive")
    names = list(dict.fromkeys(name for row in rows for name in row))
    if declared is None:
        return pa.table({name: _infer_array(name, [row.get(name) for row in rows]) for name in names})
    schema = canonical_schema(arrow_schema(declared))
    for name in names:
        if name not in schema.names:
            raise SourceError(f"a row has the column {name!r}, the schema has not", hint=near(name, schema.names))
    arrays = [_to_array(field, [row.get(field.name) for row in rows]) for field in schema]
    return pa.table(arrays, schema=schema)


def conformed(data: Any, declared: Any) -> pa.Table:
    """Return a table or batch in the declared schema; None = its own, with the types that Spark and Iceberg have."""
    table = _table(data)
    schema = canonical_schema(table.schema if declared is None else arrow_schema(declared))
    return pa.Table.from_batches([conform(batch, schema) for batch in table.to_batches()], schema)


def _table(data: Any) -> pa.Table:
    return pa.Table.from_batches([data]) if isinstance(data, pa.RecordBatch) else data


def _infer_array(name: str, values: list[Any]) -> pa.Array:
    try:
        return pa.array(values)
    except (pa.ArrowException, OverflowError) as error:
        raise SourceError(f"column {name!r} has no one type: {error}", hint="declare it: schema=…") from error


def _to_array(field: pa.Field, values: list[Any]) -> pa.Array:
    try:
        return array_of(values, field.type)
    except (pa.ArrowException, TypeError, OverflowError) as error:
        raise SourceError(
            f"column {field.name!r} has a value that is no {field.type}: {error}", hint="mend the row or the schema"
        ) from error
