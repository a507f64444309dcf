"""A JVM that is killed, or whose Spark has stopped: jobs go on in another one, or end at once and say so."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.duck import query
from tests.processes import RUN_SECONDS, plain_environment

OWN = """
import logging
import os
import signal
import sys
from contextlib import suppress
from threading import Thread

from py4j.protocol import Py4JError
from pyspark import SparkContext

from volley import Environment, IcebergSink, IcebergSinkConfig, IcebergStorage, JobError, MemorySource, Restart

logging.basicConfig(format="%(message)s", level=logging.WARNING)
environment = Environment("local[2]", checkpoint_dir="checkpoints")


def ask(semaphore):
    with suppress(Py4JError, OSError):
        semaphore.acquire()


def kill():
    # While a thread waits for its answer.
    semaphore = SparkContext._jvm.java.util.concurrent.Semaphore(0)
    asking = Thread(target=ask, args=[semaphore])
    asking.start()
    while not semaphore.hasQueuedThreads():
        pass
    os.kill(SparkContext._gateway.proc.pid, signal.SIGKILL)
    asking.join()


def sink(name):
    return IcebergSink(IcebergSinkConfig(namespace="db", table=name, storage=IcebergStorage.Local("lake")))


def run(name, sink, kill_at=None, **options):
    # The driver alone runs no function of a user's.
    rows = environment.from_source(MemorySource([{"id": number} for number in range(6)], rows_per_epoch=2)).map(dict)
    options["on_epoch"] = lambda epoch: kill() if epoch.number == kill_at and not epoch.skipped else None
    job = rows.to_sink(sink).start(name, **options)
    job.wait()
    print(name, job.progress.state.value, job.progress.restarts)
    print(sink.table().metadata_location)
    return job


run("restarts", sink("a"), 1, restart=Restart(limit=1, backoff="10ms"))
print(run("stays down", sink("b"), 0).exception)
run("stays down", sink("b"))
# As Spark does where its master has gone.
SparkContext._active_spark_context._jsc.sc().stop()
run("stopped by Spark", sink("c"))
"""


def _ran(script: str, folder: Path) -> tuple[list[str], str]:
    environment = plain_environment(PYSPARK_PYTHON=sys.executable)
    command = [sys.executable, "-c", script]
    ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=RUN_SECONDS)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.splitlines(), ran.stderr


def test_jobs_go_on_in_another_jvm(tmp_path: Path) -> None:
    lines, errors = _ran(OWN, tmp_path)
    (a, where_a, b, where_b, message, hint, c, where_c, d, where_d) = lines
    assert [a, b, c, d] == [
        "restarts finished 1",
        "stays down failed 0",
        "stays down finished 0",
        "stopped by Spark finished 0",
    ]
    assert message == "job 'stays down' failed: its JVM was killed by SIGKILL"
    assert hint.startswith("  hint: start the job again, which starts another JVM")
    counts = [
        query(f"select count(*), count(distinct id) from iceberg_scan('{path}')").fetchone()
        for path in (where_a, where_b, where_c, where_d)
    ]
    assert counts == [(6, 6), (2, 2), (6, 6), (6, 6)]
    assert "Traceback" not in errors
    assert "py4j" not in errors
    assert errors.count("another one is started") == 3


FOREIGN = """
import os
import signal

from pyspark import SparkContext
from pyspark.sql import SparkSession

from volley import Environment, MemorySink, MemorySource, Restart, SessionLostError


def session():
    return SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()


def kill(epoch):
    os.kill(SparkContext._gateway.proc.pid, signal.SIGKILL)


def run(name, spark, **options):
    environment = Environment(spark=spark, checkpoint_dir="checkpoints")
    try:
        rows = environment.from_source(MemorySource([{"id": 1}, {"id": 2}], rows_per_epoch=1)).map(dict)
        rows.to_sink(MemorySink()).execute(
            name, progress=False, restart=Restart(backoff="1h"), **options
        )
    except SessionLostError as error:
        print(error)


spark = session()
spark.stop()
run("stopped", spark)
spark = session()
run("killed", spark, on_epoch=kill)
run("after", spark)
run("after, without it", None)
"""


def test_a_session_of_the_programs_own_is_not_replaced(tmp_path: Path) -> None:
    lines, _ = _ran(FOREIGN, tmp_path)
    assert lines == [
        "the Spark session that this program has made was stopped",
        "  hint: give Environment another session, or none",
        "job 'killed' failed: its JVM was killed by SIGKILL",
        "  hint: start the program again: the session was its own; too little memory?",
        *2
        * [
            "the Spark session that this program has made is gone: its JVM was killed by SIGKILL",
            "  hint: start the program again: PySpark has one JVM",
        ],
    ]
