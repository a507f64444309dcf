"""The joins of a query: tables and queries in FROM, IN and EXISTS."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import reduce
from typing import Any

from sqlglot import exp

from volley.plan import nodes
from volley.plan.event_times import follows_windows
from volley.plan.expressions import col, lit
from volley.plan.joins import FILTERS, How, TableJoin
from volley.plan.sql_nodes import Mistake, written_paren
from volley.queries.bounds import Bound, bound_of
from volley.queries.scope import Item, Relation, Types, expression
from volley.queries.tables import Tables
from volley.stream.joins import MAX_BYTES

__all__ = ["Condition", "Joiner", "Pair", "QueryTiming", "conjuncts", "has_queries", "names_only"]

Pair = tuple[exp.Expression, exp.Expression]
"""Trees of a left and a right relation that are equal."""

_ZERO = exp.Literal.number(0)


def conjuncts(tree: exp.Expression | None) -> Iterator[exp.Expression]:
    """Yield the conditions that AND joins, those too that all sides of an OR have in common."""
    for part in _joined_by_and(tree):
        yield from _out_of_or(part)


def _out_of_or(tree: exp.Expression) -> Iterator[exp.Expression]:
    sides = [[*_joined_by_and(side)] for side in _joined_by_or(tree)]
    common = [part for part in sides[0] if all(part in side for side in sides[1:])] if len(sides) > 1 else []
    if not common:
        yield tree
        return
    yield from common
    rests = [[part for part in side if part not in common] for side in sides]
    if all(rests):
        yield reduce(_or, [reduce(_and, rest) for rest in rests])


def _and(one: exp.Expression, other: exp.Expression) -> exp.Expression:
    return written_paren(exp.And(this=written_paren(one.copy()), expression=written_paren(other.copy())))


def _or(one: exp.Expression, other: exp.Expression) -> exp.Expression:
    return written_paren(exp.Or(this=one.copy(), expression=other.copy()))


def _joined_by_or(tree: exp.Expression) -> Iterator[exp.Expression]:
    inner = tree.unnest() if isinstance(tree, exp.Paren) else tree
    if isinstance(inner, exp.Or):
        yield from _joined_by_or(inner.this)
        yield from _joined_by_or(inner.expression)
    else:
        yield tree


def _joined_by_and(tree: exp.Expression | None) -> Iterator[exp.Expression]:
    if isinstance(tree, exp.Paren):
        inner = list(_joined_by_and(tree.this))
        yield from inner if len(inner) > 1 else [tree]
    elif isinstance(tree, exp.And):
        yield from _joined_by_and(tree.this)
        yield from _joined_by_and(tree.expression)
    elif tree is not None:
        yield tree


def has_queries(tree: exp.Expression) -> bool:
    """Return True if an expression has a query in it."""
    return tree.find(exp.Query) is not None


@dataclass
class Condition:
    """How two relations are joined: pairs of trees that are equal, and the conditions beside them.

    Args:
        pairs: Resolved trees, of the left and the right relation.
        left: Conditions on the left one alone, as the text has them; `right` and `both` likewise.
        equal: The conditions of the pairs.
    """

    pairs: list[Pair] = field(default_factory=list)
    left: list[exp.Expression] = field(default_factory=list)
    right: list[exp.Expression] = field(default_factory=list)
    both: list[exp.Expression] = field(default_factory=list)
    equal: list[exp.Expression] = field(default_factory=list)

    @property
    def trees(self) -> list[exp.Expression]:
        """All conditions, as the text has them."""
        return [*self.equal, *self.left, *self.right, *self.both]

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


def _pair(tree: exp.Expression, left: Relation, right: Relation) -> Pair | None:
    if not isinstance(tree, exp.EQ):
        return None
    for one, other in ((tree.this, tree.expression), (tree.expression, tree.this)):
        is_left = one.find(exp.Column) and names_only(one, left) and not names_only(one, right)
        if is_left and other.find(exp.Column) and names_only(other, right) and not names_only(other, left):
            return left.resolved(one), right.resolved(other)
    return None


@dataclass(frozen=True)
class QueryTiming:
    """How a query follows time.

    Args:
        lateness: How late rows of windows and of two streams may be.
        ttl: How long rows of two streams wait that are joined without a bound of time; None = they are not joined so.
    """

    lateness: timedelta
    ttl: timedelta | None


class Joiner:
    """Joins relations.

    Args:
        needed: The names that the text has; None = all columns are needed.
    """

    def __init__(self, tables: Tables, types: Types, needed: set[str] | None, timing: QueryTiming) -> None:
        self._tables, self._types, self._needed, self._timing = tables, types, needed, timing

    def need(self, names: Iterable[str]) -> None:
        """Keep columns whose names the text does not have."""
        self._needed = self._needed and {*self._needed, *names}

    def bound(self, left: Relation, right: Relation, condition: Condition) -> Bound | None:
        """Return the bound of time within which two streams are joined; None if the right one is joined as a whole."""
        bound = bound_of([*condition.equal, *condition.both], left, right, self._types)
        if bound is None or self._tables.is_endless(right.stream) or self._waits(right):
            return bound
        sides = zip((left, right), bound.times, strict=True)
        return bound if all(follows_windows(side.stream._node, time) for side, time in sides) else None

    def join(
        self,
        left: Relation,
        right: Relation,
        condition: Condition,
        how: How,
        node: exp.Expression,
        nulls_match: bool = False,
    ) -> Relation:
        """Return the rows of one relation with those of another that are equal by the condition's pairs.

        Args:
            how: Of two streams also ``"full"``, ``"semi"`` or ``"anti"``.
            nulls_match: True: null is equal to null.

        Raises:
            Mistake: If two streams would be joined where null is equal to null.
        """
        bound = self.bound(left, right, condition)
        # Without an equality all rows have a constant in common.
        left, right, on = self._with_keys(left, right, condition.pairs or [(_ZERO, _ZERO)], copied=how == "full")
        key_columns = [right_key for _, right_key in on]
        is_filter = how in FILTERS
        items = [] if is_filter else [item for item in right.items if self._is_needed(item)]
        columns = tuple(dict.fromkeys([item.column for item in items] or key_columns[:1]))
        suffix = self._suffix(left, right, columns)
        settings: Any = {} if is_filter else {"columns": columns, "suffix": suffix}
        if (timing := self.timing_of(right, bound)) is not None:
            if nulls_match:
                hint = "leave nulls out, and compare by ="
                raise Mistake("a join of streams in which null is equal to null", node, hint)
            stream = left.stream.join(right.stream, dict(on), how, **settings, **timing)
        else:
            table = self._tables.dimension(right.stream, node)
            settings |= {"table": table, "as_of": None, "max_bytes": MAX_BYTES, "nulls_match": nulls_match}
            join = TableJoin(on=tuple(on), how=how, **settings)
            stream = left.stream._then(nodes.Join(left.stream._node, join))
        others = (Item(item.table, item.name, item.column + suffix) for item in items)
        return Relation(stream, (*left.items, *others))

    def timing_of(self, right: Relation, bound: Bound | None) -> dict[str, Any] | None:
        """Return how two streams are joined in time; None = the right rows are joined as a table."""
        if bound is not None:
            within = (bound.before, bound.after)
            return {"within": within, "time": bound.times, "lateness": self._timing.lateness, "max_ahead": None}
        return {"ttl": self._timing.ttl} if self._waits(right) else None

    def _waits(self, right: Relation) -> bool:
        """Return True if rows of two streams can wait for each other, also of those that end."""
        return self._timing.ttl is not None and self._tables.is_stream(right.stream)

    def semi(
        self,
        left: Relation,
        right: Relation,
        pairs: Sequence[Pair],
        node: exp.Expression,
        is_anti: bool,
        nulls_match: bool = False,
    ) -> Relation:
        """Return the rows of a relation that match rows of another one, or with `is_anti` those that match none."""
        ours, theirs = zip(*(pairs or [(_ZERO, _ZERO)]), strict=True)
        rows, names = self.matches(right, theirs)
        on = [(tree, exp.column(name, quoted=True)) for tree, name in zip(ours, names, strict=True)]
        how: How = "left" if is_anti else "inner"
        joined, (match,) = self.looked_up(left, rows, on, ["_match"], how, node, nulls_match)
        return replace(joined, stream=joined.stream.filter(col(match).is_null())) if is_anti else joined

    def matches(self, rows: Relation, trees: Sequence[exp.Expression]) -> tuple[Relation, list[str]]:
        """Return the different values of some trees, and the names of their columns; the column `_match` is true."""
        schema, names = self._types.of(rows.stream), [f"_key_{number}" for number in range(len(trees))]
        keys = [expression(tree, schema).alias(name) for tree, name in zip(trees, names, strict=True)]
        stream = rows.stream.select(*keys).deduplicate(*names).with_column("_match", lit(True))
        return Relation(stream, tuple(Item("", name, name) for name in (*names, "_match"))), names

    def looked_up(
        self,
        left: Relation,
        rows: Relation,
        pairs: Sequence[Pair],
        names: Sequence[str],
        how: How,
        node: exp.Expression,
        nulls_match: bool = False,
    ) -> tuple[Relation, list[str]]:
        """Return the rows of a relation with columns of other rows, and the names of these columns in the stream."""
        needed, self._needed = self._needed, {*names}
        joined = self.join(left, rows, Condition(list(pairs)), how, node, nulls_match)
        self._needed = needed
        return Relation(joined.stream, left.items), [item.column for item in joined.items[len(left.items) :]]

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
        self, left: Relation, right: Relation, pairs: Sequence[Pair], copied: bool
    ) -> tuple[Relation, Relation, list[tuple[str, str]]]:
        """Return both relations with the columns by which they are joined, and their names.

        Args:
            copied: True: those of the left one are additional columns, which the join can give other values.
        """
        on = list[tuple[str, str]]()
        for one, other in pairs:
            known = self._types.of(left.stream).names if copied else [key for key, _ in on]
            left, left_key = self._with_key(left, one, known)
            right, right_key = self._with_key(right, other, [key for _, key in on])
            on.append((left_key, right_key))
        return left, right, on

    def _with_key(self, relation: Relation, tree: exp.Expression, used: Sequence[str]) -> tuple[Relation, str]:
        if isinstance(tree, exp.Column) and tree.name not in used:
            return relation, tree.name
        schema = self._types.of(relation.stream)
        name = next(name for number in range(len(schema) + 1) if (name := f"_on_{number}") not in schema.names)
        return Relation(relation.stream.with_column(name, expression(tree, schema)), relation.items), name
