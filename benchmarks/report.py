"""How a benchmark shows what it found: one table, then one line of JSON for each result, kept for the results page."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.machine import this_machine

__all__ = ["KEPT", "Figure", "Report"]

KEPT = Path(".volley") / "bench"


@dataclass(frozen=True)
class Figure:
    """A figure that has a bound.

    Args:
        figure: What it is.
        value: As it was measured.
        bound: The least it may be, or the most.
        unit: Of both.
        ok: Whether it is within.
    """

    figure: str
    value: float
    bound: float
    unit: str
    ok: bool

    @classmethod
    def at_least(cls, figure: str, value: float, bound: float, unit: str) -> Figure:
        return cls(figure, value, bound, unit, value >= bound)

    @classmethod
    def below(cls, figure: str, value: float, bound: float, unit: str) -> Figure:
        return cls(figure, value, bound, unit, value < bound)

    def __str__(self) -> str:
        return f"{'ok' if self.ok else 'not'}: {self.figure} {self.value:,.2f} {self.unit} (bound: {self.bound:,g})"


class Report:
    """Rows of a table, and the values they stand for.

    Args:
        title: The benchmark's name.
        columns: The heads of the columns.
    """

    def __init__(self, title: str, *columns: str) -> None:
        self._title = title
        self._table = Table(*columns, title=title)
        self._values: list[Any] = []
        self._figures: list[Figure] = []

    def add(self, value: Any, *cells: str) -> None:
        """One row, and the dataclass it shows."""
        self.row(*cells)
        self.note(value)

    def row(self, *cells: str) -> None:
        """One row alone."""
        self._table.add_row(*cells)

    def note(self, value: Any) -> None:
        """A dataclass that goes into the lines of JSON alone."""
        self._values.append(value)

    def figure(self, figure: Figure) -> None:
        """A line below the table that says whether a bound is kept."""
        self._figures.append(figure)

    def print(self) -> None:
        """The table, the figures, then all of it as JSON, which `KEPT` keeps too, in place of an older run's."""
        # Where nobody watches, the table has the width it needs.
        Console(width=None if sys.stdout.isatty() else 200).print(self._table)
        for figure in self._figures:
            print(figure)
        lines = [json.dumps({"benchmark": self._title, **asdict(value)}) for value in (*self._values, *self._figures)]
        print("\n".join(lines))
        KEPT.mkdir(parents=True, exist_ok=True)
        machine = json.dumps({"benchmark": self._title, "machine": this_machine()})
        (KEPT / f"{self._title}.jsonl").write_text("\n".join([machine, *lines, ""]))
