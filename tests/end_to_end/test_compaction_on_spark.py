"""Compaction, statistics and erasure on Spark's executors: the work and the rows are there, the catalog is not."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.iceberg.test_compaction import Lake
from volley import Environment, WriteResult
from volley.contracts.sink import ExecutorTask
from volley.errors import SourceError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_groups_are_rewritten_as_tasks(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    files = lake.append(*range(0, 60, 10))
    lake.commit([], [lake.files.positions((files[0], 3))])
    size = int(max(lake.files.ref.load().inspect.data_files()["file_size_in_bytes"].to_pylist()))
    run = Environment(spark=spark).task_runner()
    done = lake.view.compact(sort_by="id desc", group_size=2 * size + 100, max_commits=2, rewrite_all=True, run=run)
    assert (done.files_before, done.files_after, done.rows, len(done.snapshots)) == (6, 3, 59, 2)
    assert lake.no_orphans()
    lake.check(set(range(60)) - {3})
    lake.files.close()


def test_a_file_that_is_gone_is_named_and_nothing_is_left(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    file, _ = lake.append(0, 10)
    Path(file.file_path.removeprefix("file://")).unlink()
    with pytest.raises(SourceError, match=file.file_path.rpartition("/")[2]):
        lake.view.compact(run=Environment(spark=spark).task_runner())
    assert lake.no_orphans()
    lake.files.close()


def test_statistics_are_computed_as_tasks(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    files = lake.append(*range(0, 60, 10))
    lake.commit([], [lake.files.positions((files[0], 3))])
    found = lake.view.compute_statistics(run=Environment(spark=spark).task_runner())
    assert (found.data_files, found.distinct) == (6, {"id": 59, "part": 1})
    lake.files.close()


def test_rows_to_erase_are_sought_and_proven_gone_as_tasks(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    files = lake.append(*range(0, 100, 10))
    lake.commit([], [lake.files.positions((files[0], 3))])
    run, numbers = Environment(spark=spark).task_runner(), list[int]()

    def counted(tasks: Sequence[ExecutorTask]) -> list[WriteResult]:
        numbers.append(len(tasks))
        return run(tasks)

    planned = lake.view.erase([{"part": "a"}], dry_run=True, run=counted)
    assert (planned.rows, planned.files_rewritten) == ({"main": 99}, 10)
    assert numbers == [1]
    erasure = lake.view.erase([{"id": 3}, {"id": 4}, {"id": 55}], orphans_older_than="0s", run=counted)
    assert (erasure.rows, erasure.is_complete) == ({"main": 2}, True)
    # The search, the files that are written anew, the proof.
    assert numbers == [1, 1, 2, 1]
    assert lake.no_orphans()
    lake.check(set(range(100)) - {3, 4, 55})
    lake.files.close()
