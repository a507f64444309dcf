from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.types import (
    IntegerType,
    StringType,
    TimestamptzNanoType,
)

from volley.errors import SourceError
from volley.iceberg.schema.types import file_schema, to_iceberg_schema
from volley.types.arrow import arrow_schema as parse
from volley.types.arrow import arrow_type

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


@given(schemas())
def test_files_of_a_new_table_have_the_streams_types(stream: pa.Schema) -> None:
    written = file_schema(to_iceberg_schema(stream))
    assert written.names == stream.names
    assert written.types == stream.types


@given(schemas())
def test_every_level_of_a_file_has_the_tables_field_id(stream: pa.Schema) -> None:
    table = to_iceberg_schema(stream)
    ids = [int(field.metadata[FIELD_ID]) for field in fields(file_schema(table))]
    assert sorted(ids) == sorted(table.field_ids) == list(range(1, len(ids) + 1))


def test_a_new_table_takes_any_arrow_schema() -> None:
    odd = pa.schema({"a": pa.int8(), "b": pa.large_string(), "c": pa.timestamp("ns", "Europe/Berlin"), "d": pa.null()})
    types = [field.field_type for field in to_iceberg_schema(odd).fields]
    assert types == [IntegerType(), StringType(), TimestamptzNanoType(), StringType()]
    with pytest.raises(SourceError, match="'wait'"):
        to_iceberg_schema(pa.schema({"wait": pa.duration("s")}))


def test_files_have_names_that_avro_takes() -> None:
    table = to_iceberg_schema(parse("`a b` long, nested struct<`x.y`: int>"))
    assert [field.name for field in fields(file_schema(table))] == ["a_x20b", "nested", "x_x2Ey"]
