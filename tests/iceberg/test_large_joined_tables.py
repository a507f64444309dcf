"""Joins with tables that are larger than `max_bytes`: divided by key, against DuckDB over the same rows."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from pyiceberg.table import Table
from pyiceberg.types import LongType
from s3fs import S3FileSystem

from tests.duck import query
from tests.iceberg.joined import at_epoch as joined_at_epoch
from tests.servers.seaweed import Seaweed
from tests.tiers import some
from volley import DataStream, Environment, MemorySource, PlanError, StorageError
from volley.engine.joins import JoinedTables
from volley.iceberg import IcebergStorage, IcebergTable, SnapshotManager, TableRef
from volley.iceberg.read.dimension import IcebergDimensionReader
from volley.plan import nodes
from volley.plan.joins import How
from volley.task import joined_rows

START = datetime(2026, 1, 1, tzinfo=UTC)
ROWS = 3_000
MAX_BYTES = 20_000
PEOPLE = pa.table(
    {
        "country": [None if n % 50 == 0 else f"country {n % 7}" for n in range(ROWS)],
        "number": pa.array([None if n % 41 == 0 else n % 1_000 for n in range(ROWS)], pa.int32()),
        "since": [START + timedelta(hours=n // 1_000) for n in range(ROWS)],
        "name": [None if n % 13 == 0 else f"name {n}" for n in range(ROWS)],
    },
    pa.schema({"country": pa.string(), "number": pa.int32(), "since": pa.timestamp("us", "UTC"), "name": pa.string()}),
)
VISITS = pa.table(
    {
        "id": range(2_000),
        "n": [None if n % 31 == 0 else n * 7 % 1_100 for n in range(2_000)],
        "country": [None if n % 37 == 0 else f"country {n * 7 % 1_100 % 7}" for n in range(2_000)],
        "at": [None if n % 29 == 0 else START + timedelta(minutes=n % 200 - 30) for n in range(2_000)],
    },
    pa.schema({"id": pa.int64(), "n": pa.int64(), "country": pa.string(), "at": pa.timestamp("us", "UTC")}),
)
ON = {"n": "number", "country": "country"}
CONDITION = "v.n = p.number and v.country = p.country"


@pytest.fixture
def ref(tmp_path: Path) -> TableRef:
    """A table of several files, of which each has rows of most buckets."""
    ref = TableRef("db", "people", IcebergStorage.Local(str(tmp_path / "lake")))
    catalog = ref.load_catalog()
    catalog.create_namespace("db")
    table = catalog.create_table("db.people", PEOPLE.schema)
    for start in range(0, ROWS, 700):
        table.append(PEOPLE.slice(start, 700))
    return ref


def joined(ref: TableRef, on: Any = ON, table: Any = None, **more: Any) -> DataStream:
    options: dict[str, Any] = {"columns": ["name", "since"], "suffix": "_2", "max_bytes": MAX_BYTES} | more
    visits = Environment().from_source(MemorySource(VISITS, rows_per_epoch=900))
    return visits.join(IcebergTable(ref) if table is None else table, on, **options)


def in_duckdb(people: pa.Table, how: str, where: str = "true", as_of: bool = False) -> list[str]:
    """The join by DuckDB, which takes any of several rows of one time: only the greatest one is there."""
    verb, valid = ("asof", " and v.at >= p.since") if as_of else ("", "")
    last = "select number, country, since, max(name) as name from people group by all"
    right = f"(select * from {f'({last})' if as_of else 'people'} where {where})"
    sql = f"select v.*, p.name as name_2, p.since as since_2 from v {verb} {how} join {right} p on {CONDITION}{valid}"
    return rows(query(sql, v=VISITS, people=people).to_arrow_table())


def rows(table: pa.Table) -> list[str]:
    return sorted(map(repr, table.to_pylist()))


@pytest.mark.parametrize("how", ["inner", "left"])
@pytest.mark.parametrize("as_of", [None, ("at", "since")])
def test_a_table_larger_than_memory_is_divided(ref: TableRef, how: How, as_of: tuple[str, str] | None) -> None:
    expected = in_duckdb(ref.load().scan().to_arrow(), how, as_of=as_of is not None)
    assert rows(joined(ref, how=how, as_of=as_of).to_arrow()) == expected


@pytest.mark.parametrize("how", ["inner", "left"])
def test_an_index_of_many_keys_is_looked_up_in_order(ref: TableRef, how: How, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("volley.columns.joins._MANY", 0)
    assert rows(joined(ref, how=how, max_bytes=1 << 20).to_arrow()) == in_duckdb(ref.load().scan().to_arrow(), how)


def at_epoch(epoch: int, join: nodes.Node) -> list[str]:
    return rows(joined_at_epoch(epoch, join, VISITS))


def test_a_large_table_is_written_by_bucket_and_mapped_one_after_the_other(
    ref: TableRef, tmp_path: Path, seaweed: Seaweed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By an executor that reaches the checkpoint on S3, within `max_bytes` of mapped files."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "machine"))
    (tmp_path / "machine").mkdir()
    keys = {"AWS_ACCESS_KEY_ID": seaweed.key, "AWS_SECRET_ACCESS_KEY": seaweed.secret}
    for name, value in {**keys, "AWS_DEFAULT_REGION": "us-east-1", "AWS_ENDPOINT_URL": seaweed.s3_endpoint}.items():
        monkeypatch.setenv(name, value)
    S3FileSystem.clear_instance_cache()
    S3FileSystem().mkdir("joins")
    folder = "s3://joins/checkpoint/volley/joins"
    tables = JoinedTables("job", folder)
    (join,) = tables.open([joined(ref)._node])
    assert isinstance(join, nodes.Join)
    for epoch in range(2):
        expected = rows(joined(ref).to_arrow())
        tables.pin(epoch)
        assert at_epoch(epoch, join) == expected
        ref.load().append(PEOPLE.slice(0, 100))
    # Only the files of the newest version.
    assert len(list((tmp_path / "machine").rglob("*.arrow"))) == 64
    mapped = joined_rows._mapped(join.rows.folder, join.rows.layout, MAX_BYTES)  # type: ignore[union-attr]
    assert 0 <= mapped._free < MAX_BYTES
    # The files are lost, and the table has changed: a driver that repeats the epoch writes those of its version again.
    lost = S3FileSystem().glob("joins/checkpoint/volley/joins/*/*.arrow")
    S3FileSystem().rm(lost)
    again = JoinedTables("job", folder)
    again.open([joined(ref)._node])
    again.pin(1)
    joined_rows._mapped.cache_clear()
    joined_rows._of_task.cache_clear()
    shutil.rmtree(tmp_path / "machine")
    (tmp_path / "machine").mkdir()
    assert at_epoch(1, join) == expected
    assert len(lost) > len(list((tmp_path / "machine").rglob("*.arrow"))) == 64


def test_files_of_a_killed_driver_are_used_and_lost_ones_are_written_again(ref: TableRef, tmp_path: Path) -> None:
    def pin(epoch: int) -> dict[Path, int]:
        tables = JoinedTables("job", str(tmp_path / "joins"))
        tables.open([joined(ref)._node])
        tables.pin(epoch)
        return {path: path.stat().st_mtime_ns for path in (tmp_path / "joins").rglob("*.arrow")}

    before = pin(0)
    lost, cut, *_ = before
    whole = {path: path.read_bytes() for path in (lost, cut)}
    lost.unlink()
    cut.write_bytes(whole[cut][: len(whole[cut]) // 2])
    after = pin(1)
    assert after.keys() == before.keys()
    assert {path for path in before if before[path] != after[path]} == {lost, cut}
    assert {path: path.read_bytes() for path in whole} == whole
    ref.load().append(PEOPLE.slice(1, 1))
    for epoch in range(2, 5):
        new = pin(epoch)
    # The file of one key is new.
    assert len(new.keys() - before.keys()) == len(before.keys() - new.keys()) == 1


def test_another_max_bytes_divides_the_table_anew(ref: TableRef, tmp_path: Path) -> None:
    """Also for an epoch that is repeated: of that one's version."""
    expected = rows(joined(ref).to_arrow())
    for max_bytes, files in ((1 << 20, 1), (MAX_BYTES, 64), (1 << 20, 1)):
        tables = JoinedTables("job", str(tmp_path / "joins"))
        (join,) = tables.open([joined(ref, max_bytes=max_bytes)._node])
        tables.pin(0)
        assert len(list((tmp_path / "joins").rglob("*.arrow"))) == files
        assert at_epoch(0, join) == expected
        ref.load().append(PEOPLE.slice(0, 100))


def test_damaged_files_are_named(ref: TableRef, tmp_path: Path) -> None:
    tables = JoinedTables("job", str(tmp_path / "joins"))
    (join,) = tables.open([joined(ref, max_bytes=1 << 20)._node])
    tables.pin(0)
    (pin,), (file,) = (tmp_path / "joins").rglob("0.json"), (tmp_path / "joins").rglob("*.arrow")
    file.write_bytes(file.read_bytes()[:1_000])
    with pytest.raises(StorageError, match=f"{file}, which has the rows of a joined table, is damaged"):
        at_epoch(0, join)
    pin.write_bytes(pin.read_bytes()[:9])
    with pytest.raises(StorageError, match=f"{pin}, which tells with what an epoch joins a table, is damaged"):
        tables.pin(0)


def test_a_key_with_more_rows_than_memory_is_named(ref: TableRef) -> None:
    with pytest.raises(PlanError, match="that have one key, or few, take more than 9,999 bytes"):
        joined(ref, on="country", max_bytes=9_999).to_arrow()


@pytest.mark.parametrize("max_bytes", some([MAX_BYTES, 1 << 20]), ids=["large", "small"])
def test_changes_are_applied_to_the_files_that_they_touch(ref: TableRef, tmp_path: Path, max_bytes: int) -> None:
    """After each change the joins have the rows that DuckDB finds in the whole table, which is read only once."""
    changes: list[Callable[[Table], Any]] = [
        lambda table: table.append(PEOPLE.slice(100, 30)),
        lambda table: table.delete("number >= 100 and number < 130 or number is null"),
        lambda table: table.append(PEOPLE.slice(90, 40)),
        lambda table: table.overwrite(PEOPLE.slice(200, 50), "number < 20"),
        lambda _: IcebergTable(ref).compact(),
        lambda table: table.delete("number = 900 and country is not null"),
    ]
    people = IcebergTable(ref).rows.filter("number <> 210")
    by = [joined(ref, how="left", max_bytes=max_bytes), joined(ref, as_of=("at", "since"), table=people)]
    tables = JoinedTables("job", str(tmp_path / "joins"))
    joins = tables.open([stream._node for stream in by])
    with (
        patch("volley.iceberg.read.dimension._DEAREST", 0),
        patch.object(IcebergDimensionReader, "read", autospec=True, side_effect=IcebergDimensionReader.read) as read,
    ):
        for epoch, change in enumerate([lambda _: None, *changes]):
            change(ref.load())
            tables.pin(epoch)
            table = ref.load().scan().to_arrow()
            assert at_epoch(epoch, joins[0]) == in_duckdb(table, "left")
            assert at_epoch(epoch, joins[1]) == in_duckdb(table, "inner", "number <> 210", as_of=True)
    assert read.call_count == len(joins)


def test_a_table_whose_changes_are_not_known_is_read(ref: TableRef, tmp_path: Path) -> None:
    tables = JoinedTables("job", str(tmp_path / "joins"))
    (join,) = tables.open([joined(ref)._node])
    tables.pin(0)
    first = ref.load().current_snapshot()
    assert first is not None
    ref.load().append(PEOPLE.slice(0, 10))
    tables.pin(1)
    with patch.object(IcebergDimensionReader, "read", autospec=True, side_effect=IcebergDimensionReader.read) as read:
        SnapshotManager(ref).rollback_to(first.snapshot_id)
        tables.pin(2)
        assert read.call_count == 0
        ref.load().append(PEOPLE.slice(50, 10))
        SnapshotManager(ref).expire_snapshots(retain_last=1, older_than="2100-01-01")
        ref.load().append(PEOPLE.slice(70, 10))
        tables.pin(3)
        assert read.call_count == 1
        assert at_epoch(3, join) == in_duckdb(ref.load().scan().to_arrow(), "inner")
        with ref.load().update_schema() as update:
            update.add_column("age", LongType())
        ref.load().append(PEOPLE.slice(80, 10))
        tables.pin(4)
        assert read.call_count == 2
    assert at_epoch(4, join) == in_duckdb(ref.load().scan().to_arrow(), "inner")
