"""Writes the deletes of a data file anew as one position-delete file: on the driver, or on an executor."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from volley.contracts.epoch import WriteResult
from volley.iceberg.maintain.tasks import delete_files
from volley.iceberg.read.delete_files import deleted_by_position
from volley.iceberg.read.entries import Content, to_data_file
from volley.iceberg.read.rows import FileTask, RowReader
from volley.iceberg.write.data_files import write_position_deletes
from volley.iceberg.write.table_format import TableFormat
from volley.iceberg.write.written import WrittenFile
from volley.task.failpoints import reach

__all__ = ["DeleteMerge", "MergedDeletes"]


@dataclass(frozen=True)
class MergedDeletes:
    """The deletes of a data file in one file.

    Args:
        path: The data file's location.
        merged: The locations of the delete files that were merged.
        file: The new position-delete file; None if the merged ones delete no row of the data file.
    """

    path: str
    merged: frozenset[str]
    file: WrittenFile | None


@dataclass(frozen=True)
class DeleteMerge:
    """Executor work: merges the delete files of each of some data files. Each attempt writes files of its own.

    Args:
        format: The format of the new files.
        reader: Reads the columns that equality deletes compare.
        number: The task's number.
        tasks: The data files, each with the delete files to merge.
        until: The time, in seconds since 1970, from which on nothing is written any more; None = no limit.
    """

    format: TableFormat
    reader: RowReader
    number: int
    tasks: tuple[FileTask, ...]
    until: float | None = None

    def __call__(self) -> WriteResult:
        """Return a `MergedDeletes` for each data file as the committables; none after the time limit."""
        done: list[MergedDeletes] = []
        try:
            for task in self.tasks:
                if self.until is not None and time.time() >= self.until:
                    break
                done.append(self._merged(task))
            reach("in-delete-merge", self.number)
        except BaseException:
            delete_files(self.format.io, (each.file.path for each in done if each.file))
            raise
        return WriteResult(files=len(done), committables=tuple(done))

    def _merged(self, task: FileTask) -> MergedDeletes:
        positions = self._positions(task)
        merged = frozenset(delete.path for delete in task.deletes)
        if not len(positions):
            return MergedDeletes(task.file.path, merged, None)
        return MergedDeletes(
            task.file.path, merged, write_position_deletes(self.format, to_data_file(task.file), positions)
        )

    def _positions(self, task: FileTask) -> np.ndarray[Any, Any]:
        """Return the positions of the deleted rows, in ascending order."""
        if any(delete.content == Content.EQUALITY_DELETES for delete in task.deletes):
            return np.flatnonzero(self.reader.deleted(self.format.io, task))
        rows = range(task.file.rows)
        return np.flatnonzero(deleted_by_position(self.format.io, task.file.path, task.deletes, rows))
