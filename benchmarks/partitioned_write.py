"""One task writes into many partitions: rows clustered first, beside files kept open, the oldest closed for others."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

import numpy as np
import psutil
import pyarrow as pa

from benchmarks.benchmark import RATES, Run, benchmark
from benchmarks.lake import QUERY, Lake, open_sink, write
from volley import Committer, Epoch
from volley.iceberg import Partitioning
from volley.iceberg.write.data_files import RollingFiles

_BATCH = 10_000
_OPEN = 100
_ROW_GROUP = 64 << 20


@benchmark(
    rows=500_000,
    peers=("unpartitioned", "clustered", "open-files"),
    options={"partitions": (1, 24, 100, 300, 10_000)},
    cases="partitions",
    case="partitions",
    figures=(*RATES[:2], "cpu_seconds", "files", "driver_mb", "peak_mb"),
    plots=("rows_per_second", "peak_mb"),
)
def partitioned_write(run: Run) -> None:
    """One task into 1 to 10,000 partitions: clustered first, or with files kept open."""
    partitions = int(run.case)
    # With many more partitions than open files, a file is made of every few rows: that takes hours.
    if run.peer == "open-files" and partitions > 5 * _OPEN:
        return
    batches, sink = list(_batches(run.rows, partitions)), _sink(run)
    handle = _open_files if run.peer == "open-files" else _one_task
    before = psutil.Process().memory_info().rss / 2**20
    figures = run.measure(lambda: {"files": handle(sink, batches)})
    figures["peak_mb"] = figures["driver_mb"] - before


def _batches(rows: int, partitions: int) -> Iterator[pa.RecordBatch]:
    """Events whose partitions are in random order."""
    random = np.random.default_rng(7)
    for start in range(0, rows, _BATCH):
        session = pa.array([f"s{n:09}" for n in random.integers(0, 100_000_000, _BATCH)])
        keys = random.integers(0, partitions, _BATCH)
        yield pa.record_batch(
            {
                "id": np.arange(start, start + _BATCH),
                "key": keys,
                "session": session,
                "amount": random.random(_BATCH) * 100,
                "at": pa.array(1_700_000_000_000_000 + np.arange(_BATCH) * 1000, pa.timestamp("us", "UTC")),
            }
        )


def _sink(run: Run) -> Committer:
    """The sink of a table of the run's own."""
    config = Lake(run.folder).config
    if run.peer != "unpartitioned":
        config = config.with_partitioning(Partitioning.identity("key"))
    if run.peer == "open-files":
        # Each may keep a row group: together no more than ours.
        limit = 2 * _ROW_GROUP // _OPEN
        config = config.with_table_properties({"write.parquet.row-group-size-bytes": str(limit)})
    return open_sink(config, next(_batches(1, 1)).schema)


def _one_task(sink: Committer, batches: list[pa.RecordBatch]) -> int:
    return write(sink, 0, batches).files


def _open_files(sink: Committer, batches: list[pa.RecordBatch]) -> int:
    """What other writers do: a file per partition stays open, the least recently used is closed for another."""
    writer: Any = sink.writer(Epoch(QUERY, 0))
    opened: OrderedDict[int, RollingFiles] = OrderedDict()
    made: list[RollingFiles] = []
    for batch in batches:
        keys = batch["key"].to_numpy()
        order = np.argsort(keys, kind="stable")
        rows = writer.fitted(batch).take(pa.array(order))
        starts = np.flatnonzero(np.diff(keys[order], prepend=-1))
        for start, stop in zip(starts, [*starts[1:], len(keys)], strict=True):
            key = int(keys[order[start]])
            if key not in opened:
                if len(opened) == _OPEN:
                    opened.popitem(last=False)[1].finish()
                opened[key] = RollingFiles(writer, f"b-{len(made)}")
                opened[key].turn_to(writer.layout.partition((key,)))
                made.append(opened[key])
            opened.move_to_end(key)
            opened[key].write(rows.slice(start, stop - start))
    for files in opened.values():
        files.finish()
    return sum(len(files.done) for files in made)
