"""UNION, INTERSECT and EXCEPT of two queries."""

from __future__ import annotations

from sqlglot import exp

from volley.plan.sql_nodes import Mistake
from volley.queries.joins import Joiner
from volley.queries.scope import Relation, Types

__all__ = ["combined"]


def combined(query: exp.SetOperation, left: Relation, right: Relation, joiner: Joiner, types: Types) -> Relation:
    """Return the rows of a set operation, whose columns fit by their places."""
    names, others = ([item.name for item in side.items] for side in (left, right))
    if len(names) != len(others):
        hint = "both sides have as many columns, which fit by their places"
        raise Mistake(f"{_named(query)} of {len(names)} and {len(others)} columns", query, hint)
    renamed = right.stream.select(**dict(zip(names, others, strict=True)))
    both = left.stream.union(renamed)
    is_distinct = bool(query.args.get("distinct"))
    if isinstance(query, exp.Union):
        return Relation(both.deduplicate(*names) if is_distinct else both, left.items)
    if not is_distinct:
        raise Mistake(f"{_named(query)} ALL", query, "leave ALL out; or count the rows of each side, and compare them")
    # Their types fit, as those of UNION.
    types.of(both)
    rows = Relation(left.stream.deduplicate(*names), left.items)
    pairs = [(exp.column(name, quoted=True), exp.column(name, quoted=True)) for name in names]
    is_anti = isinstance(query, exp.Except)
    kept = joiner.semi(rows, Relation(renamed, left.items), pairs, query, is_anti, nulls_match=True)
    return Relation(kept.stream.select(*names), left.items)


def _named(query: exp.SetOperation) -> str:
    return str(query.key).upper()
