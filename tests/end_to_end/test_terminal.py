"""What is seen while `execute` waits: a live line on a terminal, quiet lines elsewhere, none of Spark's noise."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import sys
import threading
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.processes import said
from tests.waiting import wait_until
from volley import Environment, FinishedEpoch, MemorySink, MemorySource, Pipeline


@pytest.fixture
def pipeline(spark: SparkSession, tmp_path: Path) -> Pipeline:
    source = MemorySource([{"id": i} for i in range(3)], rows_per_epoch=1)
    return Environment(spark=spark, checkpoint_dir=str(tmp_path)).from_source(source).to_sink(MemorySink("out"))


def read_all(terminal: int, seen: list[bytes]) -> None:
    """Everything that is written to a terminal until it is closed, which Linux tells by an error."""
    with contextlib.suppress(OSError):
        while part := os.read(terminal, 4096):
            seen.append(part)


def test_a_live_line_on_a_terminal(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = os.openpty()
    seen: list[bytes] = []
    reader = threading.Thread(target=read_all, args=(ours, seen))
    reader.start()

    def shown() -> str:
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", b"".join(seen).decode(errors="replace"))

    def wait_for_it(_: FinishedEpoch) -> None:
        wait_until(lambda: "live: running" in shown(), 30, "the line of a running job")

    with os.fdopen(theirs, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        pipeline.execute("live", on_epoch=wait_for_it)
    reader.join(60)
    os.close(ours)
    assert "\r" in shown()
    assert "live: running" in shown()
    assert re.search(r"live: finished · epoch 2 · 3\s+rows", shown())


def test_one_quiet_line_elsewhere(
    pipeline: Pipeline, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # As in a program that has not set up logging: pytest has.
    monkeypatch.setattr(logging.getLogger("volley.progress"), "propagate", False)
    pipeline.execute("quiet")
    printed, shown = capfd.readouterr()
    assert printed == ""
    (line,) = said(shown)
    assert re.fullmatch(r"quiet: finished · epoch 2 · 3 rows · .* rows/s \(last epoch [\d,]+\)", line)


def test_a_line_of_the_log_where_logging_is_set_up(
    pipeline: Pipeline, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "volley"):
        pipeline.execute("logged")
    lines = [record.getMessage() for record in caplog.records if record.name == "volley.progress"]
    (line,) = said("\n".join(lines))
    assert line.startswith("logged: finished · epoch 2 · 3 rows · ")
    assert capfd.readouterr() == ("", "")


def test_no_progress_on_request(
    pipeline: Pipeline, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "volley.progress"):
        assert pipeline.execute("silent", progress=False).progress.rows == 3
    assert not [record for record in caplog.records if record.name == "volley.progress"]
    assert capfd.readouterr() == ("", "")
