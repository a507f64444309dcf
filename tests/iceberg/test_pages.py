"""Reading of single pages: exactly the rows that a filter may match, whatever the columns and the pages are."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.iceberg.pages import recorded_cuts
from tests.iceberg.tables import Files
from volley import SourceError, col, lit
from volley.formats import parquet_index, parquet_ranges
from volley.formats.input_file import InputFile
from volley.formats.parquet import opened
from volley.formats.parquet_index import PagedFile
from volley.formats.parquet_ranges import read_ranges
from volley.iceberg import IcebergTable
from volley.iceberg.read import skipping

ROWS = 5_000
TYPES: dict[str, tuple[pa.DataType, Callable[[int], Any]]] = {
    "id": (pa.int64(), lambda n: n),
    "small": (pa.int32(), lambda n: n // 7),
    "text": (pa.string(), lambda n: f"text {n:06}" * (1 + n % 3)),
    "few": (pa.string(), lambda n: None if n % 5 == 0 else "abcde"[n % 5] * 9),
    "bytes": (pa.binary(), lambda n: n.to_bytes(4, "big")),
    "real": (pa.float64(), lambda n: float("nan") if n % 11 == 0 else n / 7),
    "flag": (pa.bool_(), lambda n: n % 3 == 0),
    "day": (pa.date32(), lambda n: date(2026, 1, 1) + timedelta(n // 100)),
    "at": (pa.timestamp("us", "UTC"), lambda n: datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=n)),
    "price": (pa.decimal128(20, 2), lambda n: Decimal(n) / 4),
    "key": (pa.binary(16), lambda n: uuid.UUID(int=n).bytes),
    "empty": (pa.string(), lambda n: None),
    "list": (pa.list_(pa.int64()), lambda n: None if n % 4 == 0 else list(range(n % 4))),
    "struct": (pa.struct({"a": pa.int64(), "b": pa.string()}), lambda n: {"a": n, "b": str(n)} if n % 6 else None),
}


@pytest.fixture(scope="module")
def rows() -> pa.Table:
    """Rows whose columns are all in the same order, so that a filter leaves few pages."""
    return pa.table({name: pa.array(map(make, range(ROWS)), of) for name, (of, make) in TYPES.items()})


def written(rows: pa.Table, path: Path, **options: Any) -> InputFile:
    pq.write_table(rows, path, **{"write_page_index": True, "write_batch_size": 64, **options})
    return InputFile(str(path), path.stat().st_size, partial(path.open, "rb"))


@contextmanager
def paged(file: InputFile) -> Iterator[tuple[Any, PagedFile]]:
    with opened(file) as parquet:
        yield parquet, PagedFile(file, parquet.stream)


OPTIONS: dict[str, dict[str, Any]] = {
    "small pages": {"data_page_size": 1_000},
    "plain": {"data_page_size": 3_000, "use_dictionary": False},
    "version 2": {"data_page_size": 2_000, "data_page_version": "2.0", "compression": "zstd"},
    "a dictionary that overflows": {"data_page_size": 2_000, "dictionary_pagesize_limit": 20_000},
    "row groups": {"data_page_size": 1_000, "row_group_size": 1_700},
    "no page index": {"write_page_index": False},
}


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("dictionaries", [False, True])
def test_ranges_have_the_rows_of_the_file(rows: pa.Table, name: str, dictionaries: bool, tmp_path: Path) -> None:
    file = written(rows, tmp_path / "file.parquet", **OPTIONS[name])
    encoded = rows.schema if dictionaries else None
    with paged(file) as (parquet, index):
        before = 0
        for group in range(len(parquet.groups)):
            count = parquet.groups[group].rows
            ranges = [range(3), range(777, 778), range(900, 1_500), range(count - 40, count)]
            found = list(read_ranges(parquet, index, rows.column_names, group, ranges, encoded, 250))
            assert max(batch.num_rows for batch, _ in found) <= 250
            for batch, position in found:
                expected = rows.slice(position, batch.num_rows)
                for column in rows.column_names:
                    assert plain(batch[column]) == plain(expected[column].combine_chunks()), column
            positions = [place for batch, first in found for place in range(first, first + batch.num_rows)]
            assert positions == [before + row for each in ranges for row in each]
            before += count


def plain(values: pa.Array) -> list[str]:
    """The values as texts: NaN is not equal to itself."""
    return list(map(repr, values.to_pylist()))


@given(data=st.data())
def test_any_ranges_of_any_pages(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    count = data.draw(st.integers(1, 900))
    names = data.draw(st.lists(st.sampled_from(list(TYPES)), min_size=1, unique=True))
    rows = pa.table({name: pa.array(map(TYPES[name][1], range(count)), TYPES[name][0]) for name in names})
    page, group = data.draw(st.integers(1, 300)), data.draw(st.integers(1, 900))
    path = tmp_path_factory.mktemp("pages") / "file.parquet"
    file = written(rows, path, max_rows_per_page=page, row_group_size=group, use_dictionary=data.draw(st.booleans()))
    with paged(file) as (parquet, index):
        number = data.draw(st.integers(0, len(parquet.groups) - 1))
        size = parquet.groups[number].rows
        borders = sorted(data.draw(st.sets(st.integers(0, size), max_size=6)))
        ranges = [range(*pair) for pair in zip(borders[::2], borders[1::2], strict=False)]
        most = data.draw(st.integers(1, 400))
        pieces = data.draw(st.sampled_from([500, 10_000, 32 << 20]))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(parquet_ranges, "_PIECE_BYTES", pieces)
            found = list(read_ranges(parquet, index, names, number, ranges, None, most))
        before = number * group
        expected = [row for each in ranges for row in rows.slice(before + each.start, len(each)).to_pylist()]
        assert list(map(repr, (row for batch, _ in found for row in batch.to_pylist()))) == list(map(repr, expected))


FILTERS = {
    "id = 1234": lambda: col("id").eq(lit(1234)),
    "id > 4980 or small < 2": lambda: (col("id") > lit(4_980)) | (col("small") < lit(2)),
    "text = 'text 000123text 000123'": lambda: col("text").eq(lit("text 000123")),
    "day = date '2026-01-03'": lambda: col("day").eq(lit(date(2026, 1, 3))),
    "real < 3": lambda: col("real") < lit(3.0),
    "real > 700": lambda: col("real") > lit(700.0),
    "id between 2000 and 2010 and few is null": lambda: col("id").between(2_000, 2_010) & col("few").is_null(),
    "empty is not null": lambda: ~col("empty").is_null(),
}


@pytest.fixture(scope="module")
def table(rows: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Files, Path]]:
    """A table of one data file with small pages."""
    files = Files(tmp_path_factory.mktemp("table") / "lake", rows.schema)
    data = files.data(rows.to_pylist(), write_page_index=True, write_batch_size=64, data_page_size=1_000)
    files.commit([data])
    files.commit([], [files.positions((data, 1_233), (data, 4_999), (data, 2_005))])
    yield files, Path(data.file_path.removeprefix("file://"))
    files.close()


@pytest.mark.parametrize("name", FILTERS)
def test_a_filter_leaves_the_rows_that_duckdb_finds(
    table: tuple[Files, Path], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, path = table
    monkeypatch.setattr(skipping, "_GAP_ROWS", 0)
    cuts = recorded_cuts(monkeypatch)
    found = IcebergTable(files.ref).rows.filter(FILTERS[name]()).to_arrow()["id"].to_pylist()
    query = name if not name.startswith("text") else "text = 'text 000123'"
    deleted = "file_row_number not in (1233, 4999, 2005)"
    sql = f"select id from read_parquet('{path}', file_row_number = true) where ({query}) and {deleted} order by id"
    with duckdb.connect() as connection:
        assert found == [row for (row,) in connection.sql(sql).fetchall()]
    # Any page of numbers may have NaN, which is above all of them.
    assert bool(cuts) == (bool(found) and name != "real > 700")


def test_a_damaged_index_names_the_column(rows: pa.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = written(rows.select(["id"]), tmp_path / "file.parquet", data_page_size=1_000)
    monkeypatch.setattr(parquet_index, "_OFFSETS", {2: [{1: int}]})
    with paged(file) as (_, index), pytest.raises(SourceError, match=r"page index of column 'id'"):
        index.column(0, "id")


def test_a_filter_on_a_sorted_table_reads_few_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The index and the pages that Volley's own writer makes."""
    rows = pa.table({"id": pa.array(range(300_000, 0, -1)), "name": [f"name {n}" for n in range(300_000)]})
    files = Files(tmp_path / "lake", rows.schema)
    files.commit([files.data(rows.to_pylist())])
    IcebergTable(files.ref).compact(sort_by="id", rewrite_all=True)
    cuts = recorded_cuts(monkeypatch)
    found = IcebergTable(files.ref).rows.filter("id = 123456").to_arrow()
    assert found.to_pylist() == [{"id": 123_456, "name": "name 176544"}]
    assert [name for name, _ in cuts] == ["id", "name"]
    assert sum(size for _, size in cuts) < files.ref.load().inspect.files()["file_size_in_bytes"][0].as_py() / 4
    files.close()


@given(data=st.data())
def test_a_damaged_index_is_an_error_or_harmless(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    rows = pa.table({"id": range(900), "text": [f"text {n}" for n in range(900)]})
    path = tmp_path_factory.mktemp("damaged") / "file.parquet"
    written(rows, path, max_rows_per_page=50)
    content = bytearray(path.read_bytes())
    metadata = pq.read_metadata(path)
    start = metadata.row_group(0).column(1).data_page_offset + metadata.row_group(0).column(1).total_compressed_size
    place = data.draw(st.integers(start - 5_000, len(content) - 8 - metadata.serialized_size - 1))
    content[place] = data.draw(st.integers(0, 255))
    path.write_bytes(content)
    file = InputFile(str(path), len(content), partial(path.open, "rb"))
    try:
        with paged(file) as (parquet, index):
            for name in rows.column_names:
                column = index.column(0, name)
                assert column is None or len(index.statistics(column)) == len(column.pages)
            found = list(read_ranges(parquet, index, ["id"], 0, [range(100, 170)], None, 1_000))
    except SourceError:
        return
    assert [value for batch, _ in found for value in batch["id"].to_pylist()] == list(range(100, 170))
