"""The messages of pgoutput, protocol 1, that describe: transactions, relations. See PostgreSQL's manual, 55.9."""

from __future__ import annotations

import struct
from dataclasses import dataclass

__all__ = [
    *("BEGIN", "COMMIT", "RELATION", "TABLE", "TRUNCATE", "TYPE"),
    *("Relation", "RelationColumn", "begin_of", "commit_of", "relation_of", "truncated"),
]

BEGIN, COMMIT, RELATION, TYPE = b"BCRY"
TRUNCATE = ord("T")
TABLE = ord("V")
"""Not of the protocol: what the receiver adds to a relation's description, for those who decode it."""

EPOCH_MICROSECONDS = 946_684_800_000_000
"""PostgreSQL's times count from 2000-01-01."""


@dataclass(frozen=True)
class RelationColumn:
    """A column of a relation."""

    name: str
    is_identity: bool  # True if it is part of the replica identity
    type: int  # the oid of its type
    modifier: int  # the type's modifier; -1 = none


@dataclass(frozen=True)
class Relation:
    """A table as the messages after its description have it."""

    oid: int
    schema: str
    table: str
    columns: tuple[RelationColumn, ...]


def begin_of(message: bytes) -> tuple[int, int]:
    """Return where a transaction that begins is committed in the server's log, and the lower 32 bits of its id."""
    position, _, xid = struct.unpack_from(">QqI", message, 1)
    return position, xid


def commit_of(message: bytes) -> tuple[int, float]:
    """Return where a transaction ends in the server's log, and when it was committed, in seconds since 1970."""
    position, committed = struct.unpack_from(">Qq", message, 10)
    return position, (committed + EPOCH_MICROSECONDS) / 1e6


def relation_of(message: bytes) -> Relation:
    """Parse the description of a relation."""
    (oid,) = struct.unpack_from(">I", message, 1)
    schema, at = _text(message, 5)
    table, at = _text(message, at)
    (count,) = struct.unpack_from(">H", message, at + 1)
    at += 3
    columns = []
    for _ in range(count):
        is_identity = bool(message[at] & 1)
        name, at = _text(message, at + 1)
        columns.append(RelationColumn(name, is_identity, *struct.unpack_from(">Ii", message, at)))
        at += 8
    return Relation(oid, schema or "pg_catalog", table, tuple(columns))


def truncated(message: bytes) -> tuple[int, ...]:
    """Return the oids of the relations that were truncated."""
    (count,) = struct.unpack_from(">I", message, 1)
    return struct.unpack_from(f">{count}I", message, 6)


def _text(message: bytes, at: int) -> tuple[str, int]:
    end = message.index(0, at)
    return message[at:end].decode(), end + 1
