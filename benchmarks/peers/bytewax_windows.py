"""Tumbling windows in bytewax, in its own idiom: keyed items, an event clock, a fold."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.run import Result, Run
from tests.servers.downloads import other_version

__all__ = ["bytewax", "missing"]

_VERSION = "0.21.1"
# In batches of 1,000 rows it takes four times as long: each batch visits all keys.
_ROWS_AT_ONCE = 1 << 16
_ROOT = Path(__file__).parents[2]
_Totals = tuple[int, float, float, float]


@cache
def missing() -> str | None:
    """Why it can't run here, or None if it can."""
    try:
        other_version("bytewax", _VERSION)
    except (pytest.skip.Exception, pytest.fail.Exception) as reason:
        return str(reason)
    return None


def bytewax(run: Run, file: Path) -> list[Result]:
    """Run it over one Parquet file in a Python that has bytewax: it takes rows one by one, and sixteen take an hour.

    Args:
        run: The run.
        file: The file.
    """
    path = os.pathsep.join([str(other_version("bytewax", _VERSION)), str(_ROOT)])
    return run.apart(_work, {**os.environ, "PYTHONPATH": path}, options={"file": str(file)})


def _work(run: Run) -> None:
    import bytewax.operators as op
    from bytewax.dataflow import Dataflow
    from bytewax.operators import windowing
    from bytewax.testing import TestingSink, TestingSource, run_main

    file = Path(run.options["file"])
    found: list[Any] = []
    flow = Dataflow("windows")
    # `TestingSource` passes on what an iterator gives, as its own Parquet recipes do.
    rows = op.input("rows", flow, TestingSource(_rows(file), batch_size=_ROWS_AT_ONCE))
    clock = windowing.EventClock(lambda row: row[1], wait_for_system_duration=timedelta(seconds=10))
    minutes = windowing.TumblingWindower(length=timedelta(minutes=1), align_to=datetime(2023, 1, 1, tzinfo=UTC))
    totals = windowing.fold_window("totals", rows, clock, minutes, _nothing, _add, _merge)
    op.output("out", totals.down, TestingSink(found))

    def work() -> dict[str, Any]:
        run_main(flow)
        return {"windows": len(found)}

    run.measure(work, rows=pq.read_metadata(file).num_rows)


def _rows(file: Path) -> Iterator[tuple[str, tuple[float, datetime]]]:
    for batch in pq.ParquetFile(file).iter_batches(columns=["user", "price", "at"]):
        # It takes UTC of the datetime module alone.
        times = batch.column("at").cast(pa.timestamp("us")).to_pylist()
        for user, price, at in zip(
            batch.column("user").to_pylist(), batch.column("price").to_pylist(), times, strict=True
        ):
            yield user, (price, at.replace(tzinfo=UTC))


def _nothing() -> _Totals:
    return 0, 0.0, float("inf"), float("-inf")


def _add(totals: _Totals, row: tuple[float, datetime]) -> _Totals:
    n, total, low, high = totals
    return n + 1, total + row[0], min(low, row[0]), max(high, row[0])


def _merge(one: _Totals, other: _Totals) -> _Totals:
    return one[0] + other[0], one[1] + other[1], min(one[2], other[2]), max(one[3], other[3])
