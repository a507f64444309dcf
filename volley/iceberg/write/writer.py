"""Writes the rows of a task to data files."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import ClassVar

import pyarrow as pa

from volley.columns.dictionaries import decode_rows
from volley.contracts.epoch import WriteResult
from volley.contracts.sink import TaskWriter, Writer
from volley.iceberg.write.data_files import RollingFiles
from volley.iceberg.write.partition_buffer import PartitionBuffer
from volley.iceberg.write.table_format import TableFormat

__all__ = ["IcebergWriter", "write_batches"]


@dataclass(frozen=True)
class IcebergWriter(TableFormat, Writer):
    """Writes data files of one table in one epoch; has the arguments of `TableFormat`."""

    suits_driver: ClassVar[bool] = True

    def open(self, task: int) -> _Task:
        return _Task(self, f"{task:05}-{uuid.uuid4()}")


class _Task(TaskWriter):
    """One task attempt: writes rows in order of arrival, or through a buffer that sorts them by partition."""

    def __init__(self, format: TableFormat, prefix: str) -> None:
        self._format = format
        self._files = RollingFiles(format, prefix)
        self._buffer = None if format.layout.is_plain else PartitionBuffer(format.layout, 2 * format.row_group_bytes)
        self._result = WriteResult()
        self._seconds = 0.0

    def check(self, batch: pa.RecordBatch) -> None:
        self._format.fitted(batch)

    def write(self, batch: pa.RecordBatch) -> None:
        began = time.perf_counter()
        rows = self._format.fitted(batch)
        if self._buffer:
            self._buffer.add(decode_rows(rows))
        else:
            self._files.write(rows)
        self._result = self._result.with_batch(batch.num_rows)
        self._seconds += time.perf_counter() - began

    def close(self) -> WriteResult:
        began = time.perf_counter()
        try:
            if self._buffer:
                self._buffer.empty_into(self._files)
            self._files.finish()
        except BaseException:
            self.abort()
            raise
        self._seconds += time.perf_counter() - began
        done = self._files.done
        return replace(
            self._result,
            bytes=sum(file.data_file.file_size_in_bytes for file in done),
            seconds=self._seconds,
            files=len(done),
            committables=tuple(done),
        )

    def abort(self) -> None:
        # Ignores errors: the attempt has failed already.
        self._files.discard()


def write_batches(files: TaskWriter, batches: Iterable[pa.RecordBatch]) -> WriteResult:
    """Write all rows to the files of a task, and close them; delete them if that fails."""
    try:
        for batch in batches:
            if batch.num_rows:
                files.write(batch)
        return files.close()
    except BaseException:
        files.abort()
        raise
