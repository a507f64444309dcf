"""The rows of a sink with many tables: checks of the stream that they come in, and their division by table."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from volley.columns.compiled import as_array
from volley.columns.expressions import compile_expression
from volley.columns.keys.buckets import divided
from volley.errors import ConfigError, SchemaMismatchError, near
from volley.iceberg.modes import KeyedMode
from volley.iceberg.route.routing import SEPARATOR, Routing, TableNames
from volley.iceberg.upsert.columns import check_keys

__all__ = ["Keys", "check_stream", "divide", "keys_of", "written"]

Keys = Callable[[pa.RecordBatch], pa.StringArray]
"""Computes the key of each row of a batch; null = the row names no table."""


def keys_of(names: TableNames, schema: pa.Schema) -> Keys:
    """Compile the computation of a row's key.

    Raises:
        ExpressionError: If the rows lack a column of the name.
        ConfigError: If a part of the name is not a text or a whole number.
    """
    parts = [compile_expression(node, schema) for node in names.nodes]
    for node, part in zip(names.nodes, parts, strict=True):
        if not (pa.types.is_string(part.type) or pa.types.is_large_string(part.type) or pa.types.is_integer(part.type)):
            raise ConfigError(
                f"route by {node!r}, which is of type {part.type}",
                hint='use a text or a whole number, or .cast("string")',
            )

    def keys(batch: pa.RecordBatch) -> pa.StringArray:
        values = [as_array(part.evaluate(batch), batch.num_rows).cast(pa.string()) for part in parts]
        return values[0] if len(values) == 1 else pc.binary_join_element_wise(*values, SEPARATOR)

    return keys


def divide(batch: pa.RecordBatch, keys: Keys) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield the rows of each key, in their order of arrival."""
    encoded = keys(batch).dictionary_encode()
    if encoded.null_count:
        raise SchemaMismatchError(
            f"{encoded.null_count} rows name no table: a column of the route is null",
            hint="filter those rows out before the sink, or give the sink a dead letter",
        )
    names: list[str] = encoded.dictionary.to_pylist()
    if len(names) == 1:
        yield names[0], batch
        return
    yield from ((names[number], rows) for number, rows in divided(batch, encoded.indices.to_numpy()).parts())


def check_stream(routing: Routing, stream: pa.Schema) -> None:
    """Check that a stream has the columns that a sink needs."""
    keys_of(routing.names, stream)
    rows = routing.rows
    for name in (*routing.omit, *([] if rows is None else [rows])):
        if name not in stream.names:
            raise ConfigError(f"unknown column {name!r}", hint=near(name, stream.names))
    if rows is not None:
        if not pa.types.is_binary(stream.field(rows).type):
            raise ConfigError(
                f"rows={rows!r} is of type {stream.field(rows).type}", hint="a column of pack_rows(…) values"
            )
        return
    columns = written(routing, stream)
    if len(columns) == 0:
        raise ConfigError("omit leaves no column to write", hint="omit fewer columns")
    for mode in routing.key_fields.modes:
        if isinstance(mode, KeyedMode):
            check_keys(mode, columns)


def written(routing: Routing, stream: pa.Schema) -> pa.Schema:
    """Return the schema of the rows as they are written."""
    return pa.schema([field for field in stream if field.name not in routing.omit])
