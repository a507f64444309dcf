"""Reads schemas in Arrow's IPC format, as the state of jobs has them."""

from __future__ import annotations

import pyarrow as pa

__all__ = ["read_schema"]

# What each message of Arrow begins with.
_MARK = b"\xff\xff\xff\xff"


def read_schema(data: bytes) -> pa.Schema:
    """Return the schema that `pyarrow.Schema.serialize` wrote.

    Args:
        data: The bytes.

    Raises:
        ValueError: If they are damaged.
    """
    if not data.startswith(_MARK):
        raise ValueError("it is not a schema of Arrow")
    try:
        return pa.ipc.read_schema(pa.py_buffer(data))
    except (pa.ArrowException, OSError, OverflowError) as error:
        raise ValueError(f"it is not a schema of Arrow: {error}") from error
