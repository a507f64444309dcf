from __future__ import annotations

import errno
import io
import os
import pickle
import uuid
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime, time
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
from pyiceberg.io.pyarrow import parquet_file_to_data_file, pyarrow_to_schema
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.types import FixedType, LongType, NestedField, StringType, UUIDType

from tests.iceberg.conftest import Make
from volley.contracts.epoch import Epoch, WriteResult
from volley.errors import ConfigError, SchemaMismatchError, SourceError, StorageAccessError, StorageError
from volley.iceberg import IcebergSinkConfig, IcebergStorage
from volley.iceberg.schema.types import to_iceberg_schema
from volley.iceberg.write.writer import IcebergWriter
from volley.iceberg.write.written import WrittenFile

ROWS = pa.table(
    {
        "id": pa.array([1, 2, 3], pa.int64()),
        "small": pa.array([1, None, -3], pa.int32()),
        "real": pa.array([1.5, -0.0, None], pa.float64()),
        "single": pa.array([1.5, None, -0.25], pa.float32()),
        "yes": pa.array([True, None, False]),
        "text": pa.array(["ä ✓", "", None]),
        "raw": pa.array([b"\x00\xff", None, b""], pa.binary()),
        "fixed": pa.array([b"abcd", None, b"\xff\xff\xff\xff"], pa.binary(4)),
        "money": pa.array([Decimal("1.25"), None, Decimal("-9999999.99")], pa.decimal128(9, 2)),
        "wide": pa.array([Decimal("1.5"), None, Decimal("-12345678901234567890.5")], pa.decimal128(38, 1)),
        "day": pa.array([date(1900, 1, 1), None, date(2024, 2, 29)]),
        "clock": pa.array([time(23, 59, 59, 999999), None, time(0)], pa.time64("us")),
        "at": pa.array(
            [datetime(1969, 12, 31, 23, 59, 59, 1, UTC), None, datetime(2024, 1, 1, tzinfo=UTC)],
            pa.timestamp("us", "UTC"),
        ),
        "local": pa.array([datetime(1969, 1, 1), None, datetime(2024, 1, 1, 0, 0, 0, 1)], pa.timestamp("us")),
        "tags": pa.array([["a", None], [], None], pa.list_(pa.string())),
        "point": pa.array(
            [{"x": 1, "y": None}, None, {"x": None, "y": 2.5}], pa.struct({"x": pa.int32(), "y": pa.float64()})
        ),
        "counts": pa.array([[("a", 1)], [], None], pa.map_(pa.string(), pa.int64())),
        "deep": pa.array(
            [[{"m": [("k", [1, None])]}], None, [None]],
            pa.list_(pa.struct({"m": pa.map_(pa.string(), pa.list_(pa.int64()))})),
        ),
    }
)


def writer_for(table: Table, **changes: Any) -> IcebergWriter:
    config = IcebergSinkConfig(namespace="db", table="t", storage=IcebergStorage.Local("/unused"))
    return replace(IcebergWriter.for_table(table, config, Epoch("2b6f8a5e", 7)), **changes)


def write(table: Table, rows: pa.Table, batch: int | None = None, **changes: Any) -> WriteResult:
    task = writer_for(table, **changes).open(3)
    for each in rows.to_batches(max_chunksize=batch):
        task.write(each)
    return task.close()


def seen_by_pyiceberg(rows: list[dict[str, Any]], *columns: str) -> list[dict[str, Any]]:
    """What pyiceberg reads: a list of structs that is null becomes an empty one (in files of its own as well)."""
    return [row | {column: row[column] or [] for column in columns} for row in rows]


def commit(table: Table, result: WriteResult) -> Table:
    """Append the files as any client of pyiceberg would."""
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
        for file in result.committables:
            append.append_data_file(file.data_file)
    return table.refresh()


def paths(result: WriteResult) -> list[str]:
    return [file.data_file.file_path.removeprefix("file://") for file in result.committables]


def files_below(table: Table) -> list[Path]:
    root = Path(table.location().removeprefix("file://"))
    return [path for path in root.rglob("*") if path.is_file() and path.parent.name != "metadata"]


# What is in the files


def test_three_readers_find_every_type(make: Make) -> None:
    table = make(ROWS.schema)
    result = write(table, ROWS)
    assert pq.read_table(paths(result)[0]).to_pylist() == ROWS.to_pylist()
    assert commit(table, result).scan().to_arrow().to_pylist() == seen_by_pyiceberg(ROWS.to_pylist(), "deep")
    with duckdb.connect() as duck:
        duck.execute("set timezone = 'UTC'")
        found = duck.sql(f"from read_parquet({paths(result)})").to_arrow_table()
        plain = ROWS.set_column(7, "fixed", ROWS["fixed"].cast(pa.binary()))
        assert found.cast(plain.schema).to_pylist() == plain.to_pylist()


def test_field_ids_stand_in_the_footer_at_every_level(make: Make) -> None:
    table = make(ROWS.schema)
    footer = pq.read_schema(paths(write(table, ROWS))[0])
    assert pyarrow_to_schema(footer).as_struct() == table.schema().as_struct()


def test_short_decimals_are_whole_numbers_as_iceberg_wants_them(make: Make) -> None:
    columns = pq.read_metadata(paths(write(make(ROWS.schema), ROWS))[0]).row_group(0)
    kinds = {columns.column(n).path_in_schema: columns.column(n).physical_type for n in range(columns.num_columns)}
    assert (kinds["money"], kinds["wide"]) == ("INT32", "FIXED_LEN_BYTE_ARRAY")


def test_uuids_and_fixed(make: Make) -> None:
    table = make(Schema(NestedField(1, "u", UUIDType()), NestedField(2, "f", FixedType(16))))
    value = uuid.uuid4()
    rows = pa.table(
        {"u": pa.array([value.bytes, None], pa.binary(16)), "f": pa.array([value.bytes] * 2, pa.binary(16))}
    )
    result = write(table, rows)
    scanned = commit(table, result).scan().to_arrow().to_pylist()
    assert scanned == [{"u": value, "f": value.bytes}, {"u": None, "f": value.bytes}]
    assert duckdb.sql(f"select u, f from read_parquet({paths(result)})").fetchall() == [
        (value, value.bytes),
        (None, value.bytes),
    ]


def test_names_that_parquet_does_not_take(make: Make) -> None:
    rows = pa.table(
        {
            "a b": pa.array([1, 2], pa.int64()),
            "1.st": pa.array(
                [[{"x.y": 1, "z": "q"}], None], pa.list_(pa.struct({"x.y": pa.int32(), "z": pa.string()}))
            ),
        }
    )
    table = make(rows.schema)
    result = write(table, rows)
    found = commit(table, result).scan().to_arrow().to_pylist()
    assert found == seen_by_pyiceberg(rows.to_pylist(), "1.st")
    assert pq.read_table(paths(result)[0])[1].to_pylist() == [[{"x_x2Ey": 1, "z": "q"}], None]


def test_columns_are_taken_by_name_widened_and_filled_with_nulls(make: Make) -> None:
    table = make("id long, real double, money decimal(10,2), missing string, point struct<x: long, y: string>")
    rows = pa.table(
        {
            "point": pa.array([{"x": 1}, None], pa.struct({"x": pa.int32()})),
            "money": pa.array([Decimal("1.25"), None], pa.decimal128(5, 2)),
            "real": pa.array([0.5, None], pa.float32()),
            "id": pa.array([1, 2], pa.int32()),
        }
    )
    assert commit(table, write(table, rows)).scan().to_arrow().to_pylist() == [
        {"id": 1, "real": 0.5, "money": Decimal("1.25"), "missing": None, "point": {"x": 1, "y": None}},
        {"id": 2, "real": None, "money": None, "missing": None, "point": None},
    ]


def test_a_value_that_does_not_fit_is_named_and_nothing_is_left(make: Make) -> None:
    table = make("id int")
    task = writer_for(table).open(0)
    task.write(pa.record_batch({"id": pa.array([1], pa.int32())}))
    with pytest.raises(SourceError, match="'id'"):
        task.write(pa.record_batch({"id": pa.array([2**40])}))
    task.abort()
    assert files_below(table) == []


def test_nulls_in_a_required_column_are_refused(make: Make) -> None:
    table = make(Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "name", StringType())))
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())])
    write(table, pa.table({"id": [1], "name": [None]}, schema=schema))
    with pytest.raises(SchemaMismatchError, match=r"'id' has 1 nulls.*\n.*hint"):
        write(table, pa.table({"id": [1, None], "name": ["a", "b"]}))


def test_a_batch_that_fits_is_not_copied(make: Make) -> None:
    batch = ROWS.to_batches()[0]
    fitted = writer_for(make(ROWS.schema)).fitted(batch)
    for ours, theirs in zip(fitted.columns, batch.columns, strict=True):
        assert [each and each.address for each in ours.buffers()] == [
            each and each.address for each in theirs.buffers()
        ]


@pytest.mark.parametrize("compression", ["none", "snappy", "gzip", "lz4", "zstd", "brotli"])
def test_compressions(make: Make, compression: str) -> None:
    rows = pa.table({"id": pa.array(range(1000)), "text": ["t" * 50] * 1000})
    table = make(rows.schema)
    result = write(table, rows, compression=compression)
    codec = duckdb.sql(f"select distinct compression from parquet_metadata({paths(result)})").fetchall()
    assert codec == [({"none": "UNCOMPRESSED", "lz4": "LZ4_RAW"}.get(compression, compression.upper()),)]
    assert duckdb.sql(f"select count(*), sum(id) from read_parquet({paths(result)})").fetchall() == [(1000, 499500)]


def test_a_higher_level_compresses_more(make: Make) -> None:
    rows = pa.table({"text": [f"{n * 7919 % 10007:x}" for n in range(20_000)]})
    table = make(rows.schema)
    low, high = (write(table, rows, compression="zstd", compression_level=level).bytes for level in (1, 19))
    assert high < low


def test_gzip_has_the_level_of_zlib_where_none_is_set(make: Make) -> None:
    rows = pa.table({"text": [f"{n * 7919 % 10007:x}" for n in range(20_000)]})
    table = make(rows.schema)
    unset, zlibs, highest = (
        write(table, rows, compression="gzip", compression_level=level).bytes for level in (None, 6, 9)
    )
    assert unset == zlibs > highest


# Statistics


@pytest.mark.parametrize(
    "properties",
    [
        {},
        {"write.metadata.metrics.default": "none"},
        {"write.metadata.metrics.default": "counts"},
        {"write.metadata.metrics.default": "truncate(2)", "write.metadata.metrics.column.text": "full"},
    ],
    ids=lambda properties: ",".join(properties.values()) or "default",
)
def test_statistics_are_those_that_pyiceberg_computes(make: Make, properties: dict[str, str]) -> None:
    table = make(ROWS.schema, **properties)
    for file in write(table, ROWS, batch=1, row_group_rows=2).committables:
        theirs = parquet_file_to_data_file(table.io, table.metadata, file.data_file.file_path)
        assert file.data_file._data == theirs._data


def test_statistics_prune_files(make: Make) -> None:
    table = make("id long")
    commit(table, write(table, pa.table({"id": pa.array(range(100))}), max_records=10))
    assert len(list(table.scan(row_filter="id = 42").plan_files())) == 1


def test_a_wrong_table_property_is_named_before_anything_is_written(make: Make) -> None:
    with pytest.raises(ConfigError, match=r"write\.metadata\.metrics.*truncate\(x\)"):
        writer_for(make("id long", **{"write.metadata.metrics.default": "truncate(x)"}))
    for name in ("row-group-limit", "row-group-size-bytes", "page-size-bytes", "dict-size-bytes", "page-row-limit"):
        for value in ("0", "-1", "many"):
            with pytest.raises(ConfigError, match=f"write.parquet.{name} is '{value}'"):
                writer_for(make("id long", **{f"write.parquet.{name}": value}))


# Rolling


def random_rows(random: Random, step: int) -> pa.RecordBatch:
    """Numbers and bytes that don't compress."""
    return batch_of([random.getrandbits(62) for _ in range(500)], [random.randbytes(20) for _ in range(500)])


def repeated_rows(random: Random, step: int) -> pa.RecordBatch:
    """Ten values of each column, in random order."""
    picks = random.choices(range(10), k=3000)
    return batch_of(picks, pa.array([b"%0100d" % n for n in range(10)]).take(pa.array(picks)))


def growing_rows(random: Random, step: int) -> pa.RecordBatch:
    """Rows that get longer and compress worse and worse."""
    return batch_of(range(500), [random.randbytes(step) + bytes(20) for _ in range(500)])


def uneven_rows(random: Random, step: int) -> pa.RecordBatch:
    """Batches whose first rows are a hundred times as long as the others."""
    return batch_of(random.choices(range(99), k=500), [random.randbytes(1000 if n < 10 else 10) for n in range(500)])


def turning_rows(random: Random, step: int) -> pa.RecordBatch:
    """Rows that compress by half and rows that don't, in turns."""
    known = step % 2 * 16
    return batch_of(range(500), [random.randbytes(32 - known) + bytes(known) for _ in range(500)])


def batch_of(numbers: Any, values: Any) -> pa.RecordBatch:
    return pa.record_batch({"n": pa.array(numbers, pa.int64()), "raw": pa.array(values, pa.binary())})


@pytest.mark.parametrize("compression", ["none", "zstd"])
@pytest.mark.parametrize("rows", [random_rows, repeated_rows, growing_rows, uneven_rows, turning_rows])
def test_files_are_within_ten_percent_of_the_target(
    tmp_path: Path, rows: Callable[[Random, int], pa.RecordBatch], compression: str
) -> None:
    random = Random(1)
    batches = [rows(random, step) for step in range(60)]
    target = 40_000 if rows is repeated_rows else 200_000
    small = roll(tmp_path / "small", batches, target_bytes=target, compression=compression)
    large = roll(tmp_path / "large", [pa.concat_batches(batches)], target_bytes=target, compression=compression)
    for result in (small, large):
        sizes = [os.path.getsize(path) for path in paths(result)]
        assert len(sizes) >= 3
        assert all(0.9 * target <= size <= 1.1 * target for size in sizes[:-1]), [size / target for size in sizes]
        assert sizes[-1] <= 1.1 * target
        assert sizes == [file.data_file.file_size_in_bytes for file in result.committables]
        assert sum(sizes) == result.bytes
        assert max(pq.read_metadata(path).num_row_groups for path in paths(result)) <= 12
        found = pa.concat_tables(map(pq.read_table, paths(result)))
        assert found.cast(batches[0].schema).equals(pa.Table.from_batches(batches))


def roll(folder: Path, batches: list[pa.RecordBatch], **changes: Any) -> WriteResult:
    """Write without a catalog: small files of one task."""
    schema = to_iceberg_schema(batches[0].schema)
    writer = IcebergWriter(
        str(folder), {}, {}, schema, PartitionSpec(), UNSORTED_SORT_ORDER, "", 1 << 20, None, "none", None
    )
    task = replace(writer, **changes).open(0)
    for batch in batches:
        task.write(batch)
    return task.close()


@given(
    sizes=st.lists(st.integers(1, 20), min_size=1, max_size=4),
    most=st.integers(1, 25),
    group=st.integers(1, 25),
)
def test_no_file_has_more_than_max_records_and_only_the_last_has_less(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], most: int, group: int
) -> None:
    numbers = iter(range(sum(sizes)))
    batches = [pa.record_batch({"id": [next(numbers) for _ in range(size)]}) for size in sizes]
    result = roll(tmp_path_factory.mktemp("rolling"), batches, max_records=most, row_group_rows=group)
    counts = [file.data_file.record_count for file in result.committables]
    assert counts[:-1] == [most] * (len(counts) - 1)
    assert 1 <= counts[-1] <= most
    tables = [pq.read_table(path) for path in paths(result)]
    assert pa.concat_tables(tables)["id"].to_pylist() == list(range(sum(sizes)))
    for path in paths(result):
        footer = pq.read_metadata(path)
        assert max(footer.row_group(n).num_rows for n in range(footer.num_row_groups)) <= group


def test_a_row_larger_than_the_target_is_a_file_of_its_own(make: Make) -> None:
    table = make("text string")
    result = write(table, pa.table({"text": [os.urandom(5000).hex() for _ in range(5)]}), target_bytes=4000)
    assert [file.data_file.record_count for file in result.committables] == [1] * 5


def test_row_groups_follow_the_tables_properties(make: Make) -> None:
    rows = pa.table({"id": pa.array(range(10_000))})
    by_rows = write(make(rows.schema, **{"write.parquet.row-group-limit": "3000"}), rows, batch=700)
    by_size = write(make(rows.schema, **{"write.parquet.row-group-size-bytes": "16000"}), rows, batch=700)
    assert _group_rows(by_rows) == [3000, 3000, 3000, 1000]
    assert _group_rows(by_size) == [2000] * 5


def _group_rows(result: WriteResult) -> list[int]:
    footer = pq.read_metadata(paths(result)[0])
    return [footer.row_group(n).num_rows for n in range(footer.num_row_groups)]


def test_page_and_dictionary_sizes_follow_the_tables_properties(make: Make) -> None:
    rows = pa.table({"text": [f"value {n}" for n in range(5_000)]})
    properties = {"write.parquet.dict-size-bytes": "1000", "write.parquet.page-row-limit": "100"}
    ours = pq.read_metadata(paths(write(make(rows.schema, **properties), rows))[0]).row_group(0).column(0)
    default = pq.read_metadata(paths(write(make(rows.schema), rows))[0]).row_group(0).column(0)
    dictionary = [chunk.data_page_offset - chunk.dictionary_page_offset for chunk in (ours, default)]
    assert dictionary[0] < 2000 < dictionary[1]


def test_pages_have_as_many_rows_as_the_table_says(make: Make) -> None:
    rows = pa.table({"same": pa.repeat("value", 60_000)})
    sizes = [
        pq.read_metadata(paths(write(make(rows.schema, **properties), rows))[0]).row_group(0).total_byte_size
        for properties in ({"write.parquet.page-row-limit": "100"}, {"write.parquet.page-row-limit": "10000"}, {})
    ]
    # A page begins with a header of some twenty bytes: there are 600 pages, six, and one.
    assert sizes[0] > 12_000 > 10 * sizes[1] > 10 * sizes[2]


def test_columns_get_a_dictionary_if_it_makes_them_smaller(make: Make) -> None:
    random, count = Random(7), 40_000
    rows = pa.table(
        {
            "unique": [f"{random.random()}" for _ in range(count)],
            "a.few": [random.randrange(8) for _ in range(count)],
            "far apart": [random.randrange(count // 10) for _ in range(count)],
            "too many": [random.randrange(10 * count) for _ in range(count)],
            "clustered": [n // 500 for n in range(count)],
            "none": pa.nulls(count, pa.date32()),
            "nested": [{"unique": n, "few": n % 8} for n in range(count)],
            "list": [[n, n + count] for n in range(count)],
            "map": pa.array([[("key", n)] for n in range(count)], pa.map_(pa.string(), pa.int64())),
        }
    )
    result = write(make(rows.schema), rows, batch=7_000)
    group = pq.read_metadata(paths(result)[0]).row_group(0)
    chunks = [group.column(number) for number in range(group.num_columns)]
    plain = [chunk.path_in_schema for chunk in chunks if not chunk.has_dictionary_page]
    nested = ["nested.unique", "list.list.element", "map.key_value.value"]
    assert plain == ["unique", "too_x20many", *nested]
    assert pq.read_table(paths(result)[0]).rename_columns(rows.column_names).cast(rows.schema).equals(rows)
    pq.write_table(rows, file := io.BytesIO())
    assert result.bytes < len(file.getvalue())


@pytest.mark.parametrize("times", [2, 4])
def test_a_column_whose_many_values_all_recur_gets_no_dictionary(make: Make, times: int) -> None:
    # As those of so many partitions, one read after the other; a dictionary of them would be too large.
    rows = pa.table({"id": [*range(250_000)] * times})
    result = write(make(rows.schema), rows)
    assert not pq.read_metadata(paths(result)[0]).row_group(0).column(0).has_dictionary_page
    assert pq.read_table(paths(result)[0]).column(0).to_pylist() == rows["id"].to_pylist()


def test_every_type_is_sampled(make: Make) -> None:
    rows = pa.concat_tables([ROWS] * 4_000).combine_chunks()
    assert rows_of_file(write(make(ROWS.schema), rows, batch=1_000)) == rows.num_rows


# Dictionaries that come with the rows


def kinds_of(*values: str | None, rows: int, encode: bool = True) -> pa.RecordBatch:
    """Rows with a number, and with these kinds in turn."""
    kinds = pa.array([values[number % len(values)] for number in range(rows)], pa.string())
    return pa.record_batch({"id": pa.array(range(rows)), "kind": kinds.dictionary_encode() if encode else kinds})


def dictionary_of(path: str, column: str) -> list[Any]:
    """What stands in the dictionary page of the first row group."""
    file = pq.ParquetFile(path, read_dictionary=[column])
    found: list[Any] = next(file.iter_batches(1, [0], [column])).column(0).dictionary.to_pylist()
    return found


def test_dictionaries_go_into_the_files_as_they_are(make: Make) -> None:
    """Two batches with different dictionaries, with nulls, in two row groups: rows and statistics are the same."""
    batches = [kinds_of("view", None, "click", rows=3000), kinds_of("cart", "click", rows=3000)]
    table, changes = make("id long, kind string"), {"row_group_rows": 4000}
    task, plain = writer_for(table, **changes).open(0), writer_for(table, **changes).open(1)
    for batch in batches:
        task.write(batch)
        plain.write(pa.record_batch({"id": batch["id"], "kind": batch["kind"].cast(pa.string())}))
    result, expected = task.close(), plain.close()
    rows = [row for batch in batches for row in batch.to_pylist()]
    (path,) = paths(result)
    assert pq.read_table(path).to_pylist() == rows
    assert pq.read_table(path).schema.field("kind").type == pa.string()
    assert sorted(dictionary_of(path, "kind")) == ["cart", "click", "view"]
    footer = pq.read_metadata(path)
    assert all("PLAIN" not in footer.row_group(group).column(1).encodings[1:] for group in range(2))
    (file,), (other,) = (each.committables for each in (result, expected))
    for name in ("value_counts", "null_value_counts", "lower_bounds", "upper_bounds", "record_count"):
        assert getattr(file.data_file, name) == getattr(other.data_file, name)
    with duckdb.connect() as duck:
        counted = duck.execute(f"select kind, count(*) from '{path}' group by all order by kind").fetchall()
    assert counted == [("cart", 1500), ("click", 2500), ("view", 1000), (None, 1000)]


@pytest.mark.parametrize("first_is_encoded", [True, False])
def test_row_groups_with_and_without_dictionaries_share_a_file(make: Make, first_is_encoded: bool) -> None:
    batches = [kinds_of("a", "b", rows=1000, encode=encode) for encode in (first_is_encoded, not first_is_encoded) * 2]
    table = make("id long, kind string")
    task = writer_for(table, row_group_rows=1000).open(0)
    for batch in batches:
        task.write(batch)
    result = task.close()
    assert rows_of_file(result) == 4000
    assert commit(table, result).scan().to_arrow().to_pylist() == [
        row for batch in batches for row in batch.to_pylist()
    ]


def test_a_row_group_of_batches_with_and_without_dictionaries(make: Make) -> None:
    batches = [kinds_of("a", "b", rows=100), kinds_of("b", "c", rows=100, encode=False)]
    table = make("id long, kind string")
    task = writer_for(table).open(0)
    for batch in batches:
        task.write(batch)
    (path,) = paths(task.close())
    assert pq.read_table(path).to_pylist() == [row for batch in batches for row in batch.to_pylist()]


def test_a_dictionary_that_few_rows_use_is_left_behind(make: Make) -> None:
    batch = kinds_of(*(f"kind {number}" for number in range(200)), rows=400).slice(0, 50)
    task = writer_for(make("id long, kind string")).open(0)
    task.write(batch)
    (path,) = paths(task.close())
    assert pq.read_table(path).to_pylist() == batch.to_pylist()
    assert len(dictionary_of(path, "kind")) == 50


def test_partitioned_rows_and_bloom_filters_have_their_values(make: Make) -> None:
    batch = kinds_of("view", "click", rows=1000)
    table = make("id long, kind string", **{"write_parquet_bloom-filter-enabled_column_kind": "true"})
    task = writer_for(table).open(0)
    task.write(batch)
    (path,) = paths(task.close())
    with duckdb.connect() as duck:
        probe = f"select bloom_filter_excludes from parquet_bloom_probe('{path}', 'kind', ?)"
        assert [duck.execute(probe, [kind]).fetchone() for kind in ("view", "order")] == [(False,), (True,)]
    with table.update_spec() as update:
        update.add_identity("kind")
    result = write(table.refresh(), pa.Table.from_batches([batch]))
    counted = {file.data_file.partition[0]: file.data_file.record_count for file in result.committables}
    assert counted == {"view": 500, "click": 500}
    assert commit(table, result).scan("kind == 'click'").to_arrow().num_rows == 500


def test_a_required_column_with_a_dictionary_takes_no_nulls(make: Make) -> None:
    table = make(Schema(NestedField(1, "kind", StringType(), required=True)))
    task = writer_for(table).open(0)
    with pytest.raises(SchemaMismatchError, match="'kind' has 5 nulls"):
        task.write(kinds_of("a", None, rows=10).select(["kind"]))


def rows_of_file(result: WriteResult) -> int:
    return sum(pq.read_table(path).num_rows for path in paths(result))


def test_bloom_filters_follow_the_tables_properties(make: Make) -> None:
    rows = pa.table({"id": range(0, 100_000, 2), "point": [{"x": n} for n in range(50_000)]})
    prefix = "write.parquet.bloom-filter-enabled.column"
    table = make(rows.schema, **{f"{prefix}.id": "true", f"{prefix}.point": "false", f"{prefix}.point.x": "true"})
    (path,) = paths(write(table, rows))
    filtered = f"select path_in_schema from parquet_metadata('{path}') where bloom_filter_offset is not null"
    assert sorted(duckdb.sql(filtered).fetchall()) == [("id",), ("point, x",)]
    # 777 is within the bounds, so only the filter can tell that it is not there.
    excludes = f"select bloom_filter_excludes from parquet_bloom_probe('{path}', 'id', %d)"
    assert [duckdb.sql(excludes % value).fetchall() for value in (777, 778)] == [[(True,)], [(False,)]]


def test_a_smaller_bloom_filter_is_written_if_the_table_says_so(make: Make) -> None:
    rows = pa.table({"id": range(50_000)})
    properties = {"write.parquet.bloom-filter-enabled.column.id": "true"}
    size = [
        write(make(rows.schema, **properties, **more), rows).bytes
        for more in ({}, {"write.parquet.bloom-filter-max-bytes": "1000"})
    ]
    assert size[0] - size[1] > 10_000


def test_a_bloom_filter_of_no_column_is_named_before_anything_is_written(make: Make) -> None:
    with pytest.raises(ConfigError, match=r"column\.idd is of a column that the table has not") as caught:
        writer_for(make("id long", **{"write.parquet.bloom-filter-enabled.column.idd": "true"}))
    assert "id" in str(caught.value.hint)


class Watched:
    """A table's own FileIO, that does something at each write."""

    def __init__(self, table: Table, at_write: Callable[[], None]) -> None:
        self._io = table.io
        self._at_write = at_write
        self.opened: list[_Stream] = []

    def new_output(self, location: str) -> Any:
        return _Output(lambda: self._open(location))

    def _open(self, location: str) -> _Stream:
        stream = _Stream(self._io.new_output(location).create(overwrite=True), self._at_write)
        self.opened.append(stream)
        return stream

    def delete(self, location: str) -> None:
        self._io.delete(location)


class _Output:
    def __init__(self, create: Callable[[], Any]) -> None:
        self._create = create

    def create(self, overwrite: bool) -> Any:
        return self._create()


class _Stream:
    """A file that does something at each write."""

    def __init__(self, file: Any, at_write: Callable[[], None]) -> None:
        self._file = file
        self._at_write = at_write

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def write(self, data: Any) -> int:
        self._at_write()
        return int(self._file.write(data))


def watched(table: Table, at_write: Callable[[], None], **changes: Any) -> Any:
    writer = writer_for(table, **changes)
    writer.__dict__["io"] = Watched(table, at_write)
    return writer.open(0)


def test_memory_is_that_of_one_row_group_whatever_the_epochs_size(make: Make) -> None:
    table = make("text string, n long")
    text = os.urandom(20 * 2000).hex()
    peak = 0
    base = pa.total_allocated_bytes()

    def look() -> None:
        nonlocal peak
        peak = max(peak, pa.total_allocated_bytes() - base)

    task = watched(table, look, row_group_bytes=1 << 20, compression="none")
    for step in range(200):
        values = [text[n * 40 : n * 40 + 40] for n in range(2000)]
        task.write(pa.record_batch({"text": values, "n": range(step, step + 2000)}))
        look()
    result = task.close()
    assert result.rows == 400_000
    assert 1 << 20 < peak < 5 << 20


# Names, results, pickles


def test_files_are_named_for_epoch_task_and_attempt(make: Make) -> None:
    table = make("id long")
    rows = pa.table({"id": [1, 2, 3]})
    writer = writer_for(table, max_records=1)
    attempts = [writer.open(3), writer.open(3), writer_for(table).open(3)]
    results = []
    for task in attempts:
        task.write(rows.to_batches()[0])
        results.append(task.close())
    names = [Path(path).name for result in results for path in paths(result)]
    assert len(set(names)) == len(names) == 7
    assert all(name.startswith("2b6f8a5e-00007-00003-") for name in names)
    assert [name[-13:] for name in names[:3]] == ["00000.parquet", "00001.parquet", "00002.parquet"]


def test_locations_follow_the_tables_properties(make: Make, tmp_path: Path) -> None:
    rows = pa.table({"id": [1]})
    elsewhere = write(make(rows.schema, **{"write.data.path": f"file://{tmp_path}/else"}), rows)
    assert Path(paths(elsewhere)[0]).parent == tmp_path / "else"
    spread_table = make(rows.schema, **{"write.object-storage.enabled": "true"})
    spread = write(spread_table, rows)
    assert len(Path(paths(spread)[0]).relative_to(spread_table.location().removeprefix("file://")).parts) == 6
    assert commit(spread_table, spread).scan().to_arrow().to_pylist() == [{"id": 1}]


def test_what_a_result_says(make: Make) -> None:
    table = make("id long")
    task = writer_for(table, max_records=4).open(0)
    for size in (3, 5, 2):
        task.write(pa.record_batch({"id": range(size)}))
    result = task.close()
    assert (result.rows, result.batches, result.batch_size_min, result.batch_size_max) == (10, 3, 2, 5)
    assert (result.files, result.bytes) == (3, sum(map(os.path.getsize, paths(result))))
    assert result.seconds > 0


def test_no_rows_no_file(make: Make) -> None:
    table = make("id long")
    assert replace(writer_for(table).open(0).close(), seconds=0.0) == WriteResult()
    assert files_below(table) == []


def test_writer_and_result_travel(make: Make) -> None:
    table = make(ROWS.schema)
    with table.update_schema() as update:
        update.add_column("later", LongType())
    writer = writer_for(table, io_properties={"s3.secret-access-key": "hush"})
    assert "hush" not in repr(writer)
    sent = pickle.loads(pickle.dumps(writer))
    assert sent == writer
    local = replace(sent, io_properties={})
    task = local.open(0)
    task.write(ROWS.to_batches()[0])
    assert len(pickle.dumps(local)) == len(pickle.dumps(replace(local))) < 10_000
    result: WriteResult = pickle.loads(pickle.dumps(task.close()))
    (file,) = result.committables
    assert isinstance(file, WrittenFile)
    assert (file.layout, file.data_file.spec_id) == (writer.layout.fingerprint, 0)
    found = commit(table, result).scan(selected_fields=("id", "text")).to_arrow()
    assert found.to_pylist() == ROWS.select(["id", "text"]).to_pylist()


# Failures


def test_abort_leaves_nothing(make: Make) -> None:
    table = make("id long")
    task = writer_for(table, max_records=10, row_group_rows=4).open(0)
    task.write(pa.record_batch({"id": range(27)}))
    assert len(files_below(table)) == 3
    task.abort()
    assert files_below(table) == []
    task.abort()


def refuse() -> None:
    raise PermissionError(errno.EACCES, "Forbidden")


def test_a_refusal_names_the_file_and_the_way_out(make: Make) -> None:
    table = make("id long")
    task = watched(table, refuse, row_group_rows=1)
    with pytest.raises(
        StorageAccessError, match=rf"{table.location()}/data/2b6f8a5e-00007-00000.*\.parquet.*Forbidden\n.*hint"
    ):
        task.write(pa.record_batch({"id": [1]}))
    task.abort()
    assert files_below(table) == []


def test_a_failing_close_aborts(make: Make) -> None:
    table = make("id long")
    full = False

    def fill() -> None:
        if full:
            raise OSError(errno.ENOSPC, "No space left on device")

    task = watched(table, fill, max_records=10, row_group_rows=5)
    task.write(pa.record_batch({"id": range(17)}))
    assert len(files_below(table)) == 2
    full = True
    with pytest.raises(StorageError, match="no space left"):
        task.close()
    assert files_below(table) == []


def test_a_full_disk_is_named(make: Make) -> None:
    task = watched(make("id long"), lambda: None, row_group_rows=10_000)
    task._format.io.new_output = lambda _: _Output(lambda: io.FileIO("/dev/full", "wb"))
    with pytest.raises(StorageError, match="no space left"):
        task.write(pa.record_batch({"id": range(10_000)}))
    task.abort()


def test_abort_closes_the_open_file_before_it_is_deleted(make: Make) -> None:
    """An object storage would else write the file anew when the stream is collected."""
    task = watched(make("id long"), lambda: None, row_group_rows=4)
    task.write(pa.record_batch({"id": range(10)}))
    (stream,) = task._format.io.opened
    closed: list[bool] = []
    task._format.io.delete = lambda _: closed.append(stream.closed)
    task.abort()
    assert closed == [True]


def test_a_place_that_can_not_be_written(make: Make, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    table = make("id long", **{"write.data.path": f"file://{tmp_path}/file/data"})
    with pytest.raises(StorageError, match=rf"writing file://{tmp_path}/file/data/2b6f8a5e-00007.*\n.*hint") as caught:
        write(table, pa.table({"id": [1]}))
    assert isinstance(caught.value.cause, OSError)


def test_abort_never_raises(make: Make) -> None:
    table = make("id long")
    task = watched(table, lambda: None, max_records=2)
    task.write(pa.record_batch({"id": range(5)}))
    task._format.io.delete = lambda _: refuse()
    task.abort()
