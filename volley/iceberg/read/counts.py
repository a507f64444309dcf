"""Counts what a snapshot has by its manifests: totals in a summary are its writer's word, and DuckDB's never fall."""

from __future__ import annotations

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestContent, ManifestFile
from pyiceberg.table.snapshots import Snapshot

from volley.iceberg.read.entries import entries_of, manifests_of

__all__ = ["added_rows_in", "deleted_rows_in", "rows_in"]


def rows_in(io: FileIO, snapshot: Snapshot | None) -> int:
    """Return the number of rows in a snapshot's data files, also of those that deletes have deleted.

    Raises:
        StorageError: If a manifest can't be read.
    """
    return sum(_rows(io, manifest) for manifest in _manifests(io, snapshot, ManifestContent.DATA))


def deleted_rows_in(io: FileIO, snapshot: Snapshot | None) -> int:
    """Return about how many rows a snapshot's position deletes delete. Raises as `rows_in` does.

    A manifest does not tell position deletes from equality deletes, and a total may be too high: the lesser one counts.
    """
    manifests = _manifests(io, snapshot, ManifestContent.DELETES)
    most, said = sum(_rows(io, manifest) for manifest in manifests), _number(snapshot, "total-position-deletes")
    return most if said is None else min(said, most)


def added_rows_in(io: FileIO, snapshot: Snapshot) -> int:
    """Return the number of rows in the data files that a snapshot has added. Raises as `rows_in` does.

    Unlike totals, a writer's count of them needs no other writer's: no file is read where it is given.
    """
    said = _number(snapshot, "added-records")
    if said is not None:
        return said
    manifests = _manifests(io, snapshot, ManifestContent.DATA)
    own = (manifest for manifest in manifests if manifest.added_snapshot_id == snapshot.snapshot_id)
    return sum(_added(io, manifest, snapshot) for manifest in own)


def _number(snapshot: Snapshot | None, name: str) -> int | None:
    text = snapshot.summary.get(name) if snapshot and snapshot.summary else None
    return int(text) if text and text.isdecimal() else None


def _manifests(io: FileIO, snapshot: Snapshot | None, content: ManifestContent) -> list[ManifestFile]:
    manifests = manifests_of(io, snapshot) if snapshot is not None else []
    return [manifest for manifest in manifests if manifest.content == content]


# Format version 1 may leave out the counts of a manifest: its entries are read then.


def _rows(io: FileIO, manifest: ManifestFile) -> int:
    added, existing = manifest.added_rows_count, manifest.existing_rows_count
    if added is not None and existing is not None:
        return added + existing
    return sum(entry.rows for entry in entries_of(io, manifest) if entry.is_live)


def _added(io: FileIO, manifest: ManifestFile, snapshot: Snapshot) -> int:
    if manifest.added_rows_count is not None:
        return manifest.added_rows_count
    own = (entry for entry in entries_of(io, manifest) if entry.snapshot_id == snapshot.snapshot_id)
    return sum(entry.rows for entry in own if entry.is_live)
