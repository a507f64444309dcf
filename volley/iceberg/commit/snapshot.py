"""Adds the changes of one epoch to a transaction, as one snapshot."""

from __future__ import annotations

from functools import partial

from pyiceberg.table import Transaction

from volley.iceberg.pyiceberg_private.snapshots import add_snapshot
from volley.iceberg.read.deletes import concerns
from volley.iceberg.write.written import SnapshotFiles

__all__ = ["write_manifests"]


def write_manifests(
    transaction: Transaction, changes: SnapshotFiles, snapshot_id: int, summary: dict[str, str], branch: str
) -> None:
    """Write the manifests of one snapshot and add it to the transaction; it is visible once that is committed.

    Args:
        transaction: The transaction.
        changes: The files that the snapshot adds and removes.
        snapshot_id: The snapshot's id.
        summary: Texts for the snapshot's summary.
        branch: The branch to write to.
    """
    add_snapshot(
        transaction,
        added=[file.data_file for file in changes.added],
        deletes=[file.data_file for file in changes.deletes],
        removed=changes.removed,
        snapshot_id=snapshot_id,
        summary=summary,
        branch=branch,
        concerned=partial(concerns, paths={*(file.file_path for file in changes.removed), *changes.removed_deletes}),
        removed_deletes=changes.removed_deletes,
    )
