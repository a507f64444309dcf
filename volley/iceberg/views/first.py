"""The first rows of a view's query, in an order."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from volley.columns.ordered import ordered_rows
from volley.iceberg.views.keys import Keys
from volley.iceberg.views.operators import Side, ViewOperator, restricted_delta, united
from volley.plan import nodes

__all__ = ["FirstRows"]


class FirstRows(ViewOperator):
    """The first rows of an operator's, in an order that tells all different rows apart."""

    how = "the first rows before and after, if a row has changed"
    reads_before = True

    def __init__(self, node: nodes.Ordered, before: ViewOperator) -> None:
        super().__init__(node, [before], before.schema)
        self._node = node

    def rows(self, side: Side, keys: Keys | None = None) -> Iterator[pa.RecordBatch]:
        batches = ordered_rows(self.inputs[0].table(side), self._node).to_batches()
        yield from batches if keys is None else map(keys.select, batches)

    def delta(self) -> pa.Table:
        return restricted_delta(self, None) if len(self.inputs[0].delta()) else united([], self.schema)
