"""Environment: where pipelines begin, and what they run on."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

from volley import _plan
from volley._prometheus import Endpoint
from volley.errors import ConfigError, PlanError
from volley.metrics import Metrics
from volley.sink import Sink, SinkContext
from volley.source import Source
from volley.stream import DataStream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from volley._epochs import Epochs
    from volley.job import Job

__all__ = ["Environment"]


@dataclass(frozen=True)
class Environment:
    """Where pipelines begin: it opens sources, and knows on which Spark they run and where they remember.

    Args:
        master: Spark's master URL, ``"local[4]"`` or ``"spark://host:7077"``; None = all local cores,
            or whatever the active session has.
        spark: A session to use instead of making one.
        checkpoint_dir: The folder (a path or URL that Spark can reach) below which each job keeps its checkpoint,
            under its name; None = ``.volley/checkpoints``.
        checkpoint_interval: The time from one epoch's begin to the next one's, for unbounded sources;
            a sink's `flush_interval` shortens it.
        arrow_native: False forces the general path, through Spark's own operators.

    Raises:
        ConfigError: If a setting is wrong.

    Example:
        >>> from datetime import timedelta
        >>> Environment(checkpoint_dir="/tmp/checkpoints", checkpoint_interval=timedelta(seconds=10)).arrow_native
        True
    """

    master: str | None = None
    spark: SparkSession | None = field(default=None, repr=False)
    checkpoint_dir: str | None = None
    checkpoint_interval: timedelta = timedelta(seconds=60)
    arrow_native: bool = True

    def __post_init__(self) -> None:
        if self.master is not None and self.spark is not None:
            raise ConfigError("both master and spark are given", hint="a given session already has its master")
        if self.checkpoint_interval < timedelta(0):
            raise ConfigError(
                f"checkpoint_interval {self.checkpoint_interval} is negative", hint="0 = as fast as it can"
            )

    def from_source(self, source: Source) -> DataStream:
        """A stream of the source's rows. Nothing is opened yet.

        Raises:
            ConfigError: If `source` is not a source.
        """
        if not isinstance(source, Source):
            raise ConfigError(
                f"from_source takes a Source, not {type(source).__name__}",
                hint="for example FileSource(path), MemorySource(rows), RateSource(rows_per_second)",
            )
        return DataStream(_plan.Read(source), self)

    def start(self, plan: _plan.Node, name: str, metrics_port: int | None, metrics_host: str) -> Job:
        """Start a plan as a job: check it against checkpoint, sources and sinks, then hand it to Spark."""
        from volley._checkpoint import locate
        from volley.job import Job

        path = _plan.choose_path(plan, self.arrow_native)
        _check(plan, name, path)
        checkpoint, metrics = locate(self.checkpoint_dir, name), Metrics({"job_name": name})
        endpoint = None if metrics_port is None else Endpoint(metrics, metrics_host, metrics_port)
        with ExitStack() as on_failure:
            if endpoint:
                on_failure.callback(endpoint.close)
            job = Job(self._open(plan, name, path, checkpoint, metrics), endpoint)
            sinks, bounded = _sinks(plan), all(source.bounded for source in _plan.sources(plan))
            job._start(checkpoint, self._interval(sinks), bounded)
            on_failure.pop_all()
        return job

    def _open(self, plan: _plan.Node, name: str, path: _plan.Path, checkpoint: str, metrics: Metrics) -> Epochs:
        from volley._checkpoint import PlannedEpochs, bind, bind_targets, unfinished_epoch
        from volley._dead_letters import Targets
        from volley._epochs import Chores, Epochs
        from volley._session import open_session, session_for_job
        from volley._spark import compile_plan
        from volley._tally import Tally
        from volley._workers import preload

        spark = session_for_job(self.spark or open_session(self.master), checkpoint)
        bind(checkpoint, plan)
        program = compile_plan(spark, plan, path, f"{checkpoint}/volley", name)
        planned = None if program.source is None else PlannedEpochs(checkpoint, program.source)
        sinks = _sinks(plan)
        tally = Tally(spark.sparkContext, len(sinks))
        metrics.follow(lambda: tally.progress)
        chores = [Chores(spark, name, tally, metrics.of_sink(sink.label)) for sink in sinks]
        committers = [
            sink.open(SinkContext(name, schema, run.metrics, run))
            for sink, schema, run in zip(sinks, program.schemas, chores, strict=True)
        ]
        targets = Targets.open(sinks, name, metrics)
        filled = [committer.target for committer in (*committers, *targets.committers)]
        _check_targets([target[0] for target in filled if target is not None])
        bind_targets(checkpoint, filled)
        preload(spark, {type(each).__module__ for each in (program.source, *committers)})
        speculative, unfinished = spark.conf.get("spark.speculation", "false") == "true", unfinished_epoch(checkpoint)
        return Epochs(name, program, planned, committers, chores, targets, tally, metrics, unfinished, speculative)

    def _interval(self, sinks: list[Sink]) -> timedelta:
        waits = [sink.flush_interval for sink in sinks if sink.flush_interval is not None]
        return min([self.checkpoint_interval, *waits])


def _sinks(plan: _plan.Node) -> list[Sink]:
    return [write.sink for write in _plan.writes(plan)]


def _check(plan: _plan.Node, name: str, path: _plan.Path) -> None:
    if not name or not name.strip():
        raise ConfigError("a job needs a name", hint='its checkpoint is kept under it: execute("orders-to-lake")')
    if not isinstance(plan, _plan.Write):
        raise PlanError(f"the pipeline ends in {plan.label()}, not in a sink", hint="end it with .to_sink(...)")
    if not path.arrow_native and any(write.sink.dead_letter for write in _plan.writes(plan)):
        raise PlanError(
            f"a sink has a dead_letter, which needs the Arrow-native path; this pipeline takes the {path}",
            hint="leave dead_letter out, or sort bad rows out by filter_expr",
        )


def _check_targets(names: list[str]) -> None:
    # Each commits an epoch once: the second would find the first one's mark.
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise PlanError(
            f"two sinks or dead letters of this stream write to {twice[0]}", hint="give each of them a table of its own"
        )
