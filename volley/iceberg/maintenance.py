"""Keeps tables small and tidy: finds and removes the files that no snapshot needs."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from volley._checks import Duration, duration_or_zero
from volley.iceberg.catalogs import catalog_errors, load_catalog
from volley.iceberg.storage import storage_errors

if TYPE_CHECKING:
    from pyiceberg.manifest import ManifestFile
    from pyiceberg.table import Table

    from volley.iceberg.config import IcebergSinkConfig

__all__ = ["orphan_files", "remove_orphan_files"]

_THREE_DAYS = timedelta(days=3)


def orphan_files(config: IcebergSinkConfig, older_than: Duration = _THREE_DAYS) -> list[str]:
    """The files in a table's folders that no snapshot of any branch needs, such as those of tasks that were killed.

    Args:
        config: Names the table; its other settings don't matter.
        older_than: Files younger than this are left out: a job that is running has written them and will commit them.

    Raises:
        ConfigError: If `older_than` is negative.
        TableNotFoundError: If there is no such table.
        CatalogError: If the catalog can't be reached or refuses.
        StorageError: If the folders can't be listed, or a manifest can't be read: nothing is an orphan by mistake.

    Example:
        >>> from volley.iceberg import IcebergSinkConfig, IcebergStorage
        >>> config = IcebergSinkConfig(namespace="db", table="events", storage=IcebergStorage.Local("/tmp/lake"))
        >>> orphan_files(config)  # doctest: +SKIP
        []
    """
    before = _before(older_than)
    return _orphans(_load(config), before)


def remove_orphan_files(config: IcebergSinkConfig, older_than: Duration = _THREE_DAYS) -> list[str]:
    """Delete what `orphan_files` finds, and return it.

    Args:
        config: Names the table; its other settings don't matter.
        older_than: Files younger than this stay. An epoch may take this long from its first file to its commit: below
            that, the files of a running job are deleted under its hands.

    Raises:
        VolleyError: As `orphan_files`; what was deleted by then stays deleted.
    """
    from volley.iceberg._files import file_system

    before = _before(older_than)
    table = _load(config)
    found = _orphans(table, before)
    with storage_errors(table.location(), "deleting orphan files in"):
        files = file_system(table.io, table.location())
        for path in found:
            files.rm_file(path)
    return found


def _before(older_than: Duration) -> datetime:
    return datetime.now(UTC) - duration_or_zero("older_than", older_than)


def _load(config: IcebergSinkConfig) -> Table:
    catalog = load_catalog(config)
    with catalog_errors(config):
        return catalog.load_table(config.identifier)


def _orphans(table: Table, before: datetime) -> list[str]:
    from volley.iceberg._files import data_folder, file_system, list_folder, name_of

    with storage_errors(table.location(), "listing"):
        # Listed first: what is committed meanwhile is needed by the snapshots that are read after it.
        files = file_system(table.io, table.location())
        found: dict[str, datetime] = {}
        for folder in {table.location(), data_folder(table)}:
            found |= list_folder(files, folder)
        needed = set(map(name_of, _needed(table.refresh())))
    return sorted(path for path, written in found.items() if written < before and name_of(path) not in needed)


def _needed(table: Table) -> Iterator[str]:
    """Every file that a snapshot, the metadata or its log names."""
    metadata = table.metadata
    yield table.metadata_location
    yield "version-hint.text"
    yield from (entry.metadata_file for entry in metadata.metadata_log)
    yield from (file.statistics_path for file in (*metadata.statistics, *metadata.partition_statistics))
    manifests: dict[str, ManifestFile] = {}
    for snapshot in metadata.snapshots:
        yield snapshot.manifest_list
        manifests |= {manifest.manifest_path: manifest for manifest in snapshot.manifests(table.io)}
    yield from manifests
    for manifest in manifests.values():
        yield from (entry.data_file.file_path for entry in manifest.fetch_manifest_entry(table.io))
