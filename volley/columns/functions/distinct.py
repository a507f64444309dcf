"""Functions that Arrow does not have: computed in Python, once for each distinct value of a batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from volley.columns.compiled import Datum

__all__ = ["of_distinct"]


def of_distinct(values: Datum, function: Callable[[Any], Any], out: pa.DataType) -> Datum:
    """Return what a function returns for each value, null for null.

    Args:
        values: An array or a scalar.
        function: Takes a value that is not null.
        out: The type of its results; a storage type.
    """
    if isinstance(values, pa.Scalar):
        value = values.as_py()
        return pa.scalar(None if value is None else function(value), out)
    encoded = values.dictionary_encode()
    results = [None if value is None else function(value) for value in encoded.dictionary.to_pylist()]
    return pa.array(results, out).take(encoded.indices)
