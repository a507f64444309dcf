"""Erases rows from a table as if they had never been there: from its history, delete files, metadata and orphans."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial

from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Snapshot

from volley.errors import ConfigError, StorageError
from volley.iceberg.commit.hold import HOLD
from volley.iceberg.config import table_ref
from volley.iceberg.maintain.erasing import ErasedRows, due, erase_rows, live_rows
from volley.iceberg.maintain.erasure_values import Erasure
from volley.iceberg.maintain.expiry import Expired, expire, unread
from volley.iceberg.maintain.manifests import drop_removed_entries
from volley.iceberg.maintain.options import EraseOptions, Runner
from volley.iceberg.maintain.refs import drop_ref
from volley.iceberg.maintain.sought import SoughtKeys, SoughtLetters, SoughtRows, keys_of
from volley.iceberg.maintain.state_traces import StateTraces, check_folders
from volley.iceberg.maintain.told import told
from volley.iceberg.maintain.traces import Traces, read_metadata
from volley.iceberg.maintain.unneeded import check_own_files, find_orphans, unneeded_files
from volley.iceberg.maintain.values import Expiry
from volley.iceberg.pyiceberg_private.guarded import check_known
from volley.iceberg.read.entries import manifests_of
from volley.iceberg.read.history import ancestors_of, head_of
from volley.iceberg.storage.errors import storage_errors
from volley.iceberg.storage.files import (
    delete_files,
    deletion_error,
    files_of_table,
    is_there,
    name_of,
    remove_empty_folders,
)
from volley.iceberg.table import TableRef
from volley.task.failpoints import reach

__all__ = ["erase"]

_HELD = "a job has not read the changes since its snapshot: erase again once it has, or drop the tag if it never will"
_YOUNG = "it belongs to no snapshot, but a running job may still commit it: erase again with orphans_older_than"


@told("erasure", lambda done: bool(done.snapshots or done.expired or done.files_deleted))
def erase(ref: TableRef, options: EraseOptions) -> Erasure:
    """Erase the rows with some keys from a table, and from tables of dead letters."""
    table = ref.load()
    keys = keys_of(table, options.keys)
    letters = (_of_letters(table_ref(each), keys, options) for each in options.letters)
    erasures = [_Erasure.of(ref, table, keys, options), *letters]
    # Nothing changes in any table if one of them refuses.
    check_folders(options.checkpoints)
    for erasure in erasures:
        erasure.check()
    done = [erasure.planned() if options.dry_run else erasure.run() for erasure in erasures]
    if options.proof and not options.dry_run:
        done = [erasure.prove(result) for erasure, result in zip(erasures, done, strict=True)]
    return _with_states(replace(done[0], letters=tuple(done[1:])), keys, options)


def _with_states(erasure: Erasure, keys: SoughtKeys, options: EraseOptions) -> Erasure:
    """Read the checkpoints too; raise an error if a file of them has such a row, unless nothing was to be done."""
    if not options.checkpoints:
        return erasure
    traces = StateTraces(keys)
    reasons = [found for folder in options.checkpoints for found in traces.looked_through(folder)]
    guilty = [(path, reason) for path, reason in reasons if reason is not None]
    if guilty and not options.dry_run:
        raise StorageError(
            f"rows of table {erasure.table} are erased from it, but {len(guilty)} files of checkpoints have some, or "
            f"may have: {_shown(guilty)}",
            hint="do what stands behind each file, then erase again: the proof is made anew",
        )
    return replace(erasure, left=(*erasure.left, *guilty), files_read=erasure.files_read + len(reasons))


def _shown(guilty: Sequence[tuple[str, str]]) -> str:
    return "; ".join(f"{path}: {reason}" for path, reason in guilty[:10])


def _of_letters(ref: TableRef, keys: SoughtKeys, options: EraseOptions) -> _Erasure:
    table = ref.load()
    return _Erasure.of(ref, table, SoughtLetters.of(table, keys.texts), options)


@dataclass(frozen=True)
class _Erasure:
    """The erasure of rows from one table."""

    ref: TableRef
    table: Table
    sought: SoughtRows
    options: EraseOptions
    traces: Traces

    @classmethod
    def of(cls, ref: TableRef, table: Table, sought: SoughtRows, options: EraseOptions) -> _Erasure:
        return cls(ref, table, sought, options, Traces(table.metadata, table.io, sought, run=options.run))

    def check(self) -> None:
        """Raise an error if the rows can't be erased, before anything is changed: all files are looked through."""
        check_known(self.table)
        check_own_files(self.table, "rows", "erased")
        find_orphans(self.table, datetime.now(UTC))
        if (tags := self._tags()) and not self.options.drop_tags:
            raise ConfigError(
                f"rows of table {self.ref.name} can't be erased: snapshots with them have the tags {', '.join(tags)}",
                hint="drop_tags=True drops these tags; nothing was changed",
            )

    def _tags(self) -> list[str]:
        """Return the tags of snapshots with the rows, without those by which jobs hold what they have not read."""
        metadata = self.table.metadata
        tagged = {
            name: metadata.snapshot_by_id(ref.snapshot_id)
            for name, ref in sorted(metadata.refs.items())
            if ref.snapshot_ref_type == SnapshotRefType.TAG and not name.startswith(HOLD)
        }
        dirty = {snapshot.snapshot_id for snapshot in self._dirty(metadata)}
        return [name for name, snapshot in tagged.items() if snapshot and snapshot.snapshot_id in dirty]

    def _dirty(self, metadata: TableMetadata) -> list[Snapshot]:
        return [snapshot for snapshot in metadata.snapshots if self.traces.in_snapshot(snapshot)]

    def planned(self) -> Erasure:
        """Return what `run` would do."""
        metadata = self.table.metadata
        done = [self._planned_of(branch) for branch in _branches(metadata)]
        expired = [each.snapshot_id for each in self._dirty(metadata) if each.snapshot_id not in _held(metadata)]
        planned = Erasure(self.ref.name, dry_run=True, tags=tuple(self._tags()))
        planned = _sum(planned, [*zip(_branches(metadata), done, strict=True)])
        return replace(planned, expired=tuple(expired), left=_holds(metadata, self.traces))

    def _planned_of(self, branch: str) -> ErasedRows:
        head = head_of(self.table, branch)
        files, deletes = due(self.table, head, self.traces) if head else ([], [])
        rows = sum(live_rows(planned, self.traces) for planned in files)
        return ErasedRows(rows, len(files), len({delete.path for delete in deletes}))

    def run(self) -> Erasure:
        """Erase the rows."""
        tags = self._tags()
        for tag in tags:
            drop_ref(self.ref, tag, is_branch=False)
        done, expiries = list[tuple[str, ErasedRows]](), list[Expiry]()
        while not expiries or expiries[-1].files:
            # Of files that are gone, manifests may have values that nothing disproves any more.
            self.traces.note_gone(expiries[-1].files if expiries else ())
            for branch in _branches(self.table.metadata):
                done.append((branch, _erase_from(self.ref.with_branch(branch), self.traces, self.options.run)))
            expiries.append(expire(self.ref, self._expired, self.options.outside))
        erasure = _sum(Erasure(self.ref.name, tags=tuple(tags)), done)
        reach("before-erasure-of-orphans", 0)
        after = self.ref.load()
        deleted, left = _delete_leftovers(after, self.traces, self.options)
        outside = [path for expiry in expiries for path in expiry.outside]
        left += [(path, "it is outside of the table's folders: outside=True deletes it") for path in outside]
        left += [failure for expiry in expiries for failure in expiry.failed]
        return replace(
            erasure,
            expired=tuple(snapshot.id for expiry in expiries for snapshot in expiry.snapshots),
            files_deleted=(*(path for expiry in expiries for path in expiry.files), *deleted),
            left=(*_holds(after.metadata, self.traces), *left),
        )

    def _expired(self, metadata: TableMetadata) -> Expired:
        kept = {ref.snapshot_id for ref in metadata.refs.values()} | _held(metadata)
        return Expired(tuple(each for each in self._dirty(metadata) if each.snapshot_id not in kept))

    def prove(self, erasure: Erasure) -> Erasure:
        """Read all files of the table; raise an error if one has such a row.

        Raises:
            StorageError: It names the files that have some.
        """
        table = self.ref.load()
        traces = Traces(table.metadata, table.io, self.sought, exact=True, run=self.options.run)
        guilty = dict(erasure.left)
        count = 0
        for path, has_rows in _looked_through(table, traces):
            count += 1
            if has_rows:
                guilty.setdefault(path, "it has such rows, or values of them")
        if guilty:
            raise StorageError(
                f"rows of table {self.ref.name} are erased from its branches, but {len(guilty)} files or tags still "
                f"have some: {_shown([*guilty.items()])}",
                hint="erase again once the reasons are gone; a job that still writes such rows has to stop first",
            )
        return replace(erasure, proven_at=table.metadata_location, files_read=count)


def _branches(metadata: TableMetadata) -> list[str]:
    names = (name for name, ref in metadata.refs.items() if ref.snapshot_ref_type == SnapshotRefType.BRANCH)
    return sorted(names, key=lambda name: (name != MAIN_BRANCH, name))


def _sum(erasure: Erasure, done: Sequence[tuple[str, ErasedRows]]) -> Erasure:
    rows = dict.fromkeys((branch for branch, _ in done), 0)
    for branch, erased in done:
        rows[branch] += erased.rows
    return replace(
        erasure,
        rows=rows,
        files_rewritten=sum(erased.files for _, erased in done),
        delete_files_removed=sum(erased.delete_files for _, erased in done),
        snapshots=tuple(erased.snapshot_id for _, erased in done if erased.snapshot_id is not None),
    )


def _erase_from(ref: TableRef, traces: Traces, run: Runner | None) -> ErasedRows:
    """Erase the rows from the last snapshot of a branch, and their values from its manifests."""
    erased = erase_rows(ref, traces, run)
    snapshot_id = drop_removed_entries(ref, partial(_manifests_with_values, ref.branch, traces))
    return erased if snapshot_id is None else replace(erased, snapshot_id=snapshot_id)


def _manifests_with_values(branch: str, traces: Traces, table: Table) -> list[ManifestFile]:
    head = head_of(table, branch)
    return traces.dirty_manifests(head) if head else []


def _held(metadata: TableMetadata) -> set[int]:
    """Return the snapshots that jobs hold: one, and all later ones of its branch."""
    held = {ref.snapshot_id for name, ref in metadata.refs.items() if name.startswith(HOLD)}
    chains = (
        list(ancestors_of(metadata.snapshot_by_id(metadata.refs[branch].snapshot_id), metadata))
        for branch in _branches(metadata)
    )
    return held.union(*(unread(chain, held) for chain in chains)) if held else held


def _holds(metadata: TableMetadata, traces: Traces) -> tuple[tuple[str, str], ...]:
    """Return the tags by which jobs hold snapshots with the rows."""
    held = _held(metadata)
    dirty = any(traces.in_snapshot(each) for each in metadata.snapshots if each.snapshot_id in held)
    return tuple((name, _HELD) for name in sorted(metadata.refs) if dirty and name.startswith(HOLD))


def _delete_leftovers(table: Table, traces: Traces, options: EraseOptions) -> tuple[list[str], list[tuple[str, str]]]:
    """Delete files with the rows that no snapshot has, and return them, and those that stay.

    Those of expired snapshots are none that a job may still commit: an earlier run may have left them.
    """
    orphans = find_orphans(table, datetime.now(UTC))
    dirty = [path for path, size in zip(orphans, orphans.sizes, strict=True) if traces.in_orphan(path, size)]
    young = list[str]()
    if dirty:
        known = {*find_orphans(table, _before(options)), *_expired_files(table)}
        names = {name_of(path) for path in known}
        young = [path for path in dirty if name_of(path) not in names]
    gone = [path for path in dirty if path not in set(young)]
    gone += [path for path, has_values in _old_metadata(table, traces) if has_values]
    with storage_errors(table.location(), "deleting files in"):
        files = files_of_table(table)
        _, failures = delete_files(files, gone)
        remove_empty_folders(files(table.location()), table.location())
    left = [(path, _YOUNG) for path in young]
    left += [(path, deletion_error(error, path)) for path, error in failures.items()]
    return [path for path in gone if path not in failures], left


def _before(options: EraseOptions) -> datetime:
    assert isinstance(options.orphans_older_than, timedelta)
    return datetime.now(UTC) - options.orphans_older_than


def _expired_files(table: Table) -> list[str]:
    """Return the files of snapshots that older metadata of the table have and it has not any more."""
    now = {snapshot.snapshot_id for snapshot in table.metadata.snapshots}
    before = {
        snapshot.snapshot_id: snapshot
        for path in _older_files(table)
        for snapshot in read_metadata(table.io, path).snapshots
        if snapshot.snapshot_id not in now
    }
    return unneeded_files(table.io, list(before.values()), table.metadata.snapshots)


def _older_files(table: Table) -> Iterator[str]:
    """Yield the older metadata files of a table that are still there."""
    for entry in table.metadata.metadata_log:
        with storage_errors(entry.metadata_file, "reading"):
            is_left = is_there(table.io, entry.metadata_file)
        if is_left:
            yield entry.metadata_file


def _old_metadata(table: Table, traces: Traces) -> Iterator[tuple[str, bool]]:
    """Yield the older metadata files, and whether a summary in them has values of the rows."""
    yield from ((path, traces.in_metadata(path)) for path in _older_files(table))


def _looked_through(table: Table, traces: Traces) -> Iterator[tuple[str, bool]]:
    """Yield all files of a table, and whether they have such rows or values of them."""
    manifests = dict[str, bool]()
    for snapshot in table.metadata.snapshots:
        summary = snapshot.summary.additional_properties if snapshot.summary else {}
        yield snapshot.manifest_list, traces.in_summary(summary)
        manifests |= traces.in_manifests(manifests_of(table.io, snapshot))
    yield from manifests.items()
    yield from traces.files.items()
    yield from _old_metadata(table, traces)
    orphans = find_orphans(table, datetime.now(UTC))
    yield from ((path, traces.in_orphan(path, size)) for path, size in zip(orphans, orphans.sizes, strict=True))
