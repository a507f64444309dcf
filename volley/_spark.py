"""Plans become Spark's work here: nodes → a streaming DataFrame, and one task that feeds the writers."""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark import TaskContext

from volley import _columns, _plan, errors
from volley._arrow import Stage, lower
from volley._datasource import data_source
from volley._dead_letters import DATA_ERRORS, DeadLetters, Sorter, blamed
from volley._failpoints import reach
from volley._tally import Reports
from volley._types import canonical_schema, conform
from volley._workers import settle
from volley.errors import JobError, PlanError, VolleyError
from volley.sink import Chore, TaskWriter, Writer, WriteResult
from volley.source import SparkSource, Split, SplitSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Program", "Segment", "Task", "compile_plan", "run_chores", "run_task", "translate"]

_RESULT = "result binary"


@dataclass(frozen=True)
class Segment:
    """The narrow steps up to one sink, on Arrow batches."""

    stage: Stage
    batch_size: int | None

    def run(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """What the sink gets of these rows."""
        return self.stage(conform(batch, self.stage.input))

    def write(self, batch: pa.RecordBatch, writer: TaskWriter) -> None:
        """Hand rows of the sink to its writer, in batches of the sink's size."""
        size = self.batch_size or batch.num_rows
        for start in range(0, batch.num_rows, size):
            writer.write(batch.slice(start, size))


@dataclass(frozen=True)
class Program:
    """A compiled plan: the stream of rows or splits, and what each task does with them.

    Args:
        frame: The streaming DataFrame that Spark runs.
        source: The source whose splits `frame` carries, on the Arrow-native path; None: it carries rows.
        segments: One for each sink, in plan order; the rows of one go on to the next.
    """

    frame: DataFrame
    source: SplitSource | None
    segments: tuple[Segment, ...]

    @property
    def schemas(self) -> tuple[pa.Schema, ...]:
        """The Arrow schema of the rows each sink is handed."""
        return tuple(segment.stage.schema for segment in self.segments)


@dataclass(frozen=True)
class Task:
    """What one Spark task does: read or take batches, apply each segment, feed its writer, return the results.

    Args:
        source: The source whose splits it gets; None: it gets rows.
        segments: The stream's segments.
        writers: One for each segment; None = its sink has the epoch already.
        letters: Where bad rows go; None = the first one stops the job. Their results come behind the sinks'.
        reports: Where it tells what it wrote before the epoch is done.
    """

    epoch: int
    source: SplitSource | None
    segments: tuple[Segment, ...]
    writers: tuple[Writer | None, ...]
    letters: DeadLetters | None = None
    reports: Reports | None = None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        number, attempt = (context.partitionId(), context.attemptNumber()) if context else (0, 0)
        targets = self.letters.writers if self.letters else ()
        writers = [writer.open(number) if writer else None for writer in (*self.writers, *targets)]
        try:
            self._run(batches, writers)
            self._reach("in-task", attempt)
            results = tuple(replace(writer.close(), attempt=attempt) if writer else WriteResult() for writer in writers)
            self._reach("after-task", attempt)
            if self.reports:
                self.reports.task(results)
        except BaseException:
            for writer in writers:
                if writer:
                    writer.abort()
            raise
        yield pa.record_batch({"result": pa.array([pickle.dumps(results)], pa.binary())})
        settle()

    def _reach(self, point: str, attempt: int) -> None:
        if attempt == 0:
            reach(point, self.epoch)

    def _run(self, batches: Iterator[pa.RecordBatch], writers: Sequence[TaskWriter | None]) -> None:
        if self.letters:
            self._sort(batches, self.letters, writers)
            return
        for batch in self._rows(batches):
            try:
                self._feed(batch, writers)
            except DATA_ERRORS as error:
                raise blamed(error, batch, self.segments, writers) from error

    def _sort(
        self, batches: Iterator[pa.RecordBatch], letters: DeadLetters, writers: Sequence[TaskWriter | None]
    ) -> None:
        assert self.source, "dead letters are for splits"
        count = len(self.segments)
        sorter = Sorter(letters, self.segments, writers[:count], writers[count:])
        for split in _splits(batches):
            for found in self.source.read_tolerant(split):
                sorter.take(found)
        sorter.finish()

    def _rows(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if self.source is None:
            yield from batches
            return
        for split in _splits(batches):
            yield from self.source.read(split)

    def _feed(self, batch: pa.RecordBatch, writers: Sequence[TaskWriter | None]) -> None:
        for segment, writer in zip(self.segments, writers, strict=True):
            batch = segment.run(batch)
            if batch.num_rows == 0:
                return
            if writer:
                segment.write(batch, writer)


def _splits(batches: Iterator[pa.RecordBatch]) -> Iterator[Split]:
    for batch in batches:
        for split in batch.column(0):
            yield pickle.loads(split.as_py())


def run_task(frame: DataFrame, task: Task) -> list[tuple[WriteResult, ...]]:
    """Run the task over one epoch's rows or splits; one entry a Spark task, one result a sink."""
    if task.source:
        # The one column is ours, and needs no other name.
        done = frame.mapInArrow(lambda batches: task(batches), _RESULT)  # Spark pickles a function, not an object
    else:
        done = _columns.map_in_arrow(frame, task, _RESULT)
    return [pickle.loads(row.result) for row in done.collect()]


def run_chores(spark: SparkSession, job: str, reports: Reports, chores: Sequence[Chore]) -> list[WriteResult]:
    """Have each chore done by a Spark task of its own; the results in their order.

    Args:
        spark: The session.
        job: The job's name.
        reports: Where each tells what it wrote before all are done.
        chores: What to do.

    Raises:
        VolleyError: If one fails for good.
    """
    if not chores:
        return []
    # A task gets the text of all chores, and makes an object of its own only.
    texts = [pickle.dumps(chore) for chore in chores]

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in (each for batch in batches for each in batch.column(0).to_pylist()):
            done = pickle.loads(texts[number])()
            reports.chore(done)
            result = pa.array([pickle.dumps(done)], pa.binary())
            yield pa.record_batch({"number": pa.array([number], pa.int64()), "result": result})
        settle()

    try:
        rows = spark.range(0, len(texts), 1, len(texts)).mapInArrow(work, f"number long, {_RESULT}").collect()
    except Exception as error:
        raise translate(error, job) from error
    return [pickle.loads(row.result) for row in sorted(rows, key=lambda row: row.number)]


def compile_plan(spark: SparkSession, plan: _plan.Node, path: _plan.Path, state: str, job: str) -> Program:
    """Lower a plan: open its sources, check every step against the schema before it, build the streaming frame.

    Args:
        spark: The session.
        plan: A plan that ends in a write.
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
        return _Compiler(spark, state, job).program(plan, path)
    except Exception as error:
        if isinstance(error, VolleyError):
            raise
        raise translate(error, job) from error


class _Compiler:
    def __init__(self, spark: SparkSession, state: str, job: str) -> None:
        self._spark = spark
        self._state = state
        self._job = job
        self._opened = 0

    def program(self, plan: _plan.Node, path: _plan.Path) -> Program:
        head, steps = _cut(plan, path)
        if path.arrow_native:
            assert isinstance(head, _plan.Read)
            assert isinstance(head.source, SplitSource)
            source, name = self._open(head.source)
            return Program(self._stream(name, source, None), source, _segments(steps, source.schema))
        frame, schema = self._frame(head)
        segments = _segments(steps, schema)
        if sizes := [segment.batch_size for segment in segments if segment.batch_size]:
            self._spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(max(sizes)))
        return Program(frame, None, segments)

    def _open(self, source: SplitSource) -> tuple[SplitSource, str]:
        number, self._opened = self._opened, self._opened + 1
        opened = source.open(f"{self._state}/source-{number}", self._spark.sparkContext.defaultParallelism)
        return opened, f"volley-{self._job}-{number}"

    def _stream(self, name: str, source: SplitSource, schema: pa.Schema | None) -> DataFrame:
        spark_schema = None if schema is None else _columns.to_spark_schema(schema)
        self._spark.dataSource.register(data_source(name, source, spark_schema))
        return self._spark.readStream.format(name).load()

    def _frame(self, node: _plan.Node) -> tuple[DataFrame, pa.Schema]:
        if isinstance(node, _plan.Read):
            return self._read(node)
        frames = [self._frame(each) for each in node.inputs]
        if isinstance(node, _plan.Union):
            return _union(frames)
        (frame, schema) = frames[0]
        if isinstance(node, _plan.Deduplicate):
            return _deduplicate(frame, schema, node), schema
        if isinstance(node, _plan.Write):
            raise PlanError(
                f"{node.label()} stands before a step that only Spark can run",
                hint="put union and deduplicate before to_sink",
            )
        return _columns.apply(frame, node, schema), lower([node], schema).schema

    def _read(self, node: _plan.Read) -> tuple[DataFrame, pa.Schema]:
        if isinstance(node.source, SparkSource):
            from pyspark.sql.pandas.types import to_arrow_schema

            frame = node.source.load(self._spark)
            return frame, canonical_schema(to_arrow_schema(frame.schema, timezone="UTC"))
        assert isinstance(node.source, SplitSource)
        source, name = self._open(node.source)
        return self._stream(name, source, source.schema), source.schema


def _cut(plan: _plan.Node, path: _plan.Path) -> tuple[_plan.Node, list[_plan.Node]]:
    """Where Spark ends and the task begins: at the source on the Arrow-native path, else before the first write."""
    steps: list[_plan.Node] = []
    node = plan
    while node.narrow and (path.arrow_native or any(isinstance(each, _plan.Write) for each in _plan.walk(node))):
        steps.insert(0, node)
        (node,) = node.inputs
    return node, steps


def _segments(steps: Sequence[_plan.Node], schema: pa.Schema) -> tuple[Segment, ...]:
    segments: list[Segment] = []
    nodes: list[_plan.Node] = []
    for step in steps:
        if not isinstance(step, _plan.Write):
            nodes.append(step)
            continue
        stage = lower(nodes, schema)
        segments.append(Segment(stage, step.sink.batch_size))
        nodes, schema = [], stage.schema
    return tuple(segments)


def _union(frames: Sequence[tuple[DataFrame, pa.Schema]]) -> tuple[DataFrame, pa.Schema]:
    (first, schema), *others = frames
    for frame, other in others:
        if {field.name: field.type for field in schema} != {field.name: field.type for field in other}:
            raise PlanError(
                f"union of streams with different columns: {_listed(schema)} and {_listed(other)}",
                hint="bring them into one shape with select, cast and alias first",
            )
        first = first.unionByName(frame)
    return first, schema


def _listed(schema: pa.Schema) -> str:
    return "(" + ", ".join(f"{field.name} {field.type}" for field in schema) + ")"


def _deduplicate(frame: DataFrame, schema: pa.Schema, node: _plan.Deduplicate) -> DataFrame:
    for name in (*node.keys, *([node.event_time] if node.event_time else [])):
        if name not in schema.names:
            raise errors.ExpressionError(
                f"deduplicate by unknown column {name!r}", hint=errors.near(name, schema.names)
            )
    if node.event_time is None or node.within is None:
        return frame.dropDuplicates(list(node.keys))
    watermark = f"{node.within.total_seconds()} seconds"
    return frame.withWatermark(node.event_time, watermark).dropDuplicatesWithinWatermark(list(node.keys))


_OURS = re.compile(
    r"volley\.errors\.(\w+): (.*?)(?=\n\n|\n\s*at |\nDriver stacktrace|\nSQLSTATE|\s*$|\nTraceback)", re.S
)
_LAST_LINE = re.compile(r"^(?:: )?(?:\w+\.)*(\w*(?:Error|Exception|Interrupt)\b.*)$", re.M)


def translate(error: BaseException, job: str) -> VolleyError:
    """Spark's error as one of ours, the cause first: an error that a worker raised is found in the text Spark sends.

    Args:
        error: What py4j or Spark raised.
        job: The job's name.
    """
    if isinstance(error, VolleyError):
        return error
    text = str(error)
    if found := list(_OURS.finditer(text)):
        name, message = found[-1].groups()
        kind = getattr(errors, name, JobError)
        made: VolleyError = kind.from_text(message)
        return made
    lines = _LAST_LINE.findall(text.partition("JVM stacktrace")[0])
    cause = lines[-1] if lines else text.partition("\n")[0]
    return JobError(f"job {job!r} failed: {cause}", hint="the whole trace is in this error's __cause__")
