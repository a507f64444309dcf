"""Rows by bucket that wait in memory and, beyond so many bytes, in runs on the local disk."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from volley.columns.keys.buckets import Divided
from volley.storage.local import local_folder, no_room

__all__ = ["Numbers", "RowStore", "merged", "on_disk", "one_bucket"]

Numbers = npt.NDArray[np.int64]
_Place = tuple[pa.RecordBatch, int, int]
"""Rows of a run, and the first of a bucket and the one behind its last."""
_Block = tuple[pa.ipc.RecordBatchFileReader, int]
"""A file of compressed batches, and the number of that of a bucket."""
_LZ4 = pa.ipc.IpcWriteOptions(compression="lz4")


def one_bucket(rows: pa.RecordBatch) -> Divided:
    """Return a run of rows that are all in bucket 0."""
    return Divided(rows, [0], [0, rows.num_rows])


class RowStore:
    """Keeps rows by bucket until they are read.

    Files on the local disk have no name: they disappear with the process, however it ends, and no other one reads them.

    Args:
        max_bytes: The most bytes of rows that wait in memory. What is more goes to the local disk in runs of this size.
        arrange: Divides the rows of a run among buckets.
        compressed: True to write each bucket of a run compressed, which takes less room on the disk; False to map runs
            into memory, so that reading copies nothing.

    Example:
        >>> store = RowStore(max_bytes=64 << 20)
        >>> store.append(pa.record_batch({"id": [1, 2]}))
        >>> [rows.column("id").to_pylist() for rows in store.read(0)]
        [[1, 2]]
    """

    def __init__(
        self, max_bytes: int, arrange: Callable[[pa.RecordBatch], Divided] = one_bucket, compressed: bool = False
    ) -> None:
        self._max_bytes = max_bytes
        self._arrange = arrange
        self._compressed = compressed
        self._waiting: list[pa.RecordBatch] = []
        # A slice of each would take more memory than the rows of many small buckets.
        self._places: dict[int, list[_Place | _Block]] = {}
        self.size = 0
        self.spilled_bytes = 0

    @property
    def waiting(self) -> list[pa.RecordBatch]:
        """The rows that wait in memory, as they were appended."""
        return self._waiting

    def append(self, rows: pa.RecordBatch) -> None:
        """Add rows.

        Raises:
            StorageError: If the local disk has no room for them.
        """
        if self._waiting and self.size - self.spilled_bytes + rows.nbytes > self._max_bytes:
            self._spill()
        self._waiting.append(rows)
        self.size += rows.nbytes

    def read(self, bucket: int) -> list[pa.RecordBatch]:
        """Return the rows of a bucket, a batch for each run, in the order in which the runs were appended."""
        return [_rows_at(place) for place in self._kept.get(bucket, ())]

    @property
    def buckets(self) -> list[int]:
        """The buckets that have rows."""
        return list(self._kept)

    @property
    def _kept(self) -> dict[int, list[_Place | _Block]]:
        if self._waiting:
            self._keep(self._next_run())
        return self._places

    def _next_run(self) -> Divided:
        rows = self._waiting[0] if len(self._waiting) == 1 else pa.concat_batches(self._waiting)
        self._waiting = []
        return self._arrange(rows)

    def _keep(self, run: Divided) -> None:
        for bucket, (start, end) in zip(run.buckets, pairwise(run.bounds), strict=True):
            self._places.setdefault(bucket, []).append((run.rows, start, end))

    def _spill(self) -> None:
        run = self._next_run()
        if self._compressed:
            file = _on_disk([rows for _, rows in run.parts()], _LZ4)
            for number, bucket in enumerate(run.buckets):
                self._places.setdefault(bucket, []).append((file, number))
        else:
            self._keep(run._replace(rows=on_disk(run.rows)))
        self.spilled_bytes = self.size


def _rows_at(place: _Place | _Block) -> pa.RecordBatch:
    if len(place) == 2:
        file, number = place
        return file.get_batch(number)
    rows, start, end = place
    return rows.slice(start, end - start)


def on_disk(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows as they are in a mapped file on the local disk.

    Raises:
        StorageError: If the disk has no room for them.
    """
    return _on_disk([rows], None).get_batch(0)


def _on_disk(batches: Sequence[pa.RecordBatch], options: pa.ipc.IpcWriteOptions | None) -> pa.ipc.RecordBatchFileReader:
    """Return a mapped file with batches; nobody but this user could open it, and its name is gone already."""
    folder = local_folder()
    try:
        with tempfile.NamedTemporaryFile(prefix="volley-rows-", dir=folder) as file:
            with pa.ipc.new_file(file, batches[0].schema, options=options) as run:
                for batch in batches:
                    run.write_batch(batch)
            file.flush()
            return pa.ipc.open_file(pa.memory_map(file.name))
    except OSError as error:
        raise no_room(folder, sum(batch.nbytes for batch in batches), error) from error


def merged(pieces: Sequence[pa.RecordBatch], order: Numbers, window: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of sorted runs in batches.

    Args:
        pieces: The runs.
        order: The place of each row among those of all runs, one run after the other; the order within a run is kept.
        window: The most rows of a batch.
    """
    firsts = np.cumsum([0, *(piece.num_rows for piece in pieces)])
    taken = np.zeros(len(pieces), np.int64)
    for start in range(0, len(order), window):
        rows_to_take = order[start : start + window]
        piece_of = np.searchsorted(firsts, rows_to_take, "right") - 1
        counts = np.bincount(piece_of, minlength=len(pieces))
        rows = pa.concat_batches(
            [piece.slice(at, count) for piece, at, count in zip(pieces, taken.tolist(), counts.tolist(), strict=True)]
        )
        before = np.cumsum(counts) - counts
        yield rows.take(pa.array(rows_to_take - (firsts[:-1] + taken - before)[piece_of]))
        taken += counts
