"""Chaos of change capture from MariaDB: driver, workers, connections and the server die under writers and DDL."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pymysql

from tests.chaos.lives import Lives, kill_worker
from tests.drivers import Drivers
from tests.mariadb.jobs import differences, mirror_all, start_all
from tests.mariadb.shops import Shop
from tests.servers.mariadb import MariaDb
from volley import MariaDbSource

__all__ = ["Outcome", "follow", "run"]

_IDS, _CLIENTS, _TABLES = 2_000, 2, 4
_TABLE = "create table {} (id int primary key, number int not null, note text)"
_IMAGES = ("full", "noblob", "minimal")
_DDL_SECONDS = 8


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
    job = start_all(folder, source)
    job.wait()
    if job.exception is not None:
        raise job.exception


@dataclass
class _Writers:
    """Clients that change rows of tables, and one that changes the tables.

    Attributes:
        changes: The statements of rows that were committed.
        altered: The statements of tables.
    """

    shop: Shop
    seed: int
    tables: list[str] = field(default_factory=lambda: ["orders", "notes"])
    ended: threading.Event = field(default_factory=threading.Event)
    changes: int = 0
    altered: Counter[str] = field(default_factory=Counter)

    def write(self, client: int) -> None:
        dice = random.Random(f"{self.seed}-{client}")
        while not self.ended.wait(0.1):
            # The server may be dead: its clients come again.
            with suppress(pymysql.Error), closing(self.shop.server.connect(self.shop.name)) as connection:
                while not self.ended.wait(0.1):
                    self._transact(connection, dice)

    def _transact(self, connection: pymysql.Connection[Any], dice: random.Random) -> None:
        count, image = dice.randrange(1, 6), dice.choice(_IMAGES)
        with connection.cursor() as cursor:
            cursor.execute(f"set binlog_row_image = {image}")
            for _ in range(count):
                cursor.execute(self._statement(dice, image))
        if dice.random() < 0.1:
            connection.rollback()
        else:
            connection.commit()
            self.changes += count

    def _statement(self, dice: random.Random, image: str) -> str:
        table, id = dice.choice(self.tables), dice.randrange(_IDS)
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
        return dice.choice(changes if image == "minimal" else [*changes, *insertions])

    def alter(self) -> None:
        """Change a table now and then: columns with and without values of old rows, truncations, new tables."""
        dice, number = random.Random(f"{self.seed}-ddl"), 0
        while not self.ended.wait(_DDL_SECONDS):
            table, number = dice.choice(self.tables), number + 1
            what, statement = dice.choice(
                [
                    ("column", f"alter table {table} add column c{number} varchar(20)"),
                    ("default", f"alter table {table} add column c{number} int not null default 7"),
                    ("truncation", f"truncate table {table}"),
                    ("table", _TABLE.format(f"later{number}")),
                ]
            )
            if what == "table" and len(self.tables) == _TABLES:
                continue
            with suppress(pymysql.Error):
                self.shop.run(statement)
                self.altered[what] += 1
                if what == "table":
                    self.tables.append(f"later{number}")


@contextmanager
def _writing(writers: _Writers) -> Iterator[None]:
    threads = [threading.Thread(target=writers.write, args=[client]) for client in range(_CLIENTS)]
    threads.append(threading.Thread(target=writers.alter))
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        writers.ended.set()
        for thread in threads:
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
        source = shop.source("*", bounded=False, on_rewrite="reload", timeout="5s")
        writers = _Writers(shop, seed)
        others: dict[str, Callable[[], int]] = {
            "connection": partial(_kill_connections, shop),
            "MariaDB": partial(_kill_server, server),
            "worker": partial(kill_worker, dice),
        }
        lives = Lives(drivers, folder / "checkpoints/mirror", dice, partial(follow, folder, source), others)
        with _writing(writers):
            while lives.deaths.total() < kills:
                lives.once()
                print(f"chaos: {dict(lives.deaths)}, {writers.changes} changes, {dict(writers.altered)}", flush=True)
        assert drivers.run(mirror_all, folder, shop.source("*", on_rewrite="reload")) == 0
        wrong = {table: rows for table, rows in differences(shop, folder).items() if rows}
        assert not wrong, f"{len(wrong)} tables differ: {wrong!r:.2000}"
        rows = sum(count for table in writers.tables for (count,) in shop.rows(f"select count(*) from {table}"))
        return Outcome(lives.deaths, writers.changes, writers.altered, rows)
    finally:
        server.stop()
