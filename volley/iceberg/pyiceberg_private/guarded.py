"""Checks what catalogs of every kind load and commit: snapshots that are there, times that never go back, references.

Iceberg's Java library can't read a table whose log or last update goes back in time by more than a minute, so a commit
by a clock that is behind the table's takes the table's time.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property

from pyiceberg.catalog import Catalog
from pyiceberg.io import FileIO, InputFile, OutputFile
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.update import AddSnapshotUpdate, SetSnapshotRefUpdate, TableRequirement, TableUpdate

from volley.errors import CatalogError, CommitStateUnknownError, ConfigError

__all__ = ["GuardedCatalog", "check_snapshots", "in_order", "not_before"]


class GuardedCatalog(Catalog):
    """A catalog whose commits to a reference fail unless the table then has that reference.

    Nessie 0.99, for one, answers 200 to a commit to another branch than main, and commits it to main.
    """

    @cached_property
    def foreign(self) -> dict[str | None, str]:
        """Why tables can be read only, by the location of their metadata."""
        return {}

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        """Commit updates, dated not before the table's last one.

        Raises:
            ConfigError: If pyiceberg does not know a part of the table's metadata, which would be lost.
            CommitStateUnknownError: If the table lacks a reference that was set: what else has landed is not known.
        """
        if (reason := self.foreign.get(table.metadata_location)) is not None:
            raise ConfigError(
                f"table {'.'.join(table.name())} can be read, but not changed from here: {reason}",
                hint="change it by the engine that made it",
            )
        dated = not_before(table.metadata, updates)
        response = super().commit_table(table, requirements, dated)  # type: ignore[safe-super]
        _check_refs(".".join(table.name()), response.metadata, updates)
        return response

    @staticmethod
    def _delete_old_metadata(io: FileIO, base: TableMetadata, metadata: TableMetadata) -> None:
        """Delete the metadata files that a commit has dropped from the log; some servers have done it already."""
        Catalog._delete_old_metadata(_Deleting(io), base, metadata)


class _Deleting(FileIO):
    """Deletes files like another FileIO, without an error for those that are gone."""

    def __init__(self, io: FileIO) -> None:
        super().__init__(io.properties)
        self._io = io

    def new_input(self, location: str) -> InputFile:
        return self._io.new_input(location)

    def new_output(self, location: str) -> OutputFile:
        return self._io.new_output(location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        with suppress(FileNotFoundError):
            self._io.delete(location)


def check_snapshots(name: str, metadata: TableMetadata) -> None:
    """Raise CatalogError if the metadata lacks the snapshot of a reference: the table would seem to have no rows.

    Args:
        name: The table's dotted name.
        metadata: Its metadata.
    """
    ids = {snapshot.snapshot_id for snapshot in metadata.snapshots}
    current, main = metadata.current_snapshot_id, metadata.refs.get(MAIN_BRANCH)
    heads = {f"{ref.snapshot_ref_type} {name!r}": ref.snapshot_id for name, ref in metadata.refs.items()}
    heads |= {} if current is None else {"current-snapshot-id": current}
    for head, snapshot_id in heads.items():
        if snapshot_id not in ids:
            raise _damaged(name, f"{head} is snapshot {snapshot_id}, which is not among its {len(ids)} snapshots")
    if main is not None and main.snapshot_id != current:
        raise _damaged(name, f"branch 'main' is at snapshot {main.snapshot_id}, current-snapshot-id is {current}")


def _damaged(name: str, fault: str) -> CatalogError:
    return CatalogError(
        f"the metadata of table {name} is damaged: {fault}",
        hint="register an older metadata file of the table in the catalog, or restore this one from a backup",
    )


def not_before(metadata: TableMetadata, updates: Sequence[TableUpdate]) -> tuple[TableUpdate, ...]:
    """Return the updates with snapshots that are not older than what the metadata has."""
    least = _last_time(metadata) if any(isinstance(update, AddSnapshotUpdate) for update in updates) else 0
    return tuple(_dated(update, least) if isinstance(update, AddSnapshotUpdate) else update for update in updates)


def _dated(update: AddSnapshotUpdate, least: int) -> AddSnapshotUpdate:
    snapshot = update.snapshot
    if snapshot.timestamp_ms >= least:
        return update
    return update.model_copy(update={"snapshot": snapshot.model_copy(update={"timestamp_ms": least})})


def _last_time(metadata: TableMetadata) -> int:
    logged = [entry.timestamp_ms for entry in metadata.snapshot_log[-1:]]
    logged += [entry.timestamp_ms for entry in metadata.metadata_log[-1:]]
    return max(metadata.last_updated_ms, *logged, *(snapshot.timestamp_ms for snapshot in metadata.snapshots), 0)


def in_order(metadata: TableMetadata, before: TableMetadata) -> TableMetadata:
    """Return new metadata whose logs and last update are not before those of the metadata that it replaces."""
    if metadata.metadata_log[-1:] == before.metadata_log[-1:]:
        return metadata  # nothing is changed
    least = _last_time(before)
    last = max(metadata.last_updated_ms, least)
    *log, replaced = metadata.metadata_log
    replaced_at = max(replaced.timestamp_ms, *(entry.timestamp_ms for entry in log[-1:]), 0)
    changed = {
        "last_updated_ms": last,
        "metadata_log": [*log, replaced.model_copy(update={"timestamp_ms": replaced_at})],
        "snapshot_log": metadata.snapshot_log,
    }
    if metadata.snapshot_log and metadata.snapshot_log[-1].timestamp_ms < least:
        known = iter(before.snapshot_log)
        # The new log has what is left of the old one, then new entries.
        changed["snapshot_log"] = [
            entry if entry in known else entry.model_copy(update={"timestamp_ms": max(entry.timestamp_ms, least)})
            for entry in metadata.snapshot_log
        ]
    return metadata.model_copy(update=changed)


def _check_refs(name: str, metadata: TableMetadata, updates: Sequence[TableUpdate]) -> None:
    # Of several updates of a reference the last one counts.
    wanted = {update.ref_name: update for update in updates if isinstance(update, SetSnapshotRefUpdate)}
    for ref, update in wanted.items():
        head = metadata.refs.get(ref)
        if head is not None and _has(metadata, head.snapshot_id, update):
            continue
        place = "has none of this name" if head is None else f"has it at snapshot {head.snapshot_id}"
        raise CommitStateUnknownError(
            f"the catalog reported a commit of snapshot {update.snapshot_id} to {update.type} {ref!r} of table {name} "
            f"as done, but the table {place}",
            hint="the catalog may not know branches and tags of tables, and have put the rows on main: look at the "
            "table before anything is written to it again; with Nessie, write to NessieCatalog(branch=…) instead",
        )


def _has(metadata: TableMetadata, head: int | None, update: SetSnapshotRefUpdate) -> bool:
    """Return True if a reference is at the snapshot, or a branch has gone on from it: the answer may be younger."""
    if update.type != SnapshotRefType.BRANCH or head == update.snapshot_id:
        return head == update.snapshot_id
    parents = {snapshot.snapshot_id: snapshot.parent_snapshot_id for snapshot in metadata.snapshots}
    while head is not None and head != update.snapshot_id:
        head = parents.get(head)
    return head is not None
