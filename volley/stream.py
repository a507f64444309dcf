"""The fluent builder: streams of rows, and pipelines that end in sinks. Nothing runs before `execute` or `start`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, Unpack

from volley.checks import Duration, count, duration, optional
from volley.engine.options import StartOptions
from volley.errors import ConfigError, ExpressionError
from volley.explain import as_html, explained
from volley.plan import nodes
from volley.plan.expression_nodes import Column, output_name
from volley.plan.expressions import Expr, as_node, col
from volley.registry import installed
from volley.sink import Sink
from volley.types.schemas import check_schema
from volley.verbs import UnknownVerb, check_callable, check_expression, check_text, nearest_verb

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow as pa

    from volley.engine.job import Job
    from volley.types.names import SchemaLike

__all__ = ["DataStream", "Pipeline"]

Row = dict[str, Any]


class _Runner(Protocol):
    """The part of Environment that a stream uses."""

    @property
    def arrow_native(self) -> bool: ...

    def start(self, name: str, *pipelines: Pipeline, **options: Unpack[StartOptions]) -> Job: ...

    def execute(self, name: str, *pipelines: Pipeline, **options: Unpack[StartOptions]) -> Job: ...


@dataclass(frozen=True)
class DataStream:
    """A source's rows and the steps applied to them: a frozen value; equal streams have equal plans.

    `Environment.from_source` creates a stream. Several streams can continue one stream: a job runs their common steps
    once.

    Example:
        >>> from volley import Environment, MemorySink, MemorySource, col
        >>> stream = Environment().from_source(MemorySource([{"id": 1, "status": "active"}]))
        >>> print(stream.filter_expr(col("status") == "active").drop("status").to_sink(MemorySink("out")))
        write MemorySink('out')
          drop 'status'
            filter col('status') == lit('active')
              read MemorySource(1 row)
    """

    _node: nodes.Node
    _environment: _Runner = field(compare=False)

    def filter_expr(self, predicate: Expr) -> DataStream:
        """Keep the rows for which `predicate` is true; drop those for which it is false or null.

        Args:
            predicate: A boolean expression.

        Raises:
            ExpressionError: If `predicate` is not an expression.
        """
        return self._then(nodes.Filter(self._node, check_expression(predicate, "filter_expr").node))

    def filter(self, predicate: Expr) -> DataStream:
        """Do the same as `filter_expr`."""
        return self.filter_expr(predicate)

    def select(self, *columns: str | Expr, **named: str | Expr) -> DataStream:
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
        columns += tuple(_named(name, value) for name, value in named.items())
        if not columns:
            raise ExpressionError("select without columns", hint='name at least one: select("id", "status")')
        selected = tuple(
            Column(check_text(column, "select")) if isinstance(column, str) else as_node(column) for column in columns
        )
        names = [output_name(node) for node in selected]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ExpressionError(f"select has two columns named {twice[0]!r}", hint="give one of them an alias")
        return self._then(nodes.Select(self._node, selected))

    def with_column(self, name: str, value: Expr | Any) -> DataStream:
        """Append the column `name`, or replace the one of that name.

        Args:
            name: The column's name.
            value: An expression, or a Python value for a constant column.
        """
        return self._then(nodes.WithColumns(self._node, ((check_text(name, "with_column"), as_node(value)),)))

    def with_columns(self, **columns: Expr | Any) -> DataStream:
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

    def drop(self, *columns: str) -> DataStream:
        """Drop these columns."""
        return self._then(nodes.Drop(self._node, tuple(check_text(name, "drop") for name in columns)))

    def rename(self, names: dict[str, str]) -> DataStream:
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

    def map(self, function: Callable[[Row], Row], schema: SchemaLike | None = None) -> DataStream:
        """Apply a Python function to each row. Much slower than expressions.

        Args:
            function: Takes one row as a dict and returns one; runs on the executors, so it must be picklable.
            schema: The columns of its output: an Arrow schema, ``"id long, name string"`` or a dict of names and
                types; None = the same as its input.
        """
        return self._then(nodes.Map(self._node, check_callable(function, "map"), _schema(schema)))

    def flat_map(self, function: Callable[[Row], Iterable[Row]], schema: SchemaLike | None = None) -> DataStream:
        """Apply a Python function to each row that returns any number of rows. See `map`."""
        return self._then(nodes.FlatMap(self._node, check_callable(function, "flat_map"), _schema(schema)))

    def map_batches(
        self, function: Callable[[pa.RecordBatch], pa.RecordBatch], schema: SchemaLike | None = None
    ) -> DataStream:
        """Apply a function to each Arrow batch. Batches have any size: a row's result must depend on that row alone.

        Args:
            function: Takes a `pyarrow.RecordBatch` and returns one; runs on the executors.
            schema: The columns of its output; None = the same as its input.
        """
        return self._then(nodes.MapBatches(self._node, check_callable(function, "map_batches"), _schema(schema)))

    def union(self, *others: DataStream) -> DataStream:
        """Return the rows of this stream and of the others.

        Args:
            others: Streams with the same columns, in any order.

        Raises:
            ConfigError: If one of them is not a stream.
        """
        for other in others:
            if not isinstance(other, DataStream):
                raise ConfigError(f"union takes streams, not {type(other).__name__}", hint="environment.from_source(…)")
        return self._then(nodes.Union((self._node, *(other._node for other in others))))

    def deduplicate(self, *keys: str, event_time: str | None = None, within: Duration | None = None) -> DataStream:
        """Keep the first row of each key, and drop the later ones.

        Args:
            keys: The key columns.
            event_time: A timestamp column. With `within`, Spark drops a key from its state once it is that much older
                than the watermark, so the state stays bounded; without both, the state keeps every key for ever.
            within: The largest distance, in event time, between two rows of one key: a timedelta, seconds or a text
                such as ``"5m"``.

        Raises:
            ConfigError: If there is no key, or only one of `event_time` and `within`, or a wrong one.
        """
        if not keys:
            raise ConfigError("deduplicate without keys", hint='name the columns: deduplicate("id")')
        if (event_time is None) != (within is None):
            raise ConfigError(
                "deduplicate needs both event_time and within, or neither", hint='event_time="at", within="1h"'
            )
        for name in (*keys, *([] if event_time is None else [event_time])):
            check_text(name, "deduplicate")
        span = None if within is None else duration("within", within)
        return self._then(nodes.Deduplicate(self._node, keys, event_time, span))

    def split(self, predicate: Expr) -> tuple[DataStream, DataStream]:
        """Return two streams: the rows for which `predicate` is true, and all others (false or null).

        Args:
            predicate: A boolean expression.

        Raises:
            ExpressionError: If `predicate` is not an expression.

        Example:
            >>> from volley import Environment, MemorySource, col
            >>> stream = Environment().from_source(MemorySource([{"id": 1, "price": None}]))
            >>> good, bad = stream.split(col("price") > 0)
            >>> print(bad)
            filter not is_true(col('price') > lit(0))
              read MemorySource(1 row)
        """
        good = self.filter_expr(predicate)
        return good, self._then(nodes.Rest(self._node, predicate.node))

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
        return check_callable(function, "pipe")(self, *arguments, **options)

    def to_sink(self, sink: Sink, dead_letter: Sink | str | None = None) -> Pipeline:
        """Write the rows to a sink. A stream, and each stream that continues it, can have several sinks.

        Args:
            sink: The sink.
            dead_letter: The destination of rows that can't be processed for this sink or written by it: another sink;
                for a table also the name of a table in its catalog, or the path of a folder. None = the sink's own
                setting; without one, the job fails at such a row.

        Raises:
            ConfigError: If `sink` is not a sink, or can't have this `dead_letter`.
        """
        return Pipeline((), self._environment)._with(self._node, sink, dead_letter)

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the rows.

        Raises:
            VolleyError: If a source can't be read, or a step does not fit its input.
        """
        from volley.engine.collect import schema_of

        return schema_of(self._node)

    @property
    def columns(self) -> list[str]:
        """The names of the columns. Raises like `schema`."""
        return list(self.schema.names)

    def head(self, rows: int = 10) -> pa.Table:
        """Return the first rows as an Arrow table. See `to_arrow`.

        Args:
            rows: The most rows.
        """
        return self.to_arrow(count("rows", rows))

    def show(self, rows: int = 10) -> None:
        """Print the first rows as a table. See `to_arrow`.

        Args:
            rows: The most rows.

        Example:
            >>> from volley import Environment, MemorySource, col
            >>> prices = Environment().from_source(MemorySource([{"price": 2}, {"price": 9}]))
            >>> prices.with_column("gross", col("price") * 1.5).show()
            price    gross
            int64   double
            ──────────────
                2      3.0
                9     13.5
        """
        from volley.engine.terminal import show

        show(self.head(rows))

    def to_arrow(self, limit: int | None = None) -> pa.Table:
        """Return the rows that the sources have now, as an Arrow table.

        Read and computed in this process, by the code that a job's tasks run: without Spark, without a checkpoint, and
        no sink gets a row. Reading ends with the last row that is wanted. Rows come in any order.

        Args:
            limit: The most rows; None = all.

        Raises:
            ConfigError: If `limit` is not a whole number above 0.
            PlanError: If a step or a source needs Spark.
            VolleyError: If a source can't be read, a step does not fit its input, or a step fails at a row.

        Example:
            >>> from volley import Environment, MemorySource, col
            >>> stream = Environment().from_source(MemorySource([{"id": 1}, {"id": 2}]))
            >>> stream.filter(col("id") > 1).to_arrow().to_pylist()
            [{'id': 2}]
        """
        from volley.engine.collect import collect

        return collect(self._node, optional(count)("limit", limit))

    def to_pandas(self, limit: int | None = None) -> pandas.DataFrame:
        """Return the rows as a pandas DataFrame. See `to_arrow`.

        Raises:
            MissingDependencyError: If pandas is not installed.
        """
        installed("pandas")
        return self.to_arrow(limit).to_pandas()

    def to_polars(self, limit: int | None = None) -> polars.DataFrame:
        """Return the rows as a polars DataFrame. See `to_arrow`.

        Raises:
            MissingDependencyError: If polars is not installed.
        """
        frame: polars.DataFrame = installed("polars").from_arrow(self.to_arrow(limit))
        return frame

    def explain(self) -> None:
        """Print the logical plan, the execution path with the reason for it, and what the sources leave out."""
        print(explained([self._node], self._environment.arrow_native))

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            hint = "end the stream first: .to_sink(...)" if hasattr(Pipeline, name) else nearest_verb(name, DataStream)
            raise UnknownVerb(f"a stream has no {name!r}", hint=hint)

    def __str__(self) -> str:
        return nodes.describe(self._node)

    def __repr__(self) -> str:
        return f"DataStream(\n{self}\n)"

    def _repr_html_(self) -> str:
        return as_html("DataStream", [self._node], self._environment.arrow_native)

    def _then(self, node: nodes.Node) -> DataStream:
        return DataStream(node, self._environment)


@dataclass(frozen=True)
class Pipeline:
    """A stream with its sinks, ready to run: alone, or together with others in `Environment.execute`.

    A frozen value, created by `DataStream.to_sink`.

    Example:
        >>> from volley import Environment, MemorySink, MemorySource
        >>> pipeline = Environment().from_source(MemorySource([{"id": 1}])).to_sink(MemorySink("out"))
        >>> pipeline.execute("example").progress.rows  # doctest: +SKIP
        1
    """

    _writes: tuple[nodes.Write, ...]
    _environment: _Runner = field(compare=False)

    def to_sink(self, sink: Sink, dead_letter: Sink | str | None = None) -> Pipeline:
        """Write the same rows to another sink, too. They are computed once; each sink commits by itself.

        Args:
            sink: The sink.
            dead_letter: See `DataStream.to_sink`.

        Raises:
            ConfigError: If `sink` is not a sink, or can't have this `dead_letter`.
        """
        return self._with(self._writes[0].input, sink, dead_letter)

    def start(self, name: str, **options: Unpack[StartOptions]) -> Job:
        """Start the pipeline as a job, and return the running job at once. See `Environment.start`."""
        return self._environment.start(name, self, **options)

    def execute(self, name: str, **options: Unpack[StartOptions]) -> Job:
        """Run the pipeline to the end of its bounded sources, or until it is stopped. See `Environment.execute`."""
        return self._environment.execute(name, self, **options)

    def explain(self) -> None:
        """Print the logical plan, the execution path with the reason for it, and what the sources leave out."""
        print(explained(self._writes, self._environment.arrow_native))

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            hint = "steps stand before to_sink" if hasattr(DataStream, name) else nearest_verb(name, Pipeline)
            raise UnknownVerb(f"a pipeline has no {name!r}", hint=hint)

    def __str__(self) -> str:
        return "\n".join(map(nodes.describe, self._writes))

    def __repr__(self) -> str:
        return f"Pipeline(\n{self}\n)"

    def _repr_html_(self) -> str:
        return as_html("Pipeline", self._writes, self._environment.arrow_native)

    def _with(self, node: nodes.Node, sink: Sink, dead_letter: Sink | str | None) -> Pipeline:
        if not isinstance(sink, Sink):
            raise ConfigError(
                f"to_sink takes a Sink, not {type(sink).__name__}",
                hint="for example IcebergSink(config), FileSink(path), MemorySink(), ConsoleSink()",
            )
        if dead_letter is None:
            letters = sink.dead_letter
        elif isinstance(dead_letter, str):
            letters = sink.dead_letter_at(dead_letter)
        elif isinstance(dead_letter, Sink):
            letters = dead_letter
        else:
            raise ConfigError(
                f"dead_letter takes a Sink, not {type(dead_letter).__name__}", hint='for example FileSink("bad")'
            )
        return Pipeline((*self._writes, nodes.Write(node, sink, letters)), self._environment)


def _named(name: str, value: str | Expr) -> Expr:
    return (col(value) if isinstance(value, str) else check_expression(value, "select")).alias(name)


def _schema(schema: SchemaLike | None) -> Any:
    return None if schema is None else check_schema(schema)
