"""The joins of a query: tables and queries in FROM, IN and EXISTS."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlglot import exp

from volley.plan import nodes
from volley.plan.event_times import follows_windows
from volley.plan.expressions import col, lit
from volley.plan.joins import How, TableJoin
from volley.plan.sql_nodes import Mistake
from volley.queries.bounds import Bound, bound_of
from volley.queries.scope import Item, Relation, Types, expression
from volley.queries.tables import Tables
from volley.stream.joins import MAX_BYTES

__all__ = ["Condition", "Joiner", "conjuncts"]


def conjuncts(tree: exp.Expression | None) -> Iterator[exp.Expression]:
    """Yield the conditions that AND joins."""
    if isinstance(tree, exp.Paren):
        inner = list(conjuncts(tree.this))
        yield from inner if len(inner) > 1 else [tree]
    elif isinstance(tree, exp.And):
        yield from conjuncts(tree.this)
        yield from conjuncts(tree.expression)
    elif tree is not None:
        yield tree


@dataclass
class Condition:
    """How two relations are joined: pairs of trees that are equal, and the conditions beside them.

    Args:
        pairs: Resolved trees, of the left and the right relation.
        left: Conditions on the left one alone, as the text has them; `right` and `both` likewise.
        equal: The conditions of the pairs.
    """

    pairs: list[tuple[exp.Expression, exp.Expression]] = field(default_factory=list)
    left: list[exp.Expression] = field(default_factory=list)
    right: list[exp.Expression] = field(default_factory=list)
    both: list[exp.Expression] = field(default_factory=list)
    equal: list[exp.Expression] = field(default_factory=list)

    @classmethod
    def of(cls, trees: Iterable[exp.Expression], left: Relation, right: Relation) -> Condition:
        """Return the condition that trees say together."""
        condition = cls()
        for tree in trees:
            if pair := _pair(tree, left, right):
                condition.equal.append(tree)
                condition.pairs.append(pair)
                continue
            is_left, is_right = names_only(tree, left), names_only(tree, right)
            group = condition.both if is_left == is_right else condition.left if is_left else condition.right
            group.append(tree)
        return condition


def names_only(tree: exp.Expression, relation: Relation) -> bool:
    """Return True if all columns of a tree are columns of a relation."""
    return all(relation.has(column) for column in tree.find_all(exp.Column))


def _pair(tree: exp.Expression, left: Relation, right: Relation) -> tuple[exp.Expression, exp.Expression] | None:
    if not isinstance(tree, exp.EQ):
        return None
    for one, other in ((tree.this, tree.expression), (tree.expression, tree.this)):
        is_left = one.find(exp.Column) and names_only(one, left) and not names_only(one, right)
        if is_left and other.find(exp.Column) and names_only(other, right) and not names_only(other, left):
            return left.resolved(one), right.resolved(other)
    return None


class Joiner:
    """Joins relations.

    Args:
        needed: The names that the text has; None = all columns are needed.
        lateness: How late rows of two streams may be.
    """

    def __init__(self, tables: Tables, types: Types, needed: set[str] | None, lateness: Any) -> None:
        self._tables, self._types, self._needed, self._lateness = tables, types, needed, lateness

    def bound(self, left: Relation, right: Relation, condition: Condition) -> Bound | None:
        """Return the bound of time within which two streams are joined; None if the right one is joined as a whole."""
        bound = bound_of([*condition.equal, *condition.both], left, right, self._types)
        if bound is None or self._tables.is_endless(right.stream):
            return bound
        sides = zip((left, right), bound.times, strict=True)
        return bound if all(follows_windows(side.stream._node, time) for side, time in sides) else None

    def join(
        self, left: Relation, right: Relation, condition: Condition, how: How, node: exp.Expression, added: bool = True
    ) -> Relation:
        """Return the rows of one relation with those of another that are equal by the condition's pairs.

        Args:
            added: False adds no columns that can be named.
        """
        if not condition.pairs:
            hint = "each join needs an equality of columns of both sides: a.id = b.id"
            raise Mistake("a join without an equality", node, hint)
        bound = self.bound(left, right, condition)
        left, right, on = self._with_keys(left, right, condition.pairs)
        key_columns = [right_key for _, right_key in on]
        items = [item for item in right.items if self._is_needed(item)] if added else []
        columns = tuple(dict.fromkeys([item.column for item in items] or key_columns[:1]))
        suffix = self._suffix(left, right, columns)
        if bound is not None:
            timing = {"within": (bound.before, bound.after), "time": bound.times, "lateness": self._lateness}
            stream = left.stream.join(
                right.stream, on=dict(on), how=how, columns=columns, suffix=suffix, max_ahead=None, **timing
            )
        else:
            dimension = self._tables.dimension(right.stream, node)
            join = TableJoin(
                on=tuple(on), how=how, columns=columns, suffix=suffix, table=dimension, as_of=None, max_bytes=MAX_BYTES
            )
            stream = left.stream._then(nodes.Join(left.stream._node, join))
        others = (Item(item.table, item.name, item.column + suffix) for item in items)
        return Relation(stream, (*left.items, *others))

    def semi(
        self, left: Relation, right: Relation, condition: Condition, node: exp.Expression, is_anti: bool
    ) -> Relation:
        """Return the rows of a relation that match rows of another one, or with `is_anti` those that match none."""
        if not condition.pairs:
            hint = "compare a column of the query with one of the query around it: b.id = a.id"
            raise Mistake("EXISTS without an equality", node, hint)
        schema = self._types.of(right.stream)
        keys = [expression(tree, schema).alias(f"_key_{number}") for number, (_, tree) in enumerate(condition.pairs)]
        names = [f"_key_{number}" for number in range(len(keys))]
        distinct = right.stream.select(*keys).deduplicate(*names).with_column("_match", lit(True))
        items = tuple(Item("", name, name) for name in (*names, "_match"))
        by_name = [
            (tree, exp.column(name, quoted=True)) for (tree, _), name in zip(condition.pairs, names, strict=True)
        ]
        matches = Relation(distinct, items)
        needed, self._needed = self._needed, {"_match"}
        joined = self.join(left, matches, Condition(list(by_name)), "left" if is_anti else "inner", node)
        self._needed = needed
        (match,) = joined.items[len(left.items) :]
        kept = joined.stream.filter(col(match.column).is_null()) if is_anti else joined.stream
        return Relation(kept, left.items)

    def filtered(self, relation: Relation, trees: Sequence[exp.Expression]) -> Relation:
        """Return the rows of a relation for which conditions of the text hold."""
        stream = relation.stream
        for tree in trees:
            stream = stream.filter(expression(relation.resolved(tree), self._types.of(stream)))
        return Relation(stream, relation.items)

    def _is_needed(self, item: Item) -> bool:
        return self._needed is None or item.name in self._needed

    def _suffix(self, left: Relation, right: Relation, columns: Sequence[str]) -> str:
        """Return what makes the names of added columns differ from those that are there."""
        known, suffix = {*self._types.of(left.stream).names}, ""
        table = next((item.table for item in right.items if item.table), "right")
        while any(column + suffix in known for column in columns):
            suffix += f"_{table}"
        return suffix

    def _with_keys(
        self, left: Relation, right: Relation, pairs: Sequence[tuple[exp.Expression, exp.Expression]]
    ) -> tuple[Relation, Relation, list[tuple[str, str]]]:
        """Return both relations with the columns by which they are joined, and their names."""
        on = list[tuple[str, str]]()
        for one, other in pairs:
            left, left_key = self._with_key(left, one, {key for key, _ in on})
            right, right_key = self._with_key(right, other, {key for _, key in on})
            on.append((left_key, right_key))
        return left, right, on

    def _with_key(self, relation: Relation, tree: exp.Expression, used: set[str]) -> tuple[Relation, str]:
        if isinstance(tree, exp.Column) and tree.name not in used:
            return relation, tree.name
        schema = self._types.of(relation.stream)
        name = next(name for number in range(len(schema) + 1) if (name := f"_on_{number}") not in schema.names)
        return Relation(relation.stream.with_column(name, expression(tree, schema)), relation.items), name
