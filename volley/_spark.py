"""Plans become Spark's work here: nodes → a streaming DataFrame, and one task that feeds the writers."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
from pyspark import TaskContext

from volley import _columns, _plan, errors
from volley._arrow import Stage, lower
from volley._datasource import data_source
from volley._dead_letters import DATA_ERRORS, DeadLetters, Sorter, blamed
from volley._failpoints import CHORE_POINT, reach
from volley._preview import check_keys, united
from volley._session import log_trace
from volley._tally import Reports, Tally
from volley._types import canonical_schema, conform
from volley._utf8 import check_utf8
from volley._workers import peak_memory, settle
from volley.errors import JobError, PlanError, VolleyError
from volley.sink import Chore, TaskWriter, Writer, WriteResult
from volley.source import BadRow, Reader, Source, SourceContext, SparkSource, Split

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = [
    "Program",
    "Segment",
    "Task",
    "compile_plan",
    "evaluate",
    "is_slow_start",
    "run_chores",
    "run_rows",
    "run_splits",
    "translate",
]

T = TypeVar("T")

_BATCH = "spark.sql.execution.arrow"
# Spark's own number of rows; a batch of more has a limit of bytes too.
_UNWEIGHED_ROWS = 10_000


@dataclass(frozen=True)
class Segment:
    """The narrow steps up to one sink, on Arrow batches.

    Args:
        stage: The steps.
        batch_size: The most rows its sink is handed at once; None = as they come.
        dictionaries: True if columns may stay dictionaries, as every sink of the stream takes them.
        first: True if its rows come from the source: nobody has looked at their strings.
    """

    stage: Stage
    batch_size: int | None
    dictionaries: bool
    first: bool = True

    def run(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """What the sink gets of these rows."""
        rows = self.stage(conform(batch, self.stage.input, self.dictionaries))
        if self.first:
            # Behind the steps, so that what they leave out is no error, on either path.
            check_utf8(rows)
        return rows

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
        reader: Reads the splits, on the Arrow-native path; None: `frame` carries rows.
        segments: One for each sink, in plan order; the rows of one go on to the next.
        stateful: True if Spark may keep state for `frame`, which it then must evaluate in every epoch.
        readers: For each line of an epoch's offsets in Spark's log the reader of its source; None = Spark reads it.
    """

    frame: DataFrame
    reader: Reader | None
    segments: tuple[Segment, ...]
    stateful: bool = False
    readers: tuple[Reader | None, ...] = ()

    @property
    def schemas(self) -> tuple[pa.Schema, ...]:
        """The Arrow schema of the rows each sink is handed."""
        return tuple(segment.stage.schema for segment in self.segments)


@dataclass(frozen=True)
class Task:
    """What one Spark task does: read or take batches, apply each segment, feed its writer, return the results.

    Args:
        reader: Reads the splits that it gets; None: it gets rows.
        segments: The stream's segments.
        writers: One for each segment; None = its sink has the epoch already.
        letters: Where bad rows go; None = the first one stops the job. Their results come behind the sinks'.
        reports: Where it tells what it wrote before the epoch is done.
    """

    epoch: int
    reader: Reader | None
    segments: tuple[Segment, ...]
    writers: tuple[Writer | None, ...]
    letters: DeadLetters | None = None
    reports: Reports | None = None

    def __call__(self, given: Iterator[Any]) -> Iterator[tuple[WriteResult, ...]]:
        """Do it.

        Args:
            given: The splits, or without a reader the batches.
        """
        number, attempt = _place()
        targets = self.letters.writers if self.letters else ()
        writers = [writer.open(number) if writer else None for writer in (*self.writers, *targets)]
        try:
            self._run(given, writers)
            self._reach("in-task", attempt)
            closed = [writer.close() if writer else None for writer in writers]
            memory = peak_memory()
            results = tuple(
                replace(each, attempt=attempt, worker_memory=memory) if each else WriteResult() for each in closed
            )
            self._reach("after-task", attempt)
            if self.reports:
                self.reports.task(results)
        except BaseException:
            for writer in writers:
                if writer:
                    writer.abort()
            raise
        yield results

    def _reach(self, point: str, attempt: int) -> None:
        if attempt == 0:
            reach(point, self.epoch)

    def _run(self, given: Iterator[Any], writers: Sequence[TaskWriter | None]) -> None:
        if self.letters:
            self._sort(given, self.letters, writers)
            return
        for split, before, batch in self._rows(given):
            try:
                self._feed(batch, writers)
            except DATA_ERRORS as error:
                position = partial(self._position, split, before)
                raise blamed(error, batch, self.segments, writers, position) from error

    def _sort(self, splits: Iterator[Split], letters: DeadLetters, writers: Sequence[TaskWriter | None]) -> None:
        assert self.reader, "dead letters are for splits"
        count = len(self.segments)
        sorter = Sorter(letters, self.segments, writers[:count], writers[count:])
        for split in splits:
            for found in self.reader.read_tolerant(split):
                sorter.take(found)
        sorter.finish()

    def _rows(self, given: Iterator[Any]) -> Iterator[tuple[Split, int, pa.RecordBatch]]:
        """The batches, each with the split it is of and the number of the split's rows before it."""
        for each in [given] if self.reader is None else given:
            before = 0
            for batch in each if self.reader is None else self.reader.read(each):
                yield each, before, batch
                before += batch.num_rows

    def _position(self, split: Split, before: int, row: int) -> str | None:
        """Where a row stands in the source, found by reading its split again; None if that is not known."""
        if self.reader is None:
            return None
        number = before + row
        with suppress(VolleyError):
            for found in self.reader.read_tolerant(split):
                if isinstance(found, BadRow):
                    continue
                if number < found.batch.num_rows:
                    return found.position(number)
                number -= found.batch.num_rows
        return None

    def _feed(self, batch: pa.RecordBatch, writers: Sequence[TaskWriter | None]) -> None:
        for segment, writer in zip(self.segments, writers, strict=True):
            batch = segment.run(batch)
            if batch.num_rows == 0:
                return
            if writer:
                segment.write(batch, writer)


def _place() -> tuple[int, int]:
    """The number of the Spark task that this is part of, and that of its attempt; outside of Spark both are 0."""
    context = TaskContext.get()
    return (context.partitionId(), context.attemptNumber()) if context else (0, 0)


def run_splits(spark: SparkSession, task: Task, splits: Sequence[Split]) -> list[tuple[WriteResult, ...]]:
    """Run the task over an epoch's splits, each by a Spark task of its own; one entry for each, one result a sink."""
    return _in_tasks(spark, task, splits)


def run_rows(frame: DataFrame, task: Task) -> list[tuple[WriteResult, ...]]:
    """Run the task over an epoch's rows; one entry a Spark task, one result a sink."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for results in task(batches):
            yield pa.record_batch({"result": pa.array([pickle.dumps(results)], pa.binary())})
        settle()

    return [pickle.loads(row.result) for row in _columns.map_in_arrow(frame, work, "result binary").collect()]


def evaluate(frame: DataFrame) -> None:
    """Compute an epoch's rows and drop them, so that Spark commits the state of its stateful operators."""
    frame.write.format("noop").mode("overwrite").save()


def run_chores(spark: SparkSession, job: str, tally: Tally, chores: Sequence[Chore]) -> list[WriteResult]:
    """Have each chore done by a Spark task of its own; the results in their order.

    Args:
        spark: The session.
        job: The job's name.
        tally: Where each tells what it wrote before all are done.
        chores: What to do.

    Raises:
        VolleyError: If one fails for good.
    """

    epoch, reports, last = tally.epoch, tally.reports, len(chores) - 1

    def work(given: Iterator[Chore]) -> Iterator[WriteResult]:
        for chore in given:
            done = chore()
            if _place() == (last, 0):
                reach(CHORE_POINT, epoch)
            reports.chore(done)
            yield done

    try:
        return _in_tasks(spark, work, chores)
    except Exception as error:
        made = translate(error, job)
        raise made from made.__cause__


def _in_tasks(spark: SparkSession, work: Callable[[Iterator[Any]], Iterator[T]], items: Sequence[Any]) -> list[T]:
    """What the work yields for each item, by a Spark task of its own.

    An RDD: a DataFrame of as many rows would be analyzed, optimized and compiled anew each time, which costs more
    than the whole job, and `repartition` may put two rows into one task.
    """

    def settled(given: Iterator[Any]) -> Iterator[T]:
        yield from work(given)
        settle()

    if not items:
        return []
    done: list[T] = spark.sparkContext.parallelize(items, len(items)).mapPartitions(settled).collect()
    return done


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
        made = translate(error, job)
        raise made from made.__cause__


class _Compiler:
    def __init__(self, spark: SparkSession, state: str, job: str) -> None:
        self._spark = spark
        self._state = state
        self._job = job
        self._opened = 0
        self._readers: list[Reader | None] = []

    def program(self, plan: _plan.Node, path: _plan.Path) -> Program:
        head, steps = _cut(plan, path)
        if path.arrow_native:
            assert isinstance(head, _plan.Read)
            dictionaries = all(step.sink.takes_dictionaries for step in steps if isinstance(step, _plan.Write))
            reader, name = self._open(head.source, dictionaries)
            segments = _segments(steps, reader.schema, dictionaries)
            return Program(self._stream(name, reader, None), reader, segments, readers=(reader,))
        frame, schema = self._frame(head)
        segments = _segments(steps, schema, dictionaries=False)
        self._size_batches([segment.batch_size for segment in segments if segment.batch_size])
        return Program(frame, None, segments, _keeps_state(plan), tuple(self._readers))

    def _size_batches(self, sizes: list[int]) -> None:
        """Have Spark make Arrow batches of what the sinks want."""
        conf = self._spark.conf
        if sizes:
            conf.set(f"{_BATCH}.maxRecordsPerBatch", str(max(sizes)))
        if max(sizes, default=0) <= _UNWEIGHED_ROWS and conf.get(f"{_BATCH}.maxBytesPerBatch", None) is None:
            # Otherwise it weighs the batch after each row, which is half of the JVM's whole work.
            conf.set(f"{_BATCH}.maxBytesPerBatch", str(2**31 - 1))

    def _open(self, source: Source, dictionaries: bool = False) -> tuple[Reader, str]:
        number, self._opened = self._opened, self._opened + 1
        parallelism = self._spark.sparkContext.defaultParallelism
        reader = source.open(SourceContext(f"{self._state}/source-{number}", parallelism, dictionaries))
        return reader, f"volley-{self._job}-{number}"

    def _stream(self, name: str, reader: Reader, schema: pa.Schema | None) -> DataFrame:
        spark_schema = None if schema is None else _columns.to_spark_schema(schema)
        self._spark.dataSource.register(data_source(name, reader, spark_schema))
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
            self._readers += [None] * _count_streams(frame)
            return frame, canonical_schema(to_arrow_schema(frame.schema, timezone="UTC"))
        reader, name = self._open(node.source)
        self._readers.append(reader)
        return self._stream(name, reader, reader.schema), reader.schema


def _count_streams(frame: DataFrame) -> int:
    """How many streaming sources a frame has; Spark logs the offset of each."""
    leaves = frame._jdf.queryExecution().analyzed().collectLeaves()
    return sum(leaves.apply(index).isStreaming() for index in range(leaves.length()))


def _keeps_state(plan: _plan.Node) -> bool:
    """Whether Spark keeps state for the plan, as far as we know: the frame that a SparkSource loads may keep some."""
    return bool(_plan.stateful(plan)) or any(isinstance(source, SparkSource) for source in _plan.sources(plan))


def _cut(plan: _plan.Node, path: _plan.Path) -> tuple[_plan.Node, list[_plan.Node]]:
    """Where Spark ends and the task begins: at the source on the Arrow-native path, else before the first write."""
    steps: list[_plan.Node] = []
    node = plan
    while node.narrow and (path.arrow_native or any(isinstance(each, _plan.Write) for each in _plan.walk(node))):
        steps.insert(0, node)
        (node,) = node.inputs
    return node, steps


def _segments(steps: Sequence[_plan.Node], schema: pa.Schema, dictionaries: bool) -> tuple[Segment, ...]:
    segments: list[Segment] = []
    nodes: list[_plan.Node] = []
    for step in steps:
        if not isinstance(step, _plan.Write):
            nodes.append(step)
            continue
        stage = lower(nodes, schema)
        segments.append(Segment(stage, step.sink.batch_size, dictionaries, first=not segments))
        nodes, schema = [], stage.schema
    return tuple(segments)


def _union(frames: Sequence[tuple[DataFrame, pa.Schema]]) -> tuple[DataFrame, pa.Schema]:
    schema = united([schema for _, schema in frames])
    (first, _), *others = frames
    for frame, _ in others:
        first = first.unionByName(frame)
    return first, schema


def _deduplicate(frame: DataFrame, schema: pa.Schema, node: _plan.Deduplicate) -> DataFrame:
    check_keys(node, schema)
    if node.event_time is None or node.within is None:
        return frame.dropDuplicates(list(node.keys))
    watermark = f"{node.within.total_seconds()} seconds"
    return frame.withWatermark(node.event_time, watermark).dropDuplicatesWithinWatermark(list(node.keys))


_OURS = re.compile(
    r"volley\.errors\.(\w+): (.*?)(?=\n\n|\n\s*at |\nDriver stacktrace|\nSQLSTATE|\s*$|\nTraceback)", re.S
)
_SLOW_START = "Python worker failed to connect back"
_LAST_LINE = re.compile(r"^(?:: )?(?:\w+\.)*(\w*(?:Error|Exception|Interrupt)\b.*)$", re.M)


def is_slow_start(error: BaseException) -> bool:
    """Whether Spark gave up on a Python process that it had just started."""
    return _SLOW_START in str(error)


def translate(error: BaseException, job: str) -> VolleyError:
    """Spark's error as one of ours, the cause first: an error that a worker raised is found in the text Spark sends.

    Such an error says all there is to say, so the rest of that text goes to the log. Any other error has Spark's as
    its ``__cause__``.

    Args:
        error: What py4j or Spark raised.
        job: The job's name.
    """
    if isinstance(error, VolleyError):
        return error
    text = str(error)
    if found := list(_OURS.finditer(text)):
        name, message = found[-1].groups()
        kind: type[VolleyError] = getattr(errors, name, JobError)
        made = kind.from_text(message)
        log = log_trace(text)
        return made if kind is not JobError else JobError(made.message, f"{made.hint}; the whole trace is in {log}")
    if is_slow_start(error):
        return JobError(
            f"job {job!r} failed: Python did not start within the 10 seconds that Spark waits for it",
            hint="the CPU is probably starved: run less beside the job or give it more cores, then start it again",
        )
    lines = _LAST_LINE.findall(text.partition("JVM stacktrace")[0])
    cause = lines[-1] if lines else text.partition("\n")[0]
    made = JobError(f"job {job!r} failed: {cause}", hint="the whole trace is in this error's __cause__")
    made.__cause__ = error
    return made
