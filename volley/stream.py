"""DataStream: the fluent builder; every verb returns a new stream and nothing runs before `execute` or `start`."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from volley import _plan
from volley._checks import Duration, duration
from volley._start import Into, Start
from volley._types import check_schema
from volley.errors import ConfigError, ExpressionError, PlanError
from volley.expressions import Column, Expr, as_node, output_name
from volley.sink import Sink

if TYPE_CHECKING:
    import pyarrow as pa

    from volley._types import SchemaLike
    from volley.job import Job

__all__ = ["DataStream"]

Row = dict[str, Any]


class _Runner(Protocol):
    """What a stream needs of its environment."""

    @property
    def arrow_native(self) -> bool: ...

    def start(self, plan: _plan.Node, start: Start) -> Job: ...


@dataclass(frozen=True)
class DataStream:
    """A pipeline as far as it has been drawn: a frozen value; equal streams have equal plans.

    Made by `Environment.from_source`.

    Example:
        >>> from volley import Environment, MemorySink, MemorySource, col
        >>> stream = Environment().from_source(MemorySource([{"id": 1, "status": "active"}]))
        >>> print(stream.filter_expr(col("status") == "active").drop("status").to_sink(MemorySink("out")))
        write MemorySink('out')
          drop 'status'
            filter col('status') == lit('active')
              read MemorySource(1 row)
    """

    _node: _plan.Node
    _environment: _Runner = field(compare=False)

    def filter_expr(self, predicate: Expr) -> DataStream:
        """Only the rows for which `predicate` is true; rows for which it is false or null are dropped.

        Raises:
            ExpressionError: If `predicate` is not an expression.
        """
        if not isinstance(predicate, Expr):
            raise ExpressionError(
                f"filter_expr takes an expression, not {type(predicate).__name__}",
                hint='build one with col and lit: col("status").eq(lit("active"))',
            )
        return self._then(_plan.Filter(self._node, predicate.node))

    def select(self, *columns: str | Expr) -> DataStream:
        """Exactly these columns, in this order: names, or expressions with an alias.

        Raises:
            ExpressionError: If a computed column has no name, or two have the same.
        """
        if not columns:
            raise ExpressionError("select without columns", hint='name at least one: select("id", "status")')
        nodes = tuple(Column(_text(each, "select")) if isinstance(each, str) else as_node(each) for each in columns)
        names = [output_name(node) for node in nodes]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ExpressionError(f"select has two columns named {twice[0]!r}", hint="give one of them an alias")
        return self._then(_plan.Select(self._node, nodes))

    def with_column(self, name: str, value: Expr | Any) -> DataStream:
        """The column `name` computed by `value`: appended, or put in place of the one of that name.

        Args:
            name: The column's name.
            value: An expression, or a Python value for a constant column.
        """
        return self._then(_plan.WithColumn(self._node, _text(name, "with_column"), as_node(value)))

    def drop(self, *columns: str) -> DataStream:
        """All columns but these."""
        return self._then(_plan.Drop(self._node, tuple(_text(name, "drop") for name in columns)))

    def rename(self, names: dict[str, str]) -> DataStream:
        """The same columns, some under new names.

        Args:
            names: Old name → new name.
        """
        if not isinstance(names, Mapping):
            raise ExpressionError(
                f"rename takes a dict, not {type(names).__name__}", hint='for example rename({"old": "new"})'
            )
        pairs = tuple((_text(old, "rename"), _text(new, "rename")) for old, new in names.items())
        return self._then(_plan.Rename(self._node, pairs))

    def map(self, function: Callable[[Row], Row], schema: SchemaLike | None = None) -> DataStream:
        """Each row through a Python function, as a dict. Slower than expressions by far.

        Args:
            function: One row in, one row out; runs on the executors, so it must be picklable.
            schema: The columns of its output: an Arrow schema, ``"id long, name string"`` or a dict of names and
                types; None = the same as its input.
        """
        return self._then(_plan.Map(self._node, _callable(function, "map"), _schema(schema)))

    def flat_map(self, function: Callable[[Row], Iterable[Row]], schema: SchemaLike | None = None) -> DataStream:
        """Each row through a Python function that gives any number of rows. See `map`."""
        return self._then(_plan.FlatMap(self._node, _callable(function, "flat_map"), _schema(schema)))

    def map_batches(
        self, function: Callable[[pa.RecordBatch], pa.RecordBatch], schema: SchemaLike | None = None
    ) -> DataStream:
        """Each Arrow record batch through a function; batches hold any number of rows, so each row must stand alone.

        Args:
            function: One `pyarrow.RecordBatch` in, one out; runs on the executors.
            schema: The columns of its output; None = the same as its input.
        """
        return self._then(_plan.MapBatches(self._node, _callable(function, "map_batches"), _schema(schema)))

    def union(self, *others: DataStream) -> DataStream:
        """The rows of this stream and the others; all have the same columns, whatever their order."""
        for other in others:
            if not isinstance(other, DataStream):
                raise ConfigError(f"union takes streams, not {type(other).__name__}", hint="environment.from_source(…)")
        return self._then(_plan.Union((self._node, *(other._node for other in others))))

    def deduplicate(self, *keys: str, event_time: str | None = None, within: Duration | None = None) -> DataStream:
        """The first row of each key.

        Args:
            keys: The columns that make a row the same.
            event_time: A timestamp column; with `within`, a key is forgotten that long after it was seen, so that
                the memory of keys stays bounded. Without both, every key is remembered for ever.
            within: How far apart, in event time, two rows of one key can be: a timedelta, seconds or a text such as
                ``"5m"``.

        Raises:
            ConfigError: If there is no key, or one of `event_time` and `within` is missing or wrong.
        """
        if not keys:
            raise ConfigError("deduplicate without keys", hint='name the columns: deduplicate("id")')
        if (event_time is None) != (within is None):
            raise ConfigError(
                "deduplicate needs both event_time and within, or neither", hint='event_time="at", within="1h"'
            )
        for name in (*keys, *([] if event_time is None else [event_time])):
            _text(name, "deduplicate")
        span = None if within is None else duration("within", within)
        return self._then(_plan.Deduplicate(self._node, keys, event_time, span))

    def to_sink(self, sink: Sink) -> DataStream:
        """The rows go to `sink`; the stream goes on behind it, so that several sinks can follow each other.

        All sinks of a stream are fed from one computation of the epoch, and each is committed by itself.
        """
        if not isinstance(sink, Sink):
            raise ConfigError(
                f"to_sink takes a Sink, not {type(sink).__name__}",
                hint="for example IcebergSink(config), FileSink(path), MemorySink(), ConsoleSink()",
            )
        if any(write.sink is sink for write in _plan.writes(self._node)):
            raise PlanError(f"{sink!r} is in this stream twice", hint="make a second sink")
        return self._then(_plan.Write(self._node, sink))

    def start(
        self,
        name: str,
        *,
        fresh: bool = False,
        into: Into | None = None,
        backfill: bool = False,
        metrics_port: int | None = None,
        metrics_host: str = "127.0.0.1",
    ) -> Job:
        """Start the pipeline and return the running job at once: for notebooks and services.

        Args:
            name: The job's name; its checkpoint is kept under it, so that the next start goes on where this one ends.
            fresh: True deletes the job's checkpoint first, so that the sources are read from the beginning.
            into: What happens to rows that the sinks hold of an earlier checkpoint of this job, when it begins anew or
                a backfill fills them: ``"append"`` keeps them, ``"replace"`` empties the sinks first, whoever has
                written their rows (of dead letters those of this job); None = the job is refused, as every row would
                be there twice.
            backfill: True fills sinks that are new since the job's last run with the rows of all epochs so far.
            metrics_port: Where Prometheus can read the metrics over HTTP while the job runs; 0 = a free port, which
                `Job.metrics_url` tells; None = nowhere.
            metrics_host: The address to listen at; in a container ``"0.0.0.0"``, so that others can reach it.

        Raises:
            PlanError: If the job runs in this process already, or its checkpoint is of another pipeline.
            VolleyError: If it can't be started; nothing has been written then.
        """
        return self._environment.start(
            self._node, Start(name, fresh, into, backfill, metrics_port=metrics_port, metrics_host=metrics_host)
        )

    def execute(
        self,
        name: str,
        *,
        fresh: bool = False,
        into: Into | None = None,
        backfill: bool = False,
        metrics_port: int | None = None,
        metrics_host: str = "127.0.0.1",
    ) -> Job:
        """Run the pipeline to the end of its bounded sources, or until it is stopped; returns the finished job.

        Ctrl-C and SIGTERM finish the running epoch first.

        Args:
            name: The job's name; its checkpoint is kept under it, so that the next run goes on where this one ends.
            fresh: See `start`.
            into: See `start`.
            backfill: See `start`.
            metrics_port: See `start`.
            metrics_host: See `start`.

        Raises:
            VolleyError: If it can't be started, or fails; what the last committed epoch wrote stays.
        """
        from volley._terminal import follow

        job = self.start(
            name, fresh=fresh, into=into, backfill=backfill, metrics_port=metrics_port, metrics_host=metrics_host
        )
        follow(job)
        if job.exception is not None:
            # Without the frames of py4j and Spark, in which the epoch ran.
            raise job.exception.with_traceback(None)
        return job

    def explain(self) -> None:
        """Print the logical plan and the execution path it takes, with the reason."""
        print(f"path: {_plan.choose_path(self._node, self._environment.arrow_native)}\n{self}")

    def __str__(self) -> str:
        return _plan.describe(self._node)

    def __repr__(self) -> str:
        return f"DataStream(\n{self}\n)"

    def _repr_html_(self) -> str:
        path = _plan.choose_path(self._node, self._environment.arrow_native)
        return f"<div><b>DataStream</b> · {html.escape(str(path))}<pre>{html.escape(str(self))}</pre></div>"

    def _then(self, node: _plan.Node) -> DataStream:
        return DataStream(node, self._environment)


def _schema(schema: SchemaLike | None) -> Any:
    return None if schema is None else check_schema(schema)


def _text(name: str, verb: str) -> str:
    if not isinstance(name, str) or not name:
        raise ExpressionError(
            f"{verb} takes column names, not {name!r} of type {type(name).__name__}", hint="a text that is not empty"
        )
    return name


def _callable(function: Callable[..., Any], verb: str) -> Callable[..., Any]:
    if not callable(function):
        raise ConfigError(f"{verb} takes a function, not {type(function).__name__}", hint=f"{verb}(lambda …: …)")
    return function
