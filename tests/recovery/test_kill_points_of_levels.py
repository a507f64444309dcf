"""A job with keyed steps behind each other is killed at every point: all rows are those of one query in DuckDB."""

from __future__ import annotations

import random
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.drivers import Drivers
from tests.duck import query
from tests.recovery import levels_job
from tests.recovery.rows import START
from tests.recovery.runs import load
from tests.tiers import deaths
from volley import Job

pytestmark = pytest.mark.usefixtures("spark")

FILES, ROWS, SECONDS = 5, 200, 100
SCHEMA = pa.schema([("user", pa.string()), ("count", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
MASTER = "local[2,4]"

TENS = """select time_bucket(interval '10 seconds', "at") as window_start, "user", count(*) as n,
    sum(count)::bigint as total from events group by all"""
BUSIEST = f"""with tens as ({TENS})
    select window_start, "user", n from tens where (window_start, n) in
        (select (window_start, max(n)) from tens group by window_start)"""
RANKS = f"""with ranks as (select time_bucket(interval '1 minute', window_start) as window_start, "user",
    count(*) as times from ({BUSIEST}) where "user" is not null group by all)
    from ranks union all from ranks where times > 3"""
ENDED = """select time_bucket(interval '1 minute', over) as window_start, count(*) as visits, sum(n)::bigint as n from (
    select max("at") + interval '5 seconds' as over, count(*) as n from (
        select *, sum(begins) over (partition by "user" order by "at") as session from (
            select *, coalesce("at" - lag("at") over (partition by "user" order by "at") >= interval '5 seconds',
                true)::int as begins from events)) group by "user", session)
    group by 1"""


def write_input(folder: Path) -> pa.Table:
    """Files whose rows come in any order, some of them behind rows of the file before; none is late."""
    dice = random.Random(7)
    (folder / "in").mkdir()
    tables = []
    for file in range(FILES):
        behind = levels_job.LATENESS if file else 0
        seconds = [SECONDS * file + dice.randrange(-behind + 1, SECONDS) for _ in range(ROWS)]
        columns = {
            "user": [dice.choice("abcd") for _ in seconds],
            "count": [dice.randrange(9) for _ in seconds],
            "at": [START + timedelta(seconds=max(second, 0), microseconds=file * ROWS + place)
                   for place, second in enumerate(seconds)],
        }  # fmt: skip
        tables.append(pa.table(columns, SCHEMA))
        pq.write_table(tables[-1], folder / "in" / f"{file}.parquet")
    return pa.concat_tables(tables)


KILLS = ["in-task@0,after-partials@1", "after-merge@1", "after-state@2", "between-commits@3", "after-commit@4"]


@pytest.mark.parametrize("kills", deaths(KILLS, 2))
def test_killed_at_every_point(drivers: Drivers, tmp_path: Path, kills: list[str]) -> None:
    events = write_input(tmp_path)
    for points in kills:
        drivers.die(points, levels_job.main, tmp_path, MASTER)
    check(levels_job.main(tmp_path), tmp_path, events)


def test_killed_while_its_states_are_divided_anew(drivers: Drivers, tmp_path: Path) -> None:
    events = write_input(tmp_path)
    drivers.die("after-state@1", levels_job.main, tmp_path, MASTER)
    drivers.die("after-rescaling@0", levels_job.main, tmp_path, MASTER, 5)
    drivers.die("after-merge@3", levels_job.main, tmp_path, MASTER, 5)
    check(levels_job.main(tmp_path, buckets=7), tmp_path, events)


def check(job: Job, folder: Path, events: pa.Table) -> None:
    """Compare the tables with DuckDB's queries."""
    assert job.metrics.rows_late == 0
    for table, expected in {"tens": TENS, "ended": ENDED, "busiest": BUSIEST, "ranks": RANKS}.items():
        rows = query(expected, events=events).to_arrow_table()
        found = load(folder, f"db.{table}").scan().to_arrow().select(rows.column_names)
        assert sorted(map(repr, found.to_pylist())) == sorted(map(repr, rows.to_pylist())), table
