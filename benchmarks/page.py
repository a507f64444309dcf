"""The page of results: what each benchmark's last run found, as tables and plots."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.benchmark import BENCHMARKS, Benchmark
from benchmarks.plots import draw
from benchmarks.rows import Bound, Row, in_rows
from benchmarks.run import Result

__all__ = ["table", "write_page"]

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
_RATIOS: dict[str, Callable[[Row], str]] = {
    "× runtime, rows/s": lambda row: _ratio(row.times_runtime("rows_per_second")),
    "× runtime, per CPU-s": lambda row: _ratio(row.times_runtime("rows_per_cpu_second")),
    "× limit, per CPU-s": lambda row: _ratio(row.times_limit("rows_per_cpu_second")),
}


def write_page(kept: Path, folder: Path) -> Path:
    """Write the page and its plots; a benchmark that has not run since keeps what the page says of it.

    Args:
        kept: The folder with what the benchmarks have kept.
        folder: Where the page goes, and ``plots`` beside it.
    """
    (folder / "plots").mkdir(parents=True, exist_ok=True)
    page = folder / "RESULTS.md"
    bounds, sections = _parts(page.read_text()) if page.exists() else ({}, {})
    for name, benchmark in BENCHMARKS.items():
        if (kept / f"{name}.jsonl").exists():
            machine, *lines = map(json.loads, (kept / f"{name}.jsonl").read_text().splitlines())
            rows = in_rows((Result(**line) for line in lines), benchmark.case)
            bounds[name] = [_cells(name, bound) for row in rows for bound in benchmark.bounds(row)]
            sections[name] = _section(benchmark, machine, rows)
            draw(benchmark.plots or benchmark.figures[:2], benchmark.case, rows, folder / "plots" / f"{name}.svg")
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


def table(benchmark: Benchmark, rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """The heads and the lines of a benchmark's table: medians, the spread of the first figure, ratios."""
    first, *others = benchmark.figures
    columns: dict[str, Callable[[Row], str]] = {"what": lambda row: row.peer if benchmark.case else row.what}
    if benchmark.case:
        columns[benchmark.case] = lambda row: _shown(row.case)
    columns[_head(first)] = partial(_median, first)
    if any(len(row.runs) > 1 for row in rows):
        columns["min–max"] = lambda row: _spread(row.values(first))
    for figure in others:
        columns[_head(figure)] = partial(_median, figure)
    if first == "rows_per_second":
        columns.update({head: ratio for head, ratio in _RATIOS.items() if any(ratio(row) != "–" for row in rows)})
    return [*columns], [[cell(row) for cell in columns.values()] for row in rows]


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


def _head(figure: str) -> str:
    return _HEADS.get(figure, figure.replace("_", " "))


def _median(figure: str, row: Row) -> str:
    return _shown(row.median(figure))


def _ratio(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


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
