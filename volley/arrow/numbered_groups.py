"""Merges states whose keys are all dictionaries: a group's number follows from its keys' places in these.

Arrow's own grouping hashes the keys of each row, which takes more than twice the CPU: 20 against 9 ms for 625,000 rows
with four states.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from volley.arrow.compiled import whole

__all__ = ["combine_numbered"]

_TYPES = (pa.int64(), pa.float64(), pa.bool_())
_MERGES = {"sum": np.add, "min": np.minimum, "max": np.maximum}

_Groups = npt.NDArray[np.int64]


def combine_numbered(table: pa.Table, keys: Sequence[str], functions: Sequence[tuple[str, str]]) -> pa.Table | None:
    """Return one row for each group, in the order of the groups' numbers.

    Args:
        table: The keys and states; each dictionary is the same in all chunks.
        keys: The names of the keys' columns.
        functions: The other columns, each with ``"sum"``, ``"min"`` or ``"max"``. Those with extremes have no NaN.

    Returns:
        A table with the columns in the same order; None if a key is no dictionary, a state is neither a 64-bit number
        nor a boolean, or the keys' dictionaries allow more groups than there are rows.
    """
    encoded = {key: whole(table.column(key)) for key in keys}
    if not all(pa.types.is_dictionary(column.type) for column in encoded.values()):
        return None
    if any(table.schema.field(name).type not in _TYPES for name, _ in functions):
        return None
    # One more for nulls.
    sizes = [len(column.dictionary) + 1 for column in encoded.values()]
    if (possible := math.prod(sizes)) > table.num_rows:
        return None
    groups = np.zeros(table.num_rows, np.int64)
    for column, size in zip(encoded.values(), sizes, strict=True):
        groups *= size
        groups += column.indices.fill_null(size - 1).to_numpy()
    present = np.flatnonzero(np.bincount(groups, minlength=possible))
    merged = {
        name: _merged(whole(table.column(name)), function, groups, possible, present) for name, function in functions
    }
    rest = present
    for (key, column), size in reversed([*zip(encoded.items(), sizes, strict=True)]):
        rest, places = np.divmod(rest, size)
        merged[key] = column.dictionary.take(pa.array(places, mask=places == size - 1))
    return pa.table({name: merged[name] for name in table.column_names})


def _merged(column: pa.Array, function: str, groups: _Groups, possible: int, present: _Groups) -> pa.Array:
    """Return the merged states of the groups that are present; null, if all of a group's are null."""
    is_null = None
    if column.null_count:
        groups = groups[column.is_valid().to_numpy(zero_copy_only=False)]
        column = column.drop_null()
        is_null = np.bincount(groups, minlength=possible)[present] == 0
    # NumPy finds the extremes of bytes seven times faster than those of booleans.
    values = (column.cast(pa.uint8()) if pa.types.is_boolean(column.type) else column).to_numpy()
    merged = np.full(possible, _neutral(function, values.dtype))
    # As in Arrow, infinity - infinity is NaN, and what is beyond the largest number is infinity.
    with np.errstate(invalid="ignore", over="ignore"):
        _MERGES[function].at(merged, groups, values)
    return pa.array(merged[present], mask=is_null).cast(column.type)


def _neutral(function: str, data_type: np.dtype[Any]) -> Any:
    """Return the neutral element of a merge: the value that leaves each other one as it is."""
    if function == "sum":
        return data_type.type(0)
    if data_type.kind == "f":
        return data_type.type("inf" if function == "min" else "-inf")
    bounds = np.iinfo(data_type)
    return data_type.type(bounds.max if function == "min" else bounds.min)
