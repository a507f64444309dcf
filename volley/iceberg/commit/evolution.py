"""What must change in a table's schema for the rows of a stream."""

from __future__ import annotations

import pyarrow as pa
from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRefType

from volley.errors import ConfigError
from volley.iceberg.config import IcebergSinkConfig
from volley.iceberg.layout.specs import check_spec
from volley.iceberg.modes import Upsert
from volley.iceberg.schema.changes import Evolution
from volley.iceberg.schema.compare import plan

__all__ = ["evolution"]


def evolution(config: IcebergSinkConfig, table: Table, stream: pa.Schema) -> Evolution:
    """What must change in the schema of a table as it was just loaded, for rows of the Arrow schema `stream`.

    Raises:
        SchemaMismatchError: If that can't be, or is not allowed.
        ConfigError: If the partition spec is not what the config asks for, or the branch is a tag.
    """
    _check_branch(table, config.branch)
    rows = _required(config, _written(config, stream))
    found = plan(table, rows, config.schema_evolution, config.renames, config.drops)
    check_spec(found.of(table), config.partitioning)
    return found


def _written(config: IcebergSinkConfig, stream: pa.Schema) -> pa.Schema:
    """The schema of the rows that are written: an upsert's op column is not."""
    op_field = config.commit_mode.op_field if isinstance(config.commit_mode, Upsert) else None
    return pa.schema([field for field in stream if field.name != op_field])


def _required(config: IcebergSinkConfig, stream: pa.Schema) -> pa.Schema:
    """The same, with values required where a row without one is not written, or is refused."""
    mode = config.commit_mode
    # With a dead letter, nulls are sorted out row by row: only what no row could fit is refused before.
    # A row that only says which one to remove may have nulls too, but in its keys.
    if config.dead_letter or (isinstance(mode, Upsert) and mode.op_field):
        valued = set(stream.names)
    else:
        valued = set(mode.key_fields) if isinstance(mode, Upsert) else set()
    return pa.schema([field.with_nullable(field.nullable and field.name not in valued) for field in stream])


def _check_branch(table: Table, branch: str) -> None:
    ref = table.refs().get(branch)
    if ref and ref.snapshot_ref_type != SnapshotRefType.BRANCH:
        raise ConfigError(
            f"branch {branch!r} of table {'.'.join(table.name())} is a tag", hint="give the branch another name"
        )
