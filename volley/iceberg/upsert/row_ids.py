"""The ids of the rows that an upsert replaces: the rows that come in their place take them."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from volley.columns.batches import one_batch
from volley.columns.keys.buckets import divided
from volley.iceberg.storage.errors import storage_errors
from volley.iceberg.upsert.changes import STORED_ID, STORED_IN, ChangeFile, UpsertWriter, damaged
from volley.storage.envelope import StateFormat
from volley.store.batch_file import BatchFileWriter, open_batches
from volley.store.files import checked

__all__ = ["CHANGE", "SCHEMA", "ChangeNumbers", "RowIdFile", "read_ids", "write_ids"]

CHANGE = "change"
SCHEMA = pa.schema([(CHANGE, pa.int64()), (STORED_IN, pa.int32()), (STORED_ID, pa.int64())])
"""For each row that is replaced, the number of a change of its key, the number of its data file, and its id."""

_FORMAT = StateFormat("upsert-row-ids")

_Numbers = np.ndarray[Any, Any]


class ChangeNumbers:
    """The numbers of the changes of some files, each of which has a key: their order in `UpsertWriter.all_keys`."""

    def __init__(self, files: Iterable[ChangeFile]) -> None:
        parts = [part for file in files for part in zip(file.buckets, file.rows, strict=True)]
        self._buckets = np.array([bucket for bucket, _ in parts], np.uint8)
        self._rows = np.array([rows for _, rows in parts], np.int64)
        self._starts = np.cumsum(self._rows) - self._rows

    def buckets(self, numbers: _Numbers) -> _Numbers:
        """Return the buckets of changes."""
        buckets: _Numbers = np.repeat(self._buckets, self._rows)[numbers]
        return buckets

    def places(self, numbers: _Numbers, buckets: range) -> _Numbers:
        """Return the places of changes of some buckets in `UpsertWriter.changes_in`."""
        rows = np.where((self._buckets >= buckets.start) & (self._buckets < buckets.stop), self._rows, 0)
        parts = np.searchsorted(self._starts, numbers, "right") - 1
        places: _Numbers = numbers - self._starts[parts] + (np.cumsum(rows) - rows)[parts]
        return places


@dataclass(frozen=True)
class RowIdFile:
    """A temporary file of ids; never part of a snapshot. It has a batch for each bucket of the changes."""

    path: str
    buckets: tuple[int, ...]


def write_ids(writer: UpsertWriter, task: int, ids: pa.Table, numbers: ChangeNumbers) -> RowIdFile | None:
    """Write the ids of rows that a task replaces to a file; None = there are none."""
    ids = ids.filter(ids[STORED_ID].is_valid()) if ids[STORED_ID].null_count else ids
    if ids.num_rows == 0:
        return None
    parts, content = divided(ids, numbers.buckets(ids[CHANGE].to_numpy())), BytesIO()
    file = BatchFileWriter(content, _FORMAT)
    for _, part in parts.parts():
        file.write_batch(one_batch(part))
    file.close()
    path = writer.rows.new_path(f"{task:05}-{uuid.uuid4()}-changes-ids")
    with storage_errors(path):
        stream: Any = writer.rows.io.new_output(path).create(overwrite=True)
        with stream:
            stream.write(content.getbuffer())
    return RowIdFile(path, tuple(parts.buckets))


def read_ids(writer: UpsertWriter, files: Sequence[RowIdFile], buckets: range, numbers: Iterable[int]) -> pa.Table:
    """Return the ids of the rows of some data files, given their numbers, that changes of some buckets replace."""
    batches = list[pa.RecordBatch]()
    for file in files:
        opened = writer.rows.io.new_input(file.path).open
        with storage_errors(file.path, "reading"), opened() as stream, checked(file.path, damaged):
            stored = open_batches(pa.PythonFile(stream, "r"), _FORMAT, file.path)
            batches += [stored.batch(place) for place, bucket in enumerate(file.buckets) if bucket in buckets]
    ids = pa.Table.from_batches(batches, SCHEMA)
    return ids.filter(pc.is_in(ids[STORED_IN], pa.array(sorted(numbers), pa.int32())))
