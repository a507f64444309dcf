"""What an upsert of a few keys leaves unread, files and pages; what a task of many files leaves behind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc
from pyiceberg.types import NestedField, UUIDType

from tests.duck import query
from tests.upserts import lake as lakes
from tests.upserts.conftest import MakeLake
from tests.upserts.lake import QUERY, Lake
from tests.upserts.test_upsert import SCHEMA, rows, seen
from volley import SourceError, WriteResult
from volley.contracts.sink import ExecutorTask
from volley.iceberg import Append, Upsert
from volley.iceberg.pyiceberg_private.entries import data_file
from volley.iceberg.read import delete_files
from volley.iceberg.read.entries import Cache, FileEntry
from volley.iceberg.upsert.ranges import may_have
from volley.iceberg.upsert.replace import Replace

FILES, ROWS_A_FILE = 80, 5
MODE = Upsert("id", op_field="op", strategy="merge_on_read")


@pytest.fixture
def lake(make_lake: MakeLake) -> Lake:
    """A table of 400 ids in the order of 80 files."""
    lake = make_lake(MODE, SCHEMA)
    lake.config = lake.config.with_max_records(ROWS_A_FILE)
    fill(lake, range(FILES * ROWS_A_FILE))
    assert len(data_files(lake)) == FILES
    return lake


def fill(lake: Lake, ids: Sequence[Any]) -> None:
    """Append rows in the order of these ids, without the column of the operation."""
    upserting, schema = lake.config, lake.schema
    lake.config, lake.schema = upserting.with_commit_mode(Append()), pa.schema(list(schema)[:2])
    lake.epoch([{"id": number, "name": "new"} for number in ids])
    lake.config, lake.schema = upserting, schema


def data_files(lake: Lake) -> list[Path]:
    """The data files in the order of their ids."""
    files = lake.table().inspect.data_files().to_pylist()
    files.sort(key=lambda file: file["readable_metrics"]["id"]["lower_bound"])
    return [Path(file["file_path"].removeprefix("file://")) for file in files]


def away(files: Sequence[Path]) -> None:
    for path in files:
        path.rename(path.with_suffix(".away"))


def back(files: Sequence[Path]) -> None:
    for path in files:
        path.with_suffix(".away").rename(path)


def test_files_between_scattered_keys_are_not_read(lake: Lake) -> None:
    others = data_files(lake)[::2]
    away(others)
    lake.epoch(rows(*range(ROWS_A_FILE, FILES * ROWS_A_FILE, 2 * ROWS_A_FILE), name="newer"))
    back(others)
    found = seen(lake)
    assert sorted(number for number, name in found.items() if name == "newer") == [
        number for number in sorted(found) if number % (2 * ROWS_A_FILE) == ROWS_A_FILE
    ]
    assert len(found) == FILES * ROWS_A_FILE


@pytest.mark.parametrize(
    ("data_type", "key"),
    [(pa.string(), lambda number: f"key {number:05}"), (pa.decimal128(9, 2), lambda number: Decimal(number) / 100)],
    ids=["text", "decimal"],
)
def test_files_between_keys_that_are_no_whole_numbers(
    data_type: pa.DataType, key: Callable[[int], Any], make_lake: MakeLake
) -> None:
    lake = make_lake(Upsert("id", strategy="merge_on_read"), pa.schema({"id": data_type, "name": pa.string()}))
    lake.config = lake.config.with_max_records(1)
    fill(lake, [key(number) for number in range(9)])
    others = data_files(lake)[::3]
    away(others)
    lake.epoch([{"id": key(number), "name": "newer"} for number in (1, 2, 4, 5, 7, 8)])
    back(others)
    assert {row["id"]: row["name"] for row in lake.rows()} == {
        key(number): "newer" if number % 3 else "new" for number in range(9)
    }


@pytest.mark.parametrize(("low", "high"), [(b"\x80", b"\x7f"), (b"\xff", b"\x01")])
def test_bounds_of_uuids_in_the_order_of_signed_numbers(low: bytes, high: bytes) -> None:
    field = NestedField(1, "id", UUIDType())
    file = FileEntry(0, 0, 0, 0, 0, "", "PARQUET", 0, (), 3, 0)
    file = file._replace(lower={1: low + bytes(15)}, upper={1: high + bytes(15)})
    key = bytes(16)  # between a negative number and a positive one
    assert may_have([(field, [(key, key)])], file)


def test_small_files_share_a_task(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = counted(monkeypatch)
    lake.epoch(rows(*range(0, FILES * ROWS_A_FILE, ROWS_A_FILE), name="newer"))
    assert [len(task.files) for task in tasks] == [63, 17]  # a file counts for a megabyte more, a task has 64
    assert sorted(seen(lake).values()) == ["new"] * 320 + ["newer"] * 80


def test_large_files_have_a_task_each(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = counted(monkeypatch)
    monkeypatch.setattr("volley.iceberg.upsert.plan._TASK_BYTES", 1)
    lake.epoch(rows(0, 7, 13, name="newer"))
    assert [len(task.files) for task in tasks] == [1, 1, 1]
    assert [seen(lake)[number] for number in (0, 6, 7, 13)] == ["newer", "new", "newer", "newer"]


def counted(monkeypatch: pytest.MonkeyPatch) -> list[Replace]:
    tasks: list[Replace] = []
    do = lakes.do

    def run(given: Sequence[ExecutorTask]) -> list[WriteResult]:
        tasks.extend(task for task in given if isinstance(task, Replace))
        return do(given)

    monkeypatch.setattr(lakes, "do", run)
    return tasks


def test_a_task_that_fails_at_one_file_deletes_what_it_wrote_for_others(lake: Lake) -> None:
    files = data_files(lake)
    away(files[1:2])
    driver = lake.driver()
    driver.last_epoch(QUERY)
    written = lake.write(driver, 1, rows(0, ROWS_A_FILE, name="newer"))
    before = lake.files()
    with pytest.raises(SourceError, match="is gone"):
        driver.commit(*written)
    # Only what the task that merges has written is new: the driver's own `abort` deletes what tasks have returned.
    assert not [path for path in set(lake.files()) - set(before) if path.name.endswith("-deletes.parquet")]
    back(files[1:2])
    driver.abort(*written)
    lake.epoch(rows(0, ROWS_A_FILE, name="newer"))
    assert [seen(lake)[number] for number in (0, 1, ROWS_A_FILE)] == ["newer", "new", "newer"]


def test_pages_without_a_key_are_not_read(make_lake: MakeLake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("volley.iceberg.read.rows._SMALL_ROWS", 1)
    count, key = 60_000, 31_111
    lake = make_lake(MODE, SCHEMA)
    lake.config = lake.config.with_table_properties({"write.parquet.page-row-limit": "1000"})
    fill(lake, range(count))
    (path,) = data_files(lake)
    whole = path.read_bytes()
    path.write_bytes(with_pages_around(path, key / count))
    lake.epoch(rows(key, name="newer"))
    path.write_bytes(whole)
    table = f"iceberg_scan('{lake.table().metadata_location}')"
    assert query(f"select count(*), count(distinct id) from {table}").fetchall() == [(count, count)]
    assert query(f"select id from {table} where name = 'newer'").fetchall() == [(key,)]


def with_pages_around(path: Path, place: float) -> bytes:
    """The file with zeros in place of the first column's pages but those around a place, a share of all."""
    content, chunk = path.read_bytes(), pq.read_metadata(path).row_group(0).column(0)
    start, size = chunk.data_page_offset, chunk.total_compressed_size
    middle, margin = start + round(size * place), size // 8
    before, after = middle - margin - start, start + size - middle - margin
    pages = bytes(before) + content[middle - margin : middle + margin] + bytes(after)
    return content[:start] + pages + content[start + size :]


@pytest.mark.parametrize("order", ["shuffled", "by halves"])
def test_keys_are_found_in_files_of_many_pages(
    order: str, make_lake: MakeLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("volley.iceberg.read.rows._SMALL_ROWS", 1)
    random, count = np.random.default_rng(4), 40_000
    ids = random.permutation(count) if order == "shuffled" else np.roll(np.arange(count), count // 2)
    lake = make_lake(MODE, SCHEMA)
    properties = {"write.parquet.page-row-limit": "500", "write.parquet.row-group-limit": "15000"}
    lake.config = lake.config.with_table_properties(properties)
    fill(lake, ids.tolist())
    first, second = (random.choice(count, 40, replace=False).tolist() for _ in range(2))
    lake.epoch(rows(*first, name="newer"))
    lake.epoch(rows(*second, name="newest"), rows(*range(count, count + 3), name="newest"))
    table = f"iceberg_scan('{lake.table().metadata_location}')"
    found = query(
        f"select name, list(id order by id) from {table} where name <> 'new' group by 1 order by 1"
    ).fetchall()
    assert found == [
        ("newer", sorted({*first} - {*second})),
        ("newest", sorted([*second, *range(count, count + 3)])),
    ]
    assert query(f"select count(*), count(distinct id) from {table}").fetchall() == [(count + 3, count + 3)]


@pytest.mark.format_2
def test_delete_files_of_other_positions_are_not_read(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delete_files, "_cache", Cache(0))
    lake.epoch(rows(1, 6, name="newer"))
    others = [path for path in lake.files() if path.name.endswith("-deletes.parquet")]
    away(others)
    lake.epoch(rows(3, 8, name="newest"))
    # Which row of its key is the last one, only the delete file of the first tells.
    with pytest.raises(SourceError, match="is gone"):
        lake.epoch(rows(1, name="lost"))
    back(others)
    lake.epoch(rows(1, name="again"))
    found = {number: name for number, name in seen(lake).items() if name != "new"}
    assert found == {1: "again", 3: "newest", 6: "newer", 8: "newest"}
    deletes = lake.table().inspect.delete_files().to_pylist()
    assert sum(file["record_count"] for file in deletes) == 5


@pytest.mark.parametrize("format", ["PARQUET", "ORC"])
def test_the_driver_searches_few_rows_of_a_table_but_not_of_orc(
    format: str, make_lake: MakeLake, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    lake = make_lake(MODE, SCHEMA)
    fill(lake, range(3))
    path = tmp_path / "other.file"
    fields = [pa.field("id", pa.int64(), metadata=_id(1)), pa.field("name", pa.string(), metadata=_id(2))]
    foreign = pa.table({"id": [7, 8], "name": ["new", "new"]}, schema=pa.schema(fields))
    (orc if format == "ORC" else pq).write_table(foreign, path)
    file = data_file(str(path), format, 0, (), 2, path.stat().st_size)
    with lake.table().transaction() as transaction, transaction.update_snapshot().fast_append() as append:
        append.append_data_file(file)
    tasks = counted(monkeypatch)
    lake.epoch(rows(1, 7, name="newer"))
    assert {task.suits_driver for task in tasks} == {format == "PARQUET"}
    # DuckDB reads no ORC.
    assert {row["id"]: row["name"] for row in lake.rows()} == {0: "new", 1: "newer", 2: "new", 7: "newer", 8: "new"}


def _id(number: int) -> dict[str, str]:
    return {"iceberg.id": str(number), "PARQUET:field_id": str(number)}
