"""Chaos of Debezium: job, broker, connector and database die between a database and its tables, and their history."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import md5
from pathlib import Path
from typing import Any

from tests.chaos.audited import AUDITED, ORDERS, Audited, Version, audited_mariadb, audited_postgres
from tests.chaos.captured import Writers, writing
from tests.chaos.lives import Lives, kill_worker
from tests.drivers import Drivers, await_end
from tests.postgres.jobs import config
from tests.servers.debezium import Debezium
from tests.servers.kafka import Kafka
from tests.servers.mariadb import MariaDb
from tests.servers.postgres import Postgres
from tests.waiting import wait_until
from volley import Environment, History, IcebergSink, IcebergSinkConfig, Job, KafkaSource, Pipeline, Upsert, col
from volley.iceberg.modes import CommitMode

__all__ = ["KINDS", "Outcome", "follow", "run"]

KINDS = {"postgres": ("postgres", False), "mariadb": ("mariadb", False), "packed": ("postgres", True)}
"""The database that Debezium captures, and whether its tables are read as packed rows, by the schemas of messages."""

_SCHEMA = "id int, number int, price decimal(12,3), at timestamp_ntz, note string"
_WIRE = {"price": "Decimal", "at": "MicroTimestamp"}
_PREFIX, _PARTITIONS, _OFFSETS = "t", 3, "offsets"
_JOB = "debezium"
# A broker comes again within minutes where many processes want the CPU.
_TIMEOUT = "5m"
_PAUSE_SECONDS, _STILL_SECONDS = 0.2, 2


@dataclass(frozen=True)
class Outcome:
    """What a campaign did, after which no row and no version differs.

    Args:
        deaths: What has died.
        changes: The statements that were committed.
        rows: The rows that were compared.
        versions: The versions that were compared.
    """

    deaths: Counter[str]
    changes: int
    rows: int
    versions: int


def _start(folder: Path, brokers: str, topics: tuple[str, ...], is_packed: bool, bounded: bool) -> Job:
    """The job: one table is upserted, of the other one all versions are kept."""
    environment = Environment("local[2,4]", checkpoint_dir=str(folder / "checkpoints"))
    told = {"packed": True} if is_packed else {"key_fields": ["id"], "wire": _WIRE}
    source = KafkaSource(
        brokers,
        topics,
        value_format="debezium",
        schema="rows binary" if is_packed else _SCHEMA,
        options={**told, "source": ["table"]},
        bounded=bounded,
        timeout=_TIMEOUT,
    )
    changes = environment.from_source(source)

    def pipeline(table: str, mode: CommitMode, *left: str) -> Pipeline:
        rows = changes.filter_expr(col("source_table") == table)
        sink = IcebergSink(_of_table(folder, table).with_commit_mode(mode).with_flush_interval("1s"))
        if is_packed:
            return rows.to_sink(sink.routed("{source_table}", rows="rows", key_fields="primary_key"))
        return rows.drop("source_table", *left).to_sink(sink)

    return environment.start(_JOB, pipeline(ORDERS, Upsert()), pipeline(AUDITED, History(), "_unchanged"))


def _of_table(folder: Path, table: str) -> IcebergSinkConfig:
    """The table of the lake, in a namespace of its own: sinks of many tables may not share one."""
    return replace(config(folder), namespace=[f"of_{table}"], table=table)


def follow(folder: Path, brokers: str, topics: tuple[str, ...], is_packed: bool, bounded: bool) -> None:
    """The job, in a driver of its own."""
    await_end(_start(folder, brokers, topics, is_packed, bounded))


@dataclass
class _Connector:
    """A connector that is started again whenever it has ended, as Kafka Connect does."""

    debezium: Debezium
    ended: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def running(self) -> Iterator[None]:
        thread = threading.Thread(target=self._keep)
        thread.start()
        try:
            yield
        finally:
            self.ended.set()
            thread.join()
            self.debezium.kill()

    def _keep(self) -> None:
        while not self.ended.wait(0.5):
            with self.lock:
                self.debezium.start()

    def kill(self) -> int:
        with self.lock:
            self.debezium.kill()
        return 1


@dataclass(frozen=True)
class _Campaign:
    drivers: Drivers
    folder: Path
    kafka: Kafka
    source: Audited
    seed: int
    is_packed: bool
    compared: list[tuple[int, int]] = field(default_factory=list)

    @property
    def topics(self) -> tuple[str, ...]:
        return tuple(f"{_PREFIX}.{self.source.schema}.{table}" for table in (ORDERS, AUDITED))

    def run(self, kills: int) -> Outcome:
        for topic in self.topics:
            self.kafka.topic(_PARTITIONS, name=topic)
        self.kafka.topic(1, name=_OFFSETS, cleanup_policy="compact")
        self.source.fill()
        tables = ",".join(f"{self.source.schema}.{table}" for table in (ORDERS, AUDITED))
        settings = {
            **self.source.settings,
            "table.include.list": tables,
            "brokers": self.kafka.bootstrap,
            **self._store,
        }
        has_schemas = {"value.converter.schemas.enable": str(self.is_packed).lower()}
        connector = _Connector(Debezium(self.folder, settings, {"topic.prefix": _PREFIX, **has_schemas}))
        writers = Writers(self.source.connect, self.source.error, self.seed, self.source.change, _PAUSE_SECONDS)
        with connector.running():
            # What changes before the snapshot is a version that Debezium does not see.
            wait_until(partial(self._has, b'"snapshot":"last"'), 120, "the end of the snapshot")
            with writing(writers):
                # One that dies before begins again with a snapshot, and tells nothing of rows that are gone by then.
                wait_until(self._has_streamed, 120, "Debezium has noted that the snapshot is done")
                lives = self._lives(connector)
                lives.run(kills, partial(self._check, writers.paused))
        return Outcome(lives.deaths, writers.changes, *self.compared[-1])

    def _check(self, paused: threading.Event) -> None:
        """Let nobody write, have a run read the rest, and compare all rows and versions."""
        paused.set()
        time.sleep(_STILL_SECONDS)
        mark = self.source.mark(len(self.compared) + 1).encode()
        wait_until(partial(self._has, mark, len(self.topics)), 120, "the last row of each table")
        assert self.drivers.run(self._job(bounded=True)) == 0
        self.compared.append(self._compare())
        paused.clear()

    @property
    def _store(self) -> dict[str, str]:
        """Where offsets are kept: a file may be torn when its writer dies, and then Debezium begins anew."""
        return {
            "offset.storage": "org.apache.kafka.connect.storage.KafkaOffsetBackingStore",
            "bootstrap.servers": self.kafka.bootstrap,
            "offset.storage.topic": _OFFSETS,
            "offset.storage.partitions": "1",
            "offset.storage.replication.factor": "1",
        }

    def _lives(self, connector: _Connector) -> Lives:
        dice = random.Random(self.seed)
        others: dict[str, Callable[[], int]] = {
            "connector": connector.kill,
            "broker": self._kill_broker,
            "database": self.source.kill,
            "worker": partial(kill_worker, dice),
        }
        return Lives(self.drivers, self.folder / "checkpoints" / _JOB, dice, self._job(bounded=False), others)

    def _job(self, bounded: bool) -> Callable[[], None]:
        return partial(follow, self.folder, self.kafka.bootstrap, self.topics, self.is_packed, bounded)

    def _kill_broker(self) -> int:
        self.kafka.stop()
        self.kafka.start()
        return 1

    def _has_streamed(self) -> bool:
        noted = [message.value() or b"" for message in self.kafka.messages(_OFFSETS)]
        return bool(noted) and b'"snapshot"' not in noted[-1]

    def _has(self, text: bytes, count: int = 1) -> bool:
        """Whether as many messages have a text."""
        messages = (message for topic in self.topics for message in self.kafka.messages(topic))
        return sum(text in (message.value() or b"") for message in messages) >= count

    def _compare(self) -> tuple[int, int]:
        """Compare tables and versions by value; return how many were compared."""
        compared = 0
        for table in (ORDERS, AUDITED):
            rows = self._table(table)
            ours = [_row(row) for row in rows if row.get("is_current", True)]
            theirs = self.source.stored(table)
            assert len(set(ours)) == len(ours), f"rows of {table} are doubled"
            wrong = sorted(set(ours) ^ set(theirs), key=repr)
            assert wrong == [], f"{len(wrong)} rows of {table} differ: {wrong[:6]!r:.2000}"
            compared += len(theirs)
        made, expected = _versions(self._table(AUDITED)), self.source.versions()
        differs = {
            id: (made.get(id), expected.get(id)) for id in {*made, *expected} if made.get(id) != expected.get(id)
        }
        assert not differs, f"versions of {len(differs)} rows differ: {[*differs.items()][:2]!r:.3000}"
        return compared, sum(map(len, expected.values()))

    def _table(self, table: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = IcebergSink(_of_table(self.folder, table)).to_arrow().to_pylist()
        return rows


def _row(row: dict[str, Any]) -> tuple[Any, ...]:
    note = row["note"]
    digest = None if note is None else md5(note.encode(), usedforsecurity=False).hexdigest()
    return row["id"], row["number"], row["price"], row["at"], digest


def _versions(rows: list[dict[str, Any]]) -> dict[int, list[Version]]:
    """The versions of a history, by id, in their order."""
    made: dict[int, list[Version]] = {}
    ordered = sorted(rows, key=lambda row: (row["id"], row["valid_from"]))
    for row, later in zip(ordered, [*ordered[1:], None], strict=True):
        follows = later is not None and later["id"] == row["id"] and later["valid_from"] == row["valid_to"]
        made.setdefault(row["id"], []).append((_row(row)[1:], not row["is_current"] and not follows))
    return made


def run(drivers: Drivers, folder: Path, kills: int, seed: int, kind: str) -> Outcome:
    """Kill until so many have died, then compare all rows and versions with the database.

    Args:
        drivers: Run the job.
        folder: An empty folder.
        kills: How many processes die.
        seed: Repeats the schedule.
        kind: One of `KINDS`.

    Raises:
        AssertionError: If a row or a version was lost, doubled or changed, or a run failed.
    """
    for name in ("server", "kafka"):
        (folder / name).mkdir(parents=True)
    database, is_packed = KINDS[kind]
    server = (Postgres if database == "postgres" else MariaDb)(folder / "server").start()
    kafka = Kafka(folder / "kafka").start()
    try:
        source = audited_postgres(server) if isinstance(server, Postgres) else audited_mariadb(server)
        return _Campaign(drivers, folder, kafka, source, seed, is_packed).run(kills)
    finally:
        kafka.stop()
        server.stop()
