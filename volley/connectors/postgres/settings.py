"""The settings of a PostgreSQL source that its parts share: the database, names of slots."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from urllib.parse import quote, urlencode

from volley.errors import ConfigError
from volley.secrets import secrets_in

__all__ = ["ANEW", "ServerAddress", "identifier"]

ANEW = 'load the table anew: drop the slot, then start with fresh=True, into="replace"'
"""The way out where changes are gone, or were never in the stream."""

# A host that is gone is noticed within a minute.
_ALIVE = {"keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3, "tcp_user_timeout": 60_000}
_IDENTIFIER = re.compile(r"[a-z0-9_]{1,63}")


@dataclass(frozen=True)
class ServerAddress:
    """A database and how to reach it; picklable."""

    host: str
    port: int
    database: str
    user: str  # the role
    password: str | None = field(repr=False)  # its password; None = libpq's own sources, such as ~/.pgpass
    timeout: float  # how long to wait for a connection, in seconds
    # Further parameters of libpq, such as sslmode.
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


def identifier(name: str, value: object) -> str:
    """Return the name of a slot or publication, which needs no quotes."""
    if not isinstance(value, str) or not _IDENTIFIER.fullmatch(value):
        raise ConfigError(f"{name} {value!r} is not valid", hint="lower-case letters, digits and _, at most 63")
    return value
