"""Epochs of a job: told to callbacks, waited for, plotted."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading

import numpy as np
import pytest

from volley import FinishedEpoch, JobError
from volley.engine.history import _MOST_EPOCHS, History


async def followed(history: History, ended: threading.Event, started: threading.Event) -> list[int]:
    numbers = []
    async for epoch in history.follow(ended.is_set):
        numbers.append(epoch.number)
        started.set()
    return numbers


def test_epochs_before_and_meanwhile_come_once_each() -> None:
    history, ended, started = History("job"), threading.Event(), threading.Event()
    history.add(FinishedEpoch(0))

    def go_on() -> None:
        started.wait()
        for number in range(1, 50):
            history.add(FinishedEpoch(number))
        ended.set()

    thread = threading.Thread(target=go_on)
    thread.start()
    assert asyncio.run(followed(history, ended, started)) == list(range(50))
    thread.join()


def test_a_late_follower_gets_the_last_ones() -> None:
    history, ended = History("job"), threading.Event()
    ended.set()
    for number in range(_MOST_EPOCHS + 5):
        history.add(FinishedEpoch(number))
    assert asyncio.run(followed(history, ended, threading.Event())) == list(range(5, _MOST_EPOCHS + 5))


def test_callbacks_are_called_and_break_nothing(caplog: pytest.LogCaptureFixture) -> None:
    rows: list[int] = []
    errors: list[object] = []
    history = History("job", lambda epoch: rows.append(epoch.rows), errors.append)
    history.add(FinishedEpoch(0, rows=3))
    error = JobError("broken")
    history.failed(error)
    assert (rows, errors) == ([3], [error])
    with caplog.at_level(logging.ERROR, "volley"):
        History("job", lambda epoch: 1 / 0).add(FinishedEpoch(1))
    assert "a callback failed" in caplog.text


def test_a_callback_that_exits_ends_no_thread_of_the_job(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR, "volley"):
        History("job", lambda epoch: sys.exit(3)).add(FinishedEpoch(0))
    assert "SystemExit: 3" in caplog.text


def test_a_plot_has_a_point_for_each_epoch() -> None:
    history = History("orders")
    for number in range(3):
        history.add(FinishedEpoch(number, rows=number * 10, seconds=0.5))
    rows, seconds = history.plot().axes
    assert np.asarray(rows.lines[0].get_ydata()).tolist() == [0, 10, 20]
    assert np.asarray(seconds.lines[0].get_ydata()).tolist() == [0.5] * 3
