"""Files that dead attempts have left: found by the committer, removed by maintenance, and never a file too many."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from fsspec import AbstractFileSystem
from pyiceberg.table.update.snapshot import ExpireSnapshots

from tests.recovery.lake import QUERY, SCHEMA, Lake, write
from volley import ConfigError, Epoch, StorageError, TableNotFoundError
from volley.iceberg import orphan_files, remove_orphan_files
from volley.iceberg.maintain import unneeded
from volley.iceberg.storage.files import ListedFile, listed_files
from volley.iceberg.write.written import WrittenFile

AT_ONCE = timedelta(0)


def names(paths: list[str]) -> list[str]:
    return sorted(Path(path).name for path in paths)


def left_behind(lake: Lake, number: int) -> str:
    """A task writes a file in this epoch and dies; the file's name."""
    _, [result] = write(lake.driver(), number, [-1])
    (file,) = result.committables
    assert isinstance(file, WrittenFile)
    return Path(file.data_file.file_path).name


def test_the_committer_lists_what_dead_attempts_of_an_epoch_left(lake: Lake) -> None:
    driver = lake.driver()
    driver.commit(*write(driver, 0, [1]))
    dead = left_behind(lake, 1)
    elsewhere = left_behind(lake, 7)
    driver.commit(*write(driver, 1, [2]))
    assert names(driver.orphans(Epoch(QUERY, 1))) == [dead]
    assert driver.orphans(Epoch(QUERY, 0)) == []
    assert driver.orphans(Epoch(QUERY, 7)) == []  # it has not landed: its files may still be committed
    assert {dead, elsewhere} <= {path.name for path in lake.files()}


def test_a_table_whose_files_others_may_need_keeps_its_orphans(lake: Lake) -> None:
    driver = lake.driver()
    driver.commit(*write(driver, 0, [0]))
    dead = left_behind(lake, 1)
    lake.table().transaction().set_properties({"gc.enabled": "false"}).commit_transaction()
    with pytest.raises(
        ConfigError, match=r"orphan files of table .* can't be removed: its property gc\.enabled is false"
    ):
        remove_orphan_files(lake.config, AT_ONCE)
    assert names(orphan_files(lake.config, AT_ONCE)) == [dead]


def test_a_dry_run_says_what_would_be_removed(lake: Lake) -> None:
    driver = lake.driver()
    driver.commit(*write(driver, 0, [0]))
    dead = left_behind(lake, 1)
    planned = remove_orphan_files(lake.config, AT_ONCE, dry_run=True)
    assert (names(planned), planned.removed) == ([dead], False)
    assert planned.bytes == Path(planned[0]).stat().st_size
    assert str(planned).startswith(f"1 files ({planned.bytes:,} bytes) belong to no snapshot")
    done = remove_orphan_files(lake.config, AT_ONCE)
    assert (done, done.bytes, done.removed, done.nested) == (planned, planned.bytes, True, ())
    assert not Path(planned[0]).exists()


def test_a_limit_leaves_the_rest_for_the_next_run(lake: Lake) -> None:
    driver = lake.driver()
    driver.commit(*write(driver, 0, [0]))
    dead = sorted(left_behind(lake, number) for number in (1, 2, 3))
    assert names(remove_orphan_files(lake.config, AT_ONCE, dry_run=True, max_files=1)) == dead[:1]
    removed = remove_orphan_files(lake.config, AT_ONCE, max_files=2)
    assert (names(removed), removed.left) == (dead[:2], 1)
    assert "1 files are left for the next run" in str(removed)
    late = remove_orphan_files(lake.config, AT_ONCE, max_time="1ms")
    assert (late, late.bytes, late.left) == ([], 0, 1)
    assert names(remove_orphan_files(lake.config, AT_ONCE)) == dead[2:]
    assert lake.rows() == [0]


def test_files_of_a_table_inside_the_folder_stay(lake: Lake) -> None:
    """Its metadata tell; the table's own old metadata are orphans nevertheless."""
    driver = lake.driver()
    driver.commit(*write(driver, 0, [0]))
    table = lake.table()
    folder = f"{table.location()}/inner"
    inner = table.catalog.create_table("db.inner", table.schema(), location=folder)
    inner.append(pa.table({"id": [7]}, SCHEMA))
    dead = left_behind(lake, 1)
    old = Path(table.location().removeprefix("file://"), "metadata", "00000-old.metadata.json")
    old.write_bytes(Path(table.metadata_location.removeprefix("file://")).read_bytes())
    removed = remove_orphan_files(lake.config, AT_ONCE)
    assert names(removed) == sorted([dead, old.name])
    assert removed.nested == (folder.removeprefix("file://"),)
    assert "left out, since it is another table's" in str(removed)
    assert inner.refresh().scan().to_arrow()["id"].to_pylist() == [7]


def test_a_folder_of_two_tables_is_refused(lake: Lake) -> None:
    driver = lake.driver()
    driver.commit(*write(driver, 0, [0]))
    table = lake.table()
    other = table.catalog.create_table("db.other", table.schema(), location=table.location())
    other.append(pa.table({"id": [7]}, SCHEMA))
    with pytest.raises(ConfigError, match=f"of the table with the uuid {other.metadata.table_uuid}"):
        remove_orphan_files(lake.config, AT_ONCE)
    assert other.refresh().scan().to_arrow()["id"].to_pylist() == [7]


def test_files_that_are_committed_during_the_listing_stay(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = lake.driver()
    driver.commit(*write(driver, 0, [0]))

    written = write(driver, 1, [1])

    def slow(files: AbstractFileSystem, folder: str) -> Iterator[ListedFile]:
        driver.commit(*written)
        yield from listed_files(files, folder)

    monkeypatch.setattr(unneeded, "listed_files", slow)
    assert remove_orphan_files(lake.config, AT_ONCE) == []
    assert lake.rows() == [0, 1]


def test_maintenance_removes_them_and_nothing_else(lake: Lake) -> None:
    driver = lake.driver()
    for number in range(3):
        driver.commit(*write(driver, number, [number]))
    dead = [left_behind(lake, 1), left_behind(lake, 3)]
    assert orphan_files(lake.config) == []
    assert names(orphan_files(lake.config, AT_ONCE)) == sorted(dead)
    assert names(remove_orphan_files(lake.config, AT_ONCE)) == sorted(dead)
    assert orphan_files(lake.config, AT_ONCE) == []
    assert lake.rows() == [0, 1, 2]
    table = lake.table()
    for snapshot, rows in zip(table.snapshots(), ([0], [0, 1], [0, 1, 2]), strict=True):
        found = table.scan(snapshot_id=snapshot.snapshot_id).to_arrow()["id"].to_pylist()
        assert sorted(found) == rows
    driver.commit(*write(driver, 3, [3]))
    assert lake.rows() == [0, 1, 2, 3]


def test_files_that_only_a_branch_or_an_old_snapshot_needs_stay(lake: Lake) -> None:
    driver = lake.driver()
    driver.commit(*write(driver, 0, [0]))
    table = lake.table()
    head = table.current_snapshot()
    assert head is not None
    table.manage_snapshots().create_branch(head.snapshot_id, "audit").commit()
    table.append(pa.table({"id": [100]}, SCHEMA), branch="audit")
    lake.table().overwrite(pa.table({"id": [200]}, SCHEMA))
    assert remove_orphan_files(lake.config, AT_ONCE) == []
    assert lake.rows() == [200]
    assert sorted(lake.table().scan().use_ref("audit").to_arrow()["id"].to_pylist()) == [0, 100]


def test_what_expiry_leaves_is_removed(lake: Lake) -> None:
    driver = lake.driver()
    driver.commit(*write(driver, 0, [0]))
    first = lake.table().current_snapshot()
    assert first is not None
    lake.table().overwrite(pa.table({"id": [1]}, SCHEMA))
    expire: ExpireSnapshots = lake.table().maintenance.expire_snapshots()
    expire.by_id(first.snapshot_id).commit()
    removed = remove_orphan_files(lake.config, AT_ONCE)
    assert Path(first.manifest_list).name in names(removed)
    assert lake.rows() == [1]


def test_a_manifest_that_can_not_be_read_stops_the_removal(lake: Lake) -> None:
    driver = lake.driver()
    driver.commit(*write(driver, 0, [0]))
    snapshot = lake.table().current_snapshot()
    assert snapshot is not None
    (manifest,) = snapshot.manifests(lake.table().io)
    Path(manifest.manifest_path.removeprefix("file://")).unlink()
    dead = left_behind(lake, 1)
    with pytest.raises(StorageError, match="reading"):
        remove_orphan_files(lake.config, AT_ONCE)
    assert dead in {path.name for path in lake.files()}


def test_bad_requests(lake: Lake) -> None:
    with pytest.raises(TableNotFoundError, match=r"db\.events"):
        orphan_files(lake.config)
    lake.driver()
    with pytest.raises(ConfigError, match="older_than -1 s is not valid"):
        orphan_files(lake.config, timedelta(seconds=-1))


def test_new_tables_keep_metadata_files_and_manifests_bounded(lake: Lake) -> None:
    lake.config = lake.config.with_table_properties(
        {"write.metadata.previous-versions-max": "5", "commit.manifest.min-count-to-merge": "4"}
    )
    driver = lake.driver()
    for number in range(20):
        driver.commit(*write(driver, number, [number]))
    table = lake.table()
    assert len(list(Path(lake.folder, "lake").rglob("*.metadata.json"))) == 6
    head = table.current_snapshot()
    assert head is not None
    assert len(head.manifests(table.io)) <= 4
    assert lake.rows() == list(range(20))
    assert remove_orphan_files(lake.config, AT_ONCE) == []
    assert driver.orphans(Epoch(QUERY, 19)) == []


def test_the_bounds_are_defaults_that_can_be_left_out(lake: Lake) -> None:
    lake.config = lake.config.with_table_properties({"commit.manifest-merge.enabled": "false", "owner": "data"})
    lake.driver()
    assert lake.table().properties == {
        "write.metadata.delete-after-commit.enabled": "true",
        "write.metadata.previous-versions-max": "100",
        "commit.manifest-merge.enabled": "false",
        "owner": "data",
    }
