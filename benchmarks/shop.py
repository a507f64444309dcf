"""A database of PostgreSQL for the benchmarks of change capture: orders, and the changes that clients make."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import duckdb
from pyiceberg.table import Table

from benchmarks.benchmark import Benchmark
from benchmarks.run import Run
from tests.captured import Database, database
from tests.servers.postgres import Postgres
from tests.servers.shared import own_server

_TABLE = """
    create table orders (
        id bigint primary key, customer text not null, at timestamptz not null,
        total numeric(12, 2), units int, note text
    )
"""
_VALUES = """
    n, 'customer ' || n % 50000, timestamptz '2026-01-01' + n * interval '1 second', n % 100000 / 100.0, n % 97,
    case when n % 4 > 0 then 'note of order ' || n end
"""
_STATEMENT = 1_000


def server(benchmark: Benchmark, folder: Path) -> Iterator[dict[str, Any]]:
    """A server beside the processes that are measured; yields its address."""
    with own_server(Postgres(folder)) as postgres, database(postgres) as shop:
        yield {"uri": shop.uri}


@dataclass(frozen=True)
class Shop(Database):
    """The orders of one run, in a table that is made anew."""

    new: Iterator[int]  # the first ids of statements to come

    @classmethod
    def of(cls, run: Run, rows: int) -> Shop:
        """Make the table, with so many orders at first."""
        shop = cls(run.options["uri"], count(rows + 1, _STATEMENT))
        shop.drop_slots()
        shop.run(
            "drop publication if exists volley",
            "drop table if exists orders",
            _TABLE,
            f"insert into orders select {_VALUES} from generate_series(1, {rows}) n",
            "create publication volley for table orders",
        )
        shop.alone("vacuum analyze orders")
        return shop

    def change(self, changes: int) -> None:
        """Make changes, a multiple of 9,000: five in nine insert, three update, one deletes; 1,000 a transaction."""
        for number in range(changes // (9 * _STATEMENT)):
            inserted = [next(self.new) for _ in range(5)]
            for low in inserted:
                self.run(f"insert into orders select {_VALUES} from generate_series({low}, {low + _STATEMENT - 1}) n")
            for part in range(3):
                where = _ids(1 + (number * 3 + part) * _STATEMENT)
                self.run(f"update orders set total = total + 1, units = units + 1 where {where}")
            self.run(f"delete from orders where {_ids(inserted[0])}")

    def check(self, table: Table) -> None:
        """Check that a copy has the same rows, by count and sums."""
        columns = ["id", "total", "units"]
        copied = duckdb.from_arrow(table.scan(selected_fields=tuple(columns)).to_arrow())
        sums = "count(*), sum(id), sum(total), sum(units)"
        assert copied.aggregate(sums).fetchall() == self.rows(f"select {sums} from orders"), "the copy is another"


def _ids(low: int) -> str:
    return f"id between {low} and {low + _STATEMENT - 1}"
