"""Checks, before a row is written, that a stream has what a routed sink needs."""

from __future__ import annotations

import pyarrow as pa

from volley.errors import ConfigError, near
from volley.iceberg.modes import Upsert
from volley.iceberg.route.keys import KeyFields
from volley.iceberg.route.names import TableNames
from volley.iceberg.route.rows import keys_of
from volley.iceberg.upsert.columns import check_keys

__all__ = ["check_stream", "written"]


def check_stream(
    names: TableNames, key_fields: KeyFields, rows: str | None, omitted: tuple[str, ...], stream: pa.Schema
) -> None:
    """Check the columns of a stream.

    Args:
        names: Names the table of a row.
        key_fields: The key columns of each table.
        rows: The column of packed rows; None = the rows themselves are written.
        omitted: The columns that are not written.
        stream: The stream's schema.

    Raises:
        ExpressionError: If the stream lacks a column of the names.
        ConfigError: If it lacks another one, or one has a type that does not do.
    """
    keys_of(names, stream)
    for name in (*omitted, *([] if rows is None else [rows])):
        if name not in stream.names:
            raise ConfigError(f"unknown column {name!r}", hint=near(name, stream.names))
    if rows is not None:
        if not pa.types.is_binary(stream.field(rows).type):
            raise ConfigError(
                f"rows={rows!r} is of type {stream.field(rows).type}", hint="a column of pack_rows(…) values"
            )
        return
    if len(written(stream, omitted)) == 0:
        raise ConfigError("omit leaves no column to write", hint="omit fewer columns")
    for mode in key_fields.modes:
        if isinstance(mode, Upsert):
            check_keys(mode, written(stream, omitted))


def written(stream: pa.Schema, omitted: tuple[str, ...]) -> pa.Schema:
    """Return the schema of the rows as they are written."""
    return pa.schema([field for field in stream if field.name not in omitted])
