"""The bytes of Arrow values, as Iceberg serializes single values (specification, appendix D)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = ["Places", "value_bytes"]

Places = npt.NDArray[np.int64]
"""The starts or the lengths of slices."""


def value_bytes(values: pa.Array) -> tuple[npt.NDArray[np.uint8], Places, Places]:
    """Return bytes, and where each value starts in them and how many bytes it has; nulls have any.

    Args:
        values: Values of a primitive Iceberg type.
    """
    data_type = values.type
    if isinstance(values, pa.ExtensionArray):
        return value_bytes(values.storage)
    if pa.types.is_string(data_type) or pa.types.is_binary(data_type):
        offsets = np.frombuffer(values.buffers()[1], np.int32)[values.offset :][: len(values) + 1].astype(np.int64)
        return _buffer(values.buffers()[2]), offsets[:-1], np.diff(offsets)
    if pa.types.is_decimal(data_type):
        return _shortest(values)
    if pa.types.is_boolean(data_type):
        return value_bytes(values.cast(pa.uint8()))
    width = data_type.byte_width
    starts = np.arange(values.offset, values.offset + len(values)) * width
    return _buffer(values.buffers()[1]), starts, np.full(len(values), width)


def _buffer(buffer: pa.Buffer | None) -> npt.NDArray[np.uint8]:
    return np.frombuffer(buffer or b"", np.uint8)


def _shortest(values: pa.Array) -> tuple[npt.NDArray[Any], Places, Places]:
    """Return unscaled values in the fewest big-endian bytes with a sign bit."""
    little = _buffer(values.buffers()[1])[values.offset * 16 :][: len(values) * 16].reshape(-1, 16)
    big = np.ascontiguousarray(little[:, ::-1])
    sign = big[:, 0] >> 7
    filler = big == (sign * np.uint8(255))[:, None]
    filler[:, 15] = False
    first = filler.argmin(axis=1)
    rows = np.arange(len(values))
    # The first significant byte must have the sign bit too.
    first -= (big[rows, first] >> 7) != sign
    return big.reshape(-1), rows * 16 + first, 16 - first
