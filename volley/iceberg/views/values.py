"""A view as a value, the queries that it can have, and what it tells of its refreshes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from volley.errors import PlanError
from volley.html_table import settings_html, text_html
from volley.iceberg.config import IcebergSinkConfig
from volley.iceberg.source import IcebergSource
from volley.iceberg.time_travel import IcebergDimension
from volley.plan import keyed_nodes, nodes
from volley.plan.graph import reads_clock
from volley.plan.nodes import Node
from volley.plan.queried import QueriedTable, walk_all

__all__ = [
    "RefreshMode",
    "View",
    "ViewEstimate",
    "ViewPlan",
    "ViewRefresh",
    "ViewSource",
    "ViewStatus",
    "ViewStep",
    "check_query",
    "obstacle",
    "obstacles",
]

FUNCTIONS = ("count", "sum", "avg", "min", "max", "count_distinct")
"""The aggregate functions that a view can have."""

_BY_PYTHON = (nodes.Map, nodes.FlatMap, nodes.MapBatches)
_STEPS = (
    *(nodes.Filter, nodes.Rest, nodes.Select, nodes.WithColumns, nodes.Drop, nodes.Rename, nodes.Explode),
    # A side stands before a join of streams, which is refused itself.
    *(nodes.Union, nodes.Ordered, keyed_nodes.Deduplicate, keyed_nodes.Over, keyed_nodes.Side, *_BY_PYTHON),
)

RefreshMode = Literal["auto", "incremental", "full"]


def check_query(query: nodes.Node) -> None:
    """Check that a view can have a query.

    Raises:
        PlanError: If a source is not an Iceberg table, or a view can't have one of the steps.
    """
    for node in walk_all(query):
        if reads_clock(node):
            raise PlanError(
                f"a view can't have the step {node.label()}: its rows would change with the time",
                hint="write the time into a table by a job; filter by it where you read the view",
            )
        if isinstance(node, nodes.Read):
            _check_source(node)
        elif isinstance(node, keyed_nodes.Aggregate):
            _check_aggregate(node)
        elif isinstance(node, nodes.Join):
            _check_join(node)
        elif isinstance(node, keyed_nodes.Over) and node.ordering.ttl is not None:
            raise PlanError(f"a view can't have {node.label()}: it has all rows", hint="leave ttl out")
        elif not isinstance(node, _STEPS):
            raise PlanError(f"a view can't have the step {node.label()}", hint="do it in a job that writes a table")


def obstacle(node: nodes.Node) -> str | None:
    """Return why a step can't be kept up to date by changes alone; None if it can."""
    if isinstance(node, _BY_PYTHON):
        return f"{node.label()}: a Python function may give other rows for the same ones"
    return None


def obstacles(query: nodes.Node) -> list[str]:
    """Return why a query can't be kept up to date by changes alone; empty if it can."""
    return [reason for node in walk_all(query) if (reason := obstacle(node))]


def _check_source(node: nodes.Read) -> None:
    if not isinstance(node.source, IcebergSource):
        raise PlanError(
            f"a view can't read {node.source!r}: only an Iceberg table has its rows as of each earlier refresh",
            hint="write the rows to a table by a job, and the view over that table",
        )
    if node.source.config.changes != "fail":
        raise PlanError(
            f"{node.source!r} reads changes", hint="a view follows them by itself: leave with_changes(…) out"
        )


def _check_join(node: nodes.Join) -> None:
    if not isinstance(node.join.table, IcebergDimension | QueriedTable):
        raise PlanError(f"a view can't have the step {node.label()}", hint="join it with an Iceberg table")
    if node.join.by_history:
        raise PlanError(
            f"a view can't have the step {node.label()}: its rows would depend on snapshots that expire",
            hint='join as of a column of the table: as_of=("at", "valid_from"); or do it in a job that writes a table',
        )


def _check_aggregate(node: keyed_nodes.Aggregate) -> None:
    if node.windowing is not None:
        raise PlanError(
            "a view can't have windows of event time",
            hint='group by a time: key_by(minute=col("at").dt.truncate("minute"))',
        )
    if node.retention.ttl is not None:
        raise PlanError(f"a view can't have {node.label()}: it has all rows", hint="leave retain(…) out")
    for name, aggregate in node.aggregates:
        if aggregate.function not in FUNCTIONS:
            raise PlanError(f"a view can't have {name}={aggregate!r}", hint=f"it can have {', '.join(FUNCTIONS)}")


@dataclass(frozen=True)
class View:
    """A view to refresh.

    Args:
        strict: True: it must not be computed anew, but for the first time.
    """

    name: str
    query: Node
    config: IcebergSinkConfig
    mode: RefreshMode = "auto"
    strict: bool = False


@dataclass(frozen=True)
class ViewRefresh:
    """What a refresh did.

    Args:
        view: The view's name.
        mode: ``"incremental"``: from the changes of the sources; ``"full"``: from all their rows; ``"none"``: the view
            was up to date.
        reason: Why.
        snapshot_id: The snapshot that it wrote; None if the rows of the view did not change.
        rows_read: Rows of the sources' data files that it read.
        groups_recomputed: Groups of an incremental refresh that were computed from all their rows.
        rows_added: Rows that it wrote to the view's table.
        sources: The snapshots of the sources that the view now stands for, by table.
        seconds: How long it took.
        ended: When it ended, in UTC.
    """

    view: str
    mode: Literal["none", "incremental", "full"]
    reason: str
    snapshot_id: int | None
    rows_read: int
    groups_recomputed: int
    rows_added: int
    sources: dict[str, int | None]
    seconds: float
    ended: datetime

    _repr_html_ = text_html

    def __str__(self) -> str:
        recomputed = f", {self.groups_recomputed:,} groups recomputed" if self.groups_recomputed else ""
        counts = f"{self.rows_read:,} rows read{recomputed}, {self.rows_added:,} written"
        return f"{self.view}: {self.mode} refresh ({self.reason}): {counts}"


@dataclass(frozen=True)
class ViewStep:
    """A step of a view's query, and how it is kept up to date.

    Args:
        label: The step.
        depth: How many steps are between it and the view.
        how: What is computed for it; for a step that needs a full refresh, why.
        incremental: False if it needs a full refresh.
    """

    label: str
    depth: int
    how: str
    incremental: bool

    _repr_html_ = settings_html


@dataclass(frozen=True)
class ViewEstimate:
    """How long a refresh of one kind would take.

    Args:
        mode: The kind.
        seconds: About how long it would take.
        rows: About how many rows of the sources it would read.
        last_seconds: How long the last one of its kind took; None = there was none.
        last_rows: How many rows of the sources that one read.
    """

    mode: Literal["incremental", "full"]
    seconds: float
    rows: int
    last_seconds: float | None
    last_rows: int | None

    def __str__(self) -> str:
        last = f" (the last one: {self.last_seconds:.2g} s, {self.last_rows:,} rows)" if self.last_seconds else ""
        return f"{self.mode} refresh: about {self.seconds:.2g} s, {self.rows:,} rows{last}"

    _repr_html_ = text_html


@dataclass(frozen=True)
class ViewPlan:
    """What the next refresh would do; `print` it.

    Args:
        view: The view's name.
        mode: As of `ViewRefresh`.
        reason: Why.
        steps: The steps of the query, the last one first.
        changed_rows: About how many rows have to be read for the changes of the sources.
        all_rows: How many rows the sources have.
        estimates: How long a refresh of each kind would take; () if there is no choice.
    """

    view: str
    mode: Literal["none", "incremental", "full"]
    reason: str
    steps: tuple[ViewStep, ...]
    changed_rows: int
    all_rows: int
    estimates: tuple[ViewEstimate, ...] = ()

    _repr_html_ = text_html

    def __str__(self) -> str:
        lines = [f"{self.view}: {self.mode} refresh ({self.reason})"]
        for step in self.steps:
            lines.append(f"{'  ' * (step.depth + 1)}{step.label}")
            lines.append(f"{'  ' * (step.depth + 2)}{'' if step.incremental else 'full refresh: '}{step.how}")
        lines.append(f"changes: about {self.changed_rows:,} rows to read; all rows: {self.all_rows:,}")
        lines += map(str, self.estimates)
        return "\n".join(lines)


@dataclass(frozen=True)
class ViewSource:
    """How far a view has followed a source.

    Args:
        table: The source's table.
        snapshot_id: The snapshot that the view stands for; None = the table had none.
        snapshots_behind: The number of later snapshots; None if they can't be told, since one has expired or was
            rolled back.
        behind: How long ago the first snapshot was committed that the view lacks; zero if it lacks none.
    """

    table: str
    snapshot_id: int | None
    snapshots_behind: int | None
    behind: timedelta

    _repr_html_ = settings_html


@dataclass(frozen=True)
class ViewStatus:
    """How far a view is.

    Args:
        view: The view's name.
        refreshes: The number of its refreshes.
        refreshed_at: When the last one read its sources; None = never.
        sources: Its sources.
    """

    view: str
    refreshes: int
    refreshed_at: datetime | None
    sources: tuple[ViewSource, ...]

    _repr_html_ = settings_html

    @property
    def is_current(self) -> bool:
        """True if the view has all that is in its sources."""
        return self.refreshed_at is not None and all(source.snapshots_behind == 0 for source in self.sources)
