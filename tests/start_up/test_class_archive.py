"""The archive of the JVM's classes: whose is taken, and what never breaks a start."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from volley.spark.java import archive_options

QUERY = b"\x12JSA....org/apache/spark/sql/execution/streaming/runtime/MicroBatchExecution"


@pytest.fixture
def homes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """A folder like Java's and one like Spark's; the cache is in the test's folder."""
    java, spark = tmp_path / "java", tmp_path / "spark"
    for file in (java / "bin" / "java", spark / "jars" / "core.jar"):
        file.parent.mkdir(parents=True)
        file.write_text("x")
    for name in ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("VOLLEY_CLASS_ARCHIVE", str(tmp_path / "cache"))
    return java, spark


def ended_process() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def written(options: list[str]) -> Path:
    (path,) = [option.partition("=")[2] for option in options if "ArchiveClassesAtExit" in option]
    return Path(path)


def test_the_first_jvm_writes_it_and_later_ones_take_it(homes: tuple[Path, Path]) -> None:
    part = written(archive_options(*homes))
    assert part.suffix == f".{os.getpid()}"
    part.write_bytes(QUERY)
    archive = part.with_suffix("")
    assert f"-XX:SharedArchiveFile={archive}" in archive_options(*homes)
    assert not part.exists()
    # Other jars have other classes.
    (homes[1] / "jars" / "more.jar").write_text("y")
    assert written(archive_options(*homes)).with_suffix("") != archive


def test_a_jvm_without_queries_takes_either_archive(homes: tuple[Path, Path]) -> None:
    job, query = written(archive_options(*homes, queries=False)), written(archive_options(*homes))
    assert job != query
    job.write_bytes(b"\x12JSA....org/apache/spark/scheduler/DAGScheduler")
    assert f"-XX:SharedArchiveFile={job.with_suffix('')}" in archive_options(*homes, queries=False)
    # One with queries needs more classes, and then both have them.
    query.write_bytes(QUERY)
    for queries in (True, False):
        assert f"-XX:SharedArchiveFile={query.with_suffix('')}" in archive_options(*homes, queries=queries)


@pytest.mark.parametrize("content", [b"", bytes(100), b"\x12JSA of a JVM that ran no query"])
def test_what_is_not_whole_or_of_no_job_is_not_taken(content: bytes, homes: tuple[Path, Path]) -> None:
    part = written(archive_options(*homes)).with_suffix(f".{ended_process()}")
    part.write_bytes(content)
    assert written(archive_options(*homes)).suffix == f".{os.getpid()}"
    os.utime(part, (0, 0))
    archive_options(*homes)
    assert not part.exists()


def test_one_jvm_writes_at_a_time(homes: tuple[Path, Path]) -> None:
    written(archive_options(*homes)).write_bytes(bytes(10))
    assert archive_options(*homes) == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("VOLLEY_CLASS_ARCHIVE", "off"),
        ("JAVA_TOOL_OPTIONS", "-XX:SharedArchiveFile=/mine.jsa"),
        ("VOLLEY_CLASS_ARCHIVE", "/dev/null/none"),
    ],
)
def test_no_archive_is_no_error(
    name: str, value: str, homes: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    assert archive_options(*homes) == []
