"""Turns the text of a query into a stream: FROM, WHERE, GROUP BY, HAVING, the list of columns, UNION."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sqlglot import exp

from volley.contracts.source import Source
from volley.errors import ConfigError
from volley.plan.joins import How
from volley.plan.sql_nodes import Mistake, mistakes_of, written_paren
from volley.queries.clauses import check_clauses
from volley.queries.grouping import grouping_sets
from volley.queries.groups import Groups, has_aggregates
from volley.queries.joins import Condition, Joiner, QueryTiming, conjuncts, has_queries
from volley.queries.lists import expanded, group_key, resolved_items, with_aliases, with_bounds
from volley.queries.order import Listed, order_of
from volley.queries.outer import outer_join, semi_join
from volley.queries.over import with_functions_over_rows
from volley.queries.parse import HINT, query_of
from volley.queries.scope import Item, Relation, Types, expression
from volley.queries.sets import combined
from volley.queries.subqueries import Inlined, Named, Subqueries, placeholder, queries_in, replaced
from volley.queries.tables import Tables, full_name
from volley.stream.stream import DataStream

__all__ = ["stream_of"]


def stream_of(
    text: str, tables: Mapping[str, Any], from_source: Callable[[Source], DataStream], timing: QueryTiming
) -> DataStream:
    """Return the stream that a query says; see `Environment.sql`."""
    with mistakes_of(text, HINT):
        types, query = Types(), query_of(text)
        translator = _Translator(Tables(tables, from_source, types), types, query, timing)
        result = translator.relation(query, {})
        if unused := translator.tables.unused():
            raise ConfigError(f"the query does not name {', '.join(unused)}", hint="leave what it does not read out")
        # What does not fit is an error here, and not first in a job.
        types.of(result.stream)
        return result.stream


class _Translator:
    """Translates one text.

    Args:
        query: All of it.
    """

    def __init__(self, tables: Tables, types: Types, query: exp.Query, timing: QueryTiming) -> None:
        self.tables, self._types, self._lateness = tables, types, timing.lateness
        for inner in query.find_all(exp.Select, exp.SetOperation):
            # The rows of a query in another one have no order.
            if inner is not query.unnest() and not inner.args.get("limit"):
                inner.set("order", None)
        has_star = any(not isinstance(star.parent, exp.Anonymous) for star in query.find_all(exp.Star))
        named = {identifier.name for identifier in query.find_all(exp.Identifier)}
        self._joiner = Joiner(tables, types, None if has_star else named, timing)
        self._subqueries = Subqueries(self.relation, self._source, self._joiner, types)

    def relation(self, query: exp.Expr, named: Named) -> Relation:
        """Return the rows of a query.

        Args:
            named: The queries of WITH around it.
        """
        if isinstance(query, exp.Subquery):
            check_clauses(query)
            return self.relation(query.this, named)
        if not isinstance(query, exp.Select | exp.SetOperation):
            raise Mistake(f"SQL's {str(query.key).upper()} can't be translated", query, "write SELECT or UNION ALL")
        check_clauses(query)
        named = self._with(query, named)
        return self._select(query, named) if isinstance(query, exp.Select) else self._set(query, named)

    def _with(self, query: exp.Query, named: Named) -> Named:
        tables = query.args.get("with_")
        if tables is None:
            return named
        check_clauses(tables)
        result = dict(named)
        for table in tables.expressions:
            names = table.args["alias"].columns
            result[table.alias] = _under(self.relation(table.this, result), table.alias, names, table)
        return result

    def _set(self, query: exp.SetOperation, named: Named) -> Relation:
        left, right = (self.relation(side, named) for side in (query.this, query.expression))
        result = combined(query, left, right, self._joiner, self._types)
        order = order_of(query, [item.name for item in left.items])
        order.refuse_hidden(str(query.key).upper())
        return order.applied(result)

    def _select(self, query: exp.Select, named: Named) -> Relation:
        if not query.args.get("from_"):
            raise Mistake("a query without FROM", query, "name a table: select … from orders")
        relation, conditions = self._from(query, named)
        for condition in conditions:
            relation = self._where(relation, condition, named)
        listed = expanded(query.expressions, relation)
        order = order_of(query, [name for _, name in listed])
        result = self._listed(query, relation, named, listed, order.hidden)
        if query.args.get("distinct"):
            if query.args["distinct"].args.get("on"):
                raise Mistake("DISTINCT ON", query, "group by the columns")
            order.refuse_hidden("DISTINCT")
            result = Relation(result.stream.deduplicate(*(item.column for item in result.items)), result.items)
        return order.applied(result)

    def _from(self, query: exp.Select, named: Named) -> tuple[Relation, list[exp.Expression]]:
        """Return the rows of FROM, and the conditions of WHERE that are still to be met."""
        where = query.args.get("where")
        conditions = list(conjuncts(where and where.this))
        pool = [(self._source(query.args["from_"].this, named), query.args["from_"].this)]
        joins = query.args.get("joins") or []
        for join in joins:
            check_clauses(join)
        if all(_is_inner(join) for join in joins):
            for join in joins:
                pool.append((self._source(join.this, named), join.this))
                conditions += conjuncts(join.args.get("on"))
            relations = [relation for relation, _ in pool]
            _check_tables(relations, query)
            relation, conditions = self._inner(pool, conditions)
            return _ordered(relation, relations), conditions
        relation = pool[0][0]
        for join in joins:
            relation = self._joined(relation, join, named)
        return relation, conditions

    def _inner(
        self, pool: list[tuple[Relation, exp.Expression]], conditions: list[exp.Expression]
    ) -> tuple[Relation, list[exp.Expression]]:
        """Join tables by the equalities among conditions: what has no end first, then each that has an equality."""
        pool.sort(key=lambda entry: not self.tables.is_endless(entry[0].stream))
        everything = Relation(pool[0][0].stream, tuple(item for relation, _ in pool for item in relation.items))
        for condition in conditions:
            if not has_queries(condition):
                _check_names(condition, everything)
        for place, (relation, node) in enumerate(pool):
            # A table as such is joined as it is in each epoch.
            if place == 0 or self.tables.is_stream(relation.stream):
                relation, conditions = self._met(relation, conditions, everything)
                pool[place] = relation, node
        relation = pool.pop(0)[0]
        while pool:
            entry = next((entry for entry in pool if _pairs(conditions, relation, entry[0], everything)), pool[0])
            pool.remove(entry)
            pairs = _pairs(conditions, relation, entry[0], everything)
            both = Relation(relation.stream, (*relation.items, *entry[0].items))
            trees = [tree for tree in conditions if not has_queries(tree) and _is_of(tree, both, everything)]
            conditions = [tree for tree in conditions if all(tree is not pair for pair in pairs)]
            matching = Condition.of(trees, relation, entry[0])
            relation = self._joiner.join(relation, entry[0], matching, "inner", entry[1])
            relation, conditions = self._met(relation, conditions, everything)
        return relation, conditions

    def _met(
        self, relation: Relation, conditions: list[exp.Expression], everything: Relation
    ) -> tuple[Relation, list[exp.Expression]]:
        """Filter by the conditions that name nothing else, and return the others."""
        ready = [tree for tree in conditions if not has_queries(tree) and _is_of(tree, relation, everything)]
        rest = [tree for tree in conditions if all(tree is not other for other in ready)]
        return self._joiner.filtered(relation, ready), rest

    def _source(self, node: exp.Expression, named: Named) -> Relation:
        if isinstance(node, exp.Table) and isinstance(node.this, exp.Identifier):
            check_clauses(node)
            names = node.args["alias"].columns if node.args.get("alias") else []
            relation = named.get(full_name(node)) or self.tables.relation(node)
            return _under(relation, node.alias or node.name, names, node)
        if isinstance(node, exp.Subquery):
            names = node.args["alias"].columns if node.args.get("alias") else []
            return _under(self.relation(node, named), node.alias, names, node)
        raise Mistake(f"SQL's {str(node.key).upper()} is no table here", node, "name a table, or write a query in ()")

    def _joined(self, left: Relation, join: exp.Join, named: Named) -> Relation:
        right = self._source(join.this, named)
        relations = [left, right]
        _check_tables(relations, join)
        side, kind = _kind(join)
        if side == "RIGHT":
            left, right, side = right, left, "LEFT"
        trees = list(conjuncts(join.args.get("on"))) or _using(join, left, right)
        if any(has_queries(tree) for tree in trees):
            raise Mistake("a query inside ON", join, "put it into WHERE")
        for tree in trees:
            _check_names(tree, Relation(left.stream, (*left.items, *right.items)))
        condition = Condition.of(trees, left, right)
        if kind in ("SEMI", "ANTI"):
            return semi_join(self._joiner, left, right, condition, join, kind == "ANTI")
        bound = self._joiner.bound(left, right, condition)
        near = bound.exact if bound is not None else ()
        others = [tree for tree in condition.both if all(tree is not known for known in near)]
        is_near = self._joiner.timing_of(right, bound) is not None
        if side == "FULL" and is_near and condition.pairs and not (condition.left or condition.right or others):
            return _ordered(self._joiner.join(left, right, condition, "full", join.this), relations)
        if side == "FULL" or (side == "LEFT" and (condition.left or others or not condition.pairs)):
            return _ordered(self._outer(left, right, condition, join, side == "FULL"), relations)
        right = self._joiner.filtered(right, condition.right)
        left = _first(left, join)
        how: How = "left" if side == "LEFT" else "inner"
        relation = self._joiner.join(left, _without(right, join), condition, how, join.this)
        if not join.args.get("using"):
            relation = _ordered(relation, relations)
        return self._joiner.filtered(relation, [*condition.left, *others])

    def _outer(self, left: Relation, right: Relation, condition: Condition, join: exp.Join, full: bool) -> Relation:
        """Return the rows of an outer join that is not of equalities and conditions on the right table alone."""
        for relation in (left, right):
            if self.tables.is_endless(relation.stream):
                tree = next(iter([*condition.left, *condition.both]), join)
                hint = "beside equalities and a bound of time, it can have conditions on the right table alone"
                raise Mistake(f"a {_kind(join)[0].lower()} join of streams with another condition", tree, hint)
        return outer_join(self._joiner, self._types, left, right, condition, join, full)

    def _where(self, relation: Relation, tree: exp.Expression, named: Named) -> Relation:
        """Return the rows for which a condition holds."""
        if has_queries(tree):
            return self._subqueries.where(relation, tree, named)
        return self._joiner.filtered(relation, [tree])

    def _listed(
        self, query: exp.Select, relation: Relation, named: Named, listed: Sequence[Listed], hidden: Sequence[Listed]
    ) -> Relation:
        """Return the columns that a query lists, of groups if it has any, and behind them hidden ones."""
        items = [*listed, *hidden]
        having, group = query.args.get("having"), query.args.get("group")
        if group is None and having is None and not has_aggregates([tree for tree, _ in items]):
            for number, (tree, name) in enumerate(items):
                relation, tree = self._subqueries.met(relation, tree, named)
                items[number] = tree, name
            resolved = resolved_items(items, relation)
            return self._projected(
                relation,
                resolved,
                _qualified(
                    query, lambda tree: relation.resolved(tree, {name: written_paren(item) for item, name in resolved})
                ),
            )
        inlined = list[Inlined]()
        items = [(self._without_queries(tree, inlined, named), name) for tree, name in items]
        having = having and self._without_queries(having.this, inlined, named)
        if group is not None:
            check_clauses(group)
        sets = [()] if group is None else grouping_sets(group)
        keys = [[group_key(key, items[: len(listed)], relation) for key in some] for some in sets]
        parts = [
            self._grouped(query, Groups(relation, self._types, self._lateness, some, keys), items, having, inlined)
            for some in keys
        ]
        if len(parts) > 1 and (call := next(query.find_all(exp.Window), None)):
            raise Mistake("OVER beside several sets of keys", call, "group in a query in FROM")
        first, *others = (part.stream for part in parts)
        return Relation(first.union(*others), parts[0].items) if others else parts[0]

    def _grouped(
        self,
        query: exp.Select,
        groups: Groups,
        items: Sequence[Listed],
        having: exp.Expression | None,
        inlined: Sequence[Inlined],
    ) -> Relation:
        """Return the listed columns of groups."""
        relation = groups.relation
        bounded = [(with_bounds(tree, relation), name) for tree, name in items]
        resolved = resolved_items(bounded, relation)
        columns = [(groups.replaced(tree), name) for tree, name in resolved]
        condition = None
        if having is not None:
            condition = groups.replaced(relation.resolved(with_aliases(having, resolved, relation, groups)))
        grouped = Relation(groups.stream(), ())
        for number, query_ in enumerate(inlined):
            grouped, value = self._subqueries.attached(grouped, query_)
            columns = [(replaced(tree, placeholder(number), value), name) for tree, name in columns]
            condition = condition and replaced(condition, placeholder(number), value)
        if condition is not None:
            kept = grouped.stream.filter(expression(condition, self._types.of(grouped.stream)))
            grouped = Relation(kept, ())
        qualified = _qualified(
            query, lambda tree: groups.replaced(relation.resolved(with_aliases(tree, resolved, relation, groups)))
        )
        return self._projected(grouped, columns, qualified)

    def _without_queries(self, tree: exp.Expression, inlined: list[Inlined], named: Named) -> exp.Expression:
        """Return an expression over groups with placeholders for the queries in it, which are noted."""
        for node in queries_in(tree):
            query = self._subqueries.inlined(node, named)
            if query.is_correlated:
                hint = "group in a query in FROM, and compare its columns"
                raise Mistake("a query in an expression over groups that names their columns", node, hint)
            tree = replaced(tree, node, placeholder(len(inlined)))
            inlined.append(query)
        return tree

    def _projected(self, relation: Relation, columns: Sequence[Listed], qualified: exp.Expression | None) -> Relation:
        relation, columns, qualified = with_functions_over_rows(relation, columns, qualified, self._types)
        schema = self._types.of(relation.stream)
        rows = relation.stream if qualified is None else relation.stream.filter(expression(qualified, schema))
        stream = rows.select(*(expression(tree, schema).alias(name) for tree, name in columns))
        return Relation(stream, tuple(Item("", name, name) for _, name in columns))


def _qualified(query: exp.Select, resolved: Callable[[exp.Expression], exp.Expression]) -> exp.Expression | None:
    """Return the condition of QUALIFY over the columns of the stream, if there is one."""
    qualify = query.args.get("qualify")
    if qualify is not None and has_queries(qualify.this):
        raise Mistake("a query in QUALIFY", qualify, "compare with its rows in a query around this one")
    return None if qualify is None else resolved(qualify.this)


def _ordered(relation: Relation, tables: Sequence[Relation]) -> Relation:
    """Return joined rows whose columns have the order of the tables in the text, not that of the joins."""
    places = {
        (item.table, item.name): place for place, item in enumerate(item for table in tables for item in table.items)
    }
    return Relation(relation.stream, tuple(sorted(relation.items, key=lambda item: places[item.table, item.name])))


def _kind(join: exp.Join) -> tuple[str, str]:
    """Return the side of a join, and its kind."""
    side, kind = str(join.args.get("side") or ""), str(join.args.get("kind") or "")
    known = ("", "INNER", "OUTER", "SEMI", "ANTI", "CROSS")
    if kind not in known or (join.args.get("using") and side in ("RIGHT", "FULL")):
        hint = f"join ON an equality, and list {'b.id' if side == 'RIGHT' else 'coalesce(a.id, b.id) AS id'}"
        raise Mistake(f"{side or kind} JOIN{' USING' if side else ''}", join, hint)
    return side, kind


def _is_inner(join: exp.Join) -> bool:
    return (
        not join.args.get("side")
        and not join.args.get("using")
        and join.args.get("kind") in (None, "", "INNER", "CROSS")
    )


def _pairs(
    conditions: Sequence[exp.Expression], left: Relation, right: Relation, everything: Relation
) -> list[exp.Expression]:
    """Return the conditions that say which columns of two relations are equal."""
    both = Relation(left.stream, (*left.items, *right.items))
    trees = [tree for tree in conditions if not has_queries(tree) and _is_of(tree, both, everything)]
    return [tree for tree in trees if Condition.of([tree], left, right).pairs]


def _is_of(tree: exp.Expression, relation: Relation, everything: Relation) -> bool:
    """Return True if a relation has all columns that a tree names among those of all tables."""
    known = {(item.table, item.name) for item in relation.items}
    items = [everything.item(column) for column in tree.find_all(exp.Column)]
    return all((item.table, item.name) in known for item in items)


def _check_names(tree: exp.Expression, relation: Relation) -> None:
    for column in tree.find_all(exp.Column):
        relation.item(column)


def _check_tables(relations: Sequence[Relation], node: exp.Expression) -> None:
    names = [name for relation in relations for name in dict.fromkeys(item.table for item in relation.items)]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise Mistake(f"two tables are named {twice[0]!r}", node, "name them by AS")


def _under(relation: Relation, table: str, names: Sequence[exp.Expression], node: exp.Expression) -> Relation:
    if names and len(names) != len(relation.items):
        raise Mistake(f"{len(names)} names for {len(relation.items)} columns", node, "name each column, or none")
    return relation.under(table, [name.name for name in names])


def _using(join: exp.Join, left: Relation, right: Relation) -> list[exp.Expression]:
    trees = list[exp.Expression]()
    for identifier in join.args.get("using") or []:
        column = exp.column(identifier.name)
        one, other = (side.item(column) for side in (left, right))
        trees.append(
            exp.EQ(this=exp.column(one.name, table=one.table), expression=exp.column(other.name, table=other.table))
        )
    return trees


def _first(left: Relation, join: exp.Join) -> Relation:
    """Return the left side with the columns of USING before the others, as * has them."""
    names = {identifier.name for identifier in join.args.get("using") or []}
    return Relation(left.stream, tuple(sorted(left.items, key=lambda item: item.name not in names)))


def _without(right: Relation, join: exp.Join) -> Relation:
    """Return the right side without the columns of USING, which are the left side's."""
    names = {identifier.name for identifier in join.args.get("using") or []}
    return Relation(right.stream, tuple(item for item in right.items if item.name not in names)) if names else right
