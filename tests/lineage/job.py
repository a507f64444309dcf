"""A job that is killed and started again while it tells of itself."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from tests.sinks import sink_of
from volley import Environment, FileSource
from volley.lineage.emitter import configured_emitter

__all__ = ["main"]


def main(folder: Path, url: str) -> None:
    """One run over the files in a folder, one an epoch; before the next one, all that is told has arrived."""
    os.environ["OPENLINEAGE_URL"] = url
    source = FileSource(folder / "in", format="json", schema="id long", max_files_per_epoch=1)
    stream = Environment("local[1]", checkpoint_dir=folder / "checkpoints").from_source(source)
    stream.to_sink(sink_of(folder)).execute("killed", on_epoch=_arrived, progress=False)
    # A process of multiprocessing ends without what is registered with atexit.
    _arrived(None)


def _arrived(epoch: Any) -> None:
    emitter = configured_emitter()
    assert emitter is not None
    assert emitter.flush(60)
