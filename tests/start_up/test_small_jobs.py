"""What a job of few rows starts in a new process: a JVM with a context, and no more."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import RUN_SECONDS, plain_environment

SCRIPT = """
import sys
from contextlib import suppress

import psutil
from pyspark import SparkContext

from volley import Environment, FileSource, MemorySink, col

stream = Environment("local[1]").from_source(FileSource("in", "json", "id long"))
sink = MemorySink()
if sys.argv[1] == "function":
    stream = stream.map(dict)
stream.filter(col("id") > 1).to_sink(sink).execute("few", progress=False)
assert sink.to_arrow()["id"].to_pylist() == [2, 3], sink.to_arrow()
commands = []
for process in psutil.Process(SparkContext._gateway.proc.pid).children(recursive=True):
    # It may end meanwhile.
    with suppress(psutil.Error):
        commands.append(process.cmdline())
print(any("volley.spark.daemon" in command for command in commands))
print(bool(SparkContext._jvm.SparkSession.getDefaultSession().isDefined()))
"""


@pytest.mark.parametrize(("step", "has_workers"), [("none", False), ("function", True)])
def test_workers_start_for_functions_and_no_session(step: str, has_workers: bool, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "0.json").write_text('{"id": 1}\n{"id": 2}\n{"id": 3}\n')
    command = [sys.executable, "-c", SCRIPT, step]
    ran = subprocess.run(
        command, cwd=tmp_path, env=plain_environment(), capture_output=True, text=True, timeout=RUN_SECONDS
    )
    assert ran.stdout.splitlines() == [str(has_workers), "False"], ran.stderr
