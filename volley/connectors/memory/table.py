"""Python rows and Arrow data as one Arrow table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from volley.arrow.batches import conform
from volley.arrow.uuids import array_of
from volley.errors import ConfigError, SourceError, near
from volley.types.arrow import arrow_schema, canonical_schema

__all__ = ["conformed", "table_from_frame", "table_of"]


def table_from_frame(frame: Any) -> pa.Table:
    """The table of what speaks Arrow's C stream protocol; of a pandas frame with its index, if that has a name."""
    try:
        if hasattr(frame, "index") and hasattr(frame, "columns"):
            named = any(name is not None for name in frame.index.names)
            return pa.Table.from_pandas(frame, preserve_index=named).replace_schema_metadata()
        return pa.table(frame)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise ConfigError(
            f"a {type(frame).__name__} can't be read as columns: {error}",
            hint="give each column one type that Arrow has, or give a list of dicts",
        ) from error


def table_of(rows: Sequence[Any], declared: Any) -> pa.Table:
    """Dicts as a table of the declared or inferred schema; tables and batches one after the other.

    Raises:
        SourceError: If a value does not fit; names the column.
    """
    if not rows and declared is None:
        raise SourceError("there are no rows to infer a schema from", hint="declare it: schema=…")
    if rows and isinstance(rows[0], pa.Table | pa.RecordBatch):
        return pa.concat_tables([_table(each) for each in rows], promote_options="permissive")
    names = list(dict.fromkeys(name for row in rows for name in row))
    if declared is None:
        return pa.table({name: _inferred(name, [row.get(name) for row in rows]) for name in names})
    schema = canonical_schema(arrow_schema(declared))
    for name in names:
        if name not in schema.names:
            raise SourceError(f"a row has the column {name!r}, the schema has not", hint=near(name, schema.names))
    arrays = [_typed(field, [row.get(field.name) for row in rows]) for field in schema]
    return pa.table(arrays, schema=schema)


def conformed(data: Any, declared: Any) -> pa.Table:
    """A table or batch in the declared schema, or its own in the types that all engines share."""
    table = _table(data)
    schema = canonical_schema(table.schema if declared is None else arrow_schema(declared))
    return pa.Table.from_batches([conform(batch, schema) for batch in table.to_batches()], schema)


def _table(data: Any) -> pa.Table:
    return pa.Table.from_batches([data]) if isinstance(data, pa.RecordBatch) else data


def _inferred(name: str, values: list[Any]) -> pa.Array:
    try:
        return pa.array(values)
    except (pa.ArrowException, OverflowError) as error:
        raise SourceError(f"column {name!r} has no one type: {error}", hint="declare it: schema=…") from error


def _typed(field: pa.Field, values: list[Any]) -> pa.Array:
    try:
        return array_of(values, field.type)
    except (pa.ArrowException, TypeError, OverflowError) as error:
        raise SourceError(
            f"column {field.name!r} has a value that is no {field.type}: {error}", hint="mend the row or the schema"
        ) from error
