"""The job whose windows the recovery tests prove: final windows appended, changed ones and sessions upserted."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tests.sinks import config_of
from volley import (
    Environment,
    FileSource,
    IcebergSink,
    IcebergSinkConfig,
    Job,
    col,
    count,
    last,
    session,
    sum_,
    tumbling,
)
from volley.engine import levels
from volley.engine.state import KeyedState
from volley.iceberg import Upsert

__all__ = ["GAP", "LATENESS", "in_tasks", "main"]

LATENESS, GAP = 30, 20


def in_tasks(*args: Any) -> Job:
    """The same, but two tasks merge the states; the driver merges few states itself."""
    with patch.object(levels, "KeyedState", partial(KeyedState, bytes_a_task=1)):
        return main(*args)


def main(folder: Path, master: str = "local[2]") -> Job:
    """One run, over a file in each epoch."""
    environment = Environment(master, checkpoint_dir=str(folder / "checkpoints"))
    events = environment.from_source(FileSource(str(folder / "in"), format="parquet", max_files_per_epoch=1))
    users = events.key_by("user")

    def sink(table: str) -> IcebergSinkConfig:
        return config_of(folder, table).with_max_records(100)

    final = users.window(tumbling("1m"), on="at", lateness=LATENESS).aggregate(
        n=count(), total=sum_("price"), last=last("id")
    )
    changed = (
        events.key_by(user=col("user").fill_null("nobody"))
        .window(session(GAP), on="at", lateness=LATENESS, emit="updates")
        .aggregate(n=count(), total=sum_("price"))
    )
    keys = Upsert(["window_start", "user"], op_field="_change")
    return environment.execute(
        "windowed",
        final.with_column("double", col("total") * 2).to_sink(IcebergSink(sink("final"))),
        changed.to_sink(IcebergSink(sink("sessions").with_commit_mode(keys))),
        events.to_sink(IcebergSink(sink("events"))),
    )
