"""Finds and deletes orphan files: files that no snapshot refers to."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from volley.checks import Duration, count, duration_or_zero, flag, optional, seconds
from volley.errors import brief
from volley.iceberg.config import IcebergSinkConfig, table_ref
from volley.iceberg.maintain.values import OrphanFiles
from volley.iceberg.storage.errors import storage_errors

if TYPE_CHECKING:
    from volley.iceberg.table import TableRef

__all__ = ["orphan_files", "remove_orphan_files"]

_THREE_DAYS = timedelta(days=3)


@brief
def orphan_files(table: TableRef | IcebergSinkConfig, older_than: Duration = _THREE_DAYS) -> OrphanFiles:
    """Return the files in a table's folders that no snapshot of any branch refers to, such as files of killed tasks.

    Files of other tables whose folders are inside this table's are left out. The table's own files are kept in memory
    as eight bytes each.

    Args:
        table: A `TableRef`, or a sink's config, of which only the table is used.
        older_than: The minimum age of a file, three days by default: a timedelta, seconds or a text such as ``"7d"``.
            A running job may still commit younger files.

    Raises:
        ConfigError: If `older_than` is negative, or another table has its metadata in the same folder.
        TableNotFoundError: If there is no such table.
        CatalogError: If the catalog can't be reached or rejects the request.
        StorageError: If a folder can't be listed, or a manifest can't be read.

    Example:
        >>> from volley import IcebergStorage, TableRef
        >>> orphan_files(TableRef("db", "events", IcebergStorage.Local("/tmp/lake")))  # doctest: +SKIP
        []
    """
    from volley.iceberg.maintain.unneeded import find_orphans

    before = _before(older_than)
    return find_orphans(table_ref(table).load(), before)


@brief
def remove_orphan_files(
    table: TableRef | IcebergSinkConfig,
    older_than: Duration = _THREE_DAYS,
    dry_run: bool = False,
    *,
    max_files: int | None = None,
    max_time: Duration | None = None,
) -> OrphanFiles:
    """Delete the files that `orphan_files` returns, and return those that are deleted.

    Args:
        table: A `TableRef`, or a sink's config, of which only the table is used.
        older_than: The minimum age of a file, three days by default. Keep it longer than an epoch takes from its
            first file to its commit: else files of a running job are deleted.
        dry_run: Delete nothing, and return what would be deleted.
        max_files: The most files to delete. None = all.
        max_time: The time after which no further file is deleted: a timedelta, seconds or a text such as ``"5m"``.
            The result says how many files are left.

    Raises:
        ConfigError: If an argument is wrong, or the table's property ``gc.enabled`` is false.
        VolleyError: As for `orphan_files`; files that were deleted before the error stay deleted.

    Example:
        >>> from volley import IcebergStorage, TableRef
        >>> remove_orphan_files(TableRef("db", "events", IcebergStorage.Local("/tmp/lake")))  # doctest: +SKIP
        []
    """
    from volley.iceberg.maintain.unneeded import check_own_files, find_orphans
    from volley.iceberg.storage.files import delete_files, files_of_table

    began, before, is_dry = time.monotonic(), _before(older_than), flag("dry_run", dry_run)
    most, limit = optional(count)("max_files", max_files), optional(seconds)("max_time", max_time)
    loaded = table_ref(table).load()
    check_own_files(loaded, "orphan files", "removed")
    orphans = find_orphans(loaded, before)
    if is_dry:
        return orphans.first(most or len(orphans), orphans.seconds)
    with storage_errors(loaded.location(), "deleting orphan files in"):
        removed, failures = delete_files(
            files_of_table(loaded), orphans[:most], lambda: limit is None or time.monotonic() - began <= limit
        )
        for failure in failures.values():
            raise failure
    return orphans.first(removed, time.monotonic() - began, removed=True)


def _before(older_than: Duration) -> datetime:
    return datetime.now(UTC) - duration_or_zero("older_than", older_than)
