"""Opens the table that a sink writes to: creates a missing one, checks that the stream fits an existing one."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError, TableAlreadyExistsError
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table, TableProperties
from pyiceberg.table.refs import MAIN_BRANCH

from volley.errors import TableNotFoundError
from volley.iceberg.catalogs.answers import retry_reads
from volley.iceberg.commit.evolution import _written, evolution
from volley.iceberg.commit.loop import Stage, Staged, commit_to
from volley.iceberg.commit.namespaces import make_namespace
from volley.iceberg.commit.overwrite import check_named
from volley.iceberg.config import IcebergSinkConfig
from volley.iceberg.layout.specs import spec_of
from volley.iceberg.modes import Overwrite, Upsert
from volley.iceberg.schema.types import to_iceberg_schema
from volley.iceberg.upsert.columns import check_keys, with_own_columns

__all__ = ["check_columns", "check_table", "open_table"]

# These properties keep the cost and the leftovers of a commit from growing with the table's age.
_BOUNDED = {
    TableProperties.METADATA_DELETE_AFTER_COMMIT_ENABLED: "true",
    TableProperties.METADATA_PREVIOUS_VERSIONS_MAX: "100",
    TableProperties.MANIFEST_MERGE_ENABLED: "true",
}


def open_table(
    config: IcebergSinkConfig, stream: pa.Schema, create: bool = True, catalog: Catalog | None = None
) -> tuple[Catalog, Table]:
    """Return the catalog and the table of a sink, ready for rows of the Arrow schema `stream`.

    Schema changes that the rows need are checked here, and made with the first rows.

    Args:
        config: The sink's settings.
        stream: The rows' schema.
        create: False if the job has written to the table before: a missing table is an error then.
        catalog: The catalog, if it is open already.

    Raises:
        CatalogError: If the catalog can't be reached or rejects a request.
        TableNotFoundError: If the table is missing and may not be created.
        SchemaMismatchError: If the stream does not fit the table.
        ConfigError: If the table's partition spec is not the configured one, or can't be written; if the branch is a
            tag; if the commit mode names columns or partitions that don't exist.
    """
    mode = config.commit_mode
    if isinstance(mode, Upsert):
        check_keys(mode, stream)
    # Safe to retry: each step finds the namespace or table that an earlier attempt created.
    opened, table = retry_reads(lambda: _open(config, stream, create, catalog))
    if isinstance(mode, Overwrite):
        check_named(mode, evolution(config, table, stream).of(table))
    return opened, table


def check_table(config: IcebergSinkConfig, stream: pa.Schema | None) -> None:
    """Check whether `open_table` would fail, as far as possible without creating anything.

    Args:
        config: The sink's settings.
        stream: The rows' schema; None if it is not known yet.

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

    Args:
        config: The sink's settings.
        stream: The rows' schema.

    Raises:
        VolleyError: If a column is missing, or has a type that does not do.
    """
    config = _with_keys(config, stream)
    if config.create_table:
        _new_layout(config, stream)


def _with_keys(config: IcebergSinkConfig, stream: pa.Schema) -> IcebergSinkConfig:
    """Return the settings with the keys that the stream tells; the stream has the columns of the upsert."""
    config = with_own_columns(config, stream)
    if isinstance(config.commit_mode, Upsert):
        check_keys(config.commit_mode, stream)
    return config


def _existing(config: IcebergSinkConfig) -> Table | None:
    if config.ref.file is not None and not Path(config.ref.file).exists():
        return None
    catalog = config.ref.load_catalog()
    with config.ref.errors():
        try:
            return catalog.load_table(config.identifier)
        except NoSuchTableError:
            return None


def _check_creation(config: IcebergSinkConfig) -> None:
    if not config.create_table:
        raise TableNotFoundError(
            f"table {config.table_name} not found in {config.ref.address}",
            hint="check namespace and table, create it in the catalog, or set with_create_table(True)",
        )


def _new_layout(config: IcebergSinkConfig, stream: pa.Schema) -> tuple[Schema, PartitionSpec]:
    schema = to_iceberg_schema(_written(config, stream))
    return schema, spec_of(config.partitioning, schema)


def _open(config: IcebergSinkConfig, stream: pa.Schema, create: bool, catalog: Catalog | None) -> tuple[Catalog, Table]:
    catalog = catalog or config.ref.load_catalog()
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
        transaction.update_snapshot().fast_append().commit()
        return Staged(transaction)

    def landed(self, table: Table, staged: Staged) -> bool:
        return bool(table.metadata.snapshots)


def _create(catalog: Catalog, config: IcebergSinkConfig, stream: pa.Schema) -> Table:
    _check_creation(config)
    schema, spec = _new_layout(config, stream)
    make_namespace(catalog, config.identifier[:-1], config.ref.address)
    properties = {**_BOUNDED, **config.table_properties}
    try:
        return catalog.create_table(config.identifier, schema, partition_spec=spec, properties=properties)
    except TableAlreadyExistsError:
        # Another job was faster: check its table like any existing one.
        table = catalog.load_table(config.identifier)
        evolution(config, table, stream)
        return table
