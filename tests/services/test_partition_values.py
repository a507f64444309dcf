"""Rows are found by Spark with Iceberg's runtime, and by pyiceberg, if it is asked for a value at its type's border."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.expressions import EqualTo, IsNaN, Reference

from tests.servers.iceberg_spark import IcebergSpark
from tests.upserts import test_far_times
from tests.upserts.lake import Lake as WrittenLake
from tests.upserts.values import ROWS, SCHEMA, VALUES, as_sql, ids_of, make_table, wanted
from volley.iceberg import Append, Partitioning

# Spark has no type for the time of a day.
NAMES = [name for name in VALUES if name != "clock"]
COLUMNS = ["id", *NAMES]


@pytest.fixture(scope="module", params=["partitioned", "whole"])
def lake(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WrittenLake]:
    """A row an epoch with manifests that are merged; or all rows in one file, found by the bounds of its columns."""
    schema = pa.schema([SCHEMA.field(name) for name in COLUMNS])
    merged = {"commit_manifest-merge_enabled": "true", "commit_manifest_min-count-to-merge": "2"}
    made = WrittenLake(tmp_path_factory.mktemp("lake"), Append(), schema, **merged)
    rows = [{name: row[name] for name in COLUMNS} for row in ROWS]
    make_table(made, *(NAMES if request.param == "partitioned" else ()))
    for epoch in [[row] for row in rows] if request.param == "partitioned" else [rows]:
        made.epoch(epoch)
    yield made
    made.close()


def test_spark_finds_each_row_by_each_of_its_values(lake: WrittenLake, iceberg_spark: IcebergSpark) -> None:
    filters = wanted(NAMES)
    queries = [
        " union all ".join(
            f"select {number} as filter, id from volley.db.events where {as_sql(name, value, spark=True)}"
            for number, (name, value) in enumerate(filters)
            if name == column
        )
        for column in NAMES
    ]
    folder = Path(lake.table().location().removeprefix("file://")).parent.parent
    found: list[set[int]] = [set() for _ in filters]
    for rows in iceberg_spark.sql(folder / "catalog.db", *queries):
        for row in rows:
            found[row["filter"]].add(row["id"])
    for (name, value), ids in zip(filters, found, strict=True):
        # Iceberg tells -0.0 from 0.0 where it leaves out files, SQL does not.
        assert ids == ids_of(name, value) or (value == 0 and ids and ids <= ids_of(name, value)), (name, value)


@pytest.mark.parametrize(("name", "value"), [("double", 0.1), ("double", 1e300), ("double", math.nan), ("real", 1.5)])
def test_pyiceberg_finds_rows_by_floats(name: str, value: Any, lake: WrittenLake) -> None:
    asked = IsNaN(term=Reference(name)) if math.isnan(value) else EqualTo(term=Reference(name), value=value)
    assert set(lake.table().scan(row_filter=asked).to_arrow()["id"].to_pylist()) == ids_of(name, value)


@pytest.mark.parametrize("parts", [[], [Partitioning.identity("day"), Partitioning.time("moment")]], ids=len)
def test_spark_finds_rows_by_times_beyond_pythons(
    parts: list[Partitioning], iceberg_spark: IcebergSpark, tmp_path: Path
) -> None:
    lake = WrittenLake(tmp_path, Append(), test_far_times.SCHEMA)
    lake.config = lake.config.with_partitioning(parts or "none")
    lake.epoch(test_far_times.ROWS)
    filters = [each.replace("timestamptz", "timestamp") for each in test_far_times.FILTERS]
    queries = (f"select id from volley.db.events where {each}" for each in filters)
    found = iceberg_spark.sql(tmp_path / "lake" / "catalog.db", *queries)
    assert [sorted(row["id"] for row in rows) for rows in found] == list(test_far_times.FILTERS.values())
    lake.close()
