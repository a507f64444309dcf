"""What tests of change capture share: a database with tables, a source of one of them, and its rows by plain SQL."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import psycopg2

from tests.servers.postgres import Postgres
from volley import PostgresSource

__all__ = ["Database", "database"]


@dataclass(frozen=True)
class Database:
    """A database of its own, on a shared server.

    Args:
        uri: Its address, for libpq.
    """

    uri: str

    @property
    def name(self) -> str:
        return urlsplit(self.uri).path[1:]

    def run(self, *statements: str) -> None:
        """Run statements, all in one transaction."""
        with closing(psycopg2.connect(self.uri)) as connection, connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def alone(self, statement: str) -> None:
        """Run a statement that takes no part in a transaction."""
        with closing(psycopg2.connect(self.uri)) as connection:
            connection.autocommit = True
            with connection.cursor() as cursor:
                cursor.execute(statement)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """The rows of a query."""
        with closing(psycopg2.connect(self.uri)) as connection, connection.cursor() as cursor:
            cursor.execute(query)
            rows: list[tuple[Any, ...]] = cursor.fetchall()
            return rows

    def source(self, table: Any = "public.orders", **settings: Any) -> PostgresSource:
        """A bounded source of a table, with a slot and a publication of the database's name."""
        at = urlsplit(self.uri)
        assert at.hostname
        assert at.port
        defaults: dict[str, Any] = {
            **{"host": at.hostname, "port": at.port, "database": self.name, "user": "volley", "password": "secret"},
            **{"slot_name": self.name, "publication": "volley", "tables": table, "bounded": True},
        }
        return PostgresSource(**{**defaults, **settings})

    def drop_slots(self) -> None:
        """Drop the slots of this database."""
        for (name,) in self.rows("select slot_name from pg_replication_slots where database = current_database()"):
            self.drop_slot(name)

    def drop_slot(self, name: str) -> None:
        """Drop a slot; a server notices some time after its reader that this one has gone."""
        self.alone(
            "select pg_terminate_backend(active_pid, 10000) from pg_replication_slots "
            f"where active_pid is not null and slot_name = '{name}'"
        )
        self.alone(f"select pg_drop_replication_slot('{name}')")


@contextmanager
def database(postgres: Postgres) -> Iterator[Database]:
    """A new database, whose slots are dropped at the end."""
    made = Database(postgres.database().replace("+psycopg2", ""))
    try:
        yield made
    finally:
        made.drop_slots()
