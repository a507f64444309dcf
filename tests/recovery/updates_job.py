"""The job whose steps behind changing rows, and whose processing time, the recovery tests prove."""

from __future__ import annotations

from pathlib import Path

from tests.sinks import config_of, sink_of
from volley import (
    Environment,
    FileSource,
    IcebergSink,
    Job,
    Upsert,
    col,
    count,
    cumulative,
    max_,
    now,
    row_number,
    sum_,
    tumbling,
)

__all__ = ["LATENESS", "main"]

LATENESS = 30


def main(folder: Path, master: str = "local[2]") -> Job:
    """One run, over a file in each epoch."""
    environment = Environment(master, checkpoint_dir=str(folder / "checkpoints"))
    events = environment.from_source(FileSource(str(folder / "in"), format="parquet", max_files_per_epoch=1))

    def upsert(table: str, *keys: str) -> IcebergSink:
        return IcebergSink(config_of(folder, table).with_commit_mode(Upsert(keys)))

    users = events.key_by("user").aggregate(n=count(), total=sum_("count"))
    tens = events.key_by("user").window(tumbling("10s"), on="at", lateness=LATENESS, emit="updates")
    windows = tens.aggregate(n=count(), total=sum_("count"))
    sizes = windows.filter(col("n") > 3).key_by("n").aggregate(windows=count(), most=max_("total"))
    thirds = events.key_by("user").window(cumulative("1m", "20s"), on="at", lateness=LATENESS, emit="updates")
    growing = thirds.aggregate(n=count()).filter(col("n") < 9)
    minutes = windows.key_by("user").window(tumbling("1m"), on="window_start").aggregate(n=sum_("n"), most=max_("n"))
    kinds = sizes.key_by("windows").aggregate(sizes=count(), most=max_("n"))
    eights = events.filter(col("count") == 8)
    best = windows.key_by("window_start").order_by("total desc", "user").with_columns(place=row_number())
    pairs = eights.select("user").join(eights, on="user", ttl="1d", columns=["at"])
    latest = pairs.key_by("user").aggregate(pairs=count(), latest=max_("at"))
    timed = events.with_processing_time("arrived")
    arrivals = timed.key_by("user").window(tumbling("1s"), on="arrived").aggregate(n=count())
    return environment.execute(
        "updates",
        timed.to_sink(sink_of(folder, "arrived")),
        events.with_column("arrived", now()).to_sink(sink_of(folder, "again")),
        arrivals.to_sink(sink_of(folder, "arrivals")),
        latest.to_sink(upsert("pairs", "user")),
        users.to_sink(upsert("users", "user")),
        windows.to_sink(upsert("windows", "window_start", "user")),
        sizes.to_sink(upsert("sizes", "n")),
        growing.to_sink(upsert("growing", "window_start", "window_end", "user")),
        minutes.to_sink(upsert("minutes", "window_start", "user")),
        kinds.to_sink(upsert("kinds", "windows")),
        best.filter(col("place") <= 2).to_sink(upsert("best", "window_start", "place")),
    )
