"""Looks at a table as its readers feel it: sizes of files, deletes, manifests, snapshots; and what would mend it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from statistics import median
from typing import TypeVar

from pyiceberg.table import Table

from volley.errors import ConfigError, SnapshotNotFoundError
from volley.iceberg.layout.partitions import exact
from volley.iceberg.maintain.compaction import compact
from volley.iceberg.maintain.deletes import rewrite_deletes
from volley.iceberg.maintain.manifests import rewrite_manifests
from volley.iceberg.maintain.options import CompactionOptions, DeleteOptions, ManifestOptions
from volley.iceberg.maintain.orphans import orphan_files
from volley.iceberg.maintain.values import Compaction, OrphanFiles
from volley.iceberg.maintain.verdict import HealthFinding, TableHealth
from volley.iceberg.read.entries import Content, FileEntry, entries_of, manifests_of
from volley.iceberg.read.history import check_branch
from volley.iceberg.table import TableRef

__all__ = ["table_health"]

_MIB = 1 << 20
_SIZES = {"below 1 MiB": _MIB, "1 to 16 MiB": 16 * _MIB, "16 to 64 MiB": 64 * _MIB, "64 to 256 MiB": 256 * _MIB}
_LARGER = "256 MiB and more"
# What saves fewer files, or has fewer snapshots or partitions, is not worth a word.
_FEW, _MANY_SNAPSHOTS, _MANY_PARTITIONS = 10, 100, 100
T = TypeVar("T")


def table_health(ref: TableRef, orphans: bool = False) -> TableHealth:
    """Look at the branch of a table; see `IcebergTable.health`."""
    table = ref.load()
    check_branch(table.metadata, ref.name, ref.branch)
    health = _counted(ref, table)
    compacted = _dry_run(lambda: compact(ref, CompactionOptions(dry_run=True)))
    health = replace(health, small_files=compacted.files_before if compacted else 0)
    findings = [*_by_dry_runs(ref, compacted), *_of_snapshots(health), *_of_partitions(health)]
    if orphans:
        files = orphan_files(ref)
        health = replace(health, orphan_files=len(files), orphan_bytes=sum(files.sizes))
        findings += _of_orphans(files)
    return replace(health, findings=tuple(findings))


def _counted(ref: TableRef, table: Table) -> TableHealth:
    """Return what metadata and manifests tell."""
    head = table.metadata.snapshot_by_name(ref.branch)
    snapshots, now = table.metadata.snapshots, datetime.now(UTC).timestamp()
    ages = [now - snapshot.timestamp_ms / 1000 for snapshot in snapshots]
    manifests = manifests_of(table.io, head) if head else []
    live = [entry for manifest in manifests for entry in entries_of(table.io, manifest) if entry.is_live]
    data = [entry for entry in live if entry.content == Content.DATA]
    deletes = [entry for entry in live if entry.content != Content.DATA]
    partitions = _bytes_of_partitions(data)
    return TableHealth(
        ref.name,
        ref.branch,
        snapshot_id=head.snapshot_id if head else None,
        rows=sum(entry.rows for entry in data),
        deleted_rows=sum(entry.rows for entry in deletes),
        data_files=len(data),
        data_bytes=sum(entry.size for entry in data),
        delete_files=len(deletes),
        delete_bytes=sum(entry.blob_size or entry.size for entry in deletes),
        manifests=len(manifests),
        metadata_bytes=sum(manifest.manifest_length for manifest in manifests),
        snapshots=len(snapshots),
        oldest_snapshot_seconds=max(ages, default=0.0),
        seconds_since_last_commit=min(ages, default=None),
        partitions=len(partitions),
        skew=max(partitions) / max(1, median(partitions)) if partitions else 1.0,
        sizes=_by_size(data),
    )


def _bytes_of_partitions(files: Iterable[FileEntry]) -> list[int]:
    sizes = Counter[Hashable]()
    for file in files:
        sizes[file.spec_id, tuple(map(exact, file.partition))] += file.size
    return list(sizes.values())


def _by_size(files: Iterable[FileEntry]) -> dict[str, int]:
    counts = dict.fromkeys([*_SIZES, _LARGER], 0)
    for file in files:
        counts[next((name for name, end in _SIZES.items() if file.size < end), _LARGER)] += 1
    return counts


def _by_dry_runs(ref: TableRef, compacted: Compaction | None) -> Iterator[HealthFinding]:
    """Yield what each action of maintenance would do, if that is much."""
    if compacted and compacted.files_before - compacted.files_after >= _FEW:
        what = f"{compacted.files_before:,} data files that are small or have many deleted rows would become about "
        yield HealthFinding(f"{what}{compacted.files_after:,}", "volley compact", "IcebergTable(ref).compact()")
    merged = _dry_run(lambda: rewrite_deletes(ref, DeleteOptions(dry_run=True)))
    if merged and merged.files_before - merged.files_after >= _FEW:
        what = f"{merged.files_before:,} files of deletes would become at most {merged.files_after:,}"
        yield HealthFinding(what, python="IcebergTable(ref).rewrite_position_deletes()")
    regrouped = _dry_run(lambda: rewrite_manifests(ref, ManifestOptions(dry_run=True)))
    if regrouped and regrouped.manifests_before - regrouped.manifests_after >= _FEW:
        what = f"{regrouped.manifests_before:,} manifests would become {regrouped.manifests_after:,}"
        yield HealthFinding(what, python="IcebergTable(ref).rewrite_manifests()")


def _dry_run(action: Callable[[], T]) -> T | None:
    """Return what an action would do; None if it can't be done to this table."""
    try:
        return action()
    except (ConfigError, SnapshotNotFoundError):
        return None


def _of_snapshots(health: TableHealth) -> Iterator[HealthFinding]:
    if health.snapshots > _MANY_SNAPSHOTS:
        days = health.oldest_snapshot_seconds / 86_400
        what = f"{health.snapshots:,} snapshots, the oldest of {days:,.0f} days, keep the files of their rows"
        yield HealthFinding(what, "volley expire --older-than 5d", "SnapshotManager(ref).expire_snapshots()")


def _of_partitions(health: TableHealth) -> Iterator[HealthFinding]:
    if health.partitions and health.data_bytes / health.partitions < _MIB and health.partitions > _MANY_PARTITIONS:
        what = f"{health.partitions:,} partitions of {health.data_bytes / health.partitions / 1024:,.0f} kB on average"
        yield HealthFinding(f"{what} are too many: partition by fewer values, such as days for hours")


def _of_orphans(files: OrphanFiles) -> Iterator[HealthFinding]:
    if files:
        what = f"{len(files):,} files ({sum(files.sizes) / _MIB:,.1f} MiB) belong to no snapshot"
        yield HealthFinding(what, "volley orphans --remove", "remove_orphan_files(ref)")
