"""Rewrites manifests: regroups the entries of many manifests by partition, so that queries read few of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import chain, groupby, pairwise
from typing import Any

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestEntry, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import Record

from volley.errors import ConfigError
from volley.iceberg.commit.loop import Stage, Staged, commit_to, new_snapshot_id
from volley.iceberg.commit.marks import maintenance_summary
from volley.iceberg.layout.partitions import partition_order
from volley.iceberg.layout.specs import fault_of, schema_with_sources
from volley.iceberg.maintain.options import ManifestOptions
from volley.iceberg.maintain.rewrites import within
from volley.iceberg.maintain.told import told
from volley.iceberg.maintain.values import ManifestRewrite
from volley.iceberg.pyiceberg_private.access import delete_manifests
from volley.iceberg.pyiceberg_private.entries import live_entries
from volley.iceberg.pyiceberg_private.producer import MANIFEST_ENTRIES
from volley.iceberg.pyiceberg_private.snapshots import NewManifest, replace_manifests
from volley.iceberg.read.entries import entries_of, manifests_of
from volley.iceberg.read.history import check_branch, head_of, snapshot_of_ref
from volley.iceberg.storage.errors import storage_errors
from volley.iceberg.table import TableRef
from volley.task.failpoints import reach

__all__ = ["drop_removed_entries", "rewrite_manifests"]

_THREADS = 16
# What is divided into manifests of `MANIFEST_ENTRIES` has between 3/4 and 3/2 as many in each: none is rewritten again.
_FEWEST, _MOST = MANIFEST_ENTRIES * 3 // 4, MANIFEST_ENTRIES * 3 // 2

_Order = tuple[Any, ...]


@told("manifests", lambda done: bool(done.snapshot_id))
def rewrite_manifests(table: TableRef, options: ManifestOptions) -> ManifestRewrite:
    """Regroup the entries of manifests by partition, in one commit; no commit if they are in order."""
    start = time.monotonic()
    if options.dry_run:
        return _plan(table.load(), table, options.max_bytes).result(table, start, None, None, dry_run=True)
    rewrite = _ManifestReplacement(table, options.max_bytes)
    landed = commit_to(table, rewrite).staged
    if landed is None:
        return rewrite.plan.result(table, start, None, rewrite.plan.size)
    reach("after-manifests", 0)
    return landed.plan.result(table, start, landed.snapshot_id, landed.size)


def drop_removed_entries(table: TableRef, chosen: Callable[[Table], Sequence[ManifestFile]]) -> int | None:
    """Write some manifests without their entries of removed files, in one commit; return its snapshot.

    Args:
        chosen: Returns the manifests of a table's branch; None = there is none, and nothing to commit.
    """
    landed = commit_to(table, _Removal(table, chosen)).staged
    return landed.snapshot_id if landed else None


@dataclass(frozen=True)
class _Group:
    """Manifests of one kind and spec whose entries are to be divided anew."""

    manifests: tuple[ManifestFile, ...]
    entries: int

    @property
    def size(self) -> int:
        """The size of the manifests in bytes."""
        return sum(manifest.manifest_length for manifest in self.manifests)

    @property
    def count(self) -> int:
        """The number of manifests that it becomes."""
        return max(1, round(self.entries / MANIFEST_ENTRIES))

    def divided(self, io: FileIO) -> Iterator[Sequence[ManifestEntry]]:
        """Yield the entries of each new manifest."""
        with ThreadPoolExecutor(_THREADS) as pool:
            read = chain.from_iterable(pool.map(partial(live_entries, io), self.manifests))
            ordered = sorted(read, key=lambda entry: partition_order(entry.data_file.partition))
        borders = (len(ordered) * number // self.count for number in range(self.count + 1))
        return (ordered[start:end] for start, end in pairwise(borders))


@dataclass(frozen=True)
class _ManifestPlan:
    """What is to be done with the manifests of a snapshot.

    Args:
        empty: Those without live entries, which are dropped.
        left: The number of manifests that a limit left for the next run.
    """

    manifests: Sequence[ManifestFile] = ()
    groups: Sequence[_Group] = ()
    empty: Sequence[ManifestFile] = ()
    left: int = 0

    @property
    def size(self) -> int:
        return sum(manifest.manifest_length for manifest in self.manifests)

    @property
    def is_due(self) -> bool:
        """True if it is worth a commit; empty manifests alone are not."""
        return bool(self.groups)

    @property
    def kept(self) -> list[ManifestFile]:
        if not self.is_due:
            return list(self.manifests)
        gone = {manifest.manifest_path for manifest in chain(self.empty, *(group.manifests for group in self.groups))}
        return [manifest for manifest in self.manifests if manifest.manifest_path not in gone]

    def result(
        self, table: TableRef, start: float, snapshot_id: int | None, size: int | None, dry_run: bool = False
    ) -> ManifestRewrite:
        kept = len(self.kept)
        return ManifestRewrite(
            table=table.name,
            snapshot_id=snapshot_id,
            manifests_before=len(self.manifests),
            manifests_after=kept + sum(group.count for group in self.groups),
            replaced=len(self.manifests) - kept,
            bytes_before=self.size,
            bytes_after=size,
            entries=sum(group.entries for group in self.groups),
            left=self.left,
            seconds=time.monotonic() - start,
            dry_run=dry_run,
        )

    def summary(self) -> dict[str, str]:
        """Return the texts that Iceberg's own action writes."""
        kept = len(self.kept)
        return {
            "manifests-created": str(sum(group.count for group in self.groups)),
            "manifests-kept": str(kept),
            "manifests-replaced": str(len(self.manifests) - kept),
            "entries-processed": str(sum(group.entries for group in self.groups)),
        }


@dataclass(frozen=True)
class _StagedManifests(Staged):
    """An attempt to replace manifests: its snapshot, what it replaces, and the new manifests."""

    snapshot_id: int
    plan: _ManifestPlan
    written: Sequence[ManifestFile]

    @property
    def size(self) -> int:
        """The size of all manifests afterwards."""
        return sum(manifest.manifest_length for manifest in (*self.written, *self.plan.kept))


class _ManifestReplacement(Stage[_StagedManifests]):
    """Rewrites manifests."""

    action = "rewriting manifests"

    def __init__(self, table: TableRef, max_bytes: int | None) -> None:
        self.plan = _ManifestPlan()
        self._table = table
        self._max_bytes = max_bytes

    def _planned(self, table: Table) -> _ManifestPlan:
        return _plan(table, self._table, self._max_bytes)

    def stage(self, table: Table) -> _StagedManifests | None:
        self.plan = plan = self._planned(table)
        if not plan.is_due:
            return None
        transaction, head = table.transaction(), head_of(table, self._table.branch)
        snapshot_id = new_snapshot_id()
        try:
            with storage_errors(table.location()):
                written = replace_manifests(
                    transaction,
                    kept=plan.kept,
                    rewritten=_rewritten(table, plan.groups),
                    snapshot_id=snapshot_id,
                    summary=plan.summary() | maintenance_summary("manifests", table.metadata, head),
                    branch=self._table.branch,
                )
        except BaseException:
            delete_manifests(transaction)
            raise
        reach("before-manifests", 0)
        return _StagedManifests(transaction, snapshot_id, plan, written)


@dataclass(frozen=True)
class _RemovalPlan(_ManifestPlan):
    """Manifests to write without their entries of removed files; those that have no others go."""

    @property
    def is_due(self) -> bool:
        return bool(self.groups or self.empty)


class _Removal(_ManifestReplacement):
    """Writes manifests without their entries of removed files."""

    def __init__(self, table: TableRef, chosen: Callable[[Table], Sequence[ManifestFile]]) -> None:
        super().__init__(table, None)
        self._chosen = chosen

    def _planned(self, table: Table) -> _ManifestPlan:
        manifests = manifests_of(table.io, snapshot_of_ref(table.metadata, self._table.branch, self._table.name))
        _check_allowed(table.metadata, manifests, self._table)
        ranges = [_range_of(table.io, manifest) for manifest in self._chosen(table)]
        groups = [_Group((span.manifest,), span.live) for span in ranges if span.live]
        return _RemovalPlan(manifests, groups, [span.manifest for span in ranges if not span.live])


def _rewritten(table: Table, groups: Sequence[_Group]) -> Iterator[NewManifest]:
    for group in groups:
        content, spec = group.manifests[0].content, table.specs()[group.manifests[0].partition_spec_id]
        schema = schema_with_sources(table.metadata, spec)
        assert schema is not None
        for entries in group.divided(table.io):
            yield NewManifest(content, schema, spec, entries)


def _plan(table: Table, ref: TableRef, max_bytes: int | None) -> _ManifestPlan:
    snapshot = snapshot_of_ref(table.metadata, ref.branch, ref.name)
    manifests = manifests_of(table.io, snapshot)
    _check_allowed(table.metadata, manifests, ref)
    with ThreadPoolExecutor(_THREADS) as pool:
        ranges = list(pool.map(partial(_range_of, table.io), manifests))
    used = sorted((span for span in ranges if span.live), key=lambda span: span.kind)
    by_kind = (list(ranges) for _, ranges in groupby(used, key=lambda span: span.kind))
    groups = [group for ranges in by_kind for group in _groups(ranges)]
    taken = groups[: within((group.size for group in groups), max_bytes)]
    left = sum(len(group.manifests) for group in groups[len(taken) :])
    return _ManifestPlan(manifests, taken, [span.manifest for span in ranges if not span.live], left)


@dataclass(frozen=True)
class _Range:
    """A manifest, and which partitions its live entries have."""

    manifest: ManifestFile
    live: int
    deleted: int
    first: _Order = ()
    last: _Order = ()

    @property
    def kind(self) -> tuple[int, int]:
        """The kind of its files and their spec: a manifest has one of each."""
        return self.manifest.content, self.manifest.partition_spec_id


def _range_of(io: FileIO, manifest: ManifestFile) -> _Range:
    entries = entries_of(io, manifest)
    partitions = {entry.partition for entry in entries if entry.is_live}
    live = sum(entry.is_live for entry in entries)
    keys = [partition_order(Record(*partition)) for partition in partitions]
    return _Range(manifest, live, len(entries) - live, min(keys, default=()), max(keys, default=()))


def _groups(ranges: Sequence[_Range]) -> Iterator[_Group]:
    """Yield what is to be rewritten of the manifests of one kind.

    A manifest of good size whose partitions no other one has stays where it is, and divides the rest: what is rewritten
    together lies between two such manifests, so that the new ones have partitions of their own too.
    """
    for in_order, clusters in groupby(_clusters(ranges), key=_is_in_order):
        rest = [] if in_order else [span for cluster in clusters for span in cluster]
        if len(rest) > 1 or (rest and rest[0].live + rest[0].deleted > _MOST):
            yield _Group(tuple(span.manifest for span in rest), sum(span.live for span in rest))


def _clusters(ranges: Sequence[_Range]) -> list[list[_Range]]:
    """Return manifests whose partitions overlap together; those that only share a first or last one don't."""
    clusters: list[list[_Range]] = []
    last: _Order = ()
    for span in sorted(ranges, key=lambda span: (span.first, span.last)):
        if clusters and span.first < last:
            clusters[-1].append(span)
            last = max(last, span.last)
        else:
            clusters.append([span])
            last = span.last
    return clusters


def _is_in_order(cluster: Sequence[_Range]) -> bool:
    return len(cluster) == 1 and cluster[0].live >= _FEWEST and cluster[0].live + cluster[0].deleted <= _MOST


def _check_allowed(metadata: TableMetadata, manifests: Sequence[ManifestFile], ref: TableRef) -> None:
    """Check that all manifests can be read, and written anew with all that they say."""
    refused = f"the manifests of table {ref.name} can't be rewritten"
    check_branch(metadata, ref.name, ref.branch)
    if encrypted := next((manifest for manifest in manifests if manifest.key_metadata is not None), None):
        raise ConfigError(
            f"{refused}: {encrypted.manifest_path} is encrypted", hint="rewrite them with the engine that wrote them"
        )
    for spec_id in {manifest.partition_spec_id for manifest in manifests}:
        if reason := _unknown(metadata, spec_id):
            raise ConfigError(f"{refused}: {reason}", hint="rewrite them with the engine that wrote them")


def _unknown(metadata: TableMetadata, spec_id: int) -> str | None:
    """Return what is not known of a partition spec; None if all is."""
    spec = metadata.specs().get(spec_id)
    if spec is None:
        return f"the table has no partition spec {spec_id}, which some of them have"
    return fault_of(metadata, spec)
