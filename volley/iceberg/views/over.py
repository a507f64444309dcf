"""Functions of ordered rows in a view: the rows of a key are computed anew, where one of them has changed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa

from volley.columns.over import OverOperator
from volley.iceberg.views.keys import Keys
from volley.iceberg.views.operators import Side, ViewOperator, copies, negated, plain_column, united, weighted
from volley.plan import keyed_nodes

__all__ = ["ViewOver"]


class ViewOver(ViewOperator):
    """An operator's rows with what functions give to each by the rows around it, of the same key.

    A row's result depends on the rows of its key alone. So the changes are those of the keys with changed rows, whose
    rows are read after the refresh; those before it follow from the changes.
    """

    how = "the keys with changed rows, computed anew from all rows of these keys"
    reads_before = True

    def __init__(self, node: keyed_nodes.Over, before: ViewOperator) -> None:
        # All rows are there: no time has to pass before they are final.
        self._over = OverOperator(replace(node, ordering=replace(node.ordering, on=None)), before.schema)
        super().__init__(node, [before], self._over.output)
        self._columns = {name: plain_column(key) for name, key in zip(self._over.key_names, node.keys, strict=True)}
        added = {name for name, _ in node.functions}
        self._passed = {column: name for name, column in self._columns.items() if column not in added}

    def rows(self, side: Side, keys: Keys | None = None) -> Iterator[pa.RecordBatch]:
        ours = None if keys is None else keys.renamed({name: self._passed.get(name) for name in keys.columns})
        batches = self._over.rows_of(self._inputs(side, ours)).to_batches()
        yield from batches if keys is None else map(keys.select, batches)

    def delta(self) -> pa.Table:
        (before,) = self.inputs
        changes = before.delta()
        if not len(changes):
            return united([], self.schema)
        batches = changes.combine_chunks().to_batches()
        after = self._inputs("after", Keys(pa.Table.from_batches(map(self._keyed, batches))) if self._columns else None)
        earlier, _ = copies(united([weighted(after, 1), negated(changes)], before.schema))
        rows = [weighted(self._over.rows_of(inputs), weight) for inputs, weight in ((after, 1), (earlier, -1))]
        return united(rows, self.schema)

    def _inputs(self, side: Side, keys: Keys | None) -> pa.Table:
        """Return all rows of the input with some keys; None = all rows."""
        (before,) = self.inputs
        if keys is None:
            return before.table(side)
        batches = before.rows(side, keys.renamed(self._columns))
        matching = (batch.filter(pa.array(keys.mask(self._keyed(batch)))) for batch in batches)
        return pa.Table.from_batches(matching, before.schema)

    def _keyed(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the keys of rows."""
        return pa.record_batch(self._over.key_columns(rows), list(self._over.key_names))
