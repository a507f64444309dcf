"""The job whose keyed steps behind each other the recovery tests prove."""

from __future__ import annotations

from pathlib import Path

from tests.sinks import sink_of
from volley import (
    Environment,
    FileSource,
    Job,
    col,
    count,
    max_,
    session,
    sum_,
    tumbling,
)

__all__ = ["LATENESS", "main"]

LATENESS = 30


def main(folder: Path, master: str = "local[2]", buckets: int = 16) -> Job:
    """One run, over a file in each epoch; `buckets` are those of steps of the first and third level."""
    environment = Environment(master, checkpoint_dir=str(folder / "checkpoints"))
    events = environment.from_source(FileSource(str(folder / "in"), format="parquet", max_files_per_epoch=1))
    users = events.key_by("user")

    # Level 1.
    tens = users.window(tumbling("10s"), on="at", lateness=LATENESS, buckets=buckets).aggregate(
        n=count(), total=sum_("count")
    )
    visits = users.window(session("5s"), on="at", lateness=LATENESS, buckets=buckets).aggregate(n=count())
    # Level 2.
    most = tens.key_by().window(tumbling("10s"), on="window_start").aggregate(n=max_("n"))
    ended = visits.key_by().window(tumbling("1m"), on="window_end").aggregate(visits=count(), n=sum_("n"))
    # Level 3.
    busiest = tens.join(
        most, on={"window_start": "window_start", "n": "n"}, within="0s", time=("window_start", "window_start"),
        columns=["window_end"], suffix="_most", buckets=buckets,
    )  # fmt: skip
    # Level 4.
    ranks = busiest.key_by("user").window(tumbling("1m"), on="window_start").aggregate(times=count())
    return environment.execute(
        "levels",
        tens.to_sink(sink_of(folder, "tens")),
        ended.to_sink(sink_of(folder, "ended")),
        busiest.select("window_start", "user", "n").to_sink(sink_of(folder, "busiest")),
        ranks.union(ranks.filter(col("times") > 3)).to_sink(sink_of(folder, "ranks")),
    )
