"""A Spark that does not start, or whose Python does not, is an error of ours that says why."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from tests.processes import ROOT, plain_environment, said

SCRIPT = """
import sys

from volley import Environment, JobError, MemorySink, MemorySource

try:
    stream = Environment(master=sys.argv[1]).from_source(MemorySource([{"id": 1}]))
    # A function that only Spark's workers call.
    stream.map(dict).to_sink(MemorySink()).execute("start")
except JobError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("master", "python", "message", "progress"),
    [
        (
            "spark://nohost",
            sys.executable,
            "Spark did not start on spark://nohost: org.apache.spark.SparkException: Invalid",
            [],
        ),
        # Its first epoch finds out.
        ("local[1]", "./nowhere/python", 'Cannot run program "./nowhere/python"', ["start: failed"]),
    ],
)
def test_the_cause_is_named(master: str, python: str, message: str, progress: list[str], tmp_path: Path) -> None:
    environment = plain_environment(PYSPARK_PYTHON=python)
    command = [sys.executable, "-c", SCRIPT, master]
    ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert message in ran.stdout
    assert [line.partition(" ·")[0] for line in said(ran.stderr)] == progress


COMPILER = """
import os

from volley.spark.session import open_context, session_of

jvm = open_context("local[1]")._jvm
bean = jvm.java.lang.Class.forName("com.sun.management.HotSpotDiagnosticMXBean")
print(jvm.java.lang.management.ManagementFactory.getPlatformMXBean(bean).getVMOption("CompileThresholdScaling").getValue())
print(jvm.java.lang.System.getProperty("mine"), os.environ.get("SPARK_SUBMIT_OPTS"))
"""


@pytest.mark.parametrize(
    ("given", "scaling", "property"),
    [("", "10.0", "None"), ("-XX:CompileThresholdScaling=2 -Dmine=1", "2.0", "1")],
)
def test_the_jvm_compiles_late_unless_the_user_has_said_otherwise(
    given: str, scaling: str, property: str, tmp_path: Path
) -> None:
    environment = plain_environment(**({"SPARK_SUBMIT_OPTS": given} if given else {}))
    command = [sys.executable, "-c", COMPILER]
    ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert ran.stdout.splitlines() == [scaling, f"{property} {given or None}"], ran.stderr


WORKERS = """
from volley.spark.session import open_context, session_of

def where(_):
    import os
    import pyspark
    import sys
    # By the daemon that forked this worker.
    assert "volley.task.task" in sys.modules
    return pyspark.__file__, os.environ["PYTHONPATH"].split(os.pathsep), os.environ["MIMALLOC_PURGE_DELAY"]

spark = session_of(open_context("local[1]"))
import pyspark
(loaded, path, delay), = spark.sparkContext.parallelize([0], 1).map(where).collect()
print(loaded == pyspark.__file__, "/mine" in path, [each for each in path if each.endswith((".zip", ".jar"))])
print(delay)
"""


def test_workers_load_the_installed_pyspark_and_keep_freed_memory(tmp_path: Path) -> None:
    environment = plain_environment(PYSPARK_PYTHON=sys.executable)
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "spark-defaults.conf").write_text("spark.executorEnv.PYTHONPATH /mine")
    environment["SPARK_CONF_DIR"] = str(tmp_path / "conf")
    command = [sys.executable, "-c", WORKERS]
    ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert ran.stdout.splitlines() == ["True True []", "10000"], ran.stderr


def test_spark_submit_on_this_machine_has_its_own_python(tmp_path: Path) -> None:
    """Its JVM runs before Volley does, and can't be told of anything."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    environment = plain_environment(PYSPARK_PYTHON=sys.executable)
    environment.pop("VOLLEY_PYTHON", None)
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    command = [str(submit), "--master", "local[1]", str(script), "local[1]"]
    ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    assert said(ran.stdout)[0].startswith("start: finished")


WITHOUT_VOLLEY = """
from volley import ConfigError, Environment, MemorySink, MemorySource, Restart

try:
    environment = Environment(master="local[1]")
    pipeline = environment.from_source(MemorySource([{"id": 1}])).map(dict).to_sink(MemorySink())
    pipeline.execute("start", progress=False, restart=Restart(backoff="1h"))
except ConfigError as error:
    print(error)
"""

# It finds PySpark in Spark's archive, and nothing that is installed.
BARE_PYTHON = """#!/bin/sh
PYTHONPATH=$(printf %s "$PYTHONPATH" | tr : '\\n' | grep -vxF "{root}" | paste -sd: -) exec "{python}" -S "$@"
"""


def test_workers_without_volley_are_named_with_their_python(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(BARE_PYTHON.format(root=ROOT, python=sys.executable))
    python.chmod(0o755)
    environment = plain_environment(PYSPARK_PYTHON=str(python))
    command = [sys.executable, "-c", WITHOUT_VOLLEY]
    ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert ran.stdout.splitlines() == [
        f"the workers of job 'start' have no module 'volley': they run {sys.executable}",
        f"  hint: PYSPARK_PYTHON={sys.executable}, set before Spark starts, or install volley-stream there",
    ], ran.stderr
