"""What the recovery job reads, and the comparison of that with what is in the table."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

ROWS_PER_FILE = 500
FILES = 4


def write_input(folder: Path, files: int = FILES) -> None:
    """Numbered rows, some in each file."""
    (folder / "in").mkdir(parents=True)
    for number in range(files):
        ids = pa.array(range(number * ROWS_PER_FILE, (number + 1) * ROWS_PER_FILE), pa.int64())
        pq.write_table(pa.table({"id": ids, "name": [f"row {i}" for i in ids]}), folder / "in" / f"{number}.parquet")


def load(folder: Path, name: str = "db.events") -> Table:
    """The table, opened by plain pyiceberg."""
    catalog = SqlCatalog("volley", uri=f"sqlite:///{folder}/lake/catalog.db")
    try:
        return catalog.load_table(name)
    finally:
        catalog.close()


def check_exactly_once(folder: Path, files: int = FILES) -> None:
    """Compare source and table row by row, and the snapshots with the epochs."""
    expected = [{"id": i, "name": f"row {i}", "twice": 2 * i} for i in range(files * ROWS_PER_FILE) if i % 7 != 0]
    table = load(folder)
    assert table.scan().to_arrow().sort_by("id").to_pylist() == expected
    epochs = [snapshot.summary["volley.epoch"] for snapshot in table.snapshots() if snapshot.summary]
    assert epochs == [str(epoch) for epoch in range(files)]
