"""Partitions, sort order and branches end to end: what goes in comes out, read back by engines we did not write."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform

from volley import ConfigError, Environment, IcebergSink, IcebergSinkConfig, MemorySource, SnapshotManager
from volley.errors import CommitConflictError
from volley.iceberg import Partitioning, publish_branch

Load = Callable[[], Table]
Rows = Callable[[], list[dict[str, Any]]]

BEFORE = datetime(1969, 12, 31, 20, tzinfo=UTC)
EVENTS = [{"id": i, "kind": f"k {i % 5}", "at": BEFORE + timedelta(hours=i)} for i in range(60)]


def source(events: list[dict[str, Any]], rows_per_epoch: int = 20) -> MemorySource:
    return MemorySource(events, schema="id long, kind string, at timestamp", rows_per_epoch=rows_per_epoch)


def data_paths(table: Table, branch: str = "main") -> list[str]:
    tasks = table.scan().use_ref(branch).plan_files() if table.refs() else []
    return [task.file.file_path.removeprefix("file://") for task in tasks]


@pytest.mark.parametrize(
    ("how", "row_filter"),
    [
        (Partitioning.identity("kind"), "kind = 'k 3'"),
        (Partitioning.bucket("id", n=4), "id = 17"),
        (Partitioning.truncate("id", width=10), "id >= 20 and id < 30"),
        (Partitioning.time("at", granularity="hour"), "at = '1970-01-01T00:00:00+00:00'"),
        ([Partitioning.time("at"), Partitioning.bucket("kind", n=2)], "at < '1970-01-01T00:00:00+00:00'"),
    ],
    ids=["identity", "bucket", "truncate", "hour", "list"],
)
def test_a_new_table_is_partitioned(
    environment: Environment, config: IcebergSinkConfig, load: Load, rows: Rows, how: Any, row_filter: str
) -> None:
    sink = IcebergSink(config.with_partitioning(how).with_table_properties({"write.metadata.metrics.default": "none"}))
    environment.from_source(source(EVENTS)).to_sink(sink).execute("partitioned")
    assert rows() == EVENTS
    table = load()
    assert len(table.snapshots()) == 3
    scan = table.scan(row_filter=row_filter)
    assert 0 < len(list(scan.plan_files())) < len(list(table.scan().plan_files()))
    assert 0 < scan.to_arrow().num_rows < len(EVENTS)
    found = duckdb.sql(f"select id, kind from read_parquet({data_paths(table)}, hive_partitioning=false) order by id")
    assert found.fetchall() == [(event["id"], event["kind"]) for event in EVENTS]


def test_an_existing_tables_spec_wins_and_a_conflict_shows_both(
    native: Environment, config: IcebergSinkConfig, load: Load, rows: Rows
) -> None:
    by_kind = config.with_partitioning(Partitioning.identity("kind"))
    native.from_source(source(EVENTS[:20])).to_sink(IcebergSink(by_kind)).execute("one")
    native.from_source(source(EVENTS[20:40])).to_sink(IcebergSink(config)).execute("two")
    with pytest.raises(ConfigError, match=r"Partitioning\(identity\(kind\)\).*Partitioning\(day\(at\)\)"):
        native.from_source(source(EVENTS[40:])).to_sink(
            IcebergSink(config.with_partitioning(Partitioning.time("at")))
        ).execute("three")
    assert rows() == EVENTS[:40]
    assert {str(task.file.partition[0]) for task in load().scan().plan_files()} == {f"k {n}" for n in range(5)}


def test_a_spec_that_evolves_between_runs_is_followed(
    environment: Environment, config: IcebergSinkConfig, load: Load, rows: Rows
) -> None:
    by_kind = config.with_partitioning(Partitioning.identity("kind"))
    environment.from_source(source(EVENTS[:20])).to_sink(IcebergSink(by_kind)).execute("one")
    with load().update_spec() as update:
        update.remove_field("kind").add_field("at", "day", "at_day")
    environment.from_source(source(EVENTS[20:])).to_sink(IcebergSink(config)).execute("two")
    assert rows() == EVENTS
    table = load()
    assert {task.file.spec_id for task in table.scan().plan_files()} == {0, table.spec().spec_id}
    assert table.scan(row_filter="kind = 'k 3'").to_arrow().num_rows == 12


def test_a_partitioning_of_a_missing_column_is_an_error_before_anything_is_made(
    native: Environment, config: IcebergSinkConfig, load: Load
) -> None:
    sink = IcebergSink(config.with_partitioning(Partitioning.identity("kindd")))
    with pytest.raises(ConfigError, match="no column 'kindd'") as caught:
        native.from_source(source(EVENTS)).to_sink(sink).execute("typo")
    assert "did you mean 'kind'" in str(caught.value.hint)


def test_the_tables_sort_order_is_that_of_its_files(
    environment: Environment, config: IcebergSinkConfig, load: Load, rows: Rows
) -> None:
    by_kind = config.with_partitioning(Partitioning.bucket("id", n=2))
    environment.from_source(source(EVENTS[:1])).to_sink(IcebergSink(by_kind)).execute("made")
    with load().update_sort_order() as update:
        update.asc("kind", IdentityTransform()).desc("id", IdentityTransform())
    environment.from_source(source(EVENTS[1:], 60)).to_sink(IcebergSink(config)).execute("sorted")
    assert rows() == EVENTS
    for path in data_paths(load()):
        written = pq.read_table(path, partitioning=None).to_pylist()
        assert written == sorted(written, key=lambda row: (row["kind"], -row["id"]))


def test_write_audit_publish(environment: Environment, config: IcebergSinkConfig, load: Load, rows: Rows) -> None:
    environment.from_source(source(EVENTS[:20])).to_sink(IcebergSink(config)).execute("main")
    audit = config.with_branch("audit")

    environment.from_source(source(EVENTS[20:])).to_sink(IcebergSink(audit)).execute("events")
    assert load().scan().use_ref("audit").to_arrow().num_rows == 60
    assert rows() == EVENTS[:20]
    found = duckdb.sql(f"select count(*), max(id) from read_parquet({data_paths(load(), 'audit')})").fetchall()
    assert found == [(60, 59)]

    head = publish_branch(audit)
    assert rows() == EVENTS
    assert load().metadata.current_snapshot_id == head == publish_branch(audit)


def test_a_branch_of_an_empty_table(native: Environment, config: IcebergSinkConfig, load: Load, rows: Rows) -> None:
    audit = config.with_branch("audit")
    native.from_source(source(EVENTS)).to_sink(IcebergSink(audit)).execute("events")
    assert rows() == []
    publish_branch(audit)
    assert rows() == EVENTS


def test_a_branch_that_somebody_drops_is_not_made_again_without_its_rows(
    native: Environment, config: IcebergSinkConfig, load: Load, rows: Rows
) -> None:
    native.from_source(source(EVENTS[:20])).to_sink(IcebergSink(config)).execute("main")
    audit = IcebergSink(config.with_branch("audit"))
    native.from_source(source(EVENTS[20:40])).to_sink(audit).execute("events")
    last = load().metadata.refs["audit"].snapshot_id
    SnapshotManager(config.ref).drop_branch("audit")
    both = native.from_source(source(EVENTS[20:]))
    with pytest.raises(CommitConflictError, match=r"branch 'audit' of table .* was dropped") as caught:
        both.to_sink(audit).execute("events")
    assert f"create_branch('audit', {last})" in str(caught.value.hint)
    SnapshotManager(config.ref).create_branch("audit", last)
    both.to_sink(audit).execute("events")
    assert sorted(load().scan().use_ref("audit").to_arrow()["id"].to_pylist()) == [row["id"] for row in EVENTS]
    assert rows() == EVENTS[:20]


def test_a_job_goes_on_with_its_branch_after_it_was_published(
    native: Environment, config: IcebergSinkConfig, load: Load, rows: Rows
) -> None:
    audit = config.with_branch("audit")
    native.from_source(source(EVENTS[:20])).to_sink(IcebergSink(audit)).execute("one")
    publish_branch(audit)
    native.from_source(source(EVENTS[20:])).to_sink(IcebergSink(audit)).execute("two")
    assert rows() == EVENTS[:20]
    publish_branch(audit)
    assert rows() == EVENTS


def test_a_branch_that_main_has_left_behind_is_not_published(
    native: Environment, config: IcebergSinkConfig, rows: Rows
) -> None:
    audit = config.with_branch("audit")
    native.from_source(source(EVENTS[:20])).to_sink(IcebergSink(audit)).execute("audited")
    native.from_source(source(EVENTS[20:])).to_sink(IcebergSink(config)).execute("main")
    with pytest.raises(CommitConflictError, match="main is at snapshot") as caught:
        publish_branch(audit)
    assert caught.value.hint
    assert rows() == EVENTS[20:]


def test_what_can_not_be_published_or_written_to(native: Environment, config: IcebergSinkConfig, load: Load) -> None:
    native.from_source(source(EVENTS)).to_sink(IcebergSink(config)).execute("main")
    for branch in ("main", "audit"):
        with pytest.raises(ConfigError, match=f"branch '{branch}'.*can't be published") as caught:
            publish_branch(config.with_branch(branch))
        assert "main" in str(caught.value.hint)
    head = load().metadata.current_snapshot_id
    assert head is not None
    load().manage_snapshots().create_tag(head, "v1").commit()
    with pytest.raises(ConfigError, match=r"'v1' of table db\.events is a tag"):
        native.from_source(source(EVENTS)).to_sink(IcebergSink(config.with_branch("v1"))).execute("tag")
