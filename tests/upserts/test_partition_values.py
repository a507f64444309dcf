"""Partition values are right in every manifest, however it came about: rows are found by a filter on the value."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from tests.duck import query
from tests.tiers import some
from tests.upserts.conftest import MakeLake
from tests.upserts.lake import Lake
from tests.upserts.values import ROWS, SCHEMA, VALUES, Row, as_sql, ids_of, make_table, wanted
from volley import ConfigError
from volley.iceberg import Append, Overwrite, Upsert
from volley.iceberg.commit.overwrite import check_named
from volley.iceberg.layout.partitions import exact
from volley.iceberg.modes import CommitMode

MERGED = {"commit_manifest-merge_enabled": "true", "commit_manifest_min-count-to-merge": "2"}
OLD: list[Row] = [row | {"id": row["id"] + 100} for row in ROWS]


def appended(make_lake: MakeLake) -> Lake:
    lake = made(make_lake, Append())
    lake.epoch(ROWS[:3], ROWS[3:6])
    lake.epoch(ROWS[6:])
    return lake


def merged(make_lake: MakeLake) -> Lake:
    lake = made(make_lake, Append(), **MERGED)
    for row in ROWS:
        lake.epoch([row])
    return lake


def replaced(make_lake: MakeLake) -> Lake:
    """Each partition twice, the last one by itself, so that the manifest of all the others is written anew."""
    lake = made(make_lake, Overwrite.dynamic())
    lake.epoch(OLD)
    lake.epoch(ROWS)
    lake.epoch(ROWS[2:3])
    return lake


def copied(make_lake: MakeLake) -> Lake:
    lake = made(make_lake, Upsert(["id"], strategy="copy_on_write"))
    lake.epoch(ROWS, [ROWS[1] | {"id": 9}])
    lake.epoch([ROWS[0] | {"id": 9}])
    lake.epoch([ROWS[0] | {"id": 0}])
    return lake


def marked(make_lake: MakeLake) -> Lake:
    lake = made(make_lake, Upsert(["id"], strategy="merge_on_read"), **MERGED)
    lake.epoch(ROWS, [row | {"id": row["id"] + 10} for row in ROWS])
    lake.epoch([row | {"id": row["id"] + 10} for row in ROWS])
    return lake


def made(make_lake: MakeLake, mode: CommitMode, **properties: str) -> Lake:
    lake = make_lake(mode, SCHEMA, **properties)
    make_table(lake, *VALUES)
    return lake


WAYS = [appended, merged, replaced, copied, marked]


@pytest.mark.parametrize("way", some(WAYS))
def test_rows_are_found_by_the_value_of_their_partition(way: Callable[[MakeLake], Lake], make_lake: MakeLake) -> None:
    lake = way(make_lake)
    filters = wanted(list(VALUES))
    asked = [as_sql(name, value, spark=False) for name, value in filters]
    for (name, value), found in zip(filters, by_duckdb(lake, asked), strict=True):
        assert {each % 10 for each in found} - {9} == ids_of(name, value), (name, value)
    assert sorted(row["id"] for row in lake.rows() if row["id"] < 9) == list(range(9))


@pytest.mark.parametrize("way", WAYS)
def test_manifests_have_the_very_values(way: Callable[[MakeLake], Lake], make_lake: MakeLake) -> None:
    """As an Avro reader of others sees them, and as pyiceberg plans by them."""
    lake = way(make_lake)
    table = lake.table()
    ways: tuple[list[Any], list[Any]] = [], []
    for manifest in table.inspect.manifests()["path"].to_pylist():
        with open(manifest.removeprefix("file://"), "rb") as file:
            everything: list[Any] = [*fastavro.reader(file)]
        entries = [entry for entry in everything if entry["status"] != 2]
        ways[0].extend(entry["data_file"]["partition"]["double"] for entry in entries)
    ways[1].extend(task.file.partition[0] for task in table.scan().plan_files())
    for found in ways:
        assert {exact(each) for each in found} == {exact(row["double"]) for row in ROWS}


def by_duckdb(lake: Lake, filters: list[str]) -> list[list[int]]:
    scan = f"select id from iceberg_scan('{lake.table().metadata_location}') where"
    return [[row[0] for row in query(f"{scan} {each}").fetchall()] for each in filters]


def test_a_partition_of_nan_is_one_file_and_replaced_as_one(make_lake: MakeLake) -> None:
    lake = make_lake(Overwrite.dynamic(), pa.schema({"id": pa.int64(), "at": pa.float64()}))
    make_table(lake, "at")
    other_nan = -math.nan
    rows = [{"id": n, "at": at} for n, at in enumerate([math.nan, 0.0, other_nan, -0.0, math.nan, 0.1])]
    lake.epoch(rows)
    assert len(lake.files()) == 4
    lake.epoch([{"id": 10, "at": other_nan}, {"id": 11, "at": 0.0}, {"id": 12, "at": 0.1}])
    assert sorted(row["id"] for row in lake.rows()) == [3, 10, 11, 12]


@pytest.mark.parametrize("name", [name for name in VALUES if name != "yes"])
def test_named_partitions_are_those_of_the_value(name: str, make_lake: MakeLake) -> None:
    kind, values = VALUES[name]
    lake = make_lake(Append(), pa.schema({"id": pa.int64(), name: kind}))
    make_table(lake, name)
    lake.epoch([{"id": number, name: value} for number, value in enumerate(values)])
    named = pa.array(values, kind)[1].as_py() if pa.types.is_temporal(kind) else values[1]
    lake.config = lake.config.with_commit_mode(Overwrite.partitions({name: named}, {name: None}))
    lake.epoch([{"id": 10, name: values[1]}])
    assert sorted(row["id"] for row in lake.rows()) == [0, 2, 3, 4, 5, 6, 7, 10]


@pytest.mark.parametrize(
    ("name", "value"),
    [("int", 2**31), ("real", 1e39), ("cents", "0.001"), ("digit", 10), ("double", "x"), ("long", True), ("day", 1.5)],
)
def test_what_is_beyond_a_partitions_type_is_refused(name: str, value: object, make_lake: MakeLake) -> None:
    lake = make_lake(Append(), SCHEMA)
    make_table(lake, name)
    with pytest.raises(ConfigError, match="is no value of the partition field"):
        check_named(Overwrite.partitions({name: value}), lake.table())
