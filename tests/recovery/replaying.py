"""The job whose dead letters the recovery tests replay: two tables behind one step, with one dead letter."""

from __future__ import annotations

from pathlib import Path

from tests.sinks import config_of
from volley import Environment, FileSource, IcebergSink, Job, Pipeline, col

__all__ = ["broken", "mended"]


def _pipelines(folder: Path, master: str, schema: str) -> tuple[Environment, list[Pipeline]]:
    environment = Environment(master, checkpoint_dir=str(folder / "checkpoints"))
    read = environment.from_source(FileSource(folder / "in", "json", schema, max_files_per_epoch=1))

    def table(name: str) -> IcebergSink:
        return IcebergSink(config_of(folder, name).with_dead_letter("bad"))

    prices = read.with_column("price", col("price").cast("long"))
    small = prices.select("id", small=col("price").cast("int"))
    return environment, [prices.to_sink(table("prices")), small.to_sink(table("small"))]


def broken(folder: Path, master: str = "local[2]") -> Job:
    """Run the job, which takes no texts for numbers."""
    environment, pipelines = _pipelines(folder, master, "id long, price long")
    return environment.execute("prices", *pipelines)


def mended(folder: Path, master: str = "local[2]") -> Job:
    """Replay its dead letters through a job that takes texts which are numbers."""
    environment, pipelines = _pipelines(folder, master, "id long, price string")
    return environment.replay("prices", *pipelines)
