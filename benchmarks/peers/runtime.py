"""Iceberg's own Spark runtime, on the Spark it is built for: fetched once, run in a process of its own."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from benchmarks.measure import Result, in_own_process
from tests.servers.downloads import artifact, other_version
from volley.spark.java import find_java

__all__ = ["missing", "runtime"]

PYSPARK = "4.1.4"
_ICEBERG = {
    "iceberg-spark-1.12.0": "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0:jar",
    "sqlite-jdbc-3.50.3.0": "org.xerial:sqlite-jdbc:3.50.3.0:jar",
}
_KAFKA = {
    "spark-sql-kafka-4.1.3": "org.apache.spark:spark-sql-kafka-0-10_2.13:4.1.3:jar",
    "spark-token-provider-kafka-4.0.0": "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0:jar",
    "kafka-clients-3.9.1": "org.apache.kafka:kafka-clients:3.9.1:jar",
    "commons-pool2-2.12.1": "org.apache.commons:commons-pool2:2.12.1:jar",
}
_ROOT = Path(__file__).parents[2]


def runtime(work: str, **settings: Any) -> Result:
    """One run of a work of `benchmarks.peers.runtime_job`.

    Args:
        work: Its name there.
        settings: What it takes.
    """
    jars = _jars(kafka=work == "kafka")
    given = json.dumps(
        {name: os.fspath(value) if isinstance(value, Path) else value for name, value in settings.items()}
    )
    return in_own_process("benchmarks.peers.runtime_job", ",".join(jars), work, given, environment=_environment())


def missing(kafka: bool = False) -> str | None:
    """Why it can't run here, or None if it can."""
    try:
        _jars(kafka)
        _environment()
    except (pytest.skip.Exception, pytest.fail.Exception) as reason:
        return str(reason)
    return None


@cache
def _jars(kafka: bool) -> Sequence[str]:
    wanted = _ICEBERG | _KAFKA if kafka else _ICEBERG
    return [str(jar) for name, where in wanted.items() for jar in artifact(name, where).glob("*.jar")]


@cache
def _environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK", "PYSPARK"))}
    path = os.pathsep.join([str(other_version("pyspark", PYSPARK)), str(_ROOT)])
    return {**kept, "PYTHONPATH": path, "JAVA_HOME": str(find_java())}
