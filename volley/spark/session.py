"""Opens the Spark session: finds Java, chooses the workers' Python, sends Spark's output to a log file."""

from __future__ import annotations

import logging
import os
import re
import tempfile
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from volley.errors import ConfigError, JobError, SessionLostError, StorageError
from volley.spark.gateway import fault, hold, is_held, let_go, loss, may_replace, quiet
from volley.spark.jvm import AT_LAUNCH, LOCAL, begin, connect, submitted
from volley.spark.output import log_file, refusal
from volley.spark.sockets import socket_folder
from volley.spark.workers import choose_worker_python, is_script_chosen, preload

if TYPE_CHECKING:
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

__all__ = [
    "STOP_SECONDS",
    "has_context",
    "log_trace",
    "open_context",
    "refuse_connect",
    "runs_locally",
    "runs_once_locally",
    "session_for_job",
    "session_of",
    "start_in_pool",
    "usable_context",
]

T = TypeVar("T")

_log = logging.getLogger(__name__)

_SEMANTICS = {
    # What pushed filters compare, and the frames of sources that Spark reads, is in UTC, as in Arrow.
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    # Names are case-sensitive in Arrow and Iceberg.
    "spark.sql.caseSensitive": "true",
    # Otherwise Spark rejects every plan with a column of type time.
    "spark.sql.timeType.enabled": "true",
}

_ONE_DAEMON = {
    # Spark passes this option in the workers' environment, to tasks of frames only, and starts a daemon of workers per
    # environment: those that are preloaded would serve no frame.
    "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "false",
}

STOP_SECONDS = 60
"""How long the stop of a query waits for its thread, which may be in a source that does not answer."""

_LOCAL_CHECKPOINT = {
    # Spark's default starts a shell to check for symbolic links, two dozen times an epoch.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}

_RAISED = re.compile(r'(?:Exception in thread "[^"]*" |Caused by: |Error: )(.+)')
_POOL = "spark.scheduler.pool"
_DEFAULTS = {
    "spark.ui.enabled": "false",
    # Jobs of one session share its cores: else the tasks of one wait until all those of the others have begun.
    "spark.scheduler.mode": "FAIR",
    # Workers keep what Arrow has freed for ten seconds, longer than its allocator does by default: with new pages of
    # memory for each batch, a task takes a fifth more CPU on a busy machine.
    "spark.executorEnv.MIMALLOC_PURGE_DELAY": "10000",
} | _SEMANTICS

_LOCAL_DEFAULTS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # One shuffle partition per core is enough for the state and shuffles of one machine.
    "spark.sql.shuffle.partitions": str(os.cpu_count() or 1),
}
_SOCKET = "spark.python.unix.domain.socket"
# The path of a socket is limited to about 100 bytes; Spark's file name takes 42.
_MAX_SOCKET_FOLDER = 60


def log_trace(text: str) -> Path:
    """Append a trace that is too long for the terminal to the log file; return the log file."""
    try:
        file = log_file()
    except StorageError:
        # The trace is of an error that matters more than the folder.
        handle, name = tempfile.mkstemp(prefix="volley-spark-", suffix=".log")
        os.close(handle)
        file = Path(name)
    with suppress(OSError), file.open("a", errors="replace") as log:
        log.write(f"{text}\n")
    return file


def session_for_job(session: SparkSession, checkpoint: str) -> SparkSession:
    """Return a new session of the same application, in which expressions give the same results as on Arrow.

    Args:
        session: The user's session, whose settings stay unchanged.
        checkpoint: The job's checkpoint folder, an absolute path or a URL.
    """
    _link_files_for_planner()
    job_session = session.newSession()
    has_local_checkpoint = runs_locally(session.sparkContext) and "://" not in checkpoint
    settings = _SEMANTICS | _ONE_DAEMON | (_LOCAL_CHECKPOINT if has_local_checkpoint else {})
    settings |= {"spark.sql.streaming.stopTimeout": f"{STOP_SECONDS}s"}
    for name, value in settings.items():
        job_session.conf.set(name, value)
    return job_session


def runs_locally(context: SparkContext) -> bool:
    """Return True if the tasks of a context run on the driver's machine."""
    return str(context.master).startswith("local")


def runs_once_locally(context: SparkContext) -> bool:
    """Return True if the tasks of a context run on the driver's machine, and Spark does not repeat one that fails."""
    return runs_locally(context) and "," not in str(context.master)


def start_in_pool(context: SparkContext, pool: str, start: Callable[[], T]) -> T:
    """Start a query in a pool of Spark's scheduler, unless this thread has one already; return what `start` returns.

    Args:
        context: The application's context.
        pool: The pool's name. Each pool gets the same share of the cores.
    """
    if context.getLocalProperty(_POOL) is not None:
        return start()
    context.setLocalProperty(_POOL, pool)
    try:
        return start()
    finally:
        context.setLocalProperty(_POOL, None)  # type: ignore[arg-type]


def _link_files_for_planner() -> None:
    """Let Spark's planner process import files that were sent with ``--py-files`` or `addPyFile`.

    It imports from ``streaming_job/``, which only Spark Connect fills; link that to the regular files folder.
    """
    from pyspark import SparkFiles

    folder = Path(SparkFiles.getRootDirectory()) / "streaming_job"
    with suppress(FileExistsError):
        folder.symlink_to(folder.parent)


def has_context() -> bool:
    """Return True if this process has a Spark context already."""
    from pyspark import SparkContext

    return SparkContext._active_spark_context is not None


def usable_context(own: SparkSession | None, master: str | None, modules: Iterable[str] = ()) -> SparkContext:
    """Return the context of the program's own session, the active one, or a new one if there is none.

    A context of Volley's own whose JVM has ended, or which Spark has stopped, is replaced by a new one.

    Args:
        own: The session of the job's environment; None = the active context, or a new one.
        master: See `open_context`.
        modules: See `open_context`.

    Raises:
        SessionLostError: If a session that the program has made can't run a job any more.
        VolleyError: If `open_context` raises one.
    """
    reason = None if own is None else fault(own.sparkContext)
    if own is None or (reason and is_held(own.sparkContext)):
        return open_context(master, modules)
    if reason:
        raise _lost(reason)
    return own.sparkContext


def refuse_connect(session: object) -> None:
    """Raise ConfigError for a session of Spark Connect, whose class has the name of the classic one."""
    if type(session).__module__.startswith("pyspark.sql.connect."):
        raise ConfigError(
            "the session is one of Spark Connect, on which no job can run: epochs are planned by a JVM of this process",
            hint='leave spark out, and name the master: Environment(master="spark://host:7077"); unset SPARK_REMOTE',
        )


def session_of(context: SparkContext) -> SparkSession:
    """Return the active session of a context, or a new one: it takes the JVM longer than the context itself."""
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession() or SparkSession(context)


def open_context(master: str | None, modules: Iterable[str] = ()) -> SparkContext:
    """Return the active context, or start one.

    Args:
        master: Spark's master URL; None = that of the active context, else all local cores.
        modules: What the workers of a new context import while the job is planned.

    Raises:
        ConfigError: If a context with another master is active.
        MissingDependencyError: If there is no Java that Spark supports.
        SessionLostError: If the program's own session is active and can't run a job any more.
        JobError: If Spark does not start.
    """
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    _replace_lost()
    refuse_connect(SparkSession.getActiveSession())
    active = SparkContext._active_spark_context
    if active is None:
        return _start(master, modules)
    if master is not None and active.master != master:
        raise ConfigError(
            f"Environment(master={master!r}), but a session with master {active.master!r} is active",
            hint="stop that session first, or leave master out to use it",
        )
    return active


def _replace_lost() -> None:
    """Let go of a context of Volley's own that can run no job any more."""
    from pyspark import SparkContext

    context = SparkContext._active_spark_context
    reason = fault(context) if context else loss()
    if reason is None:
        return
    if not may_replace():
        raise _lost(reason)
    _log.warning("Spark's session %s; another one is started", reason)
    let_go()


def _lost(reason: str) -> SessionLostError:
    ways = {True: "give Environment another session, or none", False: "start the program again: PySpark has one JVM"}
    return SessionLostError(f"the Spark session that this program has made {reason}", hint=ways[loss() is None])


def _start(master: str | None, modules: Iterable[str]) -> SparkContext:
    from py4j.protocol import Py4JError
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkException

    quiet()
    chosen = {} if submitted() and master is None else {"spark.master": master or LOCAL}
    try:
        if SparkContext._gateway is None:
            _connect(chosen)
        choose_worker_python(chosen.get("spark.master"), starts=False)
        context = SparkContext.getOrCreate(_completed(SparkConf().setAll(list(chosen.items()))))
        if not submitted():
            hold(context)
        # Workers take a second to start, meanwhile the driver opens sources and sinks.
        preload(context, modules)
        return context
    except (PySparkException, Py4JError, OSError) as error:
        where = chosen.get("spark.master", "the master of spark-submit")
        reason = _reason(error)
        meaning, way_out = refusal(reason if where.startswith("local") else f"{_logged()}\n{reason}")
        hint = "; ".join(filter(None, [way_out, f"Spark's log is {log_file()}"]))
        raise JobError(f"Spark did not start on {where}: {meaning or reason}", hint=hint) from error


def _connect(chosen: dict[str, str]) -> None:
    """Connect to the JVM of spark-submit, whose settings then take precedence over ours, or start one."""
    from pyspark import SparkConf, SparkContext

    if submitted():
        SparkContext._ensure_initialized()
        return
    begin(chosen["spark.master"])
    conf = SparkConf(loadDefaults=False).setAll([*AT_LAUNCH.items(), *chosen.items()])
    SparkContext._ensure_initialized(gateway=connect(), conf=conf)


def _completed(conf: SparkConf) -> SparkConf:
    """Add our settings, unless spark-submit or Spark's own files have set them."""
    local = conf.get("spark.master", "").startswith("local")
    for name, value in (AT_LAUNCH | _DEFAULTS | (_LOCAL_DEFAULTS | _sockets() | _daemon() if local else {})).items():
        conf.setIfMissing(name, value)
    return conf


def _daemon() -> dict[str, str]:
    """Return the setting for a daemon of workers that imports what tasks need before it forks."""
    return {"spark.python.daemon.module": "volley.spark.daemon"} if is_script_chosen() else {}


def _sockets() -> dict[str, str]:
    """Return the settings for Unix domain sockets between the JVM and its Python workers, in our own folder.

    TCP delays a second small message until the first is acknowledged: 40 ms per task.
    """
    folder, _ = socket_folder()
    is_short = len(os.fsencode(folder)) <= _MAX_SOCKET_FOLDER
    return {f"{_SOCKET}.enabled": "true", f"{_SOCKET}.dir": str(folder)} if is_short else {}


def _logged() -> str:
    return log_file().read_text(errors="replace") if log_file().exists() else ""


def _reason(error: Exception) -> str:
    from py4j.protocol import Py4JJavaError

    log = _logged()
    if not isinstance(error, Py4JJavaError):
        lines = [line for line in log.splitlines() if line and not line.startswith("\t")]
        raised = [match[1] for line in lines if (match := _RAISED.match(line))]
        return (raised or lines or ["no output"])[-1]
    reason = str(error.java_exception.toString()).partition("\n")[0]
    # Only the log shows that a master does not answer.
    killed = re.findall(r"Application has been killed\. Reason: (.+)", log)
    return str(killed[-1]) if killed and "stopped SparkContext" in reason else reason
