"""The two execution paths mean the same: random pipelines give the same rows, names and types on both."""

from __future__ import annotations

import math
from datetime import UTC
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from volley import (
    Environment,
    Expr,
    ExpressionError,
    MemorySource,
    VolleyError,
    coalesce,
    col,
    concat_str,
    greatest,
    least,
    lit,
    murmur3,
    when,
    xxhash64,
)
from volley.arrow.batches import conform
from volley.arrow.expressions import output_type
from volley.arrow.nodes import lower
from volley.plan.graph import walk
from volley.spark.expressions import to_column, to_spark_schema
from volley.spark.nodes import apply
from volley.stream import DataStream

VALUES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "i": (pa.int32(), st.integers(-(2**31), 2**31 - 1) | st.integers(-3, 3)),
    "l": (pa.int64(), st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 3)),
    "d": (pa.float64(), st.floats() | st.sampled_from([0.0, -0.0, 1.5, math.nan])),
    "f": (pa.float32(), st.floats(width=32)),
    "s": (pa.string(), st.text(max_size=3) | st.sampled_from(["", "a", "ab", "ü", "1", " 2 ", "true"])),
    "b": (pa.bool_(), st.booleans()),
    "m": (pa.decimal128(8, 2), st.decimals(-999, 999, places=2)),
    "w": (pa.decimal128(38, 18), st.decimals(-(10**19), 10**19, places=18)),
    "y": (pa.date32(), st.dates()),
    "t": (pa.timestamp("us", "UTC"), st.datetimes(timezones=st.just(UTC))),
    "n": (pa.timestamp("us"), st.datetimes()),
    "k": (pa.time64("us"), st.times()),
    "x": (pa.binary(), st.binary(max_size=3) | st.sampled_from(["", "ü", "ab"]).map(str.encode)),
}
SCHEMA = pa.schema([(name, kind) for name, (kind, _) in VALUES.items()])
NUMBERS = "ildfmw"
GROUPS = (NUMBERS, "s", "b", "y", "t", "n", "k")

rows = st.lists(
    st.fixed_dictionaries({name: st.none() | of for name, (_, of) in VALUES.items()}), min_size=3, max_size=10
)


@st.composite
def operands(draw: st.DrawFn, group: str) -> Expr:
    """A column or a constant of one group of types."""
    name = draw(st.sampled_from(group))
    if draw(st.booleans()):
        return col(name)
    value = draw(VALUES[name][1] | st.none())
    return lit(value)


@st.composite
def operand_pairs(draw: st.DrawFn, group: str) -> tuple[Expr, Expr]:
    """Two operands, not both constant: what fails whatever the row is fails in Spark even if there are no rows."""
    column, other = col(draw(st.sampled_from(group))), draw(operands(group))
    return (column, other) if draw(st.booleans()) else (other, column)


@st.composite
def conditions(draw: st.DrawFn, depth: int = 2) -> Expr:
    """A random condition."""
    kind = draw(st.sampled_from(["compare", "null", "in", "text", "between", *(["and", "or", "not"] if depth else [])]))
    group = draw(st.sampled_from(GROUPS))
    match kind:
        case "compare":
            op = draw(st.sampled_from(["eq", "ne", "gt", "gt_eq", "lt", "lt_eq"]))
            return getattr(draw(operands(group)), op)(draw(operands(group)))  # type: ignore[no-any-return]
        case "null":
            value = draw(operands(group))
            return value.is_null() if draw(st.booleans()) else value.is_not_null()
        case "in":
            name = draw(st.sampled_from(group))
            return col(name).is_in(draw(st.lists(VALUES[name][1] | st.none(), min_size=2, max_size=3)))
        case "text":
            pattern = draw(st.sampled_from(["", "a", "ü", "%"]))
            return col("s").starts_with(pattern) if draw(st.booleans()) else col("s").contains(pattern)
        case "between":
            return draw(operands(group)).between(draw(operands(group)), draw(operands(group)))
        case "not":
            return ~draw(conditions(depth - 1))
    left, right = draw(conditions(depth - 1)), draw(conditions(depth - 1))
    return left & right if kind == "and" else left | right


CASTS = {
    "i": ("long", "double", "float", "string", "decimal(12,2)", "boolean"),
    "l": ("int", "double", "float", "string", "boolean"),
    "d": ("int", "float", "decimal(12,3)", "decimal(38,38)", "boolean", "string"),
    "w": ("double", "decimal(38,17)", "decimal(22,2)", "long", "boolean", "string"),
    "m": ("double", "decimal(9,1)", "decimal(12,4)", "int", "long", "boolean", "string"),
    "b": ("int", "double", "decimal(3,1)", "decimal(1,1)", "string"),
    "y": ("string", "timestamp", "timestamp_ntz"),
    "t": ("date", "timestamp_ntz", "string"),
    "n": ("date", "timestamp", "string"),
    "f": ("double", "int", "decimal(20,10)", "boolean", "string"),
    "x": ("string",),
    "s": ("int", "double", "boolean", "date", "binary"),
}


@st.composite
def functions(draw: st.DrawFn) -> Expr:
    """A function of random columns, some with an operation that Spark computes itself."""
    of = {group: col(draw(st.sampled_from(group))) for group in (NUMBERS, "ytn", "tn", "df")}
    text, number, day, clock, real = col("s"), *of.values()
    return draw(
        st.sampled_from(
            [
                *(text.str.upper(), text.str.strip(), text.str.length(), text.str.slice(-2, 1), text.str.reverse()),
                *(text.str.pad_start(3, "x"), text.str.split("a"), text.str.matches("^[a-z]"), text.str.byte_length()),
                *(coalesce(number, number), text.fill_null("none"), number.null_if(1), real.is_nan(), number.sign()),
                *(when(draw(conditions())).then(text).otherwise(text.str.lower()), when(col("b")).then(number)),
                *(greatest(number, number), least(real, 1.5), concat_str(text, text, separator="-")),
                *(day.dt.year(), day.dt.month(), day.dt.day(), day.dt.weekday(), day.dt.truncate("month")),
                *(
                    murmur3(text, number, day),
                    xxhash64(real, col("b"), clock, text),
                    text.uuid5(),
                    text.try_cast("int"),
                ),
                *(day.dt.format("%d.%m.%Y"), clock.dt.format("%H:%M:%S.%f"), text.str.json_path("$")),
                *(clock.dt.hour(), clock.dt.microsecond(), clock.dt.epoch_seconds(), clock.dt.truncate("minute")),
                *(
                    number.floor(),
                    number.ceil(),
                    number.round(1),
                    real.round(1, "half_even"),
                    number.sqrt(),
                    real.exp(),
                ),
            ]
        )
    )


@st.composite
def computed(draw: st.DrawFn) -> Expr:
    """A random value of any type."""
    kind = draw(st.sampled_from(["condition", "arithmetic", "neg", "mod", "cast", "literal", "column", "function"]))
    match kind:
        case "function":
            return draw(functions())
        case "condition":
            return draw(conditions())
        case "arithmetic":
            op = draw(st.sampled_from(["add", "sub", "mul", "div"]))
            left, right = draw(operand_pairs(NUMBERS))
            return getattr(left, op)(right)  # type: ignore[no-any-return]
        case "mod":
            left, right = draw(operand_pairs("il"))
            return left % right
        case "neg":
            return -col(draw(st.sampled_from(NUMBERS)))
        case "cast":
            name = draw(st.sampled_from(sorted(CASTS)))
            to = draw(st.sampled_from(CASTS[name]))
            return col(name).cast(to) if draw(st.booleans()) else col(name).try_cast(to)
        case "literal":
            return draw(operands(draw(st.sampled_from(GROUPS))))
    return col(draw(st.sampled_from(SCHEMA.names)))


def well_typed(expression: Expr) -> bool:
    try:
        output_type(expression.node, SCHEMA)
    except ExpressionError:
        return False
    return True


def comparable(value: Any) -> Any:
    """Values as they are compared: NaN equals NaN, 0.0 is not -0.0, numbers keep their type."""
    return repr(value)


def arrow_rows(stream: DataStream, batch: pa.RecordBatch) -> tuple[pa.Schema, list[Any]] | None:
    nodes = list(walk([stream._node]))[1:]
    stage = lower(nodes, SCHEMA)
    try:
        return stage.schema, stage(batch).to_pylist()
    except (VolleyError, pa.ArrowException):
        return None


def spark_rows(spark: SparkSession, stream: DataStream, batch: pa.RecordBatch) -> tuple[pa.Schema, list[Any]] | None:
    frame = spark.createDataFrame(pa.Table.from_batches([batch]), to_spark_schema(SCHEMA))
    schema = SCHEMA
    for node in list(walk([stream._node]))[1:]:
        frame, schema = apply(frame, node, schema), lower([node], schema).schema
    try:
        table = frame.toArrow()
    except PySparkException:
        return None
    assert table.schema.names == schema.names
    batches = [conform(part, schema) for part in table.to_batches()]
    return schema, [row for part in batches for row in part.to_pylist()]


@settings(suppress_health_check=list(HealthCheck))
@given(
    data=rows,
    values=st.lists(computed().filter(well_typed), min_size=4, max_size=8),
    condition=conditions().filter(well_typed),
    part=st.sampled_from(["all", "all", "filtered", "rest"]),
    replaced=st.sampled_from(SCHEMA.names),
)
def test_random_pipelines(
    job_session: SparkSession,
    data: list[dict[str, Any]],
    values: list[Expr],
    condition: Expr,
    part: str,
    replaced: str,
) -> None:
    batch = pa.RecordBatch.from_pylist(data, SCHEMA)
    read = Environment().from_source(MemorySource([], schema=SCHEMA))
    true, rest = read.split(condition)
    start = {"all": read, "filtered": true, "rest": rest}[part]
    first, *others = values
    named = [value.alias(f"v{number}") for number, value in enumerate(others)]
    stream = (
        start.select(*SCHEMA.names, *named, condition.alias("c"))
        .with_columns(**{replaced: first, "of before": col(replaced)})
        .drop("i" if replaced != "i" else "l")
        .rename({"s": "text of s"})
    )
    arrow, general = arrow_rows(stream, batch), spark_rows(job_session, stream, batch)
    event("both failed" if arrow is None else "compared" if arrow[1] else "no rows")
    if arrow is None or general is None:
        # One value that can't be computed fails the whole; which of the values it is, each path has to agree on.
        for value in [*values, condition]:
            one = start.select(value.alias("v"))
            failed = [rows is None for rows in (arrow_rows(one, batch), spark_rows(job_session, one, batch))]
            assert failed[0] == failed[1], (value, failed)
        return
    assert arrow[0] == general[0]
    assert [comparable(row) for row in arrow[1]] == [comparable(row) for row in general[1]]


@pytest.mark.parametrize(
    ("text", "to"),
    [
        ("10:00", "timestamp"),
        ("2024-01-31T10:00Z", "timestamp"),
        ("2024-1-5", "timestamp_ntz"),
        ("2024-01-31T10:00:00", "date"),
        ("2024", "date"),
        ("1.5d", "double"),
        ("1\x7f", "float"),
        ("\u00a01", "int"),
        ("0x10", "long"),
        ("Yes", "boolean"),
    ],
)
def test_a_cast_of_a_text(job_session: SparkSession, text: str, to: str) -> None:
    batch = pa.RecordBatch.from_pylist([{"s": text}], SCHEMA)
    stream = Environment().from_source(MemorySource([], schema=SCHEMA)).select(v=col("s").cast(to))
    assert arrow_rows(stream, batch) == spark_rows(job_session, stream, batch)


def test_the_spark_type_is_the_checked_type(spark: SparkSession) -> None:
    frame = spark.createDataFrame([], to_spark_schema(SCHEMA))
    expressions = [
        col("i") + col("l"),
        col("m") * col("m"),
        col("m") + 1,
        col("i") / 2,
        lit(None),
        lit(Decimal("1.50")),
    ]
    wanted = pa.schema([(f"v{i}", output_type(each.node, SCHEMA)) for i, each in enumerate(expressions)])
    wanted = wanted.set(4, pa.field("v4", pa.string()))
    found = frame.select(*(to_column(each.node, SCHEMA).alias(f"v{i}") for i, each in enumerate(expressions)))
    assert [field.dataType for field in found.schema] == [field.dataType for field in to_spark_schema(wanted)]


def test_hostile_column_names(spark: SparkSession) -> None:
    names = ["a.b", "a b", "`a`", "ä", "a'b", 'a"b', "*"]
    schema = pa.schema([(name, pa.int64()) for name in names])
    batch = pa.record_batch([pa.array([i]) for i in range(len(names))], schema=schema)
    start = Environment().from_source(MemorySource(batch))
    stream = start.select(*names, (col("a.b") + col("`a`")).alias("x.y")).drop("a b").rename({"*": "**"})
    frame, now = spark.createDataFrame(pa.Table.from_batches([batch]), to_spark_schema(schema)), schema
    for node in list(walk([stream._node]))[1:]:
        frame, now = apply(frame, node, now), lower([node], now).schema
    stage = lower(list(walk([stream._node]))[1:], schema)
    assert frame.toArrow().to_pylist() == stage(batch).to_pylist()
