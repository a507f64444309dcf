"""Runs the steps of a stream in this process, without Spark and without a checkpoint, by the code that jobs run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp

import pyarrow as pa

from volley.columns.clock import epoch_clock, one_reading
from volley.columns.schemas import Schemas
from volley.connectors.memory.sink import MemorySink
from volley.contracts.dimension import Dimension
from volley.contracts.epoch import WriteResult
from volley.contracts.sink import TaskWriter, Writer
from volley.contracts.source import Offset, Reader, Source, SourceContext, SparkSource
from volley.engine.joins import with_rows, with_schemas
from volley.engine.levels import Levels, keyed_states
from volley.errors import PlanError
from volley.metrics.metrics import Metrics
from volley.plan import graph, keyed_nodes, nodes
from volley.plan.changes import with_changes
from volley.plan.expression_nodes import Column, Literal
from volley.plan.pushdown import used_columns, used_rows
from volley.plan.windows import Windowing, tumbling
from volley.task.plans import merging_plan, sink_steps, tree_of
from volley.task.task import InputSplit, Task, TaskPlan, of_sources, run_here
from volley.types.arrow import canonical_schema

__all__ = ["collect", "declared_schema", "schema_of", "sources", "tables", "with_sources"]


def schema_of(node: nodes.Node) -> pa.Schema:
    """Return the schema of a node's rows; a source whose schema is not declared is opened.

    Raises:
        VolleyError: If a source can't be read, or a step does not fit its input.
        PlanError: If only Spark can read a source.
    """
    (node,) = with_schemas([node])
    with TemporaryDirectory(prefix="volley-") as state:
        known: dict[int, pa.Schema] = {}
        for number, read in enumerate(_readable(node)):
            context = SourceContext(f"{state}/source-{number}")
            schema = read.source.preview(context)
            known[id(read)] = canonical_schema(read.source.open(context).schema if schema is None else schema)
        return Schemas(lambda read: known[id(read)]).known(node)


def declared_schema(node: nodes.Node) -> pa.Schema | None:
    """Return the schema of a node's rows as far as settings tell it, without a look at sources; None = not known.

    Raises:
        VolleyError: If a step does not fit its input.
    """

    def of(values: Source | Dimension) -> pa.Schema | None:
        schema = values.declared()
        return None if schema is None else canonical_schema(schema)

    return Schemas(lambda read: of(read.source), of).of(node)


def collect(node: nodes.Node, limit: int | None) -> pa.Table:
    """Return the rows of a node, as a job has them over sources that end with the rows that they have now.

    Args:
        limit: The most rows; reading ends with them, unless a step keeps state. None = all.

    Raises:
        PlanError: If a source needs Spark, or a job could not run the steps.
        VolleyError: If a source can't be read, a step does not fit its input, or a step fails at a row.
    """
    while isinstance(node, keyed_nodes.Limit):
        limit, node = min(node.rows, node.rows if limit is None else limit), node.input
    # Rows that a step rejects have somewhere to go.
    rows_of_all = graph.rebuilt([node], _windowed)[0]
    with one_reading(), TemporaryDirectory(prefix="volley-") as state:
        (write,) = with_schemas([nodes.Write(rows_of_all, MemorySink("rows"), dead_letter=MemorySink("rejected"))])
        while (rows := _collected(write, limit, state)) is None:
            pass
        return rows


def _collected(write: nodes.Write, limit: int | None, state: str) -> pa.Table | None:
    """Return the rows of a sink; None if they have columns that their source lacks, and has once it is opened anew."""
    reads = _readable(write)
    readers = [_opened(write, read, Path(state, f"source-{number}")) for number, read in enumerate(reads)]
    known = {id(read): reader.schema for read, reader in zip(reads, readers, strict=True)}
    # Check every step before the tables are read: joins that don't fit can't be indexed.
    Schemas(lambda read: known[id(read)]).known(write)
    job = graph.JobGraph.of(with_rows(with_changes([write])))
    _check_names(job, Schemas(lambda read: known[id(read)]))
    run, rows = _Run(job, readers, Schemas(lambda read: known[id(read)]), mkdtemp(dir=state)), _KeptRows(limit)
    with suppress(_Enough):
        if not run.feed(rows):
            return None
    return pa.Table.from_batches(rows.batches, run.schema)


_TIME = "_volley_time"


def _windowed(step: nodes.Node) -> nodes.Node:
    """Return a step whose rows are never final as one of a window that has all rows."""
    if not isinstance(step, keyed_nodes.Changing) or step.on is not None:
        return step
    timed = nodes.WithColumns(step.input, ((_TIME, Literal(datetime(1970, 1, 1))),))
    if isinstance(step, keyed_nodes.Over):
        final = replace(step, input=timed, keys=(*step.keys, Column(_TIME)), ordering=replace(step.ordering, on=_TIME))
        return nodes.Drop(final, (_TIME,))
    assert isinstance(step, keyed_nodes.Aggregate)
    windowed = replace(step, input=timed, windowing=Windowing(tumbling("1s"), on=_TIME))
    return nodes.Drop(windowed, keyed_nodes.WINDOW_COLUMNS)


def _check_names(job: graph.JobGraph, schemas: Schemas) -> None:
    """Raise PlanError if rows that are never final have a column with the name of the time that ends them."""
    for node in job.nodes:
        if (
            isinstance(node, nodes.WithColumns)
            and node.columns[0][0] == _TIME
            and _TIME in schemas.known(node.input).names
        ):
            raise PlanError(f"the rows have a column {_TIME!r}, which is Volley's own", hint="rename it")


def _is_of_all(step: keyed_nodes.Aggregate) -> bool:
    return step.windowing is not None and step.windowing.on == _TIME and not step.keys


def sources(node: nodes.Node) -> list[Source]:
    """Return the sources of a node's rows, in plan order."""
    return [read.source for read in _reads(node)]


def tables(node: nodes.Node) -> list[Dimension]:
    """Return the tables that a node's rows are joined with, in plan order."""
    return [step.join.table for step in nodes.walk([node]) if isinstance(step, nodes.Join)]


def with_sources(node: nodes.Node, others: Sequence[Source], joined: Sequence[Dimension] = ()) -> nodes.Node:
    """Return the plan of a node with other sources and tables.

    Args:
        others: One for each of its sources, in plan order.
        joined: One for each of the tables that it joins, in plan order.
    """
    next_source, next_table = iter(others), iter(joined)

    def changed(step: nodes.Node) -> nodes.Node:
        if isinstance(step, nodes.Join):
            return replace(step, join=replace(step.join, table=next(next_table)))
        return nodes.Read(next(next_source)) if isinstance(step, nodes.Read) else step

    return graph.rebuilt([node], changed)[0]


class _Run:
    """Runs the tasks of a graph with one sink in this process, epoch by epoch, as a job does.

    Args:
        readers: Those of the graph's sources.
        state: The folder for the state of keyed steps.
    """

    def __init__(self, job: graph.JobGraph, readers: Sequence[Reader], schemas: Schemas, state: str) -> None:
        self._job = job
        self._readers = readers
        self.schema = schemas.known(job.writes[0])
        sinks = tuple(replace(step, exchange=None) for step in sink_steps(job, schemas, cores=1))
        trees = tuple(tree_of(read, job, schemas) for read in job.reads)
        self._plan = TaskPlan(tuple(reader.split_reader() for reader in readers), trees, sinks, nodes=len(job.nodes))
        self._ends = False
        self._operators, merging = merging_plan(job, schemas, sinks)
        self._levels = None
        if merging is not None:
            sources, metrics = [read.source for read in job.reads], Metrics()
            states = keyed_states(self._operators, self._plan, merging, state, 1, lambda epoch: self._ends)
            self._levels = Levels("show", job, sources, self._plan, merging, states, [metrics], metrics)

    def feed(self, rows: Writer) -> bool:
        """Feed a writer with the rows that come out; return False if rows had columns that their source lacks."""
        for epoch, splits in enumerate(self._epochs()):
            if self._levels is None:
                has_learned = self._learn(Task(epoch, self._plan, (rows,), now=epoch_clock())(splits))
            else:
                has_learned = self._run(self._levels, epoch, list(splits), rows)
            if has_learned:
                return False
        if self._levels is not None:
            self._feed_all_of_none(self._levels, rows.open(0))
        return True

    def _learn(self, tasks: Iterable[tuple[WriteResult, ...]]) -> bool:
        """Have the readers keep what tasks have seen of columns that they lack; return False if it is nothing."""
        seen = [columns for results in tasks for result in results for columns in result.seen]
        for reader in self._readers:
            if seen and reader.learns:
                reader.learn(seen)
        return bool(seen)

    def _feed_all_of_none(self, levels: Levels, rows: TaskWriter) -> None:
        """Feed the row of each aggregate of all rows to which no row has come.

        Raises:
            PlanError: If a keyed step follows one.
        """
        for number in sorted(levels.without_rows):
            step, operator, tree = self._job.keyed[number], self._operators[number], levels.merging.trees[number]
            if isinstance(step, keyed_nodes.Aggregate) and _is_of_all(step):
                if any(tree.sinks):
                    shown = replace(step, windowing=None)
                    raise PlanError(
                        f"no row has come to {shown.label()}, which a step that keeps state follows",
                        hint="see the rows of the first one alone",
                    )
                nothing = {name: 0 for name, aggregation in step.aggregates if aggregation.is_count}
                row = pa.RecordBatch.from_pylist([nothing], operator.output)
                for sink, batch in tree.outputs(row):
                    self._plan.sinks[sink].write(batch, rows)

    def _run(self, levels: Levels, epoch: int, splits: Sequence[InputSplit], rows: Writer) -> bool:
        """Run an epoch of a plan with keyed steps; return True if its rows had columns that their source lacks."""
        task = levels.task(Task(epoch, self._plan, (rows,), now=epoch_clock()), [True])
        # A task that reads has the rows of one source, whose clock they move.
        of_reader = [[split for split in splits if split.reader == number] for number in range(len(self._readers))]
        results = [result for own in of_reader for result in task(own)]
        if self._learn(results):
            return True
        levels.run(lambda stage, merges, _: run_here(stage, merges), task, of_sources(range(len(results)), results))
        levels.record()
        return False

    def _epochs(self) -> Iterator[Iterator[InputSplit]]:
        """Yield the splits of each epoch of what the readers have now."""
        starts = [reader.initial_offset() for reader in self._readers]
        targets = [reader.latest_offset(start, None, None) for reader, start in zip(self._readers, starts, strict=True)]
        while not self._ends:
            ends = list(map(self._latest, self._readers, self._job.reads, starts, targets))
            self._ends = ends in (targets, starts)
            yield self._splits(starts, ends)
            starts = ends

    def _latest(self, reader: Reader, read: nodes.Read, start: Offset, target: Offset) -> Offset:
        """Return where an epoch ends; a source without an end would always have more."""
        is_whole = reader.limit is None or not read.source.bounded
        return target if is_whole else reader.latest_offset(start, reader.limit, target)

    def _splits(self, starts: Sequence[Offset], ends: Sequence[Offset]) -> Iterator[InputSplit]:
        for number, (reader, start, end) in enumerate(zip(self._readers, starts, ends, strict=True)):
            if start != end:
                yield from (InputSplit(number, split) for split in reader.splits(start, end))


class _Enough(Exception):
    """Ends a task that has read enough rows."""


@dataclass
class _KeptRows(Writer, TaskWriter):
    """Keeps the rows of one task.

    Args:
        limit: The most rows; None = all.
    """

    limit: int | None
    batches: list[pa.RecordBatch] = field(default_factory=list)

    def open(self, task: int) -> TaskWriter:
        return self

    def write(self, batch: pa.RecordBatch) -> None:
        room = batch.num_rows if self.limit is None else self.limit - sum(kept.num_rows for kept in self.batches)
        self.batches.append(batch.slice(0, room))
        if self.limit is not None and batch.num_rows >= room:
            raise _Enough

    def close(self) -> WriteResult:
        return WriteResult()


def _reads(node: nodes.Node) -> list[nodes.Read]:
    return [step for step in nodes.walk([node]) if isinstance(step, nodes.Read)]


def _readable(node: nodes.Node) -> list[nodes.Read]:
    """Return the reads behind a node, if none needs Spark."""
    reads = _reads(node)
    for read in reads:
        if isinstance(read.source, SparkSource):
            raise PlanError(
                f"only Spark can read {read.source!r}", hint="run a job to see its rows: .to_sink(MemorySink())"
            )
    return reads


def _opened(write: nodes.Write, read: nodes.Read, state: Path) -> Reader:
    followers = graph.followers_in(nodes.walk([write]))
    context = SourceContext(str(state), predicate=used_rows(followers, read), columns=used_columns(followers, read))
    return read.source.open(context)
