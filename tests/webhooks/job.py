"""The job that kill tests kill: webhooks into a table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.recovery.runs import load
from tests.sinks import sink_of
from volley import Environment, Job, WebhookSource

__all__ = ["check", "drain", "log_folder", "receive"]

_NAME = "hooks"


def receive(folder: Path, port: int) -> None:
    """Receive requests until this process is stopped."""
    _run(folder, port=port)


def drain(folder: Path) -> Job:
    """Write the requests that are in the log."""
    return _run(folder, bounded=True)


def _run(folder: Path, **settings: Any) -> Job:
    source = WebhookSource(
        schema="id long, text string",
        idempotency="header:Key",
        include=["key"],
        max_requests_per_epoch=2_000,
        **settings,
    )
    environment = Environment("local[2]", checkpoint_dir=str(folder / "checkpoints"), checkpoint_interval="200ms")
    return environment.from_source(source).to_sink(sink_of(folder)).execute(_NAME)


def log_folder(folder: Path) -> Path:
    """The folder of the job's log."""
    return folder / "checkpoints" / _NAME / "volley" / "source-0" / "log"


def check(folder: Path, sent: dict[int, str]) -> None:
    """Compare the table, as plain pyiceberg reads it, with all requests that were sent and acknowledged."""
    rows = load(folder).scan().to_arrow().sort_by("id").to_pylist()
    assert rows == [{"id": id, "text": text, "http_key": f"key {id}"} for id, text in sorted(sent.items())]
