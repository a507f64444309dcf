"""Rows with a schema of their own as one binary value: an Arrow IPC stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from volley.checks import names
from volley.columns.roles import ChangeColumns
from volley.errors import ConfigError, SourceError, brief, near

__all__ = ["key_fields_of", "pack_rows", "unpack_rows"]


@brief
def pack_rows(rows: pa.RecordBatch | pa.Table, key_fields: Sequence[str] = ()) -> bytes:
    """Return rows as one binary value, for a column of a stream whose rows belong to tables of different schemas.

    `RoutedSink` writes such values with ``rows="<column>"``: each to the table that the other columns name, with the
    columns of the packed rows.

    Args:
        rows: The rows.
        key_fields: The columns of the table's primary key, for ``key_fields="primary_key"``.

    Raises:
        ConfigError: If `rows` are no Arrow data, or have no column of the key.

    Example:
        >>> packed = pack_rows(pa.record_batch({"id": [1, 2]}), key_fields=["id"])
        >>> [batch.num_rows for batch in unpack_rows(packed)]
        [2]
    """
    if not isinstance(rows, pa.RecordBatch | pa.Table):
        raise ConfigError(f"rows are {type(rows).__name__}", hint="pack a pyarrow.RecordBatch or a pyarrow.Table")
    keys = names("key_fields", key_fields)
    for key in keys:
        if key not in rows.schema.names:
            raise ConfigError(f"key field {key!r} is no column of the rows", hint=near(key, rows.schema.names))
    batches = rows.to_batches() if isinstance(rows, pa.Table) else [rows]
    schema = ChangeColumns(keys).noted(rows.schema)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as stream:
        for batch in batches:
            stream.write_batch(pa.RecordBatch.from_arrays(batch.columns, schema=schema))
    packed: bytes = sink.getvalue().to_pybytes()
    return packed


def unpack_rows(value: Any) -> list[pa.RecordBatch]:
    """Return the rows of a value of `pack_rows`, without copies of their columns.

    Args:
        value: The bytes, or an Arrow buffer.

    Raises:
        SourceError: If they are not an Arrow stream.
    """
    try:
        with pa.ipc.open_stream(value) as stream:
            return list(stream)
    except (pa.ArrowInvalid, OSError) as error:
        raise SourceError(f"packed rows can't be read: {error}", hint="pack_rows(batch) makes them") from error


def key_fields_of(schema: pa.Schema) -> tuple[str, ...]:
    """Return the key columns that `pack_rows` has noted in a schema; empty = none."""
    return tuple(ChangeColumns.of(schema).keys)
