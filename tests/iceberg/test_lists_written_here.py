"""A commit repeats the manifests of the list before it: kept ones are those in the storage, and others are read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.io.fsspec import FsspecInputFile
from pyiceberg.manifest import clear_manifest_cache
from pyiceberg.table import Table

import volley.iceberg.pyiceberg_private.lists as lists
from tests.recovery.lake import Lake, write
from volley.iceberg.commit.committer import IcebergCommitter


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lake]:
    monkeypatch.setattr(lists, "_written", {})
    made = Lake(tmp_path)
    yield made
    made.close()


def commit(driver: IcebergCommitter, *numbers: int) -> None:
    for number in numbers:
        driver.commit(*write(driver, number, [number]))


def manifests(table: Table) -> list[list[object]]:
    """The fields of the manifests of the last snapshot, as they are in the storage."""
    clear_manifest_cache()
    head = table.current_snapshot()
    assert head is not None
    return [manifest._data for manifest in head.manifests(table.io)]


@pytest.mark.parametrize("merge", ["false", "true"])
@pytest.mark.parametrize("version", ["2", "3"])
def test_what_is_kept_is_what_is_stored(lake: Lake, version: str, merge: str) -> None:
    lake.config = lake.config.with_table_properties(
        {
            "format-version": version,
            "commit.manifest-merge.enabled": merge,
            "commit.manifest.min-count-to-merge": "3",
        }
    )
    driver = lake.driver()
    for number in range(7):
        commit(driver, number)
        table = lake.table()
        head = table.current_snapshot()
        assert head is not None
        known = lists.written_here(head.manifest_list)
        assert known is not None
        assert [manifest._data for manifest in known] == manifests(table)
        for manifest in head.manifests(table.io):
            path = Path(manifest.manifest_path.removeprefix("file://"))
            assert manifest.manifest_length == path.stat().st_size
    assert lake.rows() == list(range(7))


def test_the_list_of_another_process_is_read(lake: Lake) -> None:
    driver = lake.driver()
    commit(driver, 0, 1)
    lists._written.clear()
    commit(driver, 2)
    table = lake.table()
    table.append(table.scan().to_arrow().slice(0, 1))  # by plain pyiceberg
    commit(driver, 3)
    rows = lake.rows()
    assert (len(rows), set(rows)) == (5, {0, 1, 2, 3})


def test_few_lists_are_kept(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lists, "_MOST_RECORDS", 9)
    lake.config = lake.config.with_table_properties({"commit.manifest-merge.enabled": "false"})
    commit(lake.driver(), *range(12))
    assert sum(len(listed) + 1 for listed in lists._written.values()) <= 9
    assert lake.rows() == list(range(12))


def test_a_commit_asks_the_storage_for_no_list_it_has_written(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    real = FsspecInputFile.open

    def open_noted(file: FsspecInputFile, seekable: bool = True) -> object:
        opened.append(file.location)
        return real(file, seekable)

    monkeypatch.setattr(FsspecInputFile, "open", open_noted)
    commit(lake.driver(), *range(3))
    assert [location for location in opened if "/snap-" in location] == []
