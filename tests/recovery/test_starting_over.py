"""A job that starts over, or fills a new sink: nothing is deleted too early, no row is missing or there twice."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession

from tests.recovery.memory_job import MemoryJob
from tests.tiers import some
from volley import (
    Committer,
    ConsoleSink,
    Environment,
    Epoch,
    IcebergSink,
    IcebergSinkConfig,
    IcebergStorage,
    MemorySource,
    PlanError,
    RateSource,
    Sink,
    SinkContext,
    StorageError,
    Writer,
    WriteResult,
)
from volley.iceberg import IcebergTable, publish_branch


@pytest.fixture
def job(spark: SparkSession, tmp_path: Path) -> MemoryJob:
    return MemoryJob(spark, tmp_path)


class Forgetful(Sink):
    """A sink that keeps no epochs and can't be emptied."""

    def open(self, context: SinkContext) -> Committer:
        return _Forgetful()


class _Forgetful(Committer):
    def last_epoch(self, query_id: str) -> int | None:
        return None

    def writer(self, epoch: Epoch) -> Writer:
        raise AssertionError("the job must not come so far")

    def commit(self, epoch: Epoch, results: Sequence[WriteResult]) -> None: ...

    def abort(self, epoch: Epoch, results: Sequence[WriteResult]) -> None: ...


def forget_epochs(job: MemoryJob) -> None:
    """Delete offsets and commits, as is often advised for starting a Spark query over."""
    for name in ("offsets", "commits"):
        shutil.rmtree(job.checkpoint / name)


@pytest.mark.parametrize("target", ["table", "files"])
def test_a_sink_is_filled_again_when_the_checkpoint_has_lost_its_epochs_alone(target: str, job: MemoryJob) -> None:
    sink = getattr(job, target)("out")
    job.run(4, sink)
    forget_epochs(job)
    job.run(4, sink, into="replace")
    assert job.ids("out") == [0, 1, 2, 3]
    forget_epochs(job)
    job.run(2, sink, into="append")
    assert job.ids("out") == [0, 0, 1, 1, 2, 3]


def test_epochs_that_the_checkpoint_has_lost_are_found_in_the_table(job: MemoryJob) -> None:
    job.run(4, job.table("a"))
    forget_epochs(job)
    assert job.run(6, job.table("a")).skipped == 2
    assert job.ids("a") == [0, 1, 2, 3, 4, 5]


def test_nothing_is_emptied_if_one_of_the_sinks_can_t_be(job: MemoryJob) -> None:
    job.run(4, job.table("a"))
    with pytest.raises(PlanError, match="can't be emptied"):
        job.run(4, job.table("a"), Forgetful(), fresh=True, into="replace")
    assert job.ids("a") == [0, 1, 2, 3]
    assert job.run(6, job.table("a")).rows == 2


def test_the_console_has_nothing_to_empty(job: MemoryJob) -> None:
    job.run(2, job.table("a"), ConsoleSink())
    job.run(2, job.table("a"), ConsoleSink(), fresh=True, into="replace")
    assert job.ids("a") == [0, 1]


@pytest.mark.parametrize("target", ["table", "files"])
def test_one_target_under_two_names_is_refused(target: str, job: MemoryJob) -> None:
    if target == "table":
        first, name, link = job.table("a"), "lake", IcebergStorage.Local(str(job.folder / "link"))
        second: Sink = IcebergSink(IcebergSinkConfig(namespace=["db"], table="a", storage=link))
    else:
        first, name, second = job.files("out"), "out", job.files("link")  # type: ignore[assignment]
    os.symlink(job.folder / name, job.folder / "link")
    with pytest.raises(PlanError, match=r"two sinks or dead letters of this stream write to .*, under two names"):
        job.run(2, first, second)
    job.run(2, first)
    assert job.ids("a" if target == "table" else "out") == [0, 1]


def test_a_backfill_of_rows_that_are_there_already_is_refused(job: MemoryJob) -> None:
    both = job.table("b"), job.table("a")
    job.run(4, job.table("a"))
    job.run(4, job.table("b"), fresh=True)
    with pytest.raises(PlanError, match=r"table db\.a has rows of earlier queries .*: a backfill would add every row"):
        job.run(4, *both, backfill=True)
    assert job.ids("a") == [0, 1, 2, 3]
    job.run(6, *both, backfill=True, into="replace")
    assert job.ids("a") == job.ids("b") == [0, 1, 2, 3, 4, 5]
    job.run(6, *both, backfill=True, into="replace")
    assert job.ids("a") == job.ids("b") == [0, 1, 2, 3, 4, 5]


def killed(job: MemoryJob, moved: list[str], complete: bool) -> None:
    """The folder as a start over leaves it that dies when it has set these aside."""
    aside = job.checkpoint / "replaced"
    aside.mkdir()
    for name in moved:
        shutil.move(job.checkpoint / name, aside / name)
    if complete:
        (aside / "complete").touch()
        (job.checkpoint / "volley").mkdir()
        (job.checkpoint / "volley" / "pipeline.json").write_text("{}")


PARTS = ["metadata", "offsets", "commits", "volley"]


@pytest.mark.parametrize("moved", some(range(len(PARTS), 0, -1)))
@pytest.mark.parametrize("fresh", some([False, True]))
def test_a_start_over_that_was_killed_is_undone(fresh: bool, moved: int, job: MemoryJob) -> None:
    job.run(4, job.table("a"))
    killed(job, PARTS[:moved], complete=moved == len(PARTS))
    if fresh:
        # Refused as well: the checkpoint that was set aside first is put back.
        with pytest.raises(PlanError, match="would read its sources from the beginning"):
            job.run(6, job.table("a"), fresh=True)
    assert job.run(6, job.table("a")).rows == 2
    assert job.ids("a") == [0, 1, 2, 3, 4, 5]
    assert not (job.checkpoint / "replaced").exists()


def test_a_start_over_that_was_killed_while_it_deleted_is_finished(job: MemoryJob) -> None:
    job.run(4, job.table("a"))
    killed(job, PARTS, complete=True)
    (job.checkpoint / "replaced" / "forgotten").touch()
    shutil.rmtree(job.checkpoint / "replaced" / "commits")
    with pytest.raises(PlanError, match="would read its sources from the beginning"):
        job.run(6, job.table("a"))
    job.run(6, job.table("a"), into="replace")
    assert job.ids("a") == [0, 1, 2, 3, 4, 5]
    assert not (job.checkpoint / "replaced").exists()


def test_a_branch_that_lacks_the_job_s_rows_is_refused(job: MemoryJob) -> None:
    main = job.table("a")
    audit = IcebergSink(main.config.with_branch("audit"))
    job.run(2, main)
    job.run(4, audit)  # a new branch begins where main is
    with pytest.raises(PlanError, match=r"branch 'main' of table db\.a lacks rows that job 'job' has written to"):
        job.run(6, main)
    publish_branch(audit.config)
    job.run(6, main)
    assert job.ids("a") == [0, 1, 2, 3, 4, 5]
    with pytest.raises(PlanError, match=r"branch 'audit' of table db\.a lacks rows"):
        job.run(8, audit)


def test_a_lost_checkpoint_doubles_nothing_in_a_branch_that_is_new(job: MemoryJob) -> None:
    job.run(2, job.table("a"))
    job.lose_checkpoint()
    audit = IcebergSink(job.table("a").config.with_branch("audit"))
    with pytest.raises(PlanError, match="rows of earlier queries of job 'job'"):
        job.run(2, audit)
    job.run(4, audit, into="replace")
    catalog = SqlCatalog("volley", uri=f"sqlite:///{job.folder}/lake/catalog.db")
    found = catalog.load_table("db.a").scan().use_ref("audit").to_arrow()["id"].to_pylist()
    catalog.close()
    assert (sorted(found), job.ids("a")) == ([0, 1, 2, 3], [0, 1])


def test_dead_letters_of_other_jobs_stay(job: MemoryJob) -> None:
    def run(name: str, letters: str, **start: Any) -> None:
        environment = Environment(spark=job.spark, checkpoint_dir=str(job.folder / "checkpoints"))
        stream = environment.from_source(MemorySource([{"id": 1}, {"id": 0}])).map(lambda row: {"id": 1 // row["id"]})
        sink = IcebergSink(job.table(name).config.with_dead_letter(letters))
        stream.to_sink(sink).execute(name, **start)

    def jobs_of_letters() -> list[str]:
        catalog = SqlCatalog("volley", uri=f"sqlite:///{job.folder}/lake/catalog.db")
        found = catalog.load_table("db.letters").scan().to_arrow()["job"].to_pylist()
        catalog.close()
        return sorted(found)

    for name in ("a", "b"):
        run(name, "letters")
        run(name, str(job.folder / "bad"), fresh=True, into="replace")
        run(name, "letters", fresh=True, into="replace")
    assert jobs_of_letters() == ["a", "b"]
    # One file has the rows of both jobs from now on.
    assert IcebergTable(job.table("letters").config).compact().files_after == 1
    run("a", "letters", fresh=True, into="replace")
    assert jobs_of_letters() == ["a", "b"]
    lines = [line for path in (job.folder / "bad").glob("*.json") for line in path.read_text().splitlines()]
    assert sorted('"job":"a"' in line.replace(" ", "") for line in lines) == [False, True]


def test_a_running_job_s_checkpoint_is_known_by_its_url_too(spark: SparkSession, tmp_path: Path) -> None:
    def environment(folder: str) -> Environment:
        return Environment(spark=spark, checkpoint_dir=folder, checkpoint_interval=0)

    running = environment(str(tmp_path)).from_source(RateSource(1)).to_sink(ConsoleSink()).start("job")
    with pytest.raises(PlanError, match="runs in this process already"):
        environment(f"file://{tmp_path}").from_source(RateSource(1)).to_sink(ConsoleSink()).start("job")
    assert running.exception is None
    running.stop()


def test_an_old_copy_of_a_target_is_noticed(job: MemoryJob) -> None:
    sinks = job.table("a"), job.files("out")
    job.run(4, *sinks)
    for name in ("lake", "out"):
        shutil.copytree(job.folder / name, job.folder / "copy" / name)
    job.run(6, *sinks)

    def go_back(name: str) -> None:
        shutil.move(job.folder / name, job.folder / "newest")
        shutil.copytree(job.folder / "copy" / name, job.folder / name)

    for name, target in (("lake", r"table db\.a"), ("out", ".*out")):
        go_back(name)
        with pytest.raises(StorageError, match=rf"{target} had epoch \d of this job and now has none"):
            job.run(8, *sinks)
        shutil.rmtree(job.folder / name)
        shutil.move(job.folder / "newest", job.folder / name)
    job.run(8, *sinks)
    assert job.ids("a") == job.ids("out") == [0, 1, 2, 3, 4, 5, 6, 7]


def test_a_rollback_is_the_user_s_own_affair(job: MemoryJob) -> None:
    job.run(4, job.table("a"))
    catalog = SqlCatalog("volley", uri=f"sqlite:///{job.folder}/lake/catalog.db")
    table = catalog.load_table("db.a")
    table.manage_snapshots().set_current_snapshot(snapshot_id=table.snapshots()[0].snapshot_id).commit()
    catalog.close()
    job.run(6, job.table("a"))
    assert job.ids("a") == [0, 1, 4, 5]
