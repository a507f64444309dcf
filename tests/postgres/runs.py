"""Runs of a reader without Spark: the driver, the planner and the executors share nothing but pickles."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark import cloudpickle

from volley import PostgresSource, Reader, SourceContext
from volley.source import Offset

__all__ = ["Run", "running"]


def shipped(value: Any) -> Any:
    return cloudpickle.loads(cloudpickle.dumps(value))


@dataclass
class Run:
    """A started reader, with the offset of the epoch before."""

    reader: Reader
    start: Offset

    def end(self, limit: int | None = None) -> Offset:
        planner: Reader = shipped(self.reader)
        offset: Offset = json.loads(json.dumps(planner.latest_offset(self.start, limit, None)))
        return offset

    def epoch(self, limit: int | None = None) -> list[dict[str, Any]]:
        """The rows of the next epoch, which is committed."""
        end = self.end(limit)
        splits = self.reader.splits(self.start, end)
        reader = shipped(self.reader.split_reader())
        rows = [row for split in splits for batch in reader.read(shipped(split)) for row in batch.to_pylist()]
        self.reader.committed(end)
        self.start = end
        return rows


@contextmanager
def running(source: PostgresSource, folder: Path | str, start: Offset | None = None) -> Iterator[Run]:
    """One run of a job; it reads what the server has when it starts."""
    reader = source.open(SourceContext(f"{folder}/state", 2))
    reader.start()
    try:
        yield Run(reader, start or reader.initial_offset())
    finally:
        reader.stop()
