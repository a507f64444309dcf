"""Which values changes leave as they are: a column of changes with the names of these columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from volley.errors import SchemaMismatchError
from volley.iceberg.modes import KeyedMode, Upsert
from volley.iceberg.upsert.columns import OLDER

__all__ = ["UNCHANGED", "check_whole", "is_incomplete", "lacks", "unchanged_in"]

UNCHANGED = "_volley_unchanged"
"""The column of changes with the names of the columns that an incomplete one leaves out: they have not changed."""


def unchanged_in(
    rows: pa.RecordBatch, batch: pa.RecordBatch, deleted: pa.BooleanArray, mode: KeyedMode
) -> pa.ListArray | None:
    """Return for each row of the stream the columns that it leaves as they are; None if no row of the mode may.

    Args:
        rows: The rows in the table's columns.
        batch: The rows as they came.
        deleted: For each row, whether it is a deletion.
    """
    if not isinstance(mode, Upsert) or not mode.is_partial:
        return None
    if mode.unchanged_field is not None:
        return batch.column(mode.unchanged_field)
    always = {*mode.keys, *mode.sequence_fields, mode.order_by, OLDER}
    names = [name for name in rows.schema.names if name not in always]
    kept = np.zeros((rows.num_rows, len(names)), np.bool_)
    for number, name in enumerate(names):
        if mode.update_columns is not None and name not in mode.update_columns:
            kept[:, number] = True
        elif ignores_nulls(mode, name):
            kept[:, number] = rows.column(name).is_null().to_numpy(zero_copy_only=False)
    kept[deleted.to_numpy(zero_copy_only=False)] = False
    return _lists_of(names, kept)


def check_whole(batch: pa.RecordBatch, deleted: pa.BooleanArray, mode: KeyedMode) -> None:
    """Raise SchemaMismatchError if a row that is to be a version leaves out values."""
    if mode.unchanged_field is None or isinstance(mode, Upsert):
        return
    leaves_out = pc.greater(pc.list_value_length(batch.column(mode.unchanged_field)), 0).fill_null(False)
    if count := pc.sum(pc.and_(leaves_out, pc.invert(deleted))).as_py():
        raise SchemaMismatchError(
            f"{count} rows leave out values that have not changed (column {mode.unchanged_field!r}): versions need all",
            hint="make the source send whole rows: in PostgreSQL, alter table … replica identity full; or give the "
            "sink a dead letter",
        )


def ignores_nulls(mode: KeyedMode, column: str) -> bool:
    """Return True if a null in a column is no value."""
    listed = mode.ignore_nulls
    return listed if isinstance(listed, bool) else column in listed


def _lists_of(names: list[str], chosen: np.ndarray[Any, Any]) -> pa.ListArray:
    """Return for each row of an array of flags the list of the names whose flags are set."""
    places = pa.array(np.nonzero(chosen)[1])
    ends = pa.array([0, *np.cumsum(np.count_nonzero(chosen, axis=1))], pa.int32())
    return pa.ListArray.from_arrays(ends, pa.array(names, pa.string()).take(places))


def is_incomplete(changes: pa.Table) -> pa.ChunkedArray:
    """Return for each change whether it leaves out values."""
    return pc.greater(pc.list_value_length(changes[UNCHANGED]), 0).fill_null(False)


def lacks(unchanged: pa.ListArray, column: str) -> np.ndarray[Any, Any]:
    """Return for each change whether it leaves out the value of a column."""
    missing = np.zeros(len(unchanged), np.bool_)
    of_column = pc.equal(pc.list_flatten(unchanged), column).fill_null(False)
    missing[pc.list_parent_indices(unchanged).filter(of_column).to_numpy()] = True
    return missing
