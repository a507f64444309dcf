"""The plots of the results page, one SVG for each benchmark that has something to draw."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.ticker import EngFormatter

from benchmarks.comparison import Row
from benchmarks.measure import Result

__all__ = ["draw_results", "draw_values"]

VALUES: dict[str, tuple[str, str, str | None]] = {
    "commit_cost": ("snapshots", "cpu_ms", "peer"),
    "snapshot_creation": ("files", "wall_ms", "peer"),
    "partition_pruning": ("partitions", "wall_ms", "by"),
    "catalog_load": ("catalog", "wall_ms", "peer"),
    "compressions": ("codec", "rows_per_cpu_second", None),
    "rolling": ("target", "rows_per_second", None),
    "expressions": ("expression", "rows_per_cpu_second", "path"),
    "epoch_latency": ("peer", "p50", None),
    "empty_epoch": ("peer", "wall_ms", None),
    "start_up": ("what", "seconds", None),
    "upsert_strategy": ("share", "upsert", "strategy"),
}
"""For each benchmark with values of its own: across, up, and what each series is called."""

_WIDTH = 9.0


def draw_results(rows: Sequence[Row], path: Path) -> None:
    """Speed and economy of each peer as bars; or, over several sizes, the cost of a row and its workers' memory.

    Args:
        rows: At least one.
        path: The SVG to write.
    """
    if len({row.what for row in rows}) < len(rows):
        _save(_over_sizes([run for row in rows for run in row.runs]), path)
        return
    drawing = Drawing(figsize=(_WIDTH, 1.2 + 0.35 * len(rows)), layout="constrained")
    left, right = drawing.subplots(1, 2, sharey=True)
    # The first at the top.
    upwards = rows[::-1]
    names, speeds = [row.what for row in upwards], [row.speed for row in upwards]
    below, above = ([abs(row.speed - end(row.speeds)) for row in upwards] for end in (min, max))
    left.barh(names, speeds, xerr=[below, above])
    left.set_xlabel("rows/s, median and spread")
    right.barh(names, [row.economy for row in upwards])
    right.set_xlabel("rows per CPU-second")
    for axes in (left, right):
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    _save(drawing, path)


def draw_values(name: str, values: Sequence[Mapping[str, Any]], path: Path) -> bool:
    """The values of one benchmark, if there is a plot for it.

    Args:
        name: The benchmark's.
        values: Its lines of JSON.
        path: The SVG to write.
    """
    if name not in VALUES or not values:
        return False
    across, up, series = VALUES[name]
    drawing = Drawing(figsize=(_WIDTH, 3.5), layout="constrained")
    axes = drawing.subplots()
    axes.set_xlabel(across)
    groups = dict.fromkeys(value[series] if series else "" for value in values)
    for number, group in enumerate(groups):
        chosen = [value for value in values if not series or value[series] == group]
        _series(axes, _medians(chosen, across, up), group, (number - (len(groups) - 1) / 2) * 0.8 / len(groups))
    axes.set(ylabel=up.replace("_", " "), ylim=(0, None))
    axes.yaxis.set_major_formatter(EngFormatter(sep=""))
    if series:
        axes.legend()
    _save(drawing, path)
    return True


def _medians(values: Sequence[Mapping[str, Any]], across: str, up: str) -> dict[Any, float]:
    places = dict.fromkeys(value[across] for value in values)
    return {place: statistics.median(value[up] for value in values if value[across] == place) for place in places}


def _series(axes: Axes, points: dict[Any, float], label: str, shift: float) -> None:
    if all(isinstance(place, (int, float)) for place in points):
        axes.plot(list(points), list(points.values()), marker="o", label=label)
        axes.set_xscale("symlog")
        return
    axes.bar([index + shift for index in range(len(points))], list(points.values()), width=0.35, label=label)
    axes.set_xticks(range(len(points)), list(points), rotation=15, ha="right")


def _over_sizes(results: Sequence[Result]) -> Drawing:
    drawing = Drawing(figsize=(_WIDTH, 3.5), layout="constrained")
    cost, memory = drawing.subplots(1, 2)
    for name in dict.fromkeys(result.name for result in results):
        same = [result for result in results if result.name == name]
        sizes = sorted({result.rows for result in same})
        for axes, figure in ((cost, _cpu_us), (memory, _peak_mb)):
            medians = [statistics.median(figure(run) for run in same if run.rows == size) for size in sizes]
            axes.plot(sizes, medians, marker="o", label=name)
    cost.set_ylabel("CPU µs a row")
    memory.set_ylabel("peak MB: JVM, driver, a worker")
    for axes in (cost, memory):
        axes.set_xlabel("rows")
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        axes.set_ylim(bottom=0)
    cost.legend()
    return drawing


def _cpu_us(run: Result) -> float:
    return 1e6 / run.rows_per_cpu_second


def _peak_mb(run: Result) -> float:
    return run.worker_mb + run.jvm_mb + run.driver_mb


def _save(drawing: Drawing, path: Path) -> None:
    # The same results make the same file: no date in it, no random names.
    with matplotlib.rc_context({"svg.hashsalt": "volley"}):
        drawing.savefig(path, format="svg", metadata={"Date": None})
