"""A running job maintains its table on Spark's executors, on both paths."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

from tests.waiting import wait_while_it_runs
from volley import Environment, IcebergSink, IcebergSinkConfig, IcebergStorage, RateSource, lit
from volley.iceberg import Maintenance


def test_small_files_are_compacted_while_the_job_writes(environment: Environment, tmp_path: Path) -> None:
    config = IcebergSinkConfig(namespace="db", table="rates", storage=IcebergStorage.Local(str(tmp_path / "lake")))
    maintained = IcebergSink(config.with_maintenance(Maintenance(commits=10, budget=1.0)))
    stream = replace(environment, checkpoint_interval=0).from_source(RateSource(rows_per_second=1000))
    job = stream.to_sink(maintained).start("maintained")
    try:
        wait_while_it_runs(job, lambda: job.maintenance.runs, "a compaction")
        at = job.progress.epochs
        wait_while_it_runs(job, lambda: job.progress.epochs > at + 2, "epochs after it")
    finally:
        job.stop()
    (run, *_) = job.maintenance.runs
    assert (run.table, run.action, run.succeeded) == ("db.rates", "compaction", True), run
    table = config.ref.load()
    values = sorted(table.scan().to_arrow()["value"].to_pylist())
    assert values == list(range(len(values)))
    assert len(values) == job.progress.rows
    assert len(table.inspect.data_files()) < job.progress.files
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("volley-maintenance")]


def test_one_of_two_jobs_maintains_their_table_and_the_other_takes_over(
    environment: Environment, tmp_path: Path
) -> None:
    config = IcebergSinkConfig(namespace="db", table="shared", storage=IcebergStorage.Local(str(tmp_path / "lake")))
    # The lease lasts twice as long as `every`: it does not expire here, however slow the machine is.
    often = Maintenance(commits=3, every="1h", budget=1.0, expire_after="1ms", retain_last=3)
    sink = IcebergSink(config.with_maintenance(often))
    fast = replace(environment, checkpoint_interval=0)
    jobs = [
        fast.from_source(RateSource(rows_per_second=100)).with_column("job", lit(name)).to_sink(sink).start(name)
        for name in ("one", "two")
    ]
    first, second = jobs
    try:
        wait_while_it_runs(first, lambda: first.maintenance.runs or second.maintenance.runs, "maintenance")
        if second.maintenance.runs:
            first, second = second, first
        at = first.progress.epochs
        wait_while_it_runs(first, lambda: first.progress.epochs > at + 5, "epochs of the one that maintains")
        assert second.maintenance.runs == ()
        first.stop()
        wait_while_it_runs(second, lambda: second.maintenance.runs, "maintenance by the other")
    finally:
        for job in jobs:
            job.stop()
    assert [str(run) for job in jobs for run in job.maintenance.runs if not run.succeeded] == []
    rows = config.ref.load().scan().to_arrow().to_pylist()
    for job in jobs:
        values = sorted(row["value"] for row in rows if row["job"] == job.name)
        assert values == list(range(job.progress.rows))
    assert len(config.ref.load().snapshots()) < sum(job.progress.epochs for job in jobs)
