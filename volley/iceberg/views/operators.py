"""The operators of a view's query: each gives its rows before and after a refresh, and what has changed between.

Changes are rows with weights: how many copies of a row were added (above 0) or removed (below 0). This is the algebra
of DBSP, which Feldera runs: https://arxiv.org/abs/2203.16684.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from volley.columns.batches import conform, no_table
from volley.columns.keys.equality import differing, row_hashes
from volley.columns.nodes import lower
from volley.iceberg.views.keys import Keys
from volley.plan import nodes
from volley.plan.expression_nodes import Call, Column, ExprNode, output_name

__all__ = [
    "WEIGHT",
    "Side",
    "ViewOperator",
    "ViewSteps",
    "ViewUnion",
    "copies",
    "negated",
    "plain_column",
    "restricted_delta",
    "united",
    "weighted",
]

WEIGHT = "_volley_weight"
"""The column of weights, the last one."""

Side = Literal["before", "after"]
"""The snapshots that a view stands for, or those that it is brought up to."""


def weighted(rows: pa.Table, weight: int) -> pa.Table:
    """Return rows with one weight for all."""
    return rows.append_column(WEIGHT, pa.repeat(pa.scalar(weight, pa.int64()), rows.num_rows))


def negated(changes: pa.Table) -> pa.Table:
    """Return the changes that undo some."""
    return changes.set_column(changes.num_columns - 1, WEIGHT, pc.negate(changes[WEIGHT]))


def united(parts: list[pa.Table], schema: pa.Schema) -> pa.Table:
    """Return the changes of several parts together, consolidated."""
    return consolidated(pa.concat_tables([no_table(schema.append(pa.field(WEIGHT, pa.int64()))), *parts]))


def consolidated(rows: pa.Table) -> pa.Table:
    """Return weighted rows with equal ones as one, and without those whose weights add up to 0.

    Values are equal bitwise: null equals null, NaN equals NaN.

    Example:
        >>> rows = pa.table({"id": [1, 2, 1], WEIGHT: [1, 1, -1]})
        >>> consolidated(rows).to_pylist()
        [{'id': 2, '_volley_weight': 1}]
    """
    values = rows.drop_columns([WEIGHT])
    _, first, group = np.unique(row_hashes(values), return_index=True, return_inverse=True)
    # Different rows with one hash, which hardly ever happens, stay as they are: the sum of all is the same.
    other = np.flatnonzero(differing(values, values.take(pa.array(first[group]))))
    group[other] = len(first) + np.arange(len(other))
    first = np.concatenate([first, other])
    weights = np.zeros(len(first), np.int64)
    np.add.at(weights, group, rows[WEIGHT].to_numpy())
    kept = np.flatnonzero(weights)
    return values.take(pa.array(first[kept])).append_column(WEIGHT, pa.array(weights[kept]))


def copies(rows: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Return the added rows and the removed rows, each as often as its weight says, without the weights."""
    weights, values = rows[WEIGHT].to_numpy(), rows.drop_columns([WEIGHT])
    numbers = np.arange(len(weights))
    added, removed = np.repeat(numbers, np.maximum(weights, 0)), np.repeat(numbers, np.maximum(-weights, 0))
    return values.take(pa.array(added)), values.take(pa.array(removed))


class ViewOperator(ABC):
    """A part of a view's query."""

    how = "of the changed rows alone"
    """How it is kept up to date, for explanations."""

    reads_before = False
    """True if its changes are computed with rows as they were before the refresh."""

    def __init__(self, node: nodes.Node, inputs: Sequence[ViewOperator], schema: pa.Schema) -> None:
        self.nodes: Sequence[nodes.Node] = (node,)
        self.inputs = tuple(inputs)
        self.schema = schema

    @abstractmethod
    def rows(self, side: Side, keys: Keys | None = None) -> Iterator[pa.RecordBatch]:
        """Yield its rows.

        Args:
            keys: Only rows with these keys are needed; others may come, too. None = all rows.
        """

    @abstractmethod
    def delta(self) -> pa.Table:
        """Return the rows that the refresh adds and removes, weighted and consolidated."""

    def walk(self) -> Iterator[ViewOperator]:
        """Yield the operator and all before it, each once."""
        seen: dict[int, ViewOperator] = {id(self): self}
        for operator in self.inputs:
            for before in operator.walk():
                seen.setdefault(id(before), before)
        yield from seen.values()

    def table(self, side: Side, keys: Keys | None = None) -> pa.Table:
        """Return its rows as a table; see `rows`."""
        return pa.Table.from_batches(self.rows(side, keys), self.schema)


def restricted_delta(operator: ViewOperator, keys: Keys | None) -> pa.Table:
    """Return the changes of the rows with some keys, or of all, by computing them before and after."""
    before, after = (operator.table(side, keys) for side in ("before", "after"))
    return united([weighted(after, 1), weighted(before, -1)], operator.schema)


class ViewSteps(ViewOperator):
    """Narrow steps: the changes of their rows are the rows of their input's changes.

    Args:
        steps: The steps' nodes, the first one first.
    """

    def __init__(self, steps: Sequence[nodes.Node], before: ViewOperator) -> None:
        self._steps = lower(steps, before.schema)
        super().__init__(steps[-1], [before], self._steps.schema)
        self.nodes = tuple(steps)

    def rows(self, side: Side, keys: Keys | None = None) -> Iterator[pa.RecordBatch]:
        for batch in self.inputs[0].rows(side, None if keys is None else self._before(keys)):
            rows = self._steps(batch)
            yield rows if keys is None else keys.select(rows)

    def delta(self) -> pa.Table:
        (before,) = self.inputs
        changes = before.delta()
        steps = lower([_with_weight(step) for step in self.nodes], changes.schema)
        batches = (steps(batch) for batch in changes.combine_chunks().to_batches())
        rows = pa.Table.from_batches(batches, steps.schema).select([*self.schema.names, WEIGHT])
        return united([rows], self.schema)

    def _before(self, keys: Keys) -> Keys | None:
        names: dict[str, str | None] = {name: name for name in keys.columns}
        for step in reversed(self.nodes):
            names = {key: None if name is None else _source(step, name) for key, name in names.items()}
        return keys.renamed(names)


def _with_weight(step: nodes.Node) -> nodes.Node:
    if isinstance(step, nodes.Select):
        return nodes.Select(step.input, (*step.columns, Column(WEIGHT)))
    return step


def _source(step: nodes.Node, name: str) -> str | None:
    """Return the input's column that a column of a step's output is; None if it is computed."""
    match step:
        case nodes.Select():
            return {output_name(column): plain_column(column) for column in step.columns}.get(name, name)
        case nodes.WithColumns():
            return {new: plain_column(value) for new, value in step.columns}.get(name, name)
        case nodes.Rename():
            return {new: old for old, new in step.names}.get(name, name)
        case nodes.Filter() | nodes.Rest() | nodes.Drop():
            return name
    return None


def plain_column(value: ExprNode) -> str | None:
    """Return the name of the column that an expression is; None if it is computed."""
    while isinstance(value, Call) and value.op == "alias":
        value = value.args[0]
    return value.name if isinstance(value, Column) else None


class ViewUnion(ViewOperator):
    """The rows of several operators together.

    Args:
        inputs: Operators whose rows have the same columns, in any order.
    """

    def __init__(self, node: nodes.Union, inputs: Sequence[ViewOperator]) -> None:
        super().__init__(node, inputs, inputs[0].schema)

    def rows(self, side: Side, keys: Keys | None = None) -> Iterator[pa.RecordBatch]:
        for before in self.inputs:
            for batch in before.rows(side, keys):
                yield conform(batch, self.schema)

    def delta(self) -> pa.Table:
        schema = self.schema.append(pa.field(WEIGHT, pa.int64()))
        batches = [conform(batch, schema) for before in self.inputs for batch in before.delta().to_batches()]
        return united([pa.Table.from_batches(batches, schema)], self.schema)
