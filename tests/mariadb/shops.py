"""What tests of MariaDB and MySQL share: a database, a source of it, and its rows by plain SQL."""

from __future__ import annotations

import zlib
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pytest

from tests.servers.sql import SqlServer
from volley import MariaDbSource, MySqlSource

__all__ = ["OWN_SERVERS", "SERVERS", "Shop", "applied", "same"]

SERVERS = [pytest.param(name, marks=pytest.mark.services) for name in ("mariadb", "mysql")]
"""The fixtures of the servers."""

OWN_SERVERS = [pytest.param(f"own_{name}", marks=pytest.mark.services) for name in ("mariadb", "mysql")]
"""The fixtures of servers that no other process of the test run uses."""


@dataclass(frozen=True)
class Shop:
    """A database of its own, on a shared server."""

    server: SqlServer
    name: str

    @property
    def is_mysql(self) -> bool:
        """True if the server is MySQL."""
        return self.server.product == "MySQL"

    def series(self, last: int) -> str:
        """A table of the numbers ``seq`` from 1."""
        if not self.is_mysql:
            return f"seq_1_to_{last}"
        numbers = f"select 1 as seq union all select seq + 1 from numbers where seq < {last}"
        return f"(with recursive numbers as ({numbers}) select seq from numbers) as series"

    def run(self, *statements: str) -> None:
        """Run statements, all in one transaction, as far as they take part in one."""
        self.server.run(*statements, database=self.name)

    def run_with(self, settings: str, *statements: str) -> None:
        """Run statements in a session with settings of its own."""
        with closing(self.server.connect(self.name)) as connection, connection.cursor() as cursor:
            for statement in (settings, *statements):
                cursor.execute(statement)
            connection.commit()

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """The rows of a query."""
        return self.server.rows(query, self.name)

    def source(self, table: Any = "orders", **settings: Any) -> MariaDbSource:
        """A bounded source of a table, with an id of its own."""
        tables = f"{self.name}.{table}"
        defaults: dict[str, Any] = {
            **{"host": self.server.host, "port": self.server.port, "user": "volley", "password": "secret"},
            **{"server_id": 1000 + zlib.crc32(self.name.encode()) % 1_000_000, "tables": tables, "bounded": True},
        }
        source = MySqlSource if self.is_mysql else MariaDbSource
        return source(**{**defaults, **settings})


def applied(rows: list[dict[str, Any]], table: dict[Any, dict[str, Any]] | None = None, key: str = "id") -> Any:
    """The table that rows of a source make, by key: an upsert, told apart from ours."""
    made: dict[Any, dict[str, Any]] = dict(table or {})
    for row in sorted(rows, key=lambda row: row["_seq"]):
        values = {name: value for name, value in row.items() if name not in ("_op", "_seq", "_unchanged")}
        if row["_op"] == "t":
            made.clear()
        elif row["_op"] == "d":
            made.pop(row[key], None)
        else:
            kept = {name: made[row[key]][name] for name in row["_unchanged"] or ()}
            made[row[key]] = {**values, **kept}
    return made


def same(made: dict[int, dict[str, Any]], shop: Shop, name: str = "orders") -> bool:
    """True if a table that rows made has the rows of the server's."""
    stored = {row[0]: row for row in shop.rows(f"select * from {name}")}
    return {key: tuple(row.values()) for key, row in made.items()} == stored
