"""Turns a graph into the epochs of a job: binds the checkpoint, opens sources and sinks, checks what they hold."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

from volley.engine.checkpoint import Binding, Checkpoint
from volley.engine.dead_letters import DeadLetterSinks, dead_letters
from volley.engine.epochs import Epochs, ExecutorTasks
from volley.engine.landed import Landed
from volley.engine.options import Start
from volley.engine.preview import preview
from volley.engine.repair import check
from volley.errors import PlanError
from volley.metrics import Metrics
from volley.plan import nodes
from volley.sink import Committer, SinkContext
from volley.spark.compile import compile_plan
from volley.spark.log import PlannedEpochs
from volley.spark.preload import preload
from volley.spark.progress import EpochCounters
from volley.spark.session import has_context, session_for_job
from volley.task.sorter import SCHEMA
from volley.task.tree import grouped

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["launch"]

_log = logging.getLogger(__name__)


def launch(
    writes: Sequence[nodes.Write],
    path: nodes.ExecutionPath,
    start: Start,
    checkpoint: Checkpoint,
    session: Callable[[], SparkSession],
    metrics: Metrics,
    on_failure: ExitStack,
) -> Epochs:
    """Open all that a job needs, after everything that can be checked without Spark.

    Args:
        writes: The writes of the job.
        path: The execution path to take.
        start: How to start it.
        checkpoint: Its checkpoint.
        session: Makes or finds the Spark session.
        metrics: Where to count.
        on_failure: What undoes the start if the job can't run.

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
    if not has_context():
        preview(writes, path, f"{checkpoint.url}/volley")
        for sink in dead_letters(writes):
            sink.check(SCHEMA)
    now = Binding.of(writes, path, _known(names) + _known(letters))
    bound = checkpoint.bind(now, _known(names), start.backfill, anew=start.into is not None)
    begun = checkpoint.begun
    known = frozenset(bound.targets or ()) if begun else frozenset()

    spark = session_for_job(session(), checkpoint.url)
    plan = compile_plan(spark, writes, path, f"{checkpoint.url}/volley", start.name)
    readers = plan.tasks.readers
    planned = PlannedEpochs(checkpoint.log, readers) if readers else None
    counters = EpochCounters(spark.sparkContext, grouped(plan.tasks.trees, len(sinks)))
    metrics.follow(lambda: counters.progress)
    executor_tasks = [ExecutorTasks(spark, start.name, counters, metrics.of_sink(sink.label)) for sink in sinks]
    committers = [
        sink.open(SinkContext(start.name, step.schema, run.metrics, run, sink.target in known))
        for sink, step, run in zip(sinks, plan.tasks.sinks, executor_tasks, strict=True)
    ]
    targets = DeadLetterSinks.open(writes, start.name, metrics, known)
    opened = (*committers, *targets.committers)
    _check_distinct(opened)
    preload(spark, {type(each).__module__ for each in (*readers, *committers)})
    epochs = Epochs(
        job=start.name,
        plan=plan,
        splits=None if planned is None else planned.splits,
        committers=committers,
        executor_tasks=executor_tasks,
        targets=targets,
        counters=counters,
        metrics=metrics,
        log=checkpoint.log,
        landed=Landed(checkpoint.log),
        unfinished=checkpoint.log.unfinished,
        speculative=spark.conf.get("spark.speculation", "false") == "true",
    )
    assert bound.query_id is not None, "a checkpoint that was begun has a query id"
    if not begun:
        _check_earlier_rows(opened, bound.query_id, start, checkpoint.url)
        if start.into == "replace":
            _check_clearable(opened)
            # From here on the old checkpoint must not come back: it counts rows as read that are gone.
            checkpoint.forget()
            _clear(opened)
    elif bound.targets is None:
        _check_marks(opened, bound.query_id, checkpoint.url)
    else:
        new = [_is_new(*each, bound) for each in zip(names, committers, strict=True)]
        _backfill(epochs, planned, bound.query_id, new, start)
    targets_now = zip((*names, *letters), opened, strict=True)
    checkpoint.bind_targets(bound, {name: each.identity for name, each in targets_now if name is not None})
    return epochs


def _known(names: Iterable[str | None]) -> list[str]:
    return [name for name in names if name is not None]


def _is_new(name: str | None, committer: Committer, bound: Binding) -> bool:
    """Whether a sink's target lacks the epochs so far; one that was only renamed has them."""
    known = bound.targets or {}
    renamed = committer.identity is not None and committer.identity in known.values()
    return name is not None and name not in known and not renamed


def _check_names(names: list[str]) -> None:
    # Each commits an epoch once: the second would find the first one's mark.
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise PlanError(
            f"two sinks or dead letters of this job write to {twice[0]}", hint="give each of them a table of its own"
        )


def _check_distinct(opened: Sequence[Committer]) -> None:
    """Find out whether one target was given under two names, by links for example."""
    identities = [committer.identity for committer in opened]
    for committer, identity in zip(opened, identities, strict=True):
        if identity is not None and identities.count(identity) > 1:
            raise PlanError(
                f"two sinks or dead letters of this stream write to {committer}, under two names",
                hint="give each of them a table or folder of its own",
            )


def _check_earlier_rows(opened: Sequence[Committer], query_id: str, start: Start, checkpoint: str) -> None:
    """Find out, when a job begins anew, whether its rows would come a second time."""
    for committer in opened:
        if start.into is None and (earlier := committer.earlier_rows(query_id)):
            raise PlanError(
                f"{earlier}, and checkpoint {checkpoint} has read nothing yet: job {start.name!r} would read its "
                "sources from the beginning and add every row again",
                hint='restore the checkpoint if it was moved or lost; or empty the target first: into="replace"; '
                'or keep its rows: into="append", with a source that starts where they end',
            )


def _check_clearable(opened: Sequence[Committer]) -> None:
    """Find out, before anything is deleted, whether each target can be emptied."""
    for committer in opened:
        if type(committer).clear is Committer.clear:
            committer.clear()


def _clear(opened: Sequence[Committer]) -> None:
    for committer in opened:
        committer.clear()


def _check_marks(opened: Sequence[Committer], query_id: str, checkpoint: str) -> None:
    """Check, where the checkpoint can't tell what the job wrote to, that each target has epochs of its query."""
    for committer in opened:
        if committer.identity is not None and committer.last_epoch(query_id) is None:
            raise PlanError(
                f"checkpoint {checkpoint} does not tell which sinks it was begun with, and {committer} has no epoch "
                f"of its query {query_id}: rows read before may be missing there",
                hint="start over with fresh=True, or under another job name",
            )


def _make_room(new: Sequence[Committer], query_id: str, start: Start) -> None:
    """Find out whether a backfill would add rows to a sink a second time, and empty it first if that is asked for."""
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


def _backfill(epochs: Epochs, planned: PlannedEpochs | None, query_id: str, new: list[bool], start: Start) -> None:
    """Fill new sinks with the rows of all epochs so far, as one epoch: the last one that is planned."""
    if not any(new):
        return
    if planned is None:
        raise PlanError(
            "backfill needs the Arrow-native path, and this pipeline takes the general one",
            hint="start the pipeline under another job name, which fills its sinks from the beginning",
        )
    _make_room([each for each, is_new in zip(epochs.committers, new, strict=True) if is_new], query_id, start)
    number = epochs.log.last_planned
    assert number is not None
    _log.info("%s: filling %d new sinks with the rows up to epoch %d", epochs.job, sum(new), number)
    replace(epochs, splits=planned.splits_up_to).backfill(epochs.epoch(query_id, number), new)
