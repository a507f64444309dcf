"""Plain pyarrow and plain pyiceberg on the files of a folder."""

from __future__ import annotations

import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from benchmarks.lake import Lake
from benchmarks.rows import LIMIT
from benchmarks.run import Run

__all__ = ["append", "limit"]


def limit(run: Run, folder: Path) -> None:
    """The limit: a process for each core reads files and writes them again.

    Args:
        run: The run.
        folder: With Parquet files.
    """
    cores, paths = os.cpu_count() or 1, sorted(folder.glob("*.parquet"))

    def work() -> None:
        assert sum(pool.map(_copied, paths, [run.folder] * len(paths))) == run.rows

    # Forked, as Spark's workers are, with everything imported.
    with ProcessPoolExecutor(cores, multiprocessing.get_context("fork")) as pool:
        list(pool.map(_copied, paths[:cores], [run.folder] * cores))
        run.measure(work, case=LIMIT)


def _copied(path: Path, folder: Path) -> int:
    """Read a file and write it again; returns its rows."""
    source = pq.ParquetFile(path)
    with pq.ParquetWriter(folder / path.name, source.schema_arrow) as writer:
        for group in range(source.num_row_groups):
            writer.write_table(source.read_row_group(group, use_threads=False))
    return int(source.metadata.num_rows)


def append(run: Run, folder: Path, files_per_epoch: int) -> None:
    """One `Table.append` an epoch, in one process, after one into another table.

    Args:
        run: The run.
        folder: With Parquet files.
        files_per_epoch: Files of one append.
    """
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
