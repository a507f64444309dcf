"""What is seen of a start, and of a job in a notebook."""

from __future__ import annotations

import logging
import os
import sys
from typing import Any, cast

import IPython.display
import pytest

from tests.waiting import wait_until
from volley.engine import display
from volley.engine.progress import Progress, enter
from volley.metrics.figures import FinishedEpoch


class Cell:
    """What a cell shows; each display has a handle that replaces it."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def display(self, shown: Any, display_id: bool) -> Cell:
        assert display_id
        self.update(shown)
        return self

    def update(self, shown: Any) -> None:
        self.seen.append(shown.data)


class Ending:
    """A job that ends at the third look."""

    name = "orders"
    looks = 0

    def wait(self, timeout: object = None) -> bool:
        self.looks += 1
        return self.looks == 3

    def _repr_html_(self) -> str:
        return f"<b>look {self.looks}</b>"


@pytest.fixture
def cell(monkeypatch: pytest.MonkeyPatch) -> Cell:
    cell = Cell()
    monkeypatch.setattr(IPython.display, "display", cell.display)
    return cell


def test_a_notebook_shows_phases_in_place(cell: Cell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(display, "in_notebook", lambda: True)
    with display.shown("a<b"):
        enter("starting Spark")
        enter("planning")
    enter("unseen")
    assert cell.seen == ["a&lt;b: starting", "a&lt;b: starting Spark", "a&lt;b: planning"]


def test_a_notebook_shows_a_job_until_it_ends(cell: Cell) -> None:
    display.watch(cast("Any", Ending())).join(60)
    assert cell.seen == [f"<b>look {number}</b>" for number in range(4)]


def test_this_is_no_notebook() -> None:
    assert not display.in_notebook()


def test_a_terminal_shows_phases(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = os.openpty()
    with os.fdopen(theirs, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        with display.shown("orders"):
            enter("starting Spark")
            seen = os.read(ours, 4096)
            while b"starting Spark" not in seen:
                seen += os.read(ours, 4096)
    os.close(ours)


def test_a_log_gets_a_line_of_a_start_that_takes_long(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(display, "_SLOW_SECONDS", 0.01)
    with caplog.at_level(logging.INFO, "volley.progress"), display.shown("orders"):
        enter("starting Spark")
        wait_until(lambda: any("orders: starting Spark, 0 s" in line for line in caplog.messages), 30, "the line")
    caplog.clear()
    monkeypatch.setattr(display, "_SLOW_SECONDS", 600.0)
    with caplog.at_level(logging.INFO, "volley.progress"), display.shown("orders"):
        enter("starting Spark")
    assert caplog.messages == []


def test_the_line_of_progress_has_the_rate_of_the_last_epoch() -> None:
    once = Progress(seconds=4.0).after(FinishedEpoch(0, rows=100, seconds=2.0))
    assert display.progress_line("orders", once).endswith(" · 4.0 s · 25 rows/s")
    twice = once.after(FinishedEpoch(1, rows=5_000, seconds=0.5))
    assert display.progress_line("orders", twice).endswith(" · 4.0 s · 1,275 rows/s (last epoch 10,000)")
