"""Expressions are plain data: recorded calls, value-equal, printable, strict about what they take."""

from __future__ import annotations

import copy
import enum
import pickle
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.test_functions import values_of
from volley import (
    ConfigError,
    Environment,
    Expr,
    ExpressionError,
    MemorySource,
    array,
    col,
    count,
    greatest,
    lit,
    now,
    sql,
    struct,
    when,
)
from volley.columns.expressions import LOWERED as ARROW
from volley.plan.elsewhere import EXPRESSIONS
from volley.plan.expression_nodes import (
    FUNCTIONS,
    OPERATIONS,
    Call,
    Column,
    ExprNode,
    Literal,
    Now,
    column_names,
    output_name,
)
from volley.plan.namespaces import Lists, Maps, Strings
from volley.plan.times import Times

literals = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=5),
    st.binary(max_size=5),
    st.decimals(allow_nan=False, allow_infinity=False, places=2, min_value=-1000, max_value=1000),
    st.dates(),
    st.datetimes(timezones=st.just(UTC)),
    st.datetimes(),
    st.times(),
).map(Literal)
columns = st.sampled_from(["a", "b c", "ü", "x'y"]).map(Column) | st.just(Now())


def calls(inner: st.SearchStrategy[ExprNode]) -> st.SearchStrategy[ExprNode]:
    """Calls of every operation on inner expressions."""
    two = [op for op, symbol in OPERATIONS.items() if symbol and op not in ("not_", "neg")]
    return st.one_of(
        st.builds(lambda op, left, right: Call(op, (left, right)), st.sampled_from(two), inner, inner),
        st.builds(lambda op, arg: Call(op, (arg,)), st.sampled_from(["not_", "is_null", "is_not_null"]), inner),
        st.builds(lambda arg, rest: Call("is_in", (arg, *rest)), inner, st.lists(literals, min_size=2, max_size=3)),
        st.builds(lambda arg: Call("cast", (arg, Literal("decimal(10,2)"))), inner),
        st.builds(lambda arg, name: Call("alias", (arg, Literal(name))), inner, st.text(min_size=1, max_size=3)),
    )


nodes = st.recursive(st.one_of(columns, literals), calls, max_leaves=6)


@given(nodes)
def test_the_repr_is_the_dsls_own_text(node: ExprNode) -> None:
    import datetime as module

    scope = {"col": col, "lit": lit, "now": now, "Decimal": Decimal, "datetime": module}
    again = eval(repr(node), scope)
    assert isinstance(again, Expr)
    assert again.node == node
    assert hash(again.node) == hash(node)
    assert repr(again) == repr(node)


def test_values_of_different_types_are_different() -> None:
    assert len({Literal(1), Literal(1.0), Literal(True), Literal(Decimal(1)), Literal("1")}) == 5
    assert Literal(float("nan")) == Literal(float("nan"))
    assert Literal(0.0) != Literal(-0.0)


a = col("a")

TWINS: list[tuple[Callable[[], Expr], Callable[[], Expr]]] = [
    (lambda: a == 1, lambda: a.eq(lit(1))),
    (lambda: a != 1, lambda: a.ne(1)),
    (lambda: a > 1, lambda: a.gt(1)),
    (lambda: a >= 1, lambda: a.gt_eq(1)),
    (lambda: a < 1, lambda: a.lt(1)),
    (lambda: a <= 1, lambda: a.lt_eq(1)),
    (lambda: a > 1, lambda: a.gt(1)),
    (lambda: (a > 1) & (a < 2), lambda: a.gt(1).and_(a.lt(2))),
    (lambda: (a > 1) | True, lambda: a.gt(1).or_(True)),
    (lambda: ~(a > 1), lambda: a.gt(1).not_()),
    (lambda: a + 1, lambda: a.add(1)),
    (lambda: 1 - a, lambda: lit(1).sub(a)),
    (lambda: 2 * a, lambda: lit(2).mul(a)),
    (lambda: a / 2, lambda: a.div(2)),
    (lambda: 7 % a, lambda: lit(7).mod(a)),
    (lambda: -a, lambda: a.neg()),
    (lambda: a.between(1, 2), lambda: a.gt_eq(1).and_(a.lt_eq(2))),
    (lambda: a.is_in([1, 2]), lambda: a.is_in(1, 2)),
]


@pytest.mark.parametrize(("operator", "method"), TWINS)
def test_operators_are_methods(operator: Callable[[], Expr], method: Callable[[], Expr]) -> None:
    assert operator().node == method().node


def test_every_operation_is_computed() -> None:
    assert set(ARROW) == set(OPERATIONS) | set(FUNCTIONS)


def test_a_clock_has_one_time_for_all_rows_that_are_computed_together() -> None:
    rows = Environment().from_source(MemorySource([{"id": number} for number in range(3)], rows_per_epoch=1))
    before = datetime.now(UTC)
    timed = rows.with_columns(a=now(), b=now(), is_past=now() < datetime(2200, 1, 1, tzinfo=UTC)).to_arrow()
    (time,) = {*timed["a"].to_pylist(), *timed["b"].to_pylist()}
    assert before <= time <= datetime.now(UTC)
    assert timed["is_past"].to_pylist() == [True] * 3
    (today,) = set(rows.select(sql("current_date as d")).to_arrow()["d"].to_pylist())
    assert today in (before.date(), datetime.now(UTC).date())


def test_a_clock_has_one_time_for_a_query_and_those_that_it_is_joined_with() -> None:
    rows = Environment().from_source(MemorySource([{"id": 1}, {"id": 2}]))
    for text in (
        "select id from a where now() = (select max(now()) from a)",
        "select a.id as id from a join (select id, now() as t from a) as b on a.id = b.id and t = now()",
    ):
        assert Environment().sql(text, a=rows).to_arrow()["id"].to_pylist() == [1, 2]


def test_an_aggregate_of_no_rows_has_the_time_too() -> None:
    before = datetime.now(UTC)
    rows = Environment().from_source(MemorySource([], "id long"))
    (row,) = rows.key_by().aggregate(n=count()).with_column("t", now()).to_arrow().to_pylist()
    assert row["n"] == 0
    assert before <= row["t"] <= datetime.now(UTC)


@pytest.mark.parametrize("key", ["current_date", "cast(now() as date)", "1"])
def test_rows_are_grouped_by_the_clock(key: str) -> None:
    rows = Environment().from_source(MemorySource([{"id": 1}, {"id": 2}]))
    text = f"select cast(now() as date) as d, count(*) as n from a group by {key}"
    ((day, count),) = (row.values() for row in Environment().sql(text, a=rows).to_arrow().to_pylist())
    assert count == 2
    assert day in (datetime.now(UTC).date(), (datetime.now(UTC) - timedelta(minutes=1)).date())


def test_an_expression_has_no_truth_value() -> None:
    with pytest.raises(ExpressionError, match="no truth value") as caught:
        bool((col("a") > 1) and (col("b") > 1))
    assert "&" in str(caught.value.hint)


@pytest.mark.parametrize("value", [object(), [1], {"a": 1}, 2**63, 1j])
def test_constants_of_other_kinds_are_refused(value: Any) -> None:
    with pytest.raises(ExpressionError):
        lit(value)


class Text(str, enum.Enum):  # noqa: UP042
    A = "a"


class Day(date):
    pass


class Clock(time):
    pass


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (enum.StrEnum("Texts", [("A", "a")]).A, "a"),  # type: ignore[attr-defined]
        (Text.A, "a"),
        (enum.IntEnum("Numbers", [("A", 7)]).A, 7),  # type: ignore[attr-defined]
        (np.str_("a"), "a"),
        (np.bytes_(b"a"), b"a"),
        (np.float64(1.5), 1.5),
        (Day(2024, 1, 31), date(2024, 1, 31)),
        (Clock(23, 59, 59, 999999), time(23, 59, 59, 999999)),
    ],
    ids=repr,
)
def test_a_constant_of_a_subclass_is_one_of_its_base_type(value: Any, plain: Any) -> None:
    assert col("a").eq(value).node == col("a").eq(plain).node


def test_a_text_with_half_a_surrogate_pair_is_no_constant() -> None:
    for build in (lit, col("a").eq, col("a").starts_with, lambda text: col("a").str.replace("b", text)):
        with pytest.raises(ExpressionError, match="surrogate pair at 1"):
            build("b\ud83d")
    assert lit("b\U0001f600").node == Literal("b\U0001f600")


def test_parameters_are_checked_when_built() -> None:
    with pytest.raises(ConfigError, match="'strin'") as caught:
        col("a").cast("strin")
    assert "'string'" in str(caught.value.hint)
    with pytest.raises(ExpressionError, match="alias"):
        col("a").alias("")
    with pytest.raises(ExpressionError, match="without values"):
        col("a").is_in([])
    with pytest.raises(ExpressionError, match="takes a string"):
        col("a").contains(1)  # type: ignore[arg-type]
    with pytest.raises(ExpressionError, match="column's name"):
        col(1)  # type: ignore[arg-type]


MIXED = pa.table(
    {
        "f": pa.array([b"1234", None], pa.binary(4)),
        "b": pa.array([b"1234", b""], pa.binary()),
        "d": pa.array([Decimal(2), None], pa.decimal128(38, 0)),
        "e": pa.array([Decimal("1.5"), Decimal(1)], pa.decimal128(20, 10)),
        "s": pa.array([Decimal("0.1"), None], pa.decimal128(38, 38)),
    }
)


@pytest.mark.parametrize(
    ("combine", "first", "second", "expected"),
    [
        (lambda f, b: f == b, "f", "b", [True, None]),
        (lambda f, b: f == lit(b"1234"), "f", "b", [True, None]),
        (lambda d, e: d.is_in(Decimal("2.5"), Decimal("2.0")), "d", "e", [True, None]),
    ],
)
def test_the_way_out_of_types_that_do_not_fit_is_one(
    combine: Callable[[Expr, Expr], Expr], first: str, second: str, expected: list[Any]
) -> None:
    with pytest.raises(ExpressionError, match="combines") as error:
        values_of(combine(col(first), col(second)), MIXED)
    cast = re.search(r'\.cast\("(.*)"\)', str(error.value.hint))
    assert cast
    assert values_of(combine(col(first).cast(cast[1]), col(second)), MIXED) == expected


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (col("d") + col("e"), [Decimal("3.5"), None]),
        (col("e") - col("d"), [Decimal("-0.5"), None]),
        (col("d") > col("e"), [True, None]),
        (col("d") > col("s"), [True, None]),
    ],
)
def test_decimals_of_more_than_38_digits_together_are_combined(expression: Expr, expected: list[Any]) -> None:
    assert values_of(expression, MIXED) == expected


def test_names() -> None:
    expression = (col("a") + col("b")).cast("string")
    assert column_names(expression.node) == {"a", "b"}
    assert output_name(expression.alias("c").node) == "c"
    assert output_name(col("a").node) == "a"
    with pytest.raises(ExpressionError, match="has no name"):
        output_name(expression.node)


def test_dates_and_times_are_constants() -> None:
    assert repr(lit(date(2024, 1, 1))) == "lit(datetime.date(2024, 1, 1))"
    assert lit(datetime(2024, 1, 1, tzinfo=UTC)).node != lit(datetime(2024, 1, 1)).node
    assert repr(col("at") > time(12, 30)) == "col('at') > lit(datetime.time(12, 30))"
    with pytest.raises(ExpressionError, match="time zone"):
        lit(time(12, 30, tzinfo=UTC))


def test_in_is_told_apart() -> None:
    with pytest.raises(ExpressionError, match="is not known before it runs") as caught:
        assert 1 in col("id")
    assert "is_in" in str(caught.value.hint)


def test_names_of_others_are_answered_with_ours() -> None:
    name: Any = col("name")
    answers: tuple[tuple[Callable[[], object], str], ...] = (
        (lambda: name.isNull(), "here isNull is is_null()"),
        (lambda: name.str.len_chars(), "here len_chars is length()"),
        (lambda: name.dt.strftime("%Y"), r"here strftime is format\(format\)"),
        (lambda: name.list.len(), "here len is length()"),
        (lambda: name.map.getItem("a"), r'here getItem is get\("key"\)'),
        (lambda: name.is_nul(), "did you mean 'is_null'"),
        (lambda: name.str.lowr(), "did you mean 'lower'"),
    )
    for unknown, ours in answers:
        with pytest.raises(ExpressionError, match=ours):
            unknown()
    assert not hasattr(name, "isNull")
    assert repr(copy.deepcopy(name)) == repr(pickle.loads(pickle.dumps(name))) == repr(name)


@pytest.mark.parametrize(
    ("elsewhere", "owner"),
    [(EXPRESSIONS, Expr), *((space._elsewhere, space) for space in (Strings, Times, Lists, Maps))],
)
def test_no_answer_names_what_there_is_not(elsewhere: Mapping[str, str], owner: type) -> None:
    for name, ours in elsewhere.items():
        assert not hasattr(owner, name)
        method = re.match(r"(\w+)\(", ours)
        if method and method[1] not in ("when", "greatest", "sql", "sort_within_epoch"):
            assert hasattr(owner, method[1]), (name, ours)


def test_a_text_is_sql_where_a_condition_is_taken() -> None:
    n, rows = col("n"), Environment().from_source(MemorySource([{"n": 1}, {"n": -1}]))
    choice = when("n > 5").then(1).when("n < 0").then(2)
    assert repr(choice) == repr(when(n > 5).then(1).when(n < 0).then(2))
    assert rows.filter("n > 0") == rows.filter(n > 0)
    assert rows.split("n > 0") == rows.split(n > 0)
    for condition in (1, None, ["n > 0"]):
        with pytest.raises(ExpressionError, match=r"takes a condition, not .*\n.*a SQL text"):
            rows.filter(condition)  # type: ignore[arg-type]
    # Elsewhere it is a constant, or a name.
    assert rows.with_column("text", "n > 0").to_arrow()["text"].to_pylist() == ["n > 0"] * 2
    assert rows.select(again="n").to_arrow()["again"].to_pylist() == [1, -1]


def test_a_choice_is_an_expression_like_any_other() -> None:
    choice = when(col("a") > 0).then(1)
    assert (
        repr(choice.alias("sign") + 1)
        == "when(col('a') > lit(0)).then(lit(1)).otherwise(lit(None)).alias('sign') + lit(1)"
    )
    assert type(choice.abs()) is type(choice.otherwise(0)) is type(choice.cast("long")) is Expr


@pytest.mark.parametrize("join", [lambda left, right: left & right, lambda left, right: right & left])
def test_any_number_of_conditions_can_be_joined(join: Callable[[Expr, Expr], Expr]) -> None:
    rows = pa.table({"n": [0, 999, 5_000, None]})
    none, each = reduce(join, (col("n") != number for number in range(1_000))), (col("n") == n for n in range(1_000))
    some = ~reduce(join, (~condition for condition in each))
    assert values_of(none, rows) == [False, False, True, None]
    assert values_of(some, rows) == values_of(reduce(Expr.or_, (col("n") == number for number in range(1_000))), rows)
    assert values_of(some, rows) == [True, True, False, None]
    assert repr(none).count("col('n')") == 1_000
    assert pickle.loads(pickle.dumps(none)).node == none.node


def test_joined_conditions_keep_their_order() -> None:
    """The division raises in the row that an earlier condition leaves out."""
    rows = pa.table({"n": [0, 2]})
    conditions = [col("n") != 0, *(col("n") != number for number in range(5, 300)), lit(1) / col("n") == 0.5]
    assert values_of(reduce(Expr.and_, conditions), rows) == [False, True]
    with pytest.raises(ExpressionError, match="division by zero"):
        values_of(reduce(Expr.and_, reversed(conditions)), rows)


@pytest.mark.parametrize(
    "longer",
    [
        lambda value: value + 1,
        lambda value: -value,
        lambda value: greatest(value, 1),
        lambda value: value.cast("long").fill_null(0),
        lambda value: when(col("n") > 0).then(value).otherwise(0),
        lambda value: struct(a=value)["a"],
        lambda value: array(value).list.get(0),
    ],
)
def test_calls_within_each_other_run_or_are_refused(longer: Callable[[Expr], Expr]) -> None:
    values = [col("n")]
    with suppress(ExpressionError):
        values.extend(_ever_longer(longer, values[0]))
    deepest = values[-1]
    with pytest.raises(ExpressionError, match=r"more than 150 calls within each other\n.*by with_column"):
        longer(deepest)
    assert len(values) > 70
    assert len(values_of(deepest, pa.table({"n": [1, None]}))) == 2
    assert pickle.loads(pickle.dumps(deepest)).node == deepest.node
    assert repr(deepest)
    assert len({deepest.node, deepest.node}) == 1


def _ever_longer(longer: Callable[[Expr], Expr], value: Expr) -> Iterator[Expr]:
    while True:
        value = longer(value)
        yield value


def test_long_sums_in_parts_have_no_end() -> None:
    parts = [reduce(Expr.add, [col("n")] * 100) for _ in range(40)]
    assert values_of(reduce(Expr.add, parts), pa.table({"n": [1, 2]})) == [4_000, 8_000]
