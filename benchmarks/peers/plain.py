"""Plain pyarrow and plain pyiceberg."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from benchmarks.lake import Lake
from benchmarks.rows import LIMIT
from benchmarks.run import Run


def limit(run: Run, handle: Callable[[Run, Any], int], shares: Sequence[Any], warm_up: Sequence[Any] = ()) -> None:
    """Measure the limit: a process for each core that handles shares of the rows, and before as many of a warm-up.

    `handle` only reads and writes the rows of a share; it returns their number.
    """
    cores = os.cpu_count() or 1

    def work() -> None:
        assert sum(pool.map(partial(handle, run), shares)) == run.rows

    # Forked, as Spark's workers are, with everything imported.
    with ProcessPoolExecutor(cores, multiprocessing.get_context("fork")) as pool:
        list(pool.map(partial(handle, run), warm_up[:cores]))
        run.measure(work, case=LIMIT)


def rewrite(run: Run, path: Path) -> int:
    """Read a Parquet file and write it again into the run's folder; returns its rows."""
    source = pq.ParquetFile(path)
    with pq.ParquetWriter(run.folder / path.name, source.schema_arrow) as writer:
        for group in range(source.num_row_groups):
            writer.write_table(source.read_row_group(group, use_threads=False))
    return int(source.metadata.num_rows)


def append(run: Run, folder: Path, files_per_epoch: int) -> None:
    """Measure a `Table.append` for every so many files of a folder, in one process, after one into another table."""
    catalog, paths = Lake(run.folder).catalog(), sorted(folder.glob("*.parquet"))

    def fill(name: str, chosen: list[Path], per_epoch: int) -> dict[str, Any]:
        properties = {"write.parquet.compression-codec": "snappy"}
        table = catalog.create_table(("b", name), pq.read_schema(chosen[0]), properties=properties)
        for first in range(0, len(chosen), per_epoch):
            table.append(pq.read_table(chosen[first : first + per_epoch]))
        files = list(table.scan().plan_files())
        assert name == "warm_up" or sum(each.file.record_count for each in files) == run.rows
        return {"epochs": len(table.snapshots()), "files": len(files)}

    catalog.create_namespace("b")
    fill("warm_up", paths[:1], 1)
    run.measure(lambda: fill("benchmark", paths, files_per_epoch))
    catalog.close()
