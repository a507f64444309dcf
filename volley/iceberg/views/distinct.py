"""Counts of different values in a view: groups by key and value, and groups of these by key."""

from __future__ import annotations

from collections.abc import Iterator

from volley.plan.aggregates import Aggregation
from volley.plan.expression_nodes import Column, ExprNode, output_name
from volley.plan.expressions import Expr, col
from volley.plan.keyed_nodes import Aggregate
from volley.plan.nodes import Node, Select

__all__ = ["counted_values", "without_distinct"]

_VALUE = "_volley_value"


def counted_values(node: Aggregate) -> list[ExprNode]:
    """Return the expressions whose different values an aggregate counts, each once."""
    counted = (aggregate for _, aggregate in node.aggregates if aggregate.function == "count_distinct")
    return list(dict.fromkeys(aggregate.value for aggregate in counted if aggregate.value is not None))


def without_distinct(node: Aggregate) -> Node:
    """Return the same rows by aggregates that a view can have: those of each key and value, and of these by key."""
    (value,) = counted_values(node)
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
