"""Reads streams with sorted rows, which need all rows before the first one comes out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from volley.connectors.memory.source import MemorySource
from volley.plan import graph, nodes

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["collected"]


def collected(node: nodes.Node, limit: int | None) -> pa.Table:
    """Return the rows of a node, as `collect` does; what it sorts is read and sorted first."""
    from volley.columns.ordered import ordered_rows
    from volley.engine.collect import collect

    def changed(step: nodes.Node) -> nodes.Node:
        if not isinstance(step, nodes.Ordered):
            return step
        return nodes.Read(MemorySource(ordered_rows(collect(step.input, None), step)))

    return collect(graph.rebuilt([node], changed)[0], limit)
