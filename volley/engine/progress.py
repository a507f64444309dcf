"""What is known of a job: the phase of its start; its state and progress, as values that print."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, replace
from enum import Enum

from volley.html_table import html_table
from volley.metrics.figures import EpochProgress, FinishedEpoch
from volley.telemetry.traces import Span

__all__ = ["Phases", "Progress", "State", "enter", "told_to"]

_listener: ContextVar[Callable[[str], object] | None] = ContextVar("volley-phase", default=None)


def enter(phase: str) -> None:
    """Tell whoever shows it what comes next: ``"starting Spark"``, ``"planning"``."""
    if listener := _listener.get():
        listener(phase)


@contextmanager
def told_to(listener: Callable[[str], object], name: str) -> Iterator[None]:
    """Tell a listener, behind the job's name, the phases that the block enters."""
    token = _listener.set(lambda phase: listener(f"{name}: {phase}"))
    try:
        yield
    finally:
        _listener.reset(token)


class State(Enum):
    """The state of a job.

    Example:
        >>> State("running") is State.RUNNING
        True
    """

    RUNNING = "running"
    RESTARTING = "restarting"
    """It has failed, and waits until it starts again, see `Restart`."""
    FINISHED = "finished"
    STOPPED = "stopped"
    FAILED = "failed"


class Phases:
    """The seconds of an epoch by what they were spent on; what is done again adds up."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def begin(self) -> None:
        """Begin another epoch."""
        self.seconds = {}

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Add the seconds of the block to a phase, which is a span of its own each time."""
        began = time.perf_counter()
        try:
            with Span(f"volley.{name}"):
                yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - began


@dataclass(frozen=True)
class Progress:
    """The progress of a job since its start in this process.

    Args:
        state: Its state.
        epoch: The number of the last epoch that is visible in every sink; None before the first.
        epochs: Epochs finished in this run.
        skipped: How many of them every sink had already (after a crash).
        rows: Rows written in this run; a row that goes to several sinks counts once.
        rejected: Rows that went to a dead letter in this run; in a replay, those that have failed again.
        replayed: Dead letters that were read again and marked in this run, if it is a replay.
        files: Files written in this run.
        bytes: Encoded bytes written in this run.
        seconds: Time since the start, in seconds.
        startup: The part of it before the first finished epoch began, in seconds: Spark's start, and the wait for rows.
        running: The progress of the running epoch, not yet included above; None between epochs.
        restarts: How often it starts again after a failure, see `Restart`; the one that it waits for counts.
        last_rows_per_second: Rows of the last epoch, by its seconds; 0 before the first.

    Example:
        >>> Progress(rows=3).to_json()[:52]
        '{"state": "running", "epoch": null, "epochs": 0, "sk'
        >>> Progress(rows=300, seconds=8.0, startup=5.0).rows_per_second
        100.0
    """

    state: State = State.RUNNING
    epoch: int | None = None
    epochs: int = 0
    skipped: int = 0
    rows: int = 0
    rejected: int = 0
    files: int = 0
    bytes: int = 0
    seconds: float = 0.0
    startup: float = 0.0
    running: EpochProgress | None = None
    restarts: int = 0
    replayed: int = 0
    last_rows_per_second: float = 0.0

    def after(self, epoch: FinishedEpoch) -> Progress:
        """Return the progress with one more epoch."""
        return replace(
            self,
            epoch=epoch.number,
            epochs=self.epochs + 1,
            skipped=self.skipped + epoch.skipped,
            rows=self.rows + epoch.rows,
            rejected=self.rejected + epoch.rejected,
            files=self.files + epoch.files,
            bytes=self.bytes + epoch.bytes,
            replayed=self.replayed + epoch.replayed,
            last_rows_per_second=epoch.rows / epoch.seconds if epoch.seconds else 0.0,
        )

    def to_json(self) -> str:
        """Return the progress as one line of JSON, for logs."""
        return json.dumps({**asdict(self), "state": self.state.value})

    @property
    def rows_per_second(self) -> float:
        """Rows written per second since the first epoch began."""
        seconds = self.seconds - self.startup
        return self.rows / seconds if seconds > 0 else 0.0

    def _repr_html_(self) -> str:
        return html_table(
            {**asdict(self), "state": self.state.value, "running": None, "rows per second": self.rows_per_second}
        )
