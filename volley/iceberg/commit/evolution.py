"""Plans the schema changes that a table needs for the rows of a stream."""

from __future__ import annotations

import pyarrow as pa
from pyiceberg.table import Table

from volley.errors import ConfigError
from volley.iceberg.config import IcebergSinkConfig
from volley.iceberg.layout.specs import check_spec
from volley.iceberg.modes import Upsert
from volley.iceberg.read.heads import check_branch
from volley.iceberg.schema.changes import Evolution
from volley.iceberg.schema.compare import plan

__all__ = ["evolution"]


def evolution(config: IcebergSinkConfig, table: Table, stream: pa.Schema) -> Evolution:
    """Return the schema changes that a freshly loaded table needs for rows of the Arrow schema `stream`.

    Raises:
        SchemaMismatchError: If a needed change is impossible or not allowed.
        ConfigError: If the table has format version 3, the partition spec is not the configured one, or the branch is a
            tag.
    """
    _check_version(table)
    check_branch(table.metadata, config.table_name, config.branch)
    rows = _required(config, _written(config, stream))
    changes = plan(table, rows, config.schema_evolution, config.renames, config.drops)
    check_spec(changes.of(table), config.partitioning)
    return changes


def _written(config: IcebergSinkConfig, stream: pa.Schema) -> pa.Schema:
    """Return the schema of the written rows: all columns but those that only tell an upsert what to do."""
    hidden = config.commit_mode.hidden if isinstance(config.commit_mode, Upsert) else frozenset()
    return pa.schema([field for field in stream if field.name not in hidden])


def _required(config: IcebergSinkConfig, stream: pa.Schema) -> pa.Schema:
    """Return the same schema; columns whose nulls are checked row by row count as required."""
    mode = config.commit_mode
    # With a dead letter, rows with nulls are rejected one by one: only a mismatch of all rows is an error here.
    # A row that deletes another may have nulls, except in its keys.
    if config.dead_letter or (isinstance(mode, Upsert) and mode.op_field):
        required = set(stream.names)
    else:
        required = set(mode.keys) if isinstance(mode, Upsert) else set()
    return pa.schema([field.with_nullable(field.nullable and field.name not in required) for field in stream])


def _check_version(table: Table) -> None:
    if table.format_version > 2:
        raise ConfigError(
            f"table {'.'.join(table.name())} has format version {table.format_version}, which pyiceberg can't write",
            hint="write to a table of format version 1 or 2, and to this one by another engine",
        )
