"""The settings of a MariaDB source that its parts share: the server and how to reach it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from volley.secrets import secrets_in

__all__ = ["ANEW", "ServerAddress"]

ANEW = 'load the tables anew: start with fresh=True, into="replace"'
"""The way out where changes are gone, or were never in the log."""


@dataclass(frozen=True)
class ServerAddress:
    """A server and how to reach it; picklable."""

    host: str
    port: int
    user: str
    password: str | None = field(repr=False)
    timeout: float  # how long to wait for a connection and for a sign of life, in seconds
    server_id: int  # the id of this job among the server's replicas
    # Further arguments of PyMySQL's `connect`, such as ssl_ca.
    options: Mapping[str, Any] = field(default_factory=dict, repr=False, hash=False)

    def __str__(self) -> str:
        return f"server {self.host}:{self.port}"

    @property
    def secrets(self) -> tuple[str, ...]:
        """What errors must not show."""
        return tuple(filter(None, [self.password, *secrets_in(dict(self.options))]))
