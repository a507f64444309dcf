"""Python rows and Arrow data as one Arrow table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from volley._types import arrow_schema, canonical_schema, conform
from volley.errors import ConfigError, SourceError, near

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["checked", "conformed", "table_of"]


def _is_arrow(value: Any) -> bool:
    """True for a table or batch; asked without importing Arrow, since who has one has imported it."""
    return type(value).__module__.partition(".")[0] == "pyarrow" and hasattr(value, "num_rows")


def checked(rows: Any, marker: type) -> Any:
    """A table or batch as it is, a frame of pandas or polars as a table, other rows as a tuple that nobody changes.

    Args:
        rows: What somebody gave as rows.
        marker: The type of what may stand between rows.

    Raises:
        ConfigError: If it is anything else.
    """
    if _is_arrow(rows):
        return rows
    if hasattr(rows, "__arrow_c_stream__"):
        return _from_frame(rows)
    if isinstance(rows, Mapping | str | bytes | type) or not isinstance(rows, Iterable):
        raise ConfigError(
            f"rows are of type {type(rows).__name__}",
            hint="give a list of dicts, a pyarrow.Table, or a pandas or polars DataFrame",
        )
    rows = tuple(dict(row) if isinstance(row, Mapping) else row for row in rows)
    for row in rows:
        if not isinstance(row, dict | marker) and not _is_arrow(row):
            raise ConfigError(f"a row is of type {type(row).__name__}", hint='rows are dicts: [{"id": 1}, {"id": 2}]')
    is_arrow = [_is_arrow(row) for row in rows]
    if any(is_arrow) and not all(is_arrow):
        raise ConfigError("Arrow data stands among dicts or markers", hint="give only dicts, or only batches")
    return rows


def _from_frame(frame: Any) -> pa.Table:
    """The table of what speaks Arrow's C stream protocol; of a pandas frame with its index, if that has a name."""
    import pyarrow as pa

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
    import pyarrow as pa

    if not rows and declared is None:
        raise SourceError("there are no rows to infer a schema from", hint="declare it: schema=…")
    if rows and _is_arrow(rows[0]):
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
    import pyarrow as pa

    table = _table(data)
    schema = canonical_schema(table.schema if declared is None else arrow_schema(declared))
    return pa.Table.from_batches([conform(batch, schema) for batch in table.to_batches()], schema)


def _table(data: Any) -> pa.Table:
    import pyarrow as pa

    return pa.Table.from_batches([data]) if isinstance(data, pa.RecordBatch) else data


def _inferred(name: str, values: list[Any]) -> pa.Array:
    import pyarrow as pa

    try:
        return pa.array(values)
    except (pa.ArrowException, OverflowError) as error:
        raise SourceError(f"column {name!r} has no one type: {error}", hint="declare it: schema=…") from error


def _typed(field: pa.Field, values: list[Any]) -> pa.Array:
    import pyarrow as pa

    from volley._uuids import array_of

    try:
        return array_of(values, field.type)
    except (pa.ArrowException, TypeError, OverflowError) as error:
        raise SourceError(
            f"column {field.name!r} has a value that is no {field.type}: {error}", hint="mend the row or the schema"
        ) from error
