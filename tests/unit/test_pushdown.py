"""What a source may leave out: only what no step of the job could need."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.expressions import AlwaysTrue, parser
from pyiceberg.expressions.visitors import bind, expression_evaluator
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
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

from volley import ConfigError, DataStream, Environment, Expr, MemorySink, MemorySource, Pipeline, col, lit
from volley.columns.expressions import compile_expression
from volley.engine.joins import with_schemas
from volley.iceberg import IcebergSourceConfig, IcebergStorage, TableRef
from volley.iceberg.read.filters import parse_predicate
from volley.iceberg.read.predicates import pruning
from volley.iceberg.read.scope import predicate_of
from volley.iceberg.schema.types import arrow_schema
from volley.plan import graph, nodes
from volley.plan.pushdown import used_columns, used_rows
from volley.plan.times import Unit

SCHEMA = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "real", DoubleType()),
    NestedField(3, "small", FloatType()),
    NestedField(4, "name", StringType()),
    NestedField(5, "day", DateType()),
    NestedField(6, "at", TimestamptzType()),
    NestedField(7, "money", DecimalType(9, 2)),
    NestedField(8, "tags", ListType(9, StringType())),
    NestedField(10, "place", StructType(NestedField(11, "city", StringType()))),
    NestedField(12, "more", MapType(13, StringType(), 14, StringType())),
)

TYPES = {"id": pa.int64(), "real": pa.float64(), "day": pa.date32(), "at": pa.timestamp("us", "UTC")}


@pytest.fixture
def stream() -> DataStream:
    return Environment().from_source(MemorySource([{"a": 1, "b": 2, "c": "x"}]))


def used(*pipelines: Pipeline) -> tuple[str, set[str] | None]:
    """The rows and columns that a job uses of its only source."""
    writes = [write for pipeline in pipelines for write in pipeline._writes]
    (read,) = {id(node): node for node in nodes.walk(writes) if isinstance(node, nodes.Read)}.values()
    followers = graph.followers_in(nodes.walk(writes))
    columns = used_columns(followers, read)
    return repr(used_rows(followers, read)), None if columns is None else set(columns)


def sink(name: str = "out") -> MemorySink:
    return MemorySink(name)


def test_filters_and_columns_of_one_sink(stream: DataStream) -> None:
    rows = stream.filter_expr(col("a") > 1).filter_expr(col("b") == 2)
    both = "(col('a') > lit(1)) & (col('b') == lit(2))"
    assert used(rows.to_sink(sink())) == (both, None)
    assert used(rows.select("c").to_sink(sink())) == (both, {"a", "b", "c"})
    assert used(stream.with_column("d", col("a") + 1).select("d").to_sink(sink())) == ("None", {"a"})
    assert used(stream.with_column("a", col("b")).filter_expr(col("a") > 1).select("c").to_sink(sink()))[1] == {
        "b",
        "c",
    }
    assert used(stream.drop("b").select("a").to_sink(sink()))[1] == {"a", "b"}
    assert used(stream.select("a").map(lambda row: row).to_sink(sink()))[1] == {"a"}
    assert used(stream.map(lambda row: row).select("a").to_sink(sink())) == ("None", None)


def test_several_sinks_use_what_any_of_them_uses(stream: DataStream) -> None:
    one, other = stream.filter_expr(col("a") > 1), stream.filter_expr(col("b") == 2)
    either = "(col('a') > lit(1)) | (col('b') == lit(2))"
    assert used(one.select("a").to_sink(sink("1")), other.select("c").to_sink(sink("2"))) == (either, {"a", "b", "c"})
    assert used(one.select("a").to_sink(sink("1")), other.to_sink(sink("2"))) == (either, None)
    assert used(one.to_sink(sink("1")), stream.to_sink(sink("2"))) == ("None", None)
    good, rest = stream.split(col("a") > 1)
    assert used(good.to_sink(sink("1")), rest.to_sink(sink("2"))) == ("None", None)
    # What two sinks share is used by both.
    assert used(one.filter_expr(col("c") == "x").to_sink(sink("1")), one.to_sink(sink("2")))[0] == "col('a') > lit(1)"


def test_columns_of_a_joined_table_are_not_the_streams(stream: DataStream) -> None:
    table = MemorySource([{"a": 1, "x": 2, "y": 3}])
    joined = stream.filter_expr(col("b") == 2).join(table, on="a").filter_expr(col("x") > 1)
    # A filter behind the join, of the table's or of the stream's columns, is not the source's.
    assert used(joined.filter_expr(col("b") < 5).select("y").to_sink(sink()))[0] == "col('b') == lit(2)"
    as_of = stream.join(table, on={"a": "x"}, as_of=("b", "y"), columns=["y"], suffix="_2")
    for plan, columns in ((joined.select("y"), {"a", "b"}), (as_of.select("y_2"), {"a", "b"}), (joined, None)):
        opened = with_schemas(plan.to_sink(sink())._writes)
        (read,) = [node for node in nodes.walk(opened) if isinstance(node, nodes.Read)]
        assert used_columns(graph.followers_in(nodes.walk(opened)), read) == columns


EXACT: list[tuple[Expr, str]] = [
    (col("id") == 5, "id = 5"),
    (lit(5) < col("id"), "id > 5"),
    (col("id") <= 5, "id <= 5"),
    (col("id").is_in(1, 2, None), "id in (1, 2)"),
    (col("name").starts_with("ab"), "name like 'ab%'"),
    (col("name").is_null(), "name is null"),
    (col("day") >= date(2026, 1, 1), "day >= '2026-01-01'"),
    (col("at") < datetime(2026, 1, 1, tzinfo=UTC), "at < '2026-01-01T00:00:00+00:00'"),
    (col("money") == Decimal("1.25"), "money = 1.25"),
    # NaN is greater than all numbers, and in no bounds.
    (col("real") > 1.5, "real > 1.5 or real is nan"),
    (col("real") < 1.5, "real < 1.5"),
    # 0.0 equals -0.0, whose bucket is another one.
    (col("real") == 0.0, "real >= 0.0 and real <= 0.0"),
    ((col("id") == 5) | (col("name") == "a"), "id = 5 or name = 'a'"),
    ((col("id") == 5) & (col("id") % 2 == 1), "id = 5"),
]
UNKNOWN = [
    col("id") % 2 == 1,
    ~(col("id") == 5),
    col("id") != 5,
    (col("id") == 5) | (col("id") % 2 == 1),
    col("real") == math.nan,
    col("real").is_in(0.0, 1.0),
    col("small") > 0.1,
    col("small") == math.inf,
    col("small") <= math.inf,
    col("small").is_in(-math.inf, 1.0),
    col("id") > 1.5,
    col("money") == Decimal("1.255"),
    col("at") < datetime(2026, 1, 1),
    col("unknown") == 1,
    col("tags").is_null(),
    col("place").is_not_null(),
    col("more").is_null(),
    col("name").contains("a"),
    lit(True),
]


@pytest.mark.parametrize(("predicate", "expected"), EXACT, ids=repr)
def test_what_iceberg_can_prune_by(predicate: Expr, expected: str) -> None:
    found = bind(SCHEMA, pruning(predicate.node, SCHEMA), case_sensitive=True)
    assert found == bind(SCHEMA, parser.parse(expected), case_sensitive=True)


@pytest.mark.parametrize("predicate", UNKNOWN, ids=repr)
def test_what_iceberg_takes_differently_prunes_nothing(predicate: Expr) -> None:
    assert pruning(predicate.node, SCHEMA) == AlwaysTrue()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("id = 5", col("id") == 5),
        ("id in (1, 2) and name like 'a%'", col("id").is_in(1, 2) & col("name").starts_with("a")),
        ("day >= '2026-11-01'", col("day") >= date(2026, 11, 1)),
        ("at < '2026-11-01T00:00:00+00:00'", col("at") < datetime(2026, 11, 1, tzinfo=UTC)),
        ("day >= date '2026-11-01'", col("day") >= date(2026, 11, 1)),
        ("day in (DATE  '2026-11-01', date '2026-11-02')", col("day").is_in(date(2026, 11, 1), date(2026, 11, 2))),
        ("at < timestamp '2026-11-01T00:00:00+00:00'", col("at") < datetime(2026, 11, 1, tzinfo=UTC)),
        ("name = 'a date ' or name = 'time'", (col("name") == "a date ") | (col("name") == "time")),
        ("not (id = 5)", col("id") != 5),
        (
            "name is null or real is not nan",
            col("name").is_null() | ~col("real").is_nan().fill_null(False),
        ),
        ("id not in (1, 2)", ~col("id").is_in(1, 2)),
        ("money > 1.25", col("money") > Decimal("1.25")),
    ],
)
def test_predicates_in_sql(text: str, expected: Expr) -> None:
    parsed = parse_predicate(text, SCHEMA)
    assert repr(parsed).replace("~(col('id') == lit(5))", "col('id') != lit(5)") == repr(expected.node)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("id =", "is not a predicate: something is missing"),
        ("nope = 1", "has no column 'nope'"),
        ("id = 'a'", "'a' is no decimal"),
        ("day = 'x'", "'x' is no date"),
        ("real > 'much'", "'much' is no decimal"),
        ("at < 'now'", "'now' is no timestamp"),
        ("id", "a filter takes a condition"),
        ("name = 5", "string"),
        ("place.town = 'Oslo'", "town"),
        ("from = 1", "unexpected 'from'"),
        (col("name") == 5, "string"),
    ],
)
def test_wrong_predicates_are_named(text: str | Expr, told: str) -> None:
    config = IcebergSourceConfig(TableRef("db", "t", IcebergStorage.Local("/lake"))).with_partition_filter(text)
    with pytest.raises(ConfigError, match=f"partition_filter.*{told}"):
        predicate_of(config, SCHEMA)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-11-01 09:30:00", datetime(2026, 11, 1, 9, 30, tzinfo=UTC)),
        ("2026-11-01T10:30:00+01:00", datetime(2026, 11, 1, 9, 30, tzinfo=UTC)),
        ("2026-11-01", datetime(2026, 11, 1, tzinfo=UTC)),
    ],
)
def test_a_time_without_an_offset_is_in_utc(text: str, expected: datetime) -> None:
    for typed in (f"'{text}'", f"timestamp '{text}'"):
        assert numbers_of_matches(f"at = {typed}", SCHEMA, [{"at": expected}, {"at": None}]) == [0]
    with pytest.raises(ConfigError, match="no timestamp_ntz"):
        parse_predicate("at < '2026-11-01T10:30:00+01:00'", Schema(NestedField(1, "at", TimestampType())))


def numbers_of_matches(text: str, schema: Schema, rows: list[dict[str, Any]]) -> list[int]:
    """The numbers of the rows for which a predicate in SQL is true."""
    batch = pa.RecordBatch.from_pylist(rows, schema=arrow_schema(schema))
    compiled = compile_expression(parse_predicate(text, schema), batch.schema)
    return [number for number, value in enumerate(compiled.evaluate(batch).to_pylist()) if value]


NUMBERS = Schema(
    NestedField(1, "int", IntegerType()), NestedField(2, "long", LongType()), NestedField(3, "small", FloatType())
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("int < 3000000000", [0, 1]),
        ("int <> 3000000000", [0, 1]),
        ("int = 3000000000 or int > 3000000000", []),
        ("int >= -3000000000", [0, 1]),
        ("not (int = 3000000000)", [0, 1]),
        ("not (int >= 3000000000.0)", [0, 1]),
        ("int not in (3000000000)", [0, 1]),
        ("int not in (5, 3000000000)", [1]),
        # The greatest value of the type is not the number beyond it.
        ("int in (5, 3000000000)", [0]),
        ("int in (3000000000, 4000000000)", []),
        ("int between -3000000000 and 3000000000", [0, 1]),
        ("long < 10000000000000000000", [0, 1]),
        ("long not in (5, 10000000000000000000)", [1]),
        # Infinity is above any number.
        ("small < '1e39'", [0]),
        ("small > '1e39'", [1]),
        ("small > '-1e39'", [0, 1]),
        ("small = 'inf'", [1]),
        ("small > '-Infinity' and small < ' inf '", [0]),
        ("long = - - 5 or long = -(-5)", [0]),
    ],
)
def test_null_does_not_match_a_number_beyond_the_columns_type(text: str, expected: list[int]) -> None:
    rows: list[dict[str, Any]] = [
        {"int": 5, "long": 5, "small": 5.0},
        {"int": 2**31 - 1, "long": 2**63 - 1, "small": math.inf},
        {"int": None, "long": None, "small": None},
    ]
    assert numbers_of_matches(text, NUMBERS, rows) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("int = 5.5 or long in (5.5)", []),
        ("int < 5.5", [0]),
        ("int >= 5.5", [1]),
        ("long <> 5.5", [0, 1]),
        ("long > '5.5'", [1]),
        ("int = 5.0", [0]),
    ],
)
def test_a_fraction_is_compared_with_a_whole_number_as_it_is(text: str, expected: list[int]) -> None:
    rows: list[dict[str, Any]] = [{"int": 5, "long": 5}, {"int": 6, "long": 6}, {"int": None, "long": None}]
    assert numbers_of_matches(text, NUMBERS, rows) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("id = '00000000-0000-0000-0000-00000000000A'", [0]),
        ("id <> '00000000-0000-0000-0000-00000000000a'", [1]),
        ("id > '7fffffff-ffff-ffff-ffff-ffffffffffff'", [1]),
        ("id in ('00000000-0000-0000-0000-00000000000a', 'ffffffff-ffff-ffff-ffff-ffffffffffff')", [0, 1]),
        ("not (id in ('00000000-0000-0000-0000-00000000000a', '00000000-0000-0000-0000-00000000000b'))", [1]),
        ("id is null", [2]),
    ],
)
def test_a_predicate_in_sql_compares_uuids(text: str, expected: list[int]) -> None:
    schema = Schema(NestedField(1, "id", UUIDType()))
    rows: list[dict[str, Any]] = [{"id": bytes(15) + b"\n"}, {"id": b"\xff" * 16}, {"id": None}]
    assert numbers_of_matches(text, schema, rows) == expected


NESTED = Schema(
    NestedField(1, "id", LongType()),
    NestedField(
        2,
        "place",
        StructType(
            NestedField(3, "id", LongType(), required=True),
            NestedField(4, "point", StructType(NestedField(5, "x.y", DoubleType()))),
        ),
    ),
    NestedField(6, "stops", ListType(7, StructType(NestedField(8, "id", LongType())), element_required=False)),
    NestedField(9, "labels", MapType(10, StringType(), 11, LongType(), value_required=False)),
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("place.id = 1", [1]),
        ("id = 1", [0]),
        ("place.id is null", [2]),
        ("place.point.x.y > 0.5 and not (place.id in (7, 8))", [1]),
        ("place.point is null or stops is null", [0, 2]),
    ],
)
def test_a_predicate_in_sql_names_fields_of_structs(text: str, expected: list[int]) -> None:
    rows: list[dict[str, Any]] = [
        {"id": 1, "place": {"id": 2, "point": None}, "stops": [], "labels": []},
        {"id": 2, "place": {"id": 1, "point": {"x.y": 1.5}}, "stops": [{"id": 1}], "labels": []},
        {"id": 3, "place": None, "stops": None, "labels": []},
    ]
    assert numbers_of_matches(text, NESTED, rows) == expected


@pytest.mark.parametrize("text", ["stops.element.id = 1", "stops.id = 1", "labels.value = 1", "labels.key = 'a'"])
def test_a_predicate_in_sql_refuses_parts_of_lists_and_maps(text: str) -> None:
    with pytest.raises(ConfigError, match=r"is in a list or map[\s\S]*give an expression"):
        parse_predicate(text, NESTED)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("name like 'x_'", [0]),
        ("name not like '%_y%'", [1]),
        ("name like '%!_%' escape '!'", [1]),
        ("name like '%y'", [0]),
        ("lower(name) = 'xy' or length(name) > 9", [0]),
        ("name = 'x_z' and real is not nan", [1]),
        ("real is nan", [0]),
        ("real is not nan", [1, 2]),
    ],
)
def test_a_predicate_in_sql_is_of_the_dialect_of_all_sql(text: str, expected: list[int]) -> None:
    schema = Schema(NestedField(1, "name", StringType()), NestedField(2, "real", DoubleType()))
    rows: list[dict[str, Any]] = [
        {"name": "xy", "real": math.nan},
        {"name": "x_z", "real": None},
        {"name": None, "real": 1.0},
    ]
    assert numbers_of_matches(text, schema, rows) == expected


def test_decimals_are_compared_as_they_are_written() -> None:
    schema = Schema(NestedField(1, "money", DecimalType(30, 10)))
    amounts = [Decimal("12345678901234567890.0123456789"), Decimal("12345678901234567890.0123456788"), Decimal(5)]
    rows = [{"money": amount} for amount in amounts]
    assert numbers_of_matches(f"money = {amounts[0]}", schema, rows) == [0]
    assert numbers_of_matches(f"money in (5, 6.5, '{amounts[1]}')", schema, rows) == [1, 2]
    assert numbers_of_matches(f"money between 5 and {amounts[1]} and money <> 5.0", schema, rows) == [1]


def test_columns_with_dots_and_names_of_sql_are_found() -> None:
    schema = Schema(
        NestedField(1, "a.b", LongType()),
        NestedField(2, "order", LongType()),
        NestedField(3, "from", BooleanType()),
        NestedField(4, "like 'x_'", StringType()),
    )
    rows: list[dict[str, Any]] = [
        {"a.b": 1, "order": 2, "from": True, "like 'x_'": "ab"},
        {"a.b": 2, "order": 1, "from": None},
    ]
    for text in ("a.b = 1", '"a.b" = 1', "order = 2", '"from"', "\"like 'x_'\" like 'a%'"):
        assert numbers_of_matches(text, schema, rows) == [0], text


def test_fields_are_found_at_every_depth() -> None:
    field = NestedField(9, "f", LongType())
    for name in "edcba":
        field = NestedField(field.field_id - 1, name, StructType(field))
    rows = [{"a": {"b": {"c": {"d": {"e": {"f": value}}}}}} for value in (1, 2)]
    assert numbers_of_matches("a.b.c.d.e.f = '2'", Schema(field), rows) == [1]


MOMENTS = st.datetimes(datetime(1960, 1, 1), datetime(2040, 1, 1), timezones=st.just(UTC))
UNITS: list[Unit] = ["year", "quarter", "month", "week", "day", "hour", "minute", "second", "millisecond"]


@given(st.data())
def test_functions_leave_out_no_row_that_matches(data: st.DataObject) -> None:
    at = data.draw(MOMENTS)
    rows: dict[str, Any] = {
        "id": data.draw(st.integers(-3, 3) | st.none()),
        "real": data.draw(st.sampled_from([float("nan"), 0.0, 1.5, None])),
        "day": data.draw(st.dates(date(1960, 1, 1), date(2040, 1, 1)) | st.none()),
        "at": data.draw(st.just(at) | st.none()),
    }
    unit = data.draw(st.sampled_from(UNITS))
    days = st.just(rows["day"] or date(2000, 1, 1)) | st.dates(date(1960, 1, 1), date(2040, 1, 1))
    left, right = data.draw(
        st.sampled_from(
            [
                (col("day").dt.year(), data.draw(st.integers(1959, 2041))),
                (col("at").dt.year(), at.year),
                (col("at").dt.truncate(unit), data.draw(st.just(at) | MOMENTS)),
                (col("day").dt.truncate(data.draw(st.sampled_from(UNITS[:5]))), data.draw(days)),
                (col("id").fill_null(1), data.draw(st.integers(-3, 3))),
                (col("id").fill_null(0.5), 1),
            ]
        )
    )
    op = data.draw(st.sampled_from(["eq", "gt", "gt_eq", "lt", "lt_eq", "ne"]))
    predicate = getattr(left, op)(right) if data.draw(st.booleans()) else getattr(lit(right), op)(left)
    predicate = data.draw(
        st.sampled_from([predicate, predicate | col("real").is_nan(), predicate & col("real").is_nan()])
    )
    table = pa.table({name: pa.array([rows[name]], kind) for name, kind in TYPES.items()})
    (batch,) = table.to_batches()
    matches = compile_expression(predicate.node, table.schema).evaluate(batch)[0].as_py()
    kept = expression_evaluator(SCHEMA, pruning(predicate.node, SCHEMA), case_sensitive=True)
    day = None if rows["day"] is None else (rows["day"] - date(1970, 1, 1)).days
    micros = None if rows["at"] is None else int(rows["at"].timestamp() * 1_000_000)
    found = kept(Record(rows["id"], rows["real"], None, None, day, micros, None))
    assert found or not matches


@pytest.mark.parametrize(
    ("predicate", "expected"),
    [
        (col("day").dt.year() == 2024, "day >= '2024-01-01' and day < '2025-01-01'"),
        (col("day").dt.truncate("month") >= date(2024, 5, 1), "day >= '2024-05-01'"),
        (col("id").fill_null(0) > 5, "id > 5 or id is null"),
        (col("real").is_nan(), "real is nan"),
    ],
)
def test_functions_that_are_pushed_down(predicate: Expr, expected: str) -> None:
    bound = bind(SCHEMA, pruning(predicate.node, SCHEMA), case_sensitive=True)
    assert bound == bind(SCHEMA, parser.parse(expected), case_sensitive=True)
