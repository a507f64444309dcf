"""Tumbling windows in Pathway, in its own idiom: a table of JSON lines, ``windowby`` with a behavior, ``reduce``."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

from benchmarks.peers.environment import PeerEnvironment
from benchmarks.peers.totals import Totals
from benchmarks.run import Result, Run

__all__ = ["pathway"]

_ENVIRONMENT = PeerEnvironment("pathway", ("pathway==0.33.0",))


def pathway(run: Run, file: str) -> list[Result]:
    """Run it over one file of JSON lines in a Python that has Pathway: it reads no Parquet.

    Args:
        run: The run.
        file: The file.
    """
    return _ENVIRONMENT.run(run, _work, {"file": file}, PATHWAY_THREADS=str(os.cpu_count()))


def _work(run: Run) -> None:
    """Run Pathway; all is measured but the imports."""
    import pathway as pw

    class Event(pw.Schema):  # type: ignore[misc]
        user: str
        price: float
        at: str

    totals = Totals()

    def add(key: Any, row: Any, time: int, is_addition: bool) -> None:
        totals.add(row["n"], row["total"], row["low"], row["high"], 1 if is_addition else -1)

    def work() -> dict[str, Any]:
        rows = pw.io.jsonlines.read(run.options["file"], schema=Event, mode="static")
        # The files have the zone's hours alone.
        rows = rows.with_columns(at=(pw.this.at + "00").dt.strptime("%Y-%m-%d %H:%M:%S.%f%z"))
        minutes = rows.windowby(
            pw.this.at,
            window=pw.temporal.tumbling(duration=timedelta(minutes=1)),
            instance=pw.this.user,
            behavior=pw.temporal.common_behavior(delay=timedelta(seconds=10)),
        )
        windows = minutes.reduce(
            user=pw.this._pw_instance,
            start=pw.this._pw_window_start,
            n=pw.reducers.count(),
            total=pw.reducers.sum(pw.this.price),
            low=pw.reducers.min(pw.this.price),
            high=pw.reducers.max(pw.this.price),
        )
        pw.io.subscribe(windows, add)
        pw.run(monitoring_level=pw.MonitoringLevel.NONE)
        return totals.figures()

    run.measure(work)
