"""Divides batches by the table that each row is for."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from volley.columns.compiled import as_array
from volley.columns.expressions import compile_expression
from volley.columns.keys.buckets import divided
from volley.errors import ConfigError, SchemaMismatchError
from volley.iceberg.route.names import SEPARATOR, TableNames

__all__ = ["divide", "keys_of"]

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
    """Yield the rows of each key, in their order of arrival.

    Raises:
        SchemaMismatchError: If a row has no key.
    """
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
