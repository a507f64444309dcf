"""How a benchmark shows what it found: one table, then one line of JSON for each result."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table

__all__ = ["Report"]


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

    def print(self) -> None:
        """The table, then the values as JSON."""
        # Where nobody watches, the table has the width it needs.
        Console(width=None if sys.stdout.isatty() else 140).print(self._table)
        for value in self._values:
            print(json.dumps({"benchmark": self._title, **asdict(value)}))
