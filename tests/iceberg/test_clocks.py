"""Times in metadata never go back, whatever the clocks of writers say: Iceberg's Java library refuses such a table."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog as PlainCatalog
from pyiceberg.table import Table

from tests.iceberg.clocks import AHEAD, check_times, clock
from tests.recovery.lake import SCHEMA, Lake, write
from volley import Environment, MaterializedView, Metrics, SinkContext, col, lit
from volley.iceberg import (
    IcebergSink,
    IcebergSinkConfig,
    IcebergSource,
    IcebergSourceConfig,
    IcebergTable,
    Overwrite,
    SchemaEvolution,
    SnapshotManager,
    Upsert,
    publish_branch,
)
from volley.iceberg.maintain.lease import Lease

HOURS_MS = AHEAD * 1000


def clock_ahead() -> AbstractContextManager[None]:
    """The clock of this process is two hours ahead."""
    return clock(lambda now: now + AHEAD)


def other_writer(lake: Lake, table: str = "events") -> Table:
    """The table in plain pyiceberg."""
    with PlainCatalog("volley", uri=f"sqlite:///{lake.folder}/lake/catalog.db") as catalog:
        return catalog.load_table(f"db.{table}")


def metadata_of(lake: Lake, table: str = "events") -> dict[str, Any]:
    place = other_writer(lake, table).metadata_location
    metadata: dict[str, Any] = json.loads(Path(place.removeprefix("file://")).read_text())
    return metadata


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    made = Lake(tmp_path)
    yield made
    made.close()


@pytest.fixture
def ahead(lake: Lake) -> Lake:
    """Three snapshots of a job; the fourth is another writer's, whose clock is two hours ahead."""
    driver = lake.driver()
    for number in range(3):
        driver.commit(*write(driver, number, [number]))
    with clock_ahead():
        other_writer(lake).append(pa.table({"id": [99]}))
    return lake


def append(lake: Lake) -> None:
    driver = lake.driver()
    driver.commit(*write(driver, 3, [3]))


def with_mode(mode: Any) -> Callable[[Lake], None]:
    def commit(lake: Lake) -> None:
        context = SinkContext("job", SCHEMA, Metrics())
        committer = IcebergSink(lake.config.with_commit_mode(mode)).open(context)
        committer.commit(*write(committer, 3, [99]))  # type: ignore[arg-type]

    return commit


def to_branch(lake: Lake) -> None:
    audit = lake.config.with_branch("audit")
    committer: Any = IcebergSink(audit).open(SinkContext("job", SCHEMA, Metrics()))
    committer.commit(*write(committer, 3, [3]))
    check_times(metadata_of(lake))
    publish_branch(audit)


def roll_back(lake: Lake) -> None:
    manager = SnapshotManager(lake.config)
    manager.rollback_to(manager.list_snapshots()[0].id)


def back_and_forth(lake: Lake) -> None:
    manager = SnapshotManager(lake.config)
    first, *_, last = manager.list_snapshots()
    manager.rollback_to(first.id)
    manager.rollback_to(last.id)
    append(lake)


def start_over(lake: Lake) -> None:
    lake.driver().clear()


ACTIONS: dict[str, Callable[[Lake], Any]] = {
    "append": append,
    "overwrite": with_mode(Overwrite()),
    "upsert": with_mode(Upsert("id")),
    "branch": to_branch,
    "start over": start_over,
    "compaction": lambda lake: IcebergTable(lake.config).compact(least_files=2),
    "manifests": lambda lake: IcebergTable(lake.config).rewrite_manifests(),
    "statistics": lambda lake: IcebergTable(lake.config).compute_statistics(),
    "expiry": lambda lake: SnapshotManager(lake.config).expire_snapshots("0s"),
    "tag": lambda lake: SnapshotManager(lake.config).create_tag("audited"),
    "empty snapshot": lambda lake: SnapshotManager(lake.config).create_snapshot(tag="release"),
    "rollback": roll_back,
    "back and forth": back_and_forth,
    "columns": lambda lake: SchemaEvolution(lake.config.ref.load().schema()).add("name", "string").apply(lake.config),
    "properties": lambda lake: Lease(lake.config.ref, "job", 60).take(),
}


@pytest.mark.parametrize("action", ACTIONS.values(), ids=ACTIONS)
def test_a_clock_behind_the_tables_does_not_turn_its_times_back(action: Callable[[Lake], Any], ahead: Lake) -> None:
    before = metadata_of(ahead)
    action(ahead)
    after = metadata_of(ahead)
    assert after["last-updated-ms"] >= before["last-updated-ms"]
    assert len(after["metadata-log"]) > len(before["metadata-log"])
    check_times(after)


def test_a_view_that_was_refreshed_by_another_clock(ahead: Lake) -> None:
    rows = Environment().from_source(IcebergSource(IcebergSourceConfig(ahead.config.ref)))
    view = MaterializedView(
        "ids", rows.filter(col("id").gt_eq(lit(1))), IcebergSinkConfig.from_table(ahead.config.ref.beside("ids"))
    )
    with clock_ahead():
        view.refresh()
    append(ahead)
    view.refresh("incremental")
    assert sorted(IcebergTable(view.into).to_arrow()["id"].to_pylist()) == [1, 2, 3, 99]
    check_times(metadata_of(ahead, "ids"))


@pytest.mark.parametrize("action", ACTIONS.values(), ids=ACTIONS)
def test_times_stay_those_of_the_clock_where_it_is_not_behind(action: Callable[[Lake], Any], lake: Lake) -> None:
    driver = lake.driver()
    for number in range(3):
        driver.commit(*write(driver, number, [number]))
    began = int(time.time() * 1000)
    action(lake)
    metadata = metadata_of(lake)
    check_times(metadata)
    assert began <= metadata["last-updated-ms"] <= int(time.time() * 1000)


def test_a_snapshot_that_is_asked_for_by_its_time(ahead: Lake) -> None:
    append(ahead)
    manager = SnapshotManager(ahead.config)
    *_, third, other, last = manager.list_snapshots()
    assert (other.committed_at, last.parent_id) == (last.committed_at, other.id)
    assert manager.snapshot_at_timestamp(last.committed_at).id == last.id
    assert manager.snapshot_at_timestamp(third.committed_at).id == third.id
    assert ahead.rows() == [0, 1, 2, 3, 99]
