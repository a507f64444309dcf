"""A job that can't start leaves nothing behind that runs."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.recovery.memory_job import MemoryJob
from volley.connectors.files.committer import FileCommitter


def test_a_sink_that_can_t_start_ends_the_epochs(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They began before it: rows would come although the start has failed, and beside the next run."""

    def start(committer: FileCommitter) -> None:
        raise RuntimeError("no thread for maintenance")

    job = MemoryJob(spark, tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(FileCommitter, "start", start)
        with pytest.raises(RuntimeError, match="no thread for maintenance"):
            job.run(200, job.files("out"))
        assert "volley-job-epochs" not in {thread.name for thread in threading.enumerate()}
    job.run(200, job.files("out"))
    assert job.ids("out") == list(range(200))
