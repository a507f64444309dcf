"""A running job maintains its table on Spark's executors, on both paths."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

from tests.waiting import wait_while_it_runs
from volley import Environment, IcebergSink, IcebergSinkConfig, IcebergStorage, RateSource
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
