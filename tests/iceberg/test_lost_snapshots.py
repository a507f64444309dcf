"""Metadata that lacks the snapshot of a branch or tag is an error by name for everyone: never an empty table."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.recovery.lake import QUERY, Lake, write
from tests.tiers import in_turn
from volley import CatalogError, Environment, MaterializedView
from volley.iceberg import (
    IcebergSinkConfig,
    IcebergSource,
    IcebergSourceConfig,
    IcebergTable,
    SchemaEvolution,
    SnapshotManager,
    changes_between,
    remove_orphan_files,
)


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    made = Lake(tmp_path)
    driver = made.driver()
    for number in range(3):
        driver.commit(*write(driver, number, [number]))
    SnapshotManager(made.config).create_tag("old", made.table().snapshots()[0].snapshot_id)
    yield made
    made.close()


def damage(lake: Lake, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change the table's metadata file, as a lost write or a tool does."""
    place = Path(lake.table().metadata_location.removeprefix("file://"))
    metadata = json.loads(place.read_text())
    change(metadata)
    place.write_text(json.dumps(metadata))


def without_snapshots(metadata: dict[str, Any]) -> None:
    metadata["snapshots"] = []


def without_refs_and_snapshots(metadata: dict[str, Any]) -> None:
    """As of format version 1, or of a writer that knows no references."""
    metadata["snapshots"] = []
    del metadata["refs"]


def without_a_tags_snapshot(metadata: dict[str, Any]) -> None:
    tagged = metadata["refs"]["old"]["snapshot-id"]
    metadata["snapshots"] = [each for each in metadata["snapshots"] if each["snapshot-id"] != tagged]


def with_another_main(metadata: dict[str, Any]) -> None:
    metadata["refs"]["main"]["snapshot-id"] = metadata["snapshots"][0]["snapshot-id"]


def without_a_current_snapshot(metadata: dict[str, Any]) -> None:
    metadata["current-snapshot-id"] = -1


DAMAGES = {
    without_snapshots: "which is not among its 0 snapshots",
    without_refs_and_snapshots: "which is not among its 0 snapshots",
    without_a_tags_snapshot: "tag 'old' is snapshot",
    with_another_main: "branch 'main' is at snapshot",
    without_a_current_snapshot: "current-snapshot-id is None",
}


def refresh(lake: Lake) -> None:
    query = Environment().from_source(IcebergSource(IcebergSourceConfig(lake.config.ref)))
    MaterializedView("ids", query, IcebergSinkConfig.from_table(lake.config.ref.beside("ids"))).refresh()


USES: dict[str, Callable[[Lake], Any]] = {
    "rows": lambda lake: IcebergTable(lake.config).to_arrow(),
    "rows of a tag": lambda lake: IcebergTable(lake.config).at("old").to_arrow(),
    "snapshots": lambda lake: IcebergTable(lake.config).snapshots(),
    "changes": lambda lake: changes_between(lake.config.ref, None),
    "stream": lambda lake: Environment().from_source(IcebergSource(IcebergSourceConfig(lake.config.ref))).schema,
    "view": refresh,
    "sink": lambda lake: lake.driver(),
    "compaction": lambda lake: IcebergTable(lake.config).compact(),
    "manifests": lambda lake: IcebergTable(lake.config).rewrite_manifests(),
    "deletes": lambda lake: IcebergTable(lake.config).rewrite_position_deletes(),
    "statistics": lambda lake: IcebergTable(lake.config).compute_statistics(),
    "expiry": lambda lake: SnapshotManager(lake.config).expire_snapshots("0s"),
    "orphans": lambda lake: remove_orphan_files(lake.config, 0),
    "tag": lambda lake: SnapshotManager(lake.config).create_tag("new"),
    "rollback": lambda lake: SnapshotManager(lake.config).rollback_to(1),
    "columns": lambda lake: SchemaEvolution(lake.config.ref.load().schema()).add("a", "int").apply(lake.config),
    "plain metadata": lambda lake: lake.config.ref.load(),
}


@pytest.mark.parametrize(("use", "change"), in_turn(USES, DAMAGES))
def test_damaged_metadata_is_named(use: str, change: Callable[..., None], lake: Lake) -> None:
    files = lake.files()
    damage(lake, change)
    with pytest.raises(CatalogError, match=r"metadata of table db\.events is damaged") as caught:
        USES[use](lake)
    assert DAMAGES[change] in caught.value.message
    assert caught.value.hint
    assert all(file.exists() for file in files)


def test_a_job_that_runs_notices_it_too(lake: Lake) -> None:
    driver, other = lake.driver(), lake.driver()
    written = write(driver, 3, [3])
    other.commit(*write(other, 3, [3]))
    damage(lake, without_snapshots)
    with pytest.raises(CatalogError, match="is damaged"):
        driver.last_epoch(QUERY)
    with pytest.raises(CatalogError, match="is damaged"):
        driver.commit(*written)


@pytest.mark.parametrize("current", [-1, None])
def test_an_empty_table_is_none(current: int | None, tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.driver()
    damage(lake, lambda metadata: metadata.update({"current-snapshot-id": current}))
    assert IcebergTable(lake.config).to_arrow().num_rows == 0
    lake.close()
