"""Schema changes of a table: plans those that the rows of a stream need, and commits those that a user wants."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.table import Table

from volley.errors import ConfigError
from volley.iceberg.commit.loop import Stage, Staged, commit_to
from volley.iceberg.config import IcebergSinkConfig
from volley.iceberg.layout.specs import check_spec
from volley.iceberg.modes import Upsert
from volley.iceberg.read.history import check_branch
from volley.iceberg.schema.changes import Change, Evolution
from volley.iceberg.schema.compare import plan
from volley.iceberg.schema.evolve import evolved, update
from volley.iceberg.table import TableRef

__all__ = ["change_schema", "evolution"]


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


def change_schema(ref: TableRef, changes: Sequence[Change]) -> Schema:
    """Make changes of a table's schema in one commit, and return its schema.

    Raises:
        SchemaMismatchError: If a change is impossible; lists all that are.
        VolleyError: As for `commit_to`.
    """
    return commit_to(ref, _SchemaChange(f"table {ref.name}", changes)).table.schema()


@dataclass(frozen=True)
class _StagedSchema(Staged):
    schema: Schema


@dataclass(frozen=True)
class _SchemaChange(Stage[_StagedSchema]):
    action = "changing the schema"

    name: str
    changes: Sequence[Change]

    def stage(self, table: Table) -> _StagedSchema | None:
        target = evolved(table, self.changes, self.name)[-1]
        transaction = update(table, target)
        return _StagedSchema(transaction, target.schema()) if transaction else None

    def landed(self, table: Table, staged: _StagedSchema) -> bool:
        return table.schema() == staged.schema
