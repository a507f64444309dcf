"""One job of one epoch, which has to start its session; it imports little more than a user's script would."""

from __future__ import annotations

import time

from benchmarks.run import Run
from volley import Environment, FileSource, IcebergSink, IcebergSinkConfig, IcebergStorage


def first_epoch(run: Run) -> None:
    """Record when the rows of a folder are in a new table."""
    config = IcebergSinkConfig(namespace="b", table="first", storage=IcebergStorage.Local(str(run.folder)))
    source = FileSource(run.options["folder"], format="parquet")
    stream = Environment(checkpoint_dir=f"{run.folder}/checkpoints").from_source(source)
    assert stream.to_sink(IcebergSink(config)).execute("first").progress.rows == run.rows
    run.record(at=time.time())
