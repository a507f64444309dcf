"""The first rows of a view's query, in an order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa

from volley.columns.keys.equality import matching_rows
from volley.columns.ordered import ordered_rows, places_in_order
from volley.iceberg.read.changes import rows_without
from volley.iceberg.views.keys import Keys
from volley.iceberg.views.operators import Side, ViewOperator, copies, united, weighted
from volley.plan import nodes

__all__ = ["FirstRows"]


class FirstRows(ViewOperator):
    """The first rows of an operator's, in an order that tells all different rows apart."""

    how = "the first rows so far, with those that came; if too few of them are left, the first of all rows"
    reads_before = True

    def __init__(self, node: nodes.Ordered, before: ViewOperator) -> None:
        super().__init__(node, [before], before.schema)
        assert node.rows is not None, "all rows of a table have no order"
        self._node, self._number = node, node.rows

    def rows(self, side: Side, keys: Keys | None = None) -> Iterator[pa.RecordBatch]:
        batches = ordered_rows(self.inputs[0].table(side), self._node).to_batches()
        yield from batches if keys is None else map(keys.select, batches)

    def delta(self) -> pa.Table:
        (before,) = self.inputs
        added, removed = copies(before.delta())
        if not len(added) and not len(removed):
            return united([], self.schema)
        # Among so many are the first ones of those that were there before.
        after = ordered_rows(before.table("after"), replace(self._node, rows=self._number + len(added)))
        earlier = ordered_rows(pa.concat_tables([_without(after, added), removed]), self._node)
        return united([weighted(after.slice(0, self._number), 1), weighted(earlier, -1)], self.schema)

    def brought_up(self, earlier: pa.Table, changes: pa.Table) -> pa.Table:
        """Return the first rows after changes of the input.

        Args:
            earlier: The first rows before them.
        """
        added, removed = copies(changes)
        left = _without(earlier, removed)
        candidates = pa.concat_tables([left, added])
        if len(earlier) == self._number and len(left) < len(earlier):
            # The rows that are not known come behind the last one that was.
            last = ordered_rows(earlier, self._node).slice(len(earlier) - 1)
            places = places_in_order(pa.concat_tables([candidates, last]), self._node).to_numpy()
            if np.flatnonzero(places == len(candidates))[0] < self._number:
                return pa.Table.from_batches(self.rows("after"), self.schema)
        return ordered_rows(candidates, self._node)


def _without(rows: pa.Table, others: pa.Table) -> pa.Table:
    """Return rows without those that are among others, as often as they are there."""
    places, _ = matching_rows(rows, others.select(rows.column_names), rows.column_names)
    return rows_without(rows, places)
