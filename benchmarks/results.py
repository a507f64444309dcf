"""The results page: what each benchmark's last run has kept, as tables and plots."""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.comparison import COLUMNS, Row, compared
from benchmarks.measure import Result
from benchmarks.plots import draw_results, draw_values
from benchmarks.report import KEPT

SUMMARY = "RESULTS.md with its plots, from what the benchmarks' last runs have kept"

_HERE = Path(__file__).parent
_HEAD = """# Results

Made by `python -m benchmarks report` from the last run of each benchmark; `make bench` runs them and makes it anew.
Medians of alternating runs, with their spread. CPU-seconds are those of the whole process tree: driver, JVM and Python
workers. Memory is the peak that is resident: of one Python worker, of the JVM, of the driver. "× runtime" is against
Iceberg's own Spark runtime (1.12.0 on PySpark 4.1.4) on the same rows, files, compression and epochs.
"""

Line = Mapping[str, Any]


def run(arguments: list[str]) -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks report", description=SUMMARY)
    parser.add_argument("--to", type=Path, default=_HERE, help="the folder for the page, and for plots/ beside it")
    asked = parser.parse_args(arguments)
    page = write_page(KEPT, asked.to)
    print(f"wrote {page.name}")


def write_page(kept: Path, folder: Path) -> Path:
    """The page and its plots.

    Args:
        kept: The folder with what the benchmarks have kept.
        folder: Where the page goes, and ``plots`` beside it.
    """
    from benchmarks.__main__ import BENCHMARKS

    (folder / "plots").mkdir(parents=True, exist_ok=True)
    lines = {name: _lines(kept / f"{name}.jsonl") for name in BENCHMARKS if (kept / f"{name}.jsonl").exists()}
    summaries = {name: import_module(f"benchmarks.{BENCHMARKS[name][0]}").SUMMARY for name in lines}
    sections = [_section(name, summaries[name], found, folder) for name, found in lines.items()]
    bounds = [line for found in lines.values() for line in found if "bound" in line]
    page = folder / "RESULTS.md"
    page.write_text("\n".join([_HEAD, *_bounds(bounds), *sections]))
    return page


def _lines(path: Path) -> list[Line]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def _section(name: str, summary: str, lines: Sequence[Line], folder: Path) -> str:
    """One benchmark: what it is, on what it ran, its tables, its plot."""
    (machine,) = (line["machine"] for line in lines if "machine" in line)
    results = [Result(**_own(line)) for line in lines if "cpu_seconds" in line and "case" in line]
    values = [_own(line) for line in lines if not {"machine", "bound", "case"} & line.keys()]
    parts = [f"## {name}\n", f"{summary[0].upper()}{summary[1:]}.\n", f"{_sentence(machine)}\n"]
    plot = folder / "plots" / f"{name}.svg"
    if results:
        rows = compared(results)
        draw_results(rows, plot)
        parts += _table(COLUMNS, ([*row.cells] for row in rows))
        parts += _more(rows)
    if values:
        heads = [head for head, value in values[0].items() if not isinstance(value, dict)]
        parts += _table(heads, ([_shown(value[head]) for head in heads] for value in values))
    if draw_values(name, values, plot) or results:
        parts.append(f"![{name}](plots/{name}.svg)\n")
    return "\n".join(parts)


def _more(rows: Sequence[Row]) -> list[str]:
    """The figures that one benchmark alone has: medians of its runs."""
    heads = list(dict.fromkeys(head for row in rows for head in row.runs[0].extra))
    if not heads:
        return []
    return _table(["what", *heads], ([row.what, *(_shown(_median(row, head)) for head in heads)] for row in rows))


def _median(row: Row, head: str) -> float | None:
    values = [run.extra[head] for run in row.runs if head in run.extra]
    return statistics.median(values) if values else None


def _own(line: Line) -> dict[str, Any]:
    return {name: value for name, value in line.items() if name != "benchmark"}


def _sentence(machine: Mapping[str, str]) -> str:
    fixed = ("date", "cores", "memory", "system")
    versions = ", ".join(f"{name} {value}" for name, value in machine.items() if name not in fixed)
    return f"{machine['date']}, {machine['cores']} cores, {machine['memory']}, {machine['system']}; {versions}."


def _bounds(lines: Sequence[Line]) -> list[str]:
    """The figures that have a bound, of all benchmarks."""
    if not lines:
        return []
    rows = (
        [line["benchmark"], line["figure"], f"{_shown(line['value'])} {line['unit']}", _shown(line["bound"]), _ok(line)]
        for line in lines
    )
    return ["## Bounds\n", *_table(["benchmark", "figure", "measured", "bound", ""], rows)]


def _ok(line: Line) -> str:
    return "ok" if line["ok"] else "**not**"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return [_row(heads), _row(["---"] * len(heads)), *map(_row, rows), ""]


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _shown(value: Any) -> str:
    match value:
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case float():
            return f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:.3g}"
        case None:
            return "–"
    return str(value)
