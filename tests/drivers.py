"""Drivers that die: each runs a job in a process of its own, most of them on one JVM that outlives them."""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from multiprocessing import forkserver, get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, TypedDict, TypeVarTuple, Unpack
from unittest.mock import patch

from py4j.clientserver import ClientServer
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway

from tests.processes import RUN_SECONDS, plain_environment
from tests.waiting import wait_until
from volley.engine.job import Job
from volley.errors import VolleyError
from volley.spark import sockets
from volley.spark.jvm import PRELOAD
from volley.spark.output import log_file
from volley.spark.workers import choose_worker_python
from volley.task.failpoints import LOG, VARIABLE, VICTIM

__all__ = ["Drivers", "await_end", "start_jvm"]

Arguments = TypeVarTuple("Arguments")


class Options(TypedDict, total=False):
    """How a driver is started; as `Drivers.start` has them."""

    failpoint: str
    kill_driver: bool
    deaths: Path | None


# Drivers are forked from a process that has imported what a job needs, two CPU-seconds' worth, and started nothing.
_processes = get_context("forkserver")
_processes.set_forkserver_preload(
    [
        *("__main__", "tests.recovery.pipeline", "volley.iceberg.pyiceberg_private.sql", "sqlalchemy.dialects.sqlite"),
        *("volley.engine.launch", "volley.engine.repair", "volley.engine.display", "volley.connectors.files.reader"),
        *("volley.iceberg.commit.tables", "volley.iceberg.maintain.maintainer", "volley.iceberg.maintain.committer"),
        *("pyspark.sql.classic.dataframe", "pyspark.testing", "tests.format_version"),
    ]
)


@dataclass(frozen=True)
class Drivers:
    """Runs jobs in drivers, each a new process with a Spark context of its own.

    Args:
        jvm: The JVM that the drivers use one after the other: it costs a run 10 CPU-seconds less than a JVM of its own,
            and keeps nothing of an earlier driver but loaded classes. None = each driver that needs one starts its own,
            as a user's does, and takes it along when it dies.
        seconds: How long a driver that is waited for may run.
    """

    jvm: ClientServer | None = None
    seconds: float = RUN_SECONDS

    def die(
        self, failpoint: str, job: Callable[[*Arguments], object], *args: *Arguments, kill_driver: bool = False
    ) -> None:
        """Run a job in a driver that the failpoint kills; arguments as for `start`."""
        assert self.run(job, *args, failpoint=failpoint, kill_driver=kill_driver) == -signal.SIGKILL

    def run(self, job: Callable[[*Arguments], object], *args: *Arguments, **more: Unpack[Options]) -> int:
        """Run a job in a driver, and return its exit code; `more` as for `start`."""
        return self.wait(self.start(job, *args, **more))

    def start(
        self,
        job: Callable[[*Arguments], object],
        *args: *Arguments,
        failpoint: str = "",
        kill_driver: bool = False,
        deaths: Path | None = None,
    ) -> BaseProcess:
        """Start a driver; wait for it before the next one starts.

        Args:
            job: What it calls; a function of a module, or a `partial` of one.
            args: The job's arguments.
            failpoint: The failpoints to arm.
            kill_driver: Also where a task reaches the failpoint, the driver dies.
            deaths: A file that gets a line for each process that a failpoint kills.
        """
        _start_fork_server()
        logged = {} if deaths is None else {LOG: str(deaths)}
        environment = plain_environment(**{VARIABLE: failpoint}, **logged, **self._address())
        # The sockets of a JVM that outlives its drivers are where this process has them.
        folder = None if self.jvm is None else sockets.socket_folder()[0]
        driver = _processes.Process(target=_drive, args=(environment, kill_driver, folder, partial(job, *args)))
        driver.start()
        return driver

    def wait(self, driver: BaseProcess) -> int:
        """Wait until the driver ends, stop what it leaves in the JVM, and return its exit code."""
        driver.join(self.seconds)
        exit_code = driver.exitcode
        driver.kill()
        if self.jvm is not None:
            _stop_context(self.jvm.jvm)
        if exit_code is None:
            raise TimeoutError(f"{driver} has not ended in {self.seconds} s")
        return exit_code

    def _address(self) -> dict[str, str]:
        """The variables that tell PySpark of a JVM."""
        if self.jvm is None:
            return {}
        where = self.jvm.java_parameters
        return {"PYSPARK_GATEWAY_PORT": str(where.port), "PYSPARK_GATEWAY_SECRET": where.auth_token}


def await_end(job: Job) -> None:
    """Wait until a job has ended, and raise what it fails with."""
    job.wait()
    if job.exception is not None:
        raise job.exception


@contextmanager
def start_jvm() -> Iterator[ClientServer]:
    """A JVM for drivers, with the settings that Volley gives it; it ends with this process at the latest."""
    # The workers of all drivers inherit the JVM's environment.
    choose_worker_python("local", starts=True)
    # Volley has the workers of a user's JVM import these modules before it forks them.
    os.environ[PRELOAD] = "volley.iceberg.commit.committer"
    conf = SparkConf(loadDefaults=False).set("spark.app.name", "volley").set("spark.ui.showConsoleProgress", "false")
    with log_file().with_suffix(".drivers.log").open("ab") as log:
        gateway = launch_gateway(conf, {"stdout": log, "stderr": log, "start_new_session": True})
    yield gateway
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(60)


def _stop_context(jvm: Any) -> None:
    """Stop the context of a driver that was killed, which stops its Python workers, too; its query ends by itself."""
    context = getattr(getattr(jvm.org.apache.spark, "SparkContext$"), "MODULE$").getActive()
    if context.isDefined():
        context.get().stop()

    def queries() -> list[Any]:
        # Not by the set's iterator: its end is an exception, which PySpark would look up by number in another JVM.
        threads = jvm.Thread.getAllStackTraces().keySet().toArray()
        return [thread for thread in threads if thread.getName().startswith("stream execution thread")]

    try:
        wait_until(lambda: not queries(), 10, "the end of the query")
    except TimeoutError:
        # A Spark job that is submitted while its context stops waits for ever, and with it all drivers after this one.
        for thread in queries():
            thread.interrupt()
        wait_until(lambda: not queries(), 60, "the end of the query after an interrupt")


@cache
def _start_fork_server() -> None:
    """Start the process from which drivers are forked, with an environment in which it finds this checkout."""
    with patch.dict(os.environ, plain_environment(), clear=True):
        forkserver.ensure_running()


def _drive(
    environment: dict[str, str],
    kill_driver: bool,
    folder: Path | None,
    job: Callable[[], object],
) -> None:
    """Run a job in this process, the driver."""
    os.environ.clear()
    os.environ.update(environment)
    if kill_driver:
        os.environ[VICTIM] = str(os.getpid())
    if folder is not None:
        sockets._own = os.getpid(), folder, -1
        _arm_workers()
        _number_callbacks()
    try:
        job()
    except VolleyError as error:
        # Python prints a VolleyError without its cause.
        if error.cause is not None:
            traceback.print_exception(error.cause)
        raise


def _arm_workers() -> None:
    """Give the failpoints to Python workers: they inherit the environment of the JVM, which is not this process'."""
    SparkContext._ensure_initialized()
    assert SparkContext._jvm is not None
    system = SparkContext._jvm.System
    for name in (VARIABLE, VICTIM, LOG):
        setting = f"spark.executorEnv.{name}"
        if name in os.environ:
            system.setProperty(setting, os.environ[name])
        else:
            system.clearProperty(setting)


def _number_callbacks() -> None:
    """Give this driver's callbacks numbers of their own.

    The JVM still frees those of drivers that have died, by their numbers, in the process that it now calls.
    """
    gateway: Any = SparkContext._gateway
    gateway.gateway_property.pool.next_id = os.getpid() << 20
