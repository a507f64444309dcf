"""What servers of MariaDB and MySQL share: they are started, killed, and asked by PyMySQL."""

from __future__ import annotations

import subprocess
import uuid
from contextlib import closing
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, ClassVar, Self

import pymysql

from tests.servers.process import ServerProcess, free_ports

__all__ = ["ACCOUNTS", "SqlServer"]

ACCOUNTS = """
create user if not exists 'volley'@'%' identified by 'secret';
grant all on *.* to 'volley'@'%' with grant option;
"""


class SqlServer:
    """A server with a binary log of rows with full metadata, and one user, who has a password."""

    product: ClassVar[str]
    status: ClassVar[str]
    """The statement that tells where the log ends."""
    begin_anew: ClassVar[str]
    """The statement that deletes the log."""

    def __init__(self) -> None:
        (port,) = free_ports(1)
        self.host, self.port, self.user, self.password = "127.0.0.1", port, "volley", "secret"
        # Not below pytest's folders: where those are root's alone, the server's user can't enter them.
        self._home = Path(mkdtemp(prefix=f"volley-{self.product.lower()}-"))
        self._process: ServerProcess

    def start(self) -> Self:
        """Start it."""
        self._process.start(self._process.says(f"port: {self.port}"))
        return self

    def kill(self) -> None:
        """End it as a crash does; `start` has it recover."""
        self._process.stop()

    def stop(self) -> None:
        """End it for good."""
        self._process.stop()
        subprocess.run(["sh", "-c", 'rm -rf "$0" > /dev/null 2>&1 &', self._home], check=True)

    def run(self, *statements: str, database: str | None = None) -> None:
        """Run statements, all in one transaction, as far as they take part in one."""
        with closing(self.connect(database)) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            connection.commit()

    def rows(self, query: str, database: str | None = None) -> list[tuple[Any, ...]]:
        """The rows of a query."""
        with closing(self.connect(database)) as connection, connection.cursor() as cursor:
            cursor.execute(query)
            return list(cursor.fetchall())

    def connect(self, database: str | None = None) -> pymysql.Connection[Any]:
        """A connection of the server's user."""
        return pymysql.connect(
            host=self.host,
            port=self.port,
            user=self.user,
            password=self.password,
            database=database,
            charset="utf8mb4",
        )

    def database(self) -> str:
        """The name of a new database, without tables."""
        name = f"shop_{uuid.uuid4().hex}"
        self.run(f"create database {name}")
        return name
