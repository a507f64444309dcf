"""Runs of a reader without Spark: the driver, the planner and the executors share nothing but pickles."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle

from tests.captured import Database
from tests.waiting import wait_until
from volley import Reader, Source, SourceContext, SourceError
from volley.contracts.source import Offset

__all__ = ["Run", "fail_by_rewrite", "running"]


def shipped(value: Any) -> Any:
    return cloudpickle.loads(cloudpickle.dumps(value))


@dataclass
class Run:
    """A started reader, with the offset of the epoch before."""

    reader: Reader
    start: Offset

    def end(self, limit: int | None = None) -> Offset:
        """The end of the next epoch, as a planner in another process tells it."""
        planner: Reader = shipped(self.reader)
        offset: Offset = json.loads(json.dumps(planner.latest_offset(self.start, limit or planner.limit, None)))
        return offset

    def plan(self) -> Offset:
        """Plan the next epoch, as far as Spark logs it, and return its end."""
        end = self.end()
        self.reader.splits(self.start, end)
        return end

    def read(self, end: Offset) -> list[dict[str, Any]]:
        """The rows of the epoch that ends there."""
        splits = self.reader.splits(self.start, end)
        reader = shipped(self.reader.split_reader())
        return [row for split in splits for batch in reader.read(shipped(split)) for row in batch.to_pylist()]

    def epoch(self, limit: int | None = None) -> list[dict[str, Any]]:
        """The rows of the next epoch, which is committed; without a limit those of all epochs up to the end."""
        rows: list[dict[str, Any]] = []
        while (end := self.end(limit)) != self.start:
            rows += self.read(end)
            self.reader.committed(end)
            self.start = end
            if limit:
                break
        return rows


@contextmanager
def running(source: Source, folder: Path | str, start: Offset | None = None) -> Iterator[Run]:
    """One run of a job; it reads what the server has when it starts."""
    reader = source.open(SourceContext(f"{folder}/state", 2))
    reader.start()
    try:
        yield Run(reader, start or reader.initial_offset())
    finally:
        reader.stop()


def fail_by_rewrite(run: Run, shop: Database) -> None:
    """Rewrite the table of a run, and wait until the run fails by that."""
    shop.run("alter table orders alter column note type text using 'v' || note")
    shop.run("insert into orders values (5000, 'x', 1, null)")
    with pytest.raises(SourceError, match="was rewritten"):
        wait_until(lambda: run.end() is None, 30, "the failure")
