"""A second job that writes to the table of the one that is killed: it goes on wherever a death has left it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from tests.chaos.kind import Kind
from tests.recovery.rows import SCHEMA, Row
from volley import CommitConflictError, Epoch, IcebergSink, IcebergSinkConfig, Metrics, SinkContext, WriteResult
from volley.columns.exact import array_of
from volley.contracts.sink import ExecutorTask

__all__ = ["Rival"]

_QUERY = "5d9f8a5e-0000-0000-0000-000000000000"


def _do(tasks: Sequence[ExecutorTask]) -> list[WriteResult]:
    return [task() for task in tasks]


class Rival:
    """A job of this process, without Spark, whose epochs are the lines of a file.

    Args:
        log: The file: of each epoch, how many files the other job had then.
        config: The table, with the mode of both jobs.
        kind: The other job's.
    """

    def __init__(self, log: Path, config: IcebergSinkConfig, kind: Kind) -> None:
        self._log = log
        self._config = config
        self._kind = kind
        self._schema = pa.schema([*SCHEMA, *(pa.field(name, kind) for name, kind in kind.more)])

    def begin_epoch(self, files: int) -> None:
        """Note that there is another epoch, and commit all that have not landed."""
        with self._log.open("a") as log:
            log.write(f"{files}\n")
        self.catch_up()

    def catch_up(self) -> None:
        """Commit the epochs that have not landed; leave it if the same rival of another process does."""
        committer = IcebergSink(self._config).open(SinkContext("rival", self._schema, Metrics(), _do))
        last = committer.last_epoch(_QUERY)
        # An epoch that changes nothing leaves no mark: it comes again, if it is the last one.
        for number, rows in [*enumerate(self.epochs())][0 if last is None else last + 1 :]:
            epoch = Epoch(_QUERY, number)
            committer.last_epoch(_QUERY)
            task = committer.writer(epoch).open(0)
            columns = [array_of([row[field.name] for row in rows], field.type) for field in self._schema]
            task.write(pa.RecordBatch.from_arrays(columns, schema=self._schema))
            try:
                committer.commit(epoch, [task.close()])
            except CommitConflictError:
                return

    def epochs(self) -> list[list[Row]]:
        """The rows of all its epochs."""
        changes = self._kind.rival
        assert changes is not None
        lines = self._log.read_text().split() if self._log.exists() else []
        return [changes(random.Random(f"rival-{number}"), int(files), number) for number, files in enumerate(lines)]
