"""One task writes into many partitions: rows clustered first, beside files kept open, the oldest closed for others."""

from __future__ import annotations

import argparse
import resource
import shutil
import tempfile
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER

from benchmarks.measure import in_own_process, measured, print_result
from benchmarks.report import Report
from volley.iceberg.layout.partitioning import Partitioning
from volley.iceberg.layout.specs import spec_of
from volley.iceberg.schema.types import to_iceberg_schema
from volley.iceberg.write.data_files import RollingFiles
from volley.iceberg.write.writer import IcebergWriter

SUMMARY = "one task into 1 to 10,000 partitions: clustered first, or with files kept open"

PEERS = ("unpartitioned", "clustered", "open-files")
_BATCH = 10_000
_OPEN = 100
_ROW_GROUP = 64 << 20


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


def _writer(folder: Path, partitioned: bool, row_group_bytes: int = _ROW_GROUP) -> IcebergWriter:
    schema = to_iceberg_schema(next(_batches(_BATCH, 1)).schema)
    spec = spec_of(Partitioning.identity("key"), schema) if partitioned else PartitionSpec()
    return IcebergWriter(
        location=str(folder),
        table_properties={},
        io_properties={},
        schema=schema,
        spec=spec,
        order=UNSORTED_SORT_ORDER,
        file_prefix="b-",
        target_bytes=128 << 20,
        max_records=None,
        compression="snappy",
        compression_level=None,
        row_group_bytes=row_group_bytes,
    )


def _ours(folder: Path, partitioned: bool, batches: list[pa.RecordBatch]) -> int:
    task = _writer(folder, partitioned).open(0)
    for batch in batches:
        task.write(batch)
    return task.close().files


def _open_files(folder: Path, batches: list[pa.RecordBatch]) -> int:
    """What other writers do: a file per partition stays open, the least recently used is closed for another."""
    # Each may keep a row group: together no more than ours.
    writer = _writer(folder, True, row_group_bytes=2 * _ROW_GROUP // _OPEN)
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


def run(arguments: list[str]) -> None:
    """Each peer in a process of its own: a table, and each run as JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks partitioned_write", description=SUMMARY)
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--partitions", type=int, nargs="+", default=[1, 24, 100, 300, 10_000])
    asked = parser.parse_args(arguments)
    report = Report("partitioned_write", "peer", "partitions", "rows/s", "CPU-s", "files", "peak MB")
    for partitions in asked.partitions:
        # With many more partitions than open files, a file is made of every few rows: that takes hours.
        for peer in PEERS if partitions <= 5 * _OPEN else PEERS[:2]:
            result = in_own_process("benchmarks.partitioned_write", peer, str(asked.rows), str(partitions))
            report.add(
                result,
                peer,
                f"{partitions:,}",
                f"{result.rows_per_second:,.0f}",
                f"{result.cpu_seconds:.1f}",
                f"{result.extra['files']:,}",
                f"{result.extra['peak_mb']:,.0f}",
            )
    report.print()


def main() -> None:
    """One run of one peer; prints its Result."""
    arguments = argparse.ArgumentParser(description=SUMMARY)
    arguments.add_argument("peer", choices=PEERS)
    arguments.add_argument("rows", type=int)
    arguments.add_argument("partitions", type=int)
    asked = arguments.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="volley-bench-"))
    batches = list(_batches(asked.rows, asked.partitions))
    before = _peak_mb()
    write: Callable[[], int] = {
        "unpartitioned": lambda: _ours(folder, False, batches),
        "clustered": lambda: _ours(folder, True, batches),
        "open-files": lambda: _open_files(folder, batches),
    }[asked.peer]

    def work() -> dict[str, Any]:
        return {"files": write(), "peak_mb": _peak_mb() - before, "partitions": asked.partitions}

    try:
        print_result(measured(asked.peer, asked.rows, work, f"{asked.partitions:,} partitions"))
    finally:
        shutil.rmtree(folder)


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
