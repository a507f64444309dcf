"""Compiles a view's query to operators, and decides how it is refreshed: by the changes of its sources or anew."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, TypeGuard

from pyiceberg.table import Table

from volley.errors import PlanError, SnapshotExpiredError, SourceError
from volley.iceberg.pyiceberg_private.server_plans import is_planned_by_server
from volley.iceberg.read.entries import rows_in
from volley.iceberg.read.history import ancestors_of, changes_rows, check_same_table, head_of, snapshots_between
from volley.iceberg.read.scope import current_snapshot
from volley.iceberg.source import IcebergSource
from volley.iceberg.source_config import IcebergSourceConfig
from volley.iceberg.time_travel import IcebergDimension
from volley.iceberg.views.costs import Cost, Measures, cost_of, scans_of
from volley.iceberg.views.cursor import Cursor, SourcePosition, fingerprint
from volley.iceberg.views.distinct import counted_values, without_distinct
from volley.iceberg.views.first import FirstRows
from volley.iceberg.views.group import Group, rereading
from volley.iceberg.views.join import ViewJoin
from volley.iceberg.views.operators import ViewOperator, ViewSteps, ViewUnion
from volley.iceberg.views.over import ViewOver
from volley.iceberg.views.scan import Pin, Scan, Tally
from volley.iceberg.views.values import View, obstacles
from volley.plan import graph, keyed_nodes, nodes
from volley.plan.places import naming
from volley.plan.pushdown import used_columns, used_rows
from volley.plan.queried import QueriedTable, queries_in, walk_all

__all__ = [
    "Decision",
    "Tables",
    "check_own",
    "compiled",
    "config_of",
    "decide",
    "is_source",
    "positions_of",
    "sources_of",
]

Tables = dict[tuple[str, str], Table]
"""Loaded tables, by the address of their catalog and their name."""


def sources_of(query: nodes.Node) -> list[IcebergSourceConfig]:
    """Return the settings of a query's sources and joined tables, in plan order."""
    return [config_of(node) for node in walk_all(query) if is_source(node)]


def is_source(node: nodes.Node) -> TypeGuard[nodes.Read | nodes.Join]:
    """Return True for a source, and for a join with a table."""
    return isinstance(node, nodes.Read) or (
        isinstance(node, nodes.Join) and not isinstance(node.join.table, QueriedTable)
    )


def config_of(node: nodes.Read | nodes.Join) -> IcebergSourceConfig:
    """Return the settings of a source, or of a joined table."""
    source = node.join.table if isinstance(node, nodes.Join) else node.source
    assert isinstance(source, IcebergSource | IcebergDimension), "check_query refuses others"
    return source.config


@dataclass(frozen=True)
class Compiler:
    """Compiles a query.

    Args:
        pin: Returns the table of a source, at two snapshots.
    """

    query: nodes.Node
    pin: Callable[[IcebergSourceConfig], Pin]
    tally: Tally
    _operators: dict[int, ViewOperator] = field(default_factory=dict)

    def operator(self, node: nodes.Node) -> ViewOperator:
        """Return the operator of a node; of a node that several steps continue, the same one."""
        if id(node) not in self._operators:
            with naming(node):
                self._operators[id(node)] = self._compiled(node)
        return self._operators[id(node)]

    def _compiled(self, node: nodes.Node) -> ViewOperator:
        match node:
            case nodes.Read():
                return self._scan(node)
            case nodes.Union():
                return ViewUnion(node, [self.operator(before) for before in node.inputs])
            case keyed_nodes.Aggregate() if counted_values(node):
                return self.operator(without_distinct(node))
            case keyed_nodes.Aggregate():
                return Group(node, self.operator(node.input), self.tally, node is self.query)
            case keyed_nodes.Deduplicate():
                return self._distinct(node)
            case keyed_nodes.Over():
                return ViewOver(node, self.operator(node.input))
            case nodes.Ordered():
                before = self.operator(node.input)
                # The rows of a table have no order.
                return before if node.rows is None else FirstRows(node, before)
            case nodes.Join():
                return ViewJoin(node, self.operator(node.input), self._right(node))
        return self._steps(node)

    def _steps(self, node: nodes.Node) -> ViewOperator:
        steps, before = [node], node.inputs[0]
        while _is_step(before):
            steps.insert(0, before)
            before = before.inputs[0]
        return ViewSteps(steps, self.operator(before))

    def _scan(self, node: nodes.Read) -> Scan:
        config = config_of(node)
        if any(node is query for query in self._queries):
            return Scan(node, config, self.pin(config), None, None, self.tally)
        columns, predicate = used_columns(self._followers, node), used_rows(self._followers, node)
        return Scan(node, config, self.pin(config), columns, predicate, self.tally)

    @cached_property
    def _queries(self) -> list[nodes.Node]:
        return queries_in(self.query)

    @cached_property
    def _followers(self) -> graph.Followers:
        return graph.followers_in(walk_all(self.query))

    def _right(self, node: nodes.Join) -> ViewOperator:
        table = node.join.table
        return self.operator(table.query) if isinstance(table, QueriedTable) else self._table(node)

    def _table(self, node: nodes.Join) -> Scan:
        config, join = config_of(node), node.join
        columns = None if join.columns is None else frozenset((*join.right_keys, *join.columns))
        if columns is not None and join.valid_from is not None:
            columns |= {join.valid_from}
        return Scan(nodes.Read(IcebergSource(config)), config, self.pin(config), columns, None, self.tally)

    def _distinct(self, node: keyed_nodes.Deduplicate) -> Group:
        before = self.operator(node.input)
        if {*node.keys} != {*before.schema.names}:
            raise PlanError(
                f"a view can't have the step {node.label()}: which row of a key is the first is not determined",
                hint='distinct values: select("key").deduplicate("key"); or key_by("key").aggregate(…)',
            )
        return Group(node, before, self.tally, node is self.query)


def _is_step(node: nodes.Node) -> bool:
    return isinstance(node, nodes.Step) and not isinstance(
        node, nodes.Join | nodes.Ordered | nodes.Repartition | keyed_nodes.Keyed
    )


@dataclass(frozen=True)
class Decision:
    """How a view is to be refreshed.

    Args:
        cost: What it costs either way; None if there is no choice.
    """

    mode: Literal["none", "incremental", "full"]
    reason: str
    cost: Cost | None = None


def compiled(view: View, cursor: Cursor | None, tally: Tally, tables: Tables | None = None) -> ViewOperator:
    """Return the operator of a view's query, between the cursor's snapshots and the current ones of its sources.

    Args:
        cursor: What its table stands for; None = nothing yet.
        tables: Sources that are loaded already, to which the others are added; None = none is.
    """
    sources = cursor.sources if cursor and len(cursor.sources) == len(sources_of(view.query)) else ()
    befores = iter(sources)
    tables = {} if tables is None else tables

    def pin(config: IcebergSourceConfig) -> Pin:
        key = config.ref.address, config.ref.name
        if key not in tables:
            tables[key] = config.ref.load()
        table = tables[key]
        snapshot = current_snapshot(table, config)
        before = next(befores, None)
        return Pin(table, before.snapshot if before else None, snapshot.snapshot_id if snapshot else None)

    return Compiler(view.query, pin, tally).operator(view.query)


def positions_of(operator: ViewOperator) -> tuple[SourcePosition, ...]:
    """Return the snapshots that a view stands for after a refresh."""
    return tuple(_position(scan) for scan in scans_of(operator))


def _position(scan: Scan) -> SourcePosition:
    metadata, after = scan.pin.table.metadata, scan.pin.after
    snapshot = None if after is None else metadata.snapshot_by_id(after)
    columns = {field.name: f"{field.field_id} {field.field_type}" for field in scan.fields}
    committed_at = snapshot.timestamp_ms if snapshot else 0
    return SourcePosition(scan.config.ref.name, str(metadata.table_uuid), after, committed_at, columns)


def check_own(table: Table, branch: str, cursor: Cursor | None, forced: bool) -> None:
    """Check that only the view has written to its table, apart from maintenance.

    Args:
        forced: True if the rows are computed anew in any case.
    """
    name, head = ".".join(table.name()), head_of(table, branch)
    if cursor is None and head is not None and rows_in(table.io, head) > 0:
        raise PlanError(f"table {name} has rows that are not of a view", hint="give the view a table of its own")
    if cursor is None or forced:
        return
    for snapshot in ancestors_of(head, table.metadata):
        if snapshot.snapshot_id == cursor.snapshot:
            return
        if changes_rows(snapshot):
            raise PlanError(
                f"table {name} of view {cursor.view!r} was changed by another writer, in snapshot "
                f"{snapshot.snapshot_id}",
                hint='only the view may write to it: view.refresh("full") computes it anew',
            )


def decide(view: View, cursor: Cursor | None, operator: ViewOperator, table: Table) -> Decision:
    """Return how a view is to be refreshed."""
    if cursor is None:
        return Decision("full", "it is the first one")
    if view.mode == "full":
        return Decision("full", 'refresh="full"')
    try:
        for check in (_check_query, _check_sources, _check_snapshots):
            check(view, cursor, operator)
    except (PlanError, SourceError) as error:
        if view.strict:
            raise
        return Decision("full", error.message)
    if all(scan.pin.before == scan.pin.after for scan in scans_of(operator)):
        return Decision("none", "no source has a new snapshot")
    if reasons := [*obstacles(view.query), *_planned_by_servers(operator)]:
        return Decision("full", reasons[0])
    cost = cost_of(operator, rows_in(table.io, head_of(table, view.config.branch)), Measures.of(table))
    if view.mode == "auto" and not view.strict and cost.favours_full:
        return Decision("full", f"it is cheaper, {cost.comparison}: {cost}", cost)
    return Decision("incremental", str(cost), cost)


def _planned_by_servers(operator: ViewOperator) -> list[str]:
    """Return why changes of tables can't be told whose catalogs have to plan their scans."""
    return [
        f"the catalog has to plan the scans of table {scan.config.ref.name}"
        for scan in scans_of(operator)
        if is_planned_by_server(scan.pin.table.io)
    ]


def _check_query(view: View, cursor: Cursor, operator: ViewOperator) -> None:
    if cursor.query != fingerprint(view.query):
        raise PlanError(
            f"the query of view {view.name!r} has changed since its last refresh",
            hint="strict=False computes it anew; or give the new query a view of its own",
        )


def _check_sources(view: View, cursor: Cursor, operator: ViewOperator) -> None:
    for old, new, scan in zip(cursor.sources, positions_of(operator), scans_of(operator), strict=True):
        check_same_table(scan.pin.table, old.uuid)
        for column, data_type in new.columns.items():
            if column in old.columns and old.columns[column] != data_type:
                raise PlanError(
                    f"column {column!r} of table {new.table} is another one than at the last refresh of view "
                    f"{view.name!r}: field {data_type}, it was {old.columns[column]}",
                    hint="strict=False computes the view anew",
                )


def _check_snapshots(view: View, cursor: Cursor, operator: ViewOperator) -> None:
    for scan in scans_of(operator):
        before, after, metadata = scan.pin.before, scan.pin.after, scan.pin.table.metadata
        if before == after:
            continue
        if after is None:
            raise SourceError(
                f"table {scan.config.ref.name} has lost all its snapshots", hint="strict=False computes the view anew"
            )
        snapshots_between(scan.pin.table, before, after)
        if before is not None and metadata.snapshot_by_id(before) is None and rereading(operator):
            raise SnapshotExpiredError(
                f"snapshot {before} of table {scan.config.ref.name} has expired, which the changes of view "
                f"{view.name!r} are computed with",
                hint="keep snapshots longer than between two refreshes; strict=False computes the view anew",
            )
