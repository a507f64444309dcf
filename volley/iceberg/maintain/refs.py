"""Changes of branches and tags, and empty snapshots: one commit each, without data files."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRef, SnapshotRefType
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import (
    RemoveSnapshotRefUpdate,
    SetSnapshotRefUpdate,
    TableUpdate,
)

from volley.errors import ConfigError, near
from volley.iceberg.commit.hold import released
from volley.iceberg.commit.metadata import MetadataChange, Staged, commit_change, unchanged
from volley.iceberg.maintain.values import Ref, SnapshotInfo, SnapshotList
from volley.iceberg.pyiceberg_private.access import stage
from volley.iceberg.pyiceberg_private.snapshots import add_snapshot
from volley.iceberg.read.heads import ancestors_of, check_branch
from volley.iceberg.read.lookup import moment_of, snapshot_of, snapshot_of_ref
from volley.iceberg.storage.errors import storage_errors
from volley.iceberg.table import TableRef

__all__ = [
    "add_empty_snapshot",
    "create_ref",
    "drop_ref",
    "listed",
    "move_branch",
    "ref_values",
    "snapshot_info",
    "was_current",
]


def snapshot_info(snapshot: Snapshot, metadata: TableMetadata) -> SnapshotInfo:
    """Return the value of a snapshot."""
    summary = snapshot.summary
    return SnapshotInfo(
        id=snapshot.snapshot_id,
        parent_id=snapshot.parent_snapshot_id,
        committed_at=moment_of(snapshot.timestamp_ms),
        operation=summary.operation.value if summary else None,
        summary=dict(summary.additional_properties) if summary else {},
        refs=tuple(sorted(name for name, ref in metadata.refs.items() if ref.snapshot_id == snapshot.snapshot_id)),
        sequence_number=snapshot.sequence_number or 0,
        schema_id=snapshot.schema_id,
        manifest_list=snapshot.manifest_list,
    )


def listed(metadata: TableMetadata) -> SnapshotList:
    """Return a table's snapshots in the order of their commits."""
    order = sorted(metadata.snapshots, key=lambda snapshot: (snapshot.sequence_number or 0, snapshot.timestamp_ms))
    return SnapshotList([snapshot_info(snapshot, metadata) for snapshot in order])


def ref_values(metadata: TableMetadata, is_branch: bool) -> tuple[Ref, ...]:
    """Return a table's branches, or its tags, by name."""
    refs = (_value(name, ref) for name, ref in sorted(metadata.refs.items()))
    return tuple(ref for ref in refs if ref.is_branch == is_branch)


def _value(name: str, ref: SnapshotRef) -> Ref:
    is_branch = ref.snapshot_ref_type == SnapshotRefType.BRANCH
    ages = (ref.max_snapshot_age_ms, ref.max_ref_age_ms)
    return Ref(name, is_branch, ref.snapshot_id, ref.min_snapshots_to_keep, *map(_span, ages))


def _span(millis: int | None) -> timedelta | None:
    return None if millis is None else timedelta(milliseconds=millis)


def _millis(span: timedelta | None) -> int | None:
    return None if span is None else span // timedelta(milliseconds=1)


def create_ref(table: TableRef, ref: Callable[[TableMetadata], Ref]) -> Ref:
    """Create a branch or a tag.

    Args:
        table: The table.
        ref: Returns the branch or tag for the table's current metadata.

    Raises:
        ConfigError: If the table has a branch or tag of this name already, its catalog has none, or `ref` raises it.
    """
    table.check_refs("another branch or a tag")
    created: list[Ref] = []

    def prepare(loaded: Table) -> Staged:
        new = ref(loaded.metadata)
        if existing := loaded.metadata.refs.get(new.name):
            raise ConfigError(
                f"table {table.name} has a {existing.snapshot_ref_type} {new.name!r} already, at snapshot "
                f"{existing.snapshot_id}",
                hint="choose another name, or drop it first",
            )
        created[:] = [new]
        return _staged(loaded, new.name, None, _set(new))

    def has_landed(loaded: Table) -> bool:
        ref = loaded.metadata.refs.get(created[0].name)
        return ref is not None and _value(created[0].name, ref) == created[0]

    commit_change(table, MetadataChange("creating a branch or tag", prepare, has_landed))
    return created[0]


def drop_ref(table: TableRef, name: str, is_branch: bool) -> None:
    """Drop a branch or a tag; its snapshots stay until they expire.

    Raises:
        ConfigError: If there is no such branch or tag, or it is main.
    """
    what = "branch" if is_branch else "tag"

    def prepare(loaded: Table) -> Staged:
        known = [ref.name for ref in ref_values(loaded.metadata, is_branch) if ref.name != MAIN_BRANCH]
        if name not in known:
            raise ConfigError(f"table {table.name} has no {what} {name!r} that can be dropped", hint=near(name, known))
        before = loaded.metadata.refs[name].snapshot_id
        removal = RemoveSnapshotRefUpdate.model_validate({"ref-name": name})
        branches = released(loaded.metadata, [name])
        staged = _staged(loaded, name, before, removal, *branches)
        same = [unchanged(update.ref_name, update.snapshot_id) for update in branches]
        return replace(staged, requirements=[*staged.requirements, *same])

    change = MetadataChange(f"dropping {what} {name!r}", prepare, lambda loaded: name not in loaded.metadata.refs)
    commit_change(table, change)


def move_branch(table: TableRef, action: str, target: Callable[[TableMetadata], Snapshot]) -> SnapshotInfo:
    """Move the table's branch to another snapshot, and return that; the branch's settings stay.

    Args:
        table: The table and its branch.
        action: The change, for messages.
        target: Returns the snapshot for the table's current metadata; each attempt calls it.

    Raises:
        ConfigError: If the branch is a tag, or `target` raises it.
    """
    name = table.branch
    moved: list[Snapshot] = []

    def prepare(loaded: Table) -> Staged | None:
        check_branch(loaded.metadata, table.name, name)
        moved[:] = [target(loaded.metadata)]
        ref = loaded.metadata.refs.get(name)
        if ref and ref.snapshot_id == moved[0].snapshot_id:
            return None
        settings = _value(name, ref) if ref else Ref(name, True, 0)
        update = _set(replace(settings, snapshot_id=moved[0].snapshot_id))
        return _staged(loaded, name, ref.snapshot_id if ref else None, update)

    def has_landed(loaded: Table) -> bool:
        ref = loaded.metadata.refs.get(name)
        return ref is not None and ref.snapshot_id == moved[0].snapshot_id

    after = commit_change(table, MetadataChange(action, prepare, has_landed)).metadata
    return snapshot_info(moved[0], after)


def was_current(metadata: TableMetadata, branch: str, snapshot: Snapshot) -> bool:
    """Return True if a snapshot is, or once was, the last one of a branch: an ancestor, or in main's log."""
    head = metadata.snapshot_by_name(branch)
    logged = (entry.snapshot_id for entry in metadata.snapshot_log if branch == MAIN_BRANCH)
    ancestors = (ancestor.snapshot_id for ancestor in ancestors_of(head, metadata))
    return snapshot.snapshot_id in {*logged, *ancestors}


def add_empty_snapshot(table: TableRef, properties: Mapping[str, str], tag: str | None) -> SnapshotInfo:
    """Commit a snapshot without rows to the table's branch, and tag it if a name is given."""
    if tag is not None:
        table.check_refs(f"tag {tag!r}")
    snapshot_id = uuid.uuid4().int >> 65

    def prepare(loaded: Table) -> Staged:
        if tag is not None and tag in loaded.metadata.refs:
            raise ConfigError(f"table {table.name} has a branch or tag {tag!r} already", hint="choose another name")
        check_branch(loaded.metadata, table.name, table.branch)
        if table.branch != MAIN_BRANCH:
            # A branch starts at main's last snapshot.
            snapshot_of_ref(loaded.metadata, MAIN_BRANCH, table.name)
        transaction = loaded.transaction()
        with storage_errors(loaded.location()):
            add_snapshot(
                transaction,
                added=(),
                deletes=(),
                removed=(),
                snapshot_id=snapshot_id,
                summary=dict(properties),
                branch=table.branch,
            )
        if tag is None:
            return Staged(transaction)
        stage(transaction, _set(Ref(tag, False, snapshot_id)))
        # pyiceberg refuses the requirement for a table without snapshots, which has no tags either.
        return Staged(transaction, [unchanged(tag, None)] if loaded.metadata.snapshots else [])

    def has_landed(loaded: Table) -> bool:
        return loaded.metadata.snapshot_by_id(snapshot_id) is not None

    after = commit_change(table, MetadataChange("creating a snapshot", prepare, has_landed)).metadata
    return snapshot_info(snapshot_of(after, snapshot_id, table.name), after)


def _set(ref: Ref) -> SetSnapshotRefUpdate:
    return SetSnapshotRefUpdate.model_validate(
        {
            "ref-name": ref.name,
            "type": SnapshotRefType.BRANCH if ref.is_branch else SnapshotRefType.TAG,
            "snapshot-id": ref.snapshot_id,
            "min-snapshots-to-keep": ref.min_snapshots,
            "max-snapshot-age-ms": _millis(ref.max_snapshot_age),
            "max-ref-age-ms": _millis(ref.max_age),
        }
    )


def _staged(table: Table, name: str, before: int | None, *updates: TableUpdate) -> Staged:
    """Return an attempt that fails if the branch or tag was changed meanwhile."""
    transaction = table.transaction()
    stage(transaction, *updates)
    return Staged(transaction, [unchanged(name, before)])
