"""The history of runs: written beside the checkpoints, read back after kills, bounded; never a job's failure."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.processes import ROOT
from volley import Environment, StorageError
from volley.cli.history import history_json
from volley.engine import runs
from volley.engine.runs import RunRecorder, jobs_with_runs, runs_of
from volley.metrics.figures import FinishedEpoch
from volley.metrics.status import JobStatus

BEGAN = datetime(2026, 11, 1, 12, tzinfo=UTC)
STATUS = JobStatus("orders", "running", began=BEGAN)
EPOCH = FinishedEpoch(7, 500, 1, 2, 3000, 0.5, ended=BEGAN + timedelta(seconds=9), phases={"read": 0.4})


def recorded(checkpoint: Path, end: JobStatus, *epochs: FinishedEpoch) -> None:
    recorder = RunRecorder(str(checkpoint), lambda: "a-plan", lambda: STATUS)
    recorder.begin("orders")
    for epoch in epochs:
        recorder.add(epoch)
    recorder.end(lambda: end)


def test_a_run_is_read_back_by_value(tmp_path: Path) -> None:
    failed = replace(STATUS, state="failed", reason="no disk", hint="buy one", epochs=1, rows=500, restarts=2)
    recorded(tmp_path / "orders", failed, EPOCH)
    recorded(tmp_path / "orders", replace(STATUS, state="finished"))
    first, second = Environment(checkpoint_dir=tmp_path).runs("orders")
    assert (first.number, first.job, first.state, first.began) == (1, "orders", "failed", BEGAN)
    assert (first.error, first.hint, first.epochs, first.rows, first.restarts) == ("no disk", "buy one", 1, 500, 2)
    assert first.plan == "a-plan"
    assert set(first.versions) == {"version", "python"}
    assert first.recent == (EPOCH,)
    assert (first.recent[0].ended, first.recent[0].phases) == (EPOCH.ended, EPOCH.phases)
    assert first.status == json.loads(failed.to_json())
    assert first.ended is not None
    assert (second.number, second.state, second.error) == (2, "finished", None)


def test_a_job_that_never_ran_has_none(tmp_path: Path) -> None:
    assert runs_of(str(tmp_path / "orders")) == []
    assert jobs_with_runs(str(tmp_path)) == []


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    """The checkpoint of a run whose process was killed."""
    program = (
        "import os, sys, time\n"
        "from tests.unit.test_runs import STATUS, EPOCH, RunRecorder, runs_of\n"
        "recorder = RunRecorder(sys.argv[1], lambda: 'a-plan', lambda: STATUS)\n"
        "recorder.add(EPOCH)\n"
        "recorder.begin('orders')\n"
        "while not runs_of(sys.argv[1]):\n"
        "    time.sleep(0.01)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    checkpoint = tmp_path / "orders"
    ended = subprocess.run([sys.executable, "-c", program, str(checkpoint)], cwd=ROOT, env=dict(os.environ))
    assert ended.returncode == -9
    return checkpoint


def test_a_killed_run(killed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It seems to run until its process has been silent for long, or the next run begins."""
    (run,) = runs_of(str(killed))
    assert (run.state, run.ended, run.recent) == ("running", None, (EPOCH,))
    with monkeypatch.context() as patch:
        patch.setattr(runs, "_SILENT", timedelta(0))
        (run,) = runs_of(str(killed))
    assert (run.state, run.status["state"]) == ("died", "died")
    assert run.ended is not None
    recorded(killed, replace(STATUS, state="stopped"))
    assert [run.state for run in runs_of(str(killed))] == ["died", "stopped"]


def test_the_oldest_runs_are_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "_MOST_RUNS", 3)
    for rows in range(5):
        recorded(tmp_path / "orders", replace(STATUS, state="finished", rows=rows))
    assert [(run.number, run.rows) for run in runs_of(str(tmp_path / "orders"))] == [(3, 2), (4, 3), (5, 4)]


def test_a_history_that_cannot_be_written_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / ".runs").write_text("a file where the folder would be")
    with caplog.at_level(logging.WARNING):
        recorded(tmp_path / "orders", replace(STATUS, state="finished"), EPOCH)
    (line,) = caplog.messages
    assert line.startswith("orders: the history of its runs can't be written: ")


def test_a_job_that_cannot_tell_its_status_ends(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def unable() -> JobStatus:
        raise RuntimeError("a sink that can't print itself")

    recorder = RunRecorder(str(tmp_path / "orders"), lambda: "a-plan", unable)
    with caplog.at_level(logging.WARNING):
        recorder.begin("orders")
        recorder.end(unable)
    (line,) = caplog.messages
    assert line == "orders: the history of its runs can't be written: a sink that can't print itself"


def test_a_damaged_run_is_named(tmp_path: Path) -> None:
    recorded(tmp_path / "orders", replace(STATUS, state="finished"))
    (file,) = (tmp_path / ".runs" / "orders").iterdir()
    file.write_bytes(file.read_bytes().replace(b"finished", b"finishes"))
    with pytest.raises(StorageError, match=r"000001\.json"):
        runs_of(str(tmp_path / "orders"))


def test_the_page_of_a_folder(tmp_path: Path) -> None:
    recorded(tmp_path / "a%20job", replace(STATUS, job="a job", state="failed", reason="no disk"))
    recorded(tmp_path / "orders", replace(STATUS, state="finished", rows=1))
    recorded(tmp_path / "orders", replace(STATUS, state="finished", rows=2))
    shown = json.loads(history_json(str(tmp_path)))
    assert [(job["job"], job["state"], job["rows"]) for job in shown["jobs"]] == [
        ("a job", "failed", 0),
        ("orders", "finished", 2),
    ]
    assert [(run["job"], run["number"], run["rows"], run["error"]) for run in shown["runs"]] == [
        ("a job", 1, 0, "no disk"),
        ("orders", 1, 1, None),
        ("orders", 2, 2, None),
    ]
