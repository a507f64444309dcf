"""Tells OpenLineage of the refreshes of views."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from volley.iceberg.read.whole import table_schema
from volley.iceberg.source_config import IcebergSourceConfig
from volley.iceberg.views.decisions import config_of, is_source, sources_of
from volley.iceberg.views.values import View, ViewRefresh
from volley.lineage.columns import columns_of
from volley.lineage.events import Part
from volley.lineage.work import Known, Work
from volley.plan import nodes
from volley.plan.queried import QueriedTable, described, walk_all

__all__ = ["known_after", "work_of"]


def work_of(view: View) -> Work | None:
    """Return the refresh of a view that begins now; None unless OpenLineage is configured."""
    return Work.of(view.name, "VIEW", partial(_known, view), plan=described(view.query))


def known_after(view: View, done: ViewRefresh) -> Known:
    """Return what a refresh has read and written."""
    return _known(view, done)


def _known(view: View, done: ViewRefresh | None = None) -> Known:
    reads = [node for node in walk_all(view.query) if isinstance(node, nodes.Read | nodes.Join)]
    datasets = {id(_source(node)): [config.ref.dataset() for config in _configs(node)] for node in reads}
    tables = {id(_source(node)): datasets[id(_source(node))] for node in reads if is_source(node)}
    inputs = [Part(dataset, dataset.fields) for (dataset,) in tables.values()]
    outputs = [] if done is None else [_output(view, done)]
    return Known(inputs, outputs, datasets)


def _output(view: View, done: ViewRefresh) -> Part:
    columns, dataset = columns_of(view.query, _names), view.config.ref.dataset()
    # Without the columns that later refreshes need.
    fields = [field for field in dataset.fields if field[0] in columns.values]
    return Part(dataset, fields, columns, rows=done.rows_added)


def _configs(node: nodes.Read | nodes.Join) -> Sequence[IcebergSourceConfig]:
    if isinstance(node, nodes.Join) and isinstance(node.join.table, QueriedTable):
        return sources_of(node.join.table.query)
    return [config_of(node)]


def _source(node: nodes.Read | nodes.Join) -> object:
    return node.join.table if isinstance(node, nodes.Join) else node.source


def _names(node: nodes.Node) -> Sequence[str]:
    assert isinstance(node, nodes.Read | nodes.Join), "a view calls no functions"
    if isinstance(node, nodes.Join) and node.join.columns is not None:
        return [name + node.join.suffix for name in node.join.columns]
    names: list[str] = table_schema(config_of(node)).names
    if isinstance(node, nodes.Join):
        return [name + node.join.suffix for name in node.join.added(names)]
    return names
