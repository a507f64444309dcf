"""The job that the recovery tests kill in the moment in which its reader has let go of what is committed."""

from __future__ import annotations

from pathlib import Path

from tests.spool import Spool
from volley import Environment, FileSink, Job

__all__ = ["FORMS", "main"]

FORMS = ("plain", "stateful")


def main(folder: Path, form: str, dies_at: int | None = None) -> Job:
    """One run over a file an epoch."""
    environment = Environment("local[2]", checkpoint_dir=str(folder / "checkpoints"))
    stream = environment.from_source(Spool(folder / "in", dies_at))
    stream = stream.deduplicate("id") if form == "stateful" else stream
    return stream.to_sink(FileSink(folder / "out")).execute("spool")
