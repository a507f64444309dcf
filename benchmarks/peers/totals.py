"""Totals over all windows, to compare what peers find."""

from __future__ import annotations

from dataclasses import astuple, dataclass
from typing import Any

__all__ = ["Totals"]


@dataclass
class Totals:
    """How many windows there are, and the sums of their counts, sums, minima and maxima."""

    windows: int = 0
    n: int = 0
    total: float = 0.0
    low: float = 0.0
    high: float = 0.0

    def add(self, n: int, total: float, low: float, high: float, sign: int = 1) -> None:
        """Add a window, or with the sign -1 take it back."""
        self.windows += sign
        self.n += sign * n
        self.total += sign * total
        self.low += sign * low
        self.high += sign * high

    def figures(self) -> dict[str, Any]:
        """Return the figures of a run: the number of windows, and all totals to compare."""
        return {"windows": self.windows, "totals": astuple(self)}
