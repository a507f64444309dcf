"""Change capture from PostgreSQL: what a change and a loaded row cost, how soon a change can be seen, an outage."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Protocol

import psycopg2

from benchmarks.benchmark import Limit, Run, benchmark
from benchmarks.epochs import FOLLOWED, beside, follow_until, record_waits, steadily
from benchmarks.lake import Lake
from benchmarks.peers.debezium import receive
from benchmarks.shop import Shop, server
from tests.captured import Database
from tests.servers.rest_fixture import RestFixture
from tests.waiting import wait_until
from volley import IcebergSink, IcebergSinkConfig, IcebergStorage, Pipeline, Reader, Source, SourceContext
from volley.iceberg import RestCatalog, Upsert

_VOLLEY, _STAGED, _DEBEZIUM = "Volley, into an upsert", "Volley, staged only", "Debezium embedded, no sink"
WARM_UP = 90_000
_PARALLELISM = 2
_TRANSACTIONS = 20
_ARRIVALS = "create table arrivals (id bigint primary key, arrived double precision)"
_ARRIVE = "insert into arrivals select n, extract(epoch from clock_timestamp()) from generate_series(%s, %s) n"
_BEHIND = """
    select coalesce(max(pg_wal_lsn_diff(pg_current_wal_lsn(), confirmed_flush_lsn)), 0) from pg_replication_slots
    where database = current_database()
"""
_FIGURE = "rows_per_cpu_second"


@benchmark(
    rows=1_800_000,
    repeat=3,
    peers={"volley": _VOLLEY, "staged": _STAGED, "debezium": _DEBEZIUM},
    # The orders in the table at first.
    options={"orders": 1_000_000},
    figures=(_FIGURE, "rows_per_second", "cpu_seconds", "worker_mb", "driver_mb"),
    plots=(_FIGURE,),
    prepare=server,
    bounds=[
        Limit(_FIGURE, "changes per CPU-second", 120_000, of=_VOLLEY),
        Limit(_FIGURE, "changes per CPU-second", 3, of=_VOLLEY, beside=_DEBEZIUM),
    ],
)
def postgres_to_iceberg(run: Run) -> None:
    """Changes of a PostgreSQL table into an Iceberg upsert, beside Debezium without a sink: per CPU-second."""
    shop, lake = Shop.of(run, run.options["orders"]), Lake(run.folder)
    match run.peer:
        case "debezium":
            source = shop.source()
            shop.alone(f"select pg_create_logical_replication_slot('{source.slot_name}', 'pgoutput')")
            shop.change(WARM_UP)
            shop.change(run.rows)
            receive(run, source, WARM_UP)
        case "staged":
            measure_changes(run, shop, partial(stage, run, shop.source(load="none")))
        case _:
            measure_changes(run, shop, partial(upserts(lake, shop.source(), lake.config).execute, "benchmark"))
            shop.check(lake.table())


class Changes(Protocol):
    """A table that is changed."""

    def change(self, changes: int) -> None:
        """Make so many changes, a multiple of 9,000."""


def measure_changes(run: Run, shop: Changes, work: Callable[[], object]) -> None:
    """Measure what is done with the changes, after it has been done with those of a warm-up."""
    work()
    shop.change(WARM_UP)
    work()
    shop.change(run.rows)
    run.measure(work)


def stage(run: Run, source: Source, parallelism: int = 1) -> Reader:
    """Run the receiver alone, from the slot to durable segments; it also records what is to be loaded."""
    reader = source.open(SourceContext(str(run.folder), parallelism))
    reader.start()
    reader.stop()
    return reader


def upserts(lake: Lake, source: Source, config: IcebergSinkConfig) -> Pipeline:
    """Return a job that upserts a source's changes into a table."""
    return lake.environment("local[2]").from_source(source).to_sink(IcebergSink(config.with_commit_mode(Upsert())))


@benchmark(
    rows=4_000_000,
    repeat=3,
    figures=(_FIGURE, "rows_per_second", "cpu_seconds", "driver_mb"),
    plots=(_FIGURE,),
    prepare=server,
    bounds=[Limit(_FIGURE, "rows per CPU-second", 2_000_000)],
)
def postgres_load(run: Run) -> None:
    """The initial load of a PostgreSQL table: rows read per CPU-second."""
    # The receiver is not measured.
    reader = stage(run, Shop.of(run, run.rows).source(), _PARALLELISM)
    begin = reader.initial_offset()
    splits, split_reader = reader.splits(begin, reader.latest_offset(begin, None, None)), reader.split_reader()
    for _ in split_reader.read(splits[0]):
        pass
    run.measure_scan(lambda: (batch for split in splits for batch in split_reader.read(split)))
    reader.stop()


@benchmark(
    repeat=3,
    # Changes a second; seconds to measure after the first epochs.
    options={"rate": 1_000, "seconds": 30.0},
    figures=("p50", "p99", "rows", "epochs", "cpu_seconds"),
    prepare=server,
    bounds=[Limit("p50", "seconds", most=1.5)],
)
def capture_latency(run: Run) -> None:
    """From a commit in PostgreSQL to the moment others can see it in the table, at 1,000 changes/s: p50 and p99."""
    lake = Lake(run.folder)
    feed = partial(_feed, _arrivals(run), run.options["rate"])
    record_waits(run, lake, feed, partial(run.apart, follow, options={**run.options, "lake": lake.folder}))


def follow(run: Run) -> None:
    """Follow the arrivals until a file says stop."""
    lake = Lake(run.options["lake"])
    source = Database(run.options["uri"]).source("public.arrivals", bounded=False)
    follow_until(run, upserts(lake, source, lake.named(FOLLOWED).with_flush_interval("1s")), lake.folder / "stop")


def _arrivals(run: Run) -> Database:
    """A table without a row."""
    shop = Database(run.options["uri"])
    shop.drop_slots()
    shop.run("drop publication if exists volley", "drop table if exists arrivals", _ARRIVALS)
    return shop


def _feed(shop: Database, rate: int, stop: Path) -> None:
    """Insert rows with the time of their insertion until a file says stop, in twenty transactions a second."""
    count = rate // _TRANSACTIONS
    with closing(psycopg2.connect(shop.uri)) as connection, connection.cursor() as cursor:
        connection.autocommit = True
        insert = partial(cursor.execute, _ARRIVE)
        steadily(lambda number: insert([number * count, (number + 1) * count - 1]), 1 / _TRANSACTIONS, stop)


@benchmark(
    # Changes a second; seconds without the catalog.
    options={"rate": 1_000, "seconds": 60.0},
    figures=("slot_mb", "rows", "caught_up_after"),
    plots=("slot_mb",),
    prepare=server,
    bounds=[Limit("slot_mb", "MB", most=64)],
)
def catalog_outage(run: Run) -> None:
    """The catalog is down while changes come: how far the slot falls behind, and whether all are there afterwards."""
    shop, rest, lake = _arrivals(run), RestFixture(run.folder).start(), Lake(run.folder)
    stop, seconds = run.folder / "stop", run.options["seconds"]
    storage, catalog = IcebergStorage.Local(str(rest.lake)), RestCatalog(rest.uri)
    config = replace(lake.named(FOLLOWED), storage=storage, catalog=catalog).with_flush_interval("1s")
    pipeline = upserts(lake, shop.source("public.arrivals", bounded=False), config)
    with ExitStack() as running:
        running.callback(rest.stop)
        job = running.enter_context(pipeline.start(FOLLOWED, outage=seconds * 2 + 60))
        with beside(stop, _feed, shop, run.options["rate"]):
            wait_until(lambda: job.progress.epochs > 3, 120, "the first epochs")
            rest.stop()
            behind, until = [0], time.monotonic() + seconds
            while time.monotonic() < until:
                behind.append(int(shop.rows(_BEHIND)[0][0]))
                time.sleep(0.5)
            rest.start()
            back = time.monotonic()
            stop.touch()
        ((expected,),) = shop.rows("select count(*) from arrivals")
        wait_until(lambda: job.progress.rows >= expected, seconds + 120, "all changes")
        caught_up = time.monotonic() - back
        job.stop()
        table = config.ref.load().scan(selected_fields=("id",)).to_arrow()
    assert sorted(table["id"].to_pylist()) == list(range(expected)), "rows are lost or doubled"
    run.record(slot_mb=max(behind) / 2**20, rows=expected, caught_up_after=caught_up)
