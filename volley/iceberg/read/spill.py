"""Divides rows that memory can't hold at once into parts on the local disk, by the hash of some columns."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path

import pyarrow as pa

from volley.arrow.keys.buckets import buckets_of, divided
from volley.iceberg.storage.errors import storage_errors
from volley.storage.local import local_folder

__all__ = ["MOST_PARTS", "spilled"]

_COMPRESSED = pa.ipc.IpcWriteOptions(compression="lz4")
MOST_PARTS = 256
"""The most parts: each is an open file."""


@contextmanager
def spilled(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, columns: Sequence[str], parts: int
) -> Iterator[Iterator[pa.Table]]:
    """Divide rows; the context has the parts, each with all rows of the same values in some columns.

    Args:
        batches: The rows.
        schema: Their schema.
        columns: The columns.
        parts: The number of parts, at most `MOST_PARTS`.

    Raises:
        StorageError: If the local disk is full.
    """
    folder = local_folder()
    with tempfile.TemporaryDirectory(prefix="volley-rows-", dir=folder) as place:
        paths = [Path(place, str(number)) for number in range(parts)]
        with ExitStack() as stack:
            writers = [_opened(stack, path, schema) for path in paths]
            for batch in batches:
                _divide(batch, columns, writers, folder)
        yield (_read(path) for path in paths)


def _opened(stack: ExitStack, path: Path, schema: pa.Schema) -> pa.RecordBatchWriter:
    stream = stack.enter_context(path.open("wb"))
    return stack.enter_context(pa.ipc.new_stream(stream, schema, options=_COMPRESSED))


def _divide(batch: pa.RecordBatch, columns: Sequence[str], writers: Sequence[pa.RecordBatchWriter], to: str) -> None:
    keys = batch.select(list(columns)).columns
    order, present, bounds = divided(buckets_of(keys, len(writers), batch.num_rows))
    batch = batch.take(pa.array(order))
    with storage_errors(to):
        for bucket, (start, end) in zip(present.tolist(), pairwise(bounds.tolist()), strict=True):
            writers[bucket].write_batch(batch.slice(start, end - start))


def _read(path: Path) -> pa.Table:
    with path.open("rb") as stream, pa.ipc.open_stream(stream) as reader:
        return reader.read_all()
