"""Maintenance beside a job's epochs: the table stays small and whole, no epoch waits for it or fails by it."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from tests.tiers import some
from tests.upserts.conftest import MakeLake
from tests.upserts.lake import QUERY, Lake, do
from tests.waiting import wait_until
from volley import IcebergSink, SinkContext, WriteResult
from volley.contracts.sink import ExecutorTask
from volley.iceberg import (
    Append,
    IcebergTable,
    Maintenance,
    SnapshotManager,
    Upsert,
    orphan_files,
    publish_branch,
)
from volley.iceberg.maintain import compaction, manifests
from volley.iceberg.maintain.committer import MaintainingCommitter
from volley.iceberg.maintain.lease import LEASE, Lease
from volley.iceberg.maintain.maintainer import _JobStops
from volley.iceberg.modes import CommitMode

SCHEMA = pa.schema({"id": pa.int64(), "name": pa.string()})
OFTEN = Maintenance(commits=10, budget=1.0, expire_after="1ms", retain_last=5)

Open = Callable[..., tuple[Lake, MaintainingCommitter]]


@pytest.fixture
def opened(make_lake: MakeLake) -> Iterator[Open]:
    """Opens the committer of a job with maintenance, and stops it in the end."""
    committers: list[MaintainingCommitter] = []

    def made(
        mode: CommitMode = Append(),  # noqa: B008
        maintenance: Maintenance = OFTEN,
        run: Callable[[Sequence[ExecutorTask]], list[WriteResult]] = do,
        branch: str = "main",
        schema: pa.Schema = SCHEMA,
        **properties: str,
    ) -> tuple[Lake, MaintainingCommitter]:
        lake = make_lake(mode, schema, **properties)
        lake.config = lake.config.with_maintenance(maintenance).with_branch(branch)
        committer = IcebergSink(lake.config).open(SinkContext("job", schema, lake.metrics, do, run_beside=run))
        assert isinstance(committer, MaintainingCommitter)
        committers.append(committer)
        return lake, committer

    yield made
    for committer in committers:
        committer.stop()
        committer._catalog.close()


def commit(lake: Lake, committer: MaintainingCommitter, number: int, *ids: int) -> None:
    commit_rows(lake, committer, number, [{"id": each, "name": str(number)} for each in ids])


def commit_rows(lake: Lake, committer: MaintainingCommitter, number: int, rows: list[dict[str, Any]]) -> None:
    committer.last_epoch(QUERY)
    committer.commit(*lake.write(committer, number, rows))


def names(committer: MaintainingCommitter) -> list[str]:
    """The actions that have done something so far."""
    return [run.action for run in committer.maintenance.runs if run.succeeded]


@pytest.mark.parametrize("strategy", some(["merge_on_read", "copy_on_write"]))
def test_a_table_that_is_upserted_stays_small_and_keeps_its_rows(opened: Open, strategy: Any) -> None:
    lake, committer = opened(Upsert("id", strategy=strategy))
    committer.start()
    chance, model = random.Random(7), dict[int, str]()
    for number in range(60):
        ids = chance.sample(range(200), 8)
        commit(lake, committer, number, *ids)
        model |= dict.fromkeys(ids, str(number))
    wait_until(lambda: {"compaction", "expiry"} <= set(names(committer)), 60, "maintenance")
    committer.stop()
    assert lake.rows() == lake.duckdb_rows()
    assert {row["id"]: row["name"] for row in lake.rows()} == model
    assert committer.last_epoch(QUERY) == 59
    assert all(run.succeeded for run in committer.maintenance.runs)
    assert lake.metrics.commit_retries == 0
    assert LEASE not in lake.table().properties
    assert len(lake.table().snapshots()) < 60
    assert orphan_files(lake.config, 0) == []


@pytest.mark.parametrize("strategy", some(["merge_on_read", "copy_on_write"]))
def test_a_table_that_is_upserted_by_sequence_stays_small_and_remembers(opened: Open, strategy: Any) -> None:
    mode = Upsert("id", sequence="at", op_field="op", strategy=strategy)
    lake, committer = opened(mode, schema=pa.schema({"id": pa.int64(), "at": pa.int64(), "op": pa.string()}))
    committer.start()
    chance, model = random.Random(7), dict[int, tuple[int, str]]()
    for number in range(60):
        rows: list[dict[str, Any]] = [
            {"id": chance.randrange(40), "at": chance.randrange(1000), "op": chance.choice("uud")} for _ in "12345"
        ]
        commit_rows(lake, committer, number, rows)
        for row in rows:
            # A deletion wins over a row of its time.
            change = row["at"], "" if row["op"] == "u" else row["op"]
            model[row["id"]] = max(change, model.get(row["id"], change))
    wait_until(lambda: {"compaction", "expiry"} <= set(names(committer)), 60, "maintenance")
    committer.stop()
    assert lake.rows() == lake.duckdb_rows()
    assert {row["id"]: (row["at"], "") for row in lake.rows()} == {k: v for k, v in model.items() if not v[1]}
    assert all(run.succeeded for run in committer.maintenance.runs)
    assert len(lake.table().snapshots()) < 60
    assert orphan_files(lake.config, 0) == []


@pytest.mark.parametrize("strategy", some(["merge_on_read", "copy_on_write"]))
def test_rows_that_grow_old_leave_a_table_that_is_written(opened: Open, strategy: Any) -> None:
    ageing = Maintenance(every="1s", commits=5, budget=1.0, row_ttl="10s", row_ttl_column="at")
    mode, schema = Upsert("id", strategy=strategy), pa.schema({"id": pa.int64(), "at": pa.timestamp("us", "UTC")})
    lake, committer = opened(mode, ageing, schema=schema)
    committer.start()
    chance, model, now = random.Random(7), dict[int, datetime](), datetime.now(UTC)
    for number in range(40):
        rows: list[dict[str, Any]] = [
            {"id": chance.randrange(60), "at": now + chance.choice((-3, -2, 1)) * timedelta(hours=1)} for _ in "1234"
        ]
        commit_rows(lake, committer, number, rows)
        model |= {row["id"]: row["at"] for row in rows}
    young = {id: at for id, at in model.items() if at > now}
    assert 0 < len(young) < len(model)
    wait_until(lambda: len(lake.rows()) == len(young), 60, "the old rows are gone")
    committer.stop()
    assert lake.rows() == lake.duckdb_rows()
    assert {row["id"]: row["at"] for row in lake.rows()} == young
    assert committer.last_epoch(QUERY) == 39
    assert all(run.succeeded for run in committer.maintenance.runs)


def test_it_is_due_after_some_commits_and_says_so(opened: Open) -> None:
    lake, committer = opened(maintenance=Maintenance(commits=9, budget=1.0))
    committer.start()
    assert str(committer.maintenance) == "db.events: due after 9 more commits"
    for number in range(8):
        commit(lake, committer, number, number)
    assert str(committer.maintenance).endswith("s, or after 1 more commits")
    assert committer.maintenance.runs == ()
    commit(lake, committer, 8, 8)
    wait_until(lambda: names(committer), 60, "compaction")
    assert "9 data files" in str(committer.maintenance)
    assert len(lake.table().inspect.data_files()) == 1


def test_it_is_due_after_some_time(opened: Open) -> None:
    lake, committer = opened(maintenance=Maintenance(every="1ms", commits=1_000_000, budget=1.0))
    for number in range(9):
        commit(lake, committer, number, number)
    committer.start()
    wait_until(lambda: names(committer), 60, "compaction")


@pytest.mark.format_2
def test_it_is_due_after_some_delete_files(opened: Open) -> None:
    settings = Maintenance(commits=1_000_000, delete_files=3, budget=1.0)
    lake, committer = opened(Upsert("id", strategy="merge_on_read"), settings)
    commit(lake, committer, 0, *range(100))
    committer.start()
    for number in (1, 2):
        commit(lake, committer, number, number)
    assert not committer.maintenance.due["db.events"].startswith("in 0 s")
    assert names(committer) == []
    commit(lake, committer, 3, 3)
    wait_until(lambda: "deletes" in names(committer), 60, "the merge of the delete files")
    assert len(lake.table().inspect.delete_files()) == 1
    assert len(lake.rows()) == 100


def test_it_rests_as_its_budget_says(opened: Open) -> None:
    # The budget is one millisecond a second: after a pass of some milliseconds it rests for seconds.
    lake, committer = opened(maintenance=Maintenance(commits=1, budget=0.001, every="1s"))
    committer.start()
    commit(lake, committer, 0, 0)
    wait_until(lambda: committer._maintainer._budget.rest, 60, "the first pass")
    for number in range(1, 12):
        commit(lake, committer, number, number)
    assert committer.maintenance.runs == ()
    assert committer.maintenance.due["db.events"].startswith("in ")


def test_an_epoch_that_commits_meanwhile_meets_no_conflict(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is staged is staged anew after it, and in its turn."""
    lake, committer = opened()
    for number in range(10):
        commit(lake, committer, number, number)
    numbers = iter(range(10, 20))

    def reached(point: str, _: int) -> None:
        if point in ("before-replacement", "before-manifests") and (number := next(numbers)) < 13:
            epoch = threading.Thread(target=commit, args=[lake, committer, number, number])
            epoch.start()
            # It waits for its turn once an attempt has failed.
            epoch.join(5 if number in (10, 12) else 0.2)
            assert epoch.is_alive() == (number not in (10, 12))

    monkeypatch.setattr(compaction, "reach", reached)
    monkeypatch.setattr(manifests, "reach", reached)
    committer._maintainer._maintain()
    wait_until(lambda: committer.last_epoch(QUERY) >= 11, 30, "the epochs")  # type: ignore[operator]
    assert names(committer)[0] == "compaction"
    assert lake.metrics.commit_retries == 0
    assert [row["id"] for row in sorted(lake.rows(), key=lambda row: int(row["id"]))][:12] == list(range(12))


def test_an_epoch_is_known_after_all_its_snapshots_expired(opened: Open) -> None:
    """A job that goes on another branch looks for its epochs in the branch's snapshots."""
    lake, committer = opened(branch="audit")
    for number in range(10):
        commit(lake, committer, number, number)
    committer._maintainer._maintain()
    assert "compaction" in names(committer)
    publish_branch(lake.config)
    IcebergTable(lake.config.with_branch("main")).rewrite_manifests()
    SnapshotManager(lake.config).expire_snapshots("0s", 1)
    assert len(lake.table().snapshots()) == 1
    lake.config = lake.config.with_branch("main")
    on_main = lake.driver()
    assert on_main.last_epoch(QUERY) == 9
    on_main.commit(*lake.write(on_main, 10, [{"id": 10, "name": "10"}]))
    assert [row["id"] for row in sorted(lake.rows(), key=lambda row: int(row["id"]))] == list(range(11))


@pytest.mark.format_2
def test_delete_files_are_merged(opened: Open) -> None:
    settings = Maintenance(commits=10, compact_below=None, expire_after=None, retain_most=None, manifests=False)
    lake, committer = opened(Upsert("id", strategy="merge_on_read"), settings)
    commit(lake, committer, 0, *range(100))
    for number in range(1, 6):
        commit(lake, committer, number, number)
    before = len(lake.table().inspect.delete_files())
    committer._maintainer._maintain()
    assert names(committer) == ["deletes"]
    assert len(lake.table().inspect.delete_files()) == 1 < before
    assert lake.rows() == lake.duckdb_rows()
    assert len(lake.rows()) == 100


def test_what_the_table_does_not_allow_is_said_at_the_start(opened: Open, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "volley"):
        lake, committer = opened(gc_enabled="false")
    assert [record.levelname for record in caplog.records if "gc.enabled is false" in record.message] == ["WARNING"]
    for number in range(10):
        commit(lake, committer, number, number)
    committer._maintainer._maintain()
    assert all(run.succeeded for run in committer.maintenance.runs)
    assert "compaction" in names(committer)
    assert "expiry" not in names(committer)


def test_what_the_table_does_not_allow_any_more_is_logged_once(opened: Open, caplog: pytest.LogCaptureFixture) -> None:
    lake, committer = opened()
    for number in range(10):
        commit(lake, committer, number, number)
    with lake.table().transaction() as transaction:
        transaction.set_properties({"gc.enabled": "false"})
    with caplog.at_level(logging.INFO, "volley"):
        committer._maintainer._maintain()
        committer._maintainer._maintain()
    assert [run.action for run in committer.maintenance.runs if not run.succeeded] == ["expiry"]
    assert [record.levelname for record in caplog.records if "gc.enabled is false" in record.message] == ["WARNING"]
    assert "compaction" in names(committer)


def test_a_failure_is_logged_and_tried_again(opened: Open, caplog: pytest.LogCaptureFixture) -> None:
    failures = iter([OSError("no space left on device")])

    def run(tasks: Sequence[ExecutorTask]) -> list[WriteResult]:
        for failure in failures:
            raise failure
        return do(tasks)

    lake, committer = opened(run=run)
    for number in range(10):
        commit(lake, committer, number, number)
    committer._maintainer._maintain()
    assert next((run.action, run.succeeded) for run in committer.maintenance.runs) == ("compaction", False)
    assert "OSError: no space left on device" in caplog.text
    assert (lake.metrics.maintenance_failed, lake.metrics.maintenance_runs) == (1, len(names(committer)))
    committer._maintainer._maintain()
    assert "compaction" in names(committer)
    assert [row["id"] for row in lake.rows()] == list(range(10))


def test_a_job_that_stops_waits_for_one_task_at_most(opened: Open) -> None:
    begun: list[ExecutorTask] = []

    def run(tasks: Sequence[ExecutorTask]) -> list[WriteResult]:
        begun.extend(tasks)
        stopping = threading.Thread(target=committer.stop)
        stopping.start()
        wait_until(lambda: committer._maintainer._stopping, 10, "the stop")
        return do(tasks)

    _, committer = opened(run=run)
    with pytest.raises(_JobStops):
        committer._maintainer._run_tasks([WriteResult, WriteResult])
    assert len(begun) == 1


def test_two_jobs_take_turns(opened: Open) -> None:
    lake, _ = opened()
    ref = lake.config.ref
    first, second = Lease(ref, "one job", 600), Lease(ref, "another", 600)
    assert first.take()
    assert not second.take()
    assert first.take()
    second.release()
    assert not second.take()
    first.release()
    assert second.take()
    assert lake.table().properties[LEASE].endswith(" another")


def test_an_expired_lease_is_taken_over_and_a_valid_one_renewed_in_time(opened: Open) -> None:
    lake, _ = opened()
    ref = lake.config.ref
    gone, other = Lease(ref, "gone", 0.001), Lease(ref, "other", 600)
    assert gone.take()
    wait_until(other.take, 10, "the lease")
    assert not gone.take()
    before = lake.table().metadata_location
    assert other.take()
    # More than half of its time is left: nothing is committed.
    assert lake.table().metadata_location == before
    other._seconds = 1_000_000
    assert other.take()
    assert lake.table().metadata_location != before


def test_another_job_holds_the_lease(opened: Open) -> None:
    lake, committer = opened()
    for number in range(10):
        commit(lake, committer, number, number)
    assert Lease(lake.config.ref, "another", 600).take()
    committer._maintainer._maintain()
    assert committer.maintenance.runs == ()
    assert len(lake.table().inspect.data_files()) == 10
