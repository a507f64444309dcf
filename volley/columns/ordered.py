"""Sorted rows, and the first of them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from volley.columns.keys.equality import row_hashes
from volley.columns.keys.normal import normal
from volley.columns.keys.order import sort_indices, sort_keys
from volley.plan.nodes import Ordered

__all__ = ["ordered_rows", "places_in_order"]

_PLACE = "_volley_place"


def ordered_rows(rows: pa.Table, step: Ordered) -> pa.Table:
    """Return rows in the order of a step, as many as it keeps; those that it does not tell apart, by their hashes.

    So the same rows are the first ones however they are stored.
    """
    return rows.take(places_in_order(rows, step)[: step.rows])


def places_in_order(rows: pa.Table, step: Ordered) -> pa.Array:
    """Return the places of all rows in the order of a step."""
    keys = sort_keys(step.order, rows.schema)
    # 0.0 and -0.0 are one value.
    columns = {name: normal(rows[name]) for name, _ in keys}
    columns[_PLACE] = pa.chunked_array([row_hashes(rows).view(np.int64)])
    return sort_indices(pa.table(columns), [*keys, (_PLACE, "ascending")])
