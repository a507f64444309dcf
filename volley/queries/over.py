"""Functions over the rows around a row: OVER in a query's list and in QUALIFY."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlglot import exp

from volley.plan.aggregates import Aggregation
from volley.plan.expressions import Expr, col
from volley.plan.over import OverFunction, dense_rank, lag, lead, rank, row_number, rows_between
from volley.plan.sql_nodes import Mistake
from volley.queries.clauses import check_clauses
from volley.queries.groups import Groups, is_aggregate, time_of_windows
from volley.queries.order import Listed
from volley.queries.scope import Relation, Types, expression
from volley.queries.subqueries import replaced

__all__ = ["with_functions_over_rows"]

_RANKS: dict[str, Callable[[], OverFunction]] = {"row_number": row_number, "rank": rank, "dense_rank": dense_rank}
_NEIGHBOURS: dict[str, Callable[[Expr, int], OverFunction]] = {"lag": lag, "lead": lead}


def with_functions_over_rows(
    relation: Relation, columns: Sequence[Listed], condition: exp.Expression | None, types: Types
) -> tuple[Relation, list[Listed], exp.Expression | None]:
    """Return rows with a column for each function over rows, and the trees over these.

    Args:
        columns: What a query lists, over the columns of the stream.
        condition: That of QUALIFY.
    """
    columns, prefix = list(columns), "_over"
    while any(name.startswith(prefix) for name in types.of(relation.stream).names):
        prefix += "_"
    calls = [call for tree in (*(tree for tree, _ in columns), condition) if tree for call in tree.find_all(exp.Window)]
    orders: dict[str, _Over] = {}
    if inner := next((call for call in calls if call.find_ancestor(exp.Window)), None):
        raise Mistake("a function over the rows of another one", inner, "compute the inner one in a query in FROM")
    for call in calls:
        key = repr([call.args.get("partition_by"), call.args.get("order")])
        over = orders.setdefault(key, _Over(call, types, f"{prefix}_{len(orders)}"))
        tree = over.added(call, relation)
        columns = [(replaced(item, call, tree), name) for item, name in columns]
        condition = condition and replaced(condition, call, tree)
    for over in orders.values():
        relation = over.applied(relation)
    return relation, columns, condition


@dataclass
class _Over:
    """The functions over rows of one key and order.

    Args:
        call: The first one.
        name: What the names of their columns begin with.
    """

    call: exp.Window
    types: Types
    name: str
    functions: dict[str, OverFunction | Aggregation] = field(default_factory=dict)

    def added(self, call: exp.Window, relation: Relation) -> exp.Expression:
        """Note a function, and return the tree of its result."""
        check_clauses(call)
        function, name = call.this, f"{self.name}_{len(self.functions)}"
        if isinstance(function, exp.Filter):
            return self._aggregate(call, function.copy(), relation, name)
        if not isinstance(function, exp.Anonymous):
            raise Mistake(f"{str(function.key).upper()} in OVER", call, "name a function, such as row_number()")
        schema, called = self.types.of(relation.stream), function.name.lower()
        if called not in (*_RANKS, *_NEIGHBOURS):
            return self._aggregate(call, function.copy(), relation, name)
        if call.args.get("spec"):
            raise Mistake(f"{called} of some rows", call, "leave ROWS or RANGE out")
        if not call.args.get("order"):
            raise Mistake(f"{called} without an order", call, f"{called}() over (order by …)")
        if called in _RANKS:
            if function.expressions:
                raise Mistake(f"{called} takes no argument", function, f"{called}()")
            self.functions[name] = _RANKS[called]()
        else:
            value, *rows = function.expressions or [None]
            if value is None or len(rows) > 1:
                hint = f"{called}(value) or {called}(value, 2), which are null where there is no row"
                raise Mistake(f"{called} got {len(function.expressions)} arguments", function, hint)
            distance = _number(rows[0]) if rows else 1
            if distance == 0:
                raise Mistake(f"{called} of the row itself", function, "name the column")
            self.functions[name] = _NEIGHBOURS[called](expression(value, schema), distance)
        return exp.column(name, quoted=True)

    def _aggregate(self, call: exp.Window, function: exp.Expression, relation: Relation, name: str) -> exp.Expression:
        if not isinstance(function, exp.Filter) and not is_aggregate(function):
            known = ", ".join([*_RANKS, *_NEIGHBOURS, "count", "sum", "min", "max"])
            raise Mistake(f"{function.name} can't be computed over rows", call, f"{known} and avg can")
        groups = Groups(relation, self.types, None)
        tree = groups.replaced(function)
        ((column, aggregation),) = groups.aggregates.items()
        self.functions[name] = _framed(call, aggregation)
        return replaced(tree, exp.column(column, quoted=True), exp.column(name, quoted=True))

    def applied(self, relation: Relation) -> Relation:
        """Return the rows with the columns of the functions."""
        stream, schema, hidden = relation.stream, self.types.of(relation.stream), dict[str, Expr]()

        def column(tree: exp.Expression) -> str:
            if isinstance(tree, exp.Column) and len(tree.parts) == 1:
                return tree.name
            name = f"{self.name}_by_{len(hidden)}"
            hidden[name] = expression(tree, schema)
            return name

        keys = [column(tree) for tree in self.call.args.get("partition_by") or []]
        order = self.call.args.get("order")
        by = list[str]()
        for part in order.expressions if order is not None else []:
            check_clauses(part)
            name, is_descending = column(part.this), bool(part.args.get("desc"))
            nulls_first = bool(part.args.get("nulls_first"))
            if nulls_first is is_descending:
                nulls = f"{self.name}_by_{len(hidden)}"
                hidden[nulls] = (hidden[name] if name in hidden else col(name)).is_null()
                by.append(f"{nulls} {'desc' if nulls_first else 'asc'}")
            by.append(f"{name} {'desc' if is_descending else 'asc'}")
        time = time_of_windows(stream, [name for name in keys if name not in hidden], schema)
        rows = stream.with_columns(**hidden) if hidden else stream
        return Relation(
            rows.key_by(*keys).order_by(*by, on=time, max_ahead=None).with_columns(**self.functions), relation.items
        )


def _framed(call: exp.Window, aggregation: Aggregation) -> OverFunction | Aggregation:
    """Return an aggregate of the rows that ROWS or RANGE says; without both, up to the row, or of all without order."""
    spec = call.args.get("spec")
    if spec is None:
        return aggregation
    before, after = _bound(spec, "start", "preceding"), _bound(spec, "end", "following")
    is_ordered = call.args.get("order") is not None
    if spec.args["kind"].lower() == "rows" and is_ordered:
        return rows_between(aggregation, before, after)
    if (before, after) == (None, None):
        return rows_between(aggregation, None, None) if is_ordered else aggregation
    if (before, after) == (None, 0) and is_ordered:
        return aggregation
    hint = "rows between 6 preceding and current row, with an order; or all rows before or around, unbounded"
    raise Mistake("rows by the distance of their values, or without an order", call, hint)


def _bound(spec: exp.WindowSpec, end: str, side: str) -> int | None:
    """Return how many rows away an end of a range is; None = it has none."""
    value: Any = spec.args.get(end) or "CURRENT ROW"
    if value == "CURRENT ROW":
        return 0
    if str(spec.args.get(f"{end}_side")).lower() != side:
        raise Mistake(f"a range whose {end} is not {side}", spec, "a range that has the row itself")
    return None if value == "UNBOUNDED" else _number(value)


def _number(tree: exp.Expression) -> int:
    if not isinstance(tree, exp.Literal) or tree.is_string or not tree.this.isdecimal():
        raise Mistake("a number of rows is a constant", tree, "a whole number, such as 2")
    return int(tree.this)
