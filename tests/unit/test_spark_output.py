"""The log of a process' JVM: new for each process, deleted a week after it, and bounded while it runs."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from volley.spark import output
from volley.spark.output import bound_log, log_file

EIGHT_DAYS = 8 * 24 * 3600


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of logs, before this process has asked for its own."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(output, "_cleared_by", None)
    made = tmp_path / f"volley-{os.geteuid()}"
    made.mkdir(mode=0o700)
    return made


@pytest.fixture(scope="module")
def ended() -> int:
    """The id of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def log_of(process: int | str, folder: Path, age: float = 0.0) -> Path:
    path = folder / f"spark-{process}.log"
    path.write_text("the output of an earlier process\n")
    os.utime(path, (time.time() - age,) * 2)
    return path


def test_the_log_of_an_earlier_process_with_the_same_id_is_not_continued(folder: Path) -> None:
    earlier = log_of(os.getpid(), folder)
    assert log_file() == earlier
    assert not earlier.exists()
    earlier.write_text("our own\n")
    # Another JVM of this process goes on in it.
    assert log_file().read_text() == "our own\n"


def test_logs_of_ended_processes_go_after_a_week(folder: Path, ended: int) -> None:
    old = log_of(ended, folder, EIGHT_DAYS)
    log_file()
    assert not old.exists()


def test_other_logs_stay(folder: Path, ended: int) -> None:
    kept = [
        log_of(ended, folder, EIGHT_DAYS - 2 * 24 * 3600),
        log_of(os.getppid(), folder, EIGHT_DAYS),
        log_of(f"{ended}.drivers", folder, EIGHT_DAYS),
        log_of("mine", folder, EIGHT_DAYS),
    ]
    log_file()
    assert all(path.exists() for path in kept)


def test_a_long_log_keeps_its_end_and_what_the_jvm_appends(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "_MOST_BYTES", 1_000)
    monkeypatch.setattr(output, "_KEPT_BYTES", 20)
    path = log_file()
    # As the JVM has it: open for as long as it runs.
    with path.open("ab", buffering=0) as jvm:
        jvm.write(b"x" * 980 + b"0123456789abcdefghi\n")
        bound_log()
        assert path.stat().st_size == 1_000
        jvm.write(b"next\n")
        bound_log()
        jvm.write(b"last\n")
    assert path.read_text().splitlines() == [
        "(earlier lines are gone: the log had more than 1000 bytes)",
        "56789abcdefghi",
        "next",
        "last",
    ]


def test_without_a_log_there_is_nothing_to_bound(folder: Path) -> None:
    bound_log()
    assert not list(folder.iterdir())
