"""Finds and deletes orphan files: files that no snapshot refers to."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from volley.checks import Duration, duration_or_zero
from volley.iceberg.config import IcebergSinkConfig, table_ref
from volley.iceberg.storage.errors import storage_errors

if TYPE_CHECKING:
    from pyiceberg.manifest import ManifestFile
    from pyiceberg.table import Table

    from volley.iceberg.table import TableRef

__all__ = ["orphan_files", "remove_orphan_files"]

_THREE_DAYS = timedelta(days=3)


def orphan_files(table: TableRef | IcebergSinkConfig, older_than: Duration = _THREE_DAYS) -> list[str]:
    """Return the files in a table's folders that no snapshot of any branch refers to, such as files of killed tasks.

    Args:
        table: A `TableRef`, or a sink's config, of which only the table is used.
        older_than: The minimum age of a file, three days by default: a timedelta, seconds or a text such as ``"7d"``.
            A running job may still commit younger files.

    Raises:
        ConfigError: If `older_than` is negative.
        TableNotFoundError: If there is no such table.
        CatalogError: If the catalog can't be reached or rejects the request.
        StorageError: If a folder can't be listed, or a manifest can't be read.

    Example:
        >>> from volley.iceberg import IcebergStorage, TableRef
        >>> orphan_files(TableRef("db", "events", IcebergStorage.Local("/tmp/lake")))  # doctest: +SKIP
        []
    """
    before = _before(older_than)
    return _orphans(table_ref(table).load(), before)


def remove_orphan_files(table: TableRef | IcebergSinkConfig, older_than: Duration = _THREE_DAYS) -> list[str]:
    """Delete the files that `orphan_files` returns, and return them.

    Args:
        table: A `TableRef`, or a sink's config, of which only the table is used.
        older_than: The minimum age of a file, three days by default. Keep it longer than an epoch takes from its
            first file to its commit: else files of a running job are deleted.

    Raises:
        ConfigError: If the table's property ``gc.enabled`` is false.
        VolleyError: As for `orphan_files`; files that were deleted before the error stay deleted.

    Example:
        >>> from volley.iceberg import IcebergStorage, TableRef
        >>> remove_orphan_files(TableRef("db", "events", IcebergStorage.Local("/tmp/lake")))  # doctest: +SKIP
        []
    """
    from volley.iceberg.maintain.unneeded import check_own_files
    from volley.iceberg.storage.listing import file_system

    before = _before(older_than)
    loaded = table_ref(table).load()
    check_own_files(loaded, "orphan files", "removed")
    orphans = _orphans(loaded, before)
    with storage_errors(loaded.location(), "deleting orphan files in"):
        files = file_system(loaded.io, loaded.location())
        for path in orphans:
            files.rm_file(path)
    return orphans


def _before(older_than: Duration) -> datetime:
    return datetime.now(UTC) - duration_or_zero("older_than", older_than)


def _orphans(table: Table, before: datetime) -> list[str]:
    from volley.iceberg.storage.listing import data_folder, file_system, list_folder, name_of

    with storage_errors(table.location(), "listing"):
        # List the files first: those that are committed meanwhile are in the snapshots that are read afterwards.
        files = file_system(table.io, table.location())
        listed: dict[str, datetime] = {}
        for folder in {table.location(), data_folder(table)}:
            listed |= list_folder(files, folder)
        needed = set(map(name_of, _needed(table.refresh())))
    return sorted(path for path, written in listed.items() if written < before and name_of(path) not in needed)


def _needed(table: Table) -> Iterator[str]:
    """Yield every file that a snapshot, the metadata or its log refers to."""
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
