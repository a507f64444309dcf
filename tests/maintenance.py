"""Maintenance of a table, in processes that tests kill."""

from __future__ import annotations

from datetime import datetime

from volley.iceberg import IcebergTable, SnapshotManager, TableRef
from volley.iceberg.maintain import aging
from volley.iceberg.storage import files as storage_files

__all__ = [
    "compact",
    "compact_in_commits",
    "compute_statistics",
    "delete_old_rows",
    "erase",
    "expire",
    "expire_one_by_one",
    "rewrite_deletes",
    "rewrite_manifests",
]


def compact(ref: TableRef) -> None:
    IcebergTable(ref).compact()


def compact_in_commits(ref: TableRef, group_size: int) -> None:
    """Compact in three commits, into sorted files.

    Args:
        ref: The table.
        group_size: Bytes of the files that one task rewrites.
    """
    IcebergTable(ref).compact(max_commits=3, group_size=group_size, sort_by="id")


def compute_statistics(ref: TableRef) -> None:
    IcebergTable(ref).compute_statistics()


def delete_old_rows(ref: TableRef, before: datetime) -> None:
    aging.delete_old_rows(ref, "at", before, None)


def erase(ref: TableRef, id: str) -> None:
    """Erase the rows with this id, and delete one file after the other."""
    storage_files._THREADS = 1
    IcebergTable(ref).erase([{"id": id}])


def rewrite_deletes(ref: TableRef) -> None:
    IcebergTable(ref).rewrite_position_deletes(convert_equality=True)


def rewrite_manifests(ref: TableRef) -> None:
    IcebergTable(ref).rewrite_manifests()


def expire(ref: TableRef) -> None:
    """Expire all snapshots but the last of each branch."""
    SnapshotManager(ref).expire_snapshots("0s")


def expire_one_by_one(ref: TableRef) -> None:
    """Expire the same snapshots, and delete one file after the other, so that a test knows which are left."""
    storage_files._THREADS = 1
    expire(ref)
