"""Functions of expressions: complete, documented, and with the values that DuckDB computes."""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, UUID, uuid5
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import volley
from tests.duck import query
from tests.unit.beside_spark.cases import CASES as SPARK_CASES
from tests.unit.beside_spark.differences import differences, raises
from tests.unit.functions import CASES, ROWS, Case
from tests.unit.functions_page import CLOCKS, page
from volley import Expr, ExpressionError, array, coalesce, col, concat_str, greatest, lit, struct, when, xxhash64
from volley.columns.casts import can_cast
from volley.columns.expressions import LOWERED, compile_expression
from volley.plan.expression_nodes import FUNCTIONS, Call, ExprNode
from volley.plan.sql_functions import FUNCTIONS as SQL_FUNCTIONS
from volley.types.arrow import arrow_type

DOCS = Path(__file__).parents[2] / "docs" / "reference" / "functions.md"


def values_of(expression: Expr, rows: pa.Table = ROWS) -> list[Any]:
    compiled = compile_expression(expression.node, rows.schema)
    (batch,) = rows.combine_chunks().to_batches()
    values = compiled.evaluate(batch)
    array = pa.repeat(values, rows.num_rows) if isinstance(values, pa.Scalar) else values
    assert array.type == compiled.type
    array.validate(full=True)
    return array.to_pylist()  # type: ignore[no-any-return]


def same(value: Any, expected: Any) -> bool:
    if isinstance(value, float) and expected is not None:
        return math.isclose(value, expected, rel_tol=1e-12) or (math.isnan(value) and math.isnan(expected))
    return bool(value == expected)


@pytest.mark.parametrize("case", CASES, ids=lambda case: repr(case.expression))
def test_values_are_those_of_duckdb(case: Case) -> None:
    found = values_of(case.expression)
    expected = case.values
    if case.sql:
        expected = [value for (value,) in query(f"select {case.sql} from rows", rows=ROWS).fetchall()]
    assert [pair for pair in zip(found, expected, strict=True) if not same(*pair)] == []


def test_null_lists_that_span_values_have_no_items() -> None:
    offsets, null = pa.array([0, 2, 4, 4, 5], pa.int32()), pa.array([False, True, False, False])
    tags = pa.ListArray.from_arrays(offsets, pa.array(["a", None, "b", "c", "b"]), mask=null)
    # A slice, too: the offsets of its first list are not 0.
    rows = pa.table({"tags": tags}).slice(1)
    assert values_of(col("tags").list.contains("b"), rows) == [None, False, True]
    assert values_of(col("tags").list.join("+"), rows) == [None, "", "b"]
    assert values_of(col("tags").list.join("+"), pa.table({"tags": tags})) == ["a", None, "", "b"]


def test_functions_of_a_constant_list() -> None:
    items = lit("a,b").str.split(",").list
    assert values_of(items.get(-1)) == ["b"] * 6
    assert values_of(items.contains("a")) == [True] * 6
    assert values_of(items.join("+")) == ["a+b"] * 6
    assert values_of(items.length()) == [2] * 6


def test_every_function_is_tried_and_documented() -> None:
    assert {case.op for case in CASES} == set(FUNCTIONS)
    assert DOCS.read_text() == page(), "python -m tests.unit.functions_page > docs/reference/functions.md"


def test_every_function_is_compared_with_sparks() -> None:
    """Also the operators, and those of SQL texts; Spark has no UUIDs of version 5."""
    operations = {node.op for case in SPARK_CASES for node in _calls(case.expression.node)}
    assert set(LOWERED) - operations == {"uuid5", "alias"}
    names = {case.name for case in SPARK_CASES}
    assert {function.name for function in FUNCTIONS.values()} - names == {"uuid5"}
    assert {f"sql {name}" for name in SQL_FUNCTIONS} - names == {"sql uuid5", *CLOCKS}


def test_every_difference_from_spark_has_a_sentence() -> None:
    keys = [key for difference in differences() for key in difference.calls]
    assert len(keys) == len(set(keys))
    assert {*keys, *raises()} <= {case.key for case in SPARK_CASES}
    assert [difference.text for difference in differences() if not difference.text.endswith(".")] == []


def _calls(node: ExprNode) -> Iterator[Call]:
    if isinstance(node, Call):
        yield node
        for argument in node.args:
            yield from _calls(argument)


@pytest.mark.parametrize("case", CASES, ids=lambda case: repr(case.expression))
def test_slices_and_no_rows_have_the_same_values(case: Case) -> None:
    assert list(map(repr, values_of(case.expression, ROWS.slice(2, 3)))) == list(
        map(repr, values_of(case.expression)[2:5])
    )
    empty = compile_expression(case.expression.node, ROWS.schema).evaluate(pa.RecordBatch.from_pylist([], ROWS.schema))
    assert isinstance(empty, pa.Scalar) or len(empty) == 0


@pytest.mark.parametrize("case", CASES, ids=lambda case: repr(case.expression))
def test_a_repr_builds_the_same_expression(case: Case) -> None:
    names = {name: getattr(volley, name) for name in volley.__all__ if name.islower()}
    rebuilt = eval(repr(case.expression), {**names, "datetime": datetime})
    assert rebuilt.node == case.expression.node


@given(
    st.lists(st.from_regex(r"\A[+-]?[0-9]{0,5}[. ]?[01]{0,5}\Z"), min_size=1),
    st.sampled_from([(4, 2), (3, 0), (2, 2), (38, 5)]),
)
def test_decimals_of_texts_are_those_of_python(texts: list[str], digits: tuple[int, int]) -> None:
    precision, scale = digits

    def decimal(text: str) -> Decimal | None:
        try:
            number = Decimal(text.strip(" "))
        except InvalidOperation:
            return None
        rounded = number.quantize(Decimal(1).scaleb(-scale))
        return rounded if rounded == number and abs(number) < 10 ** (precision - scale) else None

    found = values_of(col("c").str.to_decimal(precision, scale), pa.table({"c": texts}))
    assert found == list(map(decimal, texts))


_NUMBERS = st.integers(-(2**63), 2**63 - 1) | st.sampled_from([2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 999, 1000])
_DIGITS = "decimal(12,3)"
CAST = [
    (st.from_regex(r"\A ?[+-]?[0-9]{0,20}\.?[0-9]{0,3}(e[+-]?[0-9]{1,3})?\Z") | st.text(max_size=5), "string"),
    (
        st.sampled_from(["nan", "+inf", "-Infinity", "NAN", " true", "N", "1", "yess", "0004-02-29", "1900-02-29"]),
        "string",
    ),
    (
        st.from_regex(r"\A[12][0-9]{3}-[01][0-9]-[0-3][0-9]([ T][0-2][0-9](:[0-6][0-9]){1,2}(\.[0-9]{1,7})?)?\Z"),
        "string",
    ),
    (st.from_regex(r"\A2024-02-29 12:30(Z|[+-][0-2][0-9]:?[0-6][0-9])?\Z") | st.uuids().map(str), "string"),
    (st.from_regex(r"\A[0-2][0-9](:[0-6][0-9]){1,2}(\.[0-9]{1,7})?\Z"), "string"),
    (_NUMBERS, "long"),
    (st.floats() | st.sampled_from([2.0**63, -(2.0**63), 2.0**31, -(2.0**31) - 1, 2.0**31 - 0.5]), "double"),
    (st.decimals(-999_999_999, 999_999_999, places=3), _DIGITS),
]
TARGETS = [
    "int",
    "long",
    "float",
    "double",
    "decimal(5,1)",
    "decimal(20,0)",
    "boolean",
    "string",
    "date",
    "time",
    "uuid",
]


@given(st.data())
def test_a_cast_that_is_tried_is_null_where_the_cast_fails(data: st.DataObject) -> None:
    values, kind = data.draw(st.sampled_from(CAST))
    value, to = data.draw(values), data.draw(st.sampled_from(TARGETS))
    rows = pa.table({"v": pa.array([value, None], arrow_type(kind))})
    if not can_cast(arrow_type(kind), arrow_type(to)):
        return
    try:
        expected = values_of(col("v").cast(to), rows)
    except ExpressionError:
        expected = [None, None]
    assert list(map(repr, values_of(col("v").try_cast(to), rows))) == list(map(repr, expected))


@given(st.floats(), st.decimals(-999, 10**8, places=3), st.datetimes(), st.times())
def test_texts_of_values_are_the_values_again(number: float, digits: Decimal, at: Any, clock: Any) -> None:
    rows = pa.table(
        {"number": [number], "digits": pa.array([digits], pa.decimal128(12, 3)), "at": [at], "clock": [clock]}
    )
    for name, kind in (("number", "double"), ("digits", _DIGITS), ("at", "timestamp_ntz"), ("clock", "time")):
        text = col(name).cast("string")
        assert list(map(repr, values_of(text.cast(kind), rows))) == list(map(repr, rows[name].to_pylist()))
    assert values_of(col("number").cast("string"), rows) == [repr(number)]
    assert values_of(col("digits").cast("string"), rows) == [f"{digits:f}"]
    short = at.isoformat(sep=" ")
    assert values_of(col("at").cast("string"), rows) == [short.rstrip("0") if at.microsecond else short]


def test_durations_of_constants() -> None:
    rows = pa.table({"n": [1, 2]})
    moment = lit(datetime.datetime(2024, 1, 31, 12))
    assert values_of(moment.dt.add_months(1), rows) == [datetime.datetime(2024, 2, 29, 12)] * 2
    assert values_of(datetime.timedelta(days=1) + moment, rows) == [datetime.datetime(2024, 2, 1, 12)] * 2
    assert values_of((moment - datetime.timedelta(hours=1)).dt.since(moment, "minute"), rows) == [-60, -60]
    assert values_of(moment.dt.from_zone("Asia/Tokyo").dt.hour(), rows) == [3, 3]
    assert values_of(lit(5).from_epoch("day").dt.day(), rows) == [6, 6]


_ZONES = ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Europe/Dublin", "Asia/Tokyo"]
_LAST_DAY = datetime.datetime(9999, 12, 31)


@given(
    st.lists(st.datetimes(datetime.datetime(2037, 1, 1), _LAST_DAY), min_size=1),
    st.sampled_from(_ZONES),
)
def test_clocks_change_by_the_rule_of_their_zone_after_2037(times: list[datetime.datetime], zone: str) -> None:
    instants = [time.replace(tzinfo=datetime.UTC) for time in times]
    clocks = [instant.astimezone(ZoneInfo(zone)).replace(tzinfo=None) for instant in instants]
    rows = pa.table({"z": instants})
    assert values_of(col("z").dt.in_zone(zone), rows) == clocks
    assert query(f"select z at time zone '{zone}' from rows", rows=rows).fetchall() == [(clock,) for clock in clocks]
    # Where clocks show a time twice, it is the first of the two instants.
    first = [clock.replace(tzinfo=ZoneInfo(zone)).astimezone(datetime.UTC) for clock in clocks]
    assert values_of(col("n").dt.from_zone(zone), pa.table({"n": clocks})) == first


def test_clocks_after_2037_have_gaps_and_hours_that_come_twice() -> None:
    texts = ["2050-03-27 01:59:59", "2050-03-27 02:30", "2050-03-27 03:00", "2050-10-30 02:30"]
    walls = list(map(datetime.datetime.fromisoformat, texts))
    texts = ["2050-03-27T00:59:59Z", "2050-03-27T01:00Z", "2050-03-27T01:00Z", "2050-10-30T00:30Z"]
    instants = list(map(datetime.datetime.fromisoformat, texts))
    assert values_of(col("n").dt.from_zone("Europe/Berlin"), pa.table({"n": walls})) == instants
    assert values_of(lit(walls[1]).dt.from_zone("Europe/Berlin"), pa.table({"n": [1]})) == [instants[1]]
    summer = lit(datetime.datetime(2038, 7, 1, 12, tzinfo=datetime.UTC)).dt.in_zone("Europe/Berlin")
    assert values_of(summer.dt.hour(), pa.table({"n": [1]})) == [14]


def test_times_beyond_pythons_calendar_change_zones() -> None:
    far = pa.array([253_402_300_800_000_000, None], pa.int64())
    rows = pa.table({"z": far.cast(pa.timestamp("us", "UTC")), "n": far.cast(pa.timestamp("us"))})
    hour = 3_600_000_000
    there = compile_expression(col("z").dt.in_zone("Europe/Berlin").node, rows.schema)
    back = compile_expression(col("n").dt.from_zone("Europe/Berlin").node, rows.schema)
    (batch,) = rows.to_batches()
    assert there.evaluate(batch).cast(pa.int64()).to_pylist() == [far[0].as_py() + hour, None]
    assert back.evaluate(batch).cast(pa.int64()).to_pylist() == [far[0].as_py() - hour, None]


@given(*(st.integers(first, last) for first, last in [(2, 9998), (1, 12), (1, 31), (0, 23), (0, 59), (-1439, 1439)]))
@example(2023, 4, 31, 0, 30, 60)
@example(2023, 2, 31, 23, 0, -300)
def test_a_day_that_does_not_exist_is_null(year: int, month: int, day: int, hour: int, minute: int, ahead: int) -> None:
    offset = f"{'-' if ahead < 0 else '+'}{abs(ahead) // 60:02}{abs(ahead) % 60:02}"
    rows = pa.table({"day": [f"{year:04}-{month}-{day}"], "at": [f"{day}.{month}.{year:04} {hour}:{minute}{offset}"]})
    try:
        date = datetime.datetime(year, month, day)
    except ValueError:
        expected: list[Any] = [None] * 3
    else:
        at = date.replace(tzinfo=datetime.UTC) + datetime.timedelta(hours=hour, minutes=minute - ahead)
        expected = [date.date(), date, at]
    assert [
        *values_of(col("day").str.to_date(), rows),
        *values_of(col("day").str.to_timestamp("%F"), rows),
        *values_of(col("at").str.to_timestamp("%e.%m.%Y %R%z"), rows),
    ] == expected


@pytest.mark.parametrize(
    ("text", "format", "date"),
    [
        ("2023-366", "%Y-%j", None),
        ("2023-365", "%Y-%j", datetime.date(2023, 12, 31)),
        ("366 24", "%j %y", datetime.date(2024, 12, 31)),
        ("30 february 2023", "%d %b %Y", None),
        ("2023-02- 30", "%Y-%m-%d", None),
        ("2023-02-30", "%Y-%m-%d ", None),
        # A leap second is the first one of the next day.
        ("2016-12-31 23:59:60", "%F %T", datetime.date(2017, 1, 1)),
        ("2016-11-31 23:59:60", "%F %T", None),
        # Years have four digits: these would be those of the year 26.
        ("26-01-05", "%Y-%m-%d", None),
        ("26-01-05", "%F", None),
        ("05/01/26", "%d/%m/%Y", None),
        ("05/01/26", "%d/%m/%y", datetime.date(2026, 1, 5)),
        ("0026-01-05", "%Y-%m-%d", datetime.date(26, 1, 5)),
        ("Mon 5. January 0026, 100%", "%a %e. %B %Y, 100%%", datetime.date(26, 1, 5)),
    ],
)
def test_dates_in_other_formats(text: str, format: str, date: datetime.date | None) -> None:
    assert values_of(col("s").str.to_date(format), pa.table({"s": [text]})) == [date]
    assert values_of(lit(text).str.to_date(format), pa.table({"s": [text]})) == [date]


@pytest.mark.parametrize(
    ("text", "format", "second"),
    [
        ("2026-01-05 10:00:59", "%F %T", 59),
        ("2026-01-05 10:00:60", "%F %T", None),
        ("2026-01-05 10:00:61", "%Y-%m-%d %H:%M:%S", None),
        ("20260105100060", "%Y%m%d%H%M%S", None),
        ("20260105100100", "%Y%m%d%H%M%S", 0),
        ("1960-01-05 10:00:60", "%F %T", None),
        ("2026-01-05 10:00:60+05:30", "%F %T%z", None),
        ("2026-01-05 10:01:00Z", "%F %T%z", 0),
        ("5 Jan 2026 10:01:01 pm", "%d %b %Y %I:%M:%S %p", 1),
    ],
)
def test_a_minute_within_an_hour_has_60_seconds(text: str, format: str, second: int | None) -> None:
    assert values_of(col("s").str.to_timestamp(format).dt.second(), pa.table({"s": [text, None]})) == [second, None]


def test_null_if_keeps_the_type_of_its_first_value() -> None:
    rows = pa.table(
        {
            "l": [2**53 + 1, 2, None, 3],
            "x": [0.5, 2.0, 1.0, math.nan],
            "m": pa.array([Decimal("0.25"), Decimal(2), None, Decimal(3)], pa.decimal128(5, 2)),
        }
    )
    assert values_of(col("l").null_if(col("x")), rows) == [2**53 + 1, None, None, 3]
    assert values_of(col("l").null_if(col("m")), rows) == [2**53 + 1, None, None, None]
    assert values_of(col("m").null_if(0.25), rows) == [None, Decimal(2), None, Decimal(3)]
    for name, other in (("l", col("x")), ("l", lit(1.5)), ("m", col("l")), ("m", lit(0.25)), ("x", col("m"))):
        compiled = compile_expression(col(name).null_if(other).node, rows.schema)
        assert compiled.type == rows.schema.field(name).type
    assert values_of(lit(2).null_if(col("l")), rows) == [2, None, 2, 2]


def test_numbers_in_texts_have_spaces_around_them_but_no_other_white_space() -> None:
    rows = pa.table({"s": [" 5 ", "\t5\n", "\u00a05", "5\u2003"]})
    for value in (col("s").str.to_integer(), col("s").str.to_double(), col("s").try_cast("decimal(3,0)")):
        assert values_of(value, rows) == [5, 5, None, None]
    assert values_of(col("s").str.to_decimal(3, 0), rows) == values_of(col("s").try_cast("int"), rows)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (r'{"a": "\ud83d"}', None),
        (r'{"a": {"b": ["\ud83d"]}}', None),
        (r'{"a": {"\ud83d": 1}}', None),
        (r'{"a": "\ud83d\ude00"}', "😀"),
        ('{"a": %s}' % ("9" * 5000), "9" * 5000),
        ('{"a": [%s]}' % ("9" * 5000), f"[{'9' * 5000}]"),
        ('{"a": {"b": 1e400, "c d": [2.50, -0, "ß", true, null, {}]}}', '{"b":1e400,"c d":[2.50,-0,"ß",true,null,{}]}'),
        ('{"a": "2.50"}', "2.50"),
        ('{"a": [1, NaN]}', None),
        ('{"a": %s}' % ("[" * 1_100 + "]" * 1_100), None),
        ('{"a": %s}' % ("[" * 300 + "]" * 300), "[" * 300 + "]" * 300),
    ],
)
def test_values_in_json_are_as_they_are_written(text: str, value: str | None) -> None:
    assert values_of(col("s").str.json_path("$.a"), pa.table({"s": [text]})) == [value]


def test_whole_numbers_are_not_divided_by_zero() -> None:
    rows = pa.table({"n": [7, None], "by": [0, 0]})
    with pytest.raises(ExpressionError, match="division by zero"):
        values_of(col("n").int_div(col("by")), rows)
    assert values_of(col("n").int_div(col("by")), rows[1:]) == [None]
    assert values_of(lit(-7).int_div(2), rows) == [-3, -3]
    with pytest.raises(ExpressionError, match="division by zero"):
        values_of(lit(7).int_div(0), rows)


def test_a_time_beyond_the_last_one_is_an_error() -> None:
    rows = pa.table({"n": [2**62]})
    with pytest.raises(pa.ArrowInvalid, match="overflow"):
        values_of(col("n").from_epoch(), rows)
    with pytest.raises(pa.ArrowInvalid, match="overflow"):
        values_of(col("n").from_epoch("microsecond") + datetime.timedelta(days=90_000_000), rows)
    rows = pa.table({"d": [datetime.date(2024, 1, 31), None], "t": [datetime.datetime(2024, 1, 31), None]})
    for months in (2**31 - 1, -(2**31) + 1, 12 * 6_000_000):
        with pytest.raises(pa.ArrowInvalid, match="not in range"):
            values_of(col("d").dt.add_months(months), rows)
        with pytest.raises(pa.ArrowInvalid, match="overflow"):
            values_of(col("t").dt.add_months(months), rows)
        for name in ("d", "t"):
            assert values_of(col(name).dt.add_months(months), rows[1:]) == [None]
            last_day = when(col(name).is_null()).then(col(name).dt.add_months(months)).otherwise(col(name))
            assert values_of(last_day, rows) == rows[name].to_pylist()


@given(st.floats(), st.floats(width=32), st.integers(0, 30))
def test_rounding_overflows_for_no_float(double: float, single: float, digits: int) -> None:
    rows = pa.table({"x": [double, None], "y": pa.array([single, None], pa.float32())})
    for name, least_whole in (("x", 2**53), ("y", 2**24)):
        value = rows[name][0].as_py()
        found, missing = values_of(col(name).round(digits), rows)
        assert missing is None
        if math.isnan(value) or abs(value) >= least_whole:
            assert same(found, value)
        else:
            assert abs(found - value) <= 0.5 * 10.0**-digits + 1e-6 * abs(value)


def test_decimals_without_digits_before_the_point_are_rounded() -> None:
    texts = ["0.00001", "-0.4", "0.5", "-0.99999", "0", None]
    rows = pa.table({"m": pa.array([text and Decimal(text) for text in texts], pa.decimal128(5, 5))})
    rows = rows.append_column("n", pa.array([text and Decimal(text) for text in texts], pa.decimal128(38, 38)))
    for name in ("m", "n"):
        assert values_of(col(name).ceil(), rows) == [1, 0, 1, 0, 0, None]
        assert values_of(col(name).floor(), rows) == [0, -1, 0, -1, 0, None]
        assert values_of(col(name).round(), rows) == [0, 0, 1, -1, 0, None]
        assert values_of(col(name).round(2), rows) == [0, Decimal("-0.4"), Decimal("0.5"), -1, 0, None]


def test_values_are_computed_only_where_they_are_needed() -> None:
    rows = pa.table({"n": [0, 2, None], "x": [1, 4, 5], "fallback": [7, 8, 9]})
    assert values_of(when(col("n") != 0).then(col("x") / col("n")).otherwise(-1.0), rows) == [-1.0, 2.0, -1.0]
    assert values_of(coalesce(col("n"), col("x") % (col("x") - 1)), rows) == [0, 2, 1]
    nested = pa.table({"a": [[1], None, []], "b": [[2, 3], [4], None]})
    assert values_of(coalesce(col("a"), col("b")), nested) == [[1], [4], []]


@pytest.mark.parametrize("pattern", [r"\p{L}+", r"\Q.\E", r"[[:alpha:]]", r"x(?i)y", r"a\z", r"(?U)a+"])
def test_patterns_are_those_of_re2(pattern: str) -> None:
    rows = pa.table({"s": ["xY.a", "-", None]})
    assert values_of(col("s").str.matches(pattern), rows) == [True, False, None]
    assert values_of(col("s").str.extract("(?<all>.+)", "all"), rows) == ["xY.a", "-", None]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: col("s").str.slice("1"), "start is '1'"),  # type: ignore[arg-type]
        (lambda: col("s").str.pad_start(3, "ab"), "character is 'ab'"),
        (lambda: col("s").str.matches(1), "pattern is 1"),  # type: ignore[arg-type]
        (lambda: col("s").str.extract("(a)", "x"), "no group named 'x'"),
        (lambda: col("s").str.replace("", "x"), "part is ''"),
        (lambda: col("d").dt.truncate("fortnight"), "no unit"),  # type: ignore[arg-type]
        (lambda: col("v").list.get("0"), "position is '0'"),  # type: ignore[arg-type]
        (lambda: col("n").dt.in_zone("Mars/Base"), "'Mars/Base' is not a time zone"),
        (lambda: col("n").dt.since(col("g"), "year"), "'year' is not a unit"),  # type: ignore[arg-type]
        (lambda: col("n").dt.add(1.5), "days is 1.5"),  # type: ignore[arg-type]
        (lambda: col("n").dt.format("%Q"), "has %Q"),
        (lambda: col("s").str.to_date("%G-%V-%u"), "has %G, %V, %u"),
        (lambda: col("s").str.to_timestamp("%F %k%"), "has %, %k"),
        (lambda: col("s").str.json_path("a.b"), "no path"),
        (lambda: col("s").str.json_path("$.a["), "no path"),
        (lambda: col("s").str.json_path("$.a.*"), "without wildcards"),
        (lambda: col("s").str.json_path("$.*[0]"), "without wildcards"),
        (lambda: col("s").uuid5("here"), "namespace is 'here'"),
        (lambda: struct(), "struct got no fields"),
        (lambda: col("x").round(-1), "digits is -1"),
        (lambda: coalesce(), "got 0 values"),
        (lambda: greatest(1), "got 1 values"),
        (lambda: concat_str("a", separator=1), "separator is 1"),  # type: ignore[arg-type]
        (lambda: col("r")[1], "field's name"),  # type: ignore[index]
    ],
)
def test_wrong_arguments_are_refused_when_built(build: Any, message: str) -> None:
    with pytest.raises(ExpressionError, match=message) as caught:
        build()
    assert caught.value.hint


@pytest.mark.parametrize(
    "expression",
    [
        col("i").str.lower(),
        col("s").dt.year(),
        col("k").dt.year(),
        col("d").dt.hour(),
        col("d").dt.truncate("hour"),
        col("d").dt.add(hours=1),
        col("d").dt.add(days=2**31 - 1, hours=24),
        col("n").dt.add(days=2**31 - 1),
        col("s").dt.add_months(1),
        col("z").dt.since(col("n"), "day"),
        col("n").dt.in_zone("UTC"),
        col("z").dt.from_zone("UTC"),
        col("x").from_epoch(),
        col("x").int_div(2),
        col("i").bit_and(col("x")),
        col("v").map.keys(),
        col("p").map.get(1),
        array(col("s"), col("i")),
        col("s").abs(),
        col("r")["nix"],
        col("s")["a"],
        when(col("s")).then(1),
        coalesce(col("s"), col("i")),
        concat_str(col("s"), col("i")),
        greatest(col("b"), col("b")),
        col("i").is_nan(),
        col("s").list.length(),
        col("v").list.contains(1),
        col("v").list.contains(None),
        col("w").list.join(),
        col("i").md5(),
        col("i").uuid5(),
        xxhash64(col("v")),
        col("k").try_cast("date"),
        col("d").dt.format("%z"),
        # Python knows this pattern, RE2 does not.
        col("s").str.matches("a(?=b)"),
        col("s").str.matches("("),
    ],
)
def test_wrong_types_are_refused_before_a_row_is_read(expression: Expr) -> None:
    with pytest.raises(ExpressionError):
        compile_expression(expression.node, ROWS.schema)


def test_uuids_are_chosen() -> None:
    first, second = UUID("6ba7b812-9dad-11d1-80b4-00c04fd430c8"), uuid5(NAMESPACE_URL, "b")
    rows = pa.table({"s": [str(first), "b", None]})
    known, made, constant = col("s").try_cast("uuid"), col("s").uuid5(NAMESPACE_URL), lit(str(first)).cast("uuid")
    assert values_of(coalesce(known, made), rows) == [first, second, None]
    assert values_of(coalesce(known, None, constant), rows) == [first, first, first]
    assert values_of(made.fill_null(constant), rows.slice(1)) == [second, first]
    is_b = col("s") == "b"
    assert values_of(when(is_b).then(made).otherwise(col("s").cast("uuid")), rows) == [first, second, None]
    assert values_of(when(is_b).then(constant), rows) == [None, first, None]


@pytest.mark.parametrize("kind", [pa.binary(16), pa.binary()])
def test_sixteen_bytes_are_a_uuid(kind: pa.DataType) -> None:
    one = UUID("6ba7b812-9dad-11d1-80b4-00c04fd430c8")
    rows = pa.table({"b": pa.array([one.bytes, None], kind)})
    assert values_of(col("b").cast("uuid"), rows) == [one, None]
    assert values_of(col("b").cast("uuid"), rows.slice(1)) == [None]


def test_other_bytes_are_no_uuid() -> None:
    rows = pa.table({"b": [b"short", UUID(int=7).bytes, None]})
    assert values_of(col("b").try_cast("uuid"), rows) == [None, UUID(int=7), None]
    with pytest.raises(ExpressionError, match="uuid"):
        values_of(col("b").cast("uuid"), rows)


def test_a_constant_uuid_has_a_text() -> None:
    text = "6ba7b812-9dad-11d1-80b4-00c04fd430c8"
    rows = pa.table({"n": [1, 2]})
    assert values_of(lit(text).cast("uuid").cast("string"), rows) == [text, text]
    assert values_of(lit("no").try_cast("uuid").cast("string"), rows) == [None, None]


def test_an_expression_is_no_sequence() -> None:
    with pytest.raises(TypeError):
        list(col("r"))  # type: ignore[call-overload]
