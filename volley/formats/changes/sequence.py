"""The place of a change in its database's log, as bytes of a fixed width that compare right as they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["PLACES", "SOURCE", "is_snapshot", "number", "of_numbers", "sequence_of"]

SOURCE = pa.schema(
    [
        *((name, pa.string()) for name in ("connector", "name", "db", "schema", "table", "collection", "snapshot")),
        *((name, pa.int64()) for name in ("ts_ms", "lsn", "pos", "row", "ssn", "event_serial_no", "ord")),
        *((name, pa.string()) for name in ("sequence", "file", "scn", "commit_scn", "commit_lsn", "change_lsn")),
    ]
)
"""What is read of the block ``source`` of Debezium's envelope."""

PLACES = (
    *({"sequence", "snapshot"}, {"file", "pos", "row", "snapshot"}, {"commit_scn", "scn", "ssn", "snapshot"}),
    *({"commit_lsn", "change_lsn", "event_serial_no"}, {"connector", "ts_ms", "ord"}),
)
"""The fields of the source block that a place is made of: of each connector."""

_PAIR = r'^\[(?:null|"(?P<first>[0-9]+)"),\s*"(?P<second>[0-9]+)"\]$'
_FILE = r"\.(?P<number>[0-9]+)$"
_LSN = r"^(?P<a>[0-9a-fA-F]{8}):(?P<b>[0-9a-fA-F]{8}):(?P<c>[0-9a-fA-F]{4})$"

Columns = Callable[[str], pa.Array]
"""Returns a column of the source block."""


def of_numbers(parts: Sequence[pa.Array], known: pa.Array) -> pa.Array:
    """Return numbers, compared one after the other, as bytes of a fixed width.

    Args:
        parts: Whole numbers that are not negative; null counts as 0.
        known: For each row, whether its place is known; it is null where not.

    Example:
        >>> places = of_numbers([pa.array([1, 1]), pa.array([9, 10])], pa.array([True, True]))
        >>> places[0].as_py() < places[1].as_py(), len(places[0].as_py())
        (True, 16)
    """
    columns = [pc.coalesce(part.cast(pa.uint64()), pa.scalar(0, pa.uint64())).to_numpy() for part in parts]
    words = np.stack(columns, axis=1).astype(">u8")
    width = 8 * len(parts)
    fixed = pa.FixedSizeBinaryArray.from_buffers(pa.binary(width), len(words), [None, pa.py_buffer(words.tobytes())])
    return pc.if_else(known, fixed.cast(pa.binary()), pa.scalar(None, pa.binary()))


def is_snapshot(snapshot: pa.Array) -> pa.Array:
    """Return for each row whether the initial snapshot read it; those of an incremental one come with the stream.

    Null, as without defaults, and "false" are alike.
    """
    streamed = pc.is_in(snapshot, pa.array(["false", "incremental"]))
    return pc.and_(snapshot.is_valid(), pc.invert(streamed))


def sequence_of(source: Columns, total_order: pa.Array) -> pa.Array:
    """Return the place of each change; null where the connector tells none.

    Args:
        source: Returns a column of the block ``source``.
        total_order: The place of the change within its transaction, if that is told.
    """
    connectors = source("connector")
    places = pa.nulls(len(connectors), pa.binary())
    for name in pc.unique(connectors).to_pylist():
        if of_connector := _SEQUENCES.get(name):
            of_name = pc.equal(connectors, name).fill_null(False)
            places = pc.if_else(of_name, of_connector(source, total_order), places)
    return places


def _postgres(source: Columns, total_order: pa.Array) -> pa.Array:
    """The end of the last transaction, the position in the log, the place in the transaction.

    Rows of a snapshot have the position 0, as changes that were in flight have smaller positions than it.
    """
    pairs = pc.extract_regex(source("sequence"), pattern=_PAIR)
    first, second = (number(pc.struct_field(pairs, name)) for name in ("first", "second"))
    snapshot = is_snapshot(source("snapshot"))
    second = pc.if_else(snapshot, pa.scalar(0, pa.uint64()), second)
    return of_numbers([first, second, total_order], pc.or_(pairs.is_valid(), snapshot))


def _binary_log(source: Columns, total_order: pa.Array) -> pa.Array:
    """The number of the binary log's file, the position in it, and the row of the event."""
    file = number(pc.struct_field(pc.extract_regex(source("file"), pattern=_FILE), "number"))
    snapshot = is_snapshot(source("snapshot"))
    row = source("row").cast(pa.uint64())
    # A snapshot reads the rows as they are at a position: changes from there on come later.
    order = [file, source("pos"), pc.if_else(snapshot, pa.scalar(0, pa.uint64()), pc.add(row.fill_null(0), 1))]
    return of_numbers(order, file.is_valid())


def _oracle(source: Columns, total_order: pa.Array) -> pa.Array:
    """The SCN of the commit, that of the change, and the number of the row within a statement."""
    commit, change = number(source("commit_scn")), number(source("scn"))
    snapshot = is_snapshot(source("snapshot"))
    # A snapshot is read as of an SCN: what is committed later has a greater one.
    commit = pc.if_else(snapshot, change, commit)
    change = pc.if_else(snapshot, pa.scalar(0, pa.uint64()), change)
    return of_numbers([commit, change, source("ssn")], commit.is_valid())


def _sql_server(source: Columns, total_order: pa.Array) -> pa.Array:
    """The LSN of the commit, that of the change, each of three numbers, and the number of the event."""
    commit, change = _lsn(source("commit_lsn")), _lsn(source("change_lsn"))
    return of_numbers([*commit, *change, source("event_serial_no")], commit[0].is_valid())


def _mongodb(source: Columns, total_order: pa.Array) -> pa.Array:
    """The time of the oplog in milliseconds, and the place of the event within its second.

    Rows of a snapshot have no place: -1 or null.
    """
    order = pc.max_element_wise(source("ord"), pa.scalar(0, pa.int64()))
    return of_numbers([source("ts_ms"), order], source("ts_ms").is_valid())


_SEQUENCES = {
    "postgresql": _postgres,
    "mysql": _binary_log,
    "mariadb": _binary_log,
    "oracle": _oracle,
    "sqlserver": _sql_server,
    "mongodb": _mongodb,
}


def number(texts: pa.Array) -> pa.Array:
    """Return texts of up to 19 digits as numbers; null for others."""
    digits = pc.match_substring_regex(texts, r"^[0-9]{1,19}$").fill_null(False)
    return pc.if_else(digits, texts, pa.scalar(None, pa.string())).cast(pa.uint64())


def _lsn(texts: pa.Array) -> list[pa.Array]:
    """Return the two numbers of an LSN as SQL Server prints it: its first word, and the other two."""
    parts = pc.extract_regex(texts, pattern=_LSN)
    words: list[Any] = [pc.struct_field(parts, name).to_pylist() for name in ("a", "b", "c")]
    first = [None if text is None else int(text, 16) for text in words[0]]
    rest = [None if b is None else int(b + c, 16) for b, c in zip(words[1], words[2], strict=True)]
    return [pa.array(first, pa.uint64()), pa.array(rest, pa.uint64())]
