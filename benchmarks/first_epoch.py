"""One job of one epoch in a session that it has to start; it imports what a user's script would, and little more."""

from __future__ import annotations

import sys
import tempfile
import time
from typing import Any

from benchmarks.measure import Result, measured, print_result
from volley import Environment, FileSource, IcebergSink, IcebergSinkConfig, IcebergStorage


def first_epoch(folder: str, rows: int) -> Result:
    """When the rows of a folder are in a new table."""
    with tempfile.TemporaryDirectory(prefix="volley-bench-") as lake:
        config = IcebergSinkConfig(namespace="b", table="first", storage=IcebergStorage.Local(lake))
        stream = Environment(checkpoint_dir=f"{lake}/checkpoints").from_source(FileSource(folder, format="parquet"))

        def work() -> dict[str, Any]:
            assert stream.to_sink(IcebergSink(config)).execute("first").progress.rows == rows
            return {"at": time.time()}

        return measured("Volley", rows, work)


if __name__ == "__main__":
    print_result(first_epoch(sys.argv[1], int(sys.argv[2])))
