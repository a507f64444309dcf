"""SnapshotManager: which snapshot was current when, branches and tags, rollbacks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.iceberg.snapshots import AT_ONCE, Commit, History, disturb, lost, never_sent
from volley import (
    CatalogUnreachableError,
    CommitConflictError,
    CommitStateUnknownError,
    ConfigError,
    SnapshotExpiredError,
    SnapshotNotFoundError,
    TableNotFoundError,
)
from volley.iceberg import IcebergStorage, IcebergTable, SnapshotManager, TableRef, publish_branch
from volley.iceberg.catalogs.answers import ATTEMPTS

MILLISECOND = timedelta(milliseconds=1)


@pytest.fixture
def history(tmp_path: Path) -> Iterator[History]:
    made = History(tmp_path)
    yield made
    made.close()


def test_snapshots_are_values_in_the_order_of_their_commits(history: History) -> None:
    ids = [history.append(1, 2), history.append(3), history.overwrite(9)]
    manager = history.manager
    found = manager.list_snapshots()
    assert [found[0].id, found[1].id, found[-1].id] == ids
    assert found[0].parent_id is None
    assert found[1].parent_id == ids[0]
    assert [snapshot.operation for snapshot in found] == ["append", "append", "delete", "append"]
    assert [(each.rows_added, each.rows_deleted, each.files_added, each.files_deleted) for each in found] == [
        (2, 0, 1, 0),
        (1, 0, 1, 0),
        (0, 3, 0, 2),
        (1, 0, 1, 0),
    ]
    assert [snapshot.total_rows for snapshot in found] == [2, 3, 0, 1]
    assert [snapshot.refs for snapshot in found] == [(), (), (), ("main",)]
    assert found[-1] == manager.current_snapshot() == manager.snapshot_by_id(ids[-1])
    assert found[0].committed_at < found[1].committed_at <= datetime.now(UTC)
    assert found[:2] == manager.list_snapshots()[:2]


def test_the_list_prints_as_a_table(history: History) -> None:
    first, last = history.append(*range(1200)), history.append(1)
    history.manager.create_tag("<b>")
    found = history.manager.list_snapshots()
    head, one, two = repr(found).splitlines()
    assert " ".join(head.split()) == "snapshot committed at operation rows + rows - files + files - rows refs"
    time = found[0].committed_at.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    assert one.split() == [str(first), *time.split(), "append", "1,200", "1", "1,200"]
    assert two.endswith("1,201  <b>, main")
    html = found._repr_html_()
    assert html.count("<tr>") == 3
    assert f"<td>{last}</td>" in html
    assert "&lt;b&gt;, main" in html


def test_a_time_finds_what_was_current_then(history: History) -> None:
    ids = [history.append(number) for number in range(3)]
    manager = history.manager
    times = [snapshot.committed_at for snapshot in manager.list_snapshots()]
    for snapshot_id, time in zip(ids, times, strict=True):
        assert manager.snapshot_at_timestamp(time).id == snapshot_id
    assert manager.snapshot_at_timestamp(times[1] - MILLISECOND).id == ids[0]
    # Less than a millisecond after a commit is after it; a text is in UTC; another zone is the same time.
    assert manager.snapshot_at_timestamp(times[1] + MILLISECOND / 2).id == ids[1]
    assert manager.snapshot_at_timestamp(times[1].replace(tzinfo=None).isoformat()).id == ids[1]
    assert manager.snapshot_at_timestamp((times[1] + timedelta(hours=1)).isoformat().replace("+00", "+01")).id == ids[1]
    assert manager.snapshot_at_timestamp("2999-01-01").id == ids[2]
    with pytest.raises(SnapshotNotFoundError, match=r"before the first snapshot that table db\.events has"):
        manager.snapshot_at_timestamp(times[0] - MILLISECOND)


def test_a_time_between_a_rollback_and_the_next_commit_finds_what_it_was_rolled_back_to(history: History) -> None:
    ids = [history.append(number) for number in range(3)]
    manager = history.manager
    assert manager.rollback_to(ids[0]).id == ids[0]
    rolled_back = datetime.now(UTC)
    assert manager.snapshot_at_timestamp(rolled_back).id == ids[0]
    last = history.append(7)
    assert manager.snapshot_at_timestamp(rolled_back).id == ids[0]
    assert manager.snapshot_at_timestamp(manager.snapshot_by_id(ids[2]).committed_at).id == ids[2]
    assert manager.snapshot_at_timestamp(datetime.now(UTC)).id == last
    assert history.rows() == history.duckdb_rows() == [0, 7]
    # What the rollback took away can be brought back.
    assert manager.rollback_to(rolled_back).id == ids[0]
    assert manager.rollback_to(ids[2]).id == ids[2]
    assert history.rows() == history.duckdb_rows() == [0, 1, 2]


def test_a_time_whose_snapshot_expired_is_an_error_and_not_the_one_before(history: History) -> None:
    ids = [history.append(number) for number in range(4)]
    manager = history.manager
    times = [snapshot.committed_at for snapshot in manager.list_snapshots()]
    manager.create_tag("first", ids[0])
    manager.expire_snapshots(snapshot_ids=ids[1:2])
    assert manager.snapshot_at_timestamp(times[2]).id == ids[2]
    for time in (times[1], times[2] - MILLISECOND):
        with pytest.raises(SnapshotExpiredError, match="was expired"):
            manager.snapshot_at_timestamp(time)
    # A rollback away from an expired snapshot: the log has the first one twice, as if it had been current throughout.
    manager.rollback_to(ids[0])
    manager.expire_snapshots(snapshot_ids=ids[2:])
    with pytest.raises(SnapshotExpiredError, match="was expired"):
        manager.snapshot_at_timestamp(times[3])
    assert manager.snapshot_at_timestamp(datetime.now(UTC)).id == ids[0]


def test_a_time_on_a_branch_is_answered_by_its_ancestors(history: History) -> None:
    first = history.append(1)
    manager = history.manager
    manager.create_branch("audit")
    on_branch = history.append(2, branch="audit")
    history.append(3)
    audit = SnapshotManager(history.ref.with_branch("audit"))
    assert audit.current_snapshot().id == on_branch
    assert audit.snapshot_at_timestamp(datetime.now(UTC)).id == on_branch
    assert audit.snapshot_at_timestamp(manager.snapshot_by_id(first).committed_at).id == first
    with pytest.raises(SnapshotNotFoundError, match="before the first snapshot"):
        audit.snapshot_at_timestamp("2020-01-01")
    with pytest.raises(SnapshotNotFoundError, match="no branch or tag 'audti'") as error:
        SnapshotManager(history.ref.with_branch("audti")).current_snapshot()
    assert "did you mean 'audit'" in str(error.value)


def test_tags_and_branches(history: History) -> None:
    first, second = history.append(1), history.append(2)
    manager = history.manager
    assert manager.create_tag("audited", first, max_age="30d").snapshot_id == first
    assert manager.create_tag("now").snapshot_id == second
    branch = manager.create_branch("try", first, min_snapshots=3, max_snapshot_age="7d", max_age=timedelta(days=90))
    assert [(tag.name, tag.max_age) for tag in manager.tags()] == [("audited", timedelta(days=30)), ("now", None)]
    assert [ref.name for ref in manager.branches()] == ["main", "try"]
    assert manager.branches()[1] == branch
    stored = history.table().refs()["try"]
    assert (stored.min_snapshots_to_keep, stored.max_snapshot_age_ms) == (3, 7 * 86_400_000)
    assert history.table().scan().use_ref("audited").to_arrow()["id"].to_pylist() == [1]
    for make in (manager.create_tag, manager.create_branch):
        with pytest.raises(ConfigError, match="has a tag 'audited' already"):
            make("audited")
    manager.drop_tag("audited")
    manager.drop_branch("try")
    assert ([ref.name for ref in manager.tags()], [ref.name for ref in manager.branches()]) == (["now"], ["main"])
    for drop, name in ((manager.drop_tag, "try"), (manager.drop_branch, "now"), (manager.drop_branch, "main")):
        with pytest.raises(ConfigError, match=f"no (tag|branch) '{name}' that can be dropped"):
            drop(name)


def test_a_rollback_and_a_publication_keep_a_branchs_settings(history: History) -> None:
    first = history.append(1)
    history.append(2)
    manager = SnapshotManager(history.ref.with_branch("kept"))
    history.manager.create_branch("kept", min_snapshots=7)
    manager.rollback_to(first)
    (kept,) = [ref for ref in manager.branches() if ref.name == "kept"]
    assert (kept.min_snapshots, kept.snapshot_id) == (7, first)


@pytest.mark.parametrize(
    "change",
    [
        lambda ref, first: SnapshotManager(ref).rollback_to(first),
        lambda ref, first: SnapshotManager(ref).create_snapshot(),
        lambda ref, first: IcebergTable(ref).compact(),
        lambda ref, first: IcebergTable(ref).rewrite_position_deletes(),
        lambda ref, first: IcebergTable(ref).rewrite_manifests(),
    ],
    ids=["rollback", "snapshot", "compaction", "delete files", "manifests"],
)
def test_a_tag_stays_where_it_is(history: History, change: Callable[[TableRef, int], object]) -> None:
    first, tagged = history.append(1), history.append(2)
    history.manager.create_tag("audited")
    history.append(3)
    before = history.manager.list_snapshots()
    with pytest.raises(ConfigError, match=r"'audited' of table db\.\w+ is a tag"):
        change(history.ref.with_branch("audited"), first)
    assert history.manager.list_snapshots() == before
    assert [(tag.name, tag.snapshot_id) for tag in history.manager.tags()] == [("audited", tagged)]


def test_a_rollback_goes_only_to_what_was_current(history: History) -> None:
    first = history.append(1)
    manager = history.manager
    manager.create_branch("audit")
    on_branch = history.append(2, branch="audit")
    with pytest.raises(ConfigError, match="has never been its last one"):
        manager.rollback_to(on_branch)
    with pytest.raises(SnapshotNotFoundError, match="no snapshot 5"):
        manager.rollback_to(5)
    with pytest.raises(SnapshotNotFoundError, match="before the first"):
        manager.rollback_to("2020-01-01")
    assert manager.current_snapshot().id == first
    assert publish_branch(history.ref.with_branch("audit")) == on_branch
    assert history.rows() == [1, 2]
    assert manager.rollback_to(first).refs == ("main",)
    assert history.rows() == [1]


def test_a_snapshot_without_rows_marks_the_history(history: History) -> None:
    manager = history.manager
    made = manager.create_snapshot({"release": "2026-11"}, tag="v1")
    assert (made.summary["release"], made.refs, made.rows_added) == ("2026-11", ("main", "v1"), 0)
    history.append(1)
    second = manager.create_snapshot()
    assert second.total_rows == 1
    assert history.rows() == history.duckdb_rows() == [1]
    assert history.table().scan().use_ref("v1").to_arrow().num_rows == 0
    with pytest.raises(ConfigError, match="'v1' already"):
        manager.create_snapshot(tag="v1")
    with pytest.raises(ConfigError, match=r"'volley\.epoch' is written by"):
        manager.create_snapshot({"volley.epoch": "5"})
    on_branch = SnapshotManager(history.ref.with_branch("audit")).create_snapshot()
    assert on_branch.parent_id == second.id
    assert [ref.name for ref in manager.branches()] == ["audit", "main"]


def test_a_table_without_snapshots_says_so(history: History) -> None:
    manager = history.manager
    assert list(manager.list_snapshots()) == []
    assert repr(manager.list_snapshots()).split()[0] == "snapshot"
    for ask in (
        manager.current_snapshot,
        lambda: manager.snapshot_at_timestamp("2026-01-01"),
        lambda: manager.create_tag("t"),
    ):
        with pytest.raises(SnapshotNotFoundError, match="has no snapshot yet"):
            ask()
    assert len(manager.expire_snapshots(AT_ONCE).snapshots) == 0
    with pytest.raises(TableNotFoundError):
        SnapshotManager(history.ref.beside("other")).list_snapshots()


# Commits that other writers, or a catalog, disturb


def test_a_change_whose_answer_is_lost_is_made_once(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    first = history.append(1)
    history.append(2)
    changes: list[tuple[Callable[[], Any], Callable[[], bool]]] = [
        (lambda: history.manager.create_tag("t"), lambda: [ref.name for ref in history.manager.tags()] == ["t"]),
        (lambda: history.manager.create_snapshot({"a": "b"}), lambda: len(history.table().snapshots()) == 3),
        (lambda: history.manager.rollback_to(first), lambda: history.rows() == [1]),
        (lambda: history.manager.drop_tag("t"), lambda: history.manager.tags() == ()),
    ]
    for change, landed in changes:
        calls = disturb(monkeypatch, lost)
        change()
        assert landed()
        assert calls == ["commit"]


def test_a_change_meets_other_writers(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    history.append(1)

    def other_first(commit: Commit) -> Any:
        history.append(2)
        return commit()

    calls = disturb(monkeypatch, other_first)
    made = history.manager.create_snapshot()
    assert calls == ["commit"] * 2
    assert (made.total_rows, history.rows()) == (2, [1, 2])
    manifests = history.files()
    disturb(monkeypatch, *[other_first] * ATTEMPTS)
    with pytest.raises(CommitConflictError, match="creating a snapshot failed: other writers changed table"):
        history.manager.create_snapshot()
    assert len(history.files()) == len(manifests) + 3 * ATTEMPTS  # those of the other writers, none of ours


def test_a_catalog_that_never_answers(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    history.append(1)
    disturb(monkeypatch, *[never_sent] * ATTEMPTS)
    with pytest.raises(CommitStateUnknownError, match="creating a branch or tag may or may not have changed table"):
        history.manager.create_tag("t")
    assert history.manager.tags() == ()


def test_a_catalog_that_is_gone(tmp_path: Path) -> None:
    ref = TableRef("db", "t", IcebergStorage.Local(str(tmp_path)), catalog="http://127.0.0.1:9")
    with pytest.raises(CatalogUnreachableError):
        SnapshotManager(ref).create_tag("t")


def test_wrong_arguments(history: History) -> None:
    manager = history.manager
    with pytest.raises(ConfigError, match="table is 'events'"):
        SnapshotManager("events")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="both snapshot_ids and an age"):
        manager.expire_snapshots("7d", snapshot_ids=[5])
    with pytest.raises(ConfigError, match="tag 'a/b' is not a name"):
        manager.create_tag("a/b")
    with pytest.raises(ConfigError, match="retain_last 0 is not valid"):
        manager.expire_snapshots(retain_last=0)
    with pytest.raises(ConfigError, match="older_than -1 is not valid"):
        manager.expire_snapshots(-1)
    with pytest.raises(ConfigError, match="at 'yesterday' is not valid"):
        manager.snapshot_at_timestamp("yesterday")


@pytest.mark.parametrize(
    "change",
    [
        lambda manager: manager.create_tag("audited"),
        lambda manager: manager.create_branch("audit"),
        lambda manager: manager.expire_snapshots("0s"),
        lambda manager: IcebergTable(manager.ref).compute_statistics(),
    ],
    ids=["tag", "branch", "expiry", "statistics"],
)
def test_format_version_3_is_changed_too(change: Callable[[SnapshotManager], object], history: History) -> None:
    history.append(1)
    history.append(2)
    IcebergTable(history.ref).upgrade(3)
    change(SnapshotManager(history.ref))
    assert history.ref.load().format_version == 3
    assert sorted(history.ref.load().scan().to_arrow()["id"].to_pylist()) == [1, 2]
