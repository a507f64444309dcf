"""What is known of a job at one moment, as one value: of `Job.status`, ``/status.json``, the page and the history."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from volley.contracts.reports import DeadLetter, Lag, MaintenanceReport, TableTotals
from volley.html_table import html_table
from volley.metrics.figures import EpochProgress, FinishedEpoch

__all__ = [
    "STATUS_VERSION",
    "ExpectationStatus",
    "FollowedView",
    "GraphNode",
    "JobStatus",
    "Minute",
    "SinkStatus",
    "SourceStatus",
    "TableStatus",
    "status_json",
]

STATUS_VERSION = 1
"""The version of the JSON: a later one may have more fields; one whose meaning changes gets another number."""


@dataclass(frozen=True)
class GraphNode:
    """A source, step, sink or dead letter of a job.

    Args:
        id: Its number; inputs have smaller ones.
        kind: ``"source"``, ``"step"``, ``"keyed"`` (a step that keeps state), ``"sink"`` or ``"dead letter"``.
        label: The step as text, without secrets.
        inputs: The ids of the nodes whose rows it gets.
        rows: Rows that it has passed on in this run: read, computed or written. Bad rows count as read.
        rows_per_second: Those of the last epoch, by its seconds.
        bad: Rows that could not be read, computed or written there.
        rejected: Rows that a keyed step rejects, as late, early or without a time.
        state_bytes: Bytes of a keyed step's state after the last epoch.
    """

    id: int
    kind: str
    label: str
    inputs: tuple[int, ...] = ()
    rows: int = 0
    rows_per_second: float = 0.0
    bad: int = 0
    rejected: int = 0
    state_bytes: int = 0


@dataclass(frozen=True)
class SourceStatus:
    """A source of a job.

    Args:
        name: Its name in metrics.
        rows: Rows read of it in this run, good and bad ones.
        lag: How far the job is behind its end, after the last epoch; None if the source can't tell.
        watermark: The time up to which keyed steps count its rows as complete: that of the slowest step; None without
            such steps, or before its first row.
    """

    name: str
    rows: int = 0
    lag: Lag | None = None
    watermark: datetime | None = None


@dataclass(frozen=True)
class SinkStatus:
    """A sink or dead letter of a job, in this run.

    Args:
        name: Its label in metrics.
        rows, bytes, files: What was written to it.
        commits, commits_failed: Commits that landed, and those that did not, or may not have.
        rejected: Rows that keyed steps before it reject.
        seconds_since_last_commit: The age of the last commit; None before the first.
        watermark: The watermark of the windows or joins before it; None without any.
    """

    name: str
    rows: int = 0
    bytes: int = 0
    files: int = 0
    commits: int = 0
    commits_failed: int = 0
    rejected: int = 0
    seconds_since_last_commit: float | None = None
    watermark: datetime | None = None


@dataclass(frozen=True)
class FollowedView:
    """What is known of a view that is kept up to date, beside the jobs of ``/status.json``.

    Args:
        view: Its name.
        state: ``"starting"``, ``"running"``, ``"waiting"`` (for something that can't be reached now), ``"stopped"`` or
            ``"failed"``.
        reason: The error that it waits or has failed for; None otherwise.
        hint: What to do about it.
        refreshes: The last ones that changed it, oldest first, each with the values of `ViewRefresh`.
    """

    view: str
    state: str
    reason: str | None = None
    hint: str | None = None
    refreshes: tuple[Mapping[str, Any], ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return it as a dict of JSON values; times are texts of ISO 8601 in UTC."""
        values: dict[str, Any] = _plain(self)
        return values


@dataclass(frozen=True)
class TableStatus:
    """A table of a job.

    Args:
        sink: The label of the sink that writes to it.
        name: Its name.
        totals: What it has, after the sink's last look at it; None = not known.
        rows_parked: Rows that wait until it can take them.
    """

    sink: str
    name: str
    totals: TableTotals | None = None
    rows_parked: int = 0


@dataclass(frozen=True)
class ExpectationStatus:
    """An expectation of a job, in this run.

    Args:
        name: What is expected.
        predicate: Its predicate as text.
        column: The column that it is about; None = several.
        on_fail: What becomes of a row that fails: ``"warn"``, ``"drop"``, ``"dead_letter"`` or ``"fail"``.
        max_failed: The most rows of an epoch that may fail, or their share; None = any number.
        rows, failed, unknown: The rows that it looked at, those that failed, and those for which it was null, in epochs
            that every sink has.

    Example:
        >>> ExpectationStatus("price is not negative", "col('price') >= lit(0)", rows=5, failed=2).failed
        2
    """

    name: str
    predicate: str
    column: str | None = None
    on_fail: str = "warn"
    max_failed: float | None = None
    rows: int = 0
    failed: int = 0
    unknown: int = 0


@dataclass(frozen=True)
class Minute:
    """What a job has done in one minute.

    Args:
        at: When the minute began, in UTC.
        rows: Rows written by the epochs that ended in it.
        epochs: How many they are.
    """

    at: datetime
    rows: int
    epochs: int


@dataclass(frozen=True)
class JobStatus:
    """What is known of a job at one moment; secrets are masked.

    Args:
        job: Its name.
        state: ``"starting"``, ``"running"``, ``"restarting"``, ``"finished"``, ``"stopped"`` or ``"failed"``.
        reason: Why it is failed or restarting: the last error; None otherwise.
        hint: What to do about it.
        next_restart: In how many seconds it starts again; None unless it is restarting.
        restarts: How often it started again in this run, the restart that it waits for included.
        began: When this run began, in UTC.
        seconds: The time since then, until its end.
        epoch: The last epoch that is visible in every sink; None before the first.
        epochs, skipped: Epochs finished in this run, and how many of them every sink had already.
        rows, rejected, files, bytes: What was written in this run; rejected rows went to a dead letter.
        late: Rows that keyed steps reject, as late, early or without a time.
        rows_per_second: Rows of the last epoch, by its seconds; 0 before the first.
        running: The progress of the running epoch; None between epochs.
        recent: The last hundred epochs, oldest first, each with the seconds of its phases.
        minutes: The last hour, oldest first; a minute without an epoch is left out.
        graph: Its nodes, inputs first.
        sources, sinks: Each source, sink and dead letter.
        tables: The tables of its sinks, a hundred of each at most.
        expectations: What became of each expectation of its rows.
        letters: The last twenty rows that went to dead letters, the oldest first.
        replayed: Dead letters that were read again and marked, if it is a replay.
        maintenance: What the maintenance of its tables has done lately, and what is due.
        notes: What an operator should look after, though the job goes on.

    Example:
        >>> status = JobStatus("orders", "running", rows=300)
        >>> status.to_json()[:45]
        '{"version": 1, "job": "orders", "state": "run'
    """

    job: str
    state: str
    reason: str | None = None
    hint: str | None = None
    next_restart: float | None = None
    restarts: int = 0
    began: datetime | None = None
    seconds: float = 0.0
    epoch: int | None = None
    epochs: int = 0
    skipped: int = 0
    rows: int = 0
    rejected: int = 0
    late: int = 0
    files: int = 0
    bytes: int = 0
    rows_per_second: float = 0.0
    running: EpochProgress | None = None
    recent: tuple[FinishedEpoch, ...] = ()
    minutes: tuple[Minute, ...] = ()
    graph: tuple[GraphNode, ...] = ()
    sources: tuple[SourceStatus, ...] = ()
    sinks: tuple[SinkStatus, ...] = ()
    tables: tuple[TableStatus, ...] = ()
    expectations: tuple[ExpectationStatus, ...] = ()
    letters: tuple[DeadLetter, ...] = ()
    replayed: int = 0
    maintenance: MaintenanceReport = field(default_factory=MaintenanceReport)
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the status as a dict of JSON values; times are texts of ISO 8601 in UTC."""
        values: dict[str, Any] = {"version": STATUS_VERSION, **_plain(self)}
        return values

    def to_json(self) -> str:
        """Return the status as one line of JSON."""
        return _json(self.to_dict())

    def _repr_html_(self) -> str:
        shown = ("job", "state", "reason", "hint", "epoch", "rows", "rejected", "late", "rows_per_second", "restarts")
        return html_table({name.replace("_", " "): getattr(self, name) for name in shown})


def status_json(
    jobs: Sequence[Mapping[str, Any]],
    runs: Sequence[Mapping[str, Any]] = (),
    views: Sequence[Mapping[str, Any]] = (),
) -> str:
    """Return what ``/status.json`` answers, as one line of JSON.

    Args:
        jobs: The status of each job, as of `JobStatus.to_dict`.
        runs: Earlier runs, where the page shows a history, each with ``job``, ``number``, ``state``, ``began``,
            ``ended``, ``epochs``, ``rows`` and ``error``.
        views: The views that are kept up to date beside the jobs, each as of `FollowedView.to_dict`.

    Example:
        >>> status_json([])
        '{"version": 1, "jobs": [], "runs": [], "views": []}'
    """
    return _json({"version": STATUS_VERSION, "jobs": list(jobs), "runs": list(runs), "views": list(views)})


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _plain(value: Any) -> Any:
    """Return a value as JSON values; `asdict` would copy each of them first, once a second on a page."""
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {str(key): _plain(content) for key, content in value.items()}
    if isinstance(value, Sequence):
        return [_plain(content) for content in value]
    return {name: _plain(getattr(value, name)) for name in value.__dataclass_fields__}
