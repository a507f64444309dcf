"""Queries in expressions: each becomes rows to join to those around it, and an expression over their columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce

from sqlglot import exp

from volley.plan.aggregates import count
from volley.plan.expressions import col
from volley.plan.sql_nodes import Mistake, written_paren
from volley.queries.groups import has_aggregates, is_aggregate
from volley.queries.joins import Joiner, Pair, conjuncts, has_queries, names_only
from volley.queries.scope import BOUND, PLACEHOLDER, Item, Relation, Types
from volley.types.arrow import type_name

__all__ = ["Inlined", "Named", "Subqueries", "placeholder", "queries_in", "replaced"]

Named = Mapping[str, Relation]
"""The queries of WITH, by name."""

# Marks a column that is joined, by the number of its rows.
_LOOKUP = "lookup"
_PLAIN = {"expressions", "from_", "joins", "where", "kind", "hint"}
# Whether one of some values stands in a comparison with another value, the least or the greatest of them tell.
_EXTREMES: Mapping[type[exp.Expr], tuple[str, ...]] = {
    **{exp.GT: ("max",), exp.GTE: ("max",), exp.LT: ("min",), exp.LTE: ("min",), exp.NEQ: ("min", "max")},
}
_SWAPPED: Mapping[type[exp.Expr], type[exp.Expr]] = {
    exp.GT: exp.LT,
    exp.GTE: exp.LTE,
    exp.LT: exp.GT,
    exp.LTE: exp.GTE,
    exp.NEQ: exp.NEQ,
}
_ZERO = exp.Literal.number(0)
_HINT = "beside equalities with columns around it, the query can have conditions on its own tables"


@dataclass(frozen=True)
class _Lookup:
    """Rows to join, each key once.

    Args:
        pairs: The trees of the rows around the query, and the columns of the rows that these are equal to.
        names: The columns to add.
        nulls_match: True: null is equal to null.
    """

    rows: Relation
    pairs: Sequence[tuple[exp.Expression, str]]
    names: Sequence[str]
    nulls_match: bool = False


@dataclass(frozen=True)
class Inlined:
    """What a query in an expression becomes.

    Args:
        node: The query.
        lookups: What is joined.
        value: The expression over the columns that are joined, and over those of the rows around the query.
    """

    node: exp.Expression
    lookups: Sequence[_Lookup]
    value: exp.Expression

    @property
    def is_correlated(self) -> bool:
        """True if it depends on the rows around it."""
        columns = self.value.find_all(exp.Column)
        return any(lookup.pairs for lookup in self.lookups) or any(_LOOKUP not in column.meta for column in columns)


@dataclass(frozen=True)
class _Parts:
    """The conditions of a query in an expression.

    Args:
        inner: The columns of its own tables.
        own: The conditions on these.
        pairs: The trees of the rows around it and of its own rows that are equal.
        equal: The conditions that say so.
        others: All other conditions.
    """

    inner: Relation
    own: list[exp.Expression] = field(default_factory=list)
    pairs: list[Pair] = field(default_factory=list)
    equal: list[exp.Expression] = field(default_factory=list)
    others: list[exp.Expression] = field(default_factory=list)

    @property
    def outer(self) -> list[exp.Expression]:
        """The trees of the rows around the query that are equal to trees of its own."""
        return [tree for tree, _ in self.pairs]

    def add(self, tree: exp.Expression) -> None:
        """Add a condition of WHERE."""
        sides = self.sides(tree)
        if has_queries(tree) or names_only(tree, self.inner):
            self.own.append(tree)
        elif isinstance(tree, exp.EQ) and sides is not None:
            self.pairs.append((sides[1], sides[0]))
            self.equal.append(tree)
        else:
            self.others.append(tree)

    def sides(self, tree: exp.Expression) -> tuple[exp.Expression, exp.Expression] | None:
        """Return the side of a comparison that is of the query's own tables, and that of the rows around it."""
        if not isinstance(tree, exp.Binary):
            return None
        for own, outer in ((tree.this, tree.expression), (tree.expression, tree.this)):
            if own.find(exp.Column) and names_only(own, self.inner) and not self.named_in(outer):
                return own, outer
        return None

    def named_in(self, tree: exp.Expression) -> exp.Column | None:
        """Return the first column of the query's own tables that a tree names."""
        return next((column for column in tree.find_all(exp.Column) if self.inner.has(column)), None)

    def named_outside(self, tree: exp.Expression) -> Iterator[exp.Column]:
        """Yield the columns of the rows around the query that a tree names."""
        return (column for column in tree.find_all(exp.Column) if not self.inner.has(column))

    def refuse_others(self) -> None:
        """Refuse conditions that no join has."""
        for tree in self.others:
            raise Mistake("a query in an expression with another condition", tree, _HINT)


class Subqueries:
    """Translates the queries in expressions.

    Args:
        relation: Returns the rows of a query.
        source: Returns the rows of an item of FROM.
    """

    def __init__(
        self,
        relation: Callable[[exp.Expr, Named], Relation],
        source: Callable[[exp.Expression, Named], Relation],
        joiner: Joiner,
        types: Types,
    ) -> None:
        self._relation, self._source, self._joiner, self._types = relation, source, joiner, types
        self._tables = 0

    def where(self, relation: Relation, tree: exp.Expression, named: Named) -> Relation:
        """Return the rows for which a condition with a query in it holds."""
        is_anti = isinstance(tree, exp.Not)
        node = tree.this if is_anti else tree
        if isinstance(node, exp.Exists):
            parts, query = self._parts(node.this, node, named)
            if parts.pairs and not parts.others:
                rows = self._relation(_rewritten(query, parts, ()), named)
                return self._semi(relation, rows, parts.outer, node, is_anti)
        if isinstance(node, exp.In) and not is_anti and not has_queries(node.this):
            rows, outer = self._listed(node, named)
            return self._semi(relation, rows, [node.this, *outer], node, is_anti)
        joined, tree = self.met(relation, tree, named)
        return Relation(self._joiner.filtered(joined, [tree]).stream, relation.items)

    def met(self, relation: Relation, tree: exp.Expression, named: Named) -> tuple[Relation, exp.Expression]:
        """Return rows with what the queries in an expression are joined to, and the expression without queries."""
        for node in queries_in(tree):
            relation, value = self.attached(relation, self.inlined(node, named, relation))
            tree = replaced(tree, node, value)
        return relation, tree

    def attached(self, relation: Relation, inlined: Inlined) -> tuple[Relation, exp.Expression]:
        """Join what a query became, and return its value."""
        columns = dict[tuple[int, str], exp.Column]()
        for number, lookup in enumerate(inlined.lookups):
            pairs: list[Pair] = [(relation.resolved(outer), _bound(key)) for outer, key in lookup.pairs]
            relation, names = self._joiner.looked_up(
                relation, lookup.rows, pairs, lookup.names, "left", inlined.node, lookup.nulls_match
            )
            columns |= {(number, name): _bound(column) for name, column in zip(lookup.names, names, strict=True)}

        def named(node: exp.Expr) -> exp.Expr:
            return columns[node.meta[_LOOKUP], node.name].copy() if _LOOKUP in node.meta else node

        value = inlined.value.transform(named)
        assert isinstance(value, exp.Expression)
        return relation, written_paren(value)

    def inlined(self, node: exp.Expression, named: Named, relation: Relation | None = None) -> Inlined:
        """Return what a query in an expression becomes: one with one value, EXISTS or IN.

        Args:
            relation: The rows around it; None = those are groups.

        Raises:
            Mistake: If it can't be translated.
        """
        if isinstance(node, exp.Exists):
            return self._exists(node, named, relation)
        return self._in(node, named) if isinstance(node, exp.In) else self._scalar(node, named, relation)

    def _parts(self, query: exp.Expression, node: exp.Expression, named: Named) -> tuple[_Parts, exp.Select]:
        """Return the conditions of a query's WHERE, and the query."""
        if not isinstance(query, exp.Select) or not _is_plain(query):
            hint = "select one aggregate without GROUP BY, such as max(x); or write EXISTS (select 1 from b where …)"
            raise Mistake("such a query in an expression", node, hint)
        sources = [query.args["from_"].this, *(join.this for join in query.args.get("joins") or [])]
        relations = [self._source(source, named) for source in sources]
        items = tuple(item for relation in relations for item in relation.items)
        parts, where = _Parts(Relation(relations[0].stream, items)), query.args.get("where")
        for tree in conjuncts(where and where.this):
            parts.add(tree)
        return parts, query

    def _semi(
        self,
        relation: Relation,
        rows: Relation,
        trees: Sequence[exp.Expression],
        node: exp.Expression,
        is_anti: bool,
    ) -> Relation:
        """Return the rows whose trees are equal to the columns of other rows, or those of which they are not."""
        pairs: list[Pair] = [
            (relation.resolved(tree), _bound(item.column)) for tree, item in zip(trees, rows.items, strict=True)
        ]
        return self._joiner.semi(relation, rows, pairs, node, is_anti)

    def _scalar(self, node: exp.Expression, named: Named, relation: Relation | None) -> Inlined:
        parts, query = self._parts(node.this, node, named)
        if len(query.expressions) != 1 or not has_aggregates(query.expressions):
            hint = "select one aggregate without GROUP BY, such as max(x); or join the query in FROM"
            raise Mistake("a query in an expression that may have several rows or columns", node, hint)
        aggregates = list[exp.Expression]()

        def looked_up(part: exp.Expr) -> exp.Expr:
            call = part.this if isinstance(part, exp.Filter) else part
            if not is_aggregate(call):
                return part
            assert isinstance(part, exp.Expression)
            aggregates.append(part)
            column = _looked_up(0, f"_value_{len(aggregates) - 1}")
            # A count of no rows is 0, and no row is joined.
            is_zero = call.name.lower() == "count" and (parts.pairs or parts.others)
            return _call("coalesce", column, _ZERO.copy()) if is_zero else column

        value = query.expressions[0].unalias().transform(looked_up)
        if column := parts.named_in(value):
            raise Mistake(f"{column.name} is in no aggregate", column, f"for example max({column.name})")
        return Inlined(node, [self._grouped(query, parts, aggregates, named, relation)], value)

    def _exists(self, node: exp.Exists, named: Named, relation: Relation | None) -> Inlined:
        parts, query = self._parts(node.this, node, named)
        if len(parts.others) == 1 and (compared := self._compared(node, query, parts, named)):
            return compared
        there = exp.GT(this=_looked_up(0, "_value_0"), expression=_ZERO.copy())
        lookup = self._grouped(query, parts, [_call("count", exp.Star())], named, relation)
        return Inlined(node, [lookup], _is_true(there))

    def _compared(self, node: exp.Exists, query: exp.Select, parts: _Parts, named: Named) -> Inlined | None:
        """Return EXISTS with one comparison, which the least or the greatest value of a key tells; None of others."""
        (tree,) = parts.others
        sides = parts.sides(tree)
        if sides is None or type(tree) not in _EXTREMES:
            return None
        own, outer = sides
        operator = type(tree) if own is tree.this else _SWAPPED[type(tree)]
        aggregates = [_call(name, own.copy()) for name in _EXTREMES[operator]]
        lookup = self._of_keys(query, parts, aggregates, named)
        if type_name(self._types.of(lookup.rows.stream).field("_value_0").type) in ("double", "float"):
            # NaN is the greatest.
            return None
        first, *rest = (
            operator(this=_looked_up(0, name), expression=written_paren(outer.copy())) for name in lookup.names
        )
        condition = reduce(lambda one, other: exp.Or(this=one, expression=other), map(written_paren, rest), first)
        return Inlined(node, [lookup], _is_true(condition))

    def _in(self, node: exp.In, named: Named) -> Inlined:
        """Return IN with SQL's nulls: it is null for what is not there, if that is null or one of the values is."""
        if has_queries(node.this):
            raise Mistake("a query before IN", node.this, "compute it in a query in FROM")
        rows, outer = self._listed(node, named)
        value, *keys = (item.column for item in rows.items)
        counts = rows.stream.key_by(*keys).aggregate(_rows=count(), _known=count(value))
        items = tuple(Item("", name, name) for name in (*keys, "_rows", "_known"))
        matches, (key, *others) = self._joiner.matches(rows, [_bound(item.column) for item in rows.items])
        lookups = [
            _Lookup(Relation(counts, items), list(zip(outer, keys, strict=True)), ["_rows", "_known"]),
            _Lookup(matches, [(node.this, key), *zip(outer, others, strict=True)], ["_match"]),
        ]
        number, known = _looked_up(0, "_rows"), _looked_up(0, "_known")
        is_empty = exp.EQ(this=_call("coalesce", number, _ZERO.copy()), expression=_ZERO.copy())
        is_null = exp.Is(this=written_paren(node.this.copy()), expression=exp.Null())
        has_null = exp.NEQ(this=number.copy(), expression=known)
        unknown = exp.Cast(this=exp.Null(), to=exp.DataType(this=exp.DType.BOOLEAN, nested=False))
        ifs = [
            exp.If(this=written_paren(is_empty), true=exp.false()),
            exp.If(this=_is_true(_looked_up(1, "_match")), true=exp.true()),
            exp.If(this=exp.Or(this=written_paren(is_null), expression=written_paren(has_null)), true=unknown),
        ]
        return Inlined(node, lookups, exp.Case(ifs=ifs, default=exp.false()))

    def _listed(self, node: exp.In, named: Named) -> tuple[Relation, list[exp.Expression]]:
        """Return the rows of IN's query, with the keys of its equalities behind its column, and what these equal."""
        query, outer = node.args["query"].unnest(), list[exp.Expression]()
        if isinstance(query, exp.Select) and _is_plain(query) and not has_aggregates(query.expressions):
            parts, query = self._parts(query, node, named)
            parts.refuse_others()
            outer = parts.outer
            if outer:
                query = _rewritten(query, parts, query.expressions)
        rows = self._relation(query, named)
        if len(rows.items) != 1 + len(outer):
            raise Mistake(f"IN of a query with {len(rows.items)} columns", node, "select one column")
        return rows, outer

    def _grouped(
        self,
        query: exp.Select,
        parts: _Parts,
        aggregates: Sequence[exp.Expression],
        named: Named,
        relation: Relation | None,
    ) -> _Lookup:
        """Return aggregates of a query's rows for the rows around it."""
        if not parts.others:
            return self._of_keys(query, parts, aggregates, named)
        if relation is None:
            parts.refuse_others()
        assert relation is not None
        return self._of_values(query, parts, aggregates, named, relation)

    def _of_values(
        self,
        query: exp.Select,
        parts: _Parts,
        aggregates: Sequence[exp.Expression],
        named: Named,
        relation: Relation,
    ) -> _Lookup:
        """Return aggregates of a query's rows, for all values of the columns around it that it names."""
        self._tables += 1
        table, conditions = f"_outer_{self._tables}", [*parts.equal, *parts.others]
        columns = {relation.item(column): column for tree in conditions for column in parts.named_outside(tree)}
        names = {item: f"{table}_{number}" for number, item in enumerate(columns)}
        values = relation.stream.select(**{name: col(item.column) for item, name in names.items()})
        around = Relation(
            values.deduplicate(*names.values()), tuple(Item(table, name, name) for name in names.values())
        )
        self._joiner.need(names.values())

        def within(node: exp.Expr) -> exp.Expr:
            if not isinstance(node, exp.Column) or parts.inner.has(node):
                return node
            return exp.column(names[relation.item(node)], table=table, quoted=True)

        inner = _Parts(parts.inner, [*parts.own, *(_transformed(tree, within) for tree in conditions)])
        grouped = _rewritten(query, inner, aggregates)
        keys = [exp.column(name, table=table, quoted=True) for name in names.values()]
        grouped.set("expressions", [*grouped.expressions, *(exp.alias_(key, key.name) for key in keys)])
        grouped.set("joins", [*(grouped.args.get("joins") or []), exp.Join(this=exp.to_table(table))])
        grouped.set("group", exp.Group(expressions=[key.copy() for key in keys]))
        rows = self._relation(grouped, {**named, table: around})
        pairs = [(column, names[item]) for item, column in columns.items()]
        return _Lookup(rows, pairs, [f"_value_{number}" for number in range(len(aggregates))], nulls_match=True)

    def _of_keys(self, query: exp.Select, parts: _Parts, aggregates: Sequence[exp.Expression], named: Named) -> _Lookup:
        """Return aggregates of a query's rows, by the keys of its equalities."""
        grouped = _rewritten(query, parts, aggregates)
        if parts.pairs:
            grouped.set("group", exp.Group(expressions=[own.copy() for _, own in parts.pairs]))
        names = [f"_value_{number}" for number in range(len(aggregates))]
        keyed = [(tree, f"_key_{number}") for number, tree in enumerate(parts.outer)]
        return _Lookup(self._relation(grouped, named), keyed, names)


def queries_in(tree: exp.Expression) -> Iterator[exp.Expression]:
    """Yield the queries in an expression, and IN and EXISTS with one; not those within them."""
    if isinstance(tree, exp.Exists | exp.Subquery) or (isinstance(tree, exp.In) and tree.args.get("query")):
        yield tree
    elif isinstance(tree, exp.Query):
        raise Mistake("a query inside an expression", tree, "put it into parentheses")
    else:
        for part in tree.iter_expressions():
            assert isinstance(part, exp.Expression)
            yield from queries_in(part)


def replaced(tree: exp.Expression, node: exp.Expression, value: exp.Expression) -> exp.Expression:
    """Return a tree with a value in place of a query."""
    return _transformed(tree, lambda part: value.copy() if part == node else part)


def placeholder(number: int) -> exp.Column:
    """Return what stands for a query in an expression over groups, until it is joined."""
    column = _bound(f"_query_{number}")
    column.meta[PLACEHOLDER] = True
    return column


def _is_plain(query: exp.Select) -> bool:
    return bool(query.args.get("from_")) and all(name in _PLAIN for name, value in query.args.items() if value)


def _rewritten(query: exp.Select, parts: _Parts, listed: Sequence[exp.Expression]) -> exp.Select:
    """Return a query with another list, behind which the keys of its equalities stand, without these equalities."""
    result = query.copy()
    values = [exp.alias_(tree.unalias().copy(), f"_value_{number}") for number, tree in enumerate(listed)]
    keys = [exp.alias_(own.copy(), f"_key_{number}") for number, (_, own) in enumerate(parts.pairs)]
    result.set("expressions", [*values, *keys])
    result.set("where", exp.Where(this=exp.and_(*parts.own, copy=True)) if parts.own else None)
    return result


def _transformed(tree: exp.Expression, change: Callable[[exp.Expr], exp.Expr]) -> exp.Expression:
    result = tree.transform(change)
    assert isinstance(result, exp.Expression)
    return result


def _bound(name: str) -> exp.Column:
    column = exp.column(name, quoted=True)
    column.meta[BOUND] = True
    return column


def _looked_up(lookup: int, name: str) -> exp.Column:
    column = _bound(name)
    column.meta[_LOOKUP] = lookup
    return column


def _call(name: str, *arguments: exp.Expression) -> exp.Anonymous:
    return exp.Anonymous(this=name, expressions=list(arguments))


def _either(one: exp.Expr, other: exp.Expr) -> exp.Expr:
    return exp.Or(this=written_paren(one), expression=written_paren(other))


def _is_true(tree: exp.Expr) -> exp.Paren:
    return written_paren(_call("coalesce", written_paren(tree), exp.false()))
