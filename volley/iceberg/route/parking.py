"""Parks rows in the sink's state folder until their table can take them: it is not made yet, too narrow, or gone."""

from __future__ import annotations

import base64
import pickle
import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa

from volley.contracts.epoch import Epoch, WriteResult
from volley.contracts.sink import TaskWriter
from volley.iceberg.storage.errors import storage_errors
from volley.iceberg.write.writer import write_batches
from volley.storage.paths import filesystem
from volley.storage.remembered import damaged
from volley.storage.state_formats import BACKLOG, PARKED_ROWS
from volley.store.files import new_file, open_file
from volley.store.journal import Journal
from volley.store.rows import RowStore
from volley.types.arrow import read_schema

__all__ = ["Backlog", "ParkedRows", "ParkingWriter", "Unpark", "delete_parked"]

_WAITING_BYTES = 32 << 20
_LZ4 = pa.ipc.IpcWriteOptions(compression="lz4")


@dataclass(frozen=True)
class ParkedRows:
    """A file of rows of one schema, for one table.

    Args:
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
        """Yield the rows in their order of arrival."""
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
    """Parks the rows of one task attempt for one table, in their order; rows of another schema begin another file."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._waiting: list[tuple[pa.Schema, RowStore]] = []
        self._parked: list[ParkedRows] = []
        self._result = WriteResult()

    def write(self, batch: pa.RecordBatch) -> None:
        if not self._waiting or not batch.schema.equals(self._waiting[-1][0], check_metadata=True):
            self._waiting.append((batch.schema, RowStore(_WAITING_BYTES)))
        self._waiting[-1][1].append(batch)
        self._result = self._result.with_batch(batch.num_rows)

    def close(self) -> WriteResult:
        with storage_errors(self._prefix):
            while self._waiting:
                schema, store = self._waiting.pop(0)
                self._park(schema, store.read(0))
        return replace(self._result, committables=tuple(self._parked))

    def abort(self) -> None:
        delete_parked(self._parked)

    def _park(self, schema: pa.Schema, batches: Sequence[pa.RecordBatch]) -> None:
        url = f"{self._prefix}{uuid.uuid4()}.arrow"
        with new_file(url, PARKED_ROWS, options=_LZ4) as file:
            for batch in batches:
                file.write_batch(batch)
        rows = sum(batch.num_rows for batch in batches)
        self._parked.append(ParkedRows(url, rows, schema.serialize().to_pybytes()))


@dataclass(frozen=True)
class Unpark:
    """An ExecutorTask that writes parked rows to their table's data files.

    Args:
        number: Distinguishes the names of its data files from those of tasks.
    """

    writer: bytes
    parked: ParkedRows
    number: int

    def __call__(self) -> WriteResult:
        return write_batches(pickle.loads(self.writer).open(self.number), self.parked.read())


class Backlog:
    """The parked epochs of one table, the oldest first, each a durable entry that lists the files of its rows.

    An epoch that is in the backlog is as safe as in the table: the source may let go of its rows.
    """

    def __init__(self, url: str, query_id: str) -> None:
        self._journal = Journal(url, BACKLOG, partial(_parked, query_id), "{:012}.json")
        self.epochs: dict[Epoch, Sequence[ParkedRows]] = dict(self._journal.entries().values())

    @property
    def rows(self) -> int:
        """The rows that wait."""
        return sum(file.rows for files in self.epochs.values() for file in files)

    def add(self, epoch: Epoch, parked: Sequence[ParkedRows]) -> None:
        """Add an epoch durably; replaces what a driver that died has written for it."""
        listed = [(file.url, file.rows, base64.b64encode(file.schema).decode()) for file in parked]
        record = {"epoch": epoch.number, "offsets": epoch.offsets, "run": epoch.run, "files": listed}
        self._journal.replace({epoch.number: record})
        self.epochs[epoch] = parked

    def remove(self, epoch: Epoch) -> None:
        """Remove an epoch that is in the table, with the files of its rows."""
        self._journal.delete(epoch.number)
        delete_parked(self.epochs.pop(epoch))


def _parked(query_id: str, number: int, record: dict[str, Any]) -> tuple[Epoch, Sequence[ParkedRows]]:
    parked = [ParkedRows(url, rows, base64.b64decode(schema)) for url, rows, schema in record["files"]]
    for file in parked:
        read_schema(file.schema)
    return Epoch(query_id, record["epoch"], record["offsets"], record.get("run")), parked
