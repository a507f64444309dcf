"""Keeps rows in the sink's state folder until their table can take them: it is not made yet, too narrow, or gone."""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from volley.columns.schema_bytes import read_schema
from volley.contracts.epoch import WriteResult
from volley.contracts.sink import TaskWriter
from volley.iceberg.storage.errors import storage_errors
from volley.storage.durable import sync
from volley.storage.paths import filesystem
from volley.storage.private import begin_file
from volley.storage.remembered import damaged
from volley.storage.state_formats import PARKED_ROWS
from volley.store.batch_file import BatchFileWriter
from volley.store.files import open_file

__all__ = ["ParkedRows", "ParkingWriter", "Unpark", "delete_parked"]

_LZ4 = pa.ipc.IpcWriteOptions(compression="lz4")


@dataclass(frozen=True)
class ParkedRows:
    """A file of rows of one schema, for one table.

    Args:
        url: The file's fsspec URL.
        rows: The number of its rows.
        schema: Their schema, in Arrow's IPC format.
    """

    url: str
    rows: int
    schema: bytes

    @property
    def path(self) -> str:
        """The file's URL, under the name that data files have for it."""
        return self.url

    @property
    def arrow_schema(self) -> pa.Schema:
        """The rows' schema."""
        return read_schema(self.schema)

    def read(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows in their order of arrival.

        Raises:
            StorageError: If the file can't be read, is damaged, or a newer Volley wrote it.
        """
        with storage_errors(self.url, "reading"):
            file = open_file(self.url, PARKED_ROWS, damaged)
        for number in range(len(file)):
            with storage_errors(self.url, "reading"):
                batch = file.batch(number)
            yield batch


def delete_parked(parked: Sequence[ParkedRows]) -> None:
    """Delete files of parked rows; ignore errors: what stays is deleted at the next start."""
    for file in parked:
        files, path = filesystem(file.url, {})
        with suppress(Exception):
            files.rm_file(path)


class ParkingWriter(TaskWriter):
    """Parks the rows of one task attempt for one table, in their order; a new schema begins a new file.

    Args:
        prefix: What the URLs of the files start with.
    """

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._url = ""
        self._file: Any = None
        self._batches: BatchFileWriter | None = None
        self._schema: pa.Schema | None = None
        self._rows = 0
        self._parked: list[ParkedRows] = []
        self._result = WriteResult()

    def write(self, batch: pa.RecordBatch) -> None:
        with storage_errors(self._prefix):
            if self._schema is None or not batch.schema.equals(self._schema, check_metadata=True):
                self._finish()
                self._begin(batch.schema)
            assert self._batches is not None
            self._batches.write_batch(batch)
        self._rows += batch.num_rows
        self._result = self._result.with_batch(batch.num_rows)

    def close(self) -> WriteResult:
        with storage_errors(self._prefix, "closing"):
            self._finish()
        return replace(self._result, committables=tuple(self._parked))

    def abort(self) -> None:
        with suppress(Exception):
            self._file.close()
        unfinished = [ParkedRows(self._url, 0, b"")] if self._schema else []
        delete_parked([*self._parked, *unfinished])

    def _begin(self, schema: pa.Schema) -> None:
        self._url, self._schema, self._rows = f"{self._prefix}{uuid.uuid4()}.arrow", schema, 0
        files, path = filesystem(self._url, {})
        begin_file(files, path)
        self._file = files.open(path, "wb")
        self._batches = BatchFileWriter(self._file, PARKED_ROWS, _LZ4)

    def _finish(self) -> None:
        if self._schema is None or self._batches is None:
            return
        self._batches.close()
        self._file.close()
        sync(*filesystem(self._url, {}))
        self._parked.append(ParkedRows(self._url, self._rows, self._schema.serialize().to_pybytes()))
        self._schema = None


@dataclass(frozen=True)
class Unpark:
    """An ExecutorTask that writes parked rows to their table's data files.

    Args:
        writer: The table's writer, pickled.
        parked: The files.
        number: Distinguishes the names of its data files from those of tasks.
    """

    writer: bytes
    parked: ParkedRows
    number: int

    def __call__(self) -> WriteResult:
        task = pickle.loads(self.writer).open(self.number)
        try:
            for batch in self.parked.read():
                task.write(batch)
            result: WriteResult = task.close()
        except BaseException:
            task.abort()
            raise
        return result
