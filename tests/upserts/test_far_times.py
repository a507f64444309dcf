"""Dates and times beyond the years 1 to 9999, which Parquet and Iceberg have and Python has not."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from tests.upserts.conftest import MakeLake
from tests.upserts.lake import Lake
from tests.upserts.test_partition_values import by_duckdb
from volley.iceberg import Append, Overwrite, Partitioning, Upsert
from volley.iceberg.layout.partitioning import Granularity

# Days and microseconds since 1970.
DAYS = [-800_000, 2_932_897, 0, 2_932_896, -719_163]
MICROS = [-(2**56), 253_402_300_800_000_000, 0, 2**58, -62_135_596_800_000_001]
DAY = 86_400_000_000
SCHEMA = pa.schema(
    {"id": pa.int64(), "day": pa.date32(), "local": pa.timestamp("us"), "moment": pa.timestamp("us", "UTC")}
)
ROWS = [{"id": n, "day": day, "local": at, "moment": at} for n, (day, at) in enumerate(zip(DAYS, MICROS, strict=True))]
FILTERS = {
    "day < date '0001-01-01'": [0, 4],
    "day > date '9999-12-31'": [1],
    "day = date '9999-12-31'": [3],
    "local > timestamp '9999-12-31 23:59:59.999999'": [1, 3],
    "moment < timestamptz '0001-01-01 00:00:00+00'": [0, 4],
}
SPREAD = [
    Partitioning.identity("day"),
    Partitioning.identity("local"),
    Partitioning.bucket("moment", n=4),
    Partitioning.time("day", granularity="year"),
    Partitioning.time("local", granularity="month"),
    Partitioning.time("moment", granularity="day"),
    Partitioning.time("moment", granularity="hour"),
]


def found(lake: Lake) -> dict[str, list[int]]:
    return dict(zip(FILTERS, map(sorted, by_duckdb(lake, list(FILTERS))), strict=True))


@pytest.mark.parametrize("parts", [[], [Partitioning.identity("day")], SPREAD[1:5], SPREAD[5:6], SPREAD[6:]], ids=len)
def test_rows_are_found_by_times_beyond_pythons(parts: list[Partitioning], make_lake: MakeLake) -> None:
    lake = make_lake(Overwrite.dynamic() if parts else Append(), SCHEMA)
    lake.config = lake.config.with_partitioning(parts or "none")
    lake.epoch(ROWS)
    if parts:
        lake.epoch(ROWS[1:])
    assert found(lake) == FILTERS


@pytest.mark.parametrize("strategy", ["copy_on_write", "merge_on_read"])
@pytest.mark.parametrize("key", ["day", "local", "moment"])
def test_keys_beyond_pythons_times_are_upserted(key: str, strategy: Any, make_lake: MakeLake) -> None:
    lake = make_lake(Upsert([key], strategy=strategy), SCHEMA)
    lake.epoch(ROWS[:3], ROWS[3:])
    lake.epoch([ROWS[0] | {"id": 10}, ROWS[1] | {"id": 11}])
    (ids,) = by_duckdb(lake, ["true"])
    assert sorted(ids) == [2, 3, 4, 10, 11]


@pytest.mark.parametrize("granularity", ["year", "month", "day"])
@pytest.mark.parametrize("key", ["day", "local", "moment"])
def test_the_first_and_the_last_of_pythons_days_are_upserted_by_partition(
    key: str, granularity: Granularity, make_lake: MakeLake
) -> None:
    lake = make_lake(Upsert([key]), SCHEMA)
    lake.config = lake.config.with_partitioning(Partitioning.time(key, granularity=granularity))
    days = [-719_162, 0, 2_932_896, *DAYS[:2]]
    rows = [{"id": n, "day": day, "local": day * DAY, "moment": day * DAY} for n, day in enumerate(days)]
    lake.epoch(rows)
    for n in range(len(days)):
        lake.epoch([rows[n] | {"id": n + 10}])
    lake.epoch([rows[0] | {"id": 20}, rows[2] | {"id": 22}])
    (ids,) = by_duckdb(lake, ["true"])
    assert sorted(ids) == [11, 13, 14, 20, 22]
