"""Changes of branches and tags, and empty snapshots: one commit each, without data files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta

from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRef, SnapshotRefType
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import (
    RemoveSnapshotRefUpdate,
    SetSnapshotRefUpdate,
    TableUpdate,
)

from volley.errors import CommitConflictError, ConfigError, near
from volley.iceberg.commit.hold import released
from volley.iceberg.commit.loop import Stage, Staged, commit_to, new_snapshot_id, unchanged, write_manifests
from volley.iceberg.commit.tombstones import forgetting, published
from volley.iceberg.maintain.values import Ref, SnapshotInfo, SnapshotList
from volley.iceberg.pyiceberg_private.access import stage
from volley.iceberg.read.history import ancestors_of, check_branch, moment_of, snapshot_of, snapshot_of_ref
from volley.iceberg.storage.errors import storage_errors
from volley.iceberg.table import TableRef
from volley.iceberg.write.written import SnapshotFiles

__all__ = [
    "add_empty_snapshot",
    "create_ref",
    "drop_ref",
    "fast_forward",
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
    # Others write a far larger number for "for ever" than a span of Python has.
    return None if millis is None else timedelta(milliseconds=min(millis, timedelta.max // timedelta(milliseconds=1)))


def _millis(span: timedelta | None) -> int | None:
    return None if span is None else span // timedelta(milliseconds=1)


def create_ref(table: TableRef, ref: Callable[[TableMetadata], Ref]) -> Ref:
    """Create a branch or a tag."""
    table.require("branches", f"table {table.name} can't have another branch or a tag")
    created = commit_to(table, _RefCreation(table.name, ref)).staged
    assert created is not None
    return created.ref


@dataclass(frozen=True)
class _StagedRef(Staged):
    ref: Ref


@dataclass(frozen=True)
class _RefCreation(Stage[_StagedRef]):
    action = "creating a branch or tag"

    name: str
    ref: Callable[[TableMetadata], Ref]

    def stage(self, table: Table) -> _StagedRef:
        new = self.ref(table.metadata)
        if existing := table.metadata.refs.get(new.name):
            raise ConfigError(
                f"table {self.name} has a {existing.snapshot_ref_type} {new.name!r} already, at snapshot "
                f"{existing.snapshot_id}",
                hint="choose another name, or drop it first",
            )
        return _StagedRef(_transaction(table, _set(new)), new, requirements=[unchanged(new.name, None)])

    def landed(self, table: Table, staged: _StagedRef) -> bool:
        ref = table.metadata.refs.get(staged.ref.name)
        return ref is not None and _value(staged.ref.name, ref) == staged.ref


def drop_ref(table: TableRef, name: str, is_branch: bool) -> None:
    """Drop a branch or a tag; its snapshots stay until they expire."""
    commit_to(table, _RefDrop(table.name, name, is_branch))


class _RefDrop(Stage[Staged]):
    def __init__(self, table: str, name: str, is_branch: bool) -> None:
        self._table = table
        self._name = name
        self._is_branch = is_branch
        self._what = "branch" if is_branch else "tag"
        self.action = f"dropping {self._what} {name!r}"

    def stage(self, table: Table) -> Staged:
        name, metadata = self._name, table.metadata
        known = [ref.name for ref in ref_values(metadata, self._is_branch) if ref.name != MAIN_BRANCH]
        if name not in known:
            raise ConfigError(
                f"table {self._table} has no {self._what} {name!r} that can be dropped", hint=near(name, known)
            )
        removal = RemoveSnapshotRefUpdate.model_validate({"ref-name": name})
        branches = released(metadata, [name])
        same = [unchanged(update.ref_name, update.snapshot_id) for update in branches]
        requirements = [unchanged(name, metadata.refs[name].snapshot_id), *same]
        tombstones = forgetting(metadata, name) if self._is_branch else []
        return Staged(_transaction(table, removal, *tombstones, *branches), requirements=requirements)

    def landed(self, table: Table, staged: Staged) -> bool:
        return self._name not in table.metadata.refs


def move_branch(
    table: TableRef, action: str, target: Callable[[TableMetadata], Snapshot], source: str | None = None
) -> SnapshotInfo:
    """Move the table's branch to another snapshot, and return that; the branch's settings stay.

    Args:
        source: The branch that has the snapshot, whose tombstones the table's branch takes, too; None = it keeps its.
    """
    after = commit_to(table, _BranchMove(table, action, target, source)).table.metadata
    return snapshot_info(snapshot_of_ref(after, table.branch, table.name), after)


class _BranchMove(Stage[_StagedRef]):
    def __init__(
        self, ref: TableRef, action: str, target: Callable[[TableMetadata], Snapshot], source: str | None
    ) -> None:
        self._ref = ref
        self._source = source
        self._target = target
        self.action = action

    def stage(self, table: Table) -> _StagedRef | None:
        name = self._ref.branch
        check_branch(table.metadata, self._ref.name, name)
        snapshot_id = self._target(table.metadata).snapshot_id
        ref = table.metadata.refs.get(name)
        tombstones = published(table.metadata, self._source, name) if self._source else []
        if ref and ref.snapshot_id == snapshot_id and not tombstones:
            return None
        moved = replace(_value(name, ref) if ref else Ref(name, True, 0), snapshot_id=snapshot_id)
        same = unchanged(name, ref.snapshot_id if ref else None)
        others = (update.ref_name for update in tombstones)
        same_others = [unchanged(other, _snapshot_of(table.metadata, other)) for other in others]
        return _StagedRef(_transaction(table, _set(moved), *tombstones), moved, requirements=[same, *same_others])

    def landed(self, table: Table, staged: _StagedRef) -> bool:
        ref = table.metadata.refs.get(staged.ref.name)
        return ref is not None and ref.snapshot_id == staged.ref.snapshot_id


def _snapshot_of(metadata: TableMetadata, name: str) -> int | None:
    return metadata.refs[name].snapshot_id if name in metadata.refs else None


def fast_forward(metadata: TableMetadata, ref: TableRef) -> Snapshot:
    """Return the branch's last snapshot; raise CommitConflictError unless main's is one of its ancestors."""
    main, branch = metadata.current_snapshot(), metadata.snapshot_by_name(ref.branch)
    if branch is None or ref.branch == "main":
        raise ConfigError(
            f"branch {ref.branch!r} of table {ref.name} can't be published",
            hint=f"name a branch of the table that is not main: {', '.join(sorted(metadata.refs)) or 'it has none'}",
        )
    if main and main not in ancestors_of(branch, metadata):
        raise CommitConflictError(
            f"branch {ref.branch!r} of table {ref.name} was not published: main is at snapshot "
            f"{main.snapshot_id}, which is not before the branch's {branch.snapshot_id}",
            hint="write the branch anew from main: remove it and start the job with a new checkpoint",
        )
    return branch


def was_current(metadata: TableMetadata, branch: str, snapshot: Snapshot) -> bool:
    """Return True if a snapshot is, or once was, the last one of a branch: an ancestor, or in main's log."""
    head = metadata.snapshot_by_name(branch)
    logged = (entry.snapshot_id for entry in metadata.snapshot_log if branch == MAIN_BRANCH)
    ancestors = (ancestor.snapshot_id for ancestor in ancestors_of(head, metadata))
    return snapshot.snapshot_id in {*logged, *ancestors}


def add_empty_snapshot(table: TableRef, properties: Mapping[str, str], tag: str | None) -> SnapshotInfo:
    """Commit a snapshot without rows to the table's branch, and tag it if a name is given."""
    if tag is not None:
        table.require("branches", f"table {table.name} can't have tag {tag!r}")
    stage = _EmptySnapshot(table, properties, tag)
    after = commit_to(table, stage).table.metadata
    return snapshot_info(snapshot_of(after, stage.snapshot_id, table.name), after)


class _EmptySnapshot(Stage[Staged]):
    action = "creating a snapshot"

    def __init__(self, ref: TableRef, properties: Mapping[str, str], tag: str | None) -> None:
        self.snapshot_id = new_snapshot_id()
        self._ref = ref
        self._properties = properties
        self._tag = tag

    def stage(self, table: Table) -> Staged:
        ref, tag, metadata = self._ref, self._tag, table.metadata
        if tag is not None and tag in metadata.refs:
            raise ConfigError(f"table {ref.name} has a branch or tag {tag!r} already", hint="choose another name")
        check_branch(metadata, ref.name, ref.branch)
        if ref.branch != MAIN_BRANCH:
            # A branch starts at main's last snapshot.
            snapshot_of_ref(metadata, MAIN_BRANCH, ref.name)
        transaction = table.transaction()
        with storage_errors(table.location()):
            write_manifests(transaction, SnapshotFiles(), self.snapshot_id, dict(self._properties), ref.branch)
        if tag is None:
            return Staged(transaction)
        stage(transaction, _set(Ref(tag, False, self.snapshot_id)))
        # pyiceberg refuses the requirement for a table without snapshots, which has no tags either.
        return Staged(transaction, requirements=[unchanged(tag, None)] if metadata.snapshots else [])


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


def _transaction(table: Table, *updates: TableUpdate) -> Transaction:
    transaction = table.transaction()
    stage(transaction, *updates)
    return transaction
