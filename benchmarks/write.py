"""Volley's sink writes an epoch: beside a job and the peers, compressed, in files of a size, into many partitions."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa

from benchmarks.benchmark import RATES, Limit, Run, benchmark
from benchmarks.events import FILES, batches, events_folder
from benchmarks.files_to_iceberg import PEERS, copy
from benchmarks.lake import QUERY, Lake, open_sink, write, write_epoch
from benchmarks.rows import NATIVE, case_of
from volley import Committer, Epoch
from volley.iceberg import Partitioning
from volley.iceberg.write.data_files import RollingFiles

_MB = 1 << 20
_SINK = "Volley's sink alone, one process"


def write_rows(run: Run) -> None:
    """One epoch of so many rows: the sink alone, a whole job, pyiceberg, Iceberg's Spark runtime, pyarrow."""
    named = replace(run, case=case_of(run.rows))
    if run.peer == "sink":
        _sink(named, lambda: batches(_folder(run)))
    else:
        copy(named, run.rows // FILES, run.rows)


for _size, _rows in {"10k": 10_000, "100k": 100_000, "1m": 1_000_000, "10m": 10_000_000}.items():
    benchmark(
        f"write_{_size}",
        rows=_rows,
        repeat=5,
        peers={"sink": _SINK, **PEERS},
        figures=(*RATES, "epochs", "files", "mb"),
        bounds=[Limit("rows_per_second", "rows/s", 50_000, of=peer) for peer in (_SINK, NATIVE)],
    )(write_rows)


@benchmark(
    rows=1_000_000,
    repeat=5,
    peers=("none", "snappy", "gzip", "lz4", "zstd", "brotli"),
    figures=("rows_per_second", "rows_per_cpu_second", "bytes_per_row", "read_rows_per_second"),
    plots=("rows_per_cpu_second", "bytes_per_row"),
)
def compressions(run: Run) -> None:
    """None, snappy, gzip, lz4, zstd, brotli: rows/s, rows per CPU-second, bytes a row, a scan afterwards."""
    rows = list(batches(_folder(run)))
    figures = _sink(run, lambda: rows, compression=run.peer)
    Lake(run.folder / "warm_up").table().scan().to_arrow()
    scan, began = Lake(run.folder).table().scan(), time.perf_counter()
    assert scan.to_arrow().num_rows == run.rows
    figures["read_rows_per_second"] = run.rows / (time.perf_counter() - began)
    figures["bytes_per_row"] = sum(_sizes(run)) / run.rows


@benchmark(
    rows=4_000_000,
    peers=("1 MB", "4 MB", "16 MB", "64 MB", "10,000 rows", "100,000 rows", "1,000,000 rows"),
    figures=("rows_per_second", "rows_per_cpu_second", "files", "off_percent"),
    bounds=[Limit("off_percent", "% off its target", most=10)],
)
def rolling(run: Run) -> None:
    """Files rolled by size or by rows: rows/s, files, how far the largest is from its target."""
    number, unit = run.peer.replace(",", "").split()
    limit = {"target_file_size_mb": float(number)} if unit == "MB" else {"max_records": int(number)}
    rows = list(batches(_folder(run)))
    figures = _sink(run, lambda: rows, **{"target_file_size_mb": float(_MB), **limit})
    sizes = [size / _MB for size in _sizes(run)]
    # The smallest is the last one, which has the rows that are left.
    full = sorted(sizes)[1:] if unit == "MB" else []
    figures["files"] = len(sizes)
    figures["off_percent"] = max((abs(size / float(number) - 1) * 100 for size in full), default=None)


def _folder(run: Run) -> Path:
    return events_folder(run.rows, run.rows // FILES)


def _sink(run: Run, rows: Callable[[], Iterable[pa.RecordBatch]], **settings: Any) -> dict[str, Any]:
    """Measure writer and committer without Spark, after an epoch of one batch into another table."""
    write_epoch(replace(Lake(run.folder / "warm_up").config, **settings), 0, [next(iter(rows()))])
    return run.measure(lambda: write_epoch(replace(Lake(run.folder).config, **settings), 0, rows()))


def _sizes(run: Run) -> list[int]:
    return [task.file.file_size_in_bytes for task in Lake(run.folder).table().scan().plan_files()]


_OPEN = 100
_ROW_GROUP = 64 << 20


@benchmark(
    rows=500_000,
    peers=("unpartitioned", "clustered", "open-files"),
    cases={"partitions": (1, 24, 100, 300, 10_000)},
    figures=(*RATES[:2], "cpu_seconds", "files", "driver_mb", "peak_mb"),
    plots=("rows_per_second", "peak_mb"),
)
def partitioned_write(run: Run) -> None:
    """One task into 1 to 10,000 partitions: clustered first, or with files kept open."""
    partitions, opens = int(run.case), run.peer == "open-files"
    # With many more partitions than open files, a file is made of every few rows: that takes hours.
    if opens and partitions > 5 * _OPEN:
        return
    events = batches(_folder(run))
    # Their partitions are in random order.
    keyed = (batch.append_column("key", pa.array(batch["user"].to_numpy() % partitions)) for batch in events)
    rows = [batch.select(["id", "session", "amount", "at", "key"]) for batch in keyed]
    config = Lake(run.folder).config
    if run.peer != "unpartitioned":
        config = config.with_partitioning(Partitioning.identity("key"))
    if opens:
        # Each may keep a row group: together no more than ours.
        config = config.with_table_properties({"write.parquet.row-group-size-bytes": str(2 * _ROW_GROUP // _OPEN)})
    sink = open_sink(config, rows[0].schema)
    before = psutil.Process().memory_info().rss / 2**20
    figures = run.measure(lambda: {"files": _by_open_files(sink, rows) if opens else write(sink, 0, rows).files})
    figures["peak_mb"] = figures["driver_mb"] - before


def _by_open_files(sink: Committer, rows: list[pa.RecordBatch]) -> int:
    """What other writers do: a file per partition stays open, the least recently used is closed for another."""
    writer: Any = sink.writer(Epoch(QUERY, 0))
    opened: OrderedDict[int, RollingFiles] = OrderedDict()
    made: list[RollingFiles] = []
    for batch in rows:
        keys = batch["key"].to_numpy()
        order = np.argsort(keys, kind="stable")
        clustered = writer.fitted(batch).take(pa.array(order))
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
            opened[key].write(clustered.slice(start, stop - start))
    for files in opened.values():
        files.finish()
    return sum(len(files.done) for files in made)
