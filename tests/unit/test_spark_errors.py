"""What Spark raises becomes an error that names the cause, and whether the next attempt may succeed."""

from __future__ import annotations

from pathlib import Path

import pytest

from volley import ConfigError
from volley.engine.restart import may_pass
from volley.spark.errors import translate


def test_workers_of_another_python_are_a_lasting_failure() -> None:
    text = (
        "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.11 than that in driver: 3.12, PySpark "
        "cannot run with different minor versions."
    )
    failure = translate(RuntimeError(text), "orders")
    assert isinstance(failure, ConfigError)
    assert failure.message == "the workers of job 'orders' run Python 3.11, its driver runs 3.12"
    assert not may_pass(failure)


def test_a_python_that_starts_too_late_is_a_failure_that_may_pass() -> None:
    failure = translate(RuntimeError("SparkException: Python worker failed to connect back."), "orders")
    assert failure.message.endswith("Python did not start within the 10 seconds that Spark waits for it")
    assert may_pass(failure)


@pytest.mark.parametrize(
    "text",
    [
        "OSError: [Errno 28] No space left on device",
        "SparkException: Job aborted\nCaused by: java.io.IOException: No space left on device\n\tat a.B.c(B.java:1)",
        "OSError: [Errno 122] Disk quota exceeded: '/tmp/x'",
    ],
)
def test_a_full_disk_says_whose_files_fill_it(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", "/scratch")
    failure = translate(RuntimeError(text), "orders")
    assert failure.message.startswith(
        "job 'orders' failed: a disk is full, most likely the one with Spark's local files"
    )
    assert "make room in /scratch" in str(failure.hint)
    assert "\n" not in failure.message
    assert may_pass(failure)


class _OfJava(RuntimeError):
    """An exception of Spark's as PySpark raises it, whose own class needs a JVM."""

    __module__ = "pyspark.errors.exceptions.captured"

    def __init__(self, text: str, trace: str) -> None:
        super().__init__(text)
        self._stackTrace = trace


_END = "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: {} SQLSTATE: XXKST"


@pytest.mark.parametrize(
    ("message", "cause", "shown"),
    [
        ("", "java.util.ConcurrentModificationException", "java.util.ConcurrentModificationException"),
        ("no room", "java.io.IOException: no room", "java.io.IOException"),
        ("it failed", "java.io.IOException: no room", "java.io.IOException: no room"),
    ],
)
def test_an_error_of_java_has_its_class(message: str, cause: str, shown: str) -> None:
    text = _END.format(message)
    trace = f"org.apache.spark.Wrapper: {text}\n\tat a.B.c(B.java:1)\nCaused by: {cause}\n\tat a.B.d(B.java:2)\n"
    failure = translate(_OfJava(f"{text}\n=== Streaming Query ===", trace), "orders")
    assert failure.message == f"job 'orders' failed: {text} ({shown})"
    log = str(failure.hint).rpartition(" ")[2]
    assert trace in Path(log).read_text()
