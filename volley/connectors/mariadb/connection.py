"""Connections to servers, and what their errors mean."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pymysql

from volley.connectors.mariadb.settings import ServerAddress
from volley.errors import SourceError
from volley.secrets import redact, redacted

__all__ = ["Connection", "connect", "connected", "one", "query", "server_errors"]

Connection = Any
"""PyMySQL's connection; it has no types."""

_DENIED = (1044, 1045, 1142, 1143, 1227)
_LOST = (2003, 2006, 2013, 1053, 1927)


def connect(server: ServerAddress) -> Connection:
    """Connect to a server. Times are UTC, and nothing is changed by the session's mode."""
    return pymysql.connect(
        host=server.host,
        port=server.port,
        user=server.user,
        password=server.password or "",
        connect_timeout=max(1, round(server.timeout)),
        charset="utf8mb4",
        autocommit=True,
        init_command="set time_zone = '+00:00', sql_mode = '', net_write_timeout = 3600",
        **server.options,
    )


def is_lost(error: BaseException) -> bool:
    """Return True if a connection broke, and another one may do; also of the error that it became."""
    if isinstance(error, SourceError):
        # Another OSError may be of the disk that rows are staged on.
        return isinstance(error.__cause__, pymysql.Error | ConnectionError) and is_lost(error.__cause__)
    if isinstance(error, pymysql.err.OperationalError | pymysql.err.InterfaceError):
        return not error.args or error.args[0] in (*_LOST, 0)
    return isinstance(error, OSError)


@contextmanager
def server_errors(server: ServerAddress, doing: str) -> Iterator[None]:
    """Turn PyMySQL's errors into the source's."""
    try:
        yield
    except (pymysql.Error, OSError) as error:
        text = redact(str(error.args[-1] if error.args else error), server.secrets)
        raise SourceError(f"{server}: {doing} failed: {text}", hint=_hint(error, server)) from redacted(
            error, server.secrets
        )


def _hint(error: BaseException, server: ServerAddress) -> str:
    code = error.args[0] if error.args else None
    if code in _DENIED:
        return f"grant {server.dialect.grants} on *.* to the job's user, and check its password"
    return "check host, port, and that the server runs; then start the job again"


@contextmanager
def connected(server: ServerAddress, doing: str) -> Iterator[Connection]:
    """Connect, and translate the errors of what is done meanwhile."""
    with server_errors(server, doing), closing(connect(server)) as connection:
        yield connection


def query(connection: Connection, sql: str, *values: Any) -> list[tuple[Any, ...]]:
    """Return the rows of a query."""
    with closing(connection.cursor()) as cursor:
        cursor.execute(sql, values or None)
        return list(cursor.fetchall())


def one(connection: Connection, sql: str, *values: Any) -> tuple[Any, ...]:
    """Return the only row of a query."""
    (row,) = query(connection, sql, *values)
    return row
