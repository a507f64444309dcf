"""Tumbling windows in bytewax, in its own idiom: keyed items, an event clock, a fold."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from benchmarks.peers.environment import PeerEnvironment
from benchmarks.peers.totals import Totals
from benchmarks.run import Result, Run

__all__ = ["bytewax"]

_ENVIRONMENT = PeerEnvironment("bytewax", ("bytewax==0.21.1", "pyarrow==26.0.1"))
# In batches of 1,000 rows it takes four times as long: each batch visits all keys.
_ROWS_AT_ONCE = 1 << 16
_Totals = tuple[int, float, float, float]


def bytewax(run: Run, file: str) -> list[Result]:
    """Run it over one Parquet file in a Python that has bytewax: it takes rows one by one, and sixteen take an hour.

    Args:
        run: The run.
        file: The file.
    """
    return _ENVIRONMENT.run(run, _work, {"file": file})


def _work(run: Run) -> None:
    """Run the flow; all is measured but the imports."""
    import bytewax.operators as op
    from bytewax.dataflow import Dataflow
    from bytewax.operators import windowing
    from bytewax.testing import TestingSink, TestingSource, run_main

    file = Path(run.options["file"])
    found: list[Any] = []
    flow = Dataflow("windows")
    # `TestingSource` passes on what an iterator gives, as its own Parquet recipes do.
    rows = op.input("rows", flow, TestingSource(_rows(file), batch_size=_ROWS_AT_ONCE))
    began = datetime.now(UTC)
    # Its watermark goes on with the system's time, and rows that are read later than they happened would be late.
    clock = windowing.EventClock(lambda row: row[1], timedelta(seconds=10), now_getter=lambda: began)
    minutes = windowing.TumblingWindower(length=timedelta(minutes=1), align_to=datetime(2023, 1, 1, tzinfo=UTC))
    totals = windowing.fold_window("totals", rows, clock, minutes, _nothing, _add, _merge)
    op.output("out", totals.down, TestingSink(found))

    def work() -> dict[str, Any]:
        run_main(flow)
        totals = Totals()
        for _, (_, window) in found:
            totals.add(*window)
        return totals.figures()

    run.measure(work)


def _rows(file: Path) -> Iterator[tuple[str, tuple[float, datetime]]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

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
