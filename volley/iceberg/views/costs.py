"""Estimates whether a view is cheaper to bring up to date by changes or to compute anew."""

from __future__ import annotations

from dataclasses import dataclass

from volley.iceberg.views.operators import Operator
from volley.iceberg.views.scan import Scan

__all__ = ["Cost", "cost_of"]

# CPU-microseconds, measured by `python -m benchmarks view_refresh`.
_FIXED = 60_000.0
_READ = 0.25
_CHANGED = 3.0
_VIEW = 0.15


@dataclass(frozen=True)
class Cost:
    """What a refresh costs, about.

    Args:
        changed_rows: Rows to read for the changes of the sources.
        all_rows: All rows of the sources.
        view_rows: Rows of the view.
    """

    changed_rows: int
    all_rows: int
    view_rows: int

    @property
    def incremental(self) -> float:
        """The CPU time of an incremental refresh in microseconds."""
        return _FIXED + _CHANGED * self.changed_rows + _VIEW * self.view_rows

    @property
    def full(self) -> float:
        """The CPU time of a full refresh in microseconds."""
        return _FIXED + _READ * self.all_rows + _CHANGED * self.view_rows

    def __str__(self) -> str:
        return f"about {self.changed_rows:,} rows to read for the changes of {self.all_rows:,}"

    @property
    def favours_full(self) -> bool:
        """True if computing the view anew is cheaper."""
        return self.full < self.incremental


def cost_of(operator: Operator, view_rows: int) -> Cost:
    """Return what a refresh of a query costs.

    Args:
        operator: The query.
        view_rows: The rows of its view.
    """
    scans = [part for part in operator.walk() if isinstance(part, Scan)]
    return Cost(sum(scan.changed_rows for scan in scans), sum(scan.all_rows for scan in scans), view_rows)
