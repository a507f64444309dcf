"""What rewrites of data files and of delete files share: which table, its files, tasks, a commit, what is deleted."""

from __future__ import annotations

import time
import uuid
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Generic, Self, TypeVar

from pyiceberg.expressions import BooleanExpression
from pyiceberg.table import Table, TableProperties, Transaction
from pyiceberg.table.snapshots import Snapshot

from volley.checks import Duration, seconds
from volley.contracts.epoch import Epoch
from volley.contracts.sink import ExecutorTask
from volley.iceberg.catalogs.config import CatalogConfig
from volley.iceberg.commit.loop import S, Stage, new_snapshot_id, write_manifests
from volley.iceberg.commit.marks import maintenance_summary
from volley.iceberg.config import IcebergSinkConfig
from volley.iceberg.layout.specs import partitioning_of
from volley.iceberg.maintain.options import Runner
from volley.iceberg.pyiceberg_private.guarded import check_known
from volley.iceberg.read.entries import PlannedFile
from volley.iceberg.read.history import check_branch, head_of
from volley.iceberg.read.planning import plan
from volley.iceberg.read.predicates import pruning
from volley.iceberg.read.scope import head_snapshot, predicate_of
from volley.iceberg.schema.mapping import number_in
from volley.iceberg.source_config import IcebergSourceConfig
from volley.iceberg.storage.errors import storage_errors
from volley.iceberg.storage.files import data_folder, delete_new_files, file_system, list_folder, name_of
from volley.iceberg.table import TableRef
from volley.iceberg.write.table_format import TableFormat
from volley.iceberg.write.written import SnapshotFiles, WrittenFile
from volley.plan.expressions import Expr

__all__ = ["FileRewrite", "Opened", "deadline", "format_of", "run_tasks", "within"]


R = TypeVar("R")


@dataclass(frozen=True)
class Opened:
    """A table whose files are to be rewritten, as it is at the start.

    Args:
        head: The branch's last snapshot; None = it has none.
        row_filter: What is to be rewritten has files that may have such rows.
    """

    ref: TableRef
    table: Table
    head: Snapshot | None
    row_filter: BooleanExpression

    @classmethod
    def of(cls, ref: TableRef, where: str | Expr | None) -> Self:
        """Load a table."""
        table, config = ref.load(), IcebergSourceConfig(ref).with_partition_filter(where)
        check_known(table)
        # Raises for a transform that is not known here.
        partitioning_of(table)
        check_branch(table.metadata, ref.name, ref.branch)
        row_filter = pruning(predicate_of(config, table.schema()), table.schema())
        return cls(ref, table, head_snapshot(table, config), row_filter)

    @property
    def files(self) -> Sequence[PlannedFile]:
        """The data files that may have rows of the filter, with their delete files."""
        return self.files_of(self.table, self.head)

    def files_of(self, table: Table, head: Snapshot | None) -> Sequence[PlannedFile]:
        """Return the same of another snapshot."""
        return plan(table.io, table.metadata, head, self.row_filter).files if head else ()


class FileRewrite(Stage[S], Generic[S, R]):
    """Has tasks write new files, commits them in one snapshot, and deletes those that are not in the table then."""

    maintenance: ClassVar[str]
    """The action, for the summary of the snapshot."""

    def __init__(self, opened: Opened, format: TableFormat, prefix: str, run: Runner | None) -> None:
        self._opened = opened
        self._ref = opened.ref
        self._io = opened.table.io
        # The files of one commit have a name in common, by which those of lost attempts of tasks are found.
        self._format = replace(format, file_prefix=f"{prefix}-{uuid.uuid4()}-")
        self._run = run
        self._results: list[R] = []

    @abstractmethod
    def _written(self) -> set[str]:
        """Return the locations of the files that were written for the table."""

    def _temporary(self) -> set[str]:
        """Return the locations of files that are needed up to the commit."""
        return set()

    def _run_tasks(self, tasks: Sequence[ExecutorTask]) -> None:
        """Run tasks; what they return is in `_results`."""
        try:
            run_tasks(tasks, self._run, self._results, self._delete_lost)
        except BaseException:
            self.discard()
            raise

    def _staged(self, table: Table, head: Snapshot, files: SnapshotFiles, rewritten_at: int) -> tuple[Transaction, int]:
        """Return a transaction with a snapshot, and the id of that."""
        transaction, snapshot_id = table.transaction(), new_snapshot_id()
        summary = maintenance_summary(self.maintenance, table.metadata, head)
        with storage_errors(table.location()):
            write_manifests(transaction, files, snapshot_id, summary, self._ref.branch, rewritten_at)
        return transaction, snapshot_id

    def _delete_unused(self, table: Table, used: Iterable[WrittenFile]) -> None:
        """Delete files that were written, and are not in the attempt that has landed."""
        paths = self._written() - {file.path for file in used}
        head = head_of(table, self._ref.branch)
        if paths and head:
            # A snapshot of an earlier attempt may have landed unseen, and have expired since.
            files = plan(table.io, table.metadata, head).files
            paths -= {file.path for planned in files for file in (planned.file, *planned.deletes)}
        delete_new_files(table.io, paths)

    def discard(self) -> None:
        delete_new_files(self._io, self._written() | self._temporary())

    def _delete_lost(self) -> None:
        """Delete what a failed attempt of a task has written."""
        table = self._opened.table
        with suppress(Exception):
            files = file_system(table.io, data_folder(table))
            names = {name_of(path) for path in self._written() | self._temporary()}
            for path in list_folder(files, data_folder(table)):
                if name_of(path).startswith(self._format.file_prefix) and name_of(path) not in names:
                    files.rm_file(path)


def deadline(max_time: Duration | None) -> float | None:
    """Return when a span that begins now ends, in seconds since 1970; None = never."""
    return None if max_time is None else time.time() + seconds("max_time", max_time)


def within(sizes: Iterable[int], most: int | None) -> int:
    """Return how many of the first have some bytes at most; the first one always counts: each run gets ahead."""
    total = count = 0
    for size in sizes:
        total += size
        if count and most is not None and total > most:
            break
        count += 1
    return count


def run_tasks(tasks: Sequence[ExecutorTask], run: Runner | None, results: list[Any], sweep: Callable[[], None]) -> None:
    """Run tasks, and add what they return for the commit to `results`, also if a later one fails.

    Args:
        run: Runs them; None = one after the other, in this process.
        sweep: Deletes the files of attempts that have failed: it is called if there may be some.
    """
    if run is None:
        for task in tasks:
            results += task().committables
        return
    try:
        done = run(tasks)
    except BaseException:
        sweep()
        raise
    results += [item for result in done for item in result.committables]
    if any(result.attempt for result in done):
        sweep()


def format_of(table: Table, ref: TableRef) -> TableFormat:
    """Return the format of new files of a table."""
    assert isinstance(ref.catalog, CatalogConfig)
    config = IcebergSinkConfig(namespace=ref.identifier[:-1], table=ref.table, storage=ref.storage, catalog=ref.catalog)
    codec = table.properties.get(TableProperties.PARQUET_COMPRESSION, config.compression).lower()
    level = number_in(table.properties, TableProperties.PARQUET_COMPRESSION_LEVEL)
    config = config.with_compression("none" if codec == "uncompressed" else codec, level)  # type: ignore[arg-type]
    return TableFormat.for_table(table, config, Epoch(str(uuid.uuid4()), 0))
