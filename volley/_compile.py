"""Turns a job's graph into Spark's work: a streaming DataFrame, and what each task does with its rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F

from volley import _columns, _plan
from volley._datasource import data_source
from volley._schemas import Schemas
from volley._spark_errors import translate
from volley._tasks import TaskPlan
from volley._tree import SinkStep, grow
from volley._types import canonical_schema
from volley.errors import VolleyError
from volley.source import Reader, SourceContext, SparkSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["CompiledPlan", "compile_plan"]

_BATCH = "spark.sql.execution.arrow"
# Spark's own number of rows; a batch of more has a limit of bytes too.
_UNWEIGHED_ROWS = 10_000


@dataclass(frozen=True)
class CompiledPlan:
    """A job as Spark runs it.

    Args:
        frame: The streaming DataFrame; it has no rows on the Arrow-native path, where tasks read the splits.
        tasks: What the tasks do.
        stateful: True if Spark may keep state for `frame`, which it then must evaluate in every epoch.
    """

    frame: DataFrame
    tasks: TaskPlan
    stateful: bool


def compile_plan(
    spark: SparkSession, writes: Sequence[_plan.Write], path: _plan.Path, state: str, job: str
) -> CompiledPlan:
    """Open the sources of a job, check every step against the schema before it, build the streaming frame.

    Args:
        spark: The session.
        writes: The writes of the job, in the order of its sinks.
        path: The execution path to take.
        state: The fsspec URL under which sources keep what must live as long as the checkpoint.
        job: The job's name, for the names of the sources in Spark.

    Raises:
        PlanError: If the plan can't be run as it is drawn.
        ExpressionError: If a step names an unknown column or combines types that don't fit.
        SourceError: If a source can't be opened.
        JobError: If Spark refuses the plan.
    """
    try:
        compiler = _Compiler(spark, writes, path, state, job)
        return compiler.arrow_native() if path.arrow_native else compiler.general()
    except VolleyError:
        raise
    except Exception as error:
        made = translate(error, job)
        raise made from made.__cause__


class _Compiler:
    def __init__(
        self, spark: SparkSession, writes: Sequence[_plan.Write], path: _plan.Path, state: str, job: str
    ) -> None:
        self._spark = spark
        self._writes = writes
        self._job = job
        parallelism = spark.sparkContext.defaultParallelism
        states = _plan.states(writes, state)
        self._reads = _plan.reads(writes)
        self._readers: dict[int, Reader] = {}
        self._loaded: dict[int, DataFrame] = {}
        for read in self._reads:
            if isinstance(read.source, SparkSource):
                self._loaded[id(read)] = read.source.load(spark)
            else:
                dictionaries = path.arrow_native and _take_dictionaries(writes, read)
                context = SourceContext(states[id(read)], parallelism, dictionaries)
                self._readers[id(read)] = read.source.open(context)
        self._schemas = Schemas(self._schema)
        streams = list(dict.fromkeys(id(write.input) for write in writes))
        self._sinks = tuple(
            SinkStep(self._schemas.known(write), write.sink.batch_size, streams.index(id(write.input)))
            for write in writes
        )

    def arrow_native(self) -> CompiledPlan:
        """Spark hands out splits; the tasks read them and do all steps."""
        writes = dict(enumerate(self._writes))
        trees = tuple(grow(read, writes, self._schemas, _take_dictionaries(self._writes, read)) for read in self._reads)
        readers = tuple(self._readers[id(read)] for read in self._reads)
        first, *others = (self._stream(number, reader, None) for number, reader in enumerate(readers))
        for other in others:
            first = first.union(other)
        return CompiledPlan(first, TaskPlan(readers, trees, self._sinks), stateful=False)

    def general(self) -> CompiledPlan:
        """Spark runs the steps up to where only narrow ones are left; the tasks do these."""
        heads = _heads(self._writes)
        trees = tuple(grow(head, writes, self._schemas, dictionaries=False) for head, writes in heads)
        frames: dict[int, DataFrame] = {}
        frame = _side_by_side([self._frame(head, frames) for head, _ in heads])
        self._size_batches([sink.batch_size for sink in self._sinks if sink.batch_size])
        # The frame that a SparkSource loads may keep state of which we know nothing.
        stateful = bool(_plan.stateful(self._writes)) or bool(self._loaded)
        return CompiledPlan(frame, TaskPlan((), trees, self._sinks), stateful)

    def _size_batches(self, sizes: list[int]) -> None:
        """Have Spark make Arrow batches of what the sinks want."""
        conf = self._spark.conf
        if sizes:
            conf.set(f"{_BATCH}.maxRecordsPerBatch", str(max(sizes)))
        if max(sizes, default=0) <= _UNWEIGHED_ROWS and conf.get(f"{_BATCH}.maxBytesPerBatch", None) is None:
            # Otherwise Spark re-measures the batch after every row: half of the JVM's CPU.
            conf.set(f"{_BATCH}.maxBytesPerBatch", str(2**31 - 1))

    def _schema(self, read: _plan.Read) -> pa.Schema:
        if id(read) in self._readers:
            return self._readers[id(read)].schema
        from pyspark.sql.pandas.types import to_arrow_schema

        return canonical_schema(to_arrow_schema(self._loaded[id(read)].schema, timezone="UTC"))

    def _stream(self, number: int, reader: Reader, schema: pa.Schema | None) -> DataFrame:
        name = f"volley-{self._job}-{number}"
        spark_schema = None if schema is None else _columns.to_spark_schema(schema)
        self._spark.dataSource.register(data_source(name, reader, spark_schema))
        return self._spark.readStream.format(name).load()

    def _frame(self, node: _plan.Node, frames: dict[int, DataFrame]) -> DataFrame:
        """The rows that a node gives; `frames` has those that were made before, which streams share."""
        if id(node) not in frames:
            frames[id(node)] = self._made(node, [self._frame(each, frames) for each in node.inputs])
        return frames[id(node)]

    def _made(self, node: _plan.Node, inputs: Sequence[DataFrame]) -> DataFrame:
        if isinstance(node, _plan.Read):
            return self._loaded[id(node)] if id(node) in self._loaded else self._stream_of_rows(node)
        if isinstance(node, _plan.Union):
            first, *others = inputs
            for other in others:
                first = first.unionByName(other)
            return first
        if isinstance(node, _plan.Deduplicate):
            return _deduplicate(inputs[0], node)
        return _columns.apply(inputs[0], node, self._schemas.known(node.inputs[0]))

    def _stream_of_rows(self, read: _plan.Read) -> DataFrame:
        reader = self._readers[id(read)]
        return self._stream(list(self._readers).index(id(read)), reader, reader.schema)


def _take_dictionaries(writes: Sequence[_plan.Write], read: _plan.Read) -> bool:
    """Whether columns may stay dictionaries, as every sink takes them that rows of a source get to."""
    return all(write.sink.takes_dictionaries for write in writes if any(node is read for node in _plan.walk([write])))


def _deduplicate(frame: DataFrame, node: _plan.Deduplicate) -> DataFrame:
    if node.event_time is None or node.within is None:
        return frame.dropDuplicates(list(node.keys))
    watermark = f"{node.within.total_seconds()} seconds"
    return frame.withWatermark(node.event_time, watermark).dropDuplicatesWithinWatermark(list(node.keys))


def _heads(writes: Sequence[_plan.Write]) -> list[tuple[_plan.Node, dict[int, _plan.Write]]]:
    """The nodes whose rows Spark hands to the tasks, each with the writes behind it: only narrow steps lie between.

    Writes behind the same step that only Spark can run share a head: the last node that all of them have in common.
    """
    shared: dict[int, tuple[list[_plan.Node], dict[int, _plan.Write]]] = {}
    for number, write in enumerate(writes):
        line = _narrow_line(write.input)
        known, behind = shared.get(id(line[0]), (line, {}))
        common = [node for node, other in zip(known, line, strict=False) if node is other]
        shared[id(line[0])] = common, {**behind, number: write}
    return [(line[-1], behind) for line, behind in shared.values()]


def _narrow_line(node: _plan.Node) -> list[_plan.Node]:
    """The narrow steps that lead to a node, and in front of them the first node that is none, or has several inputs."""
    line = [node]
    while line[0].narrow and len(line[0].inputs) == 1:
        line.insert(0, line[0].inputs[0])
    return line


def _side_by_side(frames: Sequence[DataFrame]) -> DataFrame:
    """All rows of several frames in one, each as a struct in the column of its frame; the others are null."""
    if len(frames) == 1:
        return frames[0]
    structs = [frame.select(F.struct("*").alias(str(number))) for number, frame in enumerate(frames)]
    first, *others = structs
    for other in others:
        first = first.unionByName(other, allowMissingColumns=True)
    return first
