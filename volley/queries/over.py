"""Functions over the rows around a row: OVER in a query's list and in QUALIFY."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlglot import exp

from volley.plan.aggregates import Aggregation, first, last
from volley.plan.choices import struct
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
_ENDS = {**dict.fromkeys(("first_value", "first"), first), **dict.fromkeys(("last_value", "last"), last)}
# A row's value in a struct is there even if it is null.
_VALUE = "value"
_ONE = exp.Literal.number(1)
_ZERO = exp.Cast(this=exp.Literal.number(0), to=exp.DataType(this=exp.DType.DOUBLE))


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
    columns = [(_with_shares(tree), name) for tree, name in columns]
    condition = condition and _with_shares(condition)
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
        skips_nulls = isinstance(function, exp.IgnoreNulls)
        if isinstance(function, exp.IgnoreNulls | exp.RespectNulls):
            function = function.this
        if not isinstance(function, exp.Anonymous):
            raise Mistake(f"{str(function.key).upper()} in OVER", call, "name a function, such as row_number()")
        schema, called = self.types.of(relation.stream), function.name.lower()
        if called in _ENDS:
            return self._end(call, function, relation, name, skips_nulls)
        if skips_nulls:
            raise Mistake(f"{called} of values that are not null", call, "first_value and last_value can skip nulls")
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
            if value is None or len(rows) > 2:
                hint = f"{called}(value), {called}(value, 2), or {called}(value, 2, 0), of which 0 is for no row"
                raise Mistake(f"{called} got {len(function.expressions)} arguments", function, hint)
            distance = _number(rows[0]) if rows else 1
            if distance == 0:
                raise Mistake(f"{called} of the row itself", function, "name the column")
            found = expression(value, schema)
            if len(rows) == 2:
                self.functions[name] = _NEIGHBOURS[called](struct(value=found), distance)
                column = exp.column(name, quoted=True)
                is_absent = exp.If(this=exp.Is(this=column, expression=exp.Null()), true=rows[1].copy())
                return exp.Case(ifs=[is_absent], default=_value_in(column))
            self.functions[name] = _NEIGHBOURS[called](found, distance)
        return exp.column(name, quoted=True)

    def _end(
        self, call: exp.Window, function: exp.Anonymous, relation: Relation, name: str, skips_nulls: bool
    ) -> exp.Expression:
        """Note the first or last value of some rows, and return the tree of its result."""
        called = function.name.lower()
        if len(function.expressions) != 1 or not call.args.get("order"):
            raise Mistake(f"{called} without a value or an order", call, f"{called}(value) over (order by …)")
        (tree,) = function.expressions
        if isinstance(tree, exp.IgnoreNulls | exp.RespectNulls):
            skips_nulls, tree = isinstance(tree, exp.IgnoreNulls), tree.this
        value = expression(tree, self.types.of(relation.stream))
        column = exp.column(name, quoted=True)
        self.functions[name] = _framed(call, _ENDS[called](value if skips_nulls else struct(value=value)))
        return column if skips_nulls else _value_in(column)

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


def _value_in(column: exp.Expression) -> exp.Expression:
    return exp.Bracket(this=column.copy(), expressions=[exp.Literal.string(_VALUE)])


def _with_shares(tree: exp.Expression) -> exp.Expression:
    """Return a tree with the functions that are shares of a key's rows written as shares."""
    for call in list(tree.find_all(exp.Window)):
        name = call.this.name.lower() if isinstance(call.this, exp.Anonymous) else ""
        if name not in ("percent_rank", "cume_dist"):
            continue
        if call.this.expressions or call.args.get("spec") or not call.args.get("order"):
            raise Mistake(f"{name} of some rows or without an order", call, f"{name}() over (order by …)")
        rows = _over(call, "count", exp.Star(), order=None)
        if name == "cume_dist":
            tree = replaced(tree, call, exp.Div(this=_over(call, "count", exp.Star()), expression=rows))
            continue
        share = exp.Div(this=_less_one(_over(call, "rank")), expression=_less_one(rows))
        is_alone = exp.If(this=exp.EQ(this=rows.copy(), expression=_ONE.copy()), true=_ZERO.copy())
        tree = replaced(tree, call, exp.Case(ifs=[is_alone], default=share))
    return tree


def _over(call: exp.Window, name: str, *arguments: exp.Expression, **changed: Any) -> exp.Window:
    """Return another function of the rows of a call."""
    function = exp.Anonymous(this=name, expressions=[*arguments])
    return exp.Window(**{**call.copy().args, "this": function, **changed})


def _less_one(tree: exp.Expression) -> exp.Expression:
    return exp.Paren(this=exp.Sub(this=tree, expression=_ONE.copy()))


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
