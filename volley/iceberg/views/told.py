"""Tells OpenLineage of the refreshes of views."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from volley.iceberg.read.whole import table_schema
from volley.iceberg.views.decisions import config_of
from volley.iceberg.views.values import View, ViewRefresh
from volley.lineage.columns import columns_of
from volley.lineage.events import Part
from volley.lineage.work import Known, Work
from volley.plan import graph, nodes

__all__ = ["known_after", "work_of"]


def work_of(view: View) -> Work | None:
    """Return the refresh of a view that begins now; None unless OpenLineage is configured."""
    return Work.of(view.name, "VIEW", partial(_known, view), plan=graph.describe(view.query))


def known_after(view: View, done: ViewRefresh) -> Known:
    """Return what a refresh has read and written."""
    return _known(view, done)


def _known(view: View, done: ViewRefresh | None = None) -> Known:
    reads = [node for node in nodes.walk([view.query]) if isinstance(node, nodes.Read | nodes.Join)]
    datasets = {id(_source(node)): config_of(node).ref.dataset() for node in reads}
    inputs = [Part(dataset, dataset.fields) for dataset in datasets.values()]
    outputs = [] if done is None else [_output(view, done)]
    return Known(inputs, outputs, {source: [dataset] for source, dataset in datasets.items()})


def _output(view: View, done: ViewRefresh) -> Part:
    columns, dataset = columns_of(view.query, _names), view.config.ref.dataset()
    # Without the columns that later refreshes need.
    fields = [field for field in dataset.fields if field[0] in columns.values]
    return Part(dataset, fields, columns, rows=done.rows_added)


def _source(node: nodes.Read | nodes.Join) -> object:
    return node.join.table if isinstance(node, nodes.Join) else node.source


def _names(node: nodes.Node) -> Sequence[str]:
    assert isinstance(node, nodes.Read | nodes.Join), "a view calls no functions"
    names: list[str] = table_schema(config_of(node)).names
    if isinstance(node, nodes.Join):
        return [name + node.join.suffix for name in node.join.added(names)]
    return names
