"""A job in a process whose environment names an endpoint of OTLP."""

from __future__ import annotations

import logging
import os
from pathlib import Path

from volley import Environment, FileSink, FileSource
from volley.cli.telemetry import exported

__all__ = ["main"]


def main(folder: Path, endpoint: str) -> None:
    """Run it as `volley run` does."""
    os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = endpoint
    logging.getLogger("volley").setLevel(logging.INFO)
    source = FileSource(folder / "in.json", schema="id long")
    with exported():
        stream = Environment("local[1]", checkpoint_dir=folder / "checkpoints").from_source(source)
        stream.to_sink(FileSink(folder / "out", format="json")).execute("exported", progress=False)
