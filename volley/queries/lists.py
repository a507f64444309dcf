"""The items of a query's list, and what GROUP BY and HAVING call by their names."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from volley.plan.sql_nodes import Mistake, written_paren
from volley.queries.clauses import check_clauses
from volley.queries.groups import Groups, has_aggregates, is_aggregated, window_bound
from volley.queries.scope import BOUND, Item, Relation

__all__ = ["expanded", "group_key", "resolved_items", "with_aliases", "with_bounds"]


def expanded(trees: Sequence[exp.Expression], relation: Relation) -> list[tuple[exp.Expression, str]]:
    """Return the items of a list with their names; * is each column."""
    listed = list[tuple[exp.Expression, str]]()
    for tree in trees:
        star = tree.this if isinstance(tree, exp.Column) else tree
        if isinstance(star, exp.Star):
            check_clauses(star)
            table = tree.table if isinstance(tree, exp.Column) else None
            listed += _starred(star, [item for item in relation.items if table in (None, item.table)], tree)
        elif isinstance(tree, exp.Alias):
            listed.append((tree.this, tree.alias))
        elif isinstance(tree, exp.Column):
            listed.append((tree, tree.name))
        elif (name := _name_of_aggregate(tree)) is not None:
            listed.append((tree, name))
        else:
            raise Mistake("a computed column has no name", tree, "give it one: … AS total")
    names = [name for _, name in listed]
    for (tree, name), number in zip(listed, range(len(names)), strict=True):
        if name in names[:number]:
            raise Mistake(f"two columns are named {name!r}", tree, "give one of them another name by AS")
    return listed


def _name_of_aggregate(tree: exp.Expression) -> str | None:
    """Return the name that Spark gives an aggregate of a column; None for another expression."""
    if has_aggregates([tree]) and isinstance(tree, exp.Anonymous) and len(tree.expressions) == 1:
        (argument,) = tree.expressions
        return f"{tree.name.lower()}({argument.name})" if isinstance(argument, exp.Column) else None
    return None


def _starred(star: exp.Star, items: Sequence[Item], node: exp.Expression) -> list[tuple[exp.Expression, str]]:
    left_out = {column.name for column in star.args.get("except_") or []}
    if not items or (unknown := sorted(left_out - {item.name for item in items})):
        raise Mistake(f"* has no column {unknown[0]}" if items else "* of no table", node, "name one of FROM")
    kept = [item for item in items if item.name not in left_out]
    return [(exp.column(item.name, table=item.table or None, quoted=True), item.name) for item in kept]


def resolved_items(
    listed: Sequence[tuple[exp.Expression, str]], relation: Relation
) -> list[tuple[exp.Expression, str]]:
    """Return the items over the stream's columns; a name of an earlier item stands for it unless a column has it."""
    aliases = dict[str, exp.Expression]()
    resolved = list[tuple[exp.Expression, str]]()
    for tree, name in listed:
        result = relation.resolved(tree, aliases)
        aliases.setdefault(name, written_paren(result))
        resolved.append((result, name))
    return resolved


def group_key(key: exp.Expression, listed: Sequence[tuple[exp.Expression, str]], relation: Relation) -> exp.Expression:
    """Return what to group by: an expression, or an item of the list by its position or name; columns come first."""
    if isinstance(key, exp.Literal) and not key.is_string:
        if not key.this.isdecimal() or not 1 <= int(key.this) <= len(listed):
            raise Mistake(f"the list has no position {key.this}", key, f"1 to {len(listed)}")
        key = listed[int(key.this) - 1][0]
    names = dict(reversed([(name, tree) for tree, name in listed]))
    if isinstance(key, exp.Column) and len(key.parts) == 1 and not relation.has(key) and key.name in names:
        key = names[key.name]
    if has_aggregates([key]):
        raise Mistake("a group by an aggregate", key, "compute it in a query in FROM, and group the result")
    return relation.resolved(key)


def with_bounds(tree: exp.Expression, relation: Relation) -> exp.Expression:
    """Return a tree in which ``window.start`` and ``window.end`` are the columns of the groups."""

    def bound(node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Column) and not relation.has(node) and (column := window_bound(node)) is not None:
            column.meta[BOUND] = True
            return column
        return node

    result = tree.transform(bound)
    assert isinstance(result, exp.Expression)
    return result


def with_aliases(
    having: exp.Expression, listed: Sequence[tuple[exp.Expression, str]], relation: Relation, groups: Groups
) -> exp.Expression:
    """Return HAVING with the items of the list for their names, which aggregates in it don't see."""
    items = dict(reversed([(name, tree) for tree, name in listed]))

    def alias(node: exp.Expr) -> exp.Expr:
        if not isinstance(node, exp.Column) or len(node.parts) > 1 or node.name not in items or is_aggregated(node):
            return node
        item = items[node.name]
        if relation.has(node) and groups.is_key(column := relation.resolved(node)) and column != item:
            raise Mistake(f"{node.name} is a column and another item of the list", node, "give the item another name")
        for column in item.find_all(exp.Column):
            column.meta[BOUND] = True
        return written_paren(item.copy())

    result = with_bounds(having, relation).transform(alias)
    assert isinstance(result, exp.Expression)
    return result
