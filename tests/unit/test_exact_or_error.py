"""Numbers and times are exact or an error, wherever in a batch the value stands that a type can't hold."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, ROUND_HALF_UP, Context, Decimal
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.unit.test_functions import values_of
from volley import Environment, Expr, ExpressionError, MemorySource, col, lit
from volley.columns.expressions import compile_expression

a = col("a")
INT, LONG, DOUBLE = pa.int32(), pa.int64(), pa.float64()
NTZ, INSTANT, DATE = pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.date32()
NINES = Decimal("9" * 38)
RAISES = object()


class Edge(NamedTuple):
    """A value with which an operation reaches the end of a type.

    Args:
        expression: The operation on the column ``a``.
        type: The column's type.
        value: The value; of a time, what Arrow stores.
        expected: The result, stored likewise; RAISES = an error.
        ordinary: A value that stands beside it.
    """

    expression: Expr
    type: pa.DataType
    value: Any
    expected: Any
    ordinary: Any = 1


def _edges() -> Iterator[Edge]:
    for kind, lowest, highest in ((INT, -(2**31), 2**31 - 1), (LONG, -(2**63), 2**63 - 1)):
        for expression in (-a, a.abs(), a - 1, a * -1, a.int_div(-1)):
            yield Edge(expression, kind, lowest, RAISES)
        for expression in (a + 1, a + a, a * a, a.cast("decimal(5, 0)"), a.cast("decimal(38, 30)")):
            yield Edge(expression, kind, highest, RAISES)
        yield Edge(a % -1, kind, lowest, 0)
        yield Edge(a.sign(), kind, lowest, -1)
        for expression in (lit(5).int_div(a), lit(5) % a, lit(5) / a):
            yield Edge(expression, kind, 0, RAISES)
        for shift in (64, -1):
            yield Edge(lit(2**40).shift_left(a), kind, shift, RAISES)
            yield Edge(lit(2**40).shift_right(a), kind, shift, RAISES)
    for number in (1e19, 2.0**63, -1e19, float("inf"), float("nan")):
        for target in ("long", "int", "decimal(18, 2)"):
            yield Edge(a.cast(target), DOUBLE, number, RAISES, 1.0)
            yield Edge(a.try_cast(target), DOUBLE, number, None, 1.0)
    yield from _decimals()
    yield from _times()


def _decimals() -> Iterator[Edge]:
    small, tenths, whole = pa.decimal128(4, 1), Decimal("1.5"), pa.decimal128(38, 0)
    for expression, value, expected in (
        *((a.round(), Decimal("999.5"), 1000), (a.ceil(), Decimal("999.1"), 1000)),
        *((a.floor(), Decimal("-999.1"), -1000), (a.round(0, "half_even"), Decimal("-999.9"), -1000)),
        *((-a, Decimal("999.9"), Decimal("-999.9")), (a.abs(), Decimal("-999.9"), Decimal("999.9"))),
        *((a.round(1), Decimal("999.9"), Decimal("999.9")), (a.cast("decimal(3, 0)"), Decimal("999.5"), RAISES)),
        (a.try_cast("decimal(3, 0)"), Decimal("999.5"), None),
    ):
        yield Edge(expression, small, value, expected, tenths)
    yield Edge(a.round(), pa.decimal128(38, 2), NINES.scaleb(-2, Context(prec=40)), 10**36)
    yield Edge(a.ceil(), pa.decimal128(38, 38), Decimal("0." + "9" * 38), 1, 0)
    yield Edge(-a, whole, NINES, NINES.copy_negate())
    yield Edge(a.abs(), whole, NINES.copy_negate(), NINES)
    yield Edge(a + 1, pa.decimal128(27, 0), 10**27 - 1, 10**27)
    yield Edge(a - Decimal(1), pa.decimal128(37, 0), -(10**37) + 1, -(10**37))
    yield Edge(a * a, pa.decimal128(18, 0), 10**18 - 1, (10**18 - 1) ** 2)
    yield Edge(
        a * a, pa.decimal128(18, 9), Decimal("999999999.999999999"), Decimal("999999999999999998.000000000000000001")
    )
    for target in ("decimal(38, 30)", "decimal(38, 29)", "decimal(10, 2)", "decimal(5, 5)", "long", "int"):
        yield Edge(a.cast(target), whole, 390233302 * 10**20, RAISES)
        yield Edge(a.try_cast(target), whole, 390233302 * 10**20, None)
    yield Edge(a == Decimal("0." + "0" * 27 + "5"), pa.decimal128(10, 0), 10**10 - 1, False)


def _times() -> Iterator[Edge]:
    lowest, highest, day = -(2**63), 2**63 - 1, 86_400_000_000
    start = datetime.datetime(2000, 1, 1)
    for kind, reference in ((NTZ, start), (INSTANT, start.replace(tzinfo=datetime.UTC))):
        for expression, value in (
            *((a.dt.add(microseconds=1), highest), (a.dt.add(microseconds=-1), lowest)),
            *((a.dt.add_months(1), highest), (a.dt.add_months(-1), lowest)),
            *((a.dt.add_months(2**31 - 1), 5), (a.dt.since(reference, "day"), lowest)),
            *((a.dt.truncate(unit), lowest) for unit in ("year", "week", "day", "hour", "second", "millisecond")),
            *((a.dt.format("%Y"), highest), (a.dt.format("%Y"), lowest)),
            *((a.cast("string"), highest), (a.cast("string"), lowest)),
        ):
            yield Edge(expression, kind, value, RAISES)
        yield Edge(a.try_cast("string"), kind, highest, None)
        yield Edge(a.dt.epoch_seconds(), kind, lowest, lowest // 10**6)
        yield Edge(a.cast("date"), kind, highest, highest // day)
        yield Edge(a.cast("date"), kind, lowest, lowest // day)
        yield Edge(a.dt.year(), kind, highest, 294_247)
        yield Edge(a.dt.truncate("day"), kind, highest, highest // day * day)
    for zone, instant, clock in (("Europe/Berlin", highest, lowest), ("America/New_York", lowest, highest)):
        yield Edge(a.dt.in_zone(zone), INSTANT, instant, RAISES)
        yield Edge(a.dt.from_zone(zone), NTZ, clock, RAISES)
    last = 2**31 - 1
    for expression in (a.dt.add(days=1), a.dt.add_months(1), a.dt.format("%Y"), a.cast("string"), a.cast("timestamp")):
        yield Edge(expression, DATE, last, RAISES)
    yield Edge(a.dt.since(datetime.date(2000, 1, 1), "day"), DATE, last, RAISES)
    yield Edge(a.dt.truncate("year"), DATE, -last, RAISES)
    yield Edge(a.dt.truncate("day"), DATE, -last, -last)
    yield Edge(a.dt.year(), DATE, last, 5_881_580)
    for unit in ("second", "millisecond", "day"):
        yield Edge(a.from_epoch(unit), LONG, highest, RAISES)


EDGES = list(_edges())


def _placed(edge: Edge, place: int, nulls: bool, sliced: bool) -> tuple[pa.Table, int]:
    """Return rows with the value at a place of five, and where it stands."""
    values = [edge.ordinary] * 5
    values[place] = edge.value
    if nulls:
        values = [None, *(value for item in values for value in (item, None))]
        place = 2 * place + 1
    before = [edge.ordinary] * 3 if sliced else []
    column = pa.array([*before, *values], _stored(edge.type)).cast(edge.type)
    return pa.table({"a": column.slice(len(before))}), place


def _stored(data_type: pa.DataType) -> pa.DataType:
    """Return the type in which Arrow stores times; other types as they are."""
    return INT if data_type == DATE else LONG if pa.types.is_timestamp(data_type) else data_type


def _computed(expression: Expr, rows: pa.Table) -> list[Any]:
    """Return values; of times what is stored, as Python does not have all of them."""
    (batch,) = rows.combine_chunks().to_batches()
    values = compile_expression(expression.node, rows.schema).evaluate(batch)
    return values.cast(_stored(values.type)).to_pylist()  # type: ignore[no-any-return]


@pytest.mark.parametrize("edge", EDGES, ids=lambda edge: f"{edge.expression!r} of {edge.type} {edge.value}")
def test_the_end_of_a_type_is_exact_or_an_error(edge: Edge) -> None:
    for place in (0, 2, 4):
        for nulls in (False, True):
            for sliced in (False, True):
                rows, at = _placed(edge, place, nulls, sliced)
                if edge.expected is RAISES:
                    with pytest.raises((pa.ArrowInvalid, ExpressionError)):
                        _computed(edge.expression, rows)
                else:
                    assert _computed(edge.expression, rows)[at] == edge.expected


def test_a_decimal_is_rounded_in_each_chunk_of_a_job() -> None:
    chunks = [[Decimal("999.5"), Decimal("1.5")], [None, Decimal("-999.9"), Decimal("0.1")]]
    rows = pa.table({"a": pa.chunked_array(chunks, pa.decimal128(4, 1))})
    stream = Environment().from_source(MemorySource(rows))
    columns = {"round": a.round(), "ceil": a.ceil(), "floor": a.floor()}
    assert stream.select(*(column.alias(name) for name, column in columns.items())).to_arrow().to_pydict() == {
        "round": [1000, 2, None, -1000, 0],
        "ceil": [1000, 2, None, -999, 1],
        "floor": [999, 1, None, -1000, 0],
    }


@given(st.data(), st.integers(1, 38))
def test_decimals_are_rounded_as_python_does(data: st.DataObject, precision: int) -> None:
    scale = data.draw(st.integers(0, precision))
    most = 10**precision - 1
    unscaled = data.draw(st.lists(st.none() | st.integers(-most, most) | st.sampled_from([most, -most]), min_size=1))
    digits, exact = data.draw(st.integers(0, 30)), Context(prec=80)
    numbers = [value if value is None else Decimal(value).scaleb(-scale, exact) for value in unscaled]
    rows = pa.table({"a": pa.array(numbers, pa.decimal128(precision, scale))})
    for expression, left, mode in (
        *((a.round(digits), digits, ROUND_HALF_UP), (a.round(digits, "half_even"), digits, ROUND_HALF_EVEN)),
        *((a.floor(), 0, ROUND_FLOOR), (a.ceil(), 0, ROUND_CEILING)),
    ):
        unit = Decimal(1).scaleb(-min(left, scale))
        expected = [value if value is None else value.quantize(unit, mode, exact) for value in numbers]
        assert values_of(expression, rows) == expected


@given(st.lists(st.none() | st.floats(), min_size=1), st.integers(0, 30))
@example([1.005, 0.285, 2.675, -1.005, 0.5, 2.5, -0.0, 1e15 + 0.5, 9999999999999.995, 5e-324, 1.7e308, None], 2)
@example([0.5, 1.5, 2.5, -0.4, -0.5, 4503599627370495.5, 9007199254740993.0], 0)
@example([1e-22, 5e-31, 123456.7890123456], 30)
def test_floats_are_rounded_by_their_shortest_text(numbers: list[float | None], digits: int) -> None:
    for kind in (pa.float64(), pa.float32()):
        rows = pa.table({"a": pa.array(numbers, DOUBLE).cast(kind, safe=False)})
        for mode, python_mode in (("half_up", ROUND_HALF_UP), ("half_even", ROUND_HALF_EVEN)):
            expected = [_by_text(value, digits, python_mode) for value in rows["a"].to_pylist()]
            found = values_of(a.round(digits, mode), rows)  # type: ignore[arg-type]
            assert list(map(repr, found)) == list(
                map(repr, pa.array(expected, DOUBLE).cast(kind, safe=False).to_pylist())
            )


def _by_text(value: float | None, digits: int, mode: str) -> float | None:
    if value is None or not np.isfinite(value):
        return value
    # Zero has no sign, as in Spark.
    return float(Decimal(repr(value)).quantize(Decimal(1).scaleb(-digits), mode, Context(prec=400))) + 0.0


# NumPy itself is wrong in the first day of 64 bits.
@given(st.lists(st.integers(-(2**63) + 10**15, 2**63 - 1), min_size=1))
@example([2**63 - 1, 0])
@example([-(2**63) + 10**15])
def test_times_of_any_year_are_taken_apart_as_numpy_does(micros: list[int]) -> None:
    times = np.array(micros, np.int64).view("datetime64[us]")
    days = times.astype("datetime64[D]")
    for kind, numbers in ((NTZ, times.view(np.int64)), (INSTANT, times.view(np.int64)), (DATE, days.view(np.int64))):
        rows = pa.table({"a": pa.array(numbers).cast(_stored(kind)).cast(kind)})
        years, months = days.astype("datetime64[Y]"), days.astype("datetime64[M]")
        assert _computed(a.dt.year(), rows) == (years.view(np.int64) + 1970).tolist()
        assert _computed(a.dt.month(), rows) == (months.view(np.int64) % 12 + 1).tolist()
        assert _computed(a.dt.day(), rows) == ((days - months.astype("datetime64[D]")).view(np.int64) + 1).tolist()
        assert _computed(a.dt.weekday(), rows) == ((days.view(np.int64) + 3) % 7 + 1).tolist()
        assert (
            _computed(a.dt.day_of_year(), rows) == ((days - years.astype("datetime64[D]")).view(np.int64) + 1).tolist()
        )


@given(st.integers(-(2**63) + 366 * 86_400_000_000, 2**63 - 1))
def test_times_of_any_year_are_truncated_as_numpy_does(micros: int) -> None:
    time = np.array([micros]).view("datetime64[us]")
    rows = pa.table({"a": pa.array([micros, None]).cast(NTZ)})
    for unit, code in (("year", "Y"), ("month", "M"), ("day", "D"), ("hour", "h"), ("second", "s")):
        start = int(time.astype(f"datetime64[{code}]").astype("datetime64[us]").view(np.int64)[0])
        assert _computed(a.dt.truncate(unit), rows) == [start, None]  # type: ignore[arg-type]


def test_nan_is_found_and_a_null_may_be_any_value() -> None:
    nan = float("nan")
    lists = [[0.0], [-0.0], [nan], [None], [1.0, None], [], None, [nan, None]]
    rows = pa.table({"a": lists, "f": pa.array(lists, pa.list_(pa.float32()))})
    for name in ("a", "f"):
        found = values_of(col(name).list.contains(nan), rows)
        assert found == [False, False, True, None, None, False, None, True]
        assert values_of(col(name).list.contains(0.0), rows) == [True, True, False, None, None, False, None, None]
    keyed = pa.table({"a": pa.array([[(nan, 1)], [(1.0, 2)], [], None], pa.map_(DOUBLE, INT))})
    assert values_of(a.map.get(nan), keyed) == [1, None, None, None]
    assert values_of(a.map.contains(nan), keyed) == [True, False, False, None]
