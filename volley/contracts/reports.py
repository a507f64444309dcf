"""What sources and sinks report of themselves: probes for `volley check`, lags, the maintenance of a target."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from volley.html_table import settings_html, text_html

__all__ = ["PROBE_SECONDS", "DeadLetter", "Lag", "MaintenanceReport", "MaintenanceRun", "Probe", "TableTotals"]

PROBE_SECONDS = 10.0
"""The longest timeout of a request that a probe makes."""


@dataclass(frozen=True)
class Probe:
    """One look at a source or sink.

    Args:
        name: What is looked at, such as ``"catalog"``.
        run: Looks at it, and returns what was found in a few words; raises a VolleyError if it can't be used. It
            leaves nothing behind.

    Example:
        >>> Probe("rows", lambda: "3 files").run()
        '3 files'
    """

    name: str
    run: Callable[[], str]


@dataclass(frozen=True)
class DeadLetter:
    """A row that went to a dead letter, as the status of a job shows it: secrets are masked.

    Args:
        payload: The first 300 characters of the row.
        error: Why it is bad; the first 300 characters.
        position: Its place in the source.
        epoch: The epoch that rejected it.
        time: When, in UTC.
        step: The step that failed.
        column: The column at fault; None = not known, or none alone.
        source: The source; None = the row came out of a step with state.

    Example:
        >>> DeadLetter('{"id": "x"}', "column 'id' does not fit", "in/1.json, line 3", 7).epoch
        7
    """

    payload: str
    error: str
    position: str
    epoch: int
    time: datetime | None = None
    step: str | None = None
    column: str | None = None
    source: str | None = None


@dataclass(frozen=True)
class Lag:
    """How far a job is behind the end of a source.

    Args:
        source: The source's name in metrics.
        rows: The number of rows that are not read yet.
        seconds: The age of the oldest of them; 0 if there are none. Of Kafka's messages, the time since the job has
            seen them.
        snapshots: The number of snapshots of a table that are not read yet.
        staged_bytes: The bytes that the job has received and not committed yet.
        retained_bytes: The bytes that the source's server keeps for the job.
        files: The number of files, found so far, that are not read yet.
        bytes: Their bytes.

    Example:
        >>> Lag("db.events", rows=1_000, seconds=2.5).rows
        1000
    """

    source: str
    rows: int | None = field(
        default=None, metadata={"gauge": "Rows of a source that are not read yet, after the last epoch"}
    )
    seconds: float | None = field(
        default=None, metadata={"gauge": "Age of the oldest row of a source that is not read yet, after the last epoch"}
    )
    snapshots: int | None = field(
        default=None, metadata={"gauge": "Snapshots of a source that are not read yet, after the last epoch"}
    )
    staged_bytes: int | None = field(
        default=None,
        metadata={"gauge": "Bytes of a source that the job has received and not committed, after the last epoch"},
    )
    retained_bytes: int | None = field(
        default=None, metadata={"gauge": "Bytes that a source's server keeps for the job, after the last epoch"}
    )
    files: int | None = field(
        default=None, metadata={"gauge": "Files of a source that are found and not read yet, after the last epoch"}
    )
    bytes: int | None = field(
        default=None, metadata={"gauge": "Bytes of the files of a source that are not read yet, after the last epoch"}
    )

    _repr_html_ = settings_html


def _total(text: str) -> Any:
    return field(default=None, metadata={"gauge": f"{text}, as the metadata of its last snapshot tell"})


@dataclass(frozen=True)
class TableTotals:
    """What a table of a job has, as its metadata tell without a look at its files: a writer may have counted wrong.

    Args:
        rows: Rows in data files, also those that deletes delete; None = the writer of the last snapshot says nothing.
        deleted_rows: Rows in files of deletes.
        data_files, delete_files: The files of the last snapshot.
        bytes: Their size.
        snapshots: The number of snapshots.

    Example:
        >>> TableTotals(rows=1_000, data_files=10).data_files
        10
    """

    rows: int | None = _total("Rows in data files of a table, also those that deletes delete")
    deleted_rows: int | None = _total("Rows in files of deletes of a table")
    data_files: int | None = _total("Data files of a table")
    delete_files: int | None = _total("Files of deletes of a table")
    bytes: int | None = _total("Bytes of a table's files")
    snapshots: int = field(default=0, metadata={"gauge": "Snapshots of a table"})

    _repr_html_ = settings_html


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

    _repr_html_ = text_html


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
