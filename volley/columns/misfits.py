"""Finds the values of a batch that don't fit a schema: one cast for each, however deep they are nested."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from volley.columns.batches import misfit
from volley.columns.dictionaries import decode
from volley.columns.uuids import recast

__all__ = ["misfits"]

_ERRORS = (pa.ArrowInvalid, pa.ArrowNotImplementedError)


def misfits(batch: pa.RecordBatch, schema: pa.Schema) -> dict[int, str]:
    """Return why rows don't fit a schema, by their numbers: each by its first column that doesn't.

    Args:
        batch: The rows.
        schema: The columns that they are to have.

    Example:
        >>> misfits(pa.record_batch({"id": [1, 300]}), pa.schema({"id": pa.int8()}))
        {1: "column 'id' of type int64 does not fit int8: Integer value 300 not in range: -128 to 127"}
    """
    faults: dict[int, str] = {}
    for field in schema:
        column = batch.column(field.name) if field.name in batch.schema.names else None
        if column is None or column.type == field.type:
            continue
        rows = np.setdiff1d(np.arange(batch.num_rows), list(faults), assume_unique=True)
        start = misfit(column.type, field)
        faults |= {int(rows[at]): start + fault for at, fault in _misfits(decode(column.take(rows)), field.type)}
    return faults


def _misfits(values: pa.Array, data_type: pa.DataType) -> Iterator[tuple[int, str]]:
    """Yield where values don't fit a type, and why; of those within a value that don't, the first."""
    if pa.types.is_struct(values.type) and pa.types.is_struct(data_type):
        yield from _within_structs(values, data_type)
    elif pa.types.is_list(values.type) and pa.types.is_list(data_type):
        parents, faults = pc.list_parent_indices(values).to_numpy(), dict[int, str]()
        for at, fault in sorted(_misfits(values.flatten(), data_type.value_type)):
            faults.setdefault(int(parents[at]), fault)
        yield from faults.items()
    else:
        suspects = _suspects(values, data_type)
        yield from _one_by_one(values, suspects, data_type)
        yield from _one_by_one(values, np.setdiff1d(np.arange(len(values)), suspects, assume_unique=True), data_type)


def _suspects(values: pa.Array, data_type: pa.DataType) -> np.ndarray[Any, Any]:
    """Return where numbers don't survive a cast to whole numbers and back: few others don't fit."""
    source = values.type
    if not (pa.types.is_integer(data_type) and (pa.types.is_integer(source) or pa.types.is_floating(source))):
        return np.array([], np.int64)
    changed = pc.not_equal(values.cast(data_type, safe=False).cast(source, safe=False), values)
    return np.flatnonzero(changed.fill_null(False).to_numpy(zero_copy_only=False))


def _within_structs(values: pa.StructArray, data_type: pa.StructType) -> Iterator[tuple[int, str]]:
    children = dict(zip((field.name for field in values.type), values.flatten(), strict=True))
    faults: dict[int, str] = {}
    for field in data_type:
        if field.name in children:
            for at, fault in _misfits(children[field.name], field.type):
                faults.setdefault(at, fault)
    yield from faults.items()


def _one_by_one(values: pa.Array, places: np.ndarray[Any, Any], data_type: pa.DataType) -> Iterator[tuple[int, str]]:
    """Try the values at some places: more at once the longer all fit, and one behind each that does not."""
    if not len(places) or _fault(tried := values.take(pa.array(places)), data_type) is None:
        return
    at, count = 0, 1
    while at < len(tried):
        fault = _fault(tried.slice(at, count), data_type)
        if fault is None:
            at, count = at + count, count * 2
        elif count > 1:
            count = max(1, count // 4)
        else:
            yield int(places[at]), fault
            at += 1


def _fault(values: pa.Array, data_type: pa.DataType) -> str | None:
    try:
        recast(values, data_type)
    except _ERRORS as error:
        return str(error)
    return None
