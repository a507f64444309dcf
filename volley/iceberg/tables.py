"""Opens the table a sink writes to: makes it if it is absent, checks it against the stream if it is there."""

from __future__ import annotations

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError, TableAlreadyExistsError
from pyiceberg.table import Table, TableProperties
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType

from volley.errors import ConfigError, TableNotFoundError
from volley.iceberg._patience import patiently
from volley.iceberg._specs import check_spec, spec_of
from volley.iceberg._staging import check_named
from volley.iceberg._upsert_staging import check_keys
from volley.iceberg.catalogs import catalog_errors, load_catalog
from volley.iceberg.config import IcebergSinkConfig
from volley.iceberg.modes import Overwrite, Upsert
from volley.iceberg.schema import check_fits, evolve, to_iceberg_schema

__all__ = ["open_table"]

# What a commit costs and leaves behind must not grow with the table's age.
_BOUNDED = {
    TableProperties.METADATA_DELETE_AFTER_COMMIT_ENABLED: "true",
    TableProperties.METADATA_PREVIOUS_VERSIONS_MAX: "100",
    TableProperties.MANIFEST_MERGE_ENABLED: "true",
}


def open_table(config: IcebergSinkConfig, stream: pa.Schema) -> tuple[Catalog, Table]:
    """The catalog and the table that `config` names, ready for rows of the Arrow schema `stream`.

    Raises:
        CatalogError: If the catalog can't be reached or refuses.
        TableNotFoundError: If the table is absent and ``create_table`` is False.
        SchemaMismatchError: If the stream does not fit the table.
        ConfigError: If the table is partitioned in another way than the config asks for, or in a way that can't be
            written; if the branch is a tag; if the commit mode names columns or partitions that are not there.
    """
    mode = config.commit_mode
    if isinstance(mode, Upsert):
        check_keys(mode, stream)
        stream = _written(stream, mode)
    # Each step finds what an earlier try has done: a table it made, a column it added.
    catalog, table = patiently(lambda: _open(config, stream))
    if isinstance(mode, Overwrite):
        check_named(mode, table)
    return catalog, table


def _written(stream: pa.Schema, mode: Upsert) -> pa.Schema:
    """The schema of the rows that an upsert writes."""
    return pa.schema([field for field in stream if field.name != mode.op_field])


def _open(config: IcebergSinkConfig, stream: pa.Schema) -> tuple[Catalog, Table]:
    catalog = load_catalog(config)
    with catalog_errors(config):
        try:
            table = catalog.load_table(config.identifier)
        except NoSuchTableError:
            return catalog, _rooted(_create(catalog, config, stream), config.branch)
        if config.schema_evolution == "add_columns":
            table = evolve(table, stream)
    check_spec(table, config.partitioning)
    _check_branch(table, config.branch)
    # With a dead letter, nulls are sorted out row by row: only what no row could fit is refused here.
    # A row that only says which one to remove may have nulls too.
    partly = config.dead_letter or (isinstance(config.commit_mode, Upsert) and config.commit_mode.op_field)
    check_fits(_valued(stream) if partly else stream, table.schema(), config.table_name)
    with catalog_errors(config):
        return catalog, _rooted(table, config.branch)


def _rooted(table: Table, branch: str) -> Table:
    """The table with a snapshot, empty if need be, for a branch to begin at: pyiceberg's catalogs can't without."""
    if branch != MAIN_BRANCH and not table.metadata.snapshots:
        with table.transaction() as transaction:
            transaction.update_snapshot().fast_append().commit()
    return table


def _check_branch(table: Table, branch: str) -> None:
    ref = table.refs().get(branch)
    if ref and ref.snapshot_ref_type != SnapshotRefType.BRANCH:
        raise ConfigError(
            f"branch {branch!r} of table {'.'.join(table.name())} is a tag", hint="give the branch another name"
        )


def _valued(stream: pa.Schema) -> pa.Schema:
    """The schema of the rows that have a value in every column."""
    return pa.schema([field.with_nullable(False) for field in stream])


def _create(catalog: Catalog, config: IcebergSinkConfig, stream: pa.Schema) -> Table:
    if not config.create_table:
        raise TableNotFoundError(
            f"table {config.table_name} not found in {config.source.address}",
            hint="check namespace and table, create it in the catalog, or set with_create_table(True)",
        )
    schema = to_iceberg_schema(stream)
    spec = spec_of(config.partitioning, schema)
    catalog.create_namespace_if_not_exists(config.identifier[:-1])
    properties = {**_BOUNDED, **config.table_properties}
    try:
        return catalog.create_table(config.identifier, schema, partition_spec=spec, properties=properties)
    except TableAlreadyExistsError:
        # Another job was faster; whether its table fits is checked like any other's.
        table = catalog.load_table(config.identifier)
        check_spec(table, config.partitioning)
        check_fits(stream, table.schema(), config.table_name)
        return table
