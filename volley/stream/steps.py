"""The steps of a stream that look at one row, or one batch of rows, at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

from volley import checks
from volley.errors import ConfigError, ExpressionError, brief_methods
from volley.plan import nodes
from volley.plan.expression_nodes import Column, output_name
from volley.plan.expressions import Expr, as_node, col
from volley.plan.places import caller
from volley.stream.pipeline import Runner
from volley.stream.verbs import check_continues, check_expression, check_predicate, check_sample, check_text
from volley.types.schemas import check_schema

if TYPE_CHECKING:
    import pyarrow as pa

    from volley.types.names import SchemaLike

__all__ = ["RowSteps", "under_name"]

Row = dict[str, Any]


@brief_methods
@dataclass(frozen=True)
class RowSteps:
    """A stream by its last step; each method returns the stream with one more."""

    _node: nodes.Node
    _environment: Runner = field(compare=False)

    def _then(self, node: nodes.Node) -> Self:
        check_continues(self._node, node)
        return type(self)(replace(node, place=caller()), self._environment)

    def filter_expr(self, predicate: Expr | str) -> Self:
        """Keep the rows for which `predicate` is true; drop those for which it is false or null.

        Args:
            predicate: A boolean expression, or a SQL text as for `volley.sql`.

        Raises:
            ExpressionError: If `predicate` is neither, or the text is wrong.

        Example:
            >>> from volley import Environment, MemorySource
            >>> stream = Environment().from_source(MemorySource([{"id": 1, "price": 2}]))
            >>> print(stream.filter_expr("price > 1"))
            filter col('price') > lit(1)
              read MemorySource(1 row)
        """
        return self._then(nodes.Filter(self._node, check_predicate(predicate, "filter_expr").node))

    def filter(self, predicate: Expr | str) -> Self:
        """Do the same as `filter_expr`."""
        return self._then(nodes.Filter(self._node, check_predicate(predicate, "filter").node))

    def expect(
        self,
        name: str,
        predicate: Expr | str,
        on_fail: nodes.OnFail = "warn",
        max_failed: float | None = None,
    ) -> Self:
        """Expect that `predicate` holds for the rows, and count those for which it is false.

        As in a check constraint of SQL, a row for which it is null does not fail; it is counted as unknown. Where
        a value must be there, say so: ``col("price").is_not_null() & (col("price") >= 0)``.

        Args:
            name: What is expected, in words: counts, errors and metrics are told by it.
            predicate: A boolean expression, or a SQL text as for `volley.sql`.
            on_fail: What becomes of a row that fails. ``"warn"``: it stays, and the job warns once. ``"drop"``: it is
                left out. ``"dead_letter"``: it goes to the dead letter of each sink, which all must have. ``"fail"``:
                the job fails before the epoch is committed.
            max_failed: The most rows of an epoch that may fail, or a float from 0 to 1 for their share. With more, the
                job fails before the epoch is committed, whatever `on_fail` is. None = any number; with ``"fail"`` none.

        Raises:
            ExpressionError: If `predicate` is neither, or the text is wrong.
            ConfigError: If another argument is wrong.

        Example:
            >>> from volley import Environment, MemorySource
            >>> stream = Environment().from_source(MemorySource([{"price": 2}, {"price": -1}, {"price": None}]))
            >>> stream.expect("price is not negative", "price >= 0", on_fail="drop").to_arrow().to_pylist()
            [{'price': 2}, {'price': None}]
        """
        checks.text("name", name)
        checks.one_of(("warn", "drop", "dead_letter", "fail"))("on_fail", on_fail)
        expected = check_predicate(predicate, "expect").node
        limit = checks.optional(_limit)("max_failed", max_failed)
        return self._then(nodes.Expect(self._node, name, expected, on_fail, limit))

    def select(self, *columns: str | Expr, **named: str | Expr) -> Self:
        """Keep exactly these columns, in this order.

        Args:
            columns: Names, or expressions with an alias.
            named: Further columns, by their names: expressions, or the names of other columns.

        Raises:
            ExpressionError: If a computed column has no name, or two have the same.

        Example:
            >>> from volley import Environment, MemorySource, col
            >>> stream = Environment().from_source(MemorySource([{"id": 1, "price": 2}]))
            >>> print(stream.select("id", gross=col("price") * 1.2))
            select col('id'), (col('price') * lit(1.2)).alias('gross')
              read MemorySource(1 row)
        """
        columns += tuple(under_name(name, value) for name, value in named.items())
        if not columns:
            raise ExpressionError("select without columns", hint='name at least one: select("id", "status")')
        selected = tuple(
            Column(check_text(column, "select")) if isinstance(column, str) else as_node(column) for column in columns
        )
        names = [output_name(node) for node in selected]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ExpressionError(f"select has two columns named {twice[0]!r}", hint="give one of them an alias")
        return self._then(nodes.Select(self._node, selected))

    def with_column(self, name: str, value: Expr | Any) -> Self:
        """Append the column `name`, or replace the one of that name.

        Args:
            name: The column's name.
            value: An expression, or a Python value for a constant column.
        """
        return self._then(nodes.WithColumns(self._node, ((check_text(name, "with_column"), as_node(value)),)))

    def with_columns(self, **columns: Expr | Any) -> Self:
        """Append several columns, or replace those of the same names; all are computed from the rows as they were.

        Args:
            columns: An expression, or a Python value for a constant column, by the column's name.

        Raises:
            ExpressionError: If there is none.

        Example:
            >>> from volley import Environment, MemorySource, col
            >>> stream = Environment().from_source(MemorySource([{"a": 1, "b": 2}]))
            >>> print(stream.with_columns(a=col("b"), b=col("a")))
            with_columns 'a' = col('b'), 'b' = col('a')
              read MemorySource(1 row)
        """
        if not columns:
            raise ExpressionError(
                "with_columns without columns", hint='name at least one: with_columns(x=col("a") + 1)'
            )
        named = tuple((name, as_node(value)) for name, value in columns.items())
        return self._then(nodes.WithColumns(self._node, named))

    def with_processing_time(self, name: str) -> Self:
        """Append the column `name` with the time at which a row is processed, or replace the one of that name.

        All rows of an epoch have one time, that of the computer's clock when the epoch was planned; an epoch that is
        repeated after a failure has the same one. It never goes back, so windows by it need no `lateness`.

        Args:
            name: The column's name; it has timestamps in UTC.

        Example:
            >>> from volley import Environment, MemorySource, count, tumbling
            >>> clicks = Environment().from_source(MemorySource([{"user": "ada"}])).with_processing_time("arrived")
            >>> print(clicks.key_by("user").window(tumbling("10s"), on="arrived").aggregate(n=count()))
            aggregate n=count() by tumbling('10s') of 'arrived', col('user'), emit final
              with_processing_time 'arrived'
                read MemorySource(1 row)
        """
        return self._then(nodes.ProcessingTime(self._node, check_text(name, "with_processing_time")))

    def drop(self, *columns: str) -> Self:
        """Drop these columns."""
        return self._then(nodes.Drop(self._node, tuple(check_text(name, "drop") for name in columns)))

    def rename(self, names: dict[str, str]) -> Self:
        """Rename columns.

        Args:
            names: Old name → new name.
        """
        if not isinstance(names, Mapping):
            raise ExpressionError(
                f"rename takes a dict, not {type(names).__name__}", hint='for example rename({"old": "new"})'
            )
        pairs = tuple((check_text(old, "rename"), check_text(new, "rename")) for old, new in names.items())
        return self._then(nodes.Rename(self._node, pairs))

    def map(self, function: Callable[[Row], Row], schema: SchemaLike | None = None) -> Self:
        """Apply a Python function to each row. Much slower than expressions.

        Args:
            function: Takes one row as a dict and returns one; runs on the executors, so it must be picklable.
            schema: The columns of its output: an Arrow schema, ``"id long, name string"`` or a dict of names and
                types; None = the same as its input.
        """
        return self._then(nodes.Map(self._node, _function("map", function), _schema(schema)))

    def flat_map(self, function: Callable[[Row], Iterable[Row]], schema: SchemaLike | None = None) -> Self:
        """Apply a Python function to each row that returns any number of rows. See `map`."""
        return self._then(nodes.FlatMap(self._node, _function("flat_map", function), _schema(schema)))

    def map_batches(
        self, function: Callable[[pa.RecordBatch], pa.RecordBatch], schema: SchemaLike | None = None
    ) -> Self:
        """Apply a function to each Arrow batch. Batches have any size: a row's result must depend on that row alone.

        Args:
            function: Takes a `pyarrow.RecordBatch` and returns one; runs on the executors.
            schema: The columns of its output; None = the same as its input.
        """
        return self._then(nodes.MapBatches(self._node, _function("map_batches", function), _schema(schema)))

    def union(self, *others: RowSteps) -> Self:
        """Return the rows of this stream and of the others.

        Args:
            others: Streams with the same columns, in any order.

        Raises:
            ConfigError: If one of them is not a stream.
        """
        for other in others:
            if not isinstance(other, RowSteps):
                raise ConfigError(f"union takes streams, not {type(other).__name__}", hint="environment.from_source(…)")
            check_continues(other._node, self._node)
        return self._then(nodes.Union((self._node, *(other._node for other in others))))

    def explode(self, column: str, keep_empty: bool = False) -> Self:
        """Make a row of each item of a list; the other columns are repeated.

        Args:
            column: The list's column, which gets the items.
            keep_empty: True keeps rows whose list is empty or null, with a null in the column; False drops them.

        Example:
            >>> from volley import Environment, MemorySource
            >>> stream = Environment().from_source(MemorySource([{"id": 1, "tags": ["a", "b"]}, {"id": 2, "tags": []}]))
            >>> stream.explode("tags").to_arrow().to_pylist()
            [{'id': 1, 'tags': 'a'}, {'id': 1, 'tags': 'b'}]
        """
        checks.flag("keep_empty", keep_empty)
        return self._then(nodes.Explode(self._node, check_text(column, "explode"), keep_empty))

    def sample(self, fraction: float, by: str | Sequence[str], seed: int = 0) -> Self:
        """Keep a part of the keys, with all of their rows: the same ones in each run, as the key's hash decides.

        Args:
            fraction: The part to keep, above 0 and at most 1.
            by: The key column or columns, of plain types; ``"id"`` for a part of the rows.
            seed: Another one keeps other keys.

        Raises:
            ConfigError: If there is no key column, or an argument is wrong.

        Example:
            >>> from volley import Environment, MemorySource
            >>> stream = Environment().from_source(MemorySource([{"user": n} for n in range(1000)]))
            >>> stream.sample(0.1, "user").to_arrow().num_rows
            106
        """
        return self.filter(check_sample(fraction, [by] if isinstance(by, str) else by, seed))

    def split(self, predicate: Expr | str) -> tuple[Self, Self]:
        """Return two streams: the rows for which `predicate` is true, and all others (false or null).

        Args:
            predicate: A boolean expression, or a SQL text as for `volley.sql`.

        Raises:
            ExpressionError: If `predicate` is neither, or the text is wrong.

        Example:
            >>> from volley import Environment, MemorySource, col
            >>> stream = Environment().from_source(MemorySource([{"id": 1, "price": None}]))
            >>> good, bad = stream.split(col("price") > 0)
            >>> print(bad)
            filter not is_true(col('price') > lit(0))
              read MemorySource(1 row)
        """
        checked = check_predicate(predicate, "split")
        return self.filter_expr(checked), self._then(nodes.Rest(self._node, checked.node))

    def pipe(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Return what a function makes of the stream: steps of one's own, in the order in which they are read.

        Args:
            function: Takes the stream, then the arguments.
            arguments: Further arguments.
            options: Further arguments, by name.

        Example:
            >>> from volley import Environment, MemorySource, col
            >>> def positive(stream, column):
            ...     return stream.filter(col(column) > 0)
            >>> print(Environment().from_source(MemorySource([{"id": 1}])).pipe(positive, "id"))
            filter col('id') > lit(0)
              read MemorySource(1 row)
        """
        return _function("pipe", function)(self, *arguments, **options)


def under_name(name: str, value: str | Expr) -> Expr:
    """Return a column under a name: an expression, or the name of another column."""
    return (col(value) if isinstance(value, str) else check_expression(value, "select")).alias(name)


def _limit(name: str, value: float) -> float:
    is_share = isinstance(value, float) and 0 <= value <= 1
    if not is_share and (type(value) is not int or value < 0):
        raise ConfigError(f"{name} is {value!r}", hint="a number of rows, such as 10; or a share of them, such as 0.01")
    return value


def _function(verb: str, value: Callable[..., Any]) -> Any:
    return checks.function(f"{verb}(lambda …: …)")("function", value)


def _schema(schema: SchemaLike | None) -> Any:
    return None if schema is None else check_schema(schema)
