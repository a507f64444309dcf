"""Estimates whether a view is cheaper to bring up to date by changes or to compute anew."""

from __future__ import annotations

from dataclasses import dataclass

from volley.iceberg.views.group import Group, rereading
from volley.iceberg.views.operators import Operator
from volley.iceberg.views.scan import Scan

__all__ = ["Cost", "cost_of"]

# CPU-microseconds, measured by `python -m benchmarks view_refresh` with mode=incremental and mode=full.
_FIXED_INCREMENTAL, _FIXED_FULL = 80_000.0, 30_000.0
# Per row of a source that is read for changes, or to compute rows from; per row of the view that is looked through, or
# is written.
_CHANGED, _READ = 0.03, 0.07
_LOOKED_THROUGH, _WRITTEN = 0.05, 0.3


@dataclass(frozen=True)
class Cost:
    """What a refresh costs, about.

    Args:
        changed_rows: Rows to read for the changes of the sources.
        again_rows: Rows to read again at most, for groups that are computed anew. How many, depends on how the
            sources are clustered.
        all_rows: All rows of the sources.
        view_rows: Rows of the view.
    """

    changed_rows: int
    again_rows: int
    all_rows: int
    view_rows: int

    @property
    def incremental(self) -> float:
        """The CPU time of an incremental refresh in microseconds."""
        read = _CHANGED * self.changed_rows + _READ * self.again_rows
        return _FIXED_INCREMENTAL + read + _LOOKED_THROUGH * self.view_rows

    @property
    def full(self) -> float:
        """The CPU time of a full refresh in microseconds."""
        return _FIXED_FULL + _READ * self.all_rows + _WRITTEN * self.view_rows

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
    changed = sum(scan.changed_rows for scan in _scans(operator))
    return Cost(changed, _again(operator), _rows_of(operator), view_rows)


def _again(operator: Operator) -> int:
    """Return how many rows are read again at most."""
    # Rows as they were, and as they are.
    again = sum(2 * _rows_of(part) for part in rereading(operator))
    loses_rows = any(scan.loses_rows for scan in _scans(operator))
    return again + (_rows_of(operator) if isinstance(operator, Group) and operator.is_fragile and loses_rows else 0)


def _rows_of(operator: Operator) -> int:
    return sum(scan.all_rows for scan in _scans(operator))


def _scans(operator: Operator) -> list[Scan]:
    return [part for part in operator.walk() if isinstance(part, Scan)]
