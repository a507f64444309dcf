"""Rewriting of manifests: what is refused, and what other writers and faults of the catalog make of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.exceptions import ForbiddenError
from pyiceberg.manifest import ManifestContent
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform, UnknownTransform

from tests.iceberg.events import Events
from tests.iceberg.snapshots import AT_ONCE, Commit, disturb, lost, never_sent
from volley import (
    CatalogAuthError,
    CommitConflictError,
    CommitStateUnknownError,
    ConfigError,
    SnapshotNotFoundError,
)
from volley.iceberg import (
    IcebergTable,
    SnapshotManager,
    TableRef,
    orphan_files,
)
from volley.iceberg.catalogs.answers import ATTEMPTS


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Any]:
    made: list[Events] = []

    def make(*args: Any, **kwargs: Any) -> Events:
        made.append(Events(tmp_path, *args, **kwargs))
        return made[-1]

    yield make
    for events in made:
        events.catalog.close()


Make = Any


# Refusals


def changed(events: Events, monkeypatch: pytest.MonkeyPatch, **changes: Any) -> None:
    """The table's metadata, as if another engine had changed it."""
    metadata = events.table().metadata.model_copy(update=changes)
    opened = TableRef.load

    def load(ref: TableRef) -> Table:
        table = opened(ref)
        table.metadata = metadata
        return table

    monkeypatch.setattr(TableRef, "load", load)


def test_what_can_not_be_written_is_refused(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    events = make()
    for number in range(2):
        events.append((number, number))
    unknown = PartitionSpec(PartitionField(2, 1000, UnknownTransform("zorder[2]"), "key"))
    gone = PartitionSpec(PartitionField(99, 1000, IdentityTransform(), "key"))
    cases: dict[str, dict[str, Any]] = {
        r"has the transform zorder\[2\], which is not known here": {"partition_specs": [unknown]},
        "no schema of the table has all columns of partition spec 0": {"partition_specs": [gone]},
        "has no partition spec 0": {"partition_specs": []},
    }
    for message, changes in cases.items():
        with monkeypatch.context() as patch:
            changed(events, patch, **changes)
            with pytest.raises(ConfigError, match=message) as refused:
                events.events.rewrite_manifests(dry_run=True)
            assert refused.value.hint


def test_an_encrypted_manifest_is_refused(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    events = make()
    events.append((1, 1))
    (manifest,) = events.manifests()
    manifest._data[14] = b"key"
    monkeypatch.setattr("volley.iceberg.maintain.manifests.manifests_of", lambda *_: [manifest])
    with pytest.raises(ConfigError, match="is encrypted"):
        events.events.rewrite_manifests()


def test_a_table_or_branch_without_snapshots_is_refused(make: Make) -> None:
    events = make()
    with pytest.raises(SnapshotNotFoundError, match="no snapshot yet"):
        events.events.rewrite_manifests()
    with pytest.raises(SnapshotNotFoundError, match="no branch or tag 'raw'"):
        IcebergTable(events.ref.with_branch("raw")).rewrite_manifests()
    events.append((1, 1))
    SnapshotManager(events.ref).create_tag("audited")
    with pytest.raises(ConfigError, match=r"'audited' of table .* is a tag"):
        IcebergTable(events.ref.with_branch("audited")).rewrite_manifests()


# Other writers, faults


def test_rows_that_others_append_meanwhile_are_kept(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    events = make()
    for number in range(3):
        events.append((number, number))

    def other_first(commit: Commit) -> Any:
        events.append((9, 9))
        return commit()

    calls = disturb(monkeypatch, other_first)
    assert events.events.rewrite_manifests().entries == 4
    assert calls == ["commit"] * 2
    assert events.rows() == events.duckdb_rows() == [(0, 0), (1, 1), (2, 2), (9, 9)]
    assert [path for path in orphan_files(events.ref, AT_ONCE) if path.endswith(".avro")] == []


def test_an_answer_that_is_lost(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    events = make()
    for number in range(3):
        events.append((number, number))
    calls = disturb(monkeypatch, lost)
    done = events.events.rewrite_manifests()
    assert calls == ["commit"]
    assert (done.manifests_after, done.snapshot_id) == (1, events.snapshot().snapshot_id)
    assert events.rows() == events.duckdb_rows() == [(0, 0), (1, 1), (2, 2)]
    assert orphan_files(events.ref, AT_ONCE) == []


def test_an_outcome_that_is_not_known(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    events = make()
    for number in range(3):
        events.append((number, number))
    before, files = events.snapshot(), events.avro_files()
    disturb(monkeypatch, *[never_sent] * ATTEMPTS)
    with pytest.raises(CommitStateUnknownError, match="rewriting manifests may or may not have changed table"):
        events.events.rewrite_manifests()
    assert events.snapshot() == before
    assert events.avro_files() >= files


def test_conflicts_in_every_attempt_leave_no_manifest(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    events = make()
    events.append((0, 0))
    events.append((1, 1))
    left: list[set[str]] = []

    def other_first(commit: Commit) -> Any:
        before = events.avro_files()
        events.append((2, 2))
        left.append(events.avro_files() - before)
        return commit()

    files = events.avro_files()
    disturb(monkeypatch, *[other_first] * ATTEMPTS)
    with pytest.raises(CommitConflictError, match="rewriting manifests failed"):
        events.events.rewrite_manifests()
    assert events.avro_files() == files.union(*left)
    assert len(events.manifests()) == 2 + ATTEMPTS


def test_a_refusal_leaves_no_manifest(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    events = make()
    events.append((0, 0))
    events.append((1, 1))
    files = events.avro_files()

    def refused(commit: Commit) -> Any:
        raise ForbiddenError("read only")

    disturb(monkeypatch, *[refused] * ATTEMPTS)
    with pytest.raises(CatalogAuthError):
        events.events.rewrite_manifests()
    assert events.avro_files() == files
    assert all(each.content == ManifestContent.DATA for each in events.manifests())
