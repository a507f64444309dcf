"""Tells what the next refresh of a view would do, and how far the view is."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import get_args

from pyiceberg.table import Table

from volley.errors import SourceError, TableNotFoundError
from volley.iceberg.read.history import check_same_table, moment_of, snapshots_between
from volley.iceberg.views.costs import Cost, Kind
from volley.iceberg.views.cursor import Cursor, SourcePosition
from volley.iceberg.views.decisions import Decision, check_own, compiled, decide, scans_of
from volley.iceberg.views.operators import Operator
from volley.iceberg.views.scan import Scan, Tally
from volley.iceberg.views.supported import obstacle
from volley.iceberg.views.values import View, ViewEstimate, ViewPlan, ViewSource, ViewStatus, ViewStep

__all__ = ["explain", "status"]


def explain(view: View) -> ViewPlan:
    """Return what the next refresh would do; reads metadata alone. Raises like `refresh`."""
    table = _table(view)
    cursor = Cursor.of(table) if table else None
    operator = compiled(view, cursor, Tally())
    decision = Decision("full", "it is the first one")
    if table is not None:
        check_own(table, view.config.branch, cursor, forced=view.mode == "full")
        decision = decide(view, cursor, operator, table)
    all_rows = sum(scan.all_rows for scan in scans_of(operator))
    cost = decision.cost
    changed = cost.changed_rows if cost else 0
    estimates = tuple(_estimates(cost)) if cost else ()
    return ViewPlan(view.name, decision.mode, decision.reason, tuple(_steps(operator, 0)), changed, all_rows, estimates)


def _estimates(cost: Cost) -> Iterator[ViewEstimate]:
    kinds: tuple[Kind, ...] = get_args(Kind)
    for kind in kinds:
        last = cost.measures.kinds.get(kind)
        seconds, rows = (last.seconds, last.rows) if last else (None, None)
        yield ViewEstimate(kind, cost.seconds(kind), seconds, rows)


def _steps(operator: Operator, depth: int) -> Iterator[ViewStep]:
    for node in reversed(operator.nodes):
        against = obstacle(node)
        yield ViewStep(node.label(), depth, against or operator.how, against is None)
        depth += 1
    for before in operator.inputs:
        yield from _steps(before, depth)


def status(view: View) -> ViewStatus:
    """Return how far a view is; reads metadata alone.

    Raises:
        VolleyError: If a catalog or a storage fails, or the query does not fit a source.
    """
    table = _table(view)
    cursor = Cursor.of(table) if table else None
    if cursor is None:
        return ViewStatus(view.name, 0, None, ())
    scans = scans_of(compiled(view, cursor, Tally()))
    sources = tuple(_source(scan, old) for scan, old in zip(scans, cursor.sources, strict=False))
    return ViewStatus(view.name, cursor.refresh, moment_of(cursor.refreshed_at), sources)


def _source(scan: Scan, old: SourcePosition) -> ViewSource:
    table, after = scan.pin.table, scan.pin.after
    try:
        check_same_table(table, old.uuid)
        later = [] if after in (None, old.snapshot) else snapshots_between(table, old.snapshot, after or 0)
    except SourceError:
        return ViewSource(old.table, old.snapshot, None, timedelta(0))
    age = datetime.now(UTC) - moment_of(later[0].timestamp_ms) if later else timedelta(0)
    return ViewSource(old.table, old.snapshot, len(later), max(age, timedelta(0)))


def _table(view: View) -> Table | None:
    try:
        return view.config.ref.load()
    except TableNotFoundError:
        return None
