"""A job that writes numbered rows to several tables, is killed, and started again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from volley import Environment, FileSource, IcebergSink, IcebergSinkConfig, IcebergStorage, Job
from volley.iceberg import Upsert
from volley.iceberg.modes import Append

FILES = 4
_ROWS = 60


def write_input(folder: Path) -> None:
    """Files for an epoch each; the second one has rows for a table that is new."""
    (folder / "in").mkdir(parents=True)
    for number in range(FILES):
        ids = range(number * _ROWS, (number + 1) * _ROWS)
        rows = [{"id": i, "key": i % 25, "kind": f"t{i % min(3 + number, 5)}"} for i in ids]
        pq.write_table(pa.Table.from_pylist(rows), folder / "in" / f"{number}.parquet")


def storage(folder: Path) -> IcebergStorage:
    return IcebergStorage.Local(str(folder / "lake"))


def main(folder: Path, upsert: bool = False, on_error: Any = "fail", given: IcebergSinkConfig | None = None) -> Job:
    """One run, into a lake in the folder unless a catalog is given."""
    mode = Upsert("key", order_by="id") if upsert else Append()
    config = replace(given or IcebergSinkConfig(namespace="db", table="t", storage=storage(folder)), table="{kind}")
    return (
        Environment("local[2]", checkpoint_dir=str(folder / "checkpoints"))
        .from_source(FileSource(str(folder / "in"), format="parquet", max_files_per_epoch=1))
        .to_sink(IcebergSink(config.with_commit_mode(mode)).routed(commits_at_once=1, on_error=on_error))
        .execute("routed")
    )
