"""Distinct counts of a table's columns: right for every type and delete, registered once, and safe to repeat."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path

import datasketches
import pyarrow as pa
import pytest
from pyiceberg.table.puffin import PuffinFile

from tests import maintenance
from tests.drivers import Drivers
from tests.duck import query
from tests.iceberg.tables import Files, Row
from volley import ConfigError, WriteResult
from volley.contracts.sink import ExecutorTask
from volley.iceberg import IcebergTable, SnapshotManager, orphan_files
from volley.task.failpoints import STATISTICS_POINTS

_START = datetime(2026, 1, 1, tzinfo=UTC)
SCHEMA = pa.schema(
    [
        pa.field("flag", pa.bool_()),
        pa.field("int", pa.int32()),
        pa.field("long", pa.int64()),
        pa.field("float", pa.float32()),
        pa.field("double", pa.float64()),
        pa.field("price", pa.decimal128(20, 3)),
        pa.field("day", pa.date32()),
        pa.field("at", pa.timestamp("us", "UTC")),
        pa.field("wall", pa.timestamp("us")),
        pa.field("clock", pa.time64("us")),
        pa.field("text", pa.string()),
        pa.field("bytes", pa.binary()),
        pa.field("fixed", pa.binary(3)),
        pa.field("uuid", pa.uuid()),
        pa.field("nested", pa.struct([("a", pa.int64())])),
    ]
)


def row(number: int) -> Row:
    at = _START + timedelta(seconds=number)
    return {
        "flag": number % 2 == 0,
        "int": number % 7,
        "long": -number,
        "float": number / 4,
        "double": number % 11 / 3,
        "price": Decimal(number % 13) / 8,
        "day": date(2026, 1, 1) + timedelta(days=number % 17),
        "at": at,
        "wall": at.replace(tzinfo=None),
        "clock": time(number % 19),
        "text": f"name {number % 23}",
        "bytes": bytes([number % 29 + 1]),
        "fixed": bytes([number % 31] * 3),
        "uuid": uuid.UUID(int=number % 37).bytes,
        "nested": {"a": number},
    }


@pytest.fixture
def files(tmp_path: Path) -> Iterator[Files]:
    made = Files(tmp_path, SCHEMA)
    yield made
    made.close()


def _statistics(files: Files) -> PuffinFile:
    files.table.refresh()
    (registered,) = files.table.metadata.statistics
    content = Path(registered.statistics_path.removeprefix("file://")).read_bytes()
    assert registered.file_size_in_bytes == len(content)
    assert content[-registered.file_footer_size_in_bytes :][:4] == b"PFA1"
    return PuffinFile(content)


def orphan_statistics(files: Files) -> list[str]:
    return [path for path in orphan_files(files.ref, 0) if path.endswith(".stats")]


def test_counts_are_those_of_a_batch_query(files: Files) -> None:
    first = files.data([row(number) for number in range(100)])
    files.commit([first, files.data([*(row(number) for number in range(50, 150)), dict.fromkeys(SCHEMA.names)])])
    files.commit(deletes=[files.positions((first, 0), (first, 1))])
    found = IcebergTable(files.ref).compute_statistics()
    flat = [name for name in SCHEMA.names if name != "nested"]
    files.table.refresh()
    counts = ", ".join(f'count(distinct "{name}")' for name in flat)
    (expected,) = query(f"select {counts} from iceberg_scan('{files.table.metadata_location}')").fetchall()
    assert dict(found.distinct) == dict(zip(flat, expected, strict=True))
    assert (found.data_files, found.snapshot_id) == (2, files.table.current_snapshot().snapshot_id)  # type: ignore[union-attr]

    puffin = _statistics(files)
    assert len(puffin.footer.blobs) == len(flat)
    (registered,) = files.table.metadata.statistics
    for name, blob, described in zip(flat, puffin.footer.blobs, registered.blob_metadata, strict=True):
        sketch = datasketches.compact_theta_sketch.deserialize(puffin.get_blob_payload(blob))
        assert sketch.get_estimate() == found.distinct[name]
        assert blob.fields == described.fields == [files.table.schema().find_field(name).field_id]
        assert blob.properties == described.properties == {"ndv": str(found.distinct[name])}
        assert blob.snapshot_id == described.snapshot_id == found.snapshot_id


def test_a_second_run_reads_nothing(files: Files) -> None:
    files.commit([files.data([row(number) for number in range(10)])])
    first = IcebergTable(files.ref).compute_statistics(["int", "text"])
    again = IcebergTable(files.ref).compute_statistics(["text"])
    assert (again.data_files, again.path, again.distinct) == (0, first.path, {"text": 10})
    files.table.refresh()
    assert len(files.table.metadata.metadata_log) == 2

    more = IcebergTable(files.ref).compute_statistics(["long"])
    assert more.path != first.path
    assert dict(more.distinct) == {"int": 7, "long": 10, "text": 10}
    assert len(_statistics(files).footer.blobs) == 3
    assert orphan_statistics(files) == []


def test_an_expired_snapshot_takes_its_statistics_along(files: Files) -> None:
    files.commit([files.data([row(0)])])
    path = Path(str(IcebergTable(files.ref).compute_statistics().path).removeprefix("file://"))
    files.table.refresh()
    files.commit([files.data([row(1)])])
    assert path.exists()
    SnapshotManager(files.ref).expire_snapshots(0)
    assert not path.exists()
    assert IcebergTable(files.ref).compute_statistics(["long"]).distinct == {"long": 2}


def test_a_dry_run_reads_and_writes_nothing(files: Files) -> None:
    files.commit([files.data([row(0)]), files.data([row(1)])])
    found = IcebergTable(files.ref).compute_statistics(dry_run=True)
    assert (found.data_files, found.path, found.distinct) == (2, None, {})
    assert "would be read" in str(found)
    files.table.refresh()
    assert files.table.metadata.statistics == []


def test_it_prints_as_a_table(files: Files) -> None:
    assert str(IcebergTable(files.ref).compute_statistics()) == "table db.t has no snapshot"
    files.commit([files.data([row(number) for number in range(10)])])
    lines = str(IcebergTable(files.ref).compute_statistics(["flag", "long"])).splitlines()
    assert lines[0].startswith(f"snapshot {files.table.refresh().metadata.current_snapshot_id} of table db.t: 1 data")
    assert lines[1:] == ["flag                2 distinct values", "long               10 distinct values"]


def test_a_column_without_statistics_is_refused(files: Files) -> None:
    files.commit([files.data([row(0)])])
    for name in ("nested", "unknown"):
        with pytest.raises(ConfigError, match=name) as raised:
            IcebergTable(files.ref).compute_statistics([name])
        assert "at, bytes, clock" in str(raised.value.hint)
    with pytest.raises(ConfigError, match="columns is empty"):
        IcebergTable(files.ref).compute_statistics([])


def test_a_table_of_nested_columns_alone_has_none(tmp_path: Path) -> None:
    files = Files(tmp_path, pa.schema([("nested", pa.struct([("a", pa.int64())]))]))
    files.commit([files.data([{"nested": {"a": 1}}])])
    found = IcebergTable(files.ref).compute_statistics()
    assert (found.distinct, found.path, files.table.refresh().metadata.statistics) == ({}, None, [])
    files.close()


def test_tasks_divide_the_files(files: Files) -> None:
    files.commit([files.data([row(number)]) for number in range(70)])
    tasks = 0

    def run(work: Sequence[ExecutorTask]) -> list[WriteResult]:
        nonlocal tasks
        tasks = len(work)
        return [task() for task in work]

    assert IcebergTable(files.ref).compute_statistics(["long"], run=run).distinct == {"long": 70}
    assert tasks == 64


@pytest.mark.parametrize("point", STATISTICS_POINTS)
def test_a_computation_that_dies_leaves_an_orphan_at_most(files: Files, point: str) -> None:
    files.commit([files.data([row(number) for number in range(10)])])
    Drivers().die(f"{point}@0", maintenance.compute_statistics, files.ref)
    is_done = point == "after-statistics-commit"
    assert len(files.table.refresh().metadata.statistics) == is_done
    assert len(orphan_statistics(files)) == (not is_done)
    again = IcebergTable(files.ref).compute_statistics()
    assert (again.data_files, again.distinct["long"]) == (0 if is_done else 1, 10)
