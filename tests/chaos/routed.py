"""Chaos of a job that upserts many tables, of which some are made, widened, dropped and put back on the way."""

from __future__ import annotations

import random
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog

from tests.chaos.mirror import next_epoch
from tests.drivers import Drivers
from tests.sinks import config_of
from volley import Environment, FileSource, IcebergSink, Job, pack_rows
from volley.iceberg import Upsert
from volley.task.failpoints import EXECUTOR_TASK_POINT, POINTS, TASK_POINTS

__all__ = ["Model", "run", "write"]

_TASK_POINTS = (*TASK_POINTS, EXECUTOR_TASK_POINT)
# Tables are committed one after the other, so that a driver dies between any two.
_POINTS = (*POINTS, *_TASK_POINTS, *(f"after-route-{number}" for number in range(1, 9)))
_TABLES_A_FILE = 8
_IDS = 60
_ROWS = 12


def write(folder: Path) -> Job:
    """Write the rows of each file to the tables that they name, one file an epoch."""
    environment = Environment("local[2]", checkpoint_dir=str(folder / "checkpoints"))
    source = FileSource(folder / "in", format="parquet", max_files_per_epoch=1)
    config = config_of(folder, "{name}")
    config = config.with_commit_mode(Upsert(["id"], order_by="seq", op_field="op"))
    sink = IcebergSink(config).routed(rows="rows", key_fields="primary_key", on_error="park", commits_at_once=1)
    return environment.from_source(source).to_sink(sink).execute("many")


class Model:
    """The input, and what the tables must have in the end.

    Args:
        folder: Where the files go.
        dice: Chooses rows, tables and columns.
        tables: How many tables there are from the start.
        made: How many come on the way.
        columns: How many columns come on the way, spread over all tables.
    """

    def __init__(self, folder: Path, dice: random.Random, tables: int = 40, made: int = 10, columns: int = 50) -> None:
        self._folder = folder / "in"
        self._folder.mkdir(parents=True)
        self._dice = dice
        self.rows: dict[str, dict[int, dict[str, Any]]] = {f"t{number}": {} for number in range(tables)}
        self._columns: dict[str, list[str]] = {name: ["v"] for name in self.rows}
        self._to_make, self._to_add = made, columns
        self._files = self._seq = 0

    def feed(self) -> None:
        """Write a file with rows for some tables; the first one has rows for all."""
        names = (
            list(self.rows)
            if self._files == 0
            else self._dice.sample(list(self.rows), min(_TABLES_A_FILE, len(self.rows)))
        )
        if self._files and self._to_make:
            self._to_make -= 1
            names.append(f"t{len(self.rows)}")
            self.rows[names[-1]], self._columns[names[-1]] = {}, ["v"]
        packets = [self._packet(name) for name in names]
        if self._files and self._to_add:
            # The same file has rows of the table before and after it got the column.
            self._to_add -= 1
            self._columns[names[0]].append(f"c{self._to_add}")
            packets.append(self._packet(names[0]))
        pq.write_table(pa.Table.from_pylist(packets), self._folder / f"{self._files:06}.parquet")
        self._files += 1

    @property
    def is_whole(self) -> bool:
        """Whether all tables and columns have come."""
        return not self._to_make and not self._to_add

    def _packet(self, name: str) -> dict[str, Any]:
        rows = [self._row(name) for _ in range(_ROWS)]
        columns = {"id": pa.int64(), "seq": pa.int64(), "op": pa.string()}
        schema = pa.schema({**columns, **dict.fromkeys(self._columns[name], pa.string())})
        return {"name": name, "rows": pack_rows(pa.RecordBatch.from_pylist(rows, schema), key_fields=["id"])}

    def _row(self, name: str) -> dict[str, Any]:
        self._seq += 1
        key, table = self._dice.randrange(_IDS), self.rows[name]
        row = {"id": key, "seq": self._seq, **{column: f"{column} {self._seq}" for column in self._columns[name]}}
        if self._dice.random() < 0.2:
            table.pop(key, None)
            return {**row, "op": "d"}
        table[key] = row
        return {**row, "op": "u"}

    def differing(self, catalog: Catalog, namespace: str = "db") -> list[str]:
        """Return the tables whose rows differ in any column."""
        return [
            name
            for name, rows in self.rows.items()
            if _plain(catalog, f"{namespace}.{name}") != [rows[id] for id in sorted(rows)]
        ]


def _plain(catalog: Catalog, name: str) -> list[dict[str, Any]]:
    """The rows of a table by their ids, without columns that they lack."""
    rows = catalog.load_table(name).scan().to_arrow().sort_by("id").to_pylist()
    return [{column: value for column, value in row.items() if value is not None} for row in rows]


def run(drivers: Drivers, folder: Path, kills: int, seed: int, check_every: int = 10, **model: int) -> Counter[str]:
    """Kill the job until it has died so often; return how often it died at each point.

    Args:
        drivers: Run the job.
        folder: An empty folder.
        kills: How often a driver dies.
        seed: Repeats the schedule.
        check_every: After so many deaths the job runs to its end, and all rows of all tables are compared.
        model: How many tables and columns there are.

    Raises:
        AssertionError: If a table differs.
    """
    dice, died = random.Random(seed), Counter[str]()
    input, gone = Model(folder, dice, **model), dict[str, str]()
    input.feed()
    assert drivers.run(write, folder) == 0
    catalog = SqlCatalog("volley", uri=f"sqlite:///{folder}/lake/catalog.db?timeout=30")
    while died.total() < kills:
        input.feed()
        input.feed()
        _drop_or_put_back(catalog, dice, gone)
        point, epoch = dice.choice(_POINTS), next_epoch(folder, "many")
        armed = f"{point}@{epoch},{point}@{epoch + 1}"
        status = drivers.run(write, folder, failpoint=armed, kill_driver=point in _TASK_POINTS)
        assert status in (0, -signal.SIGKILL), f"a run with {armed} ended with status {status}"
        died[point] += status != 0
        if status != 0 and (died.total() % check_every == 0 or died.total() == kills):
            while gone:
                catalog.register_table(*gone.popitem())
            input.feed()  # the tables that were gone catch up in the next epoch
            assert drivers.run(write, folder) == 0
            differing = input.differing(catalog)
            print(f"chaos: {died.total()} kills, {len(input.rows)} tables, differ: {differing}", flush=True)
            assert differing == []
    assert input.is_whole or kills < 50
    catalog.close()
    return +died


def _drop_or_put_back(catalog: SqlCatalog, dice: random.Random, gone: dict[str, str]) -> None:
    """Drop one table now and then, and put it back later."""
    if gone and dice.random() < 0.5:
        catalog.register_table(*gone.popitem())
    elif dice.random() < 0.3:
        name = ".".join(dice.choice(catalog.list_tables("db")))
        gone[name] = catalog.load_table(name).metadata_location
        catalog.drop_table(name)
