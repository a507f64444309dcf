from __future__ import annotations

import re
from collections.abc import Iterator

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.memory import InMemoryCatalog
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    FixedType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    UUIDType,
)

from volley._types import arrow_schema as parse
from volley._types import arrow_type
from volley.errors import SchemaMismatchError, SourceError
from volley.iceberg.schema import check_fits, differences, evolve, file_schema, to_iceberg_schema

PRIMITIVES = "boolean int long float double string binary date time timestamp timestamp_ntz decimal(9,2) decimal(38,1)"
FIELD_ID = b"PARQUET:field_id"


def schemas() -> st.SearchStrategy[pa.Schema]:
    """Any schema of the types that Arrow, Spark and Iceberg share."""
    names = st.lists(st.sampled_from("abcdef"), min_size=1, max_size=4, unique=True)
    primitive = st.sampled_from([*map(arrow_type, PRIMITIVES.split()), pa.binary(4)])

    def nested(inner: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
        struct = names.flatmap(
            lambda n: st.tuples(*(inner for _ in n)).map(lambda t: pa.struct(zip(n, t, strict=True)))
        )
        return inner.map(pa.list_) | st.tuples(primitive, inner).map(lambda pair: pa.map_(*pair)) | struct

    types = st.recursive(primitive, nested, max_leaves=6)
    return names.flatmap(lambda n: st.tuples(*(types for _ in n)).map(lambda t: pa.schema(zip(n, t, strict=True))))


def fields(kind: pa.Schema | pa.DataType) -> Iterator[pa.Field]:
    """Every field at every level."""
    inner = kind if isinstance(kind, pa.Schema) else [kind.field(i) for i in range(kind.num_fields)]
    if isinstance(kind, pa.MapType):
        inner = [kind.key_field, kind.item_field]
    for field in inner:
        yield field
        yield from fields(field.type)


@settings(max_examples=50)
@given(schemas())
def test_a_new_table_fits_its_stream_and_files_have_the_streams_types(stream: pa.Schema) -> None:
    table = to_iceberg_schema(stream)
    assert differences(stream, table) == []
    written = file_schema(table)
    assert written.names == stream.names
    assert written.types == stream.types


@settings(max_examples=50)
@given(schemas())
def test_every_level_of_a_file_has_the_tables_field_id(stream: pa.Schema) -> None:
    table = to_iceberg_schema(stream)
    ids = [int(field.metadata[FIELD_ID]) for field in fields(file_schema(table))]
    assert sorted(ids) == sorted(table.field_ids) == list(range(1, len(ids) + 1))


def test_a_new_table_takes_any_arrow_schema() -> None:
    odd = pa.schema({"a": pa.int8(), "b": pa.large_string(), "c": pa.timestamp("ns", "Europe/Berlin"), "d": pa.null()})
    types = [field.field_type for field in to_iceberg_schema(odd).fields]
    assert types == [IntegerType(), StringType(), TimestamptzType(), StringType()]
    with pytest.raises(SourceError, match="'wait'"):
        to_iceberg_schema(pa.schema({"wait": pa.duration("s")}))


def test_files_have_names_that_avro_takes() -> None:
    table = to_iceberg_schema(parse("`a b` long, nested struct<`x.y`: int>"))
    assert [field.name for field in fields(file_schema(table))] == ["a_x20b", "nested", "x_x2Ey"]


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
def test_what_fits_without_evolution(stream: pa.DataType, table: object) -> None:
    assert differences(pa.schema({"x": stream}), Schema(NestedField(1, "x", table))) == []  # type: ignore[arg-type]


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
def test_what_does_not_fit(stream: pa.DataType, table: object, column: str, problem: str) -> None:
    (found,) = differences(pa.schema({"x": stream}), Schema(NestedField(1, "x", table)))  # type: ignore[arg-type]
    assert (found.column, found.problem) == (column, problem)


def test_a_required_column_needs_a_stream_without_nulls() -> None:
    table = Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "name", StringType()))
    assert differences(pa.schema([pa.field("id", pa.int64(), nullable=False)]), table) == []
    (nullable,) = differences(pa.schema({"id": pa.int64()}), table)
    assert str(nullable) == "'id': the table requires a value, the stream may have nulls"
    (absent,) = differences(pa.schema({"name": pa.string()}), table)
    assert str(absent) == "'id': the table requires it, the stream lacks it"


def test_a_mismatch_lists_every_difference_on_its_own_line() -> None:
    table = to_iceberg_schema(parse("id long, status string, amount double"))
    stream = parse("id string, STATUS string, amuont double")
    with pytest.raises(SchemaMismatchError) as caught:
        check_fits(stream, table, "db.events")
    assert str(caught.value).splitlines() == [
        "the stream does not fit table db.events:",
        "  - 'id': the stream has string, the table long",
        "  - 'STATUS': the table has 'status', names are case-sensitive",
        "  - 'amuont': the table has no such column (did you mean 'amount'? known: 'amount', 'id', 'status')",
        "  hint: cast, rename or drop columns of the stream, or change the table's schema",
    ]
    check_fits(parse("amount double, id long"), table, "db.events")


@pytest.fixture
def catalog(tmp_path: object) -> Iterator[Catalog]:
    with InMemoryCatalog("test", warehouse=f"file://{tmp_path}") as catalog:
        catalog.create_namespace("db")
        yield catalog


def test_evolve_adds_new_columns_and_leaves_the_others(catalog: Catalog) -> None:
    table = catalog.create_table("db.events", to_iceberg_schema(parse("id long, status string")))
    stream = parse("status string, `a.b` int, tags array<string>, at timestamp")
    evolved = evolve(table, stream)
    assert re.findall(r"\d+: (.*)", str(catalog.load_table("db.events").schema())) == [
        "id: optional long",
        "status: optional string",
        "a.b: optional int",
        "tags: optional list<string>",
        "at: optional timestamptz",
    ]
    check_fits(stream, evolved.schema(), "db.events")


def test_evolve_without_new_columns_makes_no_commit(catalog: Catalog) -> None:
    table = catalog.create_table("db.events", to_iceberg_schema(parse("id long, status string")))
    evolve(table, parse("id int"))
    assert catalog.load_table("db.events").metadata_location == table.metadata_location


def test_a_name_in_other_case_is_not_a_new_column(catalog: Catalog) -> None:
    table = catalog.create_table("db.events", to_iceberg_schema(parse("id long, status string")))
    stream = parse("id long, Status string, extra int")
    evolved = evolve(table, stream)
    assert [field.name for field in evolved.schema().fields] == ["id", "status", "extra"]
    with pytest.raises(SchemaMismatchError, match="'Status': the table has 'status', names are case-sensitive"):
        check_fits(stream, evolved.schema(), "db.events")
