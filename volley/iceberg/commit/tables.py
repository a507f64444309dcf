"""Opens the table that a sink writes to: makes a missing one, plans the schema changes that an existing one needs."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import (
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH

from volley.errors import TableNotFoundError
from volley.iceberg.catalogs.answers import retry_reads
from volley.iceberg.commit.creation import capabilities_of, create_table, make_namespace
from volley.iceberg.commit.loop import Stage, Staged, commit_to
from volley.iceberg.commit.overwrite import check_named
from volley.iceberg.config import IcebergSinkConfig
from volley.iceberg.layout.specs import check_spec, spec_of
from volley.iceberg.modes import History, KeyedMode, Overwrite
from volley.iceberg.pyiceberg_private.guarded import check_known
from volley.iceberg.pyiceberg_private.snapshots import add_empty_snapshot
from volley.iceberg.read.history import check_branch
from volley.iceberg.schema.changes import Change, Evolution
from volley.iceberg.schema.compare import plan
from volley.iceberg.schema.evolve import evolved, update
from volley.iceberg.schema.types import check_version, to_iceberg_schema
from volley.iceberg.settings import format_version
from volley.iceberg.table import TableRef
from volley.iceberg.upsert.columns import check_keys, own_fields, own_renames, with_own_columns
from volley.iceberg.upsert.tombstones import check_versions

__all__ = [
    "change_schema",
    "check_columns",
    "check_table",
    "evolution",
    "open_table",
]

_log = logging.getLogger(__name__)


def open_table(
    config: IcebergSinkConfig, stream: pa.Schema, create: bool = True, catalog: Catalog | None = None
) -> tuple[Catalog, Table]:
    """Return the catalog and the table of a sink, ready for rows of the Arrow schema `stream`.

    Schema changes that the rows need are checked here, and made with the first rows.

    Args:
        create: False if the job has written to the table before: a missing table is an error then.

    Raises:
        CatalogError: If the catalog can't be reached or rejects a request.
        TableNotFoundError: If the table is missing and may not be created.
        SchemaMismatchError: If the stream does not fit the table.
        ConfigError: If the table's partition spec is not the configured one, or can't be written; if the branch is a
            tag; if the commit mode names columns or partitions that don't exist, or would replace a history's versions.
    """
    mode = config.commit_mode
    if isinstance(mode, KeyedMode):
        check_keys(mode, stream)
    # Safe to retry: each step finds the namespace or table that an earlier attempt created.
    opened, table = retry_reads(lambda: _open(config, stream, create, catalog))
    if isinstance(mode, Overwrite):
        check_named(mode, evolution(config, table, stream).of(table))
    return opened, table


def check_table(config: IcebergSinkConfig, stream: pa.Schema | None) -> None:
    """Check whether `open_table` would fail, as far as possible without creating anything.

    Raises:
        VolleyError: As for `open_table`.
    """
    if stream is not None:
        config = _with_keys(config, stream)
    table = retry_reads(lambda: _existing(config))
    if table is None:
        _check_creation(config)
        if stream is not None:
            _new_layout(config, stream)
    elif stream is not None:
        needed = evolution(config, table, stream)
        if isinstance(config.commit_mode, Overwrite):
            check_named(config.commit_mode, needed.of(table))


def check_columns(config: IcebergSinkConfig, stream: pa.Schema) -> None:
    """Check that rows have the columns which the settings name; reach nothing.

    The partitioning counts where the table may be made of these rows.

    Raises:
        VolleyError: If a column is missing, or has a type that does not do.
    """
    config = _with_keys(config, stream)
    if config.create_table:
        _new_layout(config, stream)


def _with_keys(config: IcebergSinkConfig, stream: pa.Schema) -> IcebergSinkConfig:
    """Return the settings with the keys that the stream tells; the stream has the columns of the upsert."""
    config = with_own_columns(config, stream)
    if isinstance(config.commit_mode, KeyedMode):
        check_keys(config.commit_mode, stream)
    return config


def _existing(config: IcebergSinkConfig) -> Table | None:
    if config.ref.file is not None and not Path(config.ref.file).exists():
        return None
    catalog = config.ref.load_catalog()
    _require(config, catalog, "commits", "can't be written")
    with config.ref.errors():
        try:
            return catalog.load_table(config.identifier)
        except NoSuchTableError:
            if config.create_table:
                _require(config, catalog, "tables", "can't be made")
            return None


def _require(config: IcebergSinkConfig, catalog: Catalog, capability: str, fault: str) -> None:
    """Raise ConfigError if an opened catalog lacks a capability, without which the table has a fault."""
    named = f"catalog {config.ref.address}"
    capabilities_of(config.ref, catalog).require(capability, named, f"table {config.table_name} {fault}")


def _check_creation(config: IcebergSinkConfig) -> None:
    if not config.create_table:
        raise TableNotFoundError(
            f"table {config.table_name} not found in {config.ref.address}",
            hint="check namespace and table, create it in the catalog, or set with_create_table(True)",
        )


def _new_layout(config: IcebergSinkConfig, stream: pa.Schema) -> tuple[Schema, PartitionSpec]:
    schema = to_iceberg_schema(_written_schema(config, stream))
    check_version(schema, format_version(config.table_properties), config.table_name)
    return schema, spec_of(config.partitioning, schema)


def _open(config: IcebergSinkConfig, stream: pa.Schema, create: bool, catalog: Catalog | None) -> tuple[Catalog, Table]:
    catalog = catalog or config.ref.load_catalog()
    _require(config, catalog, "commits", "can't be written")
    with config.ref.errors():
        try:
            table = catalog.load_table(config.identifier)
        except NoSuchTableError as error:
            if not create:
                raise TableNotFoundError(
                    f"table {config.table_name} in {config.ref.address} is gone, which this job has filled so far",
                    hint="restore it, or start over with fresh=True to fill a new one from the beginning",
                ) from error
            return catalog, _with_first_snapshot(config, catalog, _create(catalog, config, stream))
    evolution(config, table, stream)
    return catalog, _with_first_snapshot(config, catalog, table)


def _with_first_snapshot(config: IcebergSinkConfig, catalog: Catalog, table: Table) -> Table:
    """Return the table with at least an empty snapshot: pyiceberg needs one to create a branch."""
    if config.branch == MAIN_BRANCH or table.metadata.snapshots:
        return table
    return commit_to(config.ref, _FirstSnapshot(), catalog).table


class _FirstSnapshot(Stage[Staged]):
    action = "making a first snapshot"

    def stage(self, table: Table) -> Staged | None:
        if table.metadata.snapshots:
            return None
        transaction = table.transaction()
        add_empty_snapshot(transaction)
        return Staged(transaction)

    def landed(self, table: Table, staged: Staged) -> bool:
        return bool(table.metadata.snapshots)


def _create(catalog: Catalog, config: IcebergSinkConfig, stream: pa.Schema) -> Table:
    _check_creation(config)
    _require(config, catalog, "tables", "can't be made")
    schema, spec = _new_layout(config, stream)
    make_namespace(catalog, config.identifier[:-1], config.ref)
    try:
        table = create_table(catalog, config, schema, spec)
    except TableAlreadyExistsError:
        table = catalog.load_table(config.identifier)
    # If another job was faster, the table is its own; SeaweedFS 4.48 returns that one without an error.
    evolution(config, table, stream)
    return table


def evolution(config: IcebergSinkConfig, table: Table, stream: pa.Schema) -> Evolution:
    """Return the schema changes that a freshly loaded table needs for rows of the Arrow schema `stream`.

    Raises:
        SchemaMismatchError: If a needed change is impossible or not allowed.
        ConfigError: If the partition spec is not the configured one; if the branch is a tag; if the table has the
            versions of another history; if a part of its metadata is not known.
    """
    check_known(table)
    check_branch(table.metadata, config.table_name, config.branch)
    rows = _required(config, _written_schema(config, stream))
    mode, renames = config.commit_mode, config.renames
    if isinstance(mode, KeyedMode):
        renames = {**own_renames(mode, table.metadata, renames), **renames}
    changes = plan(table, rows, config.schema_evolution, renames, config.drops)
    evolved = changes.of(table)
    check_spec(evolved, config.partitioning)
    if isinstance(mode, KeyedMode):
        check_versions(evolved, mode)
    return changes


def _written_schema(config: IcebergSinkConfig, stream: pa.Schema) -> pa.Schema:
    """Return the schema of the written rows: all columns but those that only tell what to do, and those of the mode."""
    mode = config.commit_mode
    if not isinstance(mode, KeyedMode):
        return stream
    columns = pa.schema([field for field in [*stream, *own_fields(mode, stream)] if field.name not in mode.hidden])
    if mode.sequence is None or not mode.is_partial:
        return columns
    # A column that no row has a value of yet is null.
    whole = {*mode.keys, *mode.sequence_fields}
    return pa.schema([field.with_nullable(field.nullable or field.name not in whole) for field in columns])


def _required(config: IcebergSinkConfig, stream: pa.Schema) -> pa.Schema:
    """Return the same schema; columns whose nulls are checked row by row count as required."""
    mode = config.commit_mode
    # With a dead letter, rows with nulls are rejected one by one: only a mismatch of all rows is an error here.
    # A row that deletes another, or leaves values as they are, may have nulls, except in its keys.
    if config.dead_letter or (isinstance(mode, KeyedMode) and (mode.op_field or mode.is_partial)):
        required = set(stream.names)
    else:
        required = set(mode.keys) if isinstance(mode, KeyedMode) else set()
    if isinstance(mode, History):
        required = (required | {mode.valid_from, mode.is_current}) - {mode.valid_to}
    return pa.schema([field.with_nullable(field.nullable and field.name not in required) for field in stream])


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
