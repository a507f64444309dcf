from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.io import load_file_io
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortField, SortOrder
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    FixedType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    UUIDType,
)

from tests.unit.test_iceberg_schema import schemas
from volley.errors import SchemaMismatchError
from volley.iceberg.schema.changes import Evolution
from volley.iceberg.schema.compare import plan
from volley.iceberg.schema.types import to_iceberg_schema
from volley.types.arrow import arrow_schema as parse


def table_of(
    schema: Schema | str,
    spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
    order: SortOrder = UNSORTED_SORT_ORDER,
    properties: dict[str, str] | None = None,
) -> Table:
    """A table that is in no catalog."""
    made = to_iceberg_schema(parse(schema)) if isinstance(schema, str) else schema
    metadata = new_table_metadata(made, spec, order, "file:///none", properties or {})
    return Table(("db", "events"), metadata, "file:///none/metadata.json", load_file_io(), NoopCatalog("none"))


def refused(table: Schema | Table, stream: pa.Schema, mode: str = "strict", **asked: Any) -> list[str]:
    """The differences that the refusal lists."""
    with pytest.raises(SchemaMismatchError) as caught:
        plan(table if isinstance(table, Table) else table_of(table), stream, mode, **asked)
    first, *listed = caught.value.message.splitlines()
    assert first == "the stream does not fit table db.events:"
    return [line.removeprefix("  - ") for line in listed]


def planned(table: Table, stream: str, mode: str = "full", **asked: Any) -> list[str]:
    """The columns of the planned schema."""
    evolved = plan(table, parse(stream), mode, **asked).of(table)
    # Rows fit what was planned for them, and what is done is not done again.
    assert plan(evolved, parse(stream), mode, **asked) == Evolution()
    return [str(field) for field in evolved.schema().fields]


@pytest.mark.parametrize(
    ("stream", "table"),
    [
        (pa.int32(), LongType()),
        (pa.int16(), LongType()),
        (pa.float32(), DoubleType()),
        (pa.decimal128(5, 2), DecimalType(10, 2)),
        (pa.binary(16), UUIDType()),
        (pa.large_string(), StringType()),
        (pa.list_(pa.int32()), ListType(2, LongType(), element_required=False)),
        (pa.map_(pa.string(), pa.int32()), MapType(2, StringType(), 3, LongType(), value_required=False)),
        (pa.struct({"b": pa.int32()}), StructType(NestedField(2, "a", LongType()), NestedField(3, "b", LongType()))),
    ],
    ids=str,
)
def test_what_fits_without_evolution(stream: pa.DataType, table: IcebergType) -> None:
    assert plan(table_of(Schema(NestedField(1, "x", table))), pa.schema({"x": stream}), "strict") == Evolution()


@pytest.mark.parametrize(
    ("stream", "table", "column", "problem"),
    [
        (pa.int64(), IntegerType(), "x", "the stream has long, the table int"),
        (pa.float64(), LongType(), "x", "the stream has double, the table long"),
        (pa.int32(), DoubleType(), "x", "the stream has int, the table double"),
        (pa.decimal128(10, 2), DecimalType(5, 2), "x", "the stream has decimal(10,2), the table decimal(5,2)"),
        (pa.decimal128(5, 2), DecimalType(10, 3), "x", "the stream has decimal(5,2), the table decimal(10,3)"),
        (pa.binary(8), FixedType(16), "x", "the stream has fixed_size_binary[8], the table fixed_size_binary[16]"),
        (pa.binary(8), UUIDType(), "x", "the stream has fixed_size_binary[8], the table uuid"),
        (pa.timestamp("us", "UTC"), TimestampType(), "x", "the stream has timestamp, the table timestamp_ntz"),
        (pa.string(), ListType(2, StringType(), False), "x", "the stream has string, the table array<string>"),
        (pa.list_(pa.string()), StringType(), "x", "the stream has array<string>, the table string"),
        (
            pa.list_(pa.string()),
            ListType(2, LongType(), False),
            "x.element",
            "the stream has string, the table long",
        ),
        (
            pa.list_(pa.string()),
            ListType(2, StringType(), element_required=True),
            "x.element",
            "the table requires a value, the stream may have nulls",
        ),
        (
            pa.map_(pa.string(), pa.string()),
            MapType(2, StringType(), 3, StringType(), value_required=True),
            "x.value",
            "the table requires a value, the stream may have nulls",
        ),
        (
            pa.struct({"a": pa.int64(), "bb": pa.int64()}),
            StructType(NestedField(2, "a", LongType())),
            "x.bb",
            "the table has no such column (known: 'a')",
        ),
    ],
    ids=str,
)
def test_what_does_not_fit(stream: pa.DataType, table: IcebergType, column: str, problem: str) -> None:
    found = refused(Schema(NestedField(1, "x", table)), pa.schema({"x": stream}))
    assert found == [f"{column!r}: {problem}"]


def test_a_required_column_needs_a_stream_without_nulls() -> None:
    table = Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "name", StringType()))
    plan(table_of(table), pa.schema([pa.field("id", pa.int64(), nullable=False)]), "strict")
    assert refused(table, parse("id long")) == ["'id': the table requires a value, the stream may have nulls"]
    assert refused(table, parse("name string")) == ["'id': the table requires it, the stream lacks it"]


def test_a_mismatch_lists_every_difference_on_its_own_line() -> None:
    table = table_of("id long, status string, amount double")
    with pytest.raises(SchemaMismatchError) as caught:
        plan(table, parse("id string, STATUS string, amuont double"), "strict")
    assert str(caught.value).splitlines() == [
        "the stream does not fit table db.events:",
        "  - 'id': the stream has string, the table long",
        "  - 'STATUS': the table has 'status', names are case-sensitive",
        "  - 'amuont': the table has no such column (did you mean 'amount'? known: 'amount', 'id', 'status')",
        "  hint: cast, rename or drop columns of the stream, or change the table's schema",
    ]


@pytest.mark.parametrize(
    ("mode", "stream", "enough"),
    [
        ("strict", "id int, extra string", "add_columns"),
        ("strict", "id long, extra string", "full"),
        ("add_columns", "id long, extra string", "full"),
    ],
)
def test_a_refusal_names_the_mode_that_would_do(mode: str, stream: str, enough: str) -> None:
    with pytest.raises(SchemaMismatchError) as caught:
        plan(table_of("id int"), parse(stream), mode)
    assert f'with_schema_evolution("{enough}")' in (caught.value.hint or "")


def test_new_columns_are_added_at_every_level() -> None:
    table = table_of("id long, at struct<x: int>, all array<struct<x: int>>, by map<string, struct<x: int>>")
    stream = "new struct<a: int>, by map<string, struct<y: int, x: int>>, all array<struct<y: int>>, at struct<y: int>"
    assert planned(table, stream, "add_columns") == [
        "1: id: optional long",
        "2: at: optional struct<5: x: optional int, 13: y: optional int>",
        "3: all: optional list<struct<7: x: optional int, 12: y: optional int>>",
        "4: by: optional map<string, struct<10: x: optional int, 11: y: optional int>>",
        "14: new: optional struct<15: a: optional int>",
    ]


def test_keys_of_maps_do_not_change() -> None:
    table = table_of("m map<struct<x: int>, int>")
    assert refused(table, parse("m map<struct<x: long, y: int>, long>"), "full") == [
        "'m.key.x': the stream has long, the table int",
        "'m.key.y': the table has no such column (known: 'x')",
    ]


def test_types_are_widened_at_every_level() -> None:
    table = table_of("a int, b struct<x: float>, c array<decimal(5,2)>, d map<int, int>, e long, f date")
    stream = "a long, b struct<x: double>, c array<decimal(9,2)>, d map<int, long>, e int, f date"
    assert planned(table, stream) == [
        "1: a: optional long",
        "2: b: optional struct<7: x: optional double>",
        "3: c: optional list<decimal(9, 2)>",
        "4: d: optional map<int, long>",
        "5: e: optional long",
        "6: f: optional date",
    ]


def test_what_can_not_become_of_a_type() -> None:
    table = table_of("a string, b double, c decimal(5,2), d date, e long, f array<int>")
    stream = parse("a int, b float, c decimal(9,3), d timestamp, e double, f array<string>, g int")
    assert refused(table, stream, "full") == [
        "'a': the stream has int, the table string",
        "'c': the stream has decimal(9,3), the table decimal(5,2)",
        "'d': the stream has timestamp, the table date",
        "'e': the stream has double, the table long",
        "'f.element': the stream has string, the table int",
    ]


def test_required_columns_become_optional_where_the_stream_needs_it() -> None:
    inner = StructType(NestedField(5, "x", IntegerType(), required=True))
    table = Schema(
        NestedField(1, "id", LongType(), required=True),
        NestedField(2, "gone", StringType(), required=True),
        NestedField(3, "sure", LongType(), required=True),
        NestedField(4, "in", inner),
    )
    stream = pa.schema([*parse("id long, in struct<x: int>"), pa.field("sure", pa.int64(), nullable=False)])
    evolved = plan(table_of(table), stream, "full").of(table_of(table)).schema()
    assert [evolved.find_field(name).required for name in ("id", "gone", "sure", "in.x")] == [False, False, True, False]


def test_a_column_that_identifies_rows_stays_required() -> None:
    table = Schema(NestedField(1, "id", LongType(), required=True), identifier_field_ids=[1])
    assert refused(table, parse("id long"), "full") == ["'id': the table requires a value, the stream may have nulls"]


def test_columns_are_renamed_and_keep_their_ids() -> None:
    table = table_of("id int, name string, home struct<zip: string, city: string>, tags array<struct<x: int>>")
    asked: dict[str, Any] = {"renames": {"id": "key", "home": "address", "home.zip": "code", "tags.element.x": "y"}}
    stream = "key long, address struct<code: string, city: string, land: string>, tags array<struct<y: int>>"
    assert planned(table, stream, **asked) == [
        "1: key: optional long",
        "2: name: optional string",
        "3: address: optional struct<5: code: optional string, 6: city: optional string, 9: land: optional string>",
        "4: tags: optional list<struct<8: y: optional int>>",
    ]


def test_columns_are_dropped() -> None:
    table = table_of("id int, note string, home struct<zip: string, city: string>")
    assert planned(table, "id int", drops=["note", "home.zip", "never.there"]) == [
        "1: id: optional int",
        "3: home: optional struct<5: city: optional string>",
    ]


@pytest.mark.parametrize(
    ("stream", "asked", "problem"),
    [
        ("id int, old int", {"renames": {"old": "new"}}, "'old': it is to be renamed or dropped, and the stream still"),
        ("id int, old int", {"drops": ["old"]}, "'old': it is to be renamed or dropped, and the stream still has it"),
        ("id int", {"renames": {"old": "id"}}, "'old': it can't be renamed to 'id', the table has that column"),
        (
            "id int",
            {"renames": {"old": "part"}},
            "'old': it can't be renamed to 'part', the table has a partition field",
        ),
        ("new int", {"renames": {"odl": "new"}}, "'new': it should be the renamed 'odl', and the table has no such"),
        ("id int, part int", {}, "'part': the table has a partition field of that name"),
        ("old int", {"drops": ["id"]}, "'id': it can't be dropped, a partition field needs it"),
        ("id int", {"drops": ["by"]}, "'by': it can't be dropped, the sort order needs it"),
        ("id int", {"drops": ["of"]}, "'of': it can't be dropped, the table's identifier needs it"),
        ("id int", {"drops": ["of.key"]}, "'of.key': it can't be dropped, no column would be left beside it"),
        ("id int", {"drops": ["all.element"]}, "'all.element': it is part of a list or of a map's key"),
        ("id int", {"renames": {"all.element": "each"}}, "'all.element': it is part of a list or of a map's key"),
    ],
)
def test_renames_and_drops_that_can_not_be(stream: str, asked: dict[str, Any], problem: str) -> None:
    key = NestedField(5, "key", LongType(), required=True)
    schema = Schema(
        NestedField(1, "id", IntegerType()),
        NestedField(2, "old", IntegerType()),
        NestedField(3, "by", IntegerType()),
        NestedField(4, "of", StructType(key), required=True),
        NestedField(6, "all", ListType(7, IntegerType(), element_required=False)),
        identifier_field_ids=[5],
    )
    spec = PartitionSpec(PartitionField(1, 1000, BucketTransform(4), "part"))
    table = table_of(schema, spec, SortOrder(SortField(3, IdentityTransform())))
    rows = pa.schema([*parse(stream), pa.field("of", pa.struct([pa.field("key", pa.int64(), False)]), False)])
    assert [line for line in refused(table, rows, "full", **asked) if line.startswith(problem)]


def test_properties_of_columns_go_where_the_columns_go() -> None:
    properties = {
        "write.parquet.bloom-filter-enabled.column.a": "true",
        "write.metadata.metrics.column.b.x": "full",
        "write.metadata.metrics.column.c": "none",
        "write.metadata.metrics.default": "counts",
    }
    table = table_of("a int, b struct<x: int, y: int>, c int", properties=properties)
    asked: dict[str, Any] = {"renames": {"a": "id", "b": "in"}, "drops": ["c"]}
    assert plan(table, parse("id int"), "full", **asked).of(table).properties == {
        "write.parquet.bloom-filter-enabled.column.id": "true",
        "write.metadata.metrics.column.in.x": "full",
        "write.metadata.metrics.default": "counts",
    }


_WIDER = {pa.int32(): pa.int64(), pa.float32(): pa.float64(), pa.decimal128(9, 2): pa.decimal128(12, 2)}
_NARROWER = {wide: narrow for narrow, wide in _WIDER.items()}


def changed(fields: Iterator[pa.Field], chance: random.Random, spare: list[str]) -> list[pa.Field]:
    """Fields of a stream that a table with these can take: some are gone, some are other, some are new."""
    kept = [pa.field(each.name, changed_type(each.type, chance, spare)) for each in fields if chance.random() < 0.8]
    new = [pa.field(spare.pop(), changed_type(kind, chance, spare)) for kind in (pa.int32(), pa.list_(pa.string()))]
    found = kept + new[: chance.randrange(3)] or new
    chance.shuffle(found)
    return found


def changed_type(kind: pa.DataType, chance: random.Random, spare: list[str]) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct(changed(iter(kind), chance, spare))
    if pa.types.is_list(kind):
        return pa.list_(changed_type(kind.value_type, chance, spare))
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, changed_type(kind.item_type, chance, spare))
    return chance.choice([_WIDER, _NARROWER, {}]).get(kind, kind)


@given(schemas(), st.randoms(use_true_random=False))
def test_the_planned_schema_is_the_one_that_pyiceberg_makes(before: pa.Schema, chance: random.Random) -> None:
    columns = to_iceberg_schema(before).fields
    schema = Schema(*(each.model_copy(update={"required": chance.random() < 0.3}) for each in columns))
    table = table_of(schema)
    stream = pa.schema(changed(iter(before), chance, [f"new{number}" for number in range(100)]))
    transaction = table.transaction()
    with transaction.update_schema() as update:
        update.union_by_name(to_iceberg_schema(stream))
        for column in schema.fields:
            if column.name not in stream.names:
                update.make_column_optional(column.name)
    wanted = transaction.table_metadata
    found = plan(table, stream, "full").of(table).metadata
    assert found.schema() == wanted.schema()
    assert found.last_column_id == wanted.last_column_id
