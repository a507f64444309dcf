"""Connects to PostgreSQL and translates its errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import psycopg2
from psycopg2.extensions import connection as Connection
from psycopg2.extras import LogicalReplicationConnection

from volley.connectors.postgres.settings import Server
from volley.errors import SourceError
from volley.secrets import redact, redacted

__all__ = ["LOST", "OPTIONS", "connect", "connected", "lsn_number", "lsn_text", "query", "replication", "server_errors"]

LOST = (psycopg2.OperationalError, psycopg2.InterfaceError)
"""What psycopg2 raises if a connection breaks, or none can be made."""

_SESSION = {
    **{"datestyle": "ISO", "intervalstyle": "iso_8601", "timezone": "UTC", "extra_float_digits": "3"},
    **{"bytea_output": "hex", "client_encoding": "UTF8", "search_path": "pg_catalog", "statement_timeout": "0"},
    # A load keeps a transaction open that only holds its snapshot.
    **{"idle_in_transaction_session_timeout": "0"},
    # A policy for rows that the role may not see is an error then, and no table with fewer rows.
    **{"row_security": "off"},
}
OPTIONS = " ".join(f"-c {name}={value}" for name, value in _SESSION.items())
"""Settings of every session, for libpq: the load and the stream then write a value as the same text."""


@contextmanager
def server_errors(server: Server, doing: str) -> Iterator[None]:
    """Translate PostgreSQL's errors into SourceErrors.

    Args:
        server: The server.
        doing: What failed, for the message, such as ``"creating slot x"``.
    """
    try:
        yield
    except psycopg2.Error as error:
        text = redact(str(error).strip().splitlines()[0] if str(error).strip() else repr(error), server.secrets)
        raise SourceError(f"{server}: {doing} failed: {text}", hint=_hint(error)) from redacted(error, server.secrets)


def _hint(error: psycopg2.Error) -> str:
    text = str(error)
    if "authentication" in text or "password" in text:
        return "check user and password, and the server's pg_hba.conf (a replication connection has a line of its own)"
    if isinstance(error, psycopg2.errors.InsufficientPrivilege):
        return "grant the role what the message names"
    return "check that the server runs, and can be reached from here" if error.pgcode is None else "see the cause"


@contextmanager
def connected(server: Server, doing: str) -> Iterator[Connection]:
    """Yield an ordinary connection that commits each statement by itself, with errors translated."""
    with server_errors(server, doing), closing(connect(server)) as connection:
        yield connection


def connect(server: Server) -> Connection:
    """Return an ordinary connection that commits each statement by itself."""
    connection = psycopg2.connect(server.uri, options=OPTIONS)
    connection.autocommit = True
    return connection


def replication(server: Server) -> Any:
    """Return a replication connection to the server's database."""
    return psycopg2.connect(server.uri, connection_factory=LogicalReplicationConnection, options=OPTIONS)


def query(connection: Connection, sql: str, *values: Any, **named: Any) -> list[tuple[Any, ...]]:
    """Return the rows of a query."""
    with connection.cursor() as cursor:
        cursor.execute(sql, named or values or None)
        return cursor.fetchall() if cursor.description else []


def lsn_number(text: str) -> int:
    """Return a log position as a number.

    Example:
        >>> lsn_number("1/A0")
        4294967456
    """
    high, low = text.split("/")
    return (int(high, 16) << 32) | int(low, 16)


def lsn_text(number: int) -> str:
    """Return a log position as PostgreSQL writes it."""
    return f"{number >> 32:X}/{number & 0xFFFFFFFF:X}"
