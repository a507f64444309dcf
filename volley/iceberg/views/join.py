"""Joins of a view: the changes of both sides, each joined with the other side's rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import pyarrow as pa

from volley.columns.batches import no_table
from volley.columns.join_index import JoinBuckets, JoinIndex, build_index
from volley.columns.joins import lower_join
from volley.iceberg.views.keys import Keys
from volley.iceberg.views.operators import WEIGHT, Side, ViewOperator, copies, united, weighted
from volley.plan import nodes
from volley.plan.joins import TableJoin

__all__ = ["ViewJoin"]


@dataclass(frozen=True)
class _RightRows:
    """The rows of the right side."""

    table: pa.Table
    join: TableJoin

    @property
    def schema(self) -> pa.Schema:
        """The right side's columns."""
        return self.table.schema

    def buckets(self) -> JoinBuckets:
        """Return the rows by their key."""
        return JoinBuckets(0, lambda _: self._index)

    @cached_property
    def _index(self) -> JoinIndex:
        join, names = self.join, self.schema.names
        added = join.added(names)
        return JoinIndex.of(
            build_index(self.table, join.right_keys, join.valid_from, added, nulls_match=join.nulls_match)
        )


class ViewJoin(ViewOperator):
    """An operator's rows with the columns of the rows of a table, or of a query, of the same key.

    A row's result depends on that row and on the table's rows with its key. So the changes are: the left side's changed
    rows joined with the table after the refresh; and, of the keys whose rows in the table changed, the left side's rows
    as they were before, joined with the table after the refresh, without what they gave with the table before it; of an
    inner join, joined with the changed rows. The sides are read by these keys alone; no state is kept, as snapshots are
    the state.
    """

    how = "changed rows joined with the table's, and rows whose key the table has changed, both read by these keys"
    reads_before = True

    def __init__(self, node: nodes.Join, left: ViewOperator, right: ViewOperator) -> None:
        self._node = node
        self._left, self._right = left, right
        _, schema = lower_join(self._node_with(no_table(right.schema)), left.schema)
        super().__init__(node, [left, right], schema)

    def _node_with(self, right: pa.Table) -> nodes.Join:
        return replace(self._node, rows=_RightRows(right, self._node.join))

    def rows(self, side: Side, keys: Keys | None = None) -> Iterator[pa.RecordBatch]:
        if keys is None:
            yield from self._joined(self._left.rows(side), self._left.schema, self._right.table(side))
            return
        left = self._left.table(side, self._left_restriction(side, keys))
        right = self._right.table(side, self._right_keys(left))
        yield from map(keys.select, self._joined(left.to_batches(), left.schema, right))

    def delta(self) -> pa.Table:
        left, right = self._left.delta(), self._right.delta()
        parts = []
        if len(left):
            parts.append(self._joined_table(left, self._right.table("after", self._right_keys(left))))
        if len(right):
            before = self._left.table("before", self._left_keys(right))
            after_and_before = zip(self._right_sides(right), (1, -1), strict=True)
            parts += [weighted(self._joined_table(before, rows), weight) for rows, weight in after_and_before]
        return united([part.select([*self.schema.names, WEIGHT]) for part in parts], self.schema)

    def _right_sides(self, changes: pa.Table) -> tuple[pa.Table, pa.Table]:
        """Return the table's rows of the changed keys after and before, or those of them that differ.

        Each pair of rows with a key is a row of its own, if all of a key match and none is kept without a match.
        """
        join = self._node.join
        if join.how == "inner" and join.time is None:
            return copies(changes)
        keys = Keys.of(changes, join.right_keys)
        return self._right.table("after", keys), self._right.table("before", keys)

    def _joined_table(self, left: pa.Table, right: pa.Table) -> pa.Table:
        batches = list(self._joined(left.combine_chunks().to_batches(), left.schema, right))
        _, schema = lower_join(self._node_with(right), left.schema)
        return pa.Table.from_batches(batches, schema)

    def _joined(
        self, batches: Iterable[pa.RecordBatch], schema: pa.Schema, right: pa.Table
    ) -> Iterator[pa.RecordBatch]:
        step, _ = lower_join(self._node_with(right), schema)
        return map(step, batches)

    def _right_keys(self, left: pa.Table) -> Keys:
        ours, theirs = zip(*self._node.join.on, strict=True)
        return Keys(Keys.of(left, ours).values.rename_columns(list(theirs)))

    def _left_keys(self, right: pa.Table) -> Keys:
        ours, theirs = zip(*self._node.join.on, strict=True)
        return Keys(Keys.of(right, theirs).values.rename_columns(list(ours)))

    def _left_restriction(self, side: Side, keys: Keys) -> Keys | None:
        """Return the keys that restrict the left side: the columns that it has, else those that the table leads to."""
        own = keys.renamed({name: name for name in self._left.schema.names})
        join = self._node.join
        if own is not None or join.how == "left":
            return own
        added = {name + join.suffix: name for name in join.added(self._right.schema.names)}
        return self._left_keys(self._right.table(side, keys.renamed(added)))
