"""The messages of staged segments: what is kept of the binary log's events."""

from __future__ import annotations

import json
import struct

import numpy as np
import pyarrow as pa

from volley.capture.changes import Numbers
from volley.connectors.mariadb.tables import Table

__all__ = [
    "BEGIN",
    "TABLE",
    "TRUNCATE",
    "begin",
    "change",
    "described_table",
    "numbered",
    "table_message",
    "truncation",
]

BEGIN, TABLE, TRUNCATE = b"BVT"
_BEGIN = struct.Struct(">BQq")
_CHANGE = struct.Struct(">BI")
_NUMBER_BITS = 18
ROWS_A_NUMBER = 1 << _NUMBER_BITS
"""The most rows of each number: a message has one more for each 256 KB, and a row has at least a byte."""


def begin(position: int, seconds: int) -> bytes:
    """Return the message that begins a transaction, whose changes follow.

    Args:
        position: Where the transaction begins in the log.
        seconds: When it was committed, since 1970.
    """
    return _BEGIN.pack(BEGIN, position, seconds * 1_000_000)


def change(kind: int, table: int, rows: bytes) -> bytes:
    """Return the message of changes of a kind, as the log has their rows behind the event's head."""
    return _CHANGE.pack(kind, table) + rows


def truncation(table: int) -> bytes:
    """Return the message of a truncation."""
    return _CHANGE.pack(TRUNCATE, table)


def table_message(number: int, table: Table) -> bytes:
    """Return the message that describes a table as the messages after it have it."""
    return _CHANGE.pack(TABLE, number) + json.dumps(table.to_json()).encode()


def described_table(message: bytes) -> tuple[int, Table]:
    """Return the number of a table that a message describes, and the table."""
    _, number = _CHANGE.unpack_from(message)
    return number, Table.from_json(json.loads(message[_CHANGE.size :]))


def numbered(lengths: Numbers) -> Numbers:
    """Return how many numbers each of messages of some lengths takes."""
    return 1 + (lengths >> _NUMBER_BITS)


def count_numbers(lengths: Numbers) -> int:
    """Return how many numbers messages of some lengths take."""
    return int(np.sum(numbered(lengths)))


def lengths_of(messages: pa.BinaryArray) -> Numbers:
    """Return the lengths of messages."""
    offsets = np.frombuffer(messages.buffers()[1], np.int32)[messages.offset : messages.offset + len(messages) + 1]
    return np.diff(offsets).astype(np.int64)
