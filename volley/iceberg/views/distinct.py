"""Counts of different values in a view: groups by key and value, and groups of these by key; those of each expression.

Groups that count the different values of several expressions are joined by their keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from volley.contracts.dimension import DimensionReader
from volley.plan.aggregates import Aggregation
from volley.plan.expression_nodes import Column, ExprNode, Literal, output_name
from volley.plan.expressions import Expr, col
from volley.plan.joins import TableJoin
from volley.plan.keyed_nodes import Aggregate
from volley.plan.nodes import Join, Node, Select, WithColumns
from volley.plan.queried import QueriedTable, described

__all__ = ["counted_values", "without_distinct"]

_VALUE, _ONE = "_volley_value", "_volley_one"


def counted_values(node: Aggregate) -> list[ExprNode]:
    """Return the expressions whose different values an aggregate counts, each once."""
    counted = (aggregate for _, aggregate in node.aggregates if aggregate.function == "count_distinct")
    return list(dict.fromkeys(aggregate.value for aggregate in counted if aggregate.value is not None))


@dataclass(frozen=True, repr=False)
class _Groups(QueriedTable):
    """Groups of the rows that others are groups of."""

    groups: Node

    @property
    def query(self) -> Node:
        return self.groups

    @property
    def identity(self) -> str:
        return described(self.query)

    @property
    def selection(self) -> str:
        return ""

    def open(self) -> DimensionReader:
        raise NotImplementedError

    def __repr__(self) -> str:
        return "other groups"


def without_distinct(node: Aggregate) -> Node:
    """Return the same rows by aggregates that a view can have: those of each key and value, and of these by key."""
    value, *others = counted_values(node)
    return _joined(node, others) if others else _by_value(node, value)


def _joined(node: Aggregate, others: Sequence[ExprNode]) -> Node:
    """Return the groups that count the values of the first expression, joined with those that count the others'."""
    counts = [(name, aggregate) for name, aggregate in node.aggregates if aggregate.function == "count_distinct"]
    theirs = tuple((name, aggregate) for name, aggregate in counts if aggregate.value in others)
    ours = tuple(named for named in node.aggregates if named not in theirs)
    # Groups without keys are one row, and have a constant in common.
    left, right = (WithColumns(replace(node, aggregates=some), ((_ONE, Literal(1)),)) for some in (ours, theirs))
    keys = [output_name(key) for key in node.keys]
    join = TableJoin(
        on=tuple((key, key) for key in [*keys, _ONE]),
        how="inner",
        columns=tuple(name for name, _ in theirs),
        suffix="",
        table=_Groups(right),
        as_of=None,
        max_bytes=0,
        nulls_match=True,
    )
    return Select(Join(left, join), tuple(Column(name) for name in [*keys, *(name for name, _ in node.aggregates)]))


def _by_value(node: Aggregate, value: ExprNode) -> Node:
    keys = tuple(Column(output_name(key)) for key in node.keys)
    first = dict(part for number, (_, aggregate) in enumerate(node.aggregates) for part in _first(number, aggregate))
    second = {name: Aggregation(_again(aggregate.function), Column(name)) for name, aggregate in first.items()}
    results = [_result(number, aggregate).alias(name).node for number, (name, aggregate) in enumerate(node.aggregates)]
    by_value = Aggregate(node.input, (*node.keys, Expr(value).alias(_VALUE).node), tuple(first.items()))
    counts = (("_distinct", Aggregation("count", Column(_VALUE))), *second.items())
    return Select(Aggregate(by_value, keys, counts), (*keys, *results))


def _first(number: int, aggregate: Aggregation) -> Iterator[tuple[str, Aggregation]]:
    """Yield what an aggregate of all rows of a key is computed from, by the names of the columns."""
    match aggregate.function:
        case "count_distinct":
            return
        case "avg":
            yield f"_sum_{number}", Aggregation("sum", aggregate.value)
            yield f"_count_{number}", Aggregation("count", aggregate.value)
        case _:
            yield f"_{aggregate.function}_{number}", aggregate


def _again(function: str) -> str:
    return "sum" if function == "count" else function


def _result(number: int, aggregate: Aggregation) -> Expr:
    match aggregate.function:
        case "count_distinct":
            return col("_distinct")
        case "avg":
            return col(f"_sum_{number}").cast("double") / col(f"_count_{number}").null_if(0)
        case "count":
            return col(f"_count_{number}").fill_null(0)
    return col(f"_{aggregate.function}_{number}")
