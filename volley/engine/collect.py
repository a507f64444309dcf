"""Runs the steps of a stream in this process, without Spark and without a checkpoint, by the code that tasks run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa

from volley.columns.schemas import Schemas
from volley.connectors.memory.sink import MemorySink
from volley.contracts.dimension import Dimension
from volley.contracts.epoch import WriteResult
from volley.contracts.sink import TaskWriter, Writer
from volley.contracts.source import Reader, Source, SourceContext, SparkSource
from volley.engine.joins import with_rows, with_schemas
from volley.errors import PlanError
from volley.plan import graph, keyed_nodes, nodes
from volley.plan.pushdown import used_columns, used_rows
from volley.task.task import InputSplit, Task, TaskPlan
from volley.task.tree import SinkStep, grow
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

    def of_read(read: nodes.Read) -> pa.Schema | None:
        schema = read.source.declared()
        return None if schema is None else canonical_schema(schema)

    return Schemas(of_read).of(node)


def collect(node: nodes.Node, limit: int | None) -> pa.Table:
    """Return the rows of a node: those that its sources have now.

    Args:
        limit: The most rows; reading ends with them. None = all.

    Raises:
        PlanError: If a step or a source needs Spark.
        VolleyError: If a source can't be read, a step does not fit its input, or a step fails at a row.
    """
    while isinstance(node, keyed_nodes.Limit):
        limit, node = min(node.rows, node.rows if limit is None else limit), node.input
    keyed = [step.label() for step in graph.walk([node]) if isinstance(step, keyed_nodes.Keyed)]
    if keyed:
        raise PlanError(
            f"only a job can compute these rows: {keyed[0]}",
            hint="look at the rows before that step, or run a job: .to_sink(MemorySink())",
        )
    (write,) = with_schemas([nodes.Write(node, MemorySink("rows"))])
    with TemporaryDirectory(prefix="volley-") as state:
        reads = _readable(write)
        readers = [_opened(write, read, Path(state, f"source-{number}")) for number, read in enumerate(reads)]
        known = {id(read): reader.schema for read, reader in zip(reads, readers, strict=True)}
        # Check every step before the tables are read: joins that don't fit can't be indexed.
        Schemas(lambda read: known[id(read)]).known(write)
        (write,) = with_rows([write])
        schemas = Schemas(lambda read: known[id(read)])
        rows, followers = _KeptRows(limit), graph.followers_in(graph.walk([write]))
        plan = TaskPlan(
            tuple(reader.split_reader() for reader in readers),
            tuple(grow(read, {0: write}, followers, schemas, dictionaries=False) for read in reads),
            (SinkStep(schemas.known(write), None, write.order),),
        )
        with suppress(_Enough):
            list(Task(0, plan, (rows,))(_splits(reads, readers)))
        return pa.Table.from_batches(rows.batches, schemas.known(write))


def sources(node: nodes.Node) -> list[Source]:
    """Return the sources of a node's rows, in plan order."""
    return [read.source for read in _reads(node)]


def tables(node: nodes.Node) -> list[Dimension]:
    """Return the tables that a node's rows are joined with, in plan order."""
    return [step.join.table for step in graph.walk([node]) if isinstance(step, nodes.Join)]


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
    return [step for step in graph.walk([node]) if isinstance(step, nodes.Read)]


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
    followers = graph.followers_in(graph.walk([write]))
    context = SourceContext(str(state), predicate=used_rows(followers, read), columns=used_columns(followers, read))
    return read.source.open(context)


def _splits(reads: Sequence[nodes.Read], readers: Sequence[Reader]) -> Iterator[InputSplit]:
    """Yield the splits of what the readers have now."""
    for number, (read, reader) in enumerate(zip(reads, readers, strict=True)):
        start = reader.initial_offset()
        end = last = reader.latest_offset(start, None, None)
        while end != start:
            for split in reader.splits(start, end):
                yield InputSplit(number, split)
            # A bounded source may need several epochs; one without end would always have more.
            start, end = end, reader.latest_offset(end, None, last) if read.source.bounded else end
