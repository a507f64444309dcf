"""A job without an end, for the tests of signals: rows at a steady rate into an Iceberg table."""

from __future__ import annotations

import sys
from datetime import timedelta
from pathlib import Path

from tests.sinks import config_of
from volley import Environment, IcebergSink, RateSource


def main(folder: Path) -> None:
    """Run until a signal comes."""
    config = config_of(folder)
    job = (
        Environment("local[2]", checkpoint_dir=str(folder / "checkpoints"))
        .from_source(RateSource(rows_per_second=100))
        .to_sink(IcebergSink(config.with_flush_interval(timedelta(milliseconds=200))))
        .execute("endless")
    )
    print(job.progress.state.value)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
