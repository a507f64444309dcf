"""Tables of PostgreSQL and MariaDB that clients change, with the versions of one table's rows as triggers note them."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any

import psycopg2
import pymysql

from tests.servers.debezium import of_mariadb, of_postgres
from tests.servers.mariadb import MariaDb
from tests.servers.postgres import Postgres

__all__ = ["AUDITED", "ORDERS", "Audited", "audited_mariadb", "audited_postgres"]

ORDERS, AUDITED = "orders", "audited"
"""The tables: of the second one, triggers note all versions of rows."""

_IDS = 500
_COLUMNS = "id, number, price, at, note"

Row = tuple[Any, ...]
Version = tuple[Row, bool]
"""The values of a version, and whether it ended without another one in its place."""


@dataclass(frozen=True)
class Audited:
    """A database with these tables.

    Args:
        server: Its server.
        connect: Returns a connection to it.
        error: What connections raise.
        settings: Those of Debezium's connector.
        schema: What stands between a topic's prefix and a table's name.
        now: The expression of the time.
        upsert: What follows an insertion, to update a row that is there.
    """

    server: Postgres | MariaDb
    connect: Callable[[], Any]
    error: type[Exception]
    settings: Mapping[str, str]
    schema: str
    now: str
    upsert: str

    def run(self, *statements: str) -> None:
        """Run statements, all in one transaction."""
        with closing(self.connect()) as connection, closing(connection.cursor()) as cursor:
            for statement in statements:
                cursor.execute(statement)
            connection.commit()

    def rows(self, query: str) -> list[Row]:
        """The rows of a query."""
        with closing(self.connect()) as connection, closing(connection.cursor()) as cursor:
            cursor.execute(query)
            return list(cursor.fetchall())

    def kill(self) -> int:
        """Kill the server, and start it again."""
        self.server.kill()
        self.server.start()
        return 1

    def fill(self) -> None:
        """Insert the first rows."""
        for table in (ORDERS, AUDITED):
            values = ", ".join(f"({id}, 0, {id}.125, {self.now}, null)" for id in range(0, _IDS, 2))
            self.run(f"insert into {table} ({_COLUMNS}) values {values}")

    def mark(self, number: int) -> str:
        """Insert a row into each table, behind all others; return its text."""
        note = f"mark {number}."
        for table in (ORDERS, AUDITED):
            self.run(f"insert into {table} ({_COLUMNS}) values ({-number}, 0, 0, {self.now}, '{note}')")
        return note

    def change(self, cursor: Any, dice: random.Random) -> None:
        """Change a row: also its key, and a value that is stored apart, which an update may leave alone."""
        table, id, other = dice.choice((ORDERS, AUDITED)), dice.randrange(_IDS), dice.randrange(_IDS)
        note = dice.choice(["null", "''", "'short'", f"'{dice.getrandbits(40_000):x}'"])
        match dice.randrange(7):
            case 0 | 1:
                insert = f"insert into {table} ({_COLUMNS}) values ({id}, {other}, 1.5, {self.now}, {note})"
                cursor.execute(f"{insert} {self.upsert}")
            case 2 | 3 | 4:
                cursor.execute(f"update {table} set number = number + 1, at = {self.now} where id = {id}")
            case 5:
                cursor.execute(f"delete from {table} where id = {id}")
            case _:
                # A value that is stored apart is not sent with another key, so the row gets a new one.
                cursor.execute(f"delete from {table} where id = {other}")
                cursor.execute(f"update {table} set id = {other}, note = 'moved' where id = {id}")

    def stored(self, table: str) -> list[Row]:
        """The rows of a table."""
        return self.rows(f"select id, number, price, at, md5(note) from {table}")

    def versions(self) -> dict[int, list[Version]]:
        """The versions of the rows of `AUDITED`, by id, in their order."""
        made: dict[int, list[Version]] = {}
        for id, is_deleted, *values in self.rows(
            "select id, deleted, number, price, at, note from versions order by n"
        ):
            versions = made.setdefault(id, [])
            if is_deleted:
                versions[-1] = (versions[-1][0], True)
            elif not versions or versions[-1] != (tuple(values), False):
                versions.append((tuple(values), False))
        return made


def audited_postgres(server: Postgres) -> Audited:
    """A database of PostgreSQL: `ORDERS` has the default identity, `AUDITED` that of whole rows."""
    uri = server.database().replace("+psycopg2", "")
    upsert = "on conflict (id) do update set number = excluded.number, note = excluded.note"
    connect = partial(psycopg2.connect, uri)
    made = Audited(server, connect, psycopg2.Error, of_postgres(uri), "public", "clock_timestamp()::timestamp", upsert)
    made.run(
        *(_table(name, "numeric(12, 3)", "timestamp", "text") for name in (ORDERS, AUDITED)),
        *(f"alter table {name} alter column note set storage external" for name in (ORDERS, AUDITED)),
        f"alter table {AUDITED} replica identity full",
        _versions("bigserial primary key", "numeric(12, 3)", "timestamp"),
        f"""
        create function note_version() returns trigger language plpgsql as $$
        begin
            if tg_op = 'DELETE' or (tg_op = 'UPDATE' and old.id <> new.id) then {_GONE} end if;
            if tg_op <> 'DELETE' then {_THERE} end if;
            return null;
        end $$
        """,
        f"create trigger noted after insert or update or delete on {AUDITED} "
        "for each row execute function note_version()",
    )
    return made


def audited_mariadb(server: MariaDb) -> Audited:
    """A database of MariaDB."""
    name = server.database()
    upsert = "on duplicate key update number = values(number), note = values(note)"
    settings = {**of_mariadb(server, name), "include.schema.changes": "false"}
    connect = partial(server.connect, name)
    made = Audited(server, connect, pymysql.Error, settings, name, "now(6)", upsert)
    moved = f"begin if old.id <> new.id then {_GONE} end if; {_THERE} end"
    made.run(
        *(_table(name, "decimal(12, 3)", "datetime(6)", "mediumtext") for name in (ORDERS, AUDITED)),
        _versions("bigint auto_increment primary key", "decimal(12, 3)", "datetime(6)"),
        f"create trigger inserted after insert on {AUDITED} for each row {_THERE}",
        f"create trigger updated after update on {AUDITED} for each row {moved}",
        f"create trigger deleted after delete on {AUDITED} for each row {_GONE}",
    )
    return made


def _table(name: str, decimal: str, time: str, text: str) -> str:
    return f"create table {name} (id int primary key, number int not null, price {decimal}, at {time}, note {text})"


def _versions(number: str, decimal: str, time: str) -> str:
    columns = f"n {number}, id int, deleted boolean, number int, price {decimal}, at {time}, note varchar(32)"
    return f"create table versions ({columns})"


_GONE = "insert into versions (id, deleted) values (old.id, true);"
_THERE = (
    "insert into versions (id, deleted, number, price, at, note) "
    "values (new.id, false, new.number, new.price, new.at, md5(new.note));"
)
