"""TypeConverter: there and back again, for every type; errors name the column and its type."""

from __future__ import annotations

from itertools import count
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    GeometryType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UnknownType,
    UUIDType,
)

from tests.iceberg.conftest import Make
from tests.tiers import examples
from volley import ConfigError, SourceError
from volley.iceberg import TypeConverter

V2: list[IcebergType] = [
    *(BooleanType(), IntegerType(), LongType(), FloatType(), DoubleType(), StringType(), BinaryType(), DateType()),
    *(TimeType(), TimestampType(), TimestamptzType(), UUIDType(), FixedType(1), FixedType(16), FixedType(1000)),
    *(DecimalType(1, 0), DecimalType(9, 9), DecimalType(38, 0), DecimalType(38, 38)),
]
V3: list[IcebergType] = [*V2, TimestampNanoType(), TimestamptzNanoType(), UnknownType()]


@st.composite
def schemas(draw: st.DrawFn, leaves: list[IcebergType]) -> Schema:
    """Any schema, with the ids of a table that has lost some."""
    ids = count(draw(st.integers(1, 1000)), draw(st.integers(1, 3)))

    def field(depth: int, name: str) -> NestedField:
        doc = draw(st.none() | st.text(min_size=1, max_size=5))
        return NestedField(next(ids), name, kind := of(depth), required=required(kind), doc=doc)

    def required(kind: IcebergType) -> bool:
        return kind != UnknownType() and draw(st.booleans())

    def of(depth: int) -> IcebergType:
        form = draw(st.sampled_from(["leaf", "leaf", "list", "map", "struct"])) if depth else "leaf"
        if form == "list":
            return ListType(next(ids), element := of(depth - 1), required(element))
        if form == "map":
            key = draw(st.sampled_from(V2))
            return MapType(next(ids), key, next(ids), value := of(depth - 1), required(value))
        if form == "struct":
            return struct(depth - 1)
        return draw(st.sampled_from(leaves))

    def struct(depth: int) -> StructType:
        names = draw(
            st.lists(
                st.text(st.characters(codec="utf-8", exclude_characters="\0."), min_size=1),
                min_size=1,
                max_size=3,
                unique=True,
            )
        )
        return StructType(*(field(depth, name) for name in names))

    return Schema(*struct(3).fields)


@given(schemas(V3))
def test_an_iceberg_schema_comes_back_from_arrow_as_it_was(schema: Schema) -> None:
    arrow = TypeConverter.iceberg_to_arrow_schema(schema)
    assert TypeConverter.arrow_to_iceberg_schema(arrow, format_version=3) == schema
    struct = schema.as_struct()
    assert TypeConverter.arrow_to_iceberg(TypeConverter.iceberg_to_arrow(struct), format_version=3) == struct


@given(schemas(V2))
def test_an_arrow_schema_comes_back_from_iceberg_as_it_was(schema: Schema) -> None:
    # A schema of pyarrow's own: no ids in it.
    arrow = without_metadata(TypeConverter.iceberg_to_arrow_schema(schema))
    converted = TypeConverter.arrow_to_iceberg_schema(arrow)
    assert sorted(converted._lazy_id_to_name) == list(range(1, len(converted._lazy_id_to_name) + 1))
    assert without_metadata(TypeConverter.iceberg_to_arrow_schema(converted)) == arrow


def without_metadata(kind: Any) -> Any:
    """The same schema, field or type without metadata at any level."""
    if isinstance(kind, pa.Schema):
        return pa.schema([without_metadata(field) for field in kind])
    if isinstance(kind, pa.Field):
        return pa.field(kind.name, without_metadata(kind.type), kind.nullable)
    if pa.types.is_struct(kind):
        return pa.struct([without_metadata(field) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(without_metadata(kind.key_field), without_metadata(kind.item_field))
    return pa.list_(without_metadata(kind.value_field)) if pa.types.is_list(kind) else kind


@settings(max_examples=examples(0.8))
@given(schemas(V2))
def test_a_file_of_the_arrow_schema_is_a_file_of_the_table(schema: Schema) -> None:
    arrow = TypeConverter.iceberg_to_arrow_schema(schema)
    sink = pa.BufferOutputStream()
    pq.ParquetWriter(sink, arrow).close()
    read = pq.read_schema(pa.BufferReader(sink.getvalue()))
    assert TypeConverter.arrow_to_iceberg_schema(read) == schema


def test_a_table_can_be_made_of_it(make: Make) -> None:
    schema = pa.schema({"id": pa.int64(), "tags": pa.map_(pa.string(), pa.list_(pa.uuid()))})
    table = make(TypeConverter.arrow_to_iceberg_schema(schema))
    assert TypeConverter.iceberg_to_arrow_schema(table.schema()) == schema


@pytest.mark.parametrize(
    ("arrow", "iceberg"),
    [
        (pa.int8(), "int"),
        (pa.uint32(), "long"),
        (pa.uint64(), "decimal(20, 0)"),
        (pa.float16(), "float"),
        (pa.large_string(), "string"),
        (pa.string_view(), "string"),
        (pa.dictionary(pa.int32(), pa.large_string()), "string"),
        (pa.binary_view(), "binary"),
        (pa.date64(), "date"),
        (pa.time32("s"), "time"),
        (pa.timestamp("s", "Europe/Oslo"), "timestamptz"),
        (pa.timestamp("ns"), "timestamp"),
        (pa.null(), "string"),
        (pa.decimal256(20, 3), "decimal(20, 3)"),
        (pa.large_list(pa.int16()), "list<int>"),
        (pa.list_(pa.int16(), 3), "list<int>"),
        (pa.list_view(pa.int16()), "list<int>"),
        (pa.large_list_view(pa.int16()), "list<int>"),
    ],
)
def test_types_that_iceberg_lacks_become_the_next_wider_one(arrow: pa.DataType, iceberg: str) -> None:
    assert str(TypeConverter.arrow_to_iceberg(arrow)) == iceberg


def test_nanoseconds_and_nulls_need_format_version_3() -> None:
    types = {"at": pa.timestamp("ns"), "utc": pa.timestamp("ns", "UTC"), "nothing": pa.null()}
    by_version = [TypeConverter.arrow_to_iceberg_schema(pa.schema(types), version) for version in (2, 3)]
    assert [[str(field.field_type) for field in schema.fields] for schema in by_version] == [
        ["timestamp", "timestamptz", "string"],
        ["timestamp_ns", "timestamptz_ns", "unknown"],
    ]


def test_errors_name_the_column_and_its_type() -> None:
    nested = pa.list_(pa.struct([("ok", pa.int32()), ("for", pa.map_(pa.string(), pa.duration("s")))]))
    with pytest.raises(SourceError, match=r"column 'a\.element\.for\.value': type duration\[s\] has no counterpart"):
        TypeConverter.arrow_to_iceberg_schema(pa.schema({"a": nested}))
    with pytest.raises(SourceError, match=r"column 'element\.for\.value': type duration\[s\]"):
        TypeConverter.arrow_to_iceberg(nested)
    with pytest.raises(SourceError, match=r"^type duration\[s\] has no counterpart"):
        TypeConverter.arrow_to_iceberg(pa.duration("s"))
    with pytest.raises(SourceError, match=r"column 'd': decimal\(40,2\) is out of range"):
        TypeConverter.arrow_to_iceberg_schema(pa.schema({"d": pa.decimal256(40, 2)}))
    with pytest.raises(SourceError, match=r"column 's\.t': a struct without fields"):
        TypeConverter.arrow_to_iceberg_schema(pa.schema({"s": pa.struct([("t", pa.struct([]))])}))
    with pytest.raises(ConfigError, match="'x'"):
        TypeConverter.arrow_to_iceberg(pa.struct([("x", pa.int32()), ("x", pa.int32())]))
    shapes = Schema(NestedField(1, "s", StructType(NestedField(2, "shape", GeometryType(), required=False))))
    with pytest.raises(SourceError, match=r"column 's\.shape': type geometry.* has no counterpart in Arrow"):
        TypeConverter.iceberg_to_arrow_schema(shapes)
    nothing = Schema(NestedField(1, "nothing", UnknownType(), required=True))
    with pytest.raises(SourceError, match="column 'nothing': required type unknown has no counterpart"):
        TypeConverter.iceberg_to_arrow_schema(nothing)
    with pytest.raises(SourceError, match=r"^type geometry"):
        TypeConverter.iceberg_to_arrow(GeometryType())
