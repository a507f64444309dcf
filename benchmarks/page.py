"""The page of results: what each benchmark's last run found, as tables and plots."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.ticker import EngFormatter

from benchmarks.benchmark import BENCHMARKS, Benchmark
from benchmarks.rows import LIMIT, RUNTIME, Bound, Row, in_rows
from benchmarks.run import Result

_HEAD = """# Results

Made by `python -m benchmarks report` from the last run of each benchmark; `make bench` runs all of them before it.
Medians of alternating runs, with their spread. CPU-seconds are those of the whole process tree: driver, JVM and Python
workers. Memory is the peak that is resident: of one Python worker, of the JVM, of the driver. "× runtime" is against
Iceberg's own Spark runtime (1.12.0 on PySpark 4.1.4) on the same rows, files, compression and epochs.
"""
_HEADS = {
    "rows_per_second": "rows/s",
    "rows_per_cpu_second": "rows per CPU-s",
    "cpu_seconds": "CPU-s",
    "worker_mb": "worker MB",
    "jvm_mb": "JVM MB",
    "driver_mb": "driver MB",
    "peak_mb": "peak MB",
    "mb": "MB",
    "cpu_ms": "CPU ms",
    "cpu_us_a_row": "CPU µs a row",
}
_RATIOS = {
    "× runtime, rows/s": {"figure": "rows_per_second", "peer": RUNTIME},
    "× runtime, per CPU-s": {"figure": "rows_per_cpu_second", "peer": RUNTIME},
    "× limit, per CPU-s": {"figure": "rows_per_cpu_second", "case": LIMIT},
}


def write_page(kept: Path, folder: Path) -> Path:
    """Write the page of what is kept, and its plots; of a benchmark that has not run since it says what it said."""
    (folder / "plots").mkdir(parents=True, exist_ok=True)
    page = folder / "RESULTS.md"
    bounds, sections = _parts(page.read_text()) if page.exists() else ({}, {})
    for name, benchmark in BENCHMARKS.items():
        if (kept / f"{name}.jsonl").exists():
            machine, *lines = map(json.loads, (kept / f"{name}.jsonl").read_text().splitlines())
            rows = in_rows((Result(**line) for line in lines), benchmark.case)
            bounds[name] = [_cells(name, bound) for bound in benchmark.bounds_of(rows)]
            sections[name] = _section(benchmark, machine, rows)
            _draw(benchmark.plots or benchmark.figures[:2], rows, folder / "plots" / f"{name}.svg")
    cells = [line for name in BENCHMARKS for line in bounds.get(name, ())]
    first = ["## Bounds\n", *_markdown(["benchmark", "figure", "measured", "bound", ""], cells)]
    page.write_text("\n".join([_HEAD, *first, *(sections[name] for name in BENCHMARKS if name in sections)]))
    return page


def _parts(page: str) -> tuple[dict[str, list[list[str]]], dict[str, str]]:
    """Return the cells of the bounds and the section of each benchmark of a page."""
    _, first, *others = page.split("\n## ")
    bounds: dict[str, list[list[str]]] = {}
    for name, *cells in (line.strip("| ").split(" | ") for line in first.splitlines()[4:] if line):
        bounds.setdefault(name, []).append([name, *cells])
    return bounds, {text.split("\n", 1)[0]: f"## {text.rstrip()}\n" for text in others}


def table(benchmark: Benchmark, rows: Sequence[Row]) -> tuple[list[str], list[tuple[str, ...]]]:
    """The heads and the lines of a benchmark's table: medians, the spread of the first figure, ratios."""
    columns = {"what": [row.peer if benchmark.case else row.what for row in rows]}
    if benchmark.case:
        columns[benchmark.case] = [_shown(row.case) for row in rows]
    for figure in benchmark.figures:
        columns[_HEADS.get(figure, figure.replace("_", " "))] = [_shown(row.median(figure)) for row in rows]
        if figure == benchmark.figures[0] and any(len(row.runs) > 1 for row in rows):
            columns["min–max"] = [_spread(row.values(figure)) for row in rows]
    for head, other in _RATIOS.items() if benchmark.figures[0] == "rows_per_second" else ():
        ratios = [row.times(**other) for row in rows]
        if set(ratios) != {None}:
            columns[head] = ["–" if ratio is None else f"{ratio:.2f}" for ratio in ratios]
    return [*columns], [*zip(*columns.values(), strict=True)]


def _section(benchmark: Benchmark, machine: Mapping[str, str], rows: Sequence[Row]) -> str:
    """One benchmark: what it asks, on what it ran, its table, its plot."""
    question, name = benchmark.question, benchmark.name
    parts = [f"## {name}\n", f"{question[0].upper()}{question[1:]}.\n", f"{_sentence(machine)}\n"]
    return "\n".join([*parts, *_markdown(*table(benchmark, rows)), f"![{name}](plots/{name}.svg)\n"])


def _sentence(machine: Mapping[str, str]) -> str:
    fixed = ("date", "cores", "memory", "system")
    versions = ", ".join(f"{name} {value}" for name, value in machine.items() if name not in fixed)
    return f"{machine['date']}, {machine['cores']} cores, {machine['memory']}, {machine['system']}; {versions}."


def _cells(name: str, bound: Bound) -> list[str]:
    measured = f"{_shown(float(bound.value))} {bound.unit}"
    return [name, bound.figure, measured, _shown(bound.bound), "ok" if bound.ok else "**not**"]


def _markdown(heads: Sequence[str], lines: Iterable[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(cells)} |" for cells in (heads, ["---"] * len(heads), *lines)] + [""]


def _spread(values: Sequence[Any]) -> str:
    return f"{_shown(min(values))}–{_shown(max(values))}" if len(values) > 1 else "–"


def _shown(value: Any) -> str:
    match value:
        case int():
            return f"{value:,}"
        case float():
            return f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:.3g}"
        case None:
            return "–"
    return str(value)


def _draw(figures: Sequence[str], rows: Sequence[Row], path: Path) -> None:
    """Each figure beside the others: over the cases if they are numbers, else as bars with their spread."""
    over_cases = all(isinstance(row.case, (int, float)) for row in rows)
    drawing = Drawing(figsize=(9.0, 3.5 if over_cases else 1.2 + 0.35 * len(rows)), layout="constrained")
    plots = drawing.subplots(1, len(figures), sharey=not over_cases, squeeze=False)[0]
    for axes, figure in zip(plots, figures, strict=True):
        (_lines if over_cases else _bars)(axes, figure, rows)
    # The same results make the same file: no date in it, no random names.
    with matplotlib.rc_context({"svg.hashsalt": "volley"}):
        drawing.savefig(path, format="svg", metadata={"Date": None})


def _lines(axes: Axes, figure: str, rows: Sequence[Row]) -> None:
    for peer in dict.fromkeys(row.peer for row in rows):
        points = [(row.case, row.median(figure)) for row in rows if row.peer == peer and row.values(figure)]
        axes.plot(*zip(*points, strict=True), marker="o", label=peer)
    axes.yaxis.set_major_formatter(EngFormatter(sep=""))
    axes.set(xlabel=rows[0].head, ylabel=figure.replace("_", " "), ylim=(0, None), xscale="symlog")
    axes.legend()


def _bars(axes: Axes, figure: str, rows: Sequence[Row]) -> None:
    # The first at the top.
    drawn = [row for row in reversed(rows) if row.values(figure)]
    medians = [row.median(figure) for row in drawn]
    spread = [[abs(row.median(figure) - end(row.values(figure))) for row in drawn] for end in (min, max)]
    axes.barh([row.what for row in drawn], medians, xerr=spread)
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.set_xlabel(figure.replace("_", " "))
