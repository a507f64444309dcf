"""Compiles a job's graph: the streaming DataFrame that has its epochs, and what the tasks do with the rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, reduce
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from volley.columns.operators import Operator
from volley.columns.schemas import Schemas
from volley.contracts.rows import NotesBox
from volley.contracts.source import Offset, Reader, Source, SourceContext, SparkSource
from volley.plan import nodes
from volley.plan.graph import JobGraph
from volley.plan.places import naming
from volley.plan.pushdown import only_keys, used_columns, used_rows
from volley.spark.errors import translating, unpicklable
from volley.spark.offsets import offset_stream
from volley.spark.pushed import pushed
from volley.task.plans import merging_plan, sink_steps, tree_of
from volley.task.task import TaskPlan
from volley.task.tree import grouped
from volley.types.arrow import canonical_schema

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

__all__ = ["CompiledPlan", "compile_plan"]

_BATCH = "spark.sql.execution.arrow"
Target = Callable[[int, Reader], Offset]
"""Returns the last offset that a run reads of a source, from the number of its line in Spark's offset log."""

# Spark's default; a larger batch needs a limit of bytes as well.
_DEFAULT_BATCH_ROWS = 10_000


@dataclass(frozen=True)
class CompiledPlan:
    """A job compiled for Spark.

    Args:
        frame: The streaming DataFrame: it has the epochs of all sources, and the rows of those that Spark reads; None =
            Spark reads none.
        tasks: What the tasks do: they read the splits of the other sources.
        readers: One per line of an epoch's entry in Spark's offset log; None = Spark reads that source.
        targets: Per reader, the last offset that a bounded run reads; None = the reader says at the run's start.
        sources: The source of each tree in `tasks`.
        operators: The keyed steps; their inputs follow the sinks in `tasks`.
        merging: What the tasks of the keyed steps do, which read what comes out of these; None without any.
        schemas: The schema after each step.
        notes: Gets what sources note while they are asked for offsets.
    """

    graph: JobGraph
    context: SparkContext
    frame: DataFrame | None
    tasks: TaskPlan
    readers: tuple[Reader | None, ...]
    targets: tuple[Offset | None, ...]
    sources: tuple[Source, ...]
    schemas: Schemas
    operators: tuple[Operator, ...] = ()
    merging: TaskPlan | None = None
    notes: NotesBox = field(default_factory=NotesBox)

    @cached_property
    def names(self) -> Mapping[int, str]:
        """The name of each reader's source in metrics, by the reader's id."""
        own = [reader for reader in self.readers if reader is not None]
        return {id(reader): source.identity for reader, source in zip(own, self.sources, strict=False)}

    @property
    def groups(self) -> list[int]:
        """The group of each sink, see `grouped`."""
        trees = (*self.tasks.trees, *(self.merging.trees if self.merging else ()))
        return grouped(trees, len(self.tasks.sinks))[: len(self.graph.writes)]


def compile_plan(
    context: SparkContext,
    session: Callable[[], SparkSession],
    graph: JobGraph,
    state: str,
    job: str,
    target: Target | None = None,
) -> CompiledPlan:
    """Open the sources of a job, check every step against the schema of its input, build the streaming frame.

    Args:
        session: Returns a session of the job's own; only called if Spark reads a source.
        state: The fsspec URL of the folder below which sources keep their state, as long as the checkpoint lives.
        job: The job's name, from which the sources get their names in Spark.
        target: Returns the last offset that a bounded run reads of a source; None = Spark asks the reader.

    Raises:
        PlanError: If the plan can't run as it is built.
        ExpressionError: If a step names an unknown column or combines types that don't fit.
        SourceError: If a source can't be opened.
        JobError: If Spark rejects the plan.
    """
    with translating(job):
        _check_functions(graph)
        return _Compiler(context, session, graph, state, job, target).compiled()


def _check_functions(graph: JobGraph) -> None:
    """Raise the error of a function that can't be sent to the executors; PySpark prints a traceback of its own."""
    for node in graph.nodes:
        if isinstance(node, nodes.Apply):
            with naming(node):
                try:
                    cloudpickle.dumps(node.function)
                except Exception as error:
                    raise unpicklable(node.label(), error) from error


class _Compiler:
    def __init__(
        self,
        context: SparkContext,
        session: Callable[[], SparkSession],
        graph: JobGraph,
        state: str,
        job: str,
        target: Target | None,
    ) -> None:
        self._context = context
        self._session = session
        self._graph = graph
        self._state = state
        self._job = job
        self._target = target
        self._inputs = [self._open(*read) for read in zip(graph.reads, graph.state_names, strict=True)]
        of_read = {id(source.read): source.schema for source in self._inputs}
        self._schemas = Schemas(lambda read: of_read[id(read)])
        self._sinks = sink_steps(graph, self._schemas, context.defaultParallelism)

    @cached_property
    def _spark(self) -> SparkSession:
        return self._session()

    def compiled(self) -> CompiledPlan:
        """Compile the job: the tasks run all steps, on the rows of readers and of Spark's frames."""
        inputs = sorted(self._inputs, key=lambda source: source.frame is not None)
        trees = tuple(
            tree_of(source.read, self._graph, self._schemas, self._takes_dictionaries(source)) for source in inputs
        )
        readers = tuple(source.reader for source in inputs if source.reader)
        split_readers, nodes = tuple(reader.split_reader() for reader in readers), len(self._graph.nodes)
        tasks = TaskPlan(split_readers, trees, self._sinks, nodes=nodes)
        lines = tuple(reader for source in self._inputs for reader in source.lines)
        sources, notes = tuple(source.read.source for source in inputs), NotesBox()
        targets = {line: self._end(line, reader) for line, reader in enumerate(lines) if reader is not None}
        frame, ends = self._frame(targets, notes), tuple(targets.values())
        operators, merging = merging_plan(self._graph, self._schemas, self._sinks)
        return CompiledPlan(
            *(self._graph, self._context, frame, tasks, lines, ends, sources, self._schemas, operators, merging),
            notes=notes,
        )

    def _frame(self, targets: Mapping[int, Offset | None], notes: NotesBox) -> DataFrame | None:
        """Return the frame of all sources, in plan order, as Spark's offset log has them; None if Spark reads none.

        The rows of several frames of Spark are in a struct column for each; a row has one struct, the others are null.
        """
        frames = [source.frame for source in self._inputs if source.frame is not None]
        if not frames:
            return None
        self._size_batches([sink.batch_size for sink in self._sinks if sink.batch_size])
        parts, lines, number = [], 0, 0
        for source in self._inputs:
            if source.frame is None:
                assert source.reader is not None
                name = f"volley-{self._job}-{lines}"
                parts.append(offset_stream(self._spark, name, source.reader, targets[lines], notes))
            elif len(frames) == 1:
                parts.append(source.frame)
            else:
                parts.append(source.frame.select(F.struct("*").alias(str(number))))
                number += 1
            lines += len(source.lines)
        return reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), parts)

    def _takes_dictionaries(self, source: _Input) -> bool:
        return source.reader is not None and self._dictionaries(source.read)

    def _dictionaries(self, read: nodes.Read) -> bool:
        """Return True if columns may stay dictionary-encoded: all that gets rows of the source accepts that."""
        direct = zip(self._graph.writes, self._graph.starts, strict=True)
        return all(write.sink.takes_dictionaries for write, starts in direct if any(start is read for start in starts))

    def _open(self, read: nodes.Read, state_name: str) -> _Input:
        with naming(read):
            if isinstance(read.source, SparkSource):
                return self._loaded(read, read.source)
            context = SourceContext(
                f"{self._state}/{state_name}",
                self._context.defaultParallelism,
                self._dictionaries(read),
                used_rows(self._graph.followers, read),
                self._used_columns(read),
                only_keys(self._graph.followers, read),
            )
            reader = read.source.open(context)
            return _Input(read, reader.schema, (reader,), reader)

    def _loaded(self, read: nodes.Read, source: SparkSource) -> _Input:
        """Return the frame of a source that Spark reads, with the filters and columns that Spark can apply as well."""
        # Within the step's place, which the error names.
        with translating(self._job):
            frame = source.load(self._spark)
            lines = _streaming_leaves(frame)
            frame = pushed(frame, used_rows(self._graph.followers, read), self._used_columns(read))
        schema = canonical_schema(to_arrow_schema(frame.schema, timezone="UTC"))
        return _Input(read, schema, (None,) * lines, frame=frame)

    def _used_columns(self, read: nodes.Read) -> frozenset[str] | None:
        """Return the columns to read; all, if a row of the source may go to a dead letter, which has all of them."""
        sinks = self._graph.sinks_behind[id(read)]
        has_letter = any(self._graph.writes[sink].dead_letter is not None for sink in sinks)
        return None if has_letter else used_columns(self._graph.followers, read)

    def _size_batches(self, sizes: list[int]) -> None:
        """Set the size of Spark's Arrow batches to the largest batch size of the sinks."""
        conf = self._spark.conf
        if sizes:
            conf.set(f"{_BATCH}.maxRecordsPerBatch", str(max(sizes)))
        if max(sizes, default=0) <= _DEFAULT_BATCH_ROWS and conf.get(f"{_BATCH}.maxBytesPerBatch", None) is None:
            # Otherwise Spark re-measures the batch after every row: half of the JVM's CPU.
            conf.set(f"{_BATCH}.maxBytesPerBatch", str(2**31 - 1))

    def _end(self, number: int, reader: Reader) -> Offset | None:
        return None if self._target is None else self._target(number, reader)


@dataclass(frozen=True)
class _Input:
    """A read, and its opened source: a reader, or the frame of a source that Spark reads.

    `lines` has the reader for each of its lines in Spark's offset log; None = Spark reads it.
    """

    read: nodes.Read
    schema: pa.Schema
    lines: tuple[Reader | None, ...]
    reader: Reader | None = None
    frame: DataFrame | None = None


def _streaming_leaves(frame: DataFrame) -> int:
    """Return the number of sources that Spark reads for a frame."""
    leaves: Any = frame._jdf.queryExecution().analyzed().collectLeaves()
    return sum(bool(leaves.apply(index).isStreaming()) for index in range(leaves.length()))
