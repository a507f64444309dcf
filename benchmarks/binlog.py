"""Change capture from MariaDB by its binary log: what a change costs, beside Debezium without a sink."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import duckdb
import pymysql
from pyiceberg.table import Table

from benchmarks.benchmark import Benchmark, Limit, Run, benchmark
from benchmarks.capture import WARM_UP, measure_changes, stage, upserts
from benchmarks.lake import Lake
from benchmarks.peers.debezium import receive_binlog
from tests.servers.mariadb import MariaDb
from tests.servers.shared import own_server
from volley import MariaDbSource

_VOLLEY, _STAGED, _DEBEZIUM = "Volley, into an upsert", "Volley, staged only", "Debezium embedded, no sink"
_STATEMENT = 1_000
_FIGURE = "rows_per_cpu_second"
_TABLE = """
    create table orders (
        id bigint primary key, customer varchar(40) not null, at datetime(6) not null,
        total decimal(12, 2), units int, note text
    )
"""
_VALUES = """
    seq, concat('customer ', seq % 50000), timestamp '2026-01-01 00:00:00' + interval seq second,
    seq % 100000 / 100.0, seq % 97, if(seq % 4 > 0, concat('note of order ', seq), null)
"""


def _server(asked: Benchmark, folder: Path) -> Iterator[dict[str, Any]]:
    """A server beside the processes that are measured; yields its address."""
    with own_server(MariaDb(folder)) as server:
        yield {name: getattr(server, name) for name in ("host", "port", "user", "password")}


@dataclass(frozen=True)
class _Shop:
    """The orders of one run, in a table that is made anew."""

    address: dict[str, Any]
    new: Iterator[int]  # the first ids of statements to come

    @classmethod
    def of(cls, run: Run, rows: int) -> _Shop:
        """Make the table, with so many orders at first."""
        address = {name: run.options[name] for name in ("host", "port", "user", "password")}
        shop = cls(address, count(rows + 1, _STATEMENT))
        shop.run("create database if not exists shop", "drop table if exists shop.orders", "use shop", _TABLE)
        shop.run("use shop", f"insert into orders select {_VALUES} from seq_1_to_{rows}")
        return shop

    def run(self, *statements: str) -> None:
        """Run statements, and commit."""
        with closing(pymysql.connect(**self.address)) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            connection.commit()

    def source(self, **settings: Any) -> MariaDbSource:
        return MariaDbSource(**self.address, server_id=4_711, tables="shop.orders", bounded=True, **settings)

    def change(self, changes: int) -> None:
        """Make changes, a multiple of 9,000: five in nine insert, three update, one deletes; 1,000 a transaction."""
        for number in range(changes // (9 * _STATEMENT)):
            inserted = [next(self.new) for _ in range(5)]
            for low in inserted:
                self.run("use shop", f"insert into orders select {_VALUES} from seq_{low}_to_{low + _STATEMENT - 1}")
            for part in range(3):
                where = _ids(1 + (number * 3 + part) * _STATEMENT)
                self.run("use shop", f"update orders set total = total + 1, units = units + 1 where {where}")
            self.run("use shop", f"delete from orders where {_ids(inserted[0])}")

    def check(self, table: Table) -> None:
        """Check that a copy has the same rows, by count and sums."""
        copied = duckdb.from_arrow(table.scan(selected_fields=("id", "total", "units")).to_arrow())
        sums = "count(*), sum(id), sum(total), sum(units)"
        with closing(pymysql.connect(**self.address)) as connection, connection.cursor() as cursor:
            cursor.execute(f"select {sums} from shop.orders")
            assert [*map(float, copied.aggregate(sums).fetchall()[0])] == [*map(float, cursor.fetchone())]


def _ids(low: int) -> str:
    return f"id between {low} and {low + _STATEMENT - 1}"


@benchmark(
    rows=1_800_000,
    repeat=3,
    peers={"volley": _VOLLEY, "staged": _STAGED, "debezium": _DEBEZIUM},
    # The orders in the table at first.
    options={"orders": 1_000_000},
    figures=(_FIGURE, "rows_per_second", "cpu_seconds", "worker_mb", "driver_mb"),
    plots=(_FIGURE,),
    prepare=_server,
    bounds=[Limit(_FIGURE, "changes per CPU-second", 2.5, of=_VOLLEY, beside=_DEBEZIUM)],
)
def mariadb_to_iceberg(run: Run) -> None:
    """Changes of a MariaDB table into an Iceberg upsert, beside Debezium without a sink: per CPU-second."""
    shop, lake = _Shop.of(run, run.options["orders"]), Lake(run.folder)
    match run.peer:
        case "debezium":
            receive_binlog(run, shop.address, "shop.orders", shop.change, WARM_UP)
        case "staged":
            measure_changes(run, shop, partial(stage, run, shop.source(load="none")))
        case _:
            measure_changes(run, shop, partial(upserts(lake, shop.source(), lake.config).execute, "benchmark"))
            shop.check(lake.table())
