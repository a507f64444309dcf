"""A source of one's own: earthquakes of a catalogue that a reader asks for page by page, with an exact restart.

Run it with ``python -m examples.own_source [FOLDER]``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from volley import (
    Environment,
    IcebergSink,
    IcebergSinkConfig,
    IcebergStorage,
    IcebergTable,
    Offset,
    Reader,
    Source,
    SourceContext,
    Split,
)


@dataclass(frozen=True)
class Earthquakes(Source):
    """The catalogue: pages of events with growing numbers.

    Args:
        events: The number of events that it has.
        page: The number of events of a page.
    """

    events: int
    page: int = 500

    bounded = True
    identity = "earthquakes"

    def open(self, context: SourceContext) -> Reader:
        return EarthquakeReader(self.events, self.page)


class EarthquakeReader(Reader):
    """Reads pages. A split is a page: the same numbers are the same events on every call."""

    schema = pa.schema([("number", pa.int64()), ("magnitude", pa.float64())])

    def __init__(self, events: int, page: int) -> None:
        self.events, self.page = events, page

    def initial_offset(self) -> Offset:
        return {"number": 0}

    def latest_offset(self, start: Offset, limit: int | None, target: Offset | None) -> Offset:
        return {"number": self.events}

    def splits(self, start: Offset, end: Offset) -> list[Split]:
        return [(at, min(at + self.page, end["number"])) for at in range(start["number"], end["number"], self.page)]

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        numbers = range(*split)
        yield pa.record_batch([list(numbers), [1 + number * 7919 % 80 / 10 for number in numbers]], schema=self.schema)


def main(folder: Path) -> int:
    """Load the catalogue, then what was added to it; return the number of rows in the table."""
    config = IcebergSinkConfig(namespace="db", table="quakes", storage=IcebergStorage.Local(str(folder / "lake")))
    environment = Environment(checkpoint_dir=str(folder / "checkpoints"))
    for events in (1_200, 2_000):
        job = environment.from_source(Earthquakes(events)).to_sink(IcebergSink(config)).execute("quakes")
        print(f"{job.progress.rows} new events")
    return len(IcebergTable(config).to_arrow()["number"])


if __name__ == "__main__":
    print(main(Path(sys.argv[1] if len(sys.argv) > 1 else ".volley/quakes")), "rows in the table")
