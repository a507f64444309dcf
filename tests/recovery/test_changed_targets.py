"""A job under its old name with other sinks, or without its checkpoint: no table is silently empty, or filled twice."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession

from tests.drivers import Drivers
from tests.recovery.memory_job import MemoryJob, backfill
from tests.tiers import some
from volley import (
    ConfigError,
    Environment,
    IcebergSink,
    MemorySink,
    MemorySource,
    PlanError,
    StorageError,
    VolleyError,
)
from volley.iceberg import Overwrite, Upsert


@pytest.fixture
def job(spark: SparkSession, tmp_path: Path) -> MemoryJob:
    return MemoryJob(spark, tmp_path)


def test_another_table_under_the_old_name_is_refused_and_not_made(job: MemoryJob) -> None:
    job.run(4, job.table("a"))
    with pytest.raises(PlanError, match=r"db\.b now in place of .*db\.a, where the rows would be missing") as caught:
        job.run(6, job.table("b"))
    assert "backfill=True" in str(caught.value.hint)
    assert job.ids("b") is None
    job.run(6, job.table("a"))
    assert job.ids("a") == [0, 1, 2, 3, 4, 5]


def test_a_sink_that_is_added_is_refused_until_it_is_filled(job: MemoryJob) -> None:
    job.run(4, job.table("a"))
    sinks = job.table("a"), job.table("b"), job.files("out")
    with pytest.raises(PlanError, match=r"writes to files:.*out, .*db\.b now, where the rows would be missing"):
        job.run(6, *sinks)
    assert (job.ids("b"), job.ids("out")) == (None, None)
    job.run(6, *sinks, backfill=True)
    assert job.ids("a") == job.ids("b") == job.ids("out") == [0, 1, 2, 3, 4, 5]
    job.run(8, *sinks)
    assert job.ids("a") == job.ids("b") == job.ids("out") == [0, 1, 2, 3, 4, 5, 6, 7]


def test_a_backfill_that_is_asked_for_again_adds_nothing(job: MemoryJob) -> None:
    job.run(4, job.table("a"))
    for _ in range(2):
        job.run(4, job.table("a"), job.table("b"), backfill=True)
    assert job.ids("b") == [0, 1, 2, 3]


def test_a_sink_that_was_left_out_for_a_while_is_refused(job: MemoryJob) -> None:
    both = job.table("a"), job.table("b")
    job.run(2, *both)
    job.run(4, job.table("a"))
    with pytest.raises(PlanError, match=r"db\.b now, where the rows would be missing"):
        job.run(6, *both)
    with pytest.raises(PlanError, match=r"db\.b has epochs of this job up to 0 already"):
        job.run(6, *both, backfill=True)
    assert job.ids("b") == [0, 1]


def test_a_table_that_was_renamed_is_the_same(job: MemoryJob) -> None:
    job.run(4, job.table("a"))
    catalog = SqlCatalog("volley", uri=f"sqlite:///{job.folder}/lake/catalog.db")
    catalog.rename_table("db.a", "db.b")
    catalog.close()
    with pytest.raises(PlanError, match="adds nothing to a table that was only renamed"):
        job.run(6, job.table("b"))
    job.run(6, job.table("b"), backfill=True)
    assert job.ids("b") == [0, 1, 2, 3, 4, 5]


def test_dead_letters_come_and_go(job: MemoryJob) -> None:
    def sink(letters: str | None) -> IcebergSink:
        return IcebergSink(job.table("a").config.with_dead_letter(letters))

    job.run(2, sink(None))
    job.run(4, sink("letters"))
    job.run(6, sink(str(job.folder / "bad")))
    job.run(8, sink(None))
    assert job.ids("a") == [0, 1, 2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize("point", some(["after-commit", "after-files", "before-commit"]))
def test_a_backfill_that_is_killed_fills_the_sink_once(drivers: Drivers, point: str, job: MemoryJob) -> None:
    job.run(4, job.table("a"))
    drivers.die(f"{point}@1", backfill, job.folder)
    job.run(6, job.table("a"), job.table("b"), backfill=True)
    assert job.ids("a") == job.ids("b") == [0, 1, 2, 3, 4, 5]


def test_sinks_may_change_as_long_as_nothing_was_read(job: MemoryJob) -> None:
    with pytest.raises(VolleyError):
        job.run(2, job.table("a", Upsert("no such column")))
    job.run(2, job.table("b"))
    assert job.ids("b") == [0, 1]


def test_sinks_that_keep_nothing_come_and_go(job: MemoryJob) -> None:
    job.run(2, job.table("a"))
    memory = MemorySink("seen")
    job.run(4, job.table("a"), memory)
    assert [row["id"] for row in memory.rows()] == [2, 3]


@pytest.mark.parametrize("target", ["table", "files"])
def test_a_lost_checkpoint_doubles_nothing(target: str, job: MemoryJob) -> None:
    sink = getattr(job, target)("out")
    job.run(4, sink)
    job.lose_checkpoint()
    with pytest.raises(PlanError, match=r"rows of (an )?earlier quer.* would read its sources from the beginning"):
        job.run(6, sink)
    assert job.ids("out") == [0, 1, 2, 3]
    job.run(6, sink, into="replace")
    assert job.ids("out") == [0, 1, 2, 3, 4, 5]
    job.run(8, sink)
    assert job.ids("out") == [0, 1, 2, 3, 4, 5, 6, 7]


def test_a_lost_checkpoint_is_noticed_when_the_job_s_snapshots_have_expired(job: MemoryJob) -> None:
    job.run(4, job.table("a"))
    catalog = SqlCatalog("volley", uri=f"sqlite:///{job.folder}/lake/catalog.db")
    table = catalog.load_table("db.a")
    table.append(table.scan().to_arrow())
    table.maintenance.expire_snapshots().by_ids([each.snapshot_id for each in table.snapshots()[:-1]]).commit()
    catalog.close()
    job.lose_checkpoint()
    with pytest.raises(PlanError, match="rows of earlier queries of job 'job'"):
        job.run(4, job.table("a"))


def test_rows_of_an_earlier_checkpoint_stay_on_request(job: MemoryJob) -> None:
    job.run(2, job.table("a"))
    job.lose_checkpoint()
    job.run(4, job.table("a"), into="append")
    assert job.ids("a") == [0, 0, 1, 1, 2, 3]


def test_a_lost_checkpoint_is_no_matter_to_a_table_that_was_emptied(job: MemoryJob) -> None:
    job.run(2, job.table("a"))
    job.lose_checkpoint()
    catalog = SqlCatalog("volley", uri=f"sqlite:///{job.folder}/lake/catalog.db")
    catalog.load_table("db.a").delete()
    catalog.close()
    job.run(4, job.table("a"))
    assert job.ids("a") == [0, 1, 2, 3]


@pytest.mark.parametrize("mode", [Upsert("id"), Overwrite()], ids=["upsert", "overwrite"])
def test_a_lost_checkpoint_is_no_matter_where_rows_replace_each_other(mode: Upsert | Overwrite, job: MemoryJob) -> None:
    job.run(4, job.table("a", mode), per_epoch=4)
    job.lose_checkpoint()
    job.run(4, job.table("a", mode), per_epoch=4)
    assert job.ids("a") == [0, 1, 2, 3]


def test_another_job_s_rows_in_the_table_are_its_own_affair(job: MemoryJob) -> None:
    job.run(2, job.table("a"))
    shutil.move(job.checkpoint, job.checkpoint.with_name("other"))
    catalog = SqlCatalog("volley", uri=f"sqlite:///{job.folder}/lake/catalog.db")
    table = catalog.load_table("db.a")
    (name,) = (name for name in table.properties if name.startswith("volley.job."))
    with table.transaction() as change:
        change.set_properties({name: "another job"})
        change.update_snapshot().fast_append().commit()
    catalog.load_table("db.a").maintenance.expire_snapshots().by_ids([table.snapshots()[0].snapshot_id]).commit()
    catalog.close()
    job.run(2, job.table("a"))
    assert job.ids("a") == [0, 0, 1, 1]


def test_a_job_starts_over(job: MemoryJob) -> None:
    job.run(4, job.table("a"))
    job.run(4, job.table("a"), fresh=True, into="replace")
    assert job.ids("a") == [0, 1, 2, 3]
    # As with any other checkpoint, the next run goes on behind it.
    assert job.run(6, job.table("a")).rows == 2
    job.run(2, job.table("b"), fresh=True)
    assert job.ids("b") == [0, 1]


def test_a_start_over_that_is_refused_leaves_the_checkpoint_as_it_was(job: MemoryJob) -> None:
    job.run(4, job.table("a"))
    with pytest.raises(PlanError, match="would read its sources from the beginning"):
        job.run(6, job.table("a"), fresh=True)
    assert job.run(6, job.table("a")).rows == 2
    assert job.ids("a") == [0, 1, 2, 3, 4, 5]


def test_starting_over_touches_no_other_file_of_the_folder(job: MemoryJob) -> None:
    job.run(2, job.table("a"))
    (job.checkpoint / "notes.txt").write_text("mine")
    job.run(2, job.table("a"), fresh=True, into="replace")
    assert (job.checkpoint / "notes.txt").read_text() == "mine"


def test_an_old_copy_of_the_checkpoint_passes_over_no_rows(job: MemoryJob) -> None:
    job.run(4, job.table("a"))
    copy = job.folder / "copy"
    shutil.copytree(job.checkpoint, copy)
    job.run(6, job.table("a"))

    def go_back() -> None:
        job.lose_checkpoint()
        shutil.copytree(copy, job.checkpoint)

    go_back()
    # Its third epoch has other rows now than the one in the table.
    with pytest.raises(StorageError, match=r"epoch 2 is in table db\.a already, but not known to have the rows"):
        job.run(8, job.table("a"), per_epoch=4)
    assert job.ids("a") == [0, 1, 2, 3, 4, 5]
    go_back()
    assert job.run(8, job.table("a")).skipped == 1
    assert job.ids("a") == [0, 1, 2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize("target", ["table", "folder"])
def test_an_old_copy_of_the_checkpoint_passes_over_no_files(target: str, job: MemoryJob) -> None:
    """As many new files as those that the copy does not know are not taken for them."""
    sink = job.table("a") if target == "table" else job.files("a")
    job.put_files(1, 2)
    job.run_files(sink)
    copy = job.folder / "copy"
    shutil.copytree(job.checkpoint, copy)
    job.put_files(3, 4, 5)
    job.run_files(sink)
    job.put_files(6, 7, 8, archive=True)
    job.lose_checkpoint()
    shutil.copytree(copy, job.checkpoint)
    with pytest.raises(StorageError, match=r"epoch 2 is in .*a already, but not known to have the rows") as caught:
        job.run_files(sink)
    assert job.ids("a") == [1, 2, 3, 4, 5]
    assert 'into="append" to read what the source has now behind' in str(caught.value.hint)
    job.run_files(sink, fresh=True, into="append")
    assert job.ids("a") == [1, 2, 3, 4, 5, 6, 7, 8]


@pytest.mark.parametrize(
    ("start", "message"),
    [
        ({"into": "truncate"}, "into 'truncate' is unknown"),
        ({"fresh": True, "backfill": True}, "fresh and backfill are both given"),
    ],
)
def test_starts_that_mean_nothing_are_refused(start: dict[str, Any], message: str, job: MemoryJob) -> None:
    with pytest.raises(ConfigError, match=message):
        job.run(2, job.table("a"), **start)
    assert not job.checkpoint.exists()


def test_a_folder_that_is_gone_is_not_made_again(job: MemoryJob) -> None:
    job.run(2, job.files("out"))
    shutil.rmtree(job.folder / "out")
    with pytest.raises(StorageError, match=r"out is gone: it has no _volley/folder\.json"):
        job.run(4, job.files("out"))
    assert not (job.folder / "out").exists()


def test_a_checkpoint_of_another_program_is_left_as_it_is(spark: SparkSession, tmp_path: Path) -> None:
    job = MemoryJob(spark, tmp_path)
    (job.checkpoint / "offsets").mkdir(parents=True)
    (job.checkpoint / "metadata").write_text('{"id":"another"}')
    starts: list[dict[str, Any]] = [{}, {"fresh": True, "into": "replace"}]
    for start in starts:
        with pytest.raises(PlanError, match="was not made by Volley"):
            job.run(2, job.table("a"), **start)
    assert sorted(path.name for path in job.checkpoint.iterdir()) == ["metadata", "offsets"]


@pytest.mark.parametrize("name", some(["offsets", "commits", "sources", "state", "volley", ".metadata.crc"]))
def test_a_stray_file_is_not_taken_for_a_checkpoint_and_not_deleted(name: str, tmp_path: Path) -> None:
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / name).write_text("notes")
    rows = Environment(checkpoint_dir=str(tmp_path)).from_source(MemorySource([{"id": 1}]))
    for fresh in (False, True):
        with pytest.raises(PlanError, match=f"was not made by Volley, .* it has {re.escape(name)}\n.* move these away"):
            rows.to_sink(MemorySink("out")).execute("job", fresh=fresh)
    assert [(path.name, path.read_text()) for path in (tmp_path / "job").iterdir()] == [(name, "notes")]
