"""A view's query whose groups have other names, as groups of these names: such a view keeps what changes add to."""

from __future__ import annotations

from volley.iceberg.views.distinct import counted_values
from volley.iceberg.views.operators import plain_column
from volley.plan.expression_nodes import output_name
from volley.plan.expressions import Expr
from volley.plan.keyed_nodes import Aggregate
from volley.plan.nodes import Node, Ordered, Select

__all__ = ["with_named_groups"]


def with_named_groups(query: Node) -> Node:
    """Return a query that renames or reorders all columns of groups as groups with these names; others as they are."""
    while isinstance(query, Ordered) and query.rows is None:
        # The rows of a table have no order.
        query = query.input
    groups = query.input if isinstance(query, Select) else None
    if not isinstance(query, Select) or not isinstance(groups, Aggregate) or counted_values(groups):
        return query
    renamed = {plain_column(column): output_name(column) for column in query.columns}
    if len(query.columns) != len(groups.names) or {*renamed} != {*groups.names}:
        return query
    keys = tuple(Expr(key).alias(renamed[output_name(key)]).node for key in groups.keys)
    aggregates = tuple((renamed[name], aggregate) for name, aggregate in groups.aggregates)
    return Aggregate(groups.input, keys, aggregates, place=groups.place)
