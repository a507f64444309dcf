"""Iceberg's own Spark runtime, on the Spark it is built for: fetched once, run in a process of its own."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from benchmarks.run import Result, Run
from tests.servers.downloads import artifact, java, other_version

__all__ = ["missing", "runtime"]

_PYSPARK = "4.1.4"
_JARS = {
    "iceberg-spark-1.12.0": "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0:jar",
    "sqlite-jdbc-3.50.3.0": "org.xerial:sqlite-jdbc:3.50.3.0:jar",
    "spark-sql-kafka-4.1.3": "org.apache.spark:spark-sql-kafka-0-10_2.13:4.1.3:jar",
    "spark-token-provider-kafka-4.0.0": "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0:jar",
    "kafka-clients-3.9.1": "org.apache.kafka:kafka-clients:3.9.1:jar",
    "commons-pool2-2.12.1": "org.apache.commons:commons-pool2:2.12.1:jar",
}
_ROOT = Path(__file__).parents[2]


def runtime(run: Run, work: Callable[[Run], None], **settings: Any) -> list[Result]:
    """Run a function of `benchmarks.peers.runtime_job` in a Python that has its PySpark.

    Args:
        run: The run.
        work: The function.
        settings: What it takes.

    Returns:
        What it finds; the caller keeps it in the run's results.
    """
    return run.apart(work, _environment(), options={"jars": ",".join(_jars()), **settings})


@cache
def missing() -> str | None:
    """Why it can't run here, or None if it can."""
    try:
        _jars()
        _environment()
    except (pytest.skip.Exception, pytest.fail.Exception) as reason:
        return str(reason)
    return None


def _jars() -> list[str]:
    return [str(jar) for name, where in _JARS.items() for jar in artifact(name, where).glob("*.jar")]


def _environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK", "PYSPARK"))}
    path = os.pathsep.join([str(other_version("pyspark", _PYSPARK)), str(_ROOT)])
    return {**kept, "PYTHONPATH": path, "JAVA_HOME": str(Path(java()).parents[1])}
