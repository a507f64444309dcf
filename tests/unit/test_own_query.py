"""The thread that plans a job's epochs: how it ends when a run is stopped, and when something odd ends it."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from volley import JobError, MemorySource, Reader, SourceContext
from volley.contracts.rows import NotesBox
from volley.engine import query as query_module
from volley.engine.query import OwnQuery
from volley.spark.compile import CompiledPlan
from volley.spark.log import PlannedEpochs, SparkLog


class Asked:
    """Holds a reader that is asked for offsets until it may answer."""

    def __init__(self, reader: Reader) -> None:
        self.reader, self.limit, self.nothing = reader, reader.limit, reader.nothing
        self.asked, self.may_answer = threading.Event(), threading.Event()

    def initial_offset(self) -> Any:
        return self.reader.initial_offset()

    def latest_offset(self, *arguments: Any) -> Any:
        self.asked.set()
        assert self.may_answer.wait(10)
        return self.reader.latest_offset(*arguments)


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Asked:
    asked = Asked(MemorySource([{"id": 1}]).open(SourceContext(str(tmp_path / "state"))))
    # The run's copy of the reader is the reader itself, so that a test can hold it.
    pickles = SimpleNamespace(dumps=lambda reader: reader, loads=lambda reader: reader)
    monkeypatch.setattr("volley.spark.offsets._PICKLES", pickles)
    monkeypatch.setattr(query_module, "start_in_pool", lambda context, pool, start: start())
    return asked


def opened(
    folder: Path, reader: Asked, on_epoch: Callable[[Any, int], None], every: timedelta | None = None
) -> tuple[OwnQuery, SparkLog]:
    log = SparkLog(str(folder / "checkpoint"))
    readers = [cast(Reader, reader)]
    context = SimpleNamespace(setJobDescription=lambda text: None)
    plan = SimpleNamespace(context=context, readers=readers, targets=[None], notes=NotesBox())
    query = OwnQuery(cast(CompiledPlan, plan), PlannedEpochs(log, readers), "job", every, on_epoch)
    return query, log


def started(folder: Path, reader: Asked, on_epoch: Callable[[Any, int], None]) -> tuple[OwnQuery, SparkLog]:
    query, log = opened(folder, reader, on_epoch)
    query.start()
    return query, log


def test_a_run_that_is_stopped_while_a_source_answers_plans_nothing_more(tmp_path: Path, reader: Asked) -> None:
    query, log = started(tmp_path, reader, lambda frame, number: None)
    assert reader.asked.wait(10)
    stopping = threading.Thread(target=query.stop)
    stopping.start()
    assert query._stopping.wait(10)
    reader.may_answer.set()
    stopping.join(10)
    assert query.wait(10)
    # Another process may have planned the epoch meanwhile.
    assert log.last_planned is None


def test_the_end_of_a_run_s_thread_is_an_error_of_the_job(tmp_path: Path, reader: Asked) -> None:
    """Not the end of the thread that waits for it: the job would run for ever."""
    query, _ = started(tmp_path, reader, lambda frame, number: sys.exit(3))
    reader.may_answer.set()
    with pytest.raises(JobError, match=r"job 'job' failed: SystemExit\(3\)") as raised:
        query.wait(10)
    assert isinstance(raised.value.__cause__, SystemExit)


@pytest.mark.parametrize(("set_by", "waits"), [(0, 25), (-3600, 60), (3600, 0)])
def test_a_clock_that_is_set_puts_no_epoch_off(
    tmp_path: Path, reader: Asked, monkeypatch: pytest.MonkeyPatch, set_by: float, waits: float
) -> None:
    """An epoch began 30 seconds after the full minute and took 5; meanwhile the clock was set."""
    waited: list[float] = []
    query, _ = opened(tmp_path, reader, lambda frame, number: None, timedelta(minutes=1))
    monkeypatch.setattr(query._stopping, "wait", waited.append)
    monkeypatch.setattr(time, "time", lambda: 6035.0 + set_by)
    query._pause(6030.0, True)
    assert waited == [waits]
