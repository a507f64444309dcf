"""Starts the JVM of this process: at once, so that it comes up while the driver imports, plans and checks."""

from __future__ import annotations

import os
import shlex
import struct
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from volley.errors import ConfigError
from volley.secrets import redact_uri
from volley.spark.java import archive_options, find_java, spark_home
from volley.spark.output import log_file
from volley.spark.sockets import socket_folder
from volley.spark.workers import choose_worker_python

if TYPE_CHECKING:
    from py4j.java_gateway import JavaGateway

__all__ = ["AT_LAUNCH", "LOCAL", "PRELOAD", "begin", "connect", "refuse_remote", "submitted"]

LOCAL = "local[*]"
"""The master that Environment takes without another one: all local cores."""

AT_LAUNCH = {
    # Spark takes this process for a shell; its defaults for shells would prevent ours later.
    "spark.app.name": "volley",
    "spark.ui.showConsoleProgress": "false",
}

PRELOAD = "VOLLEY_PRELOAD"
"""The environment variable with the modules that Spark's daemon of workers imports before it forks one."""

# Driver code runs only a few dozen times an epoch; eager JIT compilation of it costs half the JVM's CPU in the first
# minutes. Hot code is still compiled, a moment later. The last tier costs most and pays last: ten times Java's own
# bounds for it, scaled as all are, take 40 ms of CPU off each of a job's first epochs.
_COMPILE_LATER = (
    "-XX:CompileThresholdScaling=10",
    "-XX:Tier4InvocationThreshold=50000",
    "-XX:Tier4MinInvocationThreshold=6000",
    "-XX:Tier4CompileThreshold=150000",
    "-XX:Tier4BackEdgeThreshold=400000",
)
_JVM_OPTIONS = "SPARK_SUBMIT_OPTS"
_PORT, _SECRET = "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"
# PySpark sets the second one with its first session of Spark Connect.
_REMOTE = ("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED")
_POLL_SECONDS = 0.02


@dataclass(frozen=True)
class _Starting:
    """A JVM that comes up: its process, and the file in which it says where it listens."""

    process: subprocess.Popen[bytes]
    address: Path


_starting: _Starting | None = None


def submitted() -> bool:
    """Return True if spark-submit has started this process, and a JVM before it."""
    return _PORT in os.environ


def refuse_remote() -> None:
    """Raise ConfigError if PySpark, by the environment of this process, goes to a server of Spark Connect."""
    for name in _REMOTE:
        if value := os.environ.get(name):
            raise ConfigError(
                f"by {name}={redact_uri(value)} PySpark goes to Spark Connect, on which no job can run: "
                "a JVM of this process plans the epochs",
                hint=f"unset {name}, and make no session of Spark Connect in this process; a cluster is named by "
                'Environment(master="spark://host:7077")',
            )


def begin(master: str, modules: Iterable[str] = (), queries: bool = True) -> None:
    """Start this process' JVM, unless it has one; don't wait until it is up.

    The JVM gets its own process group, so that a signal to ours lets it finish the running epoch. It exits at the end
    of its standard input, when this process exits.

    Args:
        master: Spark's master URL.
        modules: What Python workers on this machine import before their first task.
        queries: False if the first job has no query of Spark's.

    Raises:
        MissingDependencyError: If there is no Java that Spark supports.
        StorageError: If another user could put something into a folder that the JVM would take files from.
        OSError: If the process can't be started.
    """
    global _starting
    if _starting is not None or submitted() or _is_connected():
        return
    java, log_path = find_java(), log_file()
    os.environ["JAVA_HOME"] = str(java)
    choose_worker_python(master, starts=True)
    home = spark_home()
    settings = {**AT_LAUNCH, "spark.master": master}
    arguments = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    arguments += shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))
    folder, lock = socket_folder()
    address = folder / "address"
    options = [*_COMPILE_LATER, *archive_options(java, home, queries), os.environ.get(_JVM_OPTIONS, "")]
    environment = {
        **os.environ,
        **{_JVM_OPTIONS: " ".join(filter(None, options)), PRELOAD: ",".join(modules)},
        **{"_PYSPARK_DRIVER_CONN_INFO_PATH": str(address), "SPARK_CONNECT_MODE": "0"},
    }
    with log_path.open("ab") as log:
        process = subprocess.Popen(
            [f"{home}/bin/spark-submit", *arguments],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            start_new_session=True,
            pass_fds=(lock,),
        )
    _starting = _Starting(process, address)


def connect() -> JavaGateway:
    """Wait until the JVM is up, and return PySpark's gateway to it.

    Raises:
        OSError: If it has ended.
    """
    from pyspark.java_gateway import launch_gateway

    global _starting
    assert _starting is not None
    starting, _starting = _starting, None
    try:
        port, secret = _address(starting)
    finally:
        starting.address.unlink(missing_ok=True)
    os.environ |= {_PORT: str(port), _SECRET: secret}
    try:
        gateway = launch_gateway()
    finally:
        del os.environ[_PORT], os.environ[_SECRET]
    gateway.proc = starting.process
    return gateway


def _address(starting: _Starting) -> tuple[int, str]:
    """Return the port at which a JVM listens, and its secret."""
    while not starting.address.exists():
        if starting.process.poll() is not None:
            raise OSError("the JVM has ended")
        time.sleep(_POLL_SECONDS)
    data = starting.address.read_bytes()
    port, length = struct.unpack_from(">ii", data)
    return port, data[8 : 8 + length].decode()


def _is_connected() -> bool:
    context = sys.modules.get("pyspark.core.context")
    return context is not None and context.SparkContext._gateway is not None
