"""Divides the states of a keyed step among another number of buckets."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pyarrow as pa

from volley.columns.batches import one_batch
from volley.columns.keys.buckets import Divided, divided, kept_buckets
from volley.columns.operators import Operator
from volley.storage.state_formats import STATE
from volley.store.files import new_file
from volley.store.rows import RowStore
from volley.task.merging import needed_columns
from volley.task.state_files import StateFile

__all__ = ["bucket_count", "rescaled"]

# States beyond so many bytes wait on the local disk.
_MOST_BYTES = 256 << 20


def bucket_count(files: Sequence[StateFile]) -> int | None:
    """Return the number of buckets whose states are in the files of an input; None without files."""
    return max((file.first + file.buckets for file in files), default=None)


def rescaled(operator: Operator, input: int, files: Sequence[StateFile], url: str) -> StateFile:
    """Write the states of an input by the buckets that a step has now, and return their file.

    Args:
        files: The files with the states.
        url: Where the new one is written; the same files give the same one.

    Raises:
        StorageError: If a file is missing or damaged, or there is no room for the states.
        OSError: If the new file can't be written.
    """
    schema, buckets = operator.states[input], operator.timing.buckets
    store = RowStore(_MOST_BYTES, partial(_divided, operator, input))
    for file in files:
        opened = file.open()
        for place in range(file.buckets):
            store.append(needed_columns(opened.batch(place), schema, operator.fills_states))
    with new_file(url, STATE) as target:
        for bucket in range(buckets):
            target.write_batch(one_batch(pa.Table.from_batches(store.read(bucket), schema)))
    return StateFile(url, 0, buckets, 0)


def _divided(operator: Operator, input: int, rows: pa.RecordBatch) -> Divided:
    keys = operator.keys(input, pa.Table.from_batches([rows]))
    return divided(rows, kept_buckets(keys, operator.timing.buckets, rows.num_rows))
