"""The job whose joins of streams the recovery tests prove: each kind of join into a table of its own."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import get_args

from tests.sinks import sink_of
from volley import Environment, FileSource, Job
from volley.plan.joins import How

__all__ = ["LATENESS", "WITHIN", "main"]

LATENESS, WITHIN = timedelta(seconds=30), timedelta(seconds=45)


def main(folder: Path, master: str = "local[2]") -> Job:
    """One run, over a file of each side in each epoch."""
    environment = Environment(master, checkpoint_dir=str(folder / "checkpoints"))
    ads, clicks = (
        environment.from_source(FileSource(str(folder / name), format="parquet", max_files_per_epoch=1))
        for name in ("ads", "clicks")
    )

    return environment.execute(
        "joined-streams",
        *(
            ads.join(
                clicks, {"user": "visitor"}, how, within=(timedelta(0), WITHIN), time=("at", "then"), lateness=LATENESS
            ).to_sink(sink_of(folder, how))
            for how in get_args(How)
        ),
    )
