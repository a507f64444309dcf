"""Rows with weights: how many copies of a row were added (above 0) or removed (below 0).

The algebra of changes of DBSP, which Feldera runs: https://arxiv.org/abs/2203.16684.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from volley.columns.keys.equality import differing, row_hashes

__all__ = ["WEIGHT", "consolidated", "copies", "united", "weighted"]

WEIGHT = "_volley_weight"
"""The column of weights, the last one."""


def weighted(rows: pa.Table, weight: int) -> pa.Table:
    """Return rows with one weight for all."""
    return rows.append_column(WEIGHT, pa.repeat(pa.scalar(weight, pa.int64()), rows.num_rows))


def united(parts: list[pa.Table], schema: pa.Schema) -> pa.Table:
    """Return the changes of several parts together, consolidated."""
    return consolidated(pa.concat_tables([schema.append(pa.field(WEIGHT, pa.int64())).empty_table(), *parts]))


def consolidated(rows: pa.Table) -> pa.Table:
    """Return weighted rows with equal ones as one, and without those whose weights add up to 0.

    Values are equal bitwise: null equals null, NaN equals NaN.

    Example:
        >>> rows = pa.table({"id": [1, 2, 1], WEIGHT: [1, 1, -1]})
        >>> consolidated(rows).to_pylist()
        [{'id': 2, '_volley_weight': 1}]
    """
    values = rows.drop_columns([WEIGHT])
    _, first, group = np.unique(row_hashes(values), return_index=True, return_inverse=True)
    # Different rows with one hash, which hardly ever happens, stay as they are: the sum of all is the same.
    other = np.flatnonzero(differing(values, values.take(pa.array(first[group]))))
    group[other] = len(first) + np.arange(len(other))
    first = np.concatenate([first, other])
    weights = np.zeros(len(first), np.int64)
    np.add.at(weights, group, rows[WEIGHT].to_numpy())
    kept = np.flatnonzero(weights)
    return values.take(pa.array(first[kept])).append_column(WEIGHT, pa.array(weights[kept]))


def copies(rows: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Return the added rows and the removed rows, each as often as its weight says, without the weights."""
    weights, values = rows[WEIGHT].to_numpy(), rows.drop_columns([WEIGHT])
    numbers = np.arange(len(weights))
    added, removed = np.repeat(numbers, np.maximum(weights, 0)), np.repeat(numbers, np.maximum(-weights, 0))
    return values.take(pa.array(added)), values.take(pa.array(removed))
