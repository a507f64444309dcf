"""Expiry of snapshots: what is left has its rows for every reader, and no file is left over or missing."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table.statistics import StatisticsFile

from tests.iceberg.snapshots import AT_ONCE, Commit, History, disturb, lost, never_sent
from tests.tiers import some
from volley import CommitConflictError, CommitStateUnknownError, ConfigError, SnapshotNotFoundError, StorageError
from volley.iceberg import SnapshotManager, orphan_files, publish_branch, remove_orphan_files
from volley.iceberg.catalogs.answers import ATTEMPTS
from volley.iceberg.maintain.unneeded import is_inside
from volley.iceberg.read.entries import forget_manifests

MERGED = {"commit_manifest-merge_enabled": "true", "commit_manifest_min-count-to-merge": "2"}


@pytest.fixture(params=["fast", "merged"])
def history(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[History]:
    """A table whose commits add manifests, or merge them."""
    made = History(tmp_path, **(MERGED if request.param == "merged" else {}))
    yield made
    made.close()


@pytest.fixture
def plain(tmp_path: Path) -> Iterator[History]:
    made = History(tmp_path)
    yield made
    made.close()


def write(history: History) -> list[int]:
    """Rows come and go; all snapshots, also those that deletes and overwrites make on the way."""
    for number in range(3):
        history.append(number)
    history.delete("id = 1")
    history.overwrite(10, 11)
    history.append(12)
    return [snapshot.id for snapshot in history.manager.list_snapshots()]


def test_all_but_the_current_one(history: History) -> None:
    ids = write(history)
    before, files = history.everything(), history.files()
    planned = history.manager.expire_snapshots(AT_ONCE, dry_run=True)
    assert (planned.dry_run, history.everything(), history.files()) == (True, before, files)
    done = history.manager.expire_snapshots(AT_ONCE)
    assert [snapshot.id for snapshot in done.snapshots] == ids[:-1]
    assert history.files() == files - {Path(path).name for path in done.files}
    assert (planned.files, planned.snapshots, planned.failed, planned.outside) == (done.files, done.snapshots, (), ())
    assert str(planned) == f"{len(ids) - 1} snapshots and {len(done.files)} files of table db.events would be removed"
    assert str(done).endswith("were removed")
    assert list(history.everything()) == ids[-1:]
    assert history.rows() == [10, 11, 12]
    history.check(before)
    again = history.manager.expire_snapshots(AT_ONCE)
    assert (len(again.snapshots), again.files) == (0, ())
    history.append(13)
    assert history.rows() == history.duckdb_rows() == [10, 11, 12, 13]


@pytest.mark.parametrize("middle", some([3, 0, 5]))
def test_one_in_the_middle(history: History, middle: int) -> None:
    ids = write(history)
    before = history.everything()
    done = history.manager.expire_snapshots(snapshot_ids=[ids[middle]])
    assert [snapshot.id for snapshot in done.snapshots] == [ids[middle]]
    assert list(history.everything()) == [other for other in ids if other != ids[middle]]
    history.check(before)


def test_by_number_and_by_age(history: History) -> None:
    ids = write(history)
    before = history.everything()
    times = [snapshot.committed_at for snapshot in history.manager.list_snapshots()]
    assert len(history.manager.expire_snapshots().snapshots) == 0  # younger than five days
    assert len(history.manager.expire_snapshots(times[0], retain_last=2).snapshots) == 0  # none is before the first
    assert [each.id for each in history.manager.expire_snapshots(times[2]).snapshots] == ids[:2]
    history.check(before)
    assert [each.id for each in history.manager.expire_snapshots("0s", retain_last=3).snapshots] == ids[2:-3]
    history.check(before)
    assert [each.id for each in history.manager.expire_snapshots(times[-1].isoformat()).snapshots] == ids[-3:-1]
    history.check(before)


def test_the_tables_own_settings_count_where_none_are_given(tmp_path: Path) -> None:
    settings = {"history.expire.max-snapshot-age-ms": "1", "history.expire.min-snapshots-to-keep": "4"}
    history = History(tmp_path, **settings)
    ids = write(history)
    before = history.everything()
    assert [each.id for each in history.manager.expire_snapshots(dry_run=True).snapshots] == ids[:-4]
    history.manager.expire_snapshots()
    assert list(history.everything()) == ids[-4:]
    history.check(before)
    history.close()


def test_tags_and_branches_keep_what_they_need(history: History) -> None:
    history.append(0)
    tagged = history.append(1)
    manager = history.manager
    manager.create_tag("audited")
    manager.create_branch("raw")
    main = [history.append(2), history.overwrite(3)]
    audit = [history.append(number, branch="raw") for number in (20, 21, 22)]
    # pyiceberg's writes drop a branch's settings; Volley's don't.
    manager.create_branch("try", audit[-1], min_snapshots=2)
    manager.drop_branch("raw")
    publishable = manager.create_branch("next").snapshot_id
    audited = [history.append(number, branch="next") for number in (30, 31)]
    before = history.everything()
    done = manager.expire_snapshots(AT_ONCE)
    assert done.refs == ()
    # `next` continues main: it can be published only as long as the snapshots between them are there.
    assert set(history.everything()) == {tagged, main[-1], *audit[1:], *audited}
    assert publishable == main[-1]
    history.check(before)
    manager.drop_branch("try")
    manager.expire_snapshots(AT_ONCE)
    history.check(before)
    assert publish_branch(history.ref.with_branch("next")) == audited[-1]
    manager.drop_tag("audited")
    manager.drop_branch("next")
    manager.expire_snapshots(AT_ONCE)
    assert list(history.everything()) == audited[-1:]
    history.check(before)


def test_branches_and_tags_that_are_too_old_by_their_own_setting_are_dropped(plain: History) -> None:
    plain.append(0)
    manager = plain.manager
    manager.create_tag("short", max_age="1ms")
    manager.create_branch("brief", max_age="1ms")
    manager.create_tag("long", max_age="1d")
    plain.append(1)
    plain.append(2)
    before = plain.everything()
    assert manager.expire_snapshots(dry_run=True).refs == ("brief", "short")
    done = manager.expire_snapshots(AT_ONCE)
    assert (done.refs, len(done.snapshots)) == (("brief", "short"), 1)
    assert "too old, and dropped: brief, short" in str(done)
    assert [ref.name for ref in (*manager.tags(), *manager.branches())] == ["long", "main"]
    plain.check(before)


def test_a_branchs_own_age_comes_before_the_given_one(plain: History) -> None:
    first = plain.append(0)
    plain.manager.create_branch("raw")
    on_branch = [plain.append(number, branch="raw") for number in (1, 2)]
    plain.manager.create_branch("kept", on_branch[-1], max_snapshot_age="1d")
    plain.manager.drop_branch("raw")
    last = [plain.append(number) for number in (3, 4)][-1]
    before = plain.everything()
    plain.manager.expire_snapshots(AT_ONCE)
    assert set(plain.everything()) == {first, *on_branch, last}
    plain.check(before)


def test_a_limit_expires_the_oldest_first(history: History) -> None:
    ids = [history.append(number) for number in range(5)]
    before = history.everything()
    planned = history.manager.expire_snapshots(AT_ONCE, max_snapshots=2, dry_run=True)
    done = history.manager.expire_snapshots(AT_ONCE, max_snapshots=2)
    assert [each.id for each in done.snapshots] == [each.id for each in planned.snapshots] == ids[:2]
    assert list(history.everything()) == ids[2:]
    history.check(before)
    assert len(history.manager.expire_snapshots(AT_ONCE, max_snapshots=9).snapshots) == 2
    history.check(before)
    assert history.rows() == [0, 1, 2, 3, 4]


def test_after_a_rollback(history: History) -> None:
    ids = [history.append(number) for number in range(4)]
    history.manager.rollback_to(ids[1])
    last = history.append(9)
    before = history.everything()
    # Rolled back ones are kept by age alone.
    young = history.manager.list_snapshots()[3].committed_at
    done = history.manager.expire_snapshots(young, retain_last=5)
    assert [snapshot.id for snapshot in done.snapshots] == [ids[2]]
    history.check(before)
    history.manager.expire_snapshots(AT_ONCE, retain_last=5)
    assert list(history.everything()) == [ids[0], ids[1], last]
    history.check(before)
    assert history.rows() == [0, 1, 9]


def test_what_a_branch_or_a_tag_stands_at_can_not_be_expired_by_its_id(plain: History) -> None:
    first, last = plain.append(0), plain.append(1)
    plain.manager.create_tag("audited", first)
    before = plain.everything()
    for snapshot_id, name in ((first, "audited"), (last, "main")):
        with pytest.raises(ConfigError, match=f"can't be expired: '{name}' stands at it"):
            plain.manager.expire_snapshots(snapshot_ids=[snapshot_id])
    with pytest.raises(SnapshotNotFoundError, match="no snapshot 5"):
        plain.manager.expire_snapshots(snapshot_ids=[5])
    # No ids are no snapshots, and not those that are old.
    plain.manager.drop_tag("audited")
    assert len(plain.manager.expire_snapshots(snapshot_ids=[]).snapshots) == 0
    assert plain.everything() == before


def test_delete_files_go_with_the_last_snapshot_that_needs_them(plain: History, tmp_path: Path) -> None:
    """Position deletes, as upserts of jobs write them."""
    from tests.upserts.lake import Lake
    from volley.iceberg import Upsert

    lake = Lake(tmp_path / "upserts", Upsert("id", strategy="merge_on_read"), pa.schema({"id": pa.int64()}))
    for numbers in (range(100), range(3), range(1, 5)):
        lake.epoch([{"id": number} for number in numbers])
    manager = SnapshotManager(lake.config)
    assert lake.table().inspect.delete_files().num_rows > 0
    rows = lake.rows()
    done = manager.expire_snapshots(AT_ONCE)
    assert len(done.snapshots) == 2
    assert lake.rows() == lake.duckdb_rows() == rows
    assert orphan_files(lake.config, AT_ONCE) == []
    lake.epoch([{"id": 7}])
    assert lake.rows() == lake.duckdb_rows() == rows
    lake.close()


# Files of others


def add_elsewhere(history: History) -> Path:
    """Rows in a file that is not in the table's folders; its path."""
    path = history.folder / "elsewhere" / "part.parquet"
    path.parent.mkdir()
    pq.write_table(pa.table({"id": pa.array([100], pa.int64())}), path)
    history.table().add_files([str(path)])
    return path


@pytest.mark.parametrize("outside", [False, True])
def test_files_outside_of_the_tables_folders_stay_unless_they_may_go(plain: History, outside: bool) -> None:
    path = add_elsewhere(plain)
    plain.append(1)
    before = plain.everything()
    plain.manager.expire_snapshots(AT_ONCE, outside=outside)  # still needed
    plain.check(before)
    plain.overwrite(2)
    before = plain.everything()
    planned = plain.manager.expire_snapshots(AT_ONCE, outside=outside, dry_run=True)
    done = plain.manager.expire_snapshots(AT_ONCE, outside=outside)
    assert done.outside == planned.outside == (() if outside else (str(path),))
    assert path.exists() is not outside
    assert ("1 files outside of the table's folders stay" in str(done)) is not outside
    plain.check(before)


def test_what_counts_as_inside(plain: History) -> None:
    own = is_inside(plain.table())
    folder = plain.table().location().removeprefix("file://")
    for path in (
        f"file://{folder}/data/a",
        f"file:{folder}/data/a",
        f"{folder}/data/b=1/a#?*[",
        f"/{folder}/metadata/m",
    ):
        assert own(path), path
    for path in (
        f"{folder}2/data/a",
        f"{folder}/../other/a",
        f"{folder}/data/../../../a",
        "/elsewhere/a",
        "s3://bucket/a",
        f"s3:/{folder}/a",
    ):
        assert not own(path), path
    plain.table().transaction().set_properties({"write.data.path": "s3://bucket/data"}).commit_transaction()
    own = is_inside(plain.table())
    assert own("s3a://bucket/data/a")
    assert own(f"{folder}/data/a")
    assert not own("s3://bucket/database/a")


def test_a_table_whose_files_others_need_is_refused(plain: History) -> None:
    plain.append(1)
    plain.append(2)
    plain.table().transaction().set_properties({"gc.enabled": "False"}).commit_transaction()
    before = plain.everything()
    for dry_run in (True, False):
        with pytest.raises(ConfigError, match=r"gc\.enabled is false"):
            plain.manager.expire_snapshots(AT_ONCE, dry_run=dry_run)
    plain.check(before)
    assert len(plain.everything()) == 2


def test_a_name_with_wildcards_is_not_a_pattern(plain: History) -> None:
    folder = plain.table().location().removeprefix("file://") + "/data"
    Path(folder).mkdir(exist_ok=True)
    for name in ("part*.parquet", "[ab].parquet"):
        pq.write_table(pa.table({"id": pa.array([len(name)], pa.int64())}), f"{folder}/{name}")
    plain.table().add_files([f"{folder}/part*.parquet", f"{folder}/[ab].parquet"])
    plain.overwrite(1)
    for name in ("part-1.parquet", "a.parquet"):
        Path(folder, name).touch()
    done = plain.manager.expire_snapshots(AT_ONCE)
    assert {Path(path).name for path in done.files if path.endswith(".parquet")} == {"part*.parquet", "[ab].parquet"}
    assert {"part-1.parquet", "a.parquet"} <= plain.files()


def test_statistics_go_with_their_snapshot(plain: History) -> None:
    ids = [plain.append(number) for number in range(3)]
    paths = []
    for snapshot_id in ids[1:]:
        path = Path(plain.table().location().removeprefix("file://"), "metadata", f"{snapshot_id}.stats")
        path.write_bytes(b"PFA1")
        file = {"snapshot-id": snapshot_id, "statistics-path": f"file://{path}", "file-size-in-bytes": 4}
        whole = StatisticsFile.model_validate({**file, "file-footer-size-in-bytes": 4, "blob-metadata": []})
        plain.table().update_statistics().set_statistics(whole).commit()
        paths.append(path)
    before = plain.everything()
    planned = plain.manager.expire_snapshots(AT_ONCE, dry_run=True)
    done = plain.manager.expire_snapshots(AT_ONCE)
    assert planned.files == done.files
    assert f"file://{paths[0]}" in done.files
    assert [path.exists() for path in paths] == [False, True]
    plain.check(before)


# Other writers, faults


def test_snapshots_that_others_commit_meanwhile_are_kept(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = write(history)
    written: list[int] = []

    def other_first(commit: Commit) -> Any:
        written.append(history.append(50))
        return commit()

    # Another writer's rows are no conflict.
    calls = disturb(monkeypatch, other_first)
    before = history.everything()
    done = history.manager.expire_snapshots(AT_ONCE)
    assert calls == ["commit"]
    assert list(history.everything()) == [ids[-1], *written]
    assert [snapshot.id for snapshot in done.snapshots] == ids[:-1]
    history.check(before | {written[0]: [10, 11, 12, 50]})


@pytest.mark.parametrize("change", ["tag", "branch", "rollback"])
def test_what_comes_to_need_a_snapshot_first_keeps_it(
    history: History, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    ids = [history.append(number) for number in range(4)]
    before = history.everything()

    def other_first(commit: Commit) -> Any:
        changes = history.table().manage_snapshots()
        if change == "rollback":
            changes.rollback_to_snapshot(ids[1]).commit()
        else:
            (changes.create_tag if change == "tag" else changes.create_branch)(ids[1], "kept").commit()
        return commit()

    calls = disturb(monkeypatch, other_first)
    history.manager.expire_snapshots(AT_ONCE)
    assert calls == ["commit"] * 2
    assert list(history.everything()) == [ids[1]] if change == "rollback" else [ids[1], ids[3]]
    history.check(before)
    assert history.rows(history.table().refs()["main" if change == "rollback" else "kept"].snapshot_id) == [0, 1]


def test_a_snapshot_that_was_named_is_tagged_first(plain: History, monkeypatch: pytest.MonkeyPatch) -> None:
    first, _ = plain.append(0), plain.append(1)

    def other_first(commit: Commit) -> Any:
        plain.table().manage_snapshots().create_tag(first, "kept").commit()
        return commit()

    disturb(monkeypatch, other_first)
    with pytest.raises(ConfigError, match="'kept' stands at it"):
        plain.manager.expire_snapshots(snapshot_ids=[first])
    assert plain.rows(first) == [0]


def test_another_expiry_that_comes_first(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = write(history)
    before = history.everything()

    def other_first(commit: Commit) -> Any:
        history.table().maintenance.expire_snapshots().by_ids(ids[:3]).commit()
        return commit()

    disturb(monkeypatch, other_first)
    history.manager.expire_snapshots(AT_ONCE)
    assert list(history.everything()) == ids[-1:]
    history.check(before)


def test_an_answer_that_is_lost(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = write(history)
    before = history.everything()

    calls = disturb(monkeypatch, lost)
    done = history.manager.expire_snapshots(AT_ONCE)
    assert calls == ["commit"]
    assert [snapshot.id for snapshot in done.snapshots] == ids[:-1]
    history.check(before)


def test_nothing_is_deleted_if_the_outcome_is_not_known(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    write(history)
    before, files = history.everything(), history.files()

    disturb(monkeypatch, *[never_sent] * ATTEMPTS)
    with pytest.raises(CommitStateUnknownError, match="expiring snapshots may or may not have changed table"):
        history.manager.expire_snapshots(AT_ONCE)
    assert (history.everything(), history.files()) == (before, files)


def test_conflicts_in_every_attempt(plain: History, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = write(plain)

    def other_first(commit: Commit) -> Any:
        number = len(plain.manager.tags())
        plain.table().manage_snapshots().create_tag(ids[number], f"tag{number}").commit()
        return commit()

    before, files = plain.everything(), plain.files()
    disturb(monkeypatch, *[other_first] * ATTEMPTS)
    with pytest.raises(CommitConflictError, match="expiring snapshots failed"):
        plain.manager.expire_snapshots(AT_ONCE)
    assert (plain.everything(), plain.files()) == (before, files)


def test_a_manifest_that_can_not_be_read_keeps_all_files(plain: History) -> None:
    ids = write(plain)
    current = plain.table().current_snapshot()
    assert current is not None
    (needed, *_) = [manifest.manifest_path for manifest in current.manifests(plain.table().io)]
    path = Path(needed.removeprefix("file://"))
    saved, files = path.read_bytes(), plain.files()
    path.write_bytes(b"")
    # The search for orphans that follows each write has it in memory.
    forget_manifests()
    with pytest.raises(StorageError, match=r"snapshots of table db\.events were expired, but none of their files was"):
        plain.manager.expire_snapshots(AT_ONCE)
    assert plain.files() == files
    path.write_bytes(saved)
    assert list(plain.everything()) == ids[-1:]
    remove_orphan_files(plain.ref, AT_ONCE)
    plain.check({ids[-1]: [10, 11, 12]})


def test_a_file_that_can_not_be_deleted_is_reported(plain: History) -> None:
    plain.append(0)
    file = next(Path(task.file.file_path.removeprefix("file://")) for task in plain.table().scan().plan_files())
    plain.overwrite(1)
    before = plain.everything()
    file.unlink()
    file.mkdir()
    done = plain.manager.expire_snapshots(AT_ONCE)
    ((path, reason),) = done.failed
    assert path == f"file://{file}"
    assert "deleting" in reason
    assert f"not deleted: {path}: " in str(done)
    assert path not in done.files
    file.rmdir()
    plain.check(before)


def test_files_that_are_gone_already_do_not_matter(plain: History) -> None:
    plain.append(0)
    plain.overwrite(1)
    before = plain.everything()
    planned = plain.manager.expire_snapshots(AT_ONCE, dry_run=True)
    for path in planned.files:
        Path(path.removeprefix("file://")).unlink()
    done = plain.manager.expire_snapshots(AT_ONCE)
    assert done.failed == ()
    plain.check(before)


def test_what_a_crash_leaves_is_removed_as_orphans(plain: History) -> None:
    write(plain)
    before = plain.everything()
    planned = plain.manager.expire_snapshots(AT_ONCE, dry_run=True)
    plain.table().maintenance.expire_snapshots().older_than(datetime.now(UTC) + timedelta(days=1)).commit()
    left = {Path(path).name for path in orphan_files(plain.ref, AT_ONCE)}
    assert left == {Path(path).name for path in planned.files}
    remove_orphan_files(plain.ref, AT_ONCE)
    plain.check(before)
