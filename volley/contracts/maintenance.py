"""What a job's maintenance of its targets has done, and when more is due."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from volley.html_table import text_html

__all__ = ["MaintenanceReport", "MaintenanceRun"]


@dataclass(frozen=True)
class MaintenanceRun:
    """One run of one action.

    Args:
        table: The table's dotted name.
        action: The action, such as ``"compaction"``.
        at: When it began, in UTC.
        seconds: How long it took.
        outcome: What it has done, or why it failed.
        succeeded: False if it failed.
    """

    table: str
    action: str
    at: datetime
    seconds: float
    outcome: str
    succeeded: bool = True

    def __str__(self) -> str:
        result = self.outcome if self.succeeded else f"failed: {self.outcome}"
        return f"{self.at:%Y-%m-%d %H:%M:%S}  {self.table}  {self.action}  {self.seconds:.1f} s  {result}"


@dataclass(frozen=True)
class MaintenanceReport:
    """What the maintenance of a job's tables has done lately, and when more is due; prints as a list.

    Args:
        runs: The last runs that did something or failed, oldest first.
        due: By table, when its next maintenance is due.

    Example:
        >>> print(MaintenanceReport(due={"db.events": "after 20 more commits"}))
        db.events: due after 20 more commits
    """

    runs: tuple[MaintenanceRun, ...] = ()
    due: Mapping[str, str] = field(default_factory=dict, hash=False)

    @classmethod
    def of(cls, reports: Iterable[MaintenanceReport]) -> MaintenanceReport:
        """Return the reports of several tables as one."""
        listed = list(reports)
        runs = sorted((run for report in listed for run in report.runs), key=lambda run: run.at)
        return cls(tuple(runs), {table: due for report in listed for table, due in report.due.items()})

    _repr_html_ = text_html

    def __str__(self) -> str:
        return "\n".join([*map(str, self.runs), *(f"{table}: due {due}" for table, due in self.due.items())])
