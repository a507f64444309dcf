"""Tables whose data files have shredded variants, by DuckDB: what writes files anew shreds as these do."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.types import ListType, MapType, NestedField, StringType, StructType

from tests.duck import query
from tests.iceberg.test_variant_tables import TEXTS, assert_rows, entries_of, files_of, stored, table_of, variants
from tests.upserts.lake import Lake
from volley import Epoch
from volley.columns.exact import array_of
from volley.formats.variant import json_text
from volley.formats.variant_columns import whole
from volley.iceberg import Append, IcebergTable, Upsert
from volley.iceberg.modes import CommitMode
from volley.iceberg.schema.foreign_types import VariantType
from volley.iceberg.schema.types import with_shredding
from volley.iceberg.write.written import WrittenFile

OF_A = "STRUCT(a BIGINT, b VARCHAR)"
OF_L = "STRUCT(l VARCHAR[])"
VALUES = [
    '{"a":-1,"b":"x","l":["p",null,1]}',
    '{"a":-300,"b":5,"o":{"d":1.5}}',
    "true",
    "null",
    '"text"',
    '{"b":"y","l":["q"],"a":-7}',
    "[]",
    '{"a":"z"}',
]


def shred(lake: Lake, rows: dict[int, str], shredding: str) -> None:
    """One epoch, whose only file DuckDB writes."""
    driver = lake.driver()
    driver.last_epoch(lake.query)
    epoch, (result,) = lake.write(driver, lake._next, [{"id": key, "v": value} for key, value in rows.items()])
    (file,) = result.committables
    path = Path(file.path.removeprefix("file://"))
    texts = pa.table({"id": list(rows), "v": list(rows.values())})
    options = f"format parquet, field_ids {{id: 1, v: 2}}, shredding {{v: '{shredding}'}}"
    query(f"copy (select id, v::json::variant as v from texts) to '{path}' ({options})", texts=texts)
    written = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=file.path,
        file_format=FileFormat.PARQUET,
        partition=file.data_file.partition,
        record_count=len(rows),
        file_size_in_bytes=path.stat().st_size,
    )
    written.spec_id = file.data_file.spec_id
    driver.commit(epoch, [replace(result, committables=(WrittenFile(written, file.layout),))])
    lake._next += 1


def pair_of(data_type: pa.DataType) -> pa.StructType:
    return pa.struct([("value", pa.binary()), ("typed_value", data_type)])


def write_shredded(lake: Lake, rows: pa.RecordBatch, pairs: dict[int, pa.StructType]) -> None:
    """One epoch, in which Volley writes shredded variants, by their field ids."""
    driver = lake.driver()
    driver.last_epoch(lake.query)
    epoch, metadata = Epoch(lake.query, lake._next), pa.field("metadata", pa.binary(), False)
    writer: Any = driver.writer(epoch)
    kinds = {field_id: pa.struct([metadata, *pair]) for field_id, pair in pairs.items()}
    task = replace(writer, schema=with_shredding(writer.schema, kinds)).open(0)
    task.write(rows)
    driver.commit(epoch, [task.close()])
    lake._next += 1


def typed_in(table: IcebergTable) -> list[set[str]]:
    """The columns of types that the variants of each file have."""
    return [{path for path in paths(file) if path.endswith(".typed_value")} for file in files_of(table)]


def paths(file: pq.ParquetFile) -> list[str]:
    return [file.schema.column(number).path for number in range(len(file.schema))]


def row_ids(table: IcebergTable) -> dict[int, dict[str, int]]:
    rows = table.rows.include("row_id", "last_updated_sequence_number").to_arrow().drop_columns("v").to_pylist()
    return {row.pop("id"): row for row in rows}


def values(table: IcebergTable) -> dict[int, Any]:
    """The bytes of the variants, put together, by the id of their row."""
    found: dict[int, Any] = {}
    for file in files_of(table):
        rows = file.read(["id", "v"])
        found |= zip(rows["id"].to_pylist(), whole(rows["v"].combine_chunks()).to_pylist(), strict=True)
    return found


A_AND_B = {"v.typed_value.a.typed_value", "v.typed_value.b.typed_value"}
L = {"v.typed_value.l.typed_value.list.element.typed_value"}


@pytest.mark.parametrize("sort_by", [(), ("id desc",)], ids=["as before", "sorted"])
def test_compaction_copies_what_all_files_shred_alike(sort_by: tuple[str, ...], tmp_path: Path) -> None:
    lake, table = variants(tmp_path, Append())
    for start in (0, 4):
        shred(lake, {start + n: value for n, value in enumerate(VALUES[start : start + 4])}, OF_A)
    assert typed_in(table) == [A_AND_B, A_AND_B]
    before, ids = stored(table), row_ids(table)
    assert table.compact(rewrite_all=True, sort_by=sort_by).files_after == 1
    assert typed_in(table) == [A_AND_B]
    assert stored(table) == before
    assert row_ids(table) == ids
    assert_rows(table, dict(enumerate(VALUES)))
    assert [(file.record_count, file.value_counts[2], file.null_value_counts[2]) for file in entries_of(table)] == [
        (8, 8, 0)
    ]


@pytest.mark.parametrize("first", [OF_A, OF_L])
def test_compaction_shreds_like_most_shredded_rows_where_files_differ(first: str, tmp_path: Path) -> None:
    lake, table = variants(tmp_path, Append())
    lake.epoch([{"id": 100 + n, "v": value} for n, value in enumerate([*VALUES, None] * 3)])
    shred(lake, dict(enumerate(VALUES)), first)
    shred(lake, {50 + n: value for n, value in enumerate(VALUES[:3])}, OF_L if first == OF_A else OF_A)
    before, ids = values(table), row_ids(table)
    texts = {row["id"]: row["v"] for row in table.to_arrow().to_pylist()}
    for sort_by in ((), ("id desc",)):
        assert table.compact(rewrite_all=True, sort_by=sort_by).files_after == 1
        assert typed_in(table) == [A_AND_B if first == OF_A else L]
        (file,) = files_of(table)
        leaf = "b" if first == OF_A else "l"
        # Rows of all three files.
        typed = file.read(["id", f"v.typed_value.{leaf}"])
        assert len({row["id"] // 50 for row in typed.to_pylist() if row["v"] and is_typed(row["v"], leaf)}) == 3
        assert values(table) == before
        assert row_ids(table) == ids
        assert_rows(table, texts)
    assert [(file.value_counts[2], file.null_value_counts[2]) for file in entries_of(table)] == [(38, 3)]


def is_typed(variant: dict[str, Any], leaf: str) -> bool:
    return bool(variant["typed_value"] and variant["typed_value"][leaf]["typed_value"] is not None)


class _Upserts(Lake):
    query = "another-job"


def test_an_upsert_that_copies_rows_shreds_them_as_before(tmp_path: Path) -> None:
    lake, table = variants(tmp_path, Append())
    shred(lake, dict(enumerate(VALUES)), OF_A)
    lake = _Upserts(tmp_path, Upsert("id", strategy="copy_on_write"), TEXTS)
    before, ids = values(table), row_ids(table)
    lake.epoch([{"id": 0, "v": "1"}, {"id": 99, "v": None}])
    assert sorted(typed_in(table), key=len) == [set(), A_AND_B]
    expected = {**dict(enumerate(VALUES)), 0: "1", 99: None}
    assert_rows(table, expected)
    after = values(table)
    assert all(after[key] == before[key] and row_ids(table)[key] == ids[key] for key in range(1, len(VALUES)))
    assert table.compact(rewrite_all=True).files_after == 1
    assert typed_in(table) == [A_AND_B]
    assert values(table) == after
    assert_rows(table, expected)


def test_shredded_variants_in_lists_maps_and_structs(tmp_path: Path) -> None:
    schema = pa.schema(
        {
            "id": pa.int64(),
            "l": pa.list_(pa.string()),
            "m": pa.map_(pa.string(), pa.string()),
            "s": pa.struct({"v": pa.string()}),
        }
    )
    lake = Lake(tmp_path, Append(), schema)
    table = table_of(
        lake,
        NestedField(2, "l", ListType(5, VariantType(), element_required=False), required=False),
        NestedField(3, "m", MapType(6, StringType(), 7, VariantType(), value_required=False), required=False),
        NestedField(4, "s", StructType(NestedField(8, "v", VariantType(), required=False)), required=False),
    )
    rows: list[dict[str, Any]] = [
        {"id": 1, "l": ['{"a":-1,"b":"x"}', '{"a":[]}'], "m": [("k", '{"a":-2}')], "s": {"v": '{"b":"y"}'}},
        {"id": 2, "l": None, "m": [], "s": None},
        {"id": 3, "l": [], "m": None, "s": {"v": "3"}},
    ]
    # DuckDB shreds no variants within others.
    of_a = pair_of(pa.struct([pa.field("a", pair_of(pa.string()), False)]))
    write_shredded(lake, pa.RecordBatch.from_pylist(rows, schema), dict.fromkeys((5, 7, 8), of_a))
    assert table.to_arrow().sort_by("id").to_pylist() == rows
    (typed,) = typed_in(table)
    lake.epoch([{"id": 4, "l": ['"text"'], "m": [("n", None)], "s": {"v": None}}])
    before = table.to_arrow().sort_by("id").to_pylist()
    for sort_by in ((), ("id desc",)):
        assert table.compact(rewrite_all=True, sort_by=sort_by).files_after == 1
        assert typed_in(table) == [typed]
        assert str(files_of(table)[0].schema).count("(Variant(1))") == 3
        assert table.to_arrow().sort_by("id").to_pylist() == before


def test_shredded_uuids_of_which_some_lists_are_empty(tmp_path: Path) -> None:
    """pyarrow makes no empty array of a UUID inside a struct or list."""
    parts = pa.struct({"u": pa.uuid(), "us": pa.list_(pa.uuid())})
    lake, table = variants(tmp_path, Append(), pa.schema({"id": pa.int64(), "v": parts}))
    some = [UUID(int=1), None, UUID(int=2)]
    values = [{"u": some[0], "us": []}, {"u": None, "us": []}, None, {"u": some[2], "us": some}]
    columns = [pa.array(range(4)), array_of(values, parts)]
    of_uuids = pair_of(
        pa.struct([pa.field("u", pair_of(pa.uuid()), False), ("us", pair_of(pa.list_(pair_of(pa.uuid()))))])
    )
    write_shredded(lake, pa.record_batch(columns, lake.schema), {2: of_uuids})
    rows = table.to_arrow().to_pylist()
    (typed,) = typed_in(table)
    for sort_by in ((), ("id desc",)):
        assert table.compact(rewrite_all=True, sort_by=sort_by).files_after == 1
        assert typed_in(table) == [typed]
        assert table.to_arrow().sort_by("id").to_pylist() == rows


def shown(bound: bytes) -> dict[str, Any]:
    """A bound of a variant: an object by the paths of fields."""
    size = 1 + (bound[0] >> 6)
    number = [int.from_bytes(bound[at : at + size], "little") for at in range(1, len(bound) - size, size)]
    end = 1 + size * (2 + number[0]) + number[1 + number[0]]
    found: dict[str, Any] = json.loads(json_text(bound[:end], bound[end:]))
    return found


def test_bounds_of_fields_whose_values_all_have_one_type(tmp_path: Path) -> None:
    types = {
        **{"n": pa.int16(), "t": pa.string(), "d": pa.decimal128(30, 2), "x": pa.int64(), "it's": pa.date32()},
        **{
            "f": pa.float64(),
            "l": pa.list_(pa.int8()),
            "o": pa.struct({"b": pa.binary(), "at": pa.timestamp("us", "UTC")}),
        },
    }
    lake, table = variants(tmp_path, Append(), pa.schema({"id": pa.int64(), "v": pa.struct(types)}))
    day, at = date(2024, 2, 29), datetime(2024, 2, 29, tzinfo=UTC)
    some = {
        "n": 1000,
        "t": "a" * 20,
        "d": Decimal("-1234567890123456789.25"),
        "x": 1 << 40,
        "it's": day,
        "f": 1.5,
        "l": [1],
    }
    more = {"n": 2000, "t": "b" * 20, "d": Decimal("1234567890123456789.25"), "x": 5, "it's": date(1969, 1, 1)}
    rows = [{**some, "o": {"b": b"\xff" * 20, "at": at}}, {**more, "f": None, "l": None, "o": {"b": b"\x00", "at": at}}]
    kinds = {name: pair_of(pa.list_(pair_of(pa.int8())) if name == "l" else kind) for name, kind in types.items()}
    kinds["o"] = pair_of(pa.struct({"b": pair_of(pa.binary()), "at": pair_of(pa.timestamp("us", "UTC"))}))
    batch = pa.record_batch([pa.array(range(2)), pa.array(rows, pa.struct(types))], lake.schema)
    write_shredded(lake, batch, {2: pair_of(pa.struct(kinds))})
    for _ in range(2):
        ((low, high),) = [(shown(file.lower_bounds[2]), shown(file.upper_bounds[2])) for file in entries_of(table)]
        # Of x, one is an integer of another size, and so in the column of others.
        assert low == {
            **{"$['n']": 1000, "$['t']": "a" * 16, "$['d']": -1234567890123456789.25, r"$['it\'s']": "1969-01-01"},
            **{"$['o']['b']": "AA==", "$['o']['at']": "2024-02-29 00:00:00+00:00"},
        }
        assert high == {
            **{"$['n']": 2000, "$['t']": "b" * 15 + "c", "$['d']": 1234567890123456789.25, r"$['it\'s']": "2024-02-29"},
            **{"$['o']['at']": "2024-02-29 00:00:00+00:00"},
        }
        assert table.compact(rewrite_all=True).files_after == 1
    write_shredded(lake, batch, {2: pair_of(pa.struct({"n": pair_of(pa.int8())}))})
    assert sorted(2 in file.lower_bounds for file in entries_of(table)) == [False, True]


@pytest.mark.parametrize("mode", [Append(), Upsert("id")], ids=["append", "upsert"])
def test_new_rows_are_shredded_where_the_table_asks_for_it(mode: CommitMode, tmp_path: Path) -> None:
    lake, table = variants(tmp_path, mode)
    with lake.table().transaction() as transaction:
        transaction.set_properties({"write.parquet.shred-variants": "true"})
    lake.epoch([], [{"id": n, "v": value} for n, value in enumerate([*VALUES, None])])
    (typed,) = typed_in(table)
    assert typed == {f"v.typed_value.{name}.typed_value" for name in ("a", "b", "o.typed_value.d")} | L
    lake.epoch([{"id": 100, "v": "1"}], [{"id": 101, "v": None}])
    assert_rows(table, {**dict(enumerate([*VALUES, None])), 100: "1", 101: None})
    assert table.compact(rewrite_all=True).files_after == 1
    assert typed_in(table) == [typed]
    assert_rows(table, {**dict(enumerate([*VALUES, None])), 100: "1", 101: None})
