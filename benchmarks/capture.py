"""Change capture from PostgreSQL: what a change and a loaded row cost, how soon a change can be seen, an outage."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import psycopg2

from benchmarks.benchmark import benchmark
from benchmarks.epoch_latency import FOLLOWED, Watch, beside, waits_to_be_seen
from benchmarks.lake import Lake
from benchmarks.peers.debezium import receive
from benchmarks.rows import Bound, Row
from benchmarks.run import Run
from benchmarks.shop import Shop, server
from tests.captured import Database
from tests.servers.rest_fixture import RestFixture
from tests.waiting import wait_until
from volley import (
    Environment,
    IcebergSink,
    IcebergSinkConfig,
    IcebergStorage,
    Pipeline,
    PostgresSource,
    SourceContext,
)
from volley.iceberg import RestCatalog, Upsert
from volley.source import Split

_VOLLEY, _STAGED, _DEBEZIUM = "Volley, into an upsert", "Volley, staged only", "Debezium embedded, no sink"
_LEAST_PER_CPU_SECOND = 120_000
_LEAST_TIMES = 3
_LEAST_LOADED = 2_000_000
_LONGEST_WAIT = 1.5
_MOST_BEHIND = 64
_WARM_UP = 90_000
_PARALLELISM = 2
_ARRIVALS = "create table arrivals (id bigint primary key, arrived double precision)"
_ARRIVE = "insert into arrivals select n, extract(epoch from clock_timestamp()) from generate_series(%s, %s) n"
_BEHIND = """
    select coalesce(max(pg_wal_lsn_diff(pg_current_wal_lsn(), confirmed_flush_lsn)), 0) from pg_replication_slots
    where database = current_database()
"""
_FIGURE = "rows_per_cpu_second"


def _bounds(row: Row) -> Iterator[Bound]:
    if row.peer == _VOLLEY:
        yield from row.at_least(_FIGURE, _LEAST_PER_CPU_SECOND, "changes per CPU-second")
        times = row.times(_FIGURE, lambda other: other.peer == _DEBEZIUM)
        if times is not None:
            yield Bound(
                f"{row.what}: changes per CPU-second", times, _LEAST_TIMES, "× Debezium's", times >= _LEAST_TIMES
            )


@benchmark(
    rows=1_800_000,
    repeat=3,
    peers={"volley": _VOLLEY, "staged": _STAGED, "debezium": _DEBEZIUM},
    # The orders in the table at first.
    options={"orders": 1_000_000},
    figures=(_FIGURE, "rows_per_second", "cpu_seconds", "worker_mb", "driver_mb"),
    plots=(_FIGURE,),
    prepare=server,
    bounds=_bounds,
)
def postgres_to_iceberg(run: Run) -> None:
    """Changes of a PostgreSQL table into an Iceberg upsert, beside Debezium without a sink: per CPU-second."""
    shop, warm_up = Shop.of(run, run.options["orders"]), _WARM_UP
    first = run.options["orders"] + 1

    def change(*counts: int) -> None:
        """Make changes, which follow those before."""
        nonlocal first
        for count in counts:
            shop.change(first, count)
            first += count

    if run.peer == "debezium":
        source = _with_slot(shop)
        change(warm_up, run.rows)
        receive(run, source, warm_up)
    elif run.peer == "staged":
        _stage(run, shop.source(load="none"), change)
    else:
        pipeline = _pipeline(run, shop.source())
        pipeline.execute("benchmark")
        change(warm_up)
        pipeline.execute("benchmark")
        change(run.rows)
        run.measure(lambda: {"epochs": pipeline.execute("benchmark").progress.epochs})
        shop.check(Lake(run.folder).table())


def _with_slot(shop: Shop) -> PostgresSource:
    source = shop.source()
    shop.alone(f"select pg_create_logical_replication_slot('{source.slot_name}', 'pgoutput')")
    return source


def _pipeline(run: Run, source: PostgresSource) -> Pipeline:
    lake = Lake(run.folder)
    environment = Environment("local[2]", checkpoint_dir=str(lake.folder / "checkpoints"))
    return environment.from_source(source).to_sink(IcebergSink(lake.config.with_commit_mode(Upsert())))


def _stage(run: Run, source: PostgresSource, change: Callable[..., None]) -> None:
    """Measure the receiver alone: from the slot to durable segments."""

    def stage() -> None:
        reader = source.open(SourceContext(str(run.folder)))
        reader.start()
        reader.stop()

    stage()
    change(_WARM_UP)
    stage()
    change(run.rows)
    run.measure(stage)


@benchmark(
    rows=4_000_000,
    repeat=3,
    peers={"volley": "Volley"},
    figures=(_FIGURE, "rows_per_second", "cpu_seconds", "driver_mb"),
    plots=(_FIGURE,),
    prepare=server,
    bounds=lambda row: row.at_least(_FIGURE, _LEAST_LOADED, "rows per CPU-second"),
)
def postgres_load(run: Run) -> None:
    """The initial load of a PostgreSQL table: rows read per CPU-second."""
    source = Shop.of(run, run.rows).source()
    reader = source.open(SourceContext(str(run.folder), _PARALLELISM))
    # The receiver records what is to be loaded; then it ends, so that it is not measured.
    reader.start()
    reader.stop()
    end = reader.latest_offset(reader.initial_offset(), None, None)
    splits = reader.splits(reader.initial_offset(), end)

    def read(chosen: list[Split]) -> int:
        return sum(batch.num_rows for split in chosen for batch in reader.split_reader().read(split))

    read(splits[:1])
    found = run.measure(lambda: {"rows": read(splits)})
    reader.stop()
    assert found["rows"] == run.rows, "rows are missing"


@benchmark(
    repeat=3,
    peers={"volley": "Volley"},
    # Changes a second; seconds to measure after the first epochs.
    options={"rate": 1_000, "seconds": 30.0},
    figures=("p50", "p99", "rows", "epochs", "cpu_seconds"),
    plots=("p50", "p99"),
    prepare=server,
    bounds=lambda row: row.below("p50", _LONGEST_WAIT, "seconds"),
)
def capture_latency(run: Run) -> None:
    """From a commit in PostgreSQL to the moment others can see it in the table, at 1,000 changes/s: p50 and p99."""
    lake, shop = Lake(run.folder), Database(run.options["uri"])
    shop.drop_slots()
    shop.run("drop publication if exists volley", "drop table if exists arrivals", _ARRIVALS)
    stop, watch = lake.folder / "stop", Watch(lake.folder / "catalog.db")
    with beside(_feed, shop, run.options["rate"], stop), beside(watch.run, run.options["seconds"], stop):
        (found,) = run.apart(follow, options={**run.options, "lake": lake.folder})
    waits, epochs = waits_to_be_seen(lake.table(FOLLOWED), watch.seen)
    p50, p99 = (float(each) for each in np.percentile(waits, [50, 99]))
    run.record(p50=p50, p99=p99, rows=len(waits), epochs=epochs, cpu_seconds=found.figures["cpu_seconds"])


def follow(run: Run) -> None:
    """Follow the arrivals until a file says stop."""
    lake = Lake(run.options["lake"])
    source = Database(run.options["uri"]).source("public.arrivals", bounded=False)
    config = replace(lake.config, table=FOLLOWED).with_commit_mode(Upsert()).with_flush_interval("1s")
    environment = Environment("local[2]", checkpoint_dir=str(lake.folder / "checkpoints"))

    def work() -> None:
        with environment.from_source(source).to_sink(IcebergSink(config)).start(FOLLOWED) as job:
            while not (lake.folder / "stop").exists():
                assert not job.wait(0.05), job.exception

    run.measure(work, rows=1)


def _feed(shop: Database, rate: int, stop: Path) -> None:
    """Insert rows with the time of their insertion until told to stop, in twenty transactions a second."""
    count, number, due = rate // 20, 0, time.time()
    with closing(psycopg2.connect(shop.uri)) as connection, connection.cursor() as cursor:
        connection.autocommit = True
        while not stop.exists():
            cursor.execute(_ARRIVE, [number * count, (number + 1) * count - 1])
            number, due = number + 1, due + 0.05
            time.sleep(max(0.0, due - time.time()))


@benchmark(
    peers={"volley": "Volley"},
    # Changes a second; seconds without the catalog.
    options={"rate": 1_000, "seconds": 60.0},
    figures=("slot_mb", "rows", "caught_up_after"),
    plots=("slot_mb",),
    prepare=server,
    bounds=lambda row: row.below("slot_mb", _MOST_BEHIND, "MB"),
)
def catalog_outage(run: Run) -> None:
    """The catalog is down while changes come: how far the slot falls behind, and whether all are there afterwards."""
    shop, rest = Database(run.options["uri"]), RestFixture(run.folder).start()
    shop.drop_slots()
    shop.run("drop publication if exists volley", "drop table if exists arrivals", _ARRIVALS)
    stop, seconds = run.folder / "stop", run.options["seconds"]
    storage = IcebergStorage.Local(str(rest.lake))
    config = IcebergSinkConfig(namespace="b", table=FOLLOWED, storage=storage, catalog=RestCatalog(rest.uri))
    sink = IcebergSink(config.with_commit_mode(Upsert()).with_flush_interval("1s"))
    environment = Environment("local[2]", checkpoint_dir=str(run.folder / "checkpoints"))
    stream = environment.from_source(shop.source("public.arrivals", bounded=False)).to_sink(sink)
    with stream.start(FOLLOWED, outage=seconds * 2 + 60) as job:
        with beside(_feed, shop, run.options["rate"], stop):
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
    table = sink.table().scan(selected_fields=("id",)).to_arrow()
    assert sorted(table["id"].to_pylist()) == list(range(expected)), "rows are lost or doubled"
    run.record(slot_mb=max(behind) / 2**20, rows=expected, caught_up_after=caught_up)
