"""Groups of a query: GROUP BY, aggregates and windows of event time."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from volley.plan.aggregates import Aggregation, avg, count, count_distinct, max_, min_, sum_
from volley.plan.event_times import follows_windows
from volley.plan.expressions import Expr, col
from volley.plan.graph import reads_clock
from volley.plan.sql_nodes import Mistake
from volley.plan.windows import Window, session, sliding, tumbling
from volley.queries.scope import PLACEHOLDER, Relation, Types, expression
from volley.types.arrow import type_name

if TYPE_CHECKING:
    import pyarrow as pa

    from volley.stream.stream import DataStream

__all__ = ["Groups", "has_aggregates", "is_aggregate", "is_aggregated", "time_of_windows", "window_bound"]

_AGGREGATES: dict[str, Callable[[Expr], Aggregation]] = {
    **{"count": count, "sum": sum_, "min": min_, "max": max_, "avg": avg, "mean": avg},
}
_WINDOWS = ("window", "session_window")
_GROUPING = ("grouping", "grouping_id")
_BOUNDS = {"start": "window_start", "end": "window_end"}
_SPAN = re.compile(r"\s*(?:interval\s+)?(\d+)\s+(week|day|hour|minute|second|millisecond|microsecond)s?\s*", re.I)
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_MOST_DIGITS = 38
# Spark's sum of decimals has so many digits more.
_SUM_DIGITS = 10
# In Spark a row exactly the gap after another one is in its session.
_TICK = timedelta(microseconds=1)


def has_aggregates(trees: Sequence[exp.Expr]) -> bool:
    """Return True if a query with these expressions has groups, without GROUP BY too."""
    return any(
        is_aggregate(node) for tree in trees for node in tree.walk(prune=lambda node: isinstance(node, exp.Query))
    )


def is_aggregated(column: exp.Column) -> bool:
    """Return True if a column stands in an aggregate."""
    before = column.parent
    while before is not None and not is_aggregate(before) and not isinstance(before, exp.Filter):
        before = before.parent
    return before is not None


def is_aggregate(node: exp.Expr) -> bool:
    """Return True for the call of an aggregate of a group; one with OVER is of the rows around each row."""
    return isinstance(node, exp.Anonymous) and node.name.lower() in _AGGREGATES and not _is_over(node)


def _is_over(node: exp.Expr) -> bool:
    """Return True for a call, perhaps with FILTER, that OVER follows."""
    if isinstance(node.parent, exp.Filter) and node.arg_key == "this":
        node = node.parent
    return isinstance(node.parent, exp.Window) and node.arg_key == "this"


def time_of_windows(stream: DataStream, names: Sequence[str], schema: pa.Schema) -> str | None:
    """Return the first of some columns that follows event time behind windows; None = there is none."""
    times = [name for name in names if type_name(schema.field(name).type).startswith("timestamp")]
    return next((name for name in times if follows_windows(stream._node, name)), None)


class Groups:
    """Collects the keys and aggregates of one query.

    Args:
        relation: The rows to group.
        lateness: How late rows of windows may be.
        keys: What to group by: resolved trees.
        sets: The keys of all grouping sets. Those that are not in this one are null.

    Raises:
        Mistake: If rows can't be grouped by a key.
    """

    def __init__(
        self,
        relation: Relation,
        types: Types,
        lateness: Any,
        keys: Sequence[exp.Expression] = (),
        sets: Sequence[Sequence[exp.Expression]] = (),
    ) -> None:
        self.relation, self._types, self._lateness = relation, types, lateness
        self._schema = types.of(relation.stream)
        self._keys: list[tuple[exp.Expression, str]] = []
        self._aggregates: dict[str, Aggregation] = {}
        self._columns: dict[exp.Expression, exp.Expression] = {}
        self._window: tuple[exp.Expression, Window, bool] | None = None
        self._all = [*dict.fromkeys(key for some in sets for key in some)]
        for key in dict.fromkeys(keys):
            self._add(key)

    def _add(self, key: exp.Expression) -> None:
        if isinstance(key, exp.Anonymous) and key.name.lower() in _WINDOWS:
            if self._window is not None:
                raise Mistake("a query is grouped by two windows", key, "group the result of one by the other")
            self._window = _window(key)
            return
        if not key.find(exp.Column) and not reads_clock(expression(key, self._schema).node):
            raise Mistake("a group by a constant", key, "name a column, or the position of one in the list")
        self._keys.append((key, f"_key_{len(self._keys)}"))

    def is_key(self, tree: exp.Expression) -> bool:
        """Return True if rows are grouped by a resolved tree."""
        return any(tree == key for key, _ in self._keys)

    def replaced(self, tree: exp.Expression) -> exp.Expression:
        """Return a resolved tree over the columns of the groups.

        Raises:
            Mistake: If it names a column that is neither a key nor in an aggregate.
        """
        result = tree.transform(self._replaced)
        for column in result.find_all(exp.Column):
            if column.name not in self._known and PLACEHOLDER not in column.meta:
                hint = f"group by {column.name}, or take an aggregate of it, such as max({column.name})"
                raise Mistake(f"{column.name} is not a column of the groups", column, hint)
        assert isinstance(result, exp.Expression)
        return result

    @property
    def aggregates(self) -> Mapping[str, Aggregation]:
        """The aggregates by their columns."""
        return self._aggregates

    @property
    def _time(self) -> str:
        """The name of a computed time, which no column has."""
        return max([name for name in self._schema.names if set(name) == {"_"}], default="") + "_"

    @property
    def _time_of_windows(self) -> str | None:
        """The name of a key that follows event time behind windows; None = there is none."""
        names = [key.name for key, _ in self._keys if isinstance(key, exp.Column)]
        return time_of_windows(self.relation.stream, names, self._schema)

    @property
    def _known(self) -> set[str]:
        bounds = _BOUNDS.values() if self._window else ()
        return {*(name for _, name in self._keys), *self._aggregates, *bounds}

    def _replaced(self, node: exp.Expr) -> exp.Expr:
        for key, name in self._keys:
            if node == key:
                return exp.column(name, quoted=True)
        if any(node == key for key in self._all):
            assert isinstance(node, exp.Expression)
            return _cast(exp.Null(), self._type(node))
        if isinstance(node, exp.Anonymous) and node.name.lower() in _GROUPING:
            return self._grouping(node)
        if (isinstance(node, exp.Filter) and not _is_over(node)) or is_aggregate(node):
            assert isinstance(node, exp.Expression)
            if node not in self._columns:
                self._columns[node] = self._aggregate(node)
            return self._columns[node].copy()
        return node

    def _aggregate(self, node: exp.Expression) -> exp.Expression:
        """Note an aggregate, and return the tree of its result."""
        call, where = (node.this, node.expression.this) if isinstance(node, exp.Filter) else (node, None)
        if not is_aggregate(call):
            raise Mistake("FILTER follows an aggregate", node, f"one of {', '.join(sorted(_AGGREGATES))}")
        if len(call.expressions) != 1:
            raise Mistake(f"{call.name} got {len(call.expressions)} arguments", node, f"call it as {call.name}(value)")
        name, argument, is_distinct = call.name.lower(), call.expressions[0], False
        if isinstance(argument, exp.Distinct):
            is_distinct, (argument, *others) = True, argument.expressions
            if others or name in ("sum", "avg", "mean"):
                raise Mistake(f"{name} of different values can't be computed", node, "it has count(distinct x)")
        if nested := next((part for part in argument.walk() if is_aggregate(part)), None):
            raise Mistake("an aggregate of an aggregate", nested, "compute one in a query in FROM")
        build = count_distinct if is_distinct and name == "count" else _AGGREGATES[name]
        column = f"_aggregate_{len(self._aggregates)}"
        self._aggregates[column] = build(self._argument(name, argument, where))
        return self._result(name, argument, column)

    def _argument(self, name: str, argument: exp.Expression, where: exp.Expression | None) -> Expr:
        if isinstance(argument, exp.Star):
            if name != "count":
                raise Mistake(f"{name}(*)", argument, "name a column")
            argument = exp.Literal.number(1)
        if where is not None:
            argument = exp.Case(ifs=[exp.If(this=where.copy(), true=argument.copy())])
        return expression(argument, self._schema)

    def _result(self, name: str, argument: exp.Expression, column: str) -> exp.Expression:
        """Return the tree of an aggregate's result: a sum of decimals has 10 digits more than they have."""
        result = exp.column(column, quoted=True)
        match = _DECIMAL.fullmatch(self._type(argument)) if name == "sum" else None
        if match is None:
            return result
        return _cast(result, f"decimal({min(int(match[1]) + _SUM_DIGITS, _MOST_DIGITS)},{match[2]})")

    def _type(self, tree: exp.Expression) -> str:
        value = expression(tree, self._schema).alias("value")
        return type_name(self._types.of(self.relation.stream.select(value)).field(0).type)

    def _grouping(self, node: exp.Anonymous) -> exp.Expression:
        """Return a bit for each of some keys, or of all, the last one's the lowest: 1 where it is null for the set."""
        keys = node.expressions or (self._all if node.name.lower() == "grouping_id" else [])
        if not keys or any(key not in self._all for key in keys):
            raise Mistake(f"{node.name} takes keys of the groups", node, f"{node.name}(key)")
        bits = ["0" if self.is_key(key) else "1" for key in keys]
        return exp.Literal.number(int("".join(bits), 2))

    def stream(self) -> DataStream:
        """Return the rows of the groups."""
        stream = self.relation.stream
        aggregates = self._aggregates or {"_aggregate_0": count()}
        is_total = not self._keys and self._all
        if is_total:
            aggregates |= {"_rows": count()}
        on, is_session = None, False
        if self._window is not None:
            time, window, is_session = self._window
            on = time.name if isinstance(time, exp.Column) else self._time
            if on == self._time:
                stream = stream.with_column(on, expression(time, self._schema))
        keyed = stream.key_by(*(expression(tree, self._schema).alias(name) for tree, name in self._keys))
        if on is None and (start := self._time_of_windows) is not None:
            # Rows that have the start of a window in common come out with it.
            window, on = tumbling(_TICK), start
        if on is None:
            grouped = keyed.aggregate(**aggregates)
            # Grouping sets of no rows have no total.
            return grouped.filter(col("_rows") > 0) if is_total else grouped
        grouped = keyed.window(window, on, lateness=self._lateness, max_ahead=None).aggregate(**aggregates)
        return grouped.with_column("window_end", col("window_end").dt.add(microseconds=-1)) if is_session else grouped


def _cast(tree: exp.Expression, name: str) -> exp.Expression:
    """Return a tree as a type, by its name."""
    match = _DECIMAL.fullmatch(name)
    params = [exp.DataTypeParam(this=exp.Literal.number(number)) for number in match.groups()] if match else []
    kind = "decimal" if match else name
    return exp.Cast(this=tree, to=exp.DataType(this=exp.DType.USERDEFINED, kind=kind, expressions=params, nested=False))


def window_bound(node: exp.Column) -> exp.Column | None:
    """Return the column of the groups that ``window.start`` or ``window.end`` is; None if a name is another one."""
    table, _, name = node.sql().lower().rpartition(".")
    return exp.column(_BOUNDS[name], quoted=True) if table in _WINDOWS and name in _BOUNDS else None


def _window(node: exp.Anonymous) -> tuple[exp.Expression, Window, bool]:
    """Return the time of a window, the window, and whether it is a session."""
    is_session = node.name.lower() == "session_window"
    time, *spans = node.expressions
    if not 1 <= len(spans) <= (1 if is_session else 3):
        raise Mistake(f"{node.name} got {len(node.expressions)} arguments", node, f"{node.name}(at, '10 minutes')")
    sizes = [_span(span) for span in spans]
    if is_session:
        return time, session(sizes[0] + _TICK), True
    return time, tumbling(sizes[0]) if len(sizes) == 1 else sliding(*sizes), False


def _span(node: exp.Expression) -> timedelta:
    match = _SPAN.fullmatch(node.this) if isinstance(node, exp.Literal) and node.is_string else None
    if match is None:
        raise Mistake("the length of a window can't be read", node, "a constant such as '10 seconds' or '1 hour'")
    return timedelta(**{f"{match[2].lower()}s": int(match[1])})
