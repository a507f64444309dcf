"""An upsert stream of many epochs with maintenance beside it: ``python -m tests.upserts.maintained_stream 2000``.

After it, no epoch and no compaction is lost, the rows equal a model by two readers, and the files stayed few.
"""

from __future__ import annotations

import random
import sys
import time
from collections import Counter
from collections.abc import Set
from dataclasses import dataclass, field
from pathlib import Path
from statistics import quantiles
from tempfile import TemporaryDirectory

import pyarrow as pa

from tests.upserts.lake import QUERY, Lake, do
from volley import IcebergSink, SinkContext
from volley.contracts.reports import MaintenanceRun
from volley.iceberg import Maintenance, Upsert
from volley.iceberg.maintain.committer import MaintainingCommitter

__all__ = ["KILLED", "Stream", "actions", "run_killed"]

SCHEMA = pa.schema({"id": pa.int64(), "name": pa.string()})
KEYS, ROWS = 20_000, 50
_SECONDS_FOR_ACTIONS = 120
KILLED = Maintenance(commits=10, budget=1.0, deletes_above=0.9, expire_after="1ms", retain_last=3)
"""The maintenance of a stream that a test kills: each action finds something to do early."""


def actions(version: str) -> set[str]:
    """The maintenance that finds something to do: a vector has all deletes of its file, and needs no merge."""
    return {"compaction", "manifests", "expiry"} | ({"deletes"} if version == "2" else set())


def keys(epoch: int) -> list[int]:
    """The keys of an epoch, the same in each run."""
    return random.Random(epoch).sample(range(KEYS), ROWS)


def model(epochs: int) -> dict[int, str]:
    """The rows after some epochs."""
    return {key: str(epoch) for epoch in range(epochs) for key in keys(epoch)}


@dataclass
class Stream:
    """A stream of upserts into a table.

    Args:
        folder: The lake's folder.
        maintenance: The job's maintenance.
        version: The table's format version.
        seconds: How long each epoch took, with writing.
        files: The number of data and delete files, after every 50 epochs.
    """

    folder: Path
    maintenance: Maintenance
    version: str = "2"
    seconds: list[float] = field(default_factory=list)
    files: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.lake = Lake(self.folder, Upsert("id", strategy="merge_on_read"), SCHEMA)
        versioned = self.lake.config.with_table_properties({"format-version": self.version})
        self.lake.config = versioned.with_maintenance(self.maintenance)
        committer = IcebergSink(self.lake.config).open(SinkContext("job", SCHEMA, self.lake.metrics, do, run_beside=do))
        assert isinstance(committer, MaintainingCommitter)
        self.committer = committer

    def run(self, epochs: int, until: Set[str] = frozenset()) -> int:
        """Commit the epochs that the table lacks, and more until these actions have run; return how many it has."""
        self.committer.start()
        last = self.committer.last_epoch(QUERY)
        number = 0 if last is None else last + 1
        while number < epochs:
            self._commit(number)
            number += 1
        deadline = time.monotonic() + _SECONDS_FOR_ACTIONS
        while not until <= {run.action for run in self.runs}:
            assert time.monotonic() < deadline, f"{until} have not run: {self.runs}"
            self._commit(number)
            number += 1
        self.committer.stop()
        return number

    def _commit(self, number: int) -> None:
        began = time.monotonic()
        self.committer.last_epoch(QUERY)
        rows = [{"id": key, "name": str(number)} for key in keys(number)]
        self.committer.commit(*self.lake.write(self.committer, number, rows))
        self.seconds.append(time.monotonic() - began)
        if number % 50 == 49:
            table = self.lake.table()
            self.files.append(len(table.inspect.data_files()) + len(table.inspect.delete_files()))

    @property
    def runs(self) -> tuple[MaintenanceRun, ...]:
        """The last runs of maintenance."""
        return self.committer.maintenance.runs

    def check(self, epochs: int) -> None:
        """Compare the table with the model, as two readers see it."""
        rows = self.lake.rows()
        assert {row["id"]: row["name"] for row in rows} == model(epochs)
        assert len(rows) == len(model(epochs))
        assert self.lake.duckdb_rows() == rows
        assert self.committer.last_epoch(QUERY) == epochs - 1
        assert self.lake.metrics.commit_retries == 0
        assert [str(run) for run in self.runs if not run.succeeded] == []

    def __str__(self) -> str:
        cuts = quantiles(self.seconds, n=100)
        counted = Counter(run.action for run in self.runs)
        return (
            f"{len(self.seconds):,} epochs; commit p50 {cuts[49] * 1000:.0f} ms, p99 {cuts[98] * 1000:.0f} ms; "
            f"files at most {max(self.files)}, at the end {self.files[-1]}; "
            + ", ".join(f"{count} × {action}" for action, count in counted.items())
        )


def run_killed(folder: Path, epochs: int, version: str) -> None:
    """Go on where an earlier process has died, in a process that a test kills.

    Args:
        folder: The lake's folder.
        epochs: How many the table has at least in the end, when each action has run.
        version: The table's format version.
    """
    Stream(folder, KILLED, version).run(epochs, actions(version))


if __name__ == "__main__":
    with TemporaryDirectory() as folder:
        stream = Stream(Path(folder), Maintenance(commits=50))
        try:
            stream.run(int(sys.argv[1]))
            stream.check(int(sys.argv[1]))
            print(stream)
        finally:
            stream.lake.close()
