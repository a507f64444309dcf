"""A job with two sinks and a fault between them: when it strikes, the first sink's files are there already."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import psutil
import pyarrow as pa
from pyspark import TaskContext

from tests.sinks import config_of, sink_of
from volley import Environment, FileSource, IcebergSink, Job, col

Fault = Callable[[pa.RecordBatch], pa.RecordBatch]


def lose_executor(marker: Path, batch: pa.RecordBatch) -> pa.RecordBatch:
    """The executor's JVM and this Python worker die, once."""
    if _first(marker):
        executor, *_ = _java_above()
        executor.kill()
        os.kill(os.getpid(), signal.SIGKILL)
    return batch


def lose_host(marker: Path, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Spark's Worker, its executor and this Python worker die, once: nothing is left on this host."""
    if _first(marker):
        executor, worker, *_ = _java_above()
        worker.kill()
        executor.kill()
        os.kill(os.getpid(), signal.SIGKILL)
    return batch


def hang(meeting: Path, batch: pa.RecordBatch) -> pa.RecordBatch:
    """The first attempt hangs for ever; the second goes on when the first has come this far."""
    context = TaskContext.get()
    assert context is not None
    # Opening a pipe waits for its other end.
    with meeting.open("w" if context.attemptNumber() == 0 else "r"):
        pass
    if context.attemptNumber() == 0:
        signal.pause()
    return batch


def _first(marker: Path) -> bool:
    try:
        marker.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def _java_above() -> list[psutil.Process]:
    """From the inside out: the executor's JVM, and the Worker's, which has started it."""
    return [process for process in psutil.Process().parents() if process.name() == "java"]


def run(folder: Path, master: str, fault: Fault) -> Job:
    """One run: an epoch is one file, and one task."""
    first = config_of(folder, "first").with_max_records(100).with_batch_size(100)
    environment = Environment(master, checkpoint_dir=str(folder / "checkpoints"))
    read = environment.from_source(FileSource(str(folder / "in"), format="parquet", max_files_per_epoch=1))
    doubled = read.map_batches(fault).filter_expr(col("id") % 7 != 0).with_column("twice", col("id") * 2)
    return environment.execute("faults", read.to_sink(IcebergSink(first)), doubled.to_sink(sink_of(folder)))


if __name__ == "__main__":
    # Speculation, which the environment has to ask for.
    os.mkfifo(Path(sys.argv[1]) / "meeting")
    for orphan in run(Path(sys.argv[1]), sys.argv[2], partial(hang, Path(sys.argv[1]) / "meeting")).orphans:
        print(orphan)
