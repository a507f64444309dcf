"""Compiles a job's graph for Spark: a streaming DataFrame, and what each task does with its rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import starmap
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from volley.arrow.aggregator import Aggregator
from volley.arrow.operators import Operator
from volley.arrow.schemas import Schemas
from volley.arrow.series import SeriesOperator
from volley.arrow.stream_joins import StreamJoiner
from volley.errors import VolleyError
from volley.notes import NotesBox
from volley.plan import graph, keyed_nodes, nodes
from volley.plan.places import naming
from volley.plan.pushdown import only_keys, used_columns, used_rows
from volley.plan.stages import stages
from volley.source import Offset, Reader, Source, SourceContext, SparkSource
from volley.spark import nodes as spark_nodes
from volley.spark.datasource import data_source
from volley.spark.errors import translate, unpicklable
from volley.spark.expressions import named_column, to_spark_schema
from volley.spark.offset_stream import offset_stream
from volley.task.exchange import Exchange
from volley.task.merging import Merger
from volley.task.notes_folder import NotesFolder
from volley.task.task import TaskPlan
from volley.task.tree import SinkStep, grow
from volley.types.arrow import canonical_schema

if TYPE_CHECKING:
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
        frame: The streaming DataFrame; empty on the Arrow-native path, where tasks read the splits.
        tasks: What the tasks do.
        readers: One per line of an epoch's entry in Spark's offset log; None = Spark reads that source.
        sources: The source of each of these lines.
        stateful: True if Spark may keep state for `frame`: it must then be evaluated in every epoch.
        operators: The keyed steps; their inputs follow the sinks in `tasks`.
        merging: What the tasks of the second stage do, which read what comes out of these; None without any.
        notes: Where the tasks in which Spark reads a source leave their notes for the driver.
    """

    frame: DataFrame
    tasks: TaskPlan
    readers: tuple[Reader | None, ...]
    sources: tuple[Source, ...]
    stateful: bool
    operators: tuple[Operator, ...] = ()
    merging: TaskPlan | None = None
    notes: tuple[NotesFolder | NotesBox, ...] = ()


def compile_plan(
    spark: SparkSession,
    writes: Sequence[nodes.Write],
    path: graph.ExecutionPath,
    state: str,
    job: str,
    target: Target | None = None,
) -> CompiledPlan:
    """Open the sources of a job, check every step against the schema of its input, build the streaming frame.

    Args:
        spark: The session.
        writes: The writes of the job, in the order of its sinks.
        path: The execution path to take.
        state: The fsspec URL of the folder below which sources keep their state, as long as the checkpoint lives.
        job: The job's name, from which the sources get their names in Spark.
        target: Returns the last offset that a bounded run reads of a source; None = Spark asks the reader.

    Raises:
        PlanError: If the plan can't run as it is built.
        ExpressionError: If a step names an unknown column or combines types that don't fit.
        SourceError: If a source can't be opened.
        JobError: If Spark rejects the plan.
    """
    try:
        _check_functions(writes)
        compiler = _Compiler(spark, writes, path, state, job, target)
        return compiler.arrow_native() if path.arrow_native else compiler.general()
    except VolleyError:
        raise
    except Exception as error:
        translated = translate(error, job)
        raise translated from translated.__cause__


def _check_functions(writes: Sequence[nodes.Write]) -> None:
    """Raise the error of a function that can't be sent to the executors; PySpark prints a traceback of its own."""
    for node in graph.walk(writes):
        if isinstance(node, nodes.Apply):
            with naming(node):
                try:
                    cloudpickle.dumps(node.function)
                except Exception as error:
                    raise unpicklable(node.label(), error) from error


class _Compiler:
    def __init__(
        self,
        spark: SparkSession,
        writes: Sequence[nodes.Write],
        path: graph.ExecutionPath,
        state: str,
        job: str,
        target: Target | None,
    ) -> None:
        self._spark = spark
        self._writes = writes
        self._path = path
        self._job = job
        self._target = target
        self._stages = stages(writes)
        self._inputs = list(starmap(self._open, graph.states(writes, path, state)))
        of_read = {id(source.read): source.schema for source in self._inputs}
        self._schemas = Schemas(lambda read: of_read[id(read)])
        sinks = [self._sink_step(number, write) for number, write in enumerate(writes)]
        intakes = [intake for step in self._stages.keyed for intake in step.intakes]
        self._sinks = (*sinks, *(SinkStep(self._schemas.known(intake.inputs[0]), None) for intake in intakes))

    def _sink_step(self, number: int, write: nodes.Write) -> SinkStep:
        exchange, node = None, write.repartition
        # On the general path, Spark divides the rows that it has.
        if node and (self._path.arrow_native or number not in self._stages.ends):
            exchange = Exchange(node.tasks or self._spark.sparkContext.defaultParallelism, node.keys)
        return SinkStep(self._schemas.known(write), write.sink.batch_size, write.order, exchange)

    def arrow_native(self) -> CompiledPlan:
        """Compile for the Arrow-native path: the tasks read the splits and run all steps."""
        # Spark would compile Java code for a frame that is never evaluated.
        self._spark.conf.set("spark.sql.codegen.wholeStage", "false")
        trees = tuple(
            grow(source.read, self._stages.ends, self._schemas, self._take_dictionaries(source.read))
            for source in self._inputs
        )
        readers = tuple(source.opened for source in self._inputs if isinstance(source.opened, Reader))
        sources = tuple(source.read.source for source in self._inputs)
        box = NotesBox()
        first, *others = (self._offsets(number, reader, box) for number, reader in enumerate(readers))
        for other in others:
            first = first.union(other)
        tasks = TaskPlan(tuple(reader.split_reader() for reader in readers), trees, self._sinks)
        return self._with_second_stage(CompiledPlan(first, tasks, readers, sources, stateful=False, notes=(box,)))

    def general(self) -> CompiledPlan:
        """Compile for the general path: Spark runs the steps up to the last wide one, the tasks run the rest."""
        heads = graph.heads(self._writes)
        trees = tuple(grow(head, writes, self._schemas, dictionaries=False) for head, writes in heads)
        inputs = iter(enumerate(self._inputs))
        frame = _side_by_side([self._frame(head, inputs) for head, _ in heads])
        self._size_batches([sink.batch_size for sink in self._sinks if sink.batch_size])
        # The frame of a SparkSource may be stateful; Volley can't tell.
        has_frames = any(isinstance(source.opened, DataFrame) for source in self._inputs)
        stateful = bool(graph.stateful(self._writes, self._path)) or has_frames
        readers = tuple(reader for source in self._inputs for reader in source.streams)
        sources = tuple(source.read.source for source in self._inputs for _ in source.streams)
        tasks = TaskPlan((), trees, self._sinks)
        notes = tuple(dict.fromkeys(source.notes for source in self._inputs if isinstance(source.opened, Reader)))
        for folder in notes:
            folder.make()
        return self._with_second_stage(CompiledPlan(frame, tasks, readers, sources, stateful, notes=notes))

    def _with_second_stage(self, plan: CompiledPlan) -> CompiledPlan:
        """Add the second stage, if there is one."""
        keyed = self._stages.keyed
        if not keyed:
            return plan
        operators = tuple(map(self._operator, keyed))
        trees = tuple(
            grow(step, writes, self._schemas, dictionaries=False)
            for step, writes in zip(keyed, self._stages.writes, strict=True)
        )
        merging = TaskPlan(tuple(map(Merger, operators)), trees, self._sinks, of_sources=False)
        return replace(plan, operators=operators, merging=merging)

    def _operator(self, step: keyed_nodes.Keyed) -> Operator:
        schemas = [self._schemas.known(intake.inputs[0]) for intake in step.intakes]
        if isinstance(step, keyed_nodes.JoinStreams):
            return StreamJoiner(step, *schemas)
        if isinstance(step, keyed_nodes.Series):
            return SeriesOperator(step, *schemas)
        assert isinstance(step, keyed_nodes.Aggregate)
        return Aggregator(step, *schemas)

    def _take_dictionaries(self, read: nodes.Read) -> bool:
        """Return True if columns may stay dictionary-encoded: all that gets rows of the source accepts that."""
        sinks = [end.sink for end in self._stages.ends.values() if isinstance(end, nodes.Write) and _reads(end, read)]
        return all(sink.takes_dictionaries for sink in sinks)

    def _open(self, read: nodes.Read, folder: str) -> _Input:
        with naming(read):
            return _Input(read, self._opened(read, folder), NotesFolder(f"{folder}/unknown"))

    def _opened(self, read: nodes.Read, folder: str) -> Reader | DataFrame:
        if isinstance(read.source, SparkSource):
            try:
                return read.source.load(self._spark)
            except Exception as error:
                translated = translate(error, self._job)
                raise translated from translated.__cause__
        dictionaries = self._path.arrow_native and self._take_dictionaries(read)
        context = SourceContext(
            folder,
            self._spark.sparkContext.defaultParallelism,
            dictionaries,
            used_rows(self._writes, read),
            None if self._has_dead_letter(read) else used_columns(self._writes, read),
            only_keys(self._writes, read),
        )
        return read.source.open(context)

    def _has_dead_letter(self, read: nodes.Read) -> bool:
        """Return True if a row of the source may go to a dead letter, which has all of its columns."""
        return any(write.dead_letter is not None and _reads(write, read) for write in self._writes)

    def _size_batches(self, sizes: list[int]) -> None:
        """Set the size of Spark's Arrow batches to the largest batch size of the sinks."""
        conf = self._spark.conf
        if sizes:
            conf.set(f"{_BATCH}.maxRecordsPerBatch", str(max(sizes)))
        if max(sizes, default=0) <= _DEFAULT_BATCH_ROWS and conf.get(f"{_BATCH}.maxBytesPerBatch", None) is None:
            # Otherwise Spark re-measures the batch after every row: half of the JVM's CPU.
            conf.set(f"{_BATCH}.maxBytesPerBatch", str(2**31 - 1))

    def _offsets(self, number: int, reader: Reader, notes: NotesBox) -> DataFrame:
        return offset_stream(self._spark, self._name(number), reader, self._end(number, reader), notes)

    def _stream(self, number: int, reader: Reader, source: _Input) -> DataFrame:
        name, schema = self._name(number), to_spark_schema(source.schema)
        self._spark.dataSource.register(data_source(name, reader, schema, self._end(number, reader), source.notes))
        return self._spark.readStream.format(name).load()

    def _name(self, number: int) -> str:
        return f"volley-{self._job}-{number}"

    def _end(self, number: int, reader: Reader) -> Offset | None:
        return None if self._target is None else self._target(number, reader)

    def _frame(self, node: nodes.Node, inputs: Iterator[tuple[int, _Input]]) -> DataFrame:
        """Return the frame of a node's output.

        Args:
            node: The node.
            inputs: The remaining inputs with their indices. A read that several streams share has an input for each of
                them: two scans of one reader would write to the same folder.
        """
        line = [node]
        while not isinstance(line[0], nodes.Read | nodes.Union):
            line.insert(0, line[0].inputs[0])
        first, *steps = line
        return reduce(self._after, steps, self._first_frame(first, inputs))

    def _first_frame(self, node: nodes.Node, inputs: Iterator[tuple[int, _Input]]) -> DataFrame:
        if isinstance(node, nodes.Read):
            number, source = next(inputs)
            if isinstance(source.opened, Reader):
                return self._stream(number, source.opened, source)
            return source.opened
        assert isinstance(node, nodes.Union)
        frames = [self._frame(before, inputs) for before in node.inputs]
        return reduce(lambda one, other: one.unionByName(other), frames)

    def _after(self, frame: DataFrame, node: nodes.Node) -> DataFrame:
        if isinstance(node, nodes.Deduplicate):
            return _deduplicate(frame, node)
        if isinstance(node, nodes.Limit):
            return frame.limit(node.rows)
        if isinstance(node, nodes.Repartition):
            tasks = node.tasks or self._spark.sparkContext.defaultParallelism
            return frame.repartition(tasks, *map(named_column, node.keys))
        return spark_nodes.apply(frame, node, self._schemas.known(node.inputs[0]))


@dataclass(frozen=True)
class _Input:
    """A read, its opened source (a reader, or the frame of a SparkSource), and where its tasks leave notes."""

    read: nodes.Read
    opened: Reader | DataFrame
    notes: NotesFolder

    @property
    def schema(self) -> pa.Schema:
        if isinstance(self.opened, Reader):
            return self.opened.schema
        return canonical_schema(to_arrow_schema(self.opened.schema, timezone="UTC"))

    @property
    def streams(self) -> list[Reader | None]:
        """The reader for each of its lines in Spark's offset log; None = Spark reads it."""
        if isinstance(self.opened, Reader):
            return [self.opened]
        leaves: Any = self.opened._jdf.queryExecution().analyzed().collectLeaves()
        return [None for index in range(leaves.length()) if leaves.apply(index).isStreaming()]


def _reads(node: nodes.Node, read: nodes.Read) -> bool:
    return any(before is read for before in graph.walk([node]))


def _deduplicate(frame: DataFrame, node: nodes.Deduplicate) -> DataFrame:
    if node.event_time is None or node.within is None:
        return frame.dropDuplicates(list(node.keys))
    watermark = f"{node.within.total_seconds()} seconds"
    return frame.withWatermark(node.event_time, watermark).dropDuplicatesWithinWatermark(list(node.keys))


def _side_by_side(frames: Sequence[DataFrame]) -> DataFrame:
    """Combine several frames into one with a struct column for each; a row has one struct, the others are null."""
    if len(frames) == 1:
        return frames[0]
    structs = [frame.select(F.struct("*").alias(str(number))) for number, frame in enumerate(frames)]
    first, *others = structs
    for other in others:
        first = first.unionByName(other, allowMissingColumns=True)
    return first
