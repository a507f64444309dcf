"""Environment: where pipelines start, and the Spark that they run on."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import InitVar, dataclass, field, replace
from datetime import date, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack

from volley import checks
from volley.connectors.snapshots.source import OnEmpty
from volley.contracts.epoch import WriteResult
from volley.contracts.sink import ExecutorTask
from volley.contracts.source import Source
from volley.engine.display import follow, in_notebook, shown, watch
from volley.engine.options import Start, StartOptions
from volley.engine.progress import enter
from volley.errors import ConfigError, PlanError, VolleyError, brief_methods
from volley.garbage import none_collected
from volley.html_table import settings_html
from volley.metrics.metrics import Metrics
from volley.plan import nodes
from volley.plan.changes import with_changes
from volley.plan.first_places import with_first_places
from volley.plan.graph import JobGraph
from volley.plan.places import caller
from volley.secrets import redact_uri
from volley.stream.pipeline import Pipeline
from volley.stream.snapshots import compared
from volley.stream.stream import DataStream

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    from volley.engine.job import Job
    from volley.engine.runs import JobRun
    from volley.metrics.endpoint import Endpoint

__all__ = ["Environment"]

_ONE_PATH = "Environment(arrow_native=…) has no effect: all steps run on Arrow batches; leave it out"


@brief_methods
@dataclass(frozen=True)
class Environment:
    """Where pipelines start: creates streams from sources and runs them on Spark.

    Args:
        master: Spark's master URL, ``"local[4]"`` or ``"spark://host:7077"``; None = all local cores,
            or whatever the active session has.
        spark: An existing session to use; None = create one.
        checkpoint_dir: The folder, a path or URL that Spark can reach, with a subfolder of each job's name for its
            checkpoint; None = ``.volley/checkpoints``.
        checkpoint_interval: The time from the start of one epoch to the start of the next, for unbounded sources:
            a timedelta, seconds or a text such as ``"5s"``; 0 = start the next epoch at once. A sink's
            `flush_interval` shortens it.
        arrow_native: Deprecated: has no effect, as there is one path. It will be removed in 0.4.

    Raises:
        ConfigError: If a setting is wrong.

    Example:
        >>> Environment(checkpoint_dir="/tmp/checkpoints", checkpoint_interval="10s").checkpoint_interval
        datetime.timedelta(seconds=10)
    """

    master: str | None = None
    spark: SparkSession | None = field(default=None, repr=False)
    checkpoint_dir: str | os.PathLike[str] | None = None
    checkpoint_interval: checks.Duration = timedelta(seconds=60)
    arrow_native: InitVar[bool | None] = None

    def __post_init__(self, arrow_native: bool | None) -> None:
        optional = checks.optional
        if arrow_native is not None:
            warnings.warn(_ONE_PATH, DeprecationWarning, stacklevel=3)
        checks.keep(self, master=optional(checks.text), checkpoint_dir=optional(checks.path))
        checks.keep(self, checkpoint_interval=checks.duration_or_zero)
        _check_session(self.spark)
        if self.master is not None and self.master.startswith("sc://"):
            raise ConfigError(
                f"master={redact_uri(self.master)!r} is an address of Spark Connect, on which no job can run: "
                "a JVM of this process plans the epochs",
                hint='name the cluster by master="spark://host:7077", or leave master out for all local cores',
            )
        if self.master is not None and self.spark is not None:
            raise ConfigError("both master and spark are given", hint="a given session already has its master")

    def from_source(self, source: Source) -> DataStream:
        """Return a stream of the source's rows. Nothing is opened yet.

        Args:
            source: The source.

        Raises:
            ConfigError: If `source` is not a source.
        """
        _check_source("from_source", source)
        return DataStream(nodes.Read(source, place=caller()), self)

    def changes_from_snapshots(
        self,
        source: Source,
        keys: str | Sequence[str],
        version: str | int | date | None = None,
        *,
        ignore: str | Sequence[str] = (),
        on_empty: OnEmpty = "refuse",
        max_deleted: float | None = 0.5,
        buckets: int = 16,
    ) -> DataStream:
        """Return a stream of what changes from one full extract of a source to the next: inserts, updates and deletes.

        An epoch compares one extract, a *snapshot* of all rows, with the one before. The rows have the columns of the
        extracts, the version of the extract and ``_change``: ``insert``, ``update_after`` or ``delete``; a deleted row
        has its last values, and the version of the extract that lacks it. Rows that stay as they are make no change.
        The stream tells its keys and operations: ``Upsert(sequence="day")`` needs nothing more.

        Args:
            source: What has the extracts: a `FileSource` or an `IcebergSource`; or any source with an end: its rows
                of now are an extract, whenever they are others than at the last look.
            keys: The columns that identify a row. Two rows of one extract with the same keys are an error.
            version: Of files, what tells the version of each: the name of a column that folders have in their names
                (``day=2026-01-01``) or that the rows have, or a pattern of the path with a group, such as
                ``r"(\\d{4}-\\d\\d-\\d\\d)\\.csv"``; ``(?P<day>…)`` names its column, else that is ``_version``. Files
                of one version are one extract. A version is a whole number, a date or a time, and orders the extracts.
                None = the rows of now; the time of the look, or of a table's snapshot, is in the column ``_version``.
                A number, date or time = the version of the rows of now, of any source but a table.
            ignore: Columns that make no change alone, such as the time of the extract.
            on_empty: ``"refuse"``: an extract without rows is an error; ``"delete_all"``: all rows are gone.
            max_deleted: The share of the rows that an extract may delete, or their number if it is a whole one; more
                fail the epoch before anything is committed. An extract of files that is smaller than the one before
                by more than the share is not read at all. None = any.
            buckets: In how many parts, by key, extracts are kept and compared: a task holds one part in memory.

        Raises:
            ConfigError: If a setting is wrong, or the source is a stream without extracts.

        Example:
            >>> from volley import Environment, FileSource
            >>> extracts = FileSource("extracts", "csv", "id long, day date")
            >>> print(Environment().changes_from_snapshots(extracts, keys="id", version="day"))
            changes from snapshots by 'id'
              read SnapshotSource(FileSource(path='extracts', format='csv', schema='id long, day date'), version='day')
        """
        _check_source("changes_from_snapshots", source)
        node = compared(source, keys, version, ignore, on_empty, max_deleted, buckets, caller())
        return DataStream(node, self)

    def sql(
        self,
        text: str,
        /,
        *,
        lateness: checks.Duration = timedelta(0),
        ttl: checks.Duration | None = None,
        **tables: Any,
    ) -> DataStream:
        """Return the rows that a query says, in Spark's dialect with case-sensitive names: of streams, or of tables.

        The text becomes the steps that the methods of streams record, so the result is a stream like any other: for
        sinks, for `to_arrow`, and for a `MaterializedView`. `docs/how-to/sql.md` lists what queries can have.

        Args:
            text: A query: ``select … from … join … on … where … group by … having …``, with queries in FROM and WITH,
                and UNION ALL.
            lateness: How much older than the latest row before it a row of a window can be and still be on time.
            ttl: How long rows of streams that are joined without a bound of time wait for each other, by the time of
                their processing; None = such a join is refused, or has the rows that a stream with an end has now.
            tables: By the name that the query has, a stream of this environment, or a table: an `IcebergTable`, a
                `TableRef`, a source, a DataFrame, Arrow data or a list of dicts. No table can be named ``lateness`` or
                ``ttl``.

        Raises:
            ExpressionError: If the text is wrong, or says what can't be translated, with the line and column.
            ConfigError: If a table is none, or the text does not name it.
            VolleyError: If a table can't be read, or types don't fit.

        Example:
            >>> orders = [{"item": "pen", "n": 2}, {"item": "ink", "n": 1}, {"item": "pen", "n": 5}]
            >>> query = "select item, sum(n) as total from orders group by item having sum(n) > 1"
            >>> Environment().sql(query, orders=orders).to_arrow().to_pylist()
            [{'item': 'pen', 'total': 7}]
        """
        from volley.queries.joins import QueryTiming
        from volley.queries.query import stream_of

        timing = QueryTiming(
            checks.duration_or_zero("lateness", lateness), checks.optional(checks.duration)("ttl", ttl)
        )
        for name, table in tables.items():
            if isinstance(table, DataStream) and table._environment != self:
                raise ConfigError(
                    f"stream {name!r} was made in another environment", hint="begin it with from_source of this one"
                )
        return stream_of(checks.text("text", text), tables, self.from_source, timing)

    def start(self, name: str, *pipelines: Pipeline, **options: Unpack[StartOptions]) -> Job:
        """Start pipelines as one job, and return the running job at once: for notebooks and services.

        Steps that pipelines share, because they continue the same stream, run once an epoch. Each sink commits by
        itself, exactly once.

        Args:
            name: The job's name, and that of its checkpoint: the next start under this name resumes the job.
            pipelines: The pipelines to run, built in this environment.
            options: `fresh`: True deletes the job's checkpoint first, so that the job reads its sources from the
                beginning.

                `into`: What to do with the rows that a sink has from an earlier checkpoint of this job, when the job
                starts over or a backfill fills the sink: ``"append"`` keeps them, ``"replace"`` first deletes all rows
                of the sink, also those of other writers (of a dead letter: those of this job); None = raise
                PlanError, as the sink would have every row twice.

                `backfill`: True writes the rows of all epochs so far to sinks that are new since the job's last run.

                `metrics_port`: The HTTP port that serves ``/metrics`` to Prometheus while the job runs, and beside it
                ``/healthz`` and ``/readyz``; 0 = a free port, see `Job.metrics_url`; None = no endpoint.

                `metrics_host`: The address to listen at; default ``"127.0.0.1"``. In a container use ``"0.0.0.0"``, so
                that other hosts can reach it.

                `metrics_allowed_hosts`: A name or a list of names under which the endpoint may be asked, such as
                ``"orders.example.com"``; addresses, ``localhost`` and `metrics_host` always may. A request for another
                host gets 403: its sender may be a web page that has let its own name lead to this machine.

                `ui_port`: The HTTP port that serves the job's page to a browser, and ``/status.json``, while the job
                runs; 0 = a free port, see `Job.ui`; None = no page. Address and names as for the metrics; it may be the
                same port.

                `metrics_token`: What requests for the metrics and the page must bring: ``Authorization: Bearer …``, or
                ``?token=…`` in a browser; ``/healthz`` and ``/readyz`` need none. None = they need nothing.

                `healthy_within`: ``/healthz`` answers 503 once nothing was committed for this long: seconds, a
                timedelta or a text such as ``"5m"``. Take longer than the sources may be silent. None = the job is
                healthy as long as it runs.

                `outage`: How long a catalog may be out of reach while the job runs: an epoch is tried again until
                then, and what receives for a source, such as a slot of PostgreSQL, goes on; a job that is planned anew
                or starts again waits for it, too. The first start does not wait, as the address may be wrong:
                `restart` repeats it. None = the job fails.

                `on_epoch`: A function that is called with each `FinishedEpoch`, before the next epoch starts.

                `on_error`: A function that is called with the VolleyError that the job fails with. What a callback
                raises is logged, and changes nothing.

                `once`: True reads what the sources have when the job starts, then stops, also if they have no end.

                `restart`: A `Restart`: start the job again after failures that may pass, with growing waits, also when
                it can't start at first; the `Job` stays the same. None = the first failure is the job's.

                `progress`: False shows no progress. True: on a terminal a line, in a notebook a table, both updated in
                place; elsewhere a line every 30 seconds: of the logger ``volley.progress`` at INFO where logging is set
                up, else on stderr.

        Raises:
            ConfigError: If there is no pipeline, or an option is wrong.
            PlanError: If the job already runs in this process, or its checkpoint belongs to another pipeline.
            VolleyError: If the job can't start; nothing has been written then.

        Example:
            >>> from volley import Environment, MemorySink, MemorySource
            >>> stream = Environment().from_source(MemorySource([{"id": 1}]))
            >>> job = Environment().start("events", stream.to_sink(MemorySink()))  # doctest: +SKIP
            >>> job.stop()  # doctest: +SKIP
        """
        return self._started(self._graph(pipelines), Start.of(name, options))

    def _started(self, graph: JobGraph, start: Start) -> Job:
        with shown(start.name) if start.progress else nullcontext(), none_collected(), ExitStack() as on_failure:
            job = self._start(graph, start, on_failure)
            on_failure.pop_all()
        if start.progress and in_notebook():
            watch(job)
        return job

    def execute(self, name: str, *pipelines: Pipeline, **options: Unpack[StartOptions]) -> Job:
        """Run pipelines as one job, to the end of their bounded sources or until the job is stopped.

        Ctrl-C and SIGTERM stop the job after the running epoch.

        Args:
            name: The job's name, and that of its checkpoint: the next run under this name resumes the job.
            pipelines: The pipelines to run, built in this environment.
            options: See `start`.

        Returns:
            The finished job.

        Raises:
            VolleyError: If the job can't start or fails; the sinks keep the epochs that were committed.

        Example:
            >>> from volley import Environment, MemorySink, MemorySource, col
            >>> environment, good, bad = Environment(), MemorySink("good"), MemorySink("bad")
            >>> paid, free = environment.from_source(MemorySource([{"price": 0}, {"price": 5}])).split(col("price") > 0)
            >>> environment.execute("prices", paid.to_sink(good), free.to_sink(bad))  # doctest: +SKIP
            Job('prices', finished, epoch 0, 2 rows)
        """
        return self._executed(self._graph(pipelines), Start.of(name, options))

    def _executed(self, graph: JobGraph, start: Start) -> Job:
        job = self._started(graph, start)
        follow(job, start.progress)
        if job.exception is not None:
            raise job.exception
        return job

    def replay(self, name: str, *pipelines: Pipeline, **options: Unpack[StartOptions]) -> Job:
        """Read the dead letters of a job again, through its pipelines as they are now, and wait for the end.

        Each row gets to those of its sinks that lack it, exactly once, and its letter is marked in the column
        `replayed`. A letter whose row fails again stays, with its new reason. A replay that was killed is finished by
        the next one, before that reads what is new. The job itself may run meanwhile.

        Letters of rows that came out of a window or another step with state stay as they are, as do those of which
        the payload has lost bytes (format ``text``), and those that lack a sink which `pipelines` don't have.

        Args:
            name: The job's name.
            pipelines: The job's pipelines, mended, with the same sinks and one dead letter, an Iceberg table.
            options: Those of `start`, without `fresh`, `into`, `backfill` and `once`.

        Returns:
            The finished replay: its `progress` has the letters that were `replayed`, and `rejected` again.

        Raises:
            ConfigError: If an option is wrong, or a source does not tell its schema.
            PlanError: If a pipeline has a step with state, or sinks or letters that can't take part.
            VolleyError: If the replay can't start or fails; the next one finishes it.

        Example:
            >>> from volley import Environment, FileSource, IcebergSink, IcebergSinkConfig, IcebergStorage
            >>> config = IcebergSinkConfig(namespace="db", table="events", storage=IcebergStorage.Local("/tmp/lake"))
            >>> events = Environment().from_source(FileSource("in", "json", "id long, price double"))
            >>> mended = events.to_sink(IcebergSink(config), dead_letter="bad_events")
            >>> Environment().replay("events", mended)  # doctest: +SKIP
            Job('events.replay', finished, epoch 0, 2 rows)
        """
        for option in ("fresh", "into", "backfill", "once"):
            if option in options:
                raise ConfigError(f"a replay has no option {option!r}", hint="it reads what was not replayed yet")
        start = Start.of(name, options)

        from volley.engine.checkpoint import locate
        from volley.engine.replay import REPLAY, replay_of

        folder = locate(self._checkpoints, start.name)
        graph = replay_of(self._graph(pipelines), name, f"{folder}/volley")
        return self._executed(graph, replace(start, name=f"{name}{REPLAY}"))

    def runs(self, name: str) -> list[JobRun]:
        """Return the runs of a job so far, oldest first; also those whose process was killed. None start Spark.

        Args:
            name: The job's name.

        Raises:
            ConfigError: If the name is not valid.
            StorageError: If the history can't be read.

        Example:
            >>> Environment(checkpoint_dir="/tmp/no-checkpoints").runs("events")
            []
        """
        from volley.engine.checkpoint import locate
        from volley.engine.runs import runs_of

        return runs_of(locate(self._checkpoints, Start(name).name))

    def forget(self, name: str) -> None:
        """Delete a job's checkpoint: the next run under its name reads its sources from the beginning.

        Sinks keep their rows; where these would be there twice, the next start asks for ``into=``. A process that dies
        meanwhile leaves the checkpoint as it was, or deleted.

        Args:
            name: The job's name.

        Raises:
            ConfigError: If the name is not valid.
            PlanError: If the job runs in this process, has no checkpoint, or another program made it.
            StorageError: If the checkpoint can't be deleted.

        Example:
            >>> Environment(checkpoint_dir="/tmp/checkpoints").forget("events")  # doctest: +SKIP
        """
        from volley.engine.checkpoint import Checkpoint, claim, locate

        folder = locate(self._checkpoints, Start(name).name)
        with claim(folder, name):
            checkpoint = Checkpoint(folder, name)
            checkpoint.settle()
            if not checkpoint.begun:
                raise PlanError(f"job {name!r} has no checkpoint {folder}", hint="check the name and checkpoint_dir")
            checkpoint.set_aside()
            checkpoint.forget()

    @property
    def _checkpoints(self) -> str | None:
        return None if self.checkpoint_dir is None else os.fspath(self.checkpoint_dir)

    def task_runner(self) -> Callable[[Sequence[ExecutorTask]], list[WriteResult]]:
        """Return a function that runs the work of a table's maintenance on Spark's executors.

        The session is opened at the first call, unless it was given.

        Example:
            >>> from volley import IcebergStorage, IcebergTable, TableRef
            >>> events = IcebergTable(TableRef("db", "events", IcebergStorage.Local("/tmp/lake")))
            >>> run = Environment("local[4]").task_runner()
            >>> events.compact(sort_by="id", run=run)  # doctest: +SKIP
        """

        def run(tasks: Sequence[ExecutorTask]) -> list[WriteResult]:
            if self.spark is None:
                _check_spark()

            from volley.spark.run import run_tasks
            from volley.spark.session import usable_context

            return run_tasks(usable_context(self.spark, self.master), tasks)

        return run

    def _graph(self, pipelines: Sequence[Pipeline]) -> JobGraph:
        """Return the graph that pipelines make."""
        if not pipelines:
            raise ConfigError(
                "a job needs a pipeline",
                hint='execute("name", stream.to_sink(sink)) or stream.to_sink(sink).execute("name")',
            )
        for pipeline in pipelines:
            if not isinstance(pipeline, Pipeline):
                raise ConfigError(
                    f"a job runs pipelines, not {type(pipeline).__name__}", hint="end each stream with .to_sink(...)"
                )
            if pipeline._environment != self:
                raise ConfigError(
                    "a pipeline was made in another environment", hint="begin it with from_source of this one"
                )
        writes = [write for pipeline in pipelines for write in pipeline._writes]
        return JobGraph.of(with_changes(with_first_places(writes)))

    def _start(self, graph: JobGraph, start: Start, on_failure: ExitStack) -> Job:
        if self.spark is None:
            _check_spark()
            self._begin_jvm(graph)

        from volley.engine.checkpoint import Checkpoint, locate, release, reserve
        from volley.engine.job import Job
        from volley.engine.options import JobContext
        from volley.spark.session import usable_context

        folder, metrics = locate(self._checkpoints, start.name), Metrics({"job_name": start.name})
        reserve(folder, start.name)
        on_failure.callback(release, folder)
        endpoints = _endpoints(start, metrics, on_failure)

        def spark_context() -> SparkContext:
            enter("starting Spark")
            opened = usable_context(self.spark, self.master, () if graph.is_small else graph.worker_modules)
            enter("planning")
            return opened

        checkpoint = Checkpoint(folder, start.name)
        context = JobContext(start, graph, checkpoint, metrics, spark_context, self.spark, self._interval(graph))
        job = Job(context, endpoints, partial(release, folder))
        job._start()
        return job

    def _begin_jvm(self, graph: JobGraph) -> None:
        """Let the JVM start while this process imports, plans and checks."""
        from volley.spark import jvm

        # What is wrong is raised where the session is opened, after all checks that don't need Spark.
        with suppress(VolleyError, OSError):
            jvm.begin(self.master or jvm.LOCAL, sorted(graph.worker_modules), graph.has_queries)

    def _interval(self, graph: JobGraph) -> timedelta:
        assert isinstance(self.checkpoint_interval, timedelta)
        waits = (write.sink.flush_interval for write in graph.writes)
        return min([self.checkpoint_interval, *(wait for wait in waits if wait is not None)])

    _repr_html_ = settings_html


def _endpoints(start: Start, metrics: Metrics, on_failure: ExitStack) -> dict[int, Endpoint]:
    """Return the endpoints of a job by the ports that it was given."""
    ports = {port for port in (start.metrics_port, start.ui_port) if port is not None}
    if not ports:
        return {}
    from volley.metrics.endpoint import Endpoint

    registry, endpoints = metrics.to_registry(), dict[int, Endpoint]()
    for port in sorted(ports):
        endpoints[port] = Endpoint(registry, start.metrics_host, port, start.metrics_allowed_hosts, start.metrics_token)
        on_failure.callback(endpoints[port].close)
    return endpoints


def _check_source(verb: str, source: object) -> None:
    if not isinstance(source, Source):
        raise ConfigError(
            f"{verb} takes a Source, not {checks.class_or_type(source)}",
            hint="for example FileSource(path), MemorySource(rows), RateSource(rows_per_second)",
        )


def _check_spark() -> None:
    from volley.spark.java import spark_home
    from volley.spark.jvm import refuse_remote

    spark_home()
    refuse_remote()


def _check_session(spark: object) -> None:
    if spark is not None:
        from pyspark.sql import SparkSession

        from volley.spark.session import refuse_connect

        refuse_connect(spark)
        checks.of_type(SparkSession, "SparkSession.builder.getOrCreate(), or leave it out")("spark", spark)
