"""Rows of partitioned and sorted tables: each in its partition's file, in order, in bounded memory."""

from __future__ import annotations

import math
import os
import uuid
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import BucketTransform, IdentityTransform, VoidTransform, YearTransform
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField, UUIDType

from tests.duck import query
from tests.iceberg.test_iceberg_writer import commit, files_below, paths, write, writer_for
from volley import ConfigError, StorageError
from volley.contracts.epoch import WriteResult
from volley.iceberg.layout.partitioning import Partitioning, Transform, partitioning
from volley.iceberg.layout.specs import check_spec, partitioning_of, spec_of
from volley.iceberg.schema.types import to_iceberg_schema


class Tables:
    """Makes tables under names of their own."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def make(
        self,
        schema: pa.Schema | Schema,
        *parts: Partitioning,
        order: tuple[SortField, ...] = (),
        properties: dict[str, str] | None = None,
    ) -> Table:
        """A table of an Arrow or Iceberg schema; `order` names columns by their numbers from 1 on."""
        made = schema if isinstance(schema, Schema) else to_iceberg_schema(schema)
        return self._catalog.create_table(
            f"db.t{uuid.uuid4().hex}",
            made,
            partition_spec=spec_of(partitioning(parts), made),
            sort_order=SortOrder(*order),
            properties=properties or {},
        )


@pytest.fixture(scope="session")
def tables(memory_catalog: Catalog) -> Tables:
    return Tables(memory_catalog)


def folders(table: Table, result: WriteResult) -> list[str]:
    """The folders of the files, below the table's data."""
    root = f"{table.location().removeprefix('file://')}/data/"
    return sorted(os.path.dirname(path).removeprefix(root) for path in paths(result))


def records(result: WriteResult) -> list[list[Any]]:
    return [list(file.data_file.partition._data) for file in result.committables]


AT = datetime(1969, 12, 31, 23, tzinfo=UTC)
KINDS = pa.table(
    {
        "id": pa.array([1, None, -3], pa.int64()),
        "text": pa.array(["ä/ b=ü%", None, ""]),
        "day": pa.array([date(1969, 12, 31), None, date(2024, 2, 29)]),
        "at": pa.array([AT, None, AT + timedelta(hours=2)], pa.timestamp("us", "UTC")),
        "money": pa.array([Decimal("-1.25"), None, Decimal("12.50")], pa.decimal128(9, 2)),
        "yes": pa.array([True, None, False]),
        "raw": pa.array([b"\x00\xff", None, b""], pa.binary()),
        "real": pa.array([1.5, None, -0.0]),
        "point": pa.array([{"x": 7}, None, {"x": None}], pa.struct({"x": pa.int32()})),
    }
)
CASES: list[tuple[Partitioning, list[Any], str]] = [
    (Partitioning.identity("id"), [1, None, -3], "id=1"),
    (Partitioning.identity("text"), ["ä/ b=ü%", None, ""], "text=%C3%A4%2F+b%3D%C3%BC%25"),
    (Partitioning.identity("day"), [-1, None, 19782], "day=1969-12-31"),
    (Partitioning.identity("at"), [-3_600_000_000, None, 3_600_000_000], "at=1969-12-31T23%3A00%3A00%2B00%3A00"),
    (Partitioning.identity("money"), [Decimal("-1.25"), None, Decimal("12.50")], "money=-1.25"),
    (Partitioning.identity("yes"), [True, None, False], "yes=true"),
    (Partitioning.identity("raw"), [b"\x00\xff", None, b""], "raw=AP8%3D"),
    (Partitioning.identity("real"), [1.5, None, -0.0], "real=1.5"),
    (Partitioning.identity("point.x"), [7, None, None], "point.x=7"),
    (Partitioning.bucket("id", n=16), [4, None, 13], "id_bucket_16=4"),
    (Partitioning.truncate("id", width=10), [0, None, -10], "id_trunc_10=0"),
    (Partitioning.truncate("text", width=2), ["ä/", None, ""], "text_trunc_2=%C3%A4%2F"),
    (Partitioning.truncate("money", width=50), [Decimal("-1.50"), None, Decimal("12.50")], "money_trunc_50=-1.50"),
    (Partitioning.time("at", granularity="year"), [-1, None, 0], "at_year=1969"),
    (Partitioning.time("day", granularity="month"), [-1, None, 649], "day_month=1969-12"),
    (Partitioning.time("at"), [-1, None, 0], "at_day=1969-12-31"),
    (Partitioning.time("at", granularity="hour"), [-1, None, 1], "at_hour=1969-12-31-23"),
]


@pytest.mark.parametrize(("how", "expected", "folder"), CASES, ids=[repr(how) for how, _, _ in CASES])
def test_each_row_is_in_the_file_of_its_partition(
    tables: Tables, how: Partitioning, expected: list[Any], folder: str
) -> None:
    table = tables.make(KINDS.schema, how)
    result = write(table, KINDS, batch=1)
    assert {repr(record) for record in records(result)} == {repr([value]) for value in expected}
    assert folder in folders(table, result)
    committed = commit(table, result)
    found = committed.scan().to_arrow().to_pylist()
    assert sorted(map(repr, found)) == sorted(map(repr, KINDS.to_pylist()))
    seen = committed.inspect.partitions().to_pylist()
    assert sorted(part["record_count"] for part in seen) == sorted(
        [repr(value) for value in expected].count(text) for text in {repr(value) for value in expected}
    )


def test_rows_read_back_by_duckdb(tables: Tables) -> None:
    rows = pa.table({"id": range(5000), "kind": [f"k {n % 7}" for n in range(5000)]})
    result = write(tables.make(rows.schema, Partitioning.identity("kind"), Partitioning.bucket("id", n=4)), rows, 700)
    assert result.files == 28
    found = duckdb.sql(f"select id, kind from read_parquet({paths(result)}, hive_partitioning=false) order by id")
    assert found.to_arrow_table().to_pylist() == rows.to_pylist()


@pytest.mark.parametrize(
    ("how", "row_filter", "scanned"),
    [
        (Partitioning.identity("kind"), "kind = 'k3'", 1),
        (Partitioning.bucket("id", n=8), "id = 42", 1),
        (Partitioning.truncate("id", width=100), "id >= 150 and id < 250", 2),
        (Partitioning.time("seen"), "seen >= '1969-12-31T00:00:00+00:00' and seen < '1970-01-01T00:00:00+00:00'", 1),
    ],
    ids=["identity", "bucket", "truncate", "day"],
)
def test_partitions_prune_files(tables: Tables, how: Partitioning, row_filter: str, scanned: int) -> None:
    at = [datetime(1969, 12, 30, tzinfo=UTC) + timedelta(hours=n % 96) for n in range(1000)]
    rows = pa.table({"id": range(1000), "kind": [f"k{n % 7}" for n in range(1000)], "seen": at})
    # Without statistics only the partitions can tell.
    table = tables.make(rows.schema, how, properties={"write.metadata.metrics.default": "none"})
    committed = commit(table, write(table, rows))
    scan = committed.scan(row_filter=row_filter)
    assert len(list(scan.plan_files())) == scanned < len(list(committed.scan().plan_files()))
    assert scan.to_arrow().num_rows == len(query(f"from rows where {row_filter}", rows=rows).fetchall())


def test_uuids_are_partition_values_too(tables: Tables) -> None:
    table = tables.make(
        Schema(NestedField(1, "u", UUIDType(), required=False)), Partitioning.identity("u"), Partitioning.bucket("u")
    )
    some, other = uuid.uuid4(), uuid.uuid4()
    rows = pa.table({"u": pa.array([some.bytes, other.bytes, some.bytes, None], pa.binary(16))})
    result = write(table, rows)
    assert sorted(file.data_file.record_count for file in result.committables) == [1, 1, 2]
    found = commit(table, result).scan().to_arrow()["u"].to_pylist()
    assert sorted(map(str, found)) == sorted(map(str, [some, other, some, None]))
    assert Record(some.bytes, BucketTransform[Any](16).transform(UUIDType())(some)) in [
        file.data_file.partition for file in result.committables
    ]


def test_two_fields_of_one_column(tables: Tables) -> None:
    rows = pa.table({"id": range(100)})
    table = tables.make(rows.schema, Partitioning.bucket("id", n=2), Partitioning.truncate("id", width=50))
    result = write(table, rows)
    assert sorted(records(result)) == [[0, 0], [0, 50], [1, 0], [1, 50]]
    assert commit(table, result).scan(row_filter="id = 7").to_arrow().num_rows == 1


def test_every_nan_is_one_partition_and_minus_zero_its_own(tables: Tables) -> None:
    rows = pa.table({"real": [math.nan, 0.0, -0.0, math.nan, None, 0.0]})
    table = tables.make(rows.schema, Partitioning.identity("real"))
    result = write(table, rows)
    counts = {repr(file.data_file.partition[0]): file.data_file.record_count for file in result.committables}
    assert counts == {"nan": 2, "0.0": 2, "-0.0": 1, "None": 1}


def test_statistics_are_of_the_partitions_own_rows(tables: Tables) -> None:
    rows = pa.table({"id": range(100), "half": [n // 50 for n in range(100)]})
    table = tables.make(rows.schema, Partitioning.identity("half"))
    committed = commit(table, write(table, rows, batch=7))
    seen = committed.inspect.files().to_pylist()
    bounds = {(f["readable_metrics"]["id"]["lower_bound"], f["readable_metrics"]["id"]["upper_bound"]) for f in seen}
    assert bounds == {(0, 49), (50, 99)}
    assert [file["record_count"] for file in seen] == [50, 50]


@given(
    batches=st.lists(st.lists(st.tuples(st.integers(0, 5), st.none() | st.integers(0, 3)), max_size=30), max_size=8),
    row_group_bytes=st.sampled_from([1, 200, 1 << 20]),
)
def test_rows_in_are_rows_out_in_the_order_they_came(
    batches: list[list[tuple[int, int | None]]], row_group_bytes: int, tables: Tables
) -> None:
    schema = pa.schema({"n": pa.int64(), "a": pa.int64(), "b": pa.int64()})
    numbers = iter(range(1000))
    rows = [[(next(numbers), *row) for row in batch] for batch in batches]
    table = tables.make(schema, Partitioning.identity("a"), Partitioning.bucket("b", n=3))
    task = writer_for(table, row_group_bytes=row_group_bytes).open(0)
    for batch in rows:
        columns = [pa.array(column, pa.int64()) for column in zip(*batch, strict=True)] or [[], [], []]
        task.write(pa.record_batch(columns, schema=schema))
    result = task.close()
    written = [pq.read_table(path, partitioning=None).to_pylist() for path in paths(result)]
    assert sorted(row["n"] for file in written for row in file) == [row[0] for batch in rows for row in batch]
    for file in written:
        assert [row["n"] for row in file] == sorted(row["n"] for row in file)
        assert len({row["a"] for row in file}) == 1
    assert result.files == len({repr(record) for record in records(result)})
    assert result.rows == sum(map(len, rows))


def test_files_of_a_partition_roll(tables: Tables) -> None:
    rows = pa.table({"id": range(100), "half": [n % 2 for n in range(100)]})
    result = write(tables.make(rows.schema, Partitioning.identity("half")), rows, max_records=20)
    assert [file.data_file.record_count for file in result.committables] == [20, 20, 10, 20, 20, 10]
    assert len(set(paths(result))) == 6


# Bounds


def test_thousands_of_partitions_in_bounded_memory_make_a_file_each(
    tables: Tables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path}/local,{tmp_path}/other")
    (tmp_path / "local").mkdir()
    schema = pa.schema({"key": pa.int64(), "text": pa.string()})
    table = tables.make(schema, Partitioning.identity("key"), properties={"write.metadata.metrics.default": "none"})
    task = writer_for(table, row_group_bytes=1 << 20).open(0)
    base, peak = pa.total_allocated_bytes(), 0
    for step in range(60):
        keys = [(n * 7919 + step) % 2_000 for n in range(1000)]
        task.write(pa.record_batch([keys, ["t" * 200] * 1000], schema=schema))
        peak = max(peak, pa.total_allocated_bytes() - base)
    assert os.listdir(tmp_path / "local") == []
    result = task.close()
    assert peak < 8 << 20 < 60 * 1000 * 208
    assert result.files == len({tuple(record) for record in records(result)}) == 2_000
    assert sum(file.data_file.record_count for file in result.committables) == 60_000


def test_a_full_local_disk_is_named(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", "/nowhere/at/all")
    task = writer_for(tables.make(pa.schema({"id": pa.int64()}), Partitioning.identity("id")), row_group_bytes=1).open(
        0
    )
    task.write(pa.record_batch({"id": [1]}))
    with pytest.raises(StorageError, match="/nowhere/at/all"):
        task.write(pa.record_batch({"id": [1]}))


def test_abort_leaves_nothing(tables: Tables) -> None:
    table = tables.make(pa.schema({"id": pa.int64()}), Partitioning.identity("id"))
    task = writer_for(table, row_group_bytes=1).open(0)
    task.write(pa.record_batch({"id": range(5)}))
    task.write(pa.record_batch({"id": range(5)}))
    task.abort()
    assert files_below(table) == []


# Sort order


def by(column: int, direction: SortDirection, nulls: NullOrder, transform: Any = None) -> SortField:
    return SortField(column, transform or IdentityTransform(), direction, nulls)


UP, DOWN = SortDirection.ASC, SortDirection.DESC
FIRST, LAST = NullOrder.NULLS_FIRST, NullOrder.NULLS_LAST


@pytest.mark.parametrize("row_group_bytes", [1, 300, 1 << 20], ids=["many runs", "some runs", "one run"])
@pytest.mark.parametrize("direction", [UP, DOWN])
@pytest.mark.parametrize("nulls", [FIRST, LAST])
def test_each_file_is_sorted_as_the_table_says(
    tables: Tables, row_group_bytes: int, direction: SortDirection, nulls: NullOrder
) -> None:
    random = Random(5)
    kinds = [random.choice(["b", "a", None, "c"]) for _ in range(200)]
    rows = pa.table({"kind": kinds, "n": range(200), "half": [n % 2 for n in range(200)]})
    order = (by(1, direction, nulls), by(2, DOWN, LAST))
    for parts in ((), (Partitioning.identity("half"),)):
        table = tables.make(rows.schema, *parts, order=order)
        result = write(table, rows, batch=13, row_group_bytes=row_group_bytes, max_records=60)
        halves = [0, 1] if parts else [None]
        files = [pq.read_table(path, partitioning=None).to_pylist() for path in paths(result)]
        for half in halves:
            mine = [row for row in rows.to_pylist() if half in (None, row["half"])]
            mine.sort(key=lambda row: -row["n"])
            mine.sort(key=lambda row: row["kind"] or "", reverse=direction == DOWN)
            mine.sort(key=lambda row: (row["kind"] is None) == (nulls == LAST))
            assert [row for file in files for row in file if half in (None, row["half"])] == mine
        assert {file.data_file.sort_order_id for file in result.committables} == {table.sort_order().order_id}
        assert commit(table, result).scan().to_arrow().num_rows == 200


@pytest.mark.parametrize(
    ("direction", "expected"), [(UP, "-inf -1.5 -0.0 0.0 2.5 nan"), (DOWN, "nan 2.5 0.0 -0.0 -1.5 -inf")]
)
def test_floats_are_sorted_as_the_specification_says(tables: Tables, direction: SortDirection, expected: str) -> None:
    rows = pa.table({"real": [0.0, math.nan, -1.5, -math.inf, -0.0, 2.5]})
    result = write(tables.make(rows.schema, order=(by(1, direction, FIRST),)), rows)
    assert " ".join(map(str, pq.read_table(paths(result)[0])["real"].to_pylist())) == expected


def test_a_sort_order_may_be_of_transforms_and_of_nested_columns(tables: Tables) -> None:
    schema = Schema(*to_iceberg_schema(KINDS.schema).fields)
    x = schema.find_field("point.x").field_id
    order = (by(4, DOWN, LAST, YearTransform()), by(x, UP, FIRST), by(6, UP, FIRST))
    result = write(tables.make(schema, order=order), KINDS, batch=1, row_group_bytes=1)
    assert pq.read_table(paths(result)[0])["id"].to_pylist() == [-3, 1, None]


def test_a_table_without_a_sort_order_says_so(tables: Tables) -> None:
    rows = pa.table({"id": [2, 1]})
    (file,) = write(tables.make(rows.schema, Partitioning.bucket("id", n=1)), rows).committables
    assert file.data_file.sort_order_id is None
    assert pq.read_table(file.data_file.file_path)["id"].to_pylist() == [2, 1]


# Specs


@pytest.mark.parametrize("how", [how for how, _, _ in CASES], ids=repr)
def test_the_spec_of_a_new_table_is_the_configs(tables: Tables, how: Partitioning) -> None:
    table = tables.make(KINDS.schema, how)
    assert partitioning_of(table) == how
    check_spec(table, how)
    check_spec(table, Partitioning.table_default())


def test_a_conflict_shows_both(tables: Tables) -> None:
    table = tables.make(KINDS.schema, Partitioning.bucket("id", n=4), Partitioning.time("at"))
    check_spec(table, partitioning([Partitioning.time("at"), Partitioning.bucket("id", n=4)]))
    for other in (Partitioning.none(), Partitioning.bucket("id", n=8), Partitioning.time("at")):
        with pytest.raises(ConfigError) as caught:
            check_spec(table, other)
        assert "Partitioning(bucket[4](id), day(at))" in caught.value.message
        assert repr(other) in caught.value.message
        assert caught.value.hint


def test_an_evolved_spec_is_the_one_that_counts(tables: Tables) -> None:
    rows = pa.table({"id": range(10), "kind": ["a", "b"] * 5})
    table = tables.make(rows.schema, Partitioning.identity("kind"))
    commit(table, write(table, rows))
    with table.update_spec() as update:
        update.remove_field("kind").add_field("id", BucketTransform(2), "by_id")
    table = table.refresh()
    assert partitioning_of(table) == Partitioning.bucket("id", n=2)
    result = write(table, rows)
    assert sorted(records(result)) == [[0], [1]]
    assert {file.data_file.spec_id for file in result.committables} == {table.spec().spec_id} != {0}
    found = commit(table, result).scan().to_arrow()
    assert sorted(found["id"].to_pylist()) == sorted([*range(10)] * 2)
    assert commit(table, write(table, rows)).scan(row_filter="kind = 'a'").to_arrow().num_rows == 15


def test_a_field_that_is_void_in_a_table_of_version_1(tables: Tables) -> None:
    rows = pa.table({"id": range(10), "kind": ["a", "b"] * 5})
    table = tables.make(
        rows.schema, Partitioning.identity("kind"), Partitioning.bucket("id", n=2), properties={"format-version": "1"}
    )
    with table.update_spec() as update:
        update.remove_field("kind")
    table = table.refresh()
    assert any(isinstance(field.transform, VoidTransform) for field in table.spec().fields)
    check_spec(table, Partitioning.bucket("id", n=2))
    result = write(table, rows)
    assert sorted(records(result)) == [[None, 0], [None, 1]]
    assert sorted(commit(table, result).scan().to_arrow()["id"].to_pylist()) == [*range(10)]


WRONG: list[tuple[Partitioning, str]] = [
    (Partitioning.identity("kinds"), "no column 'kinds'"),
    (Partitioning.time("id"), r"day\(id\): day does not take long"),
    (Partitioning.time("day", granularity="hour"), "hour does not take date"),
    (Partitioning.bucket("real"), "bucket does not take double"),
    (Partitioning.truncate("day", width=2), "truncate does not take date"),
    (Partitioning.identity("point"), "identity does not take struct"),
    (Partitioning.identity("fixed"), r"Java library can't read .* partitioned by fixed\[2\]"),
    (Partitioning.identity("tags.element"), "in a list or map"),
    (Partitioning((Transform("bucket", "id", 4),)), "'id_bucket_4'.*another column"),
]


@pytest.mark.parametrize(("how", "message"), WRONG, ids=[message for _, message in WRONG])
def test_a_partitioning_that_the_columns_do_not_allow(how: Partitioning, message: str) -> None:
    more = {"tags": pa.list_(pa.string()), "id_bucket_4": pa.int64(), "kind": pa.string(), "fixed": pa.binary(2)}
    schema = pa.schema([*KINDS.schema, *pa.schema(more)])
    with pytest.raises(ConfigError, match=message) as caught:
        spec_of(how, to_iceberg_schema(schema))
    assert caught.value.hint


def test_a_spec_of_a_dropped_column_is_refused(tables: Tables) -> None:
    table = tables.make(pa.schema({"id": pa.int64(), "n": pa.int64()}), Partitioning.bucket("n"))
    # As another client may leave it; pyiceberg does not.
    table.metadata = table.metadata.model_copy(update={"schemas": [Schema(NestedField(1, "id", LongType()))]})
    with pytest.raises(ConfigError, match="'n_bucket_16' is of a column that was dropped"):
        check_spec(table, Partitioning.table_default())
