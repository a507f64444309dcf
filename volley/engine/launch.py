"""Launches a job: binds the checkpoint, opens sources and sinks, checks earlier rows, returns the job's epochs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from volley.contracts.sink import Committer, SinkContext
from volley.contracts.source import SparkSource
from volley.engine.checkpoint import Binding, Checkpoint
from volley.engine.dead_letters import DeadLetterSinks, dead_letters
from volley.engine.epochs import Epochs, ExecutorTasks
from volley.engine.joins import JoinedTables
from volley.engine.landed import Landed
from volley.engine.levels import Levels, RunEnd
from volley.engine.options import Start
from volley.engine.preview import preview
from volley.engine.repair import check
from volley.engine.run_start import RunStart
from volley.engine.state import KeyedState
from volley.errors import PlanError
from volley.metrics.metrics import Metrics
from volley.plan import graph, nodes
from volley.plan.places import naming
from volley.plan.stages import stages
from volley.spark.compile import CompiledPlan, compile_plan
from volley.spark.log import PlannedEpochs
from volley.spark.preload import preload
from volley.spark.progress import EpochCounters
from volley.spark.run import run_beside
from volley.spark.session import has_context, session_for_job
from volley.task.sorter import SCHEMA
from volley.task.task import TaskPlan
from volley.task.tree import grouped

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["launch"]

_log = logging.getLogger(__name__)


def launch(
    writes: Sequence[nodes.Write],
    start: Start,
    checkpoint: Checkpoint,
    session: Callable[[], SparkSession],
    metrics: Metrics,
    on_failure: ExitStack,
) -> Epochs:
    """Open the sources and sinks of a job, after all checks that don't need Spark.

    Args:
        writes: The writes of the job.
        start: Its checked start options.
        checkpoint: Its checkpoint.
        session: Returns the Spark session, or starts one.
        metrics: Its counters.
        on_failure: Gets the callbacks that undo the start if the job can't run.

    Raises:
        VolleyError: If the job can't run; nothing has been written then.
    """
    sinks = [write.sink for write in writes]
    names = [sink.target for sink in sinks]
    letters = [sink.target for sink in dead_letters(writes)]
    _check_names(_known(names) + _known(letters))
    checkpoint.settle()
    if start.fresh:
        on_failure.callback(checkpoint.restore)
        checkpoint.set_aside()
    check(checkpoint.log)
    tables = JoinedTables(start.name, f"{checkpoint.url}/volley/joins")
    writes = tables.open(writes)
    # With a join, pushed-down columns hide columns of one name from the compiler.
    if tables or not has_context():
        preview(writes, f"{checkpoint.url}/volley")
        for sink in dead_letters(writes):
            sink.check(SCHEMA)
    now = Binding.of(writes, _known(names) + _known(letters))
    bound = checkpoint.bind(now, _known(names), start.backfill, new_query=start.into is not None)
    begun = checkpoint.begun
    known = frozenset(bound.targets or ()) if begun else frozenset()

    spark = session_for_job(session(), checkpoint.url)
    preload(spark.sparkContext, graph.worker_modules(writes))
    end = _end_of_run(writes, checkpoint)
    plan = compile_plan(spark, writes, f"{checkpoint.url}/volley", start.name, end.target if end else None)
    planned = PlannedEpochs(checkpoint.log, plan.readers)
    counters = EpochCounters(spark.sparkContext, len(plan.tasks.trees), _groups(plan, len(sinks)))
    metrics.begin_run()
    metrics.follow(lambda: counters.progress)
    executor_tasks = [ExecutorTasks(spark, start.name, counters, metrics.of_sink(sink.label)) for sink in sinks]
    beside = partial(run_beside, spark)
    committers = []
    for write, step, run in zip(writes, plan.tasks.sinks[: len(sinks)], executor_tasks, strict=True):
        context = SinkContext(
            *(start.name, step.schema, run.metrics, run),
            resumed=write.sink.target in known,
            run_beside=beside,
            state=checkpoint.state_of(write.sink),
        )
        with naming(write):
            committers.append(write.sink.open(context))
    targets = DeadLetterSinks.open(writes, start.name, metrics, known)
    opened = (*committers, *targets.committers)
    _check_distinct(opened)
    preload(spark.sparkContext, {type(runner).__module__ for runner in (*plan.tasks.readers, *committers)})
    epochs = Epochs(
        job=start.name,
        plan=plan,
        splits=planned.splits,
        committers=committers,
        executor_tasks=executor_tasks,
        targets=targets,
        counters=counters,
        metrics=metrics,
        log=checkpoint.log,
        landed=Landed(checkpoint.log),
        tables=tables,
        unfinished=checkpoint.log.unfinished,
        speculative=spark.conf.get("spark.speculation", "false") == "true",
        run_start=_run_start(writes, start, checkpoint),
        levels=_levels(plan, start.name, checkpoint, end, [run.metrics for run in executor_tasks]),
    )
    assert bound.query_id is not None, "a checkpoint that was begun has a query id"
    if not begun:
        _check_earlier_rows(opened, bound.query_id, start, checkpoint.url)
        if start.into == "replace":
            _check_clearable(opened)
            # Past this point the old checkpoint must not be restored: it skips rows that are deleted here.
            checkpoint.forget()
            _clear(opened)
    elif bound.targets is None:
        _check_marks(opened, bound.query_id, checkpoint.url)
    else:
        new = [_is_new(name, committer, bound) for name, committer in zip(names, committers, strict=True)]
        _backfill(epochs, planned, bound.query_id, new, start)
    targets_now = zip((*names, *letters), opened, strict=True)
    checkpoint.bind_targets(bound, {name: committer.identity for name, committer in targets_now if name is not None})
    return epochs


def _end_of_run(writes: Sequence[nodes.Write], checkpoint: Checkpoint) -> RunEnd | None:
    """Return where a run ends, for keyed steps over bounded sources that Volley reads; else None."""
    sources = [read.source for read in graph.reads(writes)]
    has_end = all(source.bounded and not isinstance(source, SparkSource) for source in sources)
    return RunEnd(checkpoint.log) if has_end and stages(writes).keyed else None


def _run_start(writes: Sequence[nodes.Write], start: Start, checkpoint: Checkpoint) -> RunStart | None:
    """Return the record of where a bounded run began, if a sink asks for it."""
    bounded = start.once or graph.is_bounded(writes)
    return RunStart(checkpoint.log) if bounded and any(write.sink.overwrites for write in writes) else None


def _groups(plan: CompiledPlan, sinks: int) -> list[int]:
    """Return the group of each sink, see `grouped`."""
    trees = (*plan.tasks.trees, *(plan.merging.trees if plan.merging else ()))
    return grouped(trees, len(plan.tasks.sinks))[:sinks]


def _levels(
    plan: CompiledPlan, job: str, checkpoint: Checkpoint, end: RunEnd | None, metrics: Sequence[Metrics]
) -> Levels | None:
    if plan.merging is None:
        return None
    tasks, state_of = plan.frame.sparkSession.sparkContext.defaultParallelism, f"{checkpoint.url}/volley"
    sources = len(plan.tasks.readers) + 1
    states, first = [], len(metrics)
    for number, operator in enumerate(plan.operators):
        intakes = range(first, first := first + len(operator.states))
        clocked = _clocked(plan, plan.merging, intakes)
        states.append(KeyedState(operator, f"{state_of}/{operator.folder}-{number}", clocked, tasks, _ends(end)))
    return Levels(job, tuple(states), plan.merging, plan.levels, plan.behind, len(metrics), sources, metrics)


def _clocked(plan: CompiledPlan, merging: TaskPlan, intakes: Sequence[int]) -> list[tuple[int, int]]:
    """Return a keyed step's inputs and the sources whose rows they get; each pair has a clock.

    The frames that Spark reads are one source, as a task may have rows of several; keyed steps are sources, too.

    Args:
        plan: The job's plan.
        merging: What the tasks of the keyed steps do.
        intakes: The numbers of the step's intakes.
    """
    of_spark = len(plan.tasks.readers)
    trees = [
        *((min(number, of_spark), tree) for number, tree in enumerate(plan.tasks.trees)),
        *enumerate(merging.trees, start=of_spark + 1),
    ]
    pairs = [
        (number, source) for number, intake in enumerate(intakes) for source, tree in trees if intake in tree.sinks
    ]
    return list(dict.fromkeys(pairs))


def _ends(end: RunEnd | None) -> Callable[[int], bool]:
    return (lambda epoch: False) if end is None else end.reached


def _known(names: Iterable[str | None]) -> list[str]:
    return [name for name in names if name is not None]


def _is_new(name: str | None, committer: Committer, bound: Binding) -> bool:
    """Return True if a sink's target lacks the epochs so far; one that was only renamed has them."""
    known = bound.targets or {}
    renamed = committer.identity is not None and committer.identity in known.values()
    return name is not None and name not in known and not renamed


def _check_names(names: list[str]) -> None:
    # The second sink of a target would find the first one's mark and skip every epoch.
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise PlanError(
            f"two sinks or dead letters of this job write to {twice[0]}", hint="give each of them a table of its own"
        )


def _check_distinct(opened: Sequence[Committer]) -> None:
    """Raise PlanError if two sinks write to one target under two names, through links for example."""
    identities = [committer.identity for committer in opened]
    for committer, identity in zip(opened, identities, strict=True):
        if identity is not None and identities.count(identity) > 1:
            raise PlanError(
                f"two sinks or dead letters of this stream write to {committer}, under two names",
                hint="give each of them a table or folder of its own",
            )


def _check_earlier_rows(opened: Sequence[Committer], query_id: str, start: Start, checkpoint: str) -> None:
    """Raise PlanError if a job that starts over would write rows that a target already has."""
    for committer in opened:
        if start.into is None and (earlier := committer.earlier_rows(query_id)):
            raise PlanError(
                f"{earlier}, and checkpoint {checkpoint} has read nothing yet: job {start.name!r} would read its "
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


def _backfill(epochs: Epochs, planned: PlannedEpochs, query_id: str, new: list[bool], start: Start) -> None:
    """Write the rows of all epochs so far to new sinks, as one epoch: the last planned one."""
    if not any(new):
        return
    if epochs.levels is not None:
        raise PlanError(
            "backfill can't fill a sink of a job with windows, joined streams or other steps that keep state: rows "
            "that came out are not kept",
            hint="start the pipeline under another job name, which fills its sinks from the beginning",
        )
    if epochs.plan.has_frames:
        raise PlanError(
            "backfill can't fill a sink of a job with a source that Spark reads: Volley can't read its rows again",
            hint="start the pipeline under another job name, which fills its sinks from the beginning",
        )
    if epochs.tables:
        raise PlanError(
            "a pipeline that joins a table can't be backfilled: its epochs were joined with one version each, and the "
            "earlier ones are gone",
            hint="start the pipeline under another job name, which fills its sinks from the beginning",
        )
    added = [committer for committer, is_new in zip(epochs.committers, new, strict=True) if is_new]
    _prepare_backfill(added, query_id, start)
    number = epochs.log.last_planned
    assert number is not None
    _log.info("%s: filling %d new sinks with the rows up to epoch %d", epochs.job, sum(new), number)
    replace(epochs, splits=planned.splits_up_to).backfill(epochs.epoch(query_id, number), new)
