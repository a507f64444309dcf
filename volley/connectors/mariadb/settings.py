"""The settings of a source that its parts share: the server, how to reach it, and what its product does its own way."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from volley.capture.selection import TableName
from volley.secrets import secrets_in

__all__ = ["ANEW", "Dialect", "GtidEvent", "Gtids", "LogEnd", "ServerAddress"]

ANEW = 'load the tables anew: start with fresh=True, into="replace"'
"""The way out where changes are gone, or were never in the log."""


class GtidEvent(Protocol):
    """The event that begins a transaction."""

    @property
    def type(self) -> int:
        """The number of its type."""

    @property
    def server(self) -> int:
        """The id of the server that wrote it."""

    @property
    def body(self) -> bytes:
        """What it says."""


class Gtids(ABC):
    """The global ids of the transactions that were read."""

    @abstractmethod
    def begin(self, event: GtidEvent) -> bool:
        """Add the id of a transaction; return whether its first statement is all of it, as far as the event tells.

        Raises:
            SourceError: If the transaction has no id, or was read before.
        """

    @property
    @abstractmethod
    def text(self) -> str:
        """The ids as the server writes them."""


@dataclass(frozen=True)
class LogEnd:
    """Where a server's log ends."""

    file: str
    offset: int
    only: str  # the names of the databases that the log has, with commas between; "" = all
    ignored: str  # of those that it has not
    gtids: str  # the global ids of all transactions before, if the server tells them here


class Dialect(ABC):
    """What MariaDB and MySQL do each in its own way; picklable. Connections are PyMySQL's, which has no types."""

    product: ClassVar[str]
    grants: ClassVar[str]
    """The privileges that a job's user needs."""
    status: ClassVar[str]
    """The statement that tells where the log ends."""

    @abstractmethod
    def check(self, connection: Any) -> None:
        """Check the server's version, and the settings that only this product has.

        Raises:
            SourceError: If the source can't read its log.
        """

    @abstractmethod
    def begin_snapshot(self, connection: Any, server: ServerAddress, tables: Sequence[TableName]) -> int:
        """Begin a transaction that sees the tables as they are now; return the position in the log that fits."""

    @abstractmethod
    def register(self, connection: Any) -> None:
        """Tell the server what a replica by this connection understands."""

    @abstractmethod
    def server_of(self, connection: Any) -> str:
        """Return the server's own id, if a log's places hold only on it; "" otherwise."""

    @abstractmethod
    def gtids_before(self, connection: Any, end: LogEnd) -> str:
        """Return the global ids of the transactions before what was the end of the log."""

    @abstractmethod
    def has_gtids(self, connection: Any, file: str, offset: int, gtids: str) -> bool:
        """Return whether the server has these global ids before a place in its log."""

    @abstractmethod
    def gtids_of(self, text: str) -> Gtids:
        """Return the global ids of a text."""

    @abstractmethod
    def logs_cascades(self, connection: Any) -> bool:
        """Return whether the log has the changes that foreign keys make."""


@dataclass(frozen=True)
class ServerAddress:
    """A server and how to reach it; picklable."""

    dialect: Dialect
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
