"""Plain pyiceberg: one `Table.append` an epoch, in one process."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog

from benchmarks.measure import Result, measured

__all__ = ["NAME", "append"]

NAME = "pyiceberg Table.append"


def append(folder: Path, rows: int, files_per_epoch: int, case: str) -> Result:
    """The files of a folder into a new table, after one append into another.

    Args:
        folder: With Parquet files.
        rows: Rows in all.
        files_per_epoch: Files of one append.
        case: With what it can be compared.
    """
    lake, paths = Path(tempfile.mkdtemp(prefix="volley-bench-")), sorted(folder.glob("*.parquet"))
    catalog = SqlCatalog("volley", uri=f"sqlite:///{lake}/catalog.db", warehouse=f"file://{lake}")

    def run(name: str, chosen: list[Path], per_epoch: int) -> dict[str, Any]:
        properties = {"write.parquet.compression-codec": "snappy"}
        table = catalog.create_table(("b", name), pq.read_schema(chosen[0]), properties=properties)
        for first in range(0, len(chosen), per_epoch):
            table.append(pq.read_table(chosen[first : first + per_epoch]))
        files = list(table.scan().plan_files())
        assert name == "warm_up" or sum(each.file.record_count for each in files) == rows
        return {"epochs": len(table.snapshots()), "files": len(files)}

    try:
        catalog.create_namespace("b")
        run("warm_up", paths[:1], 1)
        return measured(NAME, rows, lambda: run("benchmark", paths, files_per_epoch), case)
    finally:
        catalog.close()
        shutil.rmtree(lake)
