"""The job whose series and filled gaps the recovery tests prove."""

from __future__ import annotations

from pathlib import Path

from tests.sinks import sink_of
from volley import (
    Environment,
    FileSource,
    Job,
    avg,
    count,
    increase,
    last,
    previous,
    rolling,
    session_start,
    sum_,
    tumbling,
)

__all__ = ["FUNCTIONS", "LATENESS", "LONGEST", "main"]

LATENESS, LONGEST = 30, 600
FUNCTIONS = {
    "total": rolling("90s", sum_("price")),
    "before": previous("id"),
    "grown": increase("count"),
    "begun": session_start("20s"),
}


def main(folder: Path, master: str = "local[2]") -> Job:
    """One run, over a file in each epoch."""
    environment = Environment(master, checkpoint_dir=str(folder / "checkpoints"))
    events = environment.from_source(FileSource(str(folder / "in"), format="parquet", max_files_per_epoch=1))
    users = events.key_by("user")

    minutes = users.window(tumbling("1m"), on="at", lateness=LATENESS, fill_gaps=LONGEST).aggregate(
        n=count(), latest=last("id").forward_fill(), mean=avg("count").interpolate()
    )
    series = users.series(on="at", lateness=LATENESS).with_columns(**FUNCTIONS)
    return environment.execute(
        "series", minutes.to_sink(sink_of(folder, "minutes")), series.to_sink(sink_of(folder, "series"))
    )
