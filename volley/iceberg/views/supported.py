"""Which queries a view can have, and which of them it can keep up to date by changes alone."""

from __future__ import annotations

from volley.errors import PlanError
from volley.iceberg.dimension import IcebergDimension
from volley.iceberg.source import IcebergSource
from volley.plan import graph, keyed_nodes, nodes

__all__ = ["FUNCTIONS", "check_query", "obstacle", "obstacles"]

FUNCTIONS = ("count", "sum", "avg", "min", "max")
"""The aggregate functions that a view can have."""

_BY_PYTHON = (nodes.Map, nodes.FlatMap, nodes.MapBatches)
_STEPS = (
    *(nodes.Filter, nodes.Rest, nodes.Select, nodes.WithColumns, nodes.Drop, nodes.Rename, nodes.Explode),
    # A side stands before a join of streams, which is refused itself.
    *(nodes.Union, keyed_nodes.Deduplicate, keyed_nodes.Side, *_BY_PYTHON),
)


def check_query(query: nodes.Node) -> None:
    """Check that a view can have a query.

    Raises:
        PlanError: If a source is not an Iceberg table, or a view can't have one of the steps.
    """
    for node in graph.walk([query]):
        if isinstance(node, nodes.Read):
            _check_source(node)
        elif isinstance(node, keyed_nodes.Aggregate):
            _check_aggregate(node)
        elif isinstance(node, nodes.Join):
            _check_join(node)
        elif not isinstance(node, _STEPS):
            raise PlanError(f"a view can't have the step {node.label()}", hint="do it in a job that writes a table")


def obstacle(node: nodes.Node) -> str | None:
    """Return why a step can't be kept up to date by changes alone; None if it can."""
    if isinstance(node, _BY_PYTHON):
        return f"{node.label()}: a Python function may give other rows for the same ones"
    return None


def obstacles(query: nodes.Node) -> list[str]:
    """Return why a query can't be kept up to date by changes alone; empty if it can."""
    return [reason for node in graph.walk([query]) if (reason := obstacle(node))]


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
    if not isinstance(node.join.table, IcebergDimension):
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
    for name, aggregate in node.aggregates:
        if aggregate.function not in FUNCTIONS:
            raise PlanError(f"a view can't have {name}={aggregate!r}", hint=f"it can have {', '.join(FUNCTIONS)}")
