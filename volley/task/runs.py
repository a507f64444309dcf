"""Sorted runs of a task's rows, for more rows than fit in memory: spilled to local disk, merged in batches."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = ["Numbers", "merged", "on_disk"]

Numbers = npt.NDArray[np.int64]


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


def on_disk(rows: pa.RecordBatch, folder: str) -> pa.RecordBatch:
    """Return the same rows in a memory-mapped file without a name, which disappears with the task, however it ends.

    Args:
        rows: The rows.
        folder: A folder on local disk.

    Raises:
        OSError: If it can't be written.
    """
    with tempfile.NamedTemporaryFile(prefix="volley-rows-", dir=folder) as file:
        with pa.ipc.new_file(file, rows.schema) as run:
            run.write_batch(rows)
        file.flush()
        return pa.ipc.open_file(pa.memory_map(file.name)).get_batch(0)
