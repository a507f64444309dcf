"""The plots of the page of results, one SVG for each benchmark."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.ticker import EngFormatter

from benchmarks.rows import Row

__all__ = ["draw"]

_WIDTH = 9.0


def draw(figures: Sequence[str], case: str, rows: Sequence[Row], path: Path) -> None:
    """Each figure beside the others: over the cases if they are numbers, else as a bar for each row, with its spread.

    Args:
        figures: Their names.
        case: What the cases are.
        rows: At least one.
        path: The SVG to write.
    """
    over_cases = all(isinstance(row.case, (int, float)) for row in rows)
    drawing = Drawing(figsize=(_WIDTH, 3.5 if over_cases else 1.2 + 0.35 * len(rows)), layout="constrained")
    plots = drawing.subplots(1, len(figures), sharey=not over_cases, squeeze=False)[0]
    for axes, figure in zip(plots, figures, strict=True):
        (_lines if over_cases else _bars)(axes, figure, rows)
        (axes.yaxis if over_cases else axes.xaxis).set_major_formatter(EngFormatter(sep=""))
        name = figure.replace("_", " ")
        if over_cases:
            axes.set(xlabel=case, ylabel=name, ylim=(0, None), xscale="symlog")
            axes.legend()
        else:
            axes.set_xlabel(name)
    # The same results make the same file: no date in it, no random names.
    with matplotlib.rc_context({"svg.hashsalt": "volley"}):
        drawing.savefig(path, format="svg", metadata={"Date": None})


def _lines(axes: Axes, figure: str, rows: Sequence[Row]) -> None:
    for peer in dict.fromkeys(row.peer for row in rows):
        points = [(row.case, row.median(figure)) for row in rows if row.peer == peer and row.values(figure)]
        axes.plot(*zip(*points, strict=True), marker="o", label=peer)


def _bars(axes: Axes, figure: str, rows: Sequence[Row]) -> None:
    # The first at the top.
    drawn = [row for row in reversed(rows) if row.values(figure)]
    medians = [row.median(figure) for row in drawn]
    spread = [[abs(row.median(figure) - end(row.values(figure))) for row in drawn] for end in (min, max)]
    axes.barh([row.what for row in drawn], medians, xerr=spread)
