"""Chaos of change capture from MariaDB: driver, workers, connections and the server die under writers and DDL."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pymysql

from tests.chaos.captured import Writers, writing
from tests.chaos.lives import Lives, kill_worker
from tests.drivers import Drivers, await_end
from tests.mariadb.jobs import differences, mirror_all, start_all
from tests.mariadb.shops import Shop
from tests.servers.mariadb import MariaDb
from volley import MariaDbSource

__all__ = ["Outcome", "follow", "run"]

_IDS, _TABLES = 500, 4
_TABLE = "create table {} (id int primary key, number int not null, note text)"
_IMAGES = ("full", "noblob", "minimal")
_DDL_SECONDS, _PAUSE_SECONDS, _STILL_SECONDS = 12, 0.2, 2


@dataclass(frozen=True)
class Outcome:
    """What a campaign did, after which no table differs.

    Args:
        deaths: What has died.
        changes: The statements of rows that were committed.
        altered: The statements of tables.
        rows: The rows that were compared.
    """

    deaths: Counter[str]
    changes: int
    altered: Counter[str]
    rows: int


def follow(folder: Path, source: MariaDbSource) -> None:
    """The endless job, in a driver of its own."""
    await_end(start_all(folder, source))


@dataclass
class _Tables:
    """The tables, which writers fill, and a thread of its own changes.

    Attributes:
        altered: The statements of tables.
        compared: The rows that were compared last.
    """

    shop: Shop
    dice: random.Random
    names: list[str] = field(default_factory=lambda: ["orders", "notes"])
    altered: Counter[str] = field(default_factory=Counter)
    compared: int = 0

    def change(self, cursor: Any, dice: random.Random) -> None:
        """Change rows of a table; each kind of row image is in the log."""
        table, id, image = dice.choice(self.names), dice.randrange(_IDS), dice.choice(_IMAGES)
        cursor.execute(f"set binlog_row_image = {image}")
        changes = [
            f"update {table} set number = number + 1 where id % 20 = {id % 20}",
            f"delete from {table} where id = {id}",
            f"update ignore {table} set id = {dice.randrange(_IDS)} where id = {id}",
        ]
        # In the smallest image, an insertion does not tell the defaults that it leaves out, and is refused by name.
        insertions = [
            f"replace into {table} (id, number, note) values ({id}, {id}, repeat('x', {dice.choice([1, 9000])}))",
            f"insert ignore into {table} (id, number, note) values ({id}, 0, null), ({id + 1}, 1, 'y')",
        ]
        cursor.execute(dice.choice(changes if image == "minimal" else [*changes, *insertions]))

    def alter(self, paused: threading.Event, ended: threading.Event) -> None:
        """Change a table now and then: columns with and without values of old rows, truncations, new tables."""
        number = 0
        while not ended.wait(_DDL_SECONDS):
            table, number = self.dice.choice(self.names), number + 1
            what, statement = self.dice.choice(
                [
                    ("column", f"alter table {table} add column c{number} varchar(20)"),
                    ("default", f"alter table {table} add column c{number} int not null default 7"),
                    ("truncation", f"truncate table {table}"),
                    ("table", _TABLE.format(f"later{number}")),
                ]
            )
            if paused.is_set() or (what == "table" and len(self.names) == _TABLES):
                continue
            with suppress(pymysql.Error):
                self.shop.run(statement)
                self.altered[what] += 1
                if what == "table":
                    self.names.append(f"later{number}")


@contextmanager
def _altering(tables: _Tables, writers: Writers) -> Iterator[None]:
    thread = threading.Thread(target=tables.alter, args=[writers.paused, writers.ended])
    thread.start()
    try:
        yield
    finally:
        writers.ended.set()
        thread.join()


def _kill_connections(shop: Shop) -> int:
    """Kill the connections that read the log."""
    killed = 0
    for (id,) in shop.rows("select id from information_schema.processlist where command like 'Binlog Dump%'"):
        with suppress(pymysql.Error):
            shop.run(f"kill {id}")
            killed += 1
    return killed


def _kill_server(server: MariaDb) -> int:
    server.kill()
    server.start()
    return 1


def _check(drivers: Drivers, folder: Path, tables: _Tables, paused: threading.Event) -> None:
    """Let nobody write, have a run read the rest, and compare all tables."""
    shop = tables.shop
    paused.set()
    time.sleep(_STILL_SECONDS)
    assert drivers.run(mirror_all, folder, shop.source("*", on_rewrite="reload")) == 0
    wrong = {table: rows for table, rows in differences(shop, folder).items() if rows}
    assert not wrong, f"{len(wrong)} tables differ: {wrong!r:.2000}"
    tables.compared = sum(count for table in tables.names for (count,) in shop.rows(f"select count(*) from {table}"))
    paused.clear()


def run(drivers: Drivers, folder: Path, kills: int, seed: int) -> Outcome:
    """Kill until so many have died, then compare all tables with those of MariaDB.

    Args:
        drivers: Run the job.
        folder: An empty folder.
        kills: How many processes and connections die.
        seed: Repeats the schedule.

    Raises:
        AssertionError: If a row was lost, doubled or changed, or a run failed.
    """
    (folder / "server").mkdir(parents=True)
    server, dice = MariaDb(folder / "server").start(), random.Random(seed)
    try:
        shop = Shop(server, server.database())
        shop.run(_TABLE.format("orders"), _TABLE.format("notes"))
        shop.run(f"insert into orders select seq, seq, concat('note ', seq) from seq_1_to_{_IDS // 2}")
        tables = _Tables(shop, random.Random(f"{seed}-ddl"))
        writers = Writers(partial(server.connect, shop.name), pymysql.Error, seed, tables.change, _PAUSE_SECONDS)
        others: dict[str, Callable[[], int]] = {
            "connection": partial(_kill_connections, shop),
            "MariaDB": partial(_kill_server, server),
            "worker": partial(kill_worker, dice),
        }
        source = shop.source("*", bounded=False, on_rewrite="reload", timeout="5s")
        lives = Lives(drivers, folder / "checkpoints/mirror", dice, partial(follow, folder, source), others)
        with writing(writers), _altering(tables, writers):
            lives.run(kills, partial(_check, drivers, folder, tables, writers.paused))
        return Outcome(lives.deaths, writers.changes, tables.altered, tables.compared)
    finally:
        server.stop()
