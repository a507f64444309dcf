"""Launches a run of a job in named phases: check, bind, compile, open, resume."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from volley.columns.letters import SCHEMA
from volley.columns.schemas import Schemas
from volley.contracts.rows import taken_notes
from volley.contracts.sink import Committer, SinkContext
from volley.contracts.source import SourceContext, SparkSource
from volley.engine.binding import Binding
from volley.engine.epochs import Epochs
from volley.engine.joins import JoinedTables
from volley.engine.levels import Levels, RunEnd, keyed_states
from volley.engine.options import JobContext, Start
from volley.engine.records import Landed, RunStart
from volley.engine.repair import check_files
from volley.engine.sinks import DeadLetterSinks, ExecutorTasks, OpenSink
from volley.errors import PlanError
from volley.metrics.metrics import Metrics
from volley.plan import nodes
from volley.plan.graph import JobGraph
from volley.plan.places import naming
from volley.spark.compile import CompiledPlan, compile_plan
from volley.spark.log import PlannedEpochs
from volley.spark.run import EpochCounters, run_beside
from volley.spark.session import has_context, runs_once_locally, session_for_job, session_of
from volley.spark.workers import preload
from volley.types.arrow import canonical_schema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

__all__ = ["launch"]

_log = logging.getLogger(__name__)


def launch(job: JobContext, undo: ExitStack) -> Epochs:
    """Start a run of a job, up to its Spark query: check, bind, compile, open, resume.

    Args:
        undo: Gets the callbacks that undo the start if the job can't run.

    Raises:
        VolleyError: If the job can't run; nothing has been written then.
    """
    # What this thread has noted before, reading files without a job, is not the job's.
    taken_notes()
    tables = JoinedTables(job.name, f"{job.folder}/joins")
    job = _checked(job, tables, undo)
    begun, bound = job.checkpoint.begun, _bound(job)
    end = _end_of_run(job)
    plan = _compiled(job, end)
    epochs = _opened(job, bound, tables, plan, end, known=(bound.targets or {}).keys() if begun else ())
    _resume(epochs, bound, begun)
    return epochs


def _checked(job: JobContext, tables: JoinedTables, undo: ExitStack) -> JobContext:
    """Check what can be checked before Spark starts; return the job with its tables open."""
    job.checkpoint.settle()
    if job.start.fresh:
        undo.callback(job.checkpoint.restore)
        job.checkpoint.set_aside()
    check_files(job.checkpoint.log)
    writes = tables.open(job.graph.writes)
    if tables:
        job = replace(job, graph=JobGraph.of(writes))
    # With a join, pushed-down columns hide columns of one name from the compiler.
    if tables or not has_context():
        _preview(job)
    return job


def _preview(job: JobContext) -> None:
    """Check each step against the schema of its input, and each sink, as far as the schemas of sources are known yet.

    Raises:
        VolleyError: If a source can't be read, a step does not fit its input, or a sink can't take the rows.
    """
    names = {id(read): name for read, name in zip(job.graph.reads, job.graph.state_names, strict=True)}

    def of_read(read: nodes.Read) -> pa.Schema | None:
        if isinstance(read.source, SparkSource):
            return None
        schema = read.source.preview(SourceContext(f"{job.folder}/{names[id(read)]}"))
        return None if schema is None else canonical_schema(schema)

    schemas = Schemas(of_read)
    for write in job.graph.writes:
        schema = schemas.of(write)
        with naming(write):
            write.sink.check(schema)
    for sink in job.graph.letters:
        sink.check(SCHEMA)


def _bound(job: JobContext) -> Binding:
    """Bind the checkpoint to the job, or check that it belongs to it."""
    return job.checkpoint.bind(job.graph, backfill=job.start.backfill, new_query=job.start.into is not None)


def _compiled(job: JobContext, end: RunEnd | None) -> CompiledPlan:
    """Open the sources, those that Spark reads in a session of the job's own, and compile the steps."""
    context = job.context()
    _prepare_workers(job, context, job.graph.worker_modules)

    def session() -> SparkSession:
        given = job.spark if job.spark is not None and job.spark.sparkContext is context else session_of(context)
        return session_for_job(given, job.checkpoint.url)

    return compile_plan(context, session, job.graph, job.folder, job.name, end.target if end else None)


def _opened(
    job: JobContext,
    bound: Binding,
    tables: JoinedTables,
    plan: CompiledPlan,
    end: RunEnd | None,
    known: Collection[str],
) -> Epochs:
    """Open the sinks, and return the job's epochs.

    Args:
        end: Where a run over bounded sources ends.
        known: The names of the targets that the job has written to before.
    """
    writes, context, metrics = job.graph.writes, plan.context, job.metrics
    counters = EpochCounters(context, len(plan.tasks.trees), plan.groups, len(job.graph.nodes))
    metrics.begin_run()
    metrics.follow(lambda: counters.progress)
    sinks = []
    for write, step in zip(writes, plan.tasks.sinks, strict=False):
        tasks = ExecutorTasks(context, job.name, counters, metrics.of_sink(write.sink.label))
        opening = SinkContext(
            job=job.name,
            schema=step.schema,
            metrics=tasks.metrics,
            run=tasks,
            resumed=write.sink.target in known,
            run_beside=partial(run_beside, context),
            state=job.checkpoint.state_of(write.sink),
        )
        with naming(write):
            sinks.append(OpenSink(write.sink.open(opening), tasks.metrics, tasks))
    letters = DeadLetterSinks.open(job.graph, job.name, metrics, known)
    _check_distinct([sink.committer for sink in (*sinks, *letters.sinks)])
    runners = (*plan.tasks.readers, *(sink.committer for sink in sinks))
    _prepare_workers(job, context, {type(runner).__module__ for runner in runners})
    assert bound.query_id is not None, "a checkpoint that was begun has a query id"
    return Epochs(
        job=job,
        query_id=bound.query_id,
        plan=plan,
        planned=PlannedEpochs(job.checkpoint.log, plan.readers),
        sinks=tuple(sinks),
        letters=letters,
        counters=counters,
        landed=Landed(job.checkpoint.log),
        tables=tables,
        unfinished=job.checkpoint.log.unfinished,
        speculative=_is_speculative(context),
        run_start=_run_start(job),
        levels=_levels(job, plan, end, [sink.metrics for sink in sinks]),
    )


def _is_speculative(context: SparkContext) -> bool:
    """Return True if Spark may run copies of a task; to ask for its settings takes a hundred calls of the JVM."""
    return not runs_once_locally(context) and context.getConf().get("spark.speculation", "false") == "true"


def _prepare_workers(job: JobContext, context: SparkContext, modules: Iterable[str]) -> None:
    """Start Spark's workers, and import modules in them, unless the driver is likely to read the few rows itself."""
    if not (job.graph.is_small and runs_once_locally(context)):
        preload(context, modules)


def _resume(epochs: Epochs, bound: Binding, begun: bool) -> None:
    """Check the rows that targets have from before, empty or fill targets, and bind the checkpoint to them.

    Args:
        begun: True if an epoch was planned in it.
    """
    job, opened = epochs.job, [sink.committer for sink in epochs.all_sinks]
    if not begun:
        _check_earlier_rows(opened, epochs.query_id, job)
        if job.start.into == "replace":
            _check_clearable(opened)
            # Past this point the old checkpoint must not be restored: it skips rows that are deleted here.
            job.checkpoint.forget()
            _clear(opened)
    elif bound.targets is None:
        _check_marks(opened, epochs.query_id, job.checkpoint.url)
    else:
        _backfill(epochs, bound.targets)
    targets = zip(job.graph.targets, opened, strict=True)
    job.checkpoint.bind_targets(bound, {name: committer.identity for name, committer in targets if name is not None})


def _end_of_run(job: JobContext) -> RunEnd | None:
    """Return where a run ends, for keyed steps over bounded sources that Volley reads; else None."""
    sources = [read.source for read in job.graph.reads]
    has_end = all(source.bounded and not isinstance(source, SparkSource) for source in sources)
    return RunEnd(job.checkpoint.log) if has_end and job.graph.keyed else None


def _run_start(job: JobContext) -> RunStart | None:
    """Return the record of where a bounded run began, if a sink asks for it."""
    asks = any(write.sink.overwrites for write in job.graph.writes)
    return RunStart(job.checkpoint.log) if job.bounded and asks else None


def _levels(job: JobContext, plan: CompiledPlan, end: RunEnd | None, metrics: Sequence[Metrics]) -> Levels | None:
    if plan.merging is None:
        return None
    cores, ends = plan.context.defaultParallelism, end.reached if end else lambda epoch: False
    states = keyed_states(plan.operators, plan.tasks, plan.merging, job.folder, cores, ends)
    return Levels(job.name, plan.graph, plan.sources, plan.tasks, plan.merging, states, metrics, job.metrics)


def _check_distinct(opened: Sequence[Committer]) -> None:
    """Raise PlanError if two sinks write to one target under two names, through links for example."""
    identities = [committer.identity for committer in opened]
    for committer, identity in zip(opened, identities, strict=True):
        if identity is not None and identities.count(identity) > 1:
            raise PlanError(
                f"two sinks or dead letters of this stream write to {committer}, under two names",
                hint="give each of them a table or folder of its own",
            )


def _check_earlier_rows(opened: Sequence[Committer], query_id: str, job: JobContext) -> None:
    """Raise PlanError if a job that starts over would write rows that a target already has."""
    for committer in opened:
        if job.start.into is None and (earlier := committer.earlier_rows(query_id)):
            raise PlanError(
                f"{earlier}, and checkpoint {job.checkpoint.url} has read nothing yet: job {job.name!r} would read its "
                "sources from the beginning and add every row again",
                hint='restore the checkpoint if it was moved or lost; or empty the target first: into="replace"; '
                'or keep its rows: into="append", with a source that starts where they end',
            )


def _check_clearable(opened: Sequence[Committer]) -> None:
    """Raise PlanError before anything is deleted if a target can't be emptied."""
    for committer in opened:
        if not committer.can_clear:
            raise PlanError(f"{committer} can't be emptied", hint='use into="append", or another target')


def _clear(opened: Sequence[Committer]) -> None:
    for committer in opened:
        committer.clear()


def _check_marks(opened: Sequence[Committer], query_id: str, checkpoint: str) -> None:
    """Raise PlanError if a target has no epoch of the query, for a checkpoint that lost the list of its targets."""
    for committer in opened:
        if committer.identity is not None and committer.last_epoch(query_id) is None:
            raise PlanError(
                f"checkpoint {checkpoint} has lost the list of its sinks, and {committer} has no epoch "
                f"of its query {query_id}: rows read before may be missing there",
                hint="start over with fresh=True, or under another job name",
            )


def _backfill(epochs: Epochs, known: Mapping[str, str | None]) -> None:
    """Write the rows of all epochs so far to new sinks, as one epoch: the last planned one."""
    named = zip(epochs.job.graph.targets, epochs.committers, strict=False)
    new = [_is_new(name, committer, known) for name, committer in named]
    if not any(new):
        return
    _check_backfill(epochs)
    added = [committer for committer, is_new in zip(epochs.committers, new, strict=True) if is_new]
    _prepare_backfill(added, epochs.query_id, epochs.job.start)
    number = epochs.job.checkpoint.log.last_planned
    assert number is not None
    _log.info("%s: filling %d new sinks with the rows up to epoch %d", epochs.job.name, sum(new), number)
    epochs.backfill(epochs.epoch(number), new)


def _is_new(name: str | None, committer: Committer, known: Mapping[str, str | None]) -> bool:
    """Return True if a sink's target lacks the epochs so far; one that was only renamed has them."""
    renamed = committer.identity is not None and committer.identity in known.values()
    return name is not None and name not in known and not renamed


def _check_backfill(epochs: Epochs) -> None:
    """Raise PlanError if a job has rows that can't be made again."""
    elsewhere = "start the pipeline under another job name, which fills its sinks from the beginning"
    if epochs.levels is not None:
        raise PlanError(
            "backfill can't fill a sink of a job with windows, joined streams or other steps that keep state: rows "
            "that came out are not kept",
            hint=elsewhere,
        )
    if epochs.plan.frame is not None:
        raise PlanError(
            "backfill can't fill a sink of a job with a source that Spark reads: Volley can't read its rows again",
            hint=elsewhere,
        )
    if epochs.tables:
        raise PlanError(
            "a pipeline that joins a table can't be backfilled: its epochs were joined with one version each, and the "
            "earlier ones are gone",
            hint=elsewhere,
        )


def _prepare_backfill(new: Sequence[Committer], query_id: str, start: Start) -> None:
    """Raise PlanError if a backfill would add rows to a sink again; empty the sink first with ``into="replace"``."""
    empty = [committer for committer in new if committer.last_epoch(query_id) is None]
    for committer in empty:
        if start.into is None and (earlier := committer.earlier_rows(query_id)):
            raise PlanError(
                f"{earlier}: a backfill would add every row again",
                hint='empty the target first: into="replace"; or keep its rows: into="append"',
            )
    if start.into == "replace":
        _check_clearable(empty)
        _clear(empty)
