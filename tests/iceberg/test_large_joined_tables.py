"""Joins with tables that are larger than `max_bytes`: divided by key, against DuckDB over the same rows."""

from __future__ import annotations

import tempfile
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest

from tests.duck import query
from volley import DataStream, Environment, MemorySource, PlanError
from volley.arrow.joins import lower_join
from volley.engine.joins import JoinedTables
from volley.iceberg import IcebergStorage, IcebergTable, TableRef
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


def joined(ref: TableRef, on: Any = ON, **more: Any) -> DataStream:
    options: dict[str, Any] = {"columns": ["name", "since"], "suffix": "_2", "max_bytes": MAX_BYTES} | more
    return Environment().from_source(MemorySource(VISITS, rows_per_epoch=900)).join(IcebergTable(ref), on, **options)


def rows(table: pa.Table) -> list[str]:
    return sorted(map(repr, table.to_pylist()))


@pytest.mark.parametrize("how", ["inner", "left"])
@pytest.mark.parametrize("as_of", [None, ("at", "since")])
def test_a_table_larger_than_memory_is_divided(ref: TableRef, how: How, as_of: tuple[str, str] | None) -> None:
    verb, valid = ("asof", " and v.at >= p.since") if as_of else ("", "")
    expected = query(
        f"select v.*, p.name as name_2, p.since as since_2 from v {verb} {how} join p on {CONDITION}{valid}",
        v=VISITS,
        p=ref.load().scan().to_arrow(),
    ).to_arrow_table()
    assert rows(joined(ref, how=how, as_of=as_of).to_arrow()) == rows(expected)


def test_a_large_table_is_written_by_bucket_and_mapped_one_after_the_other(
    ref: TableRef, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By an executor that reaches the checkpoint over the network, within `max_bytes` of mapped files."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "machine"))
    (tmp_path / "machine").mkdir()
    folder = f"memory://checkpoint-{uuid.uuid4()}/volley/joins"
    tables = JoinedTables("job", folder)
    (join,) = tables.open([joined(ref)._node])
    assert isinstance(join, nodes.Join)
    step, schema = lower_join(join, VISITS.schema)
    with patch.object(joined_rows, "task_context") as context:
        task = context.return_value
        for epoch in range(2):
            expected = rows(joined(ref).to_arrow())
            tables.pin(epoch)
            task.getLocalProperty.return_value, task.taskAttemptId.return_value = str(epoch), epoch
            parts = [step(batch) for batch in VISITS.to_batches(max_chunksize=900)]
            assert rows(pa.Table.from_batches(parts, schema)) == expected
            ref.load().append(PEOPLE.slice(0, 100))
    # Only the files of the newest version.
    assert len(list((tmp_path / "machine").rglob("*.arrow"))) == 64
    mapped = joined_rows._mapped(join.rows.folder, join.rows.layout, MAX_BYTES)  # type: ignore[union-attr]
    assert 0 <= mapped._free < MAX_BYTES


def test_files_of_a_killed_driver_are_used_and_lost_ones_are_written_again(ref: TableRef, tmp_path: Path) -> None:
    def pin(epoch: int) -> dict[Path, int]:
        tables = JoinedTables("job", str(tmp_path / "joins"))
        tables.open([joined(ref)._node])
        tables.pin(epoch)
        return {path: path.stat().st_mtime_ns for path in (tmp_path / "joins").rglob("*.arrow")}

    before = pin(0)
    lost, *_ = before
    lost.unlink()
    after = pin(1)
    assert after.keys() == before.keys()
    assert {path for path in before if before[path] != after[path]} == {lost}
    ref.load().append(PEOPLE.slice(0, 1))
    for epoch in range(2, 5):
        new = pin(epoch)
    assert not new.keys() & before.keys()
    assert len(new) == len(before)


def test_a_key_with_more_rows_than_memory_is_named(ref: TableRef) -> None:
    with pytest.raises(PlanError, match="that have one key, or few, take more than 9,999 bytes"):
        joined(ref, on="country", max_bytes=9_999).to_arrow()
