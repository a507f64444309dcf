"""One Spark session for all tests of a process: Volley's own, with two cores; and the servers."""

from __future__ import annotations

import atexit
import gc
import os
import pathlib
import shutil
import tempfile
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING

import psutil
import pytest
from hypothesis import settings

from tests.classes import java_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.drivers import Drivers

pytest_plugins = ["tests.durations", "tests.format_version", "tests.servers.fixtures"]

settings.register_profile("few", max_examples=10, deadline=None)
settings.register_profile("nightly", max_examples=200, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "few"))

os.environ.setdefault("JAVA_TOOL_OPTIONS", java_options())
# The tests' JVMs have an archive of their own, and must not write one when they end.
os.environ.setdefault("VOLLEY_CLASS_ARCHIVE", "off")

_MEMORY = "/dev/shm"


def pytest_configure(config: pytest.Config) -> None:
    """Let a process of xdist end without freeing a million objects one by one, for which the run would wait.

    Tests write and sync many small files: keep these in memory, which takes less CPU time, until the run ends. Set
    TMPDIR to look at what a test has left.
    """
    if hasattr(config, "workerinput"):
        # Registered first, it runs last.
        atexit.register(os._exit, 0)
    elif "TMPDIR" not in os.environ and _has_room_in_memory():
        # All processes of this run inherit the folder.
        tempfile.tempdir = os.environ["TMPDIR"] = tempfile.mkdtemp(prefix="volley-", dir=_MEMORY)
        # PostgreSQL runs as another user.
        os.chmod(tempfile.tempdir, 0o711)
        # Registered first, it runs last.
        atexit.register(shutil.rmtree, tempfile.tempdir, ignore_errors=True)


def _has_room_in_memory() -> bool:
    """Return whether the machine can hold what the tests write, 3 GB, beside their processes, which take 14."""
    if not os.path.isdir(_MEMORY) or psutil.virtual_memory().available < 18 << 30:
        return False
    there = os.statvfs(_MEMORY)
    # Some tests write programs.
    return there.f_bavail * there.f_frsize > 4 << 30 and not there.f_flag & os.ST_NOEXEC


def pytest_sessionfinish() -> None:
    """Keep what the tests leave from being looked at by pytest's last garbage collections."""
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep what collection leaves, a million objects, from being looked at by garbage collections, and have few."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(100_000, 20, 20)
        gc.enable()


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The session that Environment would make, with two cores; workers find the tests' own modules."""
    from pyspark import SparkContext

    from tests.warm_python import warm_workers
    from volley.spark.session import open_context, session_of

    root = str(pathlib.Path(__file__).parent.parent)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    warm_workers()
    # A job of a test before, which did without this session, has made one of its own.
    if (left := SparkContext._active_spark_context) is not None:
        left.stop()
    with pytest.MonkeyPatch.context() as patch:
        # This JVM runs jobs for minutes: it compiles code sooner than that of a user's job.
        patch.setenv("SPARK_SUBMIT_OPTS", "-XX:CompileThresholdScaling=2")
        session = session_of(open_context("local[2]"))
    # A JVM that a test before has started does not have the variable.
    session.sparkContext.environment["PYTHONPATH"] = os.environ["PYTHONPATH"]
    yield session
    session.stop()


@pytest.fixture(scope="session")
def job_session(spark: SparkSession) -> SparkSession:
    """The session a job runs in, with no shortcut for rows the driver holds: they go through generated code."""
    from volley.spark.session import session_for_job

    session = session_for_job(spark, "/checkpoint")
    session.conf.set(
        "spark.sql.optimizer.excludedRules", "org.apache.spark.sql.catalyst.optimizer.ConvertToLocalRelation"
    )
    return session


@pytest.fixture(scope="session")
def drivers(spark: SparkSession) -> Iterator[Drivers]:
    """Runs jobs in drivers that may die, on one JVM that outlives them; it is not the one of `spark`."""
    from tests.drivers import Drivers, start_jvm

    with start_jvm() as jvm:
        yield Drivers(jvm)
