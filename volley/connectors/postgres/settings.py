"""The settings of a PostgreSQL source that its parts share: the server, the table's name."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from urllib.parse import quote, urlencode

from volley.errors import ConfigError
from volley.secrets import secrets_in

__all__ = ["ANEW", "Server", "TableName", "identifier", "table_name"]

ANEW = 'load the table anew: drop the slot, then start with fresh=True, into="replace"'
"""The way out where changes are gone, or were never in the stream."""

# A host that is gone is noticed within a minute.
_ALIVE = {"keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3, "tcp_user_timeout": 60_000}
_PART = r'(?:"((?:[^"]|"")+)"|([^".]+))'
_NAME = re.compile(rf"{_PART}\.{_PART}")
_IDENTIFIER = re.compile(r"[a-z0-9_]{1,63}")
# What no name in a lake may have, and what looks as if it were escaped.
_ESCAPED = re.compile(r"[./\\?#%\x00-\x1f]|^\s|\s$|_(?=x[0-9A-F]{4}_)")


@dataclass(frozen=True)
class TableName:
    """A table of the database.

    Example:
        >>> str(TableName("public", "orders"))
        'public.orders'
    """

    schema: str
    table: str

    def __str__(self) -> str:
        return f"{self.schema}.{self.table}"

    @property
    def quoted(self) -> str:
        """The name as SQL has it."""
        return ".".join('"' + part.replace('"', '""') + '"' for part in (self.schema, self.table))

    @property
    def setting(self) -> str:
        """The name as the settings of a source have it."""
        parts = (self.schema, self.table)
        return ".".join('"' + part.replace('"', '""') + '"' if {".", '"'} & {*part} else part for part in parts)

    @property
    def escaped(self) -> TableName:
        """The name as rows have it, by which a routed sink finds a table: as SQL/XML writes other characters.

        Example:
            >>> str(TableName("public", "a/b").escaped)
            'public.a_x002F_b'
        """
        return TableName(*(_ESCAPED.sub(_hexadecimal, part) for part in (self.schema, self.table)))


@dataclass(frozen=True)
class Server:
    """A database and how to reach it; picklable.

    Args:
        host: The server's host.
        port: Its port.
        database: The database.
        user: The role.
        password: Its password; None = libpq's own sources, such as ``~/.pgpass``.
        timeout: How long to wait for a connection, in seconds.
        options: Further parameters of libpq, such as ``sslmode``.
    """

    host: str
    port: int
    database: str
    user: str
    password: str | None = field(repr=False)
    timeout: float
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    def __str__(self) -> str:
        return f"database {self.database!r} on {self.host}:{self.port}"

    @property
    def uri(self) -> str:
        """The address with the password; never for a message."""
        secret = "" if self.password is None else ":" + quote(self.password, safe="")
        timeout = {"connect_timeout": max(1, round(self.timeout))}
        settings = urlencode({**timeout, **_ALIVE, **dict(self.options)}, quote_via=quote)
        host = f"[{self.host}]" if ":" in self.host else quote(self.host, safe="")
        user, database = quote(self.user, safe=""), quote(self.database, safe="")
        return f"postgresql://{user}{secret}@{host}:{self.port}/{database}?{settings}"

    @property
    def secrets(self) -> tuple[str, ...]:
        """What errors must not show."""
        return tuple(filter(None, [self.password, *secrets_in(dict(self.options))]))


def table_name(text: str, setting: str = "tables") -> TableName:
    """Return the table of a text such as ``public.orders`` or ``public."Order Items"``; case is kept as it is.

    Raises:
        ConfigError: If it does not name a schema and a table.
    """
    parts = _NAME.fullmatch(text)
    if parts is None:
        raise ConfigError(
            f"{setting} has {text!r}, which is not a schema and a table",
            hint='for example "public.orders"; names with a dot in double quotes: \'public."a.b"\'',
        )
    schema, table = (parts[1] or parts[2], parts[3] or parts[4])
    return TableName(schema.replace('""', '"'), table.replace('""', '"'))


def _hexadecimal(match: re.Match[str]) -> str:
    return f"_x{ord(match[0]):04X}_"


def identifier(name: str, value: object) -> str:
    """Return the name of a slot or publication, which needs no quotes."""
    if not isinstance(value, str) or not _IDENTIFIER.fullmatch(value):
        raise ConfigError(f"{name} {value!r} is not valid", hint="lower-case letters, digits and _, at most 63")
    return value
