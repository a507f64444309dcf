"""Opens the table a sink writes to: makes it if it is absent, finds out how the stream fits it if it is there."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, TableAlreadyExistsError
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table, TableProperties
from pyiceberg.table.refs import MAIN_BRANCH
from tenacity import retry_if_exception_type

from volley.errors import TableNotFoundError
from volley.iceberg.catalogs.retry import commit_retry, retry_reads
from volley.iceberg.commit.evolution import _written, evolution
from volley.iceberg.commit.overwrite import check_named
from volley.iceberg.config import IcebergSinkConfig
from volley.iceberg.layout.specs import spec_of
from volley.iceberg.modes import Overwrite, Upsert
from volley.iceberg.pyiceberg_private.access import commit_once
from volley.iceberg.schema.types import to_iceberg_schema
from volley.iceberg.upsert.parked import check_keys

__all__ = ["check_table", "open_table"]

# What a commit costs and leaves behind must not grow with the table's age.
_BOUNDED = {
    TableProperties.METADATA_DELETE_AFTER_COMMIT_ENABLED: "true",
    TableProperties.METADATA_PREVIOUS_VERSIONS_MAX: "100",
    TableProperties.MANIFEST_MERGE_ENABLED: "true",
}


def open_table(config: IcebergSinkConfig, stream: pa.Schema, create: bool = True) -> tuple[Catalog, Table]:
    """The catalog and the table that `config` names, ready for rows of the Arrow schema `stream`.

    What the table's schema lacks for them is found out, and not changed before there are rows.

    Args:
        config: The sink's settings.
        stream: The rows' schema.
        create: False if the job has written to the table before: one that is gone must not be made again.

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
    # Each step finds what an earlier try has done: a namespace or a table it made.
    catalog, table = retry_reads(lambda: _open(config, stream, create))
    if isinstance(mode, Overwrite):
        check_named(mode, evolution(config, table, stream).of(table))
    return catalog, table


def check_table(config: IcebergSinkConfig, stream: pa.Schema | None) -> None:
    """Find out whether `open_table` would fail, as far as that can be told without making anything.

    Args:
        config: The sink's settings.
        stream: The rows' schema; None if it is not known yet.

    Raises:
        VolleyError: As `open_table`.
    """
    if stream is not None and isinstance(config.commit_mode, Upsert):
        check_keys(config.commit_mode, stream)
    table = retry_reads(lambda: _existing(config))
    if table is None:
        _check_creation(config)
        if stream is not None:
            _new_layout(config, stream)
    elif stream is not None:
        needed = evolution(config, table, stream)
        if isinstance(config.commit_mode, Overwrite):
            check_named(config.commit_mode, needed.of(table))


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


def _open(config: IcebergSinkConfig, stream: pa.Schema, create: bool) -> tuple[Catalog, Table]:
    catalog = config.ref.load_catalog()
    with config.ref.errors():
        try:
            table = catalog.load_table(config.identifier)
        except NoSuchTableError as error:
            if not create:
                raise TableNotFoundError(
                    f"table {config.table_name} in {config.ref.address} is gone, which this job has filled so far",
                    hint="restore it, or start over with fresh=True to fill a new one from the beginning",
                ) from error
            return catalog, _rooted(_create(catalog, config, stream), config.branch)
    evolution(config, table, stream)
    with config.ref.errors():
        return catalog, _rooted(table, config.branch)


def _rooted(table: Table, branch: str) -> Table:
    """The table with a snapshot, an empty one if it has none, for a branch to begin at: pyiceberg needs one."""
    if branch == MAIN_BRANCH or table.metadata.snapshots:
        return table
    return commit_retry(retry=retry_if_exception_type(CommitFailedException), reraise=True)(_with_snapshot, table)


def _with_snapshot(table: Table) -> Table:
    table.refresh()
    if not table.metadata.snapshots:
        transaction = table.transaction()
        transaction.update_snapshot().fast_append().commit()
        # pyiceberg's own retry would add a second snapshot after another job's.
        commit_once(table, transaction)
    return table


def _create(catalog: Catalog, config: IcebergSinkConfig, stream: pa.Schema) -> Table:
    _check_creation(config)
    schema, spec = _new_layout(config, stream)
    catalog.create_namespace_if_not_exists(config.identifier[:-1])
    properties = {**_BOUNDED, **config.table_properties}
    try:
        return catalog.create_table(config.identifier, schema, partition_spec=spec, properties=properties)
    except TableAlreadyExistsError:
        # Another job was faster; whether its table fits is checked like any other's.
        table = catalog.load_table(config.identifier)
        evolution(config, table, stream)
        return table
