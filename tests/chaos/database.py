"""Chaos of a whole database: tables are made, columns are added, tables truncated, while all that reads them dies."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import psycopg2

from tests.captured import Database
from tests.chaos.captured import Campaign, Writers, captured, writing
from tests.drivers import Drivers, await_end
from tests.postgres.jobs import differences, mirror_all, start_all
from tests.servers.postgres import Postgres

__all__ = ["catch_up", "follow", "run"]

_TABLES, _LATER_TABLES, _COLUMNS, _TRUNCATIONS = 50, 10, 50, 5
_IDS = 200
_STEP_SECONDS = 2.0
_TABLE = """
    create table {0} (id int primary key, number int not null, note text);
    alter table {0} alter column note set storage external;
    insert into {0} select n, n, repeat(md5(n::text), n % 3 * 100) from generate_series(1, 60) n
"""
_TYPES = ("int", "bigint", "text", "numeric(9, 2)", "timestamptz", "date", "boolean", "double precision", "bytea")
_VALUES = {
    **{"text": "md5(random()::text)", "bytea": "decode(md5(random()::text), 'hex')", "boolean": "random() < 0.5"},
    **{
        "timestamptz": "clock_timestamp()",
        "date": "current_date",
        "numeric(9, 2)": "round(random()::numeric * 9999, 2)",
    },
}


def follow(folder: Path, port: int, name: str) -> None:
    """The endless job, in a driver of its own."""
    await_end(start_all(folder, captured(port, name).source(None, bounded=False, on_rewrite="reload")))


def catch_up(folder: Path, port: int, name: str) -> None:
    """The bounded job, in a driver of its own."""
    mirror_all(folder, captured(port, name).source(None, on_rewrite="reload"))


@dataclass
class _Tables:
    """The tables, with the columns that they have got; changed by one thread, written to by others."""

    database: Database
    dice: random.Random
    columns: dict[str, dict[str, str]] = field(default_factory=dict)
    steps: list[str] = field(default_factory=list)

    def make(self) -> None:
        """Make the first tables; choose what comes later, and when."""
        for number in range(_TABLES):
            self._add_table(f"t{number:02}")
        self.steps = ["table"] * _LATER_TABLES + ["column"] * _COLUMNS + ["truncation"] * _TRUNCATIONS
        self.dice.shuffle(self.steps)

    def evolve(self, paused: threading.Event, ended: threading.Event) -> None:
        """Do one step after the other; again if the server died."""
        while self.steps and not ended.wait(_STEP_SECONDS):
            if not paused.is_set():
                with suppress(psycopg2.Error):
                    self._step(self.steps[-1])
                    self.steps.pop()

    def change(self, cursor: psycopg2.extensions.cursor, dice: random.Random) -> None:
        """Change some rows of a table, and give its columns values."""
        table = dice.choice(list(self.columns))
        more = "".join(f", {name} = {_VALUES.get(kind, '1')}" for name, kind in list(self.columns[table].items()))
        id, other = dice.randrange(_IDS), dice.randrange(_IDS)
        match dice.randrange(6):
            case 0 | 1:
                note = f"repeat(md5(random()::text), {dice.choice([0, 1, 300])})"
                upsert = "on conflict (id) do update set number = excluded.number, note = excluded.note"
                cursor.execute(f"insert into {table} values ({id}, {other}, {note}) {upsert}")
            case 2 | 3:
                cursor.execute(f"update {table} set number = number + 1{more} where id % 20 = {id % 20}")
            case 4:
                cursor.execute(f"delete from {table} where id = {id}")
            case _:
                free = f"not exists (select from {table} where id = {other})"
                cursor.execute("savepoint before")
                try:
                    cursor.execute(f"update {table} set id = {other}{more} where id = {id} and {free}")
                except psycopg2.errors.UniqueViolation:
                    cursor.execute("rollback to before")

    def _step(self, step: str) -> None:
        table = self.dice.choice(list(self.columns))
        match step:
            case "table":
                # A step whose server died may be done: then this table has rows of its own, too.
                self._add_table(f"later{len(self.steps):02}")
            case "column":
                name, kind = f"c{len(self.steps):02}", self.dice.choice(_TYPES)
                default = f" default {_VALUES.get(kind, '7')}" if self.dice.random() < 0.2 else ""
                self.database.run(f"alter table {table} add column if not exists {name} {kind}{default}")
                self.columns[table][name] = kind
            case _:
                self.database.run(f"truncate {table}", f"insert into {table} values (1, 1, 'after')")

    def _add_table(self, name: str) -> None:
        if not self.database.rows(f"select to_regclass('{name}') where to_regclass('{name}') is not null"):
            self.database.run(_TABLE.format(name))
        self.columns[name] = {}


@contextmanager
def _evolving(tables: _Tables, writers: Writers) -> Iterator[None]:
    thread = threading.Thread(target=tables.evolve, args=[writers.paused, writers.ended])
    thread.start()
    try:
        yield
    finally:
        writers.ended.set()
        thread.join()


def run(drivers: Drivers, folder: Path, kills: int, seed: int) -> tuple[Counter[str], int]:
    """Kill until so many have died and all steps are done; returns what died, and the number of committed changes.

    Args:
        drivers: Run the job.
        folder: An empty folder.
        kills: How many processes die.
        seed: Repeats the schedule.
    """
    (folder / "server").mkdir(parents=True)
    server = Postgres(folder / "server").start()
    try:
        database = Database(server.database().replace("+psycopg2", ""))
        tables = _Tables(database, random.Random(f"{seed}-tables"))
        tables.make()
        writers = Writers(partial(psycopg2.connect, database.uri), psycopg2.Error, seed, tables.change)
        campaign = Campaign(drivers, folder, server, database, random.Random(seed), follow, life=(40, 80))
        with writing(writers), _evolving(tables, writers):
            while campaign.deaths.total() < kills or tables.steps:
                campaign.once()
                left = len(tables.steps)
                print(f"chaos: {dict(campaign.deaths)}, {writers.changes} changes, {left} steps left", flush=True)
        time.sleep(1)
        assert drivers.run(catch_up, folder, server.port, database.name) == 0
        differs = {table: rows for table, rows in differences(database, folder).items() if rows}
        assert not differs, f"{len(differs)} tables differ: {differs!r:.2000}"
        return campaign.deaths, writers.changes
    finally:
        server.stop()
