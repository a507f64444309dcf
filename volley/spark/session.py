"""Makes or takes the Spark session: finds Java, sets the workers' Python, keeps Spark's noise out of the terminal."""

from __future__ import annotations

import logging
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from volley.errors import ConfigError, JobError
from volley.spark.java import find_java
from volley.spark.worker_python import choose_worker_python

if TYPE_CHECKING:
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

__all__ = ["has_context", "log_file", "log_trace", "open_session", "session_for_job"]

_AT_LAUNCH = {
    # Spark's own values for a shell, which we look like, would be in the way of ours later.
    "spark.app.name": "volley",
    "spark.ui.showConsoleProgress": "false",
}

_MEANING = {
    # The Arrow-native path computes in UTC and refuses overflow; the general path has to do the same.
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    # Arrow and Iceberg tell "A" from "a".
    "spark.sql.caseSensitive": "true",
    # Without it Spark refuses every plan that has a column of type time.
    "spark.sql.timeType.enabled": "true",
}

_LOCAL_CHECKPOINT = {
    # Spark's own choice asks the shell, two dozen times an epoch, whether a file of its log is a link.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}

_DEFAULTS = {"spark.ui.enabled": "false"} | _MEANING

_LOCAL_DEFAULTS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # One shuffle partition a core: state and shuffles of one machine need no more.
    "spark.sql.shuffle.partitions": str(os.cpu_count() or 1),
}
_JVM_OPTIONS = "SPARK_SUBMIT_OPTS"
# A driver runs most of its code a few dozen times an epoch: compiled as eagerly as is usual, that costs the JVM half of
# its CPU for the first minutes; what is hot in earnest is compiled all the same, a moment later.
_COMPILE_LATER = "-XX:CompileThresholdScaling=10"

_SOCKET = "spark.python.unix.domain.socket"
# Systems take a socket's path of about a hundred bytes; Spark's name for it has 42.
_LONGEST_SOCKET_FOLDER = 60


def log_file() -> Path:
    """Where the JVM of this process and its Python workers print what they have to say."""
    folder = Path(tempfile.gettempdir()) / f"volley-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder / f"spark-{os.getpid()}.log"


def log_trace(text: str) -> Path:
    """Append a trace that is too long for the terminal to the log; where that is."""
    file = log_file()
    with suppress(OSError), file.open("a", errors="replace") as log:
        log.write(f"{text}\n")
    return file


def session_for_job(session: SparkSession, checkpoint: str) -> SparkSession:
    """A session beside `session`, in which expressions mean what they mean on Arrow, whatever is set in the other.

    Args:
        session: The session.
        checkpoint: The job's checkpoint folder, an absolute path or a URL.
    """
    _show_files_to_sources()
    own = session.newSession()
    on_this_disk = str(session.sparkContext.master).startswith("local") and "://" not in checkpoint
    for name, value in (_MEANING | (_LOCAL_CHECKPOINT if on_this_disk else {})).items():
        own.conf.set(name, value)
    return own


def _show_files_to_sources() -> None:
    """Let the process in which a source plans its splits import what was sent with ``--py-files`` or `addPyFile`.

    Spark has it look in a folder that only Spark Connect fills; beside it are the files of everyone else.
    """
    from pyspark import SparkFiles

    folder = Path(SparkFiles.getRootDirectory()) / "streaming_job"
    with suppress(FileExistsError):
        folder.symlink_to(folder.parent)


def has_context() -> bool:
    """Whether Spark runs in this process already."""
    from pyspark import SparkContext

    return SparkContext._active_spark_context is not None


def open_session(master: str | None) -> SparkSession:
    """The active session, or a new one on `master` (default: all local cores).

    Raises:
        ConfigError: If a session with another master is active.
        MissingDependencyError: If there is no Java that Spark can run on.
        JobError: If Spark does not start.
    """
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is None:
        return _start(master)
    if master is not None and active.sparkContext.master != master:
        raise ConfigError(
            f"Environment(master={master!r}), but a session with master {active.sparkContext.master!r} is active",
            hint="stop that session first, or leave master out to use it",
        )
    return active


def _start(master: str | None) -> SparkSession:
    from py4j.protocol import Py4JError
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    os.environ["JAVA_HOME"] = str(find_java())
    # What fails in an epoch reaches the caller as our error; py4j and PySpark would print it a second time.
    for name in ("py4j", "DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    chosen = {} if submitted and master is None else {"spark.master": master or "local[*]"}
    try:
        connected = SparkContext._gateway is not None
        choose_worker_python(chosen.get("spark.master"), starts=not connected and not submitted)
        if not connected:
            _launch(_AT_LAUNCH | chosen)
        return SparkSession(SparkContext.getOrCreate(_completed(SparkConf().setAll(list(chosen.items())))))
    except (PySparkException, Py4JError, OSError) as error:
        where = chosen.get("spark.master", "the master of spark-submit")
        raise JobError(
            f"Spark did not start on {where}: {_reason(error)}", hint=f"Spark's log is {log_file()}"
        ) from error


def _launch(settings: dict[str, str]) -> None:
    """Start the JVM, unless spark-submit has.

    It has a process group of its own, so that a signal to ours leaves it to finish the running epoch; it ends when
    this process does, by the end of its standard input.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
    with log_file().open("ab") as log, _jvm_options():
        gateway = launch_gateway(conf, {"stdout": log, "stderr": log, "start_new_session": True})
    SparkContext._ensure_initialized(gateway=gateway, conf=conf)


@contextmanager
def _jvm_options() -> Iterator[None]:
    """Options for the JVM that starts meanwhile; whatever else sets one, a user or Spark's own files, goes before."""
    given = os.environ.get(_JVM_OPTIONS)
    os.environ[_JVM_OPTIONS] = f"{_COMPILE_LATER} {given or ''}".strip()
    try:
        yield
    finally:
        if given is None:
            del os.environ[_JVM_OPTIONS]
        else:
            os.environ[_JVM_OPTIONS] = given


def _completed(conf: SparkConf) -> SparkConf:
    """With our settings, where neither spark-submit nor Spark's own files have said something else."""
    local = conf.get("spark.master", "").startswith("local")
    for name, value in (_AT_LAUNCH | _DEFAULTS | (_LOCAL_DEFAULTS | _sockets() if local else {})).items():
        conf.setIfMissing(name, value)
    return conf


def _sockets() -> dict[str, str]:
    """Let the JVM and its Python workers talk by Unix domain sockets, in a folder of our own.

    TCP holds a second small message back until the first is acknowledged, which costs each task 40 ms.
    """
    folder = log_file().parent
    short_enough = len(os.fsencode(folder)) <= _LONGEST_SOCKET_FOLDER
    return {f"{_SOCKET}.enabled": "true", f"{_SOCKET}.dir": str(folder)} if short_enough else {}


def _reason(error: Exception) -> str:
    from py4j.protocol import Py4JJavaError

    log = log_file().read_text(errors="replace") if log_file().exists() else ""
    if not isinstance(error, Py4JJavaError):
        return log.splitlines()[-1] if log else "no output"
    reason = str(error.java_exception.toString()).partition("\n")[0]
    # A master that does not answer only shows in the log.
    killed = re.findall(r"Application has been killed\. Reason: (.+)", log)
    return str(killed[-1]) if killed and "stopped SparkContext" in reason else reason
