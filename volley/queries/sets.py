"""UNION, INTERSECT and EXCEPT of two queries."""

from __future__ import annotations

from sqlglot import exp

from volley.plan.over import row_number
from volley.plan.sql_nodes import Mistake
from volley.queries.joins import Joiner
from volley.queries.scope import Item, Relation, Types

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
    # Their types fit, as those of UNION.
    types.of(both)
    # The n-th copy of a row has the n-th one of the other side.
    number = max(names, key=len) + "_"
    ours, theirs = (
        stream.deduplicate(*names)
        if is_distinct
        else stream.key_by(*names).order_by(names[0]).with_columns(**{number: row_number()})
        for stream in (left.stream, renamed)
    )
    items = [*left.items, *([] if is_distinct else [Item("", number, number)])]
    columns = [exp.column(item.column, quoted=True) for item in items]
    rows, copies = (Relation(stream, tuple(items)) for stream in (ours, theirs))
    is_anti = isinstance(query, exp.Except)
    kept = joiner.semi(rows, copies, [(column, column) for column in columns], query, is_anti, nulls_match=True)
    return Relation(kept.stream.select(*names), left.items)


def _named(query: exp.SetOperation) -> str:
    return str(query.key).upper()
