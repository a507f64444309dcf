"""Connects to PostgreSQL and translates its errors."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing, contextmanager
from typing import Any, TypeVar

import psycopg2
from psycopg2.extensions import connection as Connection
from psycopg2.extras import LogicalReplicationConnection

from volley.connectors.postgres.settings import ANEW, ServerAddress
from volley.errors import SourceError
from volley.secrets import redact, redacted

__all__ = [
    *("KeptConnection", "LOST", "OPTIONS", "check_session", "connect", "connected", "encoding_hint", "identify"),
    *("interruptible", "lsn_number", "lsn_text", "query", "replication", "server_errors"),
]

T = TypeVar("T")

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

_SIGNAL_SECONDS = 0.2
# Older servers don't know the setting, and refuse it among the options.
_TRANSACTIONS_END_SINCE = 170_000
_POOLER = (
    "connect to the server itself: a pooler such as PgBouncer is before it, which passes on neither the settings of a "
    "session nor replication"
)
# What the text of a refused connection has, which comes without a code, and what to do.
_REFUSALS = (
    (
        "authentication|password|pg_hba.conf",
        "check user and password, and the server's pg_hba.conf (a replication connection has a line of its own)",
    ),
    ('database ".*" does not exist', "check database=; case counts"),
    (
        "max_wal_senders",
        "end another reader of the log, or raise the server's max_wal_senders: the job needs one such connection",
    ),
    (
        "too many connections|too many clients|remaining connection slots",
        "end connections that are not needed, or raise the server's max_connections, or the limit of the role or the "
        "database: the job needs two, and while it loads one more a task",
    ),
    ("not permitted to log in|permission denied for database", "grant the role what the message names"),
    ("could not translate host name", "check host=, and this machine's DNS"),
    ("SSL|certificate", 'check options={"sslmode": …, "sslrootcert": …}, and whether the server has TLS on'),
)
# Of texts that their encoding, or UTF-8, does not have: the codes, which a load does not show, and what it shows.
_NO_TEXT = ("22021", "22P05")
_NO_TEXT_MESSAGES = ("byte sequence for encoding", "has no equivalent in encoding")


@contextmanager
def server_errors(server: ServerAddress, doing: str) -> Iterator[None]:
    """Translate PostgreSQL's errors into SourceErrors.

    Args:
        doing: What failed, for the message, such as ``"creating slot x"``.
    """
    try:
        yield
    except psycopg2.Error as error:
        text = redact(str(error).strip().splitlines()[0] if str(error).strip() else repr(error), server.secrets)
        raise SourceError(f"{server}: {doing} failed: {text}", hint=_hint(error)) from redacted(error, server.secrets)


def _hint(error: psycopg2.Error) -> str:
    text = str(error)
    if "startup parameter" in text or "IDENTIFY_SYSTEM" in text:
        return _POOLER
    if (hint := encoding_hint(error)) is not None:
        return hint
    if (hint := next((hint for pattern, hint in _REFUSALS if re.search(pattern, text)), None)) is not None:
        return hint
    if isinstance(error, psycopg2.errors.InsufficientPrivilege):
        return "grant the role what the message names"
    return "check that the server runs, and can be reached from here" if error.pgcode is None else "see the cause"


@contextmanager
def connected(server: ServerAddress, doing: str) -> Iterator[Connection]:
    """Yield an ordinary connection that commits each statement by itself, with errors translated."""
    with server_errors(server, doing), closing(connect(server)) as connection:
        yield connection


class KeptConnection:
    """An ordinary connection that is made when it is needed, kept, and made anew if it broke meanwhile."""

    def __init__(self, server: ServerAddress) -> None:
        self._server = server
        self._connection: Connection | None = None

    @contextmanager
    def opened(self) -> Iterator[Connection]:
        """Yield it; after an error it is not used again."""
        connection, self._connection = self._connection, None
        if connection is None or not _is_alive(connection):
            connection = connect(self._server)
        try:
            yield connection
        except BaseException:
            connection.close()
            raise
        self._connection = connection

    def close(self) -> None:
        """End it, if it is there; it may be opened again."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def _is_alive(connection: Connection) -> bool:
    try:
        query(connection, "select")
    except LOST:
        connection.close()
        return False
    return True


def connect(server: ServerAddress) -> Connection:
    """Return an ordinary connection that commits each statement by itself."""
    connection = psycopg2.connect(server.uri, options=OPTIONS)
    connection.autocommit = True
    return _lasting(connection)


def replication(server: ServerAddress) -> Any:
    """Return a replication connection to the server's database."""
    return _lasting(psycopg2.connect(server.uri, connection_factory=LogicalReplicationConnection, options=OPTIONS))


def _lasting(connection: Connection) -> Connection:
    """Return a connection whose transactions may last: snapshots, the wait for a slot, large ones that are decoded."""
    if connection.server_version >= _TRANSACTIONS_END_SINCE:
        query(connection, "set transaction_timeout = 0")
    return connection


def check_session(connection: Connection) -> None:
    """Check that a session has the settings that it was asked for, by which values print and rows are seen.

    Raises:
        SourceError: If something between here and the server has left them out.
    """
    sql = "select name, current_setting(name) from unnest(%s::text[]) name"
    for name, value in query(connection, sql, [*_SESSION]):
        if value.partition(",")[0] != _SESSION[name]:
            raise SourceError(
                f"the session has {name} = {value!r}, where the job asks for {_SESSION[name]!r}", hint=_POOLER
            )


def identify(server: ServerAddress) -> tuple[int, int]:
    """Return the identifier of the server's cluster, and the timeline of its log, by a replication connection."""
    with closing(replication(server)) as connection:
        ((system, timeline, *_),) = query(connection, "IDENTIFY_SYSTEM")
    return int(system), timeline


def encoding_hint(error: BaseException) -> str | None:
    """Return what to do if an error says that a text is not valid; None for any other."""
    message = str(error)
    if getattr(error, "pgcode", None) not in _NO_TEXT and not any(part in message for part in _NO_TEXT_MESSAGES):
        return None
    return (
        "a text in a row is not valid in the database's encoding (SQL_ASCII checks none), or UTF-8 does not have it: "
        f"update those rows; if the stream has one, {ANEW}"
    )


def query(connection: Connection, sql: str, *values: Any, **named: Any) -> list[tuple[Any, ...]]:
    """Return the rows of a query."""
    with connection.cursor() as cursor:
        cursor.execute(sql, named or values or None)
        return cursor.fetchall() if cursor.description else []


def interruptible(connection: Connection, call: Callable[[Connection], T]) -> T:
    """Call a function that may wait for the server; a signal that ends the job cancels its query.

    psycopg2 waits in C, where Python handles no signal. Another thread may get the signal: this one looks now and then.
    """
    with ThreadPoolExecutor(1, "volley-postgres") as pool:
        answer = pool.submit(call, connection)
        try:
            while not wait([answer], _SIGNAL_SECONDS).done:
                pass
        except BaseException:
            connection.cancel()
            raise
        return answer.result()


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
