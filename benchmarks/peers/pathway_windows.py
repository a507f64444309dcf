"""Tumbling windows in Pathway, in its own idiom: a table of JSON lines, ``windowby`` with a behavior, ``reduce``."""

from __future__ import annotations

import os
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from benchmarks.run import Result, Run
from tests.servers.downloads import other_version

__all__ = ["missing", "pathway"]

_VERSION = "0.33.0"
_ROOT = Path(__file__).parents[2]


@cache
def missing() -> str | None:
    """Why it can't run here, or None if it can."""
    try:
        other_version("pathway", _VERSION)
    except (pytest.skip.Exception, pytest.fail.Exception) as reason:
        return str(reason)
    return None


def pathway(run: Run, file: Path, rows: int) -> list[Result]:
    """Run it over one file of JSON lines in a Python that has Pathway: it reads no Parquet.

    Args:
        run: The run.
        file: The file.
        rows: Its rows.
    """
    path = os.pathsep.join([str(_ROOT), str(other_version("pathway", _VERSION))])
    environment = {**os.environ, "PYTHONPATH": path, "PATHWAY_THREADS": str(os.cpu_count())}
    return run.apart(_work, environment, rows=rows, options={"file": str(file)})


def _work(run: Run) -> None:
    import pathway as pw

    class Event(pw.Schema):  # type: ignore[misc]
        user: str
        price: float
        at: str

    found = [0]

    def count(key: Any, row: Any, time: int, is_addition: bool) -> None:
        found[0] += 1 if is_addition else -1

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
        totals = minutes.reduce(
            user=pw.this._pw_instance,
            start=pw.this._pw_window_start,
            n=pw.reducers.count(),
            total=pw.reducers.sum(pw.this.price),
            low=pw.reducers.min(pw.this.price),
            high=pw.reducers.max(pw.this.price),
        )
        pw.io.subscribe(totals, count)
        pw.run(monitoring_level=pw.MonitoringLevel.NONE)
        return {"windows": found[0]}

    run.measure(work)
