"""Floating-point numbers as integers of the same order: IEEE 754's total order, with NaN as the largest number."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from volley.arrow.ordering import normal

__all__ = ["from_ordered", "integer", "ordered"]


def integer(data_type: pa.DataType) -> pa.DataType:
    """Return the integers for floating-point numbers of a type."""
    return pa.int64() if data_type == pa.float64() else pa.int32()


def ordered(values: pa.Array) -> pa.Array:
    """Return the integers for floating-point numbers; -0.0 is the same as 0.0."""
    return pc.if_else(values.is_valid(), _flipped(normal(values).view(integer(values.type))), None)


def from_ordered(values: pa.Array, data_type: pa.DataType) -> pa.Array:
    """Return the floating-point numbers for integers."""
    return _flipped(values).view(data_type)


def _flipped(bits: pa.Array) -> pa.Array:
    """Reverse the order of the bits below the sign of negative numbers."""
    largest = pa.scalar(np.iinfo(bits.type.to_pandas_dtype()).max, bits.type)
    return pc.if_else(pc.less(bits, pa.scalar(0, bits.type)), pc.bit_wise_xor(bits, largest), bits)
