"""Expressions and narrow steps on Arrow batches: SQL's rules for nulls, types checked before anything runs."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark import cloudpickle

from volley import ConfigError, Environment, Expr, ExpressionError, JobError, MemorySource, VolleyError, col, lit
from volley.columns.dictionaries import decode_rows
from volley.columns.expressions import compile_expression
from volley.columns.nodes import CompiledSteps, lower
from volley.plan.nodes import Node, walk
from volley.stream.stream import DataStream

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("n", pa.int32()),
        ("x", pa.float64()),
        ("name", pa.string()),
        ("yes", pa.bool_()),
        ("money", pa.decimal128(10, 2)),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
        ("tags", pa.list_(pa.string())),
    ]
)
START = Environment().from_source(MemorySource([], schema=SCHEMA))


def stage(stream: DataStream, schema: pa.Schema = SCHEMA) -> CompiledSteps:
    """The steps of a stream behind its source, lowered."""
    nodes: list[Node] = list(walk([stream._node]))
    return lower(nodes[1:], schema)


def values(expression: Expr, **columns: Any) -> list[Any]:
    """What an expression gives for columns given as (values, type)."""
    batch = pa.record_batch({name: pa.array(*column) for name, column in columns.items()})
    source = Environment().from_source(MemorySource(batch))
    return stage(source.select(expression.alias("v")), batch.schema)(batch).column(0).to_pylist()  # type: ignore[no-any-return]


truth = st.lists(st.tuples(st.sampled_from([True, False, None]), st.sampled_from([True, False, None])), min_size=1)


@given(truth)
def test_three_valued_logic(pairs: list[tuple[bool | None, bool | None]]) -> None:
    def both(left: bool | None, right: bool | None) -> bool | None:
        return False if False in (left, right) else None if None in (left, right) else True

    p, q = ([pair[i] for pair in pairs] for i in (0, 1))
    given_columns = {"p": (p, pa.bool_()), "q": (q, pa.bool_())}
    inverted = {True: False, False: True, None: None}
    assert values(col("p") & col("q"), **given_columns) == [both(*pair) for pair in pairs]
    either = [inverted[both(inverted[left], inverted[right])] for left, right in pairs]
    assert values(col("p") | col("q"), **given_columns) == either
    assert values(~col("p"), **given_columns) == [inverted[left] for left in p]


numbers = st.one_of(st.none(), st.floats(), st.sampled_from([0.0, -0.0, math.nan, math.inf]))


def order(value: float) -> tuple[int, float]:
    """Spark's order of floats: NaN is equal to itself and greater than all others."""
    return (1, 0.0) if math.isnan(value) else (0, value)


@given(st.lists(st.tuples(numbers, numbers), min_size=1))
def test_comparisons_of_floats(pairs: list[tuple[float | None, float | None]]) -> None:
    columns = {name: ([pair[i] for pair in pairs], pa.float64()) for i, name in enumerate("ab")}
    a, b = col("a"), col("b")
    cases: list[tuple[Expr, Callable[[Any, Any], bool]]] = [
        (a == b, lambda left, right: left == right),
        (a != b, lambda left, right: left != right),
        (a < b, lambda left, right: left < right),
        (a <= b, lambda left, right: left <= right),
        (a > b, lambda left, right: left > right),
        (a >= b, lambda left, right: left >= right),
    ]
    for expression, compare in cases:
        expected = [None if None in (p, q) else compare(order(p), order(q)) for p, q in pairs]  # type: ignore[arg-type]
        assert values(expression, **columns) == expected


ints = st.lists(st.tuples(st.integers(-(2**31), 2**31 - 1), st.integers(-100, 100).filter(bool)), min_size=1)


@given(ints)
def test_remainder_has_the_sign_of_the_dividend(pairs: list[tuple[int, int]]) -> None:
    columns = {name: ([pair[i] for pair in pairs], pa.int64()) for i, name in enumerate("ab")}
    assert values(col("a") % col("b"), **columns) == [int(math.fmod(p, q)) for p, q in pairs]
    assert values(col("a") / col("b"), **columns) == [p / q for p, q in pairs]


@pytest.mark.parametrize("kind", [pa.int32(), pa.int64()])
def test_nothing_remains_of_the_least_number_by_minus_one(kind: pa.DataType) -> None:
    least = -(2 ** (kind.bit_width - 1))
    columns = {"a": ([least, least, 7, None], kind), "b": ([-1, 3, -1, -1], kind)}
    assert values(col("a") % col("b"), **columns) == [0, -(-least % 3), 0, None]
    assert values(col("a") % -1, a=([least, 5], kind)) == [0, 0]


def test_is_in_follows_sql() -> None:
    x = ([1, 2, None], pa.int64())
    assert values(col("x").is_in(1, 3), x=x) == [True, False, None]
    assert values(col("x").is_in(1, None), x=x) == [True, None, None]
    nan = ([math.nan, 1.0], pa.float64())
    assert values(col("x").is_in(math.nan), x=nan) == [True, False]


def test_errors_of_values_are_errors() -> None:
    big = ([2**62, None], pa.int64())
    with pytest.raises(Exception, match="overflow"):
        values(col("x") * 4, x=big)
    zero = ([0, 1], pa.int64())
    for expression in (lit(1) / col("x"), lit(1) % col("x")):
        with pytest.raises(ExpressionError, match="division by zero"):
            values(expression, x=zero)
    for kind, text in (("int", "x"), ("boolean", "perhaps"), ("timestamp", "soon"), ("date", "1st")):
        with pytest.raises(ExpressionError, match="cast"):
            values(col("x").cast(kind), x=([text], pa.string()))
    with pytest.raises(ExpressionError, match="cast"):
        values(col("x").cast("int"), x=([2**40], pa.int64()))


def test_null_divided_by_zero_is_null() -> None:
    columns = {"x": ([None, 4], pa.int64()), "y": ([0, 2], pa.int64())}
    assert values(col("x") / col("y"), **columns) == [None, 2.0]
    assert values(col("x") % col("y"), **columns) == [None, 0]


def test_a_guard_guards() -> None:
    y = ([0, 2, None, 4], pa.int64())
    assert values((col("y") != 0) & (lit(4) / col("y") > 1), y=y) == [False, True, None, False]
    # A cast to the type that a value has already is none, and does not hide that computing the value may fail.
    assert values((col("y") != 0) & ((lit(4) / col("y")).cast("double") > 1), y=y) == [False, True, None, False]
    assert values((col("y") == 0) | (lit(4) / col("y") > 1), y=y) == [True, True, None, False]


def test_casts() -> None:
    at = datetime(2024, 1, 2, 3, 4, 5, 600000, UTC)
    texts = (["2024-01-02T03:04:05.6Z", "2024-01-02 03:04:05.6", " 2024-01-02T05:04:05.6+02:00 ", None], pa.string())
    assert values(col("x").cast("timestamp"), x=texts) == [at, at, at, None]
    assert values(col("x").cast("date"), x=([at, None], pa.timestamp("us", "UTC"))) == [date(2024, 1, 2), None]
    assert values(col("x").cast("int"), x=([1.9, -1.9], pa.float64())) == [1, -1]
    assert values(col("x").cast("decimal(5,1)"), x=([Decimal("1.25"), Decimal("-1.25")], pa.decimal128(5, 2))) == [
        Decimal("1.3"),
        Decimal("-1.3"),
    ]
    assert values(col("x").cast("boolean"), x=([" Yes", "0", None], pa.string())) == [True, False, None]
    assert values(col("x").cast("string"), x=([date(1900, 1, 1)], pa.date32())) == ["1900-01-01"]


@pytest.mark.parametrize(
    ("expression", "kind"),
    [
        (col("id") + col("n"), pa.int64()),
        (col("n") + 1, pa.int32()),
        (col("n") + 2**40, pa.int64()),
        (col("n") / 2, pa.float64()),
        (col("n") * 1.5, pa.float64()),
        (col("money") + 1, pa.decimal128(13, 2)),
        (col("money") * col("money"), pa.decimal128(21, 4)),
        (col("money") / 3, pa.float64()),
        (-col("money"), pa.decimal128(10, 2)),
        (col("name").is_null(), pa.bool_()),
        (lit(None), pa.null()),
        (col("x") > col("n"), pa.bool_()),
        (col("at") > datetime(2024, 1, 1, tzinfo=UTC), pa.bool_()),
    ],
)
def test_types(expression: Expr, kind: pa.DataType) -> None:
    assert compile_expression(expression.node, SCHEMA).type == kind


def test_decimals_of_more_than_38_digits_are_rounded_as_in_spark() -> None:
    x = ([Decimal("1.23456789"), Decimal("-1.23456750"), None], pa.decimal128(32, 8))
    y = ([Decimal(2), Decimal(1), Decimal(1)], pa.decimal128(16, 2))
    rounded = [Decimal("2.469136"), Decimal("-1.234568"), None]
    assert values(col("x") * col("y"), x=x, y=y) == rounded
    with pytest.raises(ExpressionError, match="does not fit in precision 38"):
        values(col("x") * col("y"), x=([Decimal(10) ** 20], x[1]), y=([Decimal(10) ** 13], y[1]))


def test_decimals_are_compared_exactly() -> None:
    x = ([Decimal("1.4"), Decimal(1), Decimal(10) ** 4], pa.decimal128(10, 5))
    y = ([Decimal(1), Decimal(1), Decimal(10) ** 37], pa.decimal128(38, 0))
    assert values(col("x").eq(col("y")), x=x, y=y) == [False, True, False]
    assert values(col("x") > col("y"), x=x, y=y) == [True, False, False]


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        (col("nmae") == "x", "unknown column 'nmae'"),
        (col("id") == "x", "long and string"),
        (col("at") > datetime(2024, 1, 1), "timestamp and timestamp_ntz"),
        (col("day") > datetime(2024, 1, 1), "date and timestamp_ntz"),
        (col("name") + 1, "string and int"),
        (col("name") + col("name"), "takes numbers"),
        (col("yes") & col("id"), "takes conditions"),
        (~col("id"), "takes a condition"),
        (col("id").starts_with("x"), "takes a string"),
        (col("x") % 2, "takes integers"),
        (col("tags") == col("tags"), "plain values"),
        (col("x").cast("date"), "can't cast double to date"),
        (col("id").is_in(col("n")), "constants only"),
        (lit(Decimal(10) ** 37) * lit(Decimal(10) ** 37), "decimal"),
    ],
)
def test_wrong_types_are_found_before_anything_runs(expression: Expr, message: str) -> None:
    with pytest.raises(ExpressionError, match=message) as caught:
        compile_expression(expression.node, SCHEMA)
    assert caught.value.hint


def test_near_columns_are_listed() -> None:
    with pytest.raises(ExpressionError) as caught:
        compile_expression(col("nmae").node, SCHEMA)
    assert "did you mean 'name'" in str(caught.value.hint)


ROWS = pa.record_batch({"id": [1, 2, 3, None], "n": pa.array([1, None, 3, 4], pa.int32()), "s": ["a", "b", None, "d"]})
ROW_STREAM = Environment().from_source(MemorySource(ROWS))


def run(stream: DataStream) -> pa.RecordBatch:
    lowered = stage(stream, ROWS.schema)
    again: CompiledSteps = cloudpickle.loads(cloudpickle.dumps(lowered))
    assert again.schema == lowered.schema
    found = again(ROWS)
    assert found.schema == lowered.schema
    assert again(ROWS.slice(0, 0)).schema == lowered.schema
    return found


def test_steps() -> None:
    s = ROW_STREAM
    assert run(s.filter_expr(col("id") > 1)).column("id").to_pylist() == [2, 3]
    assert run(s.filter_expr(lit(False))).num_rows == 0
    assert run(s.with_column("id", col("id") + 1)).to_pydict()["id"] == [2, 3, 4, None]
    assert run(s.with_column("new", 7)).schema.names == ["id", "n", "s", "new"]
    assert run(s.with_column("none", None)).column("none").to_pylist() == [None] * 4
    assert run(s.select("s", (col("n") + 1).alias("m"))).to_pydict() == {
        "s": ["a", "b", None, "d"],
        "m": [2, None, 4, 5],
    }
    assert run(s.drop("id", "s")).schema.names == ["n"]
    assert run(s.rename({"id": "n", "n": "id"})).schema.names == ["n", "id", "s"]
    assert run(s.map(lambda row: {**row, "n": 0})).column("n").to_pylist() == [0] * 4
    assert run(s.flat_map(lambda row: [{"x": row["n"]}] * (row["n"] or 0), "x long")).num_rows == 8
    assert run(s.map_batches(lambda batch: batch.slice(1, 2))).num_rows == 2


@pytest.mark.parametrize(
    ("stream", "message"),
    [
        (ROW_STREAM.drop("ids"), "unknown column 'ids'"),
        (ROW_STREAM.drop("id", "n", "s"), "no column"),
        (ROW_STREAM.rename({"ids": "x"}), "unknown column 'ids'"),
        (ROW_STREAM.rename({"id": "n"}), "two columns 'n'"),
        (ROW_STREAM.filter_expr(col("id")), "takes a condition"),
    ],
)
def test_wrong_steps_are_found_before_anything_runs(stream: DataStream, message: str) -> None:
    with pytest.raises(ExpressionError, match=message):
        stage(stream, ROWS.schema)


@pytest.mark.parametrize(
    ("stream", "message"),
    [
        (ROW_STREAM.map(lambda row: 1 / 0), "<lambda> failed on the row {'id': 1.*ZeroDivisionError"),  # type: ignore[arg-type,return-value]
        (ROW_STREAM.map(lambda row: row["s"]), "gave 'a'"),
        (ROW_STREAM.map(lambda row: {"idd": 1}), "unknown column 'idd'"),
        (ROW_STREAM.map(lambda row: {"id": "x"}), "column 'id' that is no long"),
        (ROW_STREAM.map_batches(lambda batch: batch.to_pylist()), "gave a list"),
        (ROW_STREAM.map_batches(lambda batch: batch.select(["id"])), "gave the columns"),
    ],
)
def test_errors_of_users_functions_name_them(stream: DataStream, message: str) -> None:
    with pytest.raises(JobError, match=message) as caught:
        run(stream)
    assert caught.value.hint


def test_the_line_of_a_users_function_that_failed_is_named_first() -> None:
    def inner(row: dict[str, Any]) -> dict[str, Any]:
        return {"id": row["id"] // 0}

    line = inner.__code__.co_firstlineno + 1
    for stream in (ROW_STREAM.map(inner), ROW_STREAM.map(lambda row: inner(row))):
        with pytest.raises(JobError) as caught:
            run(stream)
        assert caught.value.message.startswith(f"{__file__}:{line}: ")


def test_a_line_of_a_notebook_is_named_by_its_cell() -> None:
    cell: dict[str, Any] = {}
    exec(compile("def half(row):\n    return 1 // 0", "/tmp/ipykernel_42/1234567.py", "exec"), cell)
    with pytest.raises(JobError, match=r"^notebook cell, line 2: map half failed on the row"):
        run(ROW_STREAM.map(cell["half"]))


def test_a_function_of_python_itself_has_no_line_to_name() -> None:
    with pytest.raises(JobError, match=r"^map int failed on the row"):
        run(ROW_STREAM.map(int))  # type: ignore[arg-type]


def test_rows_that_python_has_no_values_for_say_so() -> None:
    far = pa.record_batch({"at": pa.array([2**60], pa.timestamp("us"))})
    stream = Environment().from_source(MemorySource([{"at": datetime(2024, 1, 1)}])).map(lambda row: row)
    with pytest.raises(JobError, match="no object for") as caught:
        stage(stream, far.schema)(far)
    assert "map_batches" in str(caught.value.hint)


# Columns that are dictionaries

ENCODED = pa.schema({"id": pa.int64(), "kind": pa.string(), "raw": pa.binary()})
EVENTS = Environment().from_source(MemorySource([], schema=ENCODED))


def events(rows: list[tuple[int, str | None, bytes | None]]) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """A batch, and the same with dictionaries."""
    batch = pa.RecordBatch.from_pylist([dict(zip(ENCODED.names, row, strict=True)) for row in rows], ENCODED)
    columns = [batch["id"], batch["kind"].dictionary_encode(), batch["raw"].dictionary_encode()]
    return batch, pa.record_batch(columns, names=ENCODED.names)


def in_capitals(batch: pa.RecordBatch) -> pa.RecordBatch:
    assert batch.schema == ENCODED, "a user's function is given plain columns"
    return batch.set_column(1, "kind", pc.utf8_upper(batch["kind"]))


STEPS: dict[str, Callable[[DataStream], DataStream]] = {
    "filter": lambda stream: stream.filter_expr(col("kind") == "view"),
    "filter by another": lambda stream: stream.filter_expr(col("id") > 2),
    "keep all": lambda stream: stream.filter_expr(col("id") > -1),
    "select": lambda stream: stream.select(col("kind"), col("raw").alias("bytes"), (col("id") + 1).alias("next")),
    "test": lambda stream: stream.select(
        col("kind").is_null().alias("none"),
        col("kind").is_in("view").alias("views"),
        col("kind").starts_with("v").alias("begins"),
    ),
    "cast": lambda stream: stream.with_column("raw", col("kind").cast("string")),
    "with_column": lambda stream: stream.with_column("kind", lit("x")).with_column("copy", col("raw")),
    "rename": lambda stream: stream.rename({"kind": "sort"}).drop("raw"),
    "map": lambda stream: stream.map(lambda row: {**row, "kind": f"{row['kind']}!"}),
    "map_batches": lambda stream: stream.map_batches(in_capitals),
}


@pytest.mark.parametrize("name", STEPS)
@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.sampled_from(["view", "click", None]), st.sampled_from([b"", b"\xff", None]))
    )
)
def test_dictionaries_are_the_same_rows(name: str, rows: list[tuple[int, str | None, bytes | None]]) -> None:
    plain, encoded = events(rows)
    steps = stage(STEPS[name](EVENTS), ENCODED)
    found = steps(encoded)
    assert decode_rows(found) == steps(plain)
    found.validate(full=True)
    assert decode_rows(found).schema == steps.schema


def test_columns_that_nobody_looks_into_stay_dictionaries() -> None:
    _, encoded = events([(1, "view", b"x"), (2, "click", b"y")])
    untouched = EVENTS.filter_expr(col("kind") != "order").rename({"kind": "sort"}).with_column("n", col("id") * 2)
    found = stage(untouched.select(col("n"), col("sort").alias("kind"), col("raw")), ENCODED)(encoded)
    assert [pa.types.is_dictionary(kind) for kind in found.schema.types] == [False, True, True]


def test_a_dictionary_does_not_tell_of_rows_that_were_dropped() -> None:
    _, encoded = events([(1, "view", b"x"), (2, "secret", b"y")])
    found = stage(EVENTS.filter_expr(col("id") == 1), ENCODED)(encoded)
    assert found.schema == ENCODED
    assert found.to_pylist() == [{"id": 1, "kind": "view", "raw": b"x"}]


def test_columns_that_are_set_together_are_of_the_rows_as_they_were() -> None:
    stream = Environment().from_source(MemorySource([{"a": 1, "b": 2}]))
    swapped = stream.with_columns(a=col("b"), c=col("a") + 1, b=col("a"))
    assert computed(swapped) == [{"a": 2, "b": 1, "c": 2}]
    assert computed(stream.select("b", x="a", y=col("a") * 5)) == [{"b": 2, "x": 1, "y": 5}]
    assert stream.pipe(DataStream.drop, "a") == stream.drop("a")
    with pytest.raises(ConfigError, match="not a function"):
        stream.pipe("drop")  # type: ignore[arg-type]
    assert str(stream.filter(col("a") > 1)) == str(stream.filter_expr(col("a") > 1))


def computed(stream: DataStream) -> list[dict[str, int]]:
    schema = pa.schema([("a", pa.int64()), ("b", pa.int64())])
    steps = lower(list(walk([stream._node]))[1:], schema)
    return steps(pa.record_batch([[1], [2]], schema=schema)).to_pylist()  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", ["withColumn", "where", "dropDuplicates", "selct"])
def test_verbs_of_others_are_named_by_ours(name: str) -> None:
    stream = Environment().from_source(MemorySource([{"a": 1}]))
    ours = {"withColumn": "with_column", "where": "filter", "dropDuplicates": "deduplicate", "selct": "select"}[name]
    with pytest.raises(AttributeError) as caught:
        getattr(stream, name)
    assert isinstance(caught.value, VolleyError)
    assert ours in str(caught.value.hint)
