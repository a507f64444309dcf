"""Makes or takes the Spark session: finds Java, sets the workers' Python, keeps Spark's noise out of the terminal."""

from __future__ import annotations

import logging
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from volley._java import find_java
from volley.errors import ConfigError, JobError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["log_file", "open_session", "session_for_job"]

_SETTINGS = {
    "spark.app.name": "volley",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}

_MEANING = {
    # The Arrow-native path computes in UTC and refuses overflow; the general path has to do the same.
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    # Arrow and Iceberg tell "A" from "a".
    "spark.sql.caseSensitive": "true",
}

_LOCAL_SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # One shuffle partition a core: state and shuffles of one machine need no more.
    "spark.sql.shuffle.partitions": str(os.cpu_count() or 1),
}


def log_file() -> Path:
    """Where the JVM of this process and its Python workers print what they have to say."""
    folder = Path(tempfile.gettempdir()) / f"volley-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder / f"spark-{os.getpid()}.log"


def session_for_job(session: SparkSession) -> SparkSession:
    """A session beside `session`, in which expressions mean what they mean on Arrow, whatever is set in the other."""
    own = session.newSession()
    for name, value in _MEANING.items():
        own.conf.set(name, value)
    return own


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
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkException
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    os.environ["JAVA_HOME"] = str(find_java())
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    # What fails in an epoch reaches the caller as our error; py4j and PySpark would print it a second time.
    for name in ("py4j", "DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    settings = _SETTINGS | _MEANING
    if not submitted or master is not None:
        settings["spark.master"] = master or "local[*]"
    if settings.get("spark.master", "").startswith("local"):
        settings |= _LOCAL_SETTINGS
    conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
    try:
        if SparkContext._gateway is None:
            # In a process group of its own, so that a signal to ours leaves the JVM to finish the running epoch; it
            # ends when this process does, by the end of its standard input.
            with log_file().open("ab") as log:
                gateway = launch_gateway(conf, {"stdout": log, "stderr": log, "start_new_session": True})
            SparkContext._ensure_initialized(gateway=gateway, conf=conf)
        return SparkSession(SparkContext.getOrCreate(SparkConf().setAll(list(settings.items()))))
    except (PySparkException, OSError) as error:
        raise JobError(f"Spark did not start: {_tail()}", hint=f"Spark's log is {log_file()}") from error


def _tail() -> str:
    lines = log_file().read_text(errors="replace").splitlines() if log_file().exists() else []
    return lines[-1] if lines else "no output"
