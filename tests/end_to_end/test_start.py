"""A Spark that does not start, or whose Python does not, is an error of ours that says why."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import plain_environment

SCRIPT = """
import sys

from volley import Environment, JobError, MemorySink, MemorySource

try:
    Environment(master=sys.argv[1]).from_source(MemorySource([{"id": 1}])).to_sink(MemorySink()).execute("start")
except JobError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("master", "python", "message"),
    [
        (
            "spark://nohost",
            sys.executable,
            "Spark did not start on spark://nohost: org.apache.spark.SparkException: Invalid",
        ),
        ("local[1]", "./nowhere/python", 'Cannot run program "./nowhere/python"'),
    ],
)
def test_the_cause_is_named(master: str, python: str, message: str, tmp_path: Path) -> None:
    environment = plain_environment(PYSPARK_PYTHON=python)
    command = [sys.executable, "-c", SCRIPT, master]
    ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert message in ran.stdout
    assert ran.stderr == ""
