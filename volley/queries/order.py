"""ORDER BY and LIMIT of a query."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from volley.plan import nodes
from volley.plan.expressions import col, lit
from volley.plan.sql_nodes import Mistake
from volley.queries.clauses import check_clauses
from volley.queries.scope import Relation
from volley.stream.verbs import check_bounded

__all__ = ["Listed", "Order", "order_of"]

Listed = tuple[exp.Expression, str]
"""A column that a query lists, with its name."""


@dataclass(frozen=True)
class Order:
    """How the rows of a query are sorted, and how many there are.

    Args:
        keys: Names of columns, each with ``asc`` or ``desc``.
        hidden: Columns to sort by that the query does not list, with their names.
        nulls: The columns whose nulls come where they do not by themselves: last of ``asc``, or first of ``desc``.
        rows: The most rows; None = all.
    """

    keys: Sequence[str]
    hidden: Sequence[Listed]
    nulls: Sequence[str]
    rows: int | None

    def refuse_hidden(self, clause: str) -> None:
        """Refuse what the query does not list."""
        for tree, _ in self.hidden:
            raise Mistake(f"ORDER BY of {clause} with what is not in the list", tree, "name a column of the list")

    def applied(self, relation: Relation) -> Relation:
        """Return the sorted rows of a query, without the hidden columns."""
        stream = relation.stream
        if self.rows == 0:
            return replace(relation, stream=stream.filter(lit(False)))
        if not self.keys:
            return relation if self.rows is None else replace(relation, stream=stream.limit(self.rows))
        if self.rows is None:
            check_bounded(stream._node, "order by")
        items = relation.items[: len(relation.items) - len(self.hidden)]
        columns = {f"_nulls_{number}": col(name).is_null() for number, name in enumerate(self.nulls)}
        stream = stream.with_columns(**columns) if columns else stream
        ordered = stream._then(nodes.Ordered(stream._node, tuple(self.keys), self.rows))
        extra = self.hidden or columns
        return Relation(ordered.select(*(item.column for item in items)) if extra else ordered, items)


def order_of(query: exp.Select | exp.SetOperation, names: Sequence[str]) -> Order:
    """Return the order of a query.

    Args:
        names: Those of the columns that it lists.
    """
    order, limit = query.args.get("order"), query.args.get("limit")
    keys, hidden, nulls = list[str](), list[Listed](), list[str]()
    for part in order.expressions if order is not None else ():
        check_clauses(part)
        name = _listed(part.this, names)
        if name is None:
            name = f"_order_{len(hidden)}"
            hidden.append((part.this, name))
        is_descending, nulls_first = bool(part.args.get("desc")), bool(part.args.get("nulls_first"))
        if nulls_first is is_descending:
            # Nulls are the least values otherwise.
            keys.append(f"_nulls_{len(nulls)} {'desc' if nulls_first else 'asc'}")
            nulls.append(name)
        keys.append(f"{name} {'desc' if is_descending else 'asc'}")
    return Order(keys, hidden, nulls, None if limit is None else _number(limit))


def _listed(tree: exp.Expression, names: Sequence[str]) -> str | None:
    """Return the column of the list that an item of ORDER BY is, by its name or position; None if it is another one."""
    if isinstance(tree, exp.Literal) and not tree.is_string:
        if not tree.this.isdecimal() or not 1 <= int(tree.this) <= len(names):
            raise Mistake(f"the list has no position {tree.this}", tree, f"1 to {len(names)}")
        return names[int(tree.this) - 1]
    return tree.name if isinstance(tree, exp.Column) and len(tree.parts) == 1 and tree.name in names else None


def _number(limit: exp.Expression) -> int:
    number = limit.expression
    if not isinstance(number, exp.Literal) or number.is_string or not number.this.isdecimal():
        raise Mistake("LIMIT takes a whole number", limit, "LIMIT 10")
    return int(number.this)
