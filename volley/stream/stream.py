"""The fluent builder: streams of rows and the steps applied to them. Nothing runs before `execute` or `start`."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from types import FunctionType
from typing import TYPE_CHECKING, Any

from volley import checks
from volley.checks import count, optional
from volley.columns.rows import Rows
from volley.contracts.sink import Sink
from volley.errors import ExpressionError, brief_methods
from volley.plan import graph, nodes
from volley.stream.joins import Joins
from volley.stream.keyed_steps import KeyedSteps
from volley.stream.pipeline import Pipeline, as_html, explained
from volley.stream.steps import RowSteps
from volley.stream.verbs import UnknownVerb, check_text, nearest_verb

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["DataStream"]


@brief_methods
@dataclass(frozen=True)
class DataStream(KeyedSteps, Joins, Rows):
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
        no sink gets a row. Reading ends with the last row that is wanted. Rows come in any order. Steps that keep state
        give what they give in a job whose sources end with these rows: all windows close.

        Args:
            limit: The most rows; None = all.

        Raises:
            ConfigError: If `limit` is not a whole number above 0.
            PlanError: If a source needs Spark, or a job could not run the steps.
            VolleyError: If a source can't be read, a step does not fit its input, or a step fails at a row.

        Example:
            >>> from volley import Environment, MemorySource, col
            >>> stream = Environment().from_source(MemorySource([{"id": 1}, {"id": 2}]))
            >>> stream.filter(col("id") > 1).to_arrow().to_pylist()
            [{'id': 2}]
        """
        from volley.stream.ordered import collected

        return collected(self._node, optional(count)("limit", limit))

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


def _name_after_streams(*parts: type) -> None:
    """Give the steps of a stream's parts the name of the class that users know: Python's own errors tell it."""
    for name, method in ((name, method) for part in parts for name, method in vars(part).items()):
        if isinstance(method, FunctionType):
            method.__qualname__ = inspect.unwrap(method).__qualname__ = f"{DataStream.__name__}.{name}"


_name_after_streams(RowSteps, KeyedSteps, Joins)
