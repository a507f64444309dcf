"""Chaos of change capture: driver, workers, walsender and PostgreSQL itself are killed under writers."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg2

from tests.captured import Database
from tests.chaos.lives import kill_worker
from tests.drivers import Drivers, await_end
from tests.postgres.jobs import difference, mirror, start
from tests.servers.postgres import Postgres
from volley.capture.segments import Segments
from volley.task.failpoints import EXECUTOR_TASK_POINT, POINTS, SLOT_POINTS, TASK_POINTS

__all__ = ["Campaign", "Jobs", "Writers", "captured", "catch_up", "follow", "run", "writing"]

_IDS = 5_000
_CLIENTS = 3
# How changes stay out of the publication, and how it gets them again.
_ALTERED = [
    ("drop table orders", "add table orders"),
    ("set table orders where (id < 100)", "set table orders"),
    ("set (publish = 'insert, delete, truncate')", "set (publish = 'insert, update, delete, truncate')"),
]
_TABLE = """
    create table orders (id int primary key, number int not null, price numeric(12, 3), at timestamptz, note text);
    alter table orders alter column note set storage external
"""


def follow(folder: Path, port: int, name: str) -> None:
    """The endless job, in a driver of its own."""
    await_end(start(folder, captured(port, name).source(bounded=False, on_rewrite="reload"), interval="1s"))


def captured(port: int, name: str) -> Database:
    return Database(f"postgresql://volley:secret@127.0.0.1:{port}/{name}")


@dataclass
class Writers:
    """Clients that change rows: inserts, updates, deletes, changed keys, values of 10 kB, savepoints and rollbacks.

    Args:
        connect: Returns a connection.
        error: What it raises.
        seed: Repeats the statements.
        change: Runs a statement.
        pause: The seconds between two transactions of a client.

    Attributes:
        paused: Set while nothing may change.
        changes: The statements that were committed.
    """

    connect: Callable[[], Any]
    error: type[Exception]
    seed: int
    change: Callable[[Any, random.Random], None]
    pause: float = 0.02
    paused: threading.Event = field(default_factory=threading.Event)
    ended: threading.Event = field(default_factory=threading.Event)
    changes: int = 0

    def write(self, client: int) -> None:
        dice = random.Random(f"{self.seed}-{client}")
        while not self.ended.is_set():
            # The server may be dead: its clients come again.
            with suppress(self.error), closing(self.connect()) as connection:
                while not self.ended.is_set():
                    self._transact(connection, dice)
            time.sleep(0.1)

    def _transact(self, connection: Any, dice: random.Random) -> None:
        while self.paused.is_set() and not self.ended.is_set():
            time.sleep(0.05)
        count = dice.randrange(1, 6)
        with connection.cursor() as cursor:
            for _ in range(count):
                self.change(cursor, dice)
        if dice.random() < 0.1:
            connection.rollback()
        else:
            connection.commit()
            self.changes += count
        time.sleep(self.pause)


def _change(cursor: psycopg2.extensions.cursor, dice: random.Random) -> None:
    id, other = dice.randrange(_IDS), dice.randrange(_IDS)
    note = dice.choice([None, "", "short", f"{dice.getrandbits(40_000):x}"])
    cursor.execute("savepoint before")
    upsert = "on conflict (id) do update set number = excluded.number, note = excluded.note"
    match dice.randrange(6):
        case 0 | 1:
            cursor.execute(
                f"insert into orders values (%s, %s, 1.5, clock_timestamp(), %s) {upsert}", (id, other, note)
            )
        case 2 | 3:
            cursor.execute("update orders set number = number + 1, at = clock_timestamp() where id = %s", (id,))
        case 4:
            cursor.execute("delete from orders where id = %s", (id,))
        case _:
            sql = "update orders set id = %s where id = %s and not exists (select from orders where id = %s)"
            with suppress(psycopg2.errors.UniqueViolation):
                cursor.execute(sql, (other, id, other))
                return
            cursor.execute("rollback to before")
    if dice.random() < 0.1:
        cursor.execute("rollback to before")


@dataclass
class Campaign:
    """One server, one job that dies again and again.

    Attributes:
        job: The endless job, for a driver of its own; gets the folder, the server's port and the database's name.
        name: The job's name.
        life: The shortest and the longest life of a driver, in seconds.
        alters: True if the publication is altered and restored, too: the table is then loaded again.
        deaths: What has died.
        failures: The drivers that failed.
    """

    drivers: Drivers
    folder: Path
    server: Postgres
    database: Database
    dice: random.Random
    job: Callable[[Path, int, str], None]
    name: str = "mirror"
    life: tuple[float, float] = (10, 20)
    alters: bool = False
    deaths: Counter[str] = field(default_factory=Counter)
    failures: int = 0

    def once(self) -> None:
        """One start of the job: others die around it, then the driver does, at a point or at any time."""
        point = self.dice.choice([*POINTS, *SLOT_POINTS, *TASK_POINTS, EXECUTOR_TASK_POINT, None, None, None])
        armed = "" if point is None else self._armed(point)
        driver = self.drivers.start(self.job, self.folder, self.server.port, self.database.name, failpoint=armed)
        ends = time.monotonic() + self.dice.uniform(*self.life)
        while driver.is_alive() and time.monotonic() < ends:
            time.sleep(self.dice.uniform(0.5, 2.5))
            self._kill_another(driver.pid)
        if driver.is_alive() and driver.pid is not None:
            self._count("driver")
            driver.kill()
        elif driver.exitcode == -9:
            self._count(f"driver {point}")
        else:
            self.failures += 1
        self.drivers.wait(driver)

    def _armed(self, point: str) -> str:
        segments = Segments(f"{self.folder}/checkpoints/{self.name}/volley/source-0/segments")
        if point in SLOT_POINTS:
            return f"{point}@0,{point}@{segments.chain(0).next}"
        offsets = self.folder / "checkpoints" / self.name / "offsets"
        last = max((int(file.name) for file in offsets.glob("[0-9]*")), default=-1)
        return ",".join(f"{point}@{last + more}" for more in range(4))

    def _kill_another(self, driver: int | None) -> None:
        match self.dice.randrange(8):
            case 0 | 1 | 2:
                sql = "select pg_terminate_backend(active_pid) from pg_replication_slots where active_pid is not null"
                with suppress(psycopg2.Error):
                    self._count("walsender", len(self.database.rows(sql)))
            case 3:
                self.server.kill()
                self.server.start()
                self._count("PostgreSQL")
            case 4 | 5:
                self._count("worker", kill_worker(self.dice))
            case 6 if self.alters:
                self._alter_the_publication()

    def _alter_the_publication(self) -> None:
        """Leave changes out of the publication for a while: the job can't have them by the stream."""
        there, *_ = self.database.rows("select count(*) from pg_publication where pubname = 'volley'")
        if not there[0]:
            return
        altered, restored = self.dice.choice(_ALTERED)
        self.database.run(f"alter publication volley {altered}")
        time.sleep(self.dice.uniform(0.1, 1))
        self.database.run(f"alter publication volley {restored}")
        self._count("publication altered")

    def _count(self, what: str, times: int = 1) -> None:
        self.deaths[what] += times


@contextmanager
def writing(writers: Writers) -> Iterator[None]:
    threads = [threading.Thread(target=writers.write, args=[client]) for client in range(_CLIENTS)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        writers.ended.set()
        for thread in threads:
            thread.join()


def catch_up(folder: Path, port: int, name: str) -> None:
    """The bounded job, in a driver of its own."""
    mirror(folder, captured(port, name).source(on_rewrite="reload"))


@dataclass(frozen=True)
class Jobs:
    """What a campaign runs and compares.

    Args:
        name: The jobs' name.
        follow: The endless job.
        catch_up: The bounded one.
        wrong: Returns what is lost, doubled or wrong after it.
        identity: The table's replica identity.
        alters: True if the publication is altered, too.
    """

    name: str
    follow: Callable[[Path, int, str], None]
    catch_up: Callable[[Path, int, str], None]
    wrong: Callable[[Database, Path], list[Any]]
    identity: str = "default"
    alters: bool = False


_MIRROR = Jobs("mirror", follow, catch_up, difference, alters=True)


def run(
    drivers: Drivers, folder: Path, kills: int, seed: int, check_every: int = 25, jobs: Jobs = _MIRROR
) -> tuple[Counter[str], int]:
    """Kill until so many have died; returns what died, and the number of committed changes.

    Args:
        drivers: Run the job.
        folder: An empty folder.
        kills: How many processes die.
        seed: Repeats the schedule.
        check_every: After so many deaths the writers pause, a run catches up, and all rows are compared.
        jobs: What is run and compared.
    """
    (folder / "server").mkdir(parents=True)
    server = Postgres(folder / "server").start()
    try:
        database = Database(server.database().replace("+psycopg2", ""))
        database.run(_TABLE, f"alter table orders replica identity {jobs.identity}")
        database.run(f"insert into orders select n, n, 0, now(), null from generate_series(1, {_IDS // 2}) n")
        writers, dice = (
            Writers(partial(psycopg2.connect, database.uri), psycopg2.Error, seed, _change),
            random.Random(seed),
        )
        campaign = Campaign(drivers, folder, server, database, dice, jobs.follow, jobs.name, alters=jobs.alters)
        compared = 0
        with writing(writers):
            while campaign.deaths.total() < kills:
                campaign.once()
                print(f"chaos: {dict(campaign.deaths)}, {writers.changes} changes", flush=True)
                if campaign.deaths.total() >= (compared + 1) * check_every:
                    compared += 1
                    writers.paused.set()
                    time.sleep(1)
                    _compare(drivers, folder, database, jobs)
                    writers.paused.clear()
        _compare(drivers, folder, database, jobs)
        return campaign.deaths, writers.changes
    finally:
        server.stop()


def _compare(drivers: Drivers, folder: Path, database: Database, jobs: Jobs) -> None:
    port = urlsplit(database.uri).port or 0
    assert drivers.run(jobs.catch_up, folder, port, database.name) == 0
    wrong = jobs.wrong(database, folder)
    assert wrong == [], f"{len(wrong)} rows differ: {wrong[:4]!r:.2000}"
