"""Joins that keep rows without a match, under any condition: the joined rows, and those of a side that match none.

Whether a row has a match depends on the columns that the condition names. So the rows without one are those whose
values in these columns no joined row has, null being equal to null.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from volley.plan.expressions import col, lit
from volley.plan.sql_nodes import Mistake
from volley.queries.joins import Condition, Joiner
from volley.queries.scope import Item, Relation, Types
from volley.types.arrow import type_name

__all__ = ["outer_join", "semi_join"]


def outer_join(
    joiner: Joiner,
    types: Types,
    left: Relation,
    right: Relation,
    condition: Condition,
    node: exp.Expression,
    full: bool,
) -> Relation:
    """Return the rows of two relations that match, and those of the left one that match none.

    Args:
        full: Those of the right one, too.
    """
    matched = _matched(joiner, left, right, condition, node)
    sides = [left, right] if full else [left]
    alone = [_related(joiner, side, matched, condition, node, is_anti=True) for side in sides]
    return _united([matched, *alone], matched.items, types)


def semi_join(
    joiner: Joiner, left: Relation, right: Relation, condition: Condition, node: exp.Expression, is_anti: bool
) -> Relation:
    """Return the rows of a relation that match rows of another one, or with `is_anti` those that match none."""
    if (bound := joiner.bound(left, right, condition)) is not None:
        others = [tree for tree in condition.both if all(tree is not known for known in bound.exact)]
        if others or (is_anti and condition.left):
            hint = "beside equalities and a bound of time, it can have conditions on the right stream alone"
            raise Mistake("a semi or anti join of streams with another condition", (others or condition.left)[0], hint)
        left, right = joiner.filtered(left, condition.left), joiner.filtered(right, condition.right)
        return joiner.join(left, right, condition, "anti" if is_anti else "semi", node)
    if not condition.left and not condition.both:
        return joiner.semi(left, joiner.filtered(right, condition.right), condition.pairs, node, is_anti)
    return _related(joiner, left, _matched(joiner, left, right, condition, node), condition, node, is_anti)


def _matched(joiner: Joiner, left: Relation, right: Relation, condition: Condition, node: exp.Expression) -> Relation:
    left, right = joiner.filtered(left, condition.left), joiner.filtered(right, condition.right)
    return joiner.filtered(joiner.join(left, right, condition, "inner", node), condition.both)


def _related(
    joiner: Joiner, side: Relation, matched: Relation, condition: Condition, node: exp.Expression, is_anti: bool
) -> Relation:
    """Return the rows of a side that joined rows have, or those that they have not."""
    named = (column for tree in condition.trees for column in tree.find_all(exp.Column) if side.has(column))
    columns = {side.item(column): column for column in named}.values()
    pairs = [(side.resolved(column), matched.resolved(column)) for column in columns]
    return joiner.semi(side, matched, pairs, node, is_anti, nulls_match=True)


def _united(parts: Sequence[Relation], items: Sequence[Item], types: Types) -> Relation:
    """Return the rows of several relations together, with nulls for the items that one lacks."""
    schema = types.of(parts[0].stream)
    streams = []
    for part in parts:
        known = {(item.table, item.name): item.column for item in part.items}
        columns = {
            item.column: col(known[item.table, item.name])
            if (item.table, item.name) in known
            else lit(None).cast(type_name(schema.field(item.column).type))
            for item in items
        }
        streams.append(part.stream.select(**columns))
    return Relation(streams[0].union(*streams[1:]), tuple(items))
