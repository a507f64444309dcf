"""The fluent builder: streams of rows and the steps applied to them. Nothing runs before `execute` or `start`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from volley import checks
from volley.checks import Duration, count, duration, optional
from volley.columns.rows import Rows
from volley.contracts.sink import Sink
from volley.errors import ConfigError, ExpressionError, brief_methods
from volley.plan import graph, keyed_nodes, nodes
from volley.plan.expression_nodes import Column, output_name
from volley.plan.expressions import Expr, as_node, col
from volley.plan.joins import How
from volley.plan.places import caller
from volley.plan.windows import LateRows, Timing
from volley.stream.explain import as_html, explained
from volley.stream.joins import MAX_AHEAD, MAX_BYTES, check_untimed, stream_join, table_join
from volley.stream.keyed import KeyedStream, key_node
from volley.stream.pipeline import Pipeline, Runner
from volley.stream.verbs import (
    UnknownVerb,
    check_bounded,
    check_callable,
    check_continues,
    check_expression,
    check_sample,
    check_text,
    nearest_verb,
)
from volley.types.schemas import check_schema

if TYPE_CHECKING:
    import pyarrow as pa

    from volley.types.names import SchemaLike

__all__ = ["DataStream"]

Row = dict[str, Any]


@brief_methods
@dataclass(frozen=True)
class DataStream(Rows):
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
    _environment: Runner = field(compare=False)

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
            check_continues(other._node, self._node)
        return self._then(nodes.Union((self._node, *(other._node for other in others))))

    def deduplicate(
        self,
        *keys: str,
        event_time: str | None = None,
        within: Duration | None = None,
        late: LateRows = "drop",
        max_ahead: Duration | None = MAX_AHEAD,
        idle_after: Duration | None = None,
        buckets: int = 16,
    ) -> DataStream:
        """Keep the first row of each key, and drop the later ones.

        The first row is that of the first epoch, and within an epoch of the first split. Null is a key like any other,
        NaN equals NaN, and -0.0 equals 0.0.

        Args:
            keys: The key columns.
            event_time: A timestamp column. With `within`, a key is kept until the watermark, the latest event time so
                far minus `within`, is that far behind the time of its row, so the state stays bounded; without both,
                the state keeps every key for ever.
            within: The largest distance, in event time, between two rows of one key: a timedelta, seconds or a text
                such as ``"5m"``. A row that is behind the watermark, or has no time, is left out and counted.
            late: What happens to such rows, besides being counted in the metric `rows_late`: ``"drop"`` or
                ``"dead_letter"``: they go to the sink's dead letter.
            max_ahead: A row that is further ahead of the computer's clock does not move the watermark and is left out,
                as a late one. None = no limit.
            idle_after: A source that has had no row for so long does not hold the watermark back; None = it does.
            buckets: The number of parts that the state is divided into by key; a task holds one in memory. It can't
                change while a job has a checkpoint.

        Raises:
            ConfigError: If there is no key, or only one of `event_time` and `within`, or an argument is wrong.
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
        given: Any = {"late": late, "max_ahead": max_ahead, "idle_after": idle_after, "buckets": buckets}
        timing = Timing(lateness=span or timedelta(0), **given)
        if span is None and replace(timing, buckets=1) != Timing(max_ahead=MAX_AHEAD, buckets=1):
            raise ConfigError(
                "deduplicate has late, max_ahead or idle_after, and no event_time", hint='event_time="at", within="1h"'
            )
        return self._then(keyed_nodes.Deduplicate(self._node, keys, event_time, span, timing=timing))

    def join(
        self,
        other: Any,
        on: str | Sequence[str] | Mapping[str, str],
        how: How = "inner",
        *,
        as_of: tuple[str, str] | str | None = None,
        columns: Sequence[str] | None = None,
        suffix: str = "",
        max_bytes: int = MAX_BYTES,
        within: Duration | tuple[Duration, Duration] | None = None,
        time: str | tuple[str, str] | None = None,
        lateness: Duration = timedelta(0),
        late: LateRows = "drop",
        max_ahead: Duration | None = MAX_AHEAD,
        idle_after: Duration | None = None,
        buckets: int = 16,
    ) -> DataStream:
        """Add the columns of a table's, or another stream's, rows with the same key; a row comes once for each match.

        With a table, each epoch is joined with one version of it, its newest one; an Iceberg table is looked up in
        every epoch, and its changes are read if it has another snapshot. The rows of that version are kept in the
        checkpoint before the epoch's tasks start: an epoch that is repeated after a crash, and each of several sinks,
        gets the same rows, whatever became of the table. All tasks map the same files; their folder must be one that
        executors reach.

        With a stream, rows match that are near in time, `within` a bound. Rows of both sides wait in the job's state
        until the watermark says that no match can come any more. The watermark is the latest event time so far minus
        `lateness`, of the slower side; a row before it is late, and left out. Pairs come out as soon as both rows are
        there, rows of a left join without a match once none can come, or at the end of bounded sources.

        Null matches nothing; NaN matches NaN, and -0.0 matches 0.0. Keys have the same type, int counts as long and
        float as double.

        Args:
            other: A table: an `IcebergTable`, rows of one (``IcebergTable(…).rows.filter("…")``), a `TableRef`, or an
                `IcebergSource`; a `MemorySource` for rows of this program. Or a stream of the same environment.
            on: The key: a column, or several, that both sides have; or a dict of the stream's columns and the other's.
            how: ``"inner"``: drop rows without a match; ``"left"``: keep them, with nulls in the other's columns.
            as_of: For a table with several versions of a key's row: the stream's time column, and the table's column
                that says since when a row is valid. Only the last row that is valid by then matches. Of two rows that
                are valid since the same time, the greater one counts: by its first added column, then the next ones;
                null is the least. Rows with a null time match nothing. The stream's time column alone joins a row with
                the rows that an Iceberg table had at its time, by the commits of its snapshots; a row that is older
                than the first snapshot that the table still has can't be joined, and is a bad row.
            columns: The other's columns to add, in this order; None = all but its keys.
            suffix: The end of the added columns' names, of each of them.
            max_bytes: The most bytes of the table's rows in memory, at most 2 GiB; by default 256 MiB. A larger table
                is divided by key into files, of which a task maps at most this many bytes at a time. The rows of a
                key must fit.
            within: With a stream: the most time between two rows that match, or how much earlier and how much later
                than this stream's row the other one may be: ``within=("0s", "10m")``; the ends are part of it.
            time: With a stream: the timestamp column of both sides, or of each: ``time=("at", "paid_at")``. A row
                without a time is left out.
            lateness: With a stream: how much older than the latest row of its side a row can be and still be on time.
            late: With a stream: what happens to rows that are left out, besides being counted in the metric
                `rows_late`: ``"drop"`` or ``"dead_letter"``.
            max_ahead: With a stream: a row that is further ahead of the computer's clock is left out, and does not move
                the watermark. None = no limit.
            idle_after: With a stream: a source that has had no row for so long does not hold the watermark back.
            buckets: With a stream: the number of parts that the state is divided into by key; a task holds one in
                memory. It can't change while a job has a checkpoint.

        Raises:
            ConfigError: If an argument is wrong.

        Example:
            >>> from volley import Environment, MemorySource
            >>> orders = Environment().from_source(MemorySource([{"id": 1, "item": "a"}, {"id": 2, "item": "b"}]))
            >>> prices = MemorySource([{"item": "a", "price": 5}])
            >>> orders.join(prices, on="item", how="left").to_arrow().to_pylist()
            [{'id': 1, 'item': 'a', 'price': 5}, {'id': 2, 'item': 'b', 'price': None}]

            >>> paid = Environment().from_source(MemorySource([], "id long, paid_at timestamp"))
            >>> ordered = Environment().from_source(MemorySource([], "id long, at timestamp"))
            >>> print(ordered.join(paid, on="id", within=("0s", "1h"), time=("at", "paid_at"), lateness="1m"))
            inner join of streams on 'id', 'paid_at' from 0s before to 3600s after 'at'
              left side
                read MemorySource(0 rows)
              right side
                read MemorySource(0 rows)
        """
        spans: Any = {"lateness": lateness, "max_ahead": max_ahead, "idle_after": idle_after}
        timing = Timing(**spans, late=late, buckets=buckets)
        if not isinstance(other, DataStream):
            check_untimed(within, time, timing)
            return self._then(nodes.Join(self._node, table_join(other, on, how, as_of, columns, suffix, max_bytes)))
        join = stream_join(on, how, as_of, max_bytes, within, time, columns, suffix, timing)
        check_continues(other._node, self._node)
        sides = keyed_nodes.Side(self._node, is_right=False), keyed_nodes.Side(other._node, is_right=True)
        return self._then(keyed_nodes.JoinStreams(*sides, join))

    def key_by(self, *keys: str | Expr, **named: str | Expr) -> KeyedStream[DataStream]:
        """Group the rows by key, for aggregates: of each window of time, or of each key for a materialised view.

        Null is a key like any other; so is NaN, and -0.0 is the same as 0.0.

        Args:
            keys: Names, or expressions with an alias; without a key all rows are one group.
            named: Further keys, by their names: expressions, or the names of other columns.

        Raises:
            ExpressionError: If a key is neither, or has no name.

        Example:
            >>> from volley import Environment, MemorySource, col, count
            >>> clicks = Environment().from_source(MemorySource([], "user string, at timestamp"))
            >>> print(clicks.key_by("user", day=col("at").dt.truncate("day")).aggregate(n=count()))
            aggregate n=count() by col('user'), col('at').dt.truncate('day').alias('day')
              read MemorySource(0 rows)
        """
        keys += tuple(_named(name, value) for name, value in named.items())
        return KeyedStream(self, tuple(map(key_node, keys)))

    def explode(self, column: str, keep_empty: bool = False) -> DataStream:
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

    def sample(self, fraction: float, by: str | Sequence[str], seed: int = 0) -> DataStream:
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

    def limit(self, rows: int) -> DataStream:
        """Keep at most this many rows of a stream that ends, the first ones; splits are read no further.

        Args:
            rows: The most rows.

        Raises:
            ConfigError: If `rows` is not a whole number above 0.
            PlanError: If a source has no end; `head` and `show` look at the rows that it has now.
        """
        check_bounded(self._node, "limit")
        return self._then(keyed_nodes.Limit(self._node, count("rows", rows)))

    def repartition(self, tasks: int | None = None, by: str | Sequence[str] = ()) -> DataStream:
        """Divide an epoch's rows among tasks that write them: the last step of a stream, or the one before its sort.

        Without it the tasks that read rows write them, too, one for each file or other split of the sources. With it
        an epoch has as many data files as it has tasks (of a partitioned table, as many in each partition), whatever
        it reads: ``repartition(1)`` makes one of many small ones; more tasks divide the work of one large split. Rows
        go through Spark's shuffle, as compressed Arrow.

        Args:
            tasks: The number of tasks that write; None = the number of Spark's cores.
            by: A column, or several: rows with equal values go to one task, so that a partition, or a key, is in few
                files. Without it, all tasks get as many rows.

        Raises:
            ConfigError: If an argument is wrong.

        Example:
            >>> from volley import Environment, MemorySource
            >>> stream = Environment().from_source(MemorySource([], "country string, at timestamp"))
            >>> print(stream.repartition(4, by="country").sort_within_epoch("at"))
            sort_within_epoch by 'at'
              repartition 4 by 'country'
                read MemorySource(0 rows)
        """
        return self._then(nodes.Repartition(self._node, optional(count)("tasks", tasks), checks.names("by", by)))

    def sort_within_epoch(self, *columns: str) -> DataStream:
        """Sort the rows that each task of an epoch writes, so that each data file is sorted: the last step of a stream.

        A sorted file has narrow statistics: queries by these columns leave out more of it, and it compresses better. A
        task's files don't overlap; those of two tasks may: `repartition` says how many tasks an epoch has. A task holds
        two runs of 64 MB in memory; with more rows, sorted runs go to the local disk.

        In a partitioned table, the rows of each partition are sorted; a table's own sort order comes first.

        Args:
            columns: Names, each with ``asc`` (the default) or ``desc`` behind it, such as ``"at desc"``. Nulls are the
                smallest values, NaN is the largest number.

        Raises:
            ExpressionError: If there is no column.

        Example:
            >>> from volley import Environment, MemorySource
            >>> stream = Environment().from_source(MemorySource([{"id": 2}, {"id": None}, {"id": 1}]))
            >>> stream.sort_within_epoch("id desc").to_arrow()["id"].to_pylist()
            [2, 1, None]
        """
        if not columns:
            raise ExpressionError("sort_within_epoch without columns", hint='name one: sort_within_epoch("at desc")')
        return self._then(nodes.SortWithinEpoch(self._node, tuple(check_text(c, "sort_within_epoch") for c in columns)))

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

    def explain(self) -> None:
        """Print the logical plan, and what the sources leave out."""
        print(explained([self._node]))

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            hint = "end the stream first: .to_sink(...)" if hasattr(Pipeline, name) else nearest_verb(name, DataStream)
            raise UnknownVerb(f"a stream has no {name!r}", hint=hint)

    def __str__(self) -> str:
        return graph.describe(self._node)

    def __repr__(self) -> str:
        return f"DataStream(\n{self}\n)"

    def _repr_html_(self) -> str:
        return as_html("DataStream", [self._node])

    def _then(self, node: nodes.Node) -> DataStream:
        check_continues(self._node, node)
        return DataStream(replace(node, place=caller()), self._environment)


def _named(name: str, value: str | Expr) -> Expr:
    return (col(value) if isinstance(value, str) else check_expression(value, "select")).alias(name)


def _schema(schema: SchemaLike | None) -> Any:
    return None if schema is None else check_schema(schema)
